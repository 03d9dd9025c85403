/* The table of routes. Schemas are JSON Schema as OpenAPI 3.1 takes it; $ref names a schema of openapi.c. */
#include <string.h>

#include "serve/handlers.h"

/* clang-format off */
const route routes[] = {
    /* OpenAI, with the image dialects of Infinity, Jina and vLLM */
    { "POST", "/v1/embeddings", handle_embeddings, ROUTE_IMAGE, ERROR_OPENAI,
      "Embeds texts and images. Strings that are data:image/...;base64, URLs are images.", "model:string",
      REF("EmbeddingsRequest"), REF("EmbeddingsResponse") },
    { "POST", "/embeddings", handle_embeddings, ROUTE_IMAGE, ERROR_OPENAI, "The same as /v1/embeddings.", "model:string",
      REF("EmbeddingsRequest"), REF("EmbeddingsResponse") },
    { "GET", "/v1/models", handle_models, ROUTE_QUICK, ERROR_OPENAI, "The models that are served.", NULL, NULL, REF("Models") },

    /* text-embeddings-inference */
    { "POST", "/embed", handle_embed, 0, ERROR_TEI, "Embeds texts; text-embeddings-inference's protocol.", NULL,
      REF("EmbedRequest"), "{\"type\":\"array\",\"items\":" REF("Row") "}" },
    { "GET", "/info", handle_info, ROUTE_QUICK, ERROR_TEI, "The first model and the limits.", NULL, NULL, "{\"type\":\"object\"}" },

    /* immich */
    { "GET", "/ping", handle_ping, ROUTE_QUICK | ROUTE_OPEN, ERROR_FASTAPI, "Answers pong.", NULL, NULL, "text/plain" },
    { "POST", "/predict", handle_predict, ROUTE_FORM, ERROR_FASTAPI,
      "immich's machine-learning service: CLIP embeddings of an image or a text.", NULL, REF("Predict"),
      "{\"type\":\"object\",\"required\":[\"clip\"],\"properties\":{\"clip\":{\"type\":\"string\"},\"imageHeight\":{\"type\":\"integer\"},"
      "\"imageWidth\":{\"type\":\"integer\"}}}" },

    /* clip-retrieval */
    { "GET", "/indices-list", handle_indices_list, ROUTE_QUICK, ERROR_OPENAI, "Names of the indexes.", NULL, NULL,
      "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}" },
    { "POST", "/knn-service", handle_knn, 0, ERROR_OPENAI, "clip-retrieval's search by text, image or embedding.", NULL,
      REF("KnnRequest"), "{\"type\":\"array\",\"items\":{\"type\":\"object\"}}" },
    { "POST", "/metadata", handle_metadata, 0, ERROR_OPENAI, "clip-retrieval's metadata of entries.", NULL,
      REF("MetadataRequest"), "{\"type\":\"array\",\"items\":{\"type\":\"object\"}}" },

    /* cloob's */
    { "POST", "/v1/classify", handle_classify, 0, ERROR_OPENAI, "Zero-shot classification of images.", NULL,
      REF("ClassifyRequest"), REF("ClassifyResponse") },
    { "POST", "/v1/similarity", handle_similarity, 0, ERROR_OPENAI,
      "Cosines of images and texts, also after retrieval from an index as Hopfield memory.", NULL, REF("SimilarityRequest"),
      REF("SimilarityResponse") },
    { "POST", "/v1/search", handle_search, ROUTE_IMAGE, ERROR_OPENAI,
      "Images of an index by text, image, or a weighted sum of terms, with filters.", "index:string limit:integer",
      REF("SearchRequest"), REF("SearchResponse") },
    { "GET", "/v1/indexes", handle_indexes, ROUTE_QUICK, ERROR_OPENAI, "The indexes that are served.", NULL, NULL, REF("Indexes") },
    { "GET", "/v1/thumb", handle_thumb, 0, ERROR_OPENAI, "A thumbnail of an indexed image, upright.",
      "index:string path:string! size:integer", NULL, "image/jpeg" },
    { "GET", "/v1/image", handle_image, 0, ERROR_OPENAI, "An indexed image as it is.", "index:string path:string!", NULL, "image/*" },
    { "GET", "/v1/map", handle_map, 0, ERROR_OPENAI, "All images of an index in the plane.", "index:string", NULL, REF("Map") },
    { "GET", "/v1/runs", handle_runs, 0, ERROR_OPENAI, "Training runs below --logs.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/v1/runs/{name}", handle_run, 0, ERROR_OPENAI, "Curves, results and settings of a run.", NULL, NULL, "{\"type\":\"object\"}" },

    /* operation */
    { "GET", "/health", handle_ready, ROUTE_QUICK | ROUTE_OPEN, ERROR_TEI, "Ready for requests.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/health/live", handle_live, ROUTE_QUICK | ROUTE_OPEN, ERROR_OPENAI, "The process runs.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/health/ready", handle_ready, ROUTE_QUICK | ROUTE_OPEN, ERROR_OPENAI, "Ready for requests.", NULL, NULL, "{\"type\":\"object\"}" },
    { "GET", "/metrics", handle_metrics, ROUTE_QUICK, ERROR_OPENAI, "Metrics for Prometheus.", NULL, NULL, "text/plain" },
    { "GET", "/openapi.json", handle_openapi, ROUTE_QUICK | ROUTE_OPEN, ERROR_OPENAI, "This document.", NULL, NULL, "{\"type\":\"object\"}" },

    /* the page */
    { "GET", "/", handle_page, ROUTE_QUICK | ROUTE_OPEN | ROUTE_HIDDEN, ERROR_OPENAI, "The page.", NULL, NULL, "text/html" },
    { "GET", "/page/{name}", handle_asset, ROUTE_QUICK | ROUTE_OPEN | ROUTE_HIDDEN, ERROR_OPENAI, "Files of the page.", NULL, NULL, "*/*" },
    { NULL, NULL, NULL, 0, ERROR_OPENAI, NULL, NULL, NULL, NULL },
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
