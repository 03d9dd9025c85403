/* The table of routes. page/openapi.json describes their requests and answers. */
#include <string.h>

#include "serve/handlers.h"

enum { QUICK = ROUTE_QUICK, OPEN = ROUTE_QUICK | ROUTE_OPEN };

/* clang-format off */
const route routes[] = {
    /* OpenAI, with the image dialects of Infinity, Jina and vLLM */
    { "POST", "/v1/embeddings",     handle_openai,        ROUTE_IMAGE, ERROR_OPENAI },
    { "POST", "/embeddings",        handle_openai,        ROUTE_IMAGE, ERROR_OPENAI },
    { "GET",  "/v1/models",         handle_models,        QUICK,       ERROR_OPENAI },

    /* text-embeddings-inference */
    { "POST", "/embed",             handle_embed,         0,           ERROR_TEI },
    { "POST", "/embed_all",         handle_embed_all,     0,           ERROR_TEI },
    { "POST", "/similarity",        handle_similarity,    0,           ERROR_TEI },
    { "POST", "/",                  handle_tei_root,      0,           ERROR_TEI },
    { "POST", "/tokenize",          handle_tokenize,      0,           ERROR_TEI },
    { "POST", "/decode",            handle_decode,        0,           ERROR_TEI },
    { "GET",  "/info",              handle_info,          QUICK,       ERROR_TEI },

    /* immich */
    { "GET",  "/ping",              handle_ping,          OPEN,        ERROR_DETAIL },
    { "POST", "/predict",           handle_predict,       ROUTE_FORM,  ERROR_DETAIL },

    /* Ollama */
    { "POST", "/api/embed",         handle_ollama,        0,           ERROR_PLAIN },
    { "POST", "/api/embeddings",    handle_ollama_prompt, 0,           ERROR_PLAIN },
    { "GET",  "/api/tags",          handle_tags,          QUICK,       ERROR_PLAIN },
    { "GET",  "/api/version",       handle_version,       OPEN,        ERROR_PLAIN },

    /* Cohere */
    { "POST", "/v2/embed",          handle_cohere,        0,           ERROR_MESSAGE },

    /* Weaviate: multi2vec-clip and text2vec-transformers */
    { "POST", "/vectorize",         handle_vectorize,     0,           ERROR_PLAIN },
    { "POST", "/vectors",           handle_vectors,       0,           ERROR_PLAIN },
    { "POST", "/vectors/",          handle_vectors,       0,           ERROR_PLAIN },
    { "GET",  "/meta",              handle_meta,          QUICK,       ERROR_PLAIN },
    { "GET",  "/.well-known/live",  handle_no_content,    OPEN,        ERROR_PLAIN },
    { "GET",  "/.well-known/ready", handle_no_content,    OPEN,        ERROR_PLAIN },

    /* clip-retrieval */
    { "GET",  "/indices-list",      handle_indices_list,  QUICK,       ERROR_OPENAI },
    { "POST", "/knn-service",       handle_knn,           0,           ERROR_OPENAI },
    { "POST", "/metadata",          handle_metadata,      0,           ERROR_OPENAI },

    /* cloob's */
    { "POST", "/v1/classify",       handle_classify,      0,           ERROR_OPENAI },
    { "POST", "/v1/similarity",     handle_compare,       0,           ERROR_OPENAI },
    { "POST", "/v1/search",         handle_search,        ROUTE_IMAGE, ERROR_OPENAI },
    { "GET",  "/v1/indexes",        handle_indexes,       QUICK,       ERROR_OPENAI },
    { "GET",  "/v1/thumb",          handle_thumb,         0,           ERROR_OPENAI },
    { "GET",  "/v1/image",          handle_image,         0,           ERROR_OPENAI },
    { "GET",  "/v1/map",            handle_map,           0,           ERROR_OPENAI },
    { "GET",  "/v1/runs",           handle_runs,          0,           ERROR_OPENAI },
    { "GET",  "/v1/runs/{name}",    handle_run,           0,           ERROR_OPENAI },

    /* operation */
    { "GET",  "/health",            handle_ready,         OPEN,        ERROR_TEI },
    { "GET",  "/health/live",       handle_live,          OPEN,        ERROR_OPENAI },
    { "GET",  "/health/ready",      handle_ready,         OPEN,        ERROR_OPENAI },
    { "GET",  "/metrics",           handle_metrics,       QUICK,       ERROR_OPENAI },
    { "GET",  "/openapi.json",      handle_openapi,       OPEN,        ERROR_OPENAI },

    /* the page, and the interface description as a page */
    { "GET",  "/docs",              handle_docs,          OPEN,        ERROR_OPENAI },
    { "GET",  "/",                  handle_page,          OPEN,        ERROR_OPENAI },
    { "GET",  "/page/{name}",       handle_asset,         OPEN,        ERROR_OPENAI },
    { NULL, NULL, NULL, 0, ERROR_OPENAI },
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
    bool head = strcmp(method, "HEAD") == 0; /* handled as GET; the body is omitted when sending */
    *allow = NULL;
    for (const route *r = routes; r->method; r++) {
        if (!matches(r->path, path, tail)) continue;
        if (strcmp(r->method, head ? "GET" : method) == 0) return r;
        *allow = r->method;
    }
    *tail = "";
    return NULL;
}
