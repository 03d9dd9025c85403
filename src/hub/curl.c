/* libcurl, by the names that distributions give it. */
#include "hub/curl.h"

#include <pthread.h>

#include "core/shared_object.h"

curl_functions curl_lib;

#define ROW(name) SHARED_ROW(curl_lib, name)
static const shared_function functions[] = { CURL_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libcurl.so.4", "libcurl-gnutls.so.4" },
                                 .functions = functions,
                                 .install = "libcurl4 to download models and images" };
SHARED_LISTED(library)

/* libcurl is initialised once, by the first thread that uses it. */
static CURLcode initialised;
static void initialise(void) { initialised = curl_lib.curl_global_init(CURL_GLOBAL_DEFAULT); }

cloob_status curl_load(cloob_ctx *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CLOOB_TRY(shared_object_use(ctx, &library));
    pthread_once(&once, initialise);
    if (initialised == CURLE_OK) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "libcurl cannot be initialised");
}

void curl_set_up(CURL *c, const char *url)
{
    curl_lib.curl_easy_setopt(c, CURLOPT_URL, url);
    curl_lib.curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_lib.curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_lib.curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_lib.curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_lib.curl_easy_setopt(c, CURLOPT_USERAGENT, "cloob/" CLOOB_VERSION);
}
