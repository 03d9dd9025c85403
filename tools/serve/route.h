/* One table of routes: requests are routed by it, and /openapi.json is written from it. */
#ifndef SERVE_ROUTE_H
#define SERVE_ROUTE_H

#include "serve/http.h"

typedef struct serve serve;

typedef void route_fn(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r);

typedef enum error_dialect { ERROR_OPENAI = 0, ERROR_TEI, ERROR_FASTAPI } error_dialect;

enum {
    ROUTE_QUICK = 1,  /* answered at once, also when every worker is busy */
    ROUTE_OPEN = 2,   /* needs no key: says nothing about data */
    ROUTE_IMAGE = 4,  /* takes a raw image body and multipart beside JSON */
    ROUTE_HIDDEN = 8, /* not in /openapi.json */
    ROUTE_FORM = 16   /* takes multipart alone */
};

struct route {
    const char *method, *path; /* a path may end in {name}, which stands for one word */
    route_fn *run;
    int flags;
    error_dialect errors;
    const char *doc;
    const char *query;    /* "name:type name:type!": parameters, ! needed; NULL: none */
    const char *request;  /* JSON schema of the body; NULL: none */
    const char *response; /* JSON schema, or a media type such as image/jpeg */
};

extern const route routes[]; /* ends with a NULL method */

/* The route of a request. NULL: none; then *allow holds the method that the path has, or NULL where there is no such
 * path. */
const route *route_find(const char *method, const char *path, const char **tail, const char **allow);

/* OpenAPI 3.1 of the table; the caller frees. NULL when memory is out. */
char *route_openapi(size_t *bytes);

#endif
