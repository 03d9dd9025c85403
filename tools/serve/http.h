/* A request and its reply, as handlers see them; server.c fills and sends them. */
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
    const char *tail; /* what {name} stands for at the end of the route's path; "" */
    http_pair query[HTTP_MAX_QUERY];
    int queries;
    char *content_type; /* "" when absent */
    const char *body;   /* zero-terminated */
    size_t bytes;
    double received_at; /* batcher's clock: when the request was complete */
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
    struct gate *wait; /* no reply yet: the handler is called again when this gate lets it in */
} http_reply;

void http_reply_release(http_reply *r);

/* Takes w->data over; a failed writer gives 503. */
void http_json(http_reply *r, int code, json_out *w);
void http_text(http_reply *r, int code, const char *text); /* static text */
/* An error in the words of the route's dialect. */
void http_error(http_reply *r, const http_request *q, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Counts memory that the request is about to take; false: there is not so much, and r holds the error. */
bool http_reserve(http_reply *r, const http_request *q, cloob_ctx *ctx, int64_t bytes);
/* The reply for a status of the library, with the context's text. */
void http_fail(http_reply *r, const http_request *q, const cloob_ctx *ctx, cloob_status status);

#endif
