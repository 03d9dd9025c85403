/* HTTP requests to a hub. The token is only sent to the hub's host, redirects are followed here, and temporary failures
 * are retried. */
#ifndef HUB_HTTP_H
#define HUB_HTTP_H

#include "hub/curl.h"
#include "hub/hub.h"

/* Endpoint and credentials. */
typedef struct hub_site {
    char endpoint[1024]; /* without a trailing slash */
    char token[512];     /* "": no token */
    long patience_s;     /* seconds without data before a connection is closed */
} hub_site;

/* Reads HF_ENDPOINT, HF_TOKEN or the token file, and HF_HUB_DOWNLOAD_TIMEOUT. */
cloob_status hub_site_init(cloob_ctx *ctx, hub_site *out);

/* A connection, used by one thread. */
typedef struct http_session {
    cloob_ctx *ctx;
    CURL *curl;
    const hub_site *site;
    const atomic_bool *stop; /* NULL: the context's should_stop is called */
} http_session;

cloob_status http_open(cloob_ctx *ctx, const hub_site *site, const atomic_bool *stop, http_session *out);
void http_close(http_session *s);

/* Status and headers of a request with its redirects: the hub's headers arrive before a redirect, those of the content
 * after it. */
typedef struct http_answer {
    CURLcode result;
    long code;
    char commit[HUB_COMMIT];      /* X-Repo-Commit */
    char etag[SHA_HEX];           /* X-Linked-Etag; "": absent */
    int64_t linked_bytes;         /* X-Linked-Size; -1: absent */
    int64_t range_begin;          /* start of Content-Range; -1: the response is the whole file */
    curl_off_t retry_after_s;     /* Retry-After, given as seconds or a date; 0: absent */
    char error[64], message[256]; /* X-Error-Code, X-Error-Message */
    char next[2048];              /* URL of the next page of a list (Link); "": none */
} http_answer;

/* Receives a piece of the body of a successful response; returning false ends the transfer. */
typedef bool http_sink(void *user, const http_answer *a, const char *data, size_t bytes);

/* Sends one GET from byte `from`, or a HEAD if sink is NULL, and follows redirects. A HEAD ends at the first response
 * of the hub that has a commit. The result is in *a; fails only if stopped or if a redirect is refused. */
cloob_status http_ask(http_session *s, const char *url, int64_t from, http_sink *sink, void *user, http_answer *a);

/* Whether to retry after the failure *a. If so, waits first: as long as the server requests, or with increasing delays.
 * *tries counts consecutive attempts without progress. */
bool http_try_again(http_session *s, const http_answer *a, int *tries);

/* Fails with the cause of a failed request. */
cloob_status http_refuse(http_session *s, const hub_name *name, const char *what, const http_answer *a);

#endif
