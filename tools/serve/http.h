/* Requests, replies, and the table of routes. page/openapi.json describes the interface. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include <pthread.h>

#include "cloob/cloob.h"
#include "core/json.h"

/* Limits the memory of requests (--memory-limit): bodies, their parsed form, downloads, images, answers.
 *
 *     account a = { .of = &server_budget };
 *     CLOOB_TRY(account_reserve(ctx, &a, bytes));         before allocating the memory
 *     account_set(&a, answer_bytes);                      what is still in use; releases the rest
 *     account_set(&a, 0);
 *
 * Every request has an account, which one thread uses at a time. The first ACCOUNT_FREE bytes of an account are not
 * counted, so that small requests are accepted while large ones hold the whole budget. An account may hold at most half
 * of the budget. */

enum { ACCOUNT_FREE = 64 << 10 };

typedef struct budget {
    int64_t limit, used, peak; /* bytes; used and peak are guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t freed;
} budget;

typedef struct account {
    budget *of; /* NULL: nothing is limited */
    int64_t held;
} account;

void budget_init(budget *b, int64_t limit);
void budget_get(budget *b, int64_t *used, int64_t *peak);

/* Reserves more bytes. Fails with CLOOB_ERR_BUSY if the budget has too little left, and with CLOOB_ERR_ARGUMENT if an
 * account may never hold as much; the account is then unchanged. */
cloob_status account_reserve(cloob_ctx *ctx, account *a, int64_t bytes);
/* As account_reserve, but waits for other requests to release memory: CLOOB_ERR_BUSY after `seconds`. Callers that hold
 * memory while they wait must use different timeouts, to avoid a deadlock. */
cloob_status account_wait(cloob_ctx *ctx, account *a, int64_t bytes, double seconds);
/* Sets what the account holds. Returns false, with the account unchanged, if that is more than before and not
 * available. */
bool account_set(account *a, int64_t bytes);

enum { HTTP_MAX_QUERY = 24 };

typedef struct http_pair {
    const char *key, *value;
} http_pair;

typedef struct route route;

typedef struct http_request {
    const route *route;
    const char *tail; /* the part of the path that {name} of the route matches; "" */
    http_pair query[HTTP_MAX_QUERY];
    int queries;
    char *content_type; /* "" if absent */
    const char *body;   /* zero-terminated */
    size_t bytes;
    double received_at; /* clock_seconds() when the request was complete */
    account *memory;    /* what the request holds: body, inputs, answer */
} http_request;

/* The value of a query parameter; NULL if absent. */
const char *http_query(const http_request *q, const char *key);
/* Compares the media type, or its prefix if `type` ends in '/'. */
bool http_type_is(const http_request *q, const char *type);

typedef struct http_reply {
    int code;
    const char *type; /* static */
    char *data;       /* allocated with malloc, or static if is_static */
    size_t bytes;
    bool is_static;
    int fd; /* if >= 0, a file to send instead of data */
    int64_t fd_bytes;
    int retry_after;   /* value of Retry-After in seconds; 0: no header */
    const char *allow; /* value of Allow for status 405; static */
    const char *cache; /* value of Cache-Control; static; NULL: no-store */
    struct gate *wait; /* not NULL: no reply yet; the handler is called again when this gate is free */
} http_reply;

void http_reply_release(http_reply *r);

/* Sends the content of w and takes ownership of its memory; sends 503 if w ran out of memory. */
void http_json(http_reply *r, int code, json_out *w);
void http_text(http_reply *r, int code, const char *text); /* sends a static text */
/* Sends 200 with these bytes and takes ownership of them (malloc). */
void http_data(http_reply *r, const char *type, char *data, size_t bytes);
/* Sends an error in the format of the route's protocol. */
void http_error(http_reply *r, const http_request *q, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The HTTP status for a status of the library. */
int http_code(cloob_status status);

/* ---- routes -------------------------------------------------------------------------------------- */

typedef struct serve serve;
typedef struct call call;

typedef cloob_status route_fn(call *c);

/* Formats of errors: OpenAI's object; text-embeddings-inference; FastAPI's {"detail"}; {"error"} of Ollama and
 * Weaviate; Cohere's {"message"}. */
typedef enum error_format { ERROR_OPENAI = 0, ERROR_TEI, ERROR_DETAIL, ERROR_PLAIN, ERROR_MESSAGE } error_format;

/* The HTTP status for a request with invalid values: 400 or 422. */
int http_bad_request(error_format format);

enum {
    ROUTE_QUICK = 1, /* answered immediately, even if all workers are busy */
    ROUTE_OPEN = 2,  /* requires no key; exposes no data */
    ROUTE_IMAGE = 4, /* accepts a raw image body and multipart as well as JSON */
    ROUTE_FORM = 8   /* accepts only multipart */
};

struct route {
    const char *method, *path; /* a path may end in {name}, which matches one component */
    route_fn *run;
    int flags;
    error_format errors;
};

extern const route routes[]; /* ends with a NULL method */

/* Finds the route of a request. NULL if there is none; *allow is then the method that the path supports, or NULL if the
 * path is unknown. */
const route *route_find(const char *method, const char *path, const char **tail, const char **allow);

#endif
