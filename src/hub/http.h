/* Requests to a hub: only the hub's host gets the token, redirects are followed here, transient failures retried. */
#ifndef HUB_HTTP_H
#define HUB_HTTP_H

#include "hub/curl.h"
#include "hub/hub.h"

/* Where requests go, and as whom. */
typedef struct hub_site {
    char endpoint[1024]; /* without a slash at the end */
    char token[512];     /* "": none */
    long patience_s;     /* without a byte, before a connection is given up */
} hub_site;

/* From HF_ENDPOINT, HF_TOKEN or the token file, HF_HUB_DOWNLOAD_TIMEOUT. */
cloob_status hub_site_init(cloob_ctx *ctx, hub_site *out);

/* One thread's connection. */
typedef struct http_session {
    cloob_ctx *ctx;
    CURL *curl;
    const hub_site *site;
    const atomic_bool *stop; /* NULL: the context's should_stop is asked */
} http_session;

cloob_status http_open(cloob_ctx *ctx, const hub_site *site, const atomic_bool *stop, http_session *out);
void http_close(http_session *s);

/* From the headers: the hub sends its own before a redirect, and those of the content follow it. */
typedef struct http_answer {
    CURLcode result;
    long code;
    char commit[HUB_COMMIT];      /* X-Repo-Commit */
    char etag[SHA_HEX];           /* X-Linked-Etag; "": not sent */
    int64_t linked_bytes;         /* X-Linked-Size; -1: not sent */
    int64_t range_begin;          /* of Content-Range; -1: the answer is the whole file */
    curl_off_t retry_after_s;     /* Retry-After, seconds or a date; 0: not sent */
    char error[64], message[256]; /* X-Error-Code, X-Error-Message */
    char next[2048];              /* the next page of a list (Link); "": there is none */
} http_answer;

/* Takes a piece of the body of a successful answer; false ends the transfer. */
typedef bool http_sink(void *user, const http_answer *a, const char *data, size_t bytes);

/* One GET from byte `from` on, or a HEAD where sink is NULL, with redirects. A HEAD ends at the first answer of the hub
 * that has a commit. The result is in *a; fails when stopped or when a redirect is refused. */
cloob_status http_ask(http_session *s, const char *url, int64_t from, http_sink *sink, void *user, http_answer *a);

/* Whether to ask again after *a, which failed: waits first, for as long as the server asks for or longer every time.
 * *tries counts the attempts in a row that brought nothing. */
bool http_try_again(http_session *s, const http_answer *a, int *tries);

/* The error of a failed request, in one line. */
cloob_status http_refuse(http_session *s, const hub_name *name, const char *what, const http_answer *a);

#endif
