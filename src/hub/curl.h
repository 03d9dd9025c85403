/* libcurl, opened when it is first used. Nothing else includes its headers or links with it.
 *
 *     CLOOB_TRY(curl_load(ctx));
 *     CURL *c = curl_lib.curl_easy_init();
 */
#ifndef HUB_CURL_H
#define HUB_CURL_H

#define CURL_DISABLE_TYPECHECK /* its macros expect calls by the plain names */
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

/* Opens the library once for the process; from any thread. Fails with one line that names the missing library. */
cloob_status curl_load(cloob_ctx *ctx);

/* What every transfer has: http and https alone, redirects by hand, no signals, no passwords from ~/.netrc, and the
 * authorities of SSL_CERT_FILE, REQUESTS_CA_BUNDLE or the system. */
void curl_set_up(CURL *c, const char *url);

#endif
