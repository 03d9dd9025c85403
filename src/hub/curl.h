/* libcurl, loaded on first use. No other file includes its headers, and nothing links to it.
 *
 *     CLOOB_TRY(curl_load(ctx));
 *     CURL *c = curl_lib.curl_easy_init();
 * */
#ifndef HUB_CURL_H
#define HUB_CURL_H

#define CURL_DISABLE_TYPECHECK /* its macros require direct calls of the functions */
#include <curl/curl.h>

#include "core/ctx.h"

#define CURL_FUNCTIONS(X)                                                                                              \
    X(curl_global_init)                                                                                                \
    X(curl_easy_init)                                                                                                  \
    X(curl_easy_reset)                                                                                                 \
    X(curl_easy_setopt)                                                                                                \
    X(curl_easy_perform)                                                                                               \
    X(curl_easy_getinfo)                                                                                               \
    X(curl_easy_cleanup)                                                                                               \
    X(curl_easy_strerror)                                                                                              \
    X(curl_slist_append)                                                                                               \
    X(curl_slist_free_all)                                                                                             \
    X(curl_url)                                                                                                        \
    X(curl_url_set)                                                                                                    \
    X(curl_url_get)                                                                                                    \
    X(curl_url_cleanup)                                                                                                \
    X(curl_free)

typedef struct curl_functions {
#define CURL_MEMBER(name) __typeof__(&name) name;
    CURL_FUNCTIONS(CURL_MEMBER)
#undef CURL_MEMBER
} curl_functions;

extern curl_functions curl_lib;

/* Loads the library, once per process; thread-safe. Fails with the name of the missing library. */
cloob_status curl_load(cloob_ctx *ctx);

/* Sets options common to all transfers: only http and https, no automatic redirects, no signals, no passwords from
 * ~/.netrc, and certificate authorities from SSL_CERT_FILE, REQUESTS_CA_BUNDLE or the system. */
void curl_set_up(CURL *c, const char *url);

#endif
