/* Requests, replies, and the table of routes: requests are routed by it, and /openapi.json is written from it. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include "serve/budget.h"
#include "core/json.h"

enum { HTTP_MAX_QUERY = 24 };

typedef struct http_pair {
    const char *key, *value;
} http_pair;

typedef struct route route;

typedef struct http_request {
    const route *route;
    const char *tail; /* what {name} matches at the end of the route's path; "" */
    http_pair query[HTTP_MAX_QUERY];
    int queries;
    char *content_type; /* "" when absent */
    const char *body;   /* zero-terminated */
    size_t bytes;
    double received_at; /* clock_seconds() when the request was complete */
    account *memory;    /* what the request holds: body, inputs, answer */
} http_request;

/* The value of a query parameter; NULL: absent. */
const char *http_query(const http_request *q, const char *key);
bool http_type_is(const http_request *q, const char *type); /* the media type, or its beginning when it ends in '/' */

typedef struct http_reply {
    int code;
    const char *type; /* static */
    char *data;       /* malloc'ed, or static where is_static */
    size_t bytes;
    bool is_static;
    int fd; /* >= 0: a file to send instead of data */
    int64_t fd_bytes;
    int retry_after;   /* seconds; 0: no such header */
    const char *allow; /* of a 405; static */
    const char *cache; /* Cache-Control; static; NULL: no-store */
    char etag[40];
    struct gate *wait; /* no reply yet: the handler is called again when this gate is free */
} http_reply;

void http_reply_release(http_reply *r);

/* Takes w->data over; a failed writer gives 503. */
void http_json(http_reply *r, int code, json_out *w);
void http_text(http_reply *r, int code, const char *text); /* static text */
/* An error in the format of the route's protocol. */
void http_error(http_reply *r, const http_request *q, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Counts memory that the request is about to take; false: too little is left, and r holds the error. */
bool http_reserve(http_reply *r, const http_request *q, cloob_ctx *ctx, int64_t bytes);
/* The reply for a status of the library, with the context's text. */
void http_fail(http_reply *r, const http_request *q, const cloob_ctx *ctx, cloob_status status);

/* ---- routes -------------------------------------------------------------------------------------- */

typedef struct serve serve;

typedef void route_fn(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r);

typedef enum error_dialect { ERROR_OPENAI = 0, ERROR_TEI, ERROR_FASTAPI } error_dialect;

enum {
    ROUTE_QUICK = 1,  /* answered at once, also when every worker is busy */
    ROUTE_OPEN = 2,   /* needs no key: shows no data */
    ROUTE_IMAGE = 4,  /* takes a raw image body and multipart as well as JSON */
    ROUTE_HIDDEN = 8, /* not in /openapi.json */
    ROUTE_FORM = 16   /* takes only multipart */
};

struct route {
    const char *method, *path; /* a path may end in {name}, which matches one word */
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

/* A schema of openapi.c. */
#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"

#endif
