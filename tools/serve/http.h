/* Requests, replies, and the table of routes; page/openapi.json describes them. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include <pthread.h>

#include "cloob/cloob.h"
#include "core/json.h"

/* One bound on the memory of requests (--memory-limit): bodies, their parsed form, downloads, images, answers.
 *
 *     account a = { .of = &server_budget };
 *     CLOOB_TRY(account_reserve(ctx, &a, bytes));         before the memory is taken
 *     account_set(&a, answer_bytes);                      what is still held; the rest is released
 *     account_set(&a, 0);
 *
 * Every request has an account, which one thread uses at a time. The first ACCOUNT_FREE bytes of an account are not
 * counted, so that small requests pass while large ones hold the whole budget. An account may hold half of it. */

enum { ACCOUNT_FREE = 64 << 10 };

typedef struct budget {
    int64_t limit, used, peak; /* bytes; used and peak are guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t freed;
} budget;

typedef struct account {
    budget *of; /* NULL: nothing is counted */
    int64_t held;
} account;

void budget_init(budget *b, int64_t limit);
void budget_get(budget *b, int64_t *used, int64_t *peak);

/* Adds to what the account holds. CLOOB_ERR_BUSY when too little of the budget is left, CLOOB_ERR_ARGUMENT when the
 * budget is smaller than that; the account is then unchanged. */
cloob_status account_reserve(cloob_ctx *ctx, account *a, int64_t bytes);
/* The same, but waits until others release memory: CLOOB_ERR_BUSY after `seconds`. Callers that wait and hold memory
 * must give up at different times. */
cloob_status account_wait(cloob_ctx *ctx, account *a, int64_t bytes, double seconds);
/* Makes the account hold `bytes`. false: that is more than before and not available; the account is unchanged. */
bool account_set(account *a, int64_t bytes);

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
    struct gate *wait; /* no reply yet: the handler is called again when this gate is free */
} http_reply;

void http_reply_release(http_reply *r);

/* Sends what w wrote and takes its memory; a writer out of memory gives 503. */
void http_json(http_reply *r, int code, json_out *w);
void http_text(http_reply *r, int code, const char *text); /* static text */
/* 200 with these bytes, which are malloc'ed. */
void http_data(http_reply *r, const char *type, char *data, size_t bytes);
/* An error in the format of the route's protocol. */
void http_error(http_reply *r, const http_request *q, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The code for a status of the library. */
int http_code(cloob_status status);

/* ---- routes -------------------------------------------------------------------------------------- */

typedef struct serve serve;
typedef struct call call;

typedef cloob_status route_fn(call *c);

/* How a protocol writes errors: OpenAI's object; text-embeddings-inference; {"detail"} of FastAPI; {"error"} of Ollama
 * and Weaviate; {"message"} of Cohere. */
typedef enum error_format { ERROR_OPENAI = 0, ERROR_TEI, ERROR_DETAIL, ERROR_PLAIN, ERROR_MESSAGE } error_format;

/* The code for a request whose values cannot be used: 400, or 422. */
int http_bad_request(error_format format);

enum {
    ROUTE_QUICK = 1, /* answered at once, also when every worker is busy */
    ROUTE_OPEN = 2,  /* needs no key: shows no data */
    ROUTE_IMAGE = 4, /* takes a raw image body and multipart as well as JSON */
    ROUTE_FORM = 8   /* takes only multipart */
};

struct route {
    const char *method, *path; /* a path may end in {name}, which matches one word */
    route_fn *run;
    int flags;
    error_format errors;
};

extern const route routes[]; /* ends with a NULL method */

/* The route of a request. NULL: none; then *allow holds the method that the path has, or NULL where there is no such
 * path. */
const route *route_find(const char *method, const char *path, const char **tail, const char **allow);

#endif
