/* The table of routes. A protocol that embeds is a row with EMBED(its dialect); see handlers.h. Schemas are JSON Schema as OpenAPI 3.1 takes it; $ref names a schema of openapi.c. */
#include <string.h>

#include "serve/handlers.h"

#define EMBED(name)   handle_dialect, &dialect_##name
#define RUN(function) function, NULL

/* clang-format off */
const route routes[] = {
    /* OpenAI, with the image dialects of Infinity, Jina and vLLM */
    { "POST", "/v1/embeddings", EMBED(openai), ROUTE_IMAGE, ERROR_OPENAI,
      "Embeds texts and images. Strings that are data:image/...;base64, URLs are images.", "model:string",
      REF("EmbeddingsRequest"), REF("EmbeddingsResponse") },
    { "POST", "/embeddings", EMBED(openai), ROUTE_IMAGE, ERROR_OPENAI, "The same as /v1/embeddings.", "model:string",
      REF("EmbeddingsRequest"), REF("EmbeddingsResponse") },
    { "GET", "/v1/models", RUN(handle_models), ROUTE_QUICK, ERROR_OPENAI, "The models that are served.", NULL, NULL, REF("Models") },

    /* text-embeddings-inference */
    { "POST", "/embed", EMBED(tei_embed), 0, ERROR_TEI, "Embeds texts; text-embeddings-inference's protocol.", NULL,
      REF("EmbedRequest"), "{\"type\":\"array\",\"items\":" REF("Row") "}" },
    { "POST", "/embed_all", RUN(handle_embed_all), 0, ERROR_TEI, "A row for every token of texts; text-embeddings-inference's protocol.", NULL,
      REF("EmbedRequest"), "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":" REF("Row") "}}" },
    { "POST", "/similarity", EMBED(tei_similarity), 0, ERROR_TEI, "Cosines of a sentence with others; text-embeddings-inference's protocol.", NULL,
      REF("SentencePairs"), REF("Row") },
    { "POST", "/", EMBED(tei_root), 0, ERROR_TEI, "The same as /embed or /similarity, by the inputs.", NULL,
      "{\"anyOf\":[" REF("EmbedRequest") "," REF("SentencePairs") "]}", "{\"type\":\"array\"}" },
    { "POST", "/tokenize", RUN(handle_tokenize), 0, ERROR_TEI, "Tokens of texts; text-embeddings-inference's protocol.", NULL,
      REF("TokenizeRequest"), REF("Tokens") },
    { "POST", "/decode", RUN(handle_decode), 0, ERROR_TEI, "Texts of token ids; text-embeddings-inference's protocol.", NULL,
      REF("DecodeRequest"), "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}" },
    { "GET", "/info", RUN(handle_info), ROUTE_QUICK, ERROR_TEI, "The first model and the limits.", NULL, NULL, "{\"type\":\"object\"}" },

    /* immich */
    { "GET", "/ping", RUN(handle_ping), ROUTE_QUICK | ROUTE_OPEN, ERROR_DETAIL, "Answers pong.", NULL, NULL, "text/plain" },
    { "POST", "/predict", EMBED(immich), ROUTE_FORM, ERROR_DETAIL,
      "immich's machine-learning service: CLIP embeddings of an image or a text; other tasks are forwarded to --immich-upstream.", NULL,
      REF("Predict"), REF("Prediction") },

    /* Ollama */
    { "POST", "/api/embed", EMBED(ollama), 0, ERROR_PLAIN, "Embeds texts, and images in base64; Ollama's protocol.", NULL,
      REF("OllamaRequest"), REF("OllamaResponse") },
    { "POST", "/api/embeddings", EMBED(ollama_prompt), 0, ERROR_PLAIN, "Embeds one prompt or image; Ollama's older protocol.", NULL,
      REF("OllamaPrompt"), "{\"type\":\"object\",\"properties\":{\"embedding\":" REF("Row") "}}" },
    { "GET", "/api/tags", RUN(handle_tags), ROUTE_QUICK, ERROR_PLAIN, "The models that are served; Ollama's protocol.", NULL, NULL, REF("OllamaModels") },
    { "GET", "/api/version", RUN(handle_version), ROUTE_QUICK | ROUTE_OPEN, ERROR_PLAIN, "The version of cloob; Ollama's protocol.", NULL, NULL,
      "{\"type\":\"object\"}" },

    /* Cohere */
    { "POST", "/v2/embed", EMBED(cohere), 0, ERROR_MESSAGE, "Embeds texts or images; Cohere's protocol.", NULL, REF("CohereRequest"),
      REF("CohereResponse") },

    /* Weaviate: multi2vec-clip and text2vec-transformers */
    { "POST", "/vectorize", EMBED(vectorize), 0, ERROR_PLAIN, "Embeds texts and images; Weaviate's multi2vec-clip.", NULL,
      REF("VectorizeRequest"), REF("VectorizeResponse") },
    { "POST", "/vectors", EMBED(vectors), 0, ERROR_PLAIN, "Embeds a text; Weaviate's text2vec-transformers.", NULL, REF("VectorsRequest"),
      REF("VectorsResponse") },
    { "POST", "/vectors/", EMBED(vectors), ROUTE_HIDDEN, ERROR_PLAIN, "The same as /vectors.", NULL, REF("VectorsRequest"), REF("VectorsResponse") },
    { "GET", "/meta", RUN(handle_meta), ROUTE_QUICK, ERROR_PLAIN, "The first model; Weaviate's protocol.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/.well-known/live", RUN(handle_no_content), ROUTE_QUICK | ROUTE_OPEN, ERROR_PLAIN, "Ready for Weaviate.", NULL, NULL, NULL },
    { "GET", "/.well-known/ready", RUN(handle_no_content), ROUTE_QUICK | ROUTE_OPEN, ERROR_PLAIN, "Ready for Weaviate.", NULL, NULL, NULL },

    /* clip-retrieval */
    { "GET", "/indices-list", RUN(handle_indices_list), ROUTE_QUICK, ERROR_OPENAI, "Names of the indexes.", NULL, NULL,
      "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}" },
    { "POST", "/knn-service", RUN(handle_knn), 0, ERROR_OPENAI, "clip-retrieval's search by text, image or embedding.", NULL,
      REF("KnnRequest"), "{\"type\":\"array\",\"items\":{\"type\":\"object\"}}" },
    { "POST", "/metadata", RUN(handle_metadata), 0, ERROR_OPENAI, "clip-retrieval's metadata of entries.", NULL,
      REF("MetadataRequest"), "{\"type\":\"array\",\"items\":{\"type\":\"object\"}}" },

    /* cloob's */
    { "POST", "/v1/classify", EMBED(classify), 0, ERROR_OPENAI, "Zero-shot classification of images.", NULL,
      REF("ClassifyRequest"), REF("ClassifyResponse") },
    { "POST", "/v1/similarity", EMBED(compare), 0, ERROR_OPENAI,
      "Cosines of images and texts, also after retrieval from an index as Hopfield memory.", NULL, REF("SimilarityRequest"),
      REF("SimilarityResponse") },
    { "POST", "/v1/search", RUN(handle_search), ROUTE_IMAGE, ERROR_OPENAI,
      "Images of an index by text, image, or a weighted sum of terms, with filters.", "index:string limit:integer",
      REF("SearchRequest"), REF("SearchResponse") },
    { "GET", "/v1/indexes", RUN(handle_indexes), ROUTE_QUICK, ERROR_OPENAI, "The indexes that are served.", NULL, NULL, REF("Indexes") },
    { "GET", "/v1/thumb", RUN(handle_thumb), 0, ERROR_OPENAI, "A thumbnail of an indexed image, upright.",
      "index:string path:string! size:integer", NULL, "image/jpeg" },
    { "GET", "/v1/image", RUN(handle_image), 0, ERROR_OPENAI, "An indexed image as it is.", "index:string path:string!", NULL, "image/*" },
    { "GET", "/v1/map", RUN(handle_map), 0, ERROR_OPENAI, "All images of an index in the plane.", "index:string", NULL, REF("Map") },
    { "GET", "/v1/runs", RUN(handle_runs), 0, ERROR_OPENAI, "Training runs below --logs.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/v1/runs/{name}", RUN(handle_run), 0, ERROR_OPENAI, "Curves, results and settings of a run.", NULL, NULL, "{\"type\":\"object\"}" },

    /* operation */
    { "GET", "/health", RUN(handle_ready), ROUTE_QUICK | ROUTE_OPEN, ERROR_TEI, "Ready for requests.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/health/live", RUN(handle_live), ROUTE_QUICK | ROUTE_OPEN, ERROR_OPENAI, "The process runs.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/health/ready", RUN(handle_ready), ROUTE_QUICK | ROUTE_OPEN, ERROR_OPENAI, "Ready for requests.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/metrics", RUN(handle_metrics), ROUTE_QUICK, ERROR_OPENAI, "Metrics for Prometheus.", NULL, NULL, "text/plain" },
    { "GET", "/openapi.json", RUN(handle_openapi), ROUTE_QUICK | ROUTE_OPEN, ERROR_OPENAI, "This document.", NULL, NULL, "{\"type\":\"object\"}" },

    { "GET", "/docs", RUN(handle_docs), ROUTE_QUICK | ROUTE_OPEN | ROUTE_HIDDEN, ERROR_OPENAI, "This document as a page.", NULL, NULL, "text/html" },

    /* the page */
    { "GET", "/", RUN(handle_page), ROUTE_QUICK | ROUTE_OPEN | ROUTE_HIDDEN, ERROR_OPENAI, "The page.", NULL, NULL, "text/html" },
    { "GET", "/page/{name}", RUN(handle_asset), ROUTE_QUICK | ROUTE_OPEN | ROUTE_HIDDEN, ERROR_OPENAI, "Files of the page.", NULL, NULL, "*/*" },
    { NULL, NULL, NULL, NULL, 0, ERROR_OPENAI, NULL, NULL, NULL, NULL },
};
/* clang-format on */
_Static_assert(sizeof routes / sizeof *routes <= SERVE_ROUTES, "counters for every route");

static bool matches(const char *pattern, const char *path, const char **tail)
{
    const char *brace = strchr(pattern, '{');
    *tail = "";
    if (!brace) return strcmp(pattern, path) == 0;
    size_t n = (size_t)(brace - pattern);
    if (strncmp(pattern, path, n) != 0 || !path[n] || strchr(path + n, '/')) return false;
    *tail = path + n;
    return true;
}

const route *route_find(const char *method, const char *path, const char **tail, const char **allow)
{
    bool head = strcmp(method, "HEAD") == 0; /* as GET; the body is left out when it is sent */
    *allow = NULL;
    for (const route *r = routes; r->method; r++) {
        if (!matches(r->path, path, tail)) continue;
        if (strcmp(r->method, head ? "GET" : method) == 0) return r;
        *allow = r->method;
    }
    *tail = "";
    return NULL;
}
