/* Loads libcurl under any of the library names that distributions use. */
#include "hub/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/shared_object.h"

curl_functions curl_lib;

#define ROW(name) SHARED_ROW(curl_lib, name)
static const shared_function functions[] = { CURL_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libcurl.so.4", "libcurl-gnutls.so.4" },
                                 .functions = functions,
                                 .install = "libcurl4 to download models and images" };
SHARED_LISTED(library)

/* Result of the initialisation of libcurl, done once by the first thread that needs it. */
static CURLcode initialised;
static char certificates[1024]; /* file of certificate authorities; "": libcurl's default */

/* Finds the system's file of certificate authorities. The libcurl in a wheel or tarball was built for one distribution,
 * and others have the file at another path. A system without one uses the file next to the library. */
static void find_certificates(void)
{
    static const char *const place[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch, Alpine */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
        "/etc/ssl/ca-bundle.pem",             /* openSUSE */
    };
    Dl_info at;
    for (size_t i = 0; i < sizeof place / sizeof *place && !certificates[0]; i++)
        if (access(place[i], R_OK) == 0) snprintf(certificates, sizeof certificates, "%s", place[i]);
    if (certificates[0] || !dladdr((void *)curl_lib.curl_easy_init, &at) || !strrchr(at.dli_fname, '/')) return;
    snprintf(certificates, sizeof certificates, "%.*s/ca-certificates.crt",
             (int)(strrchr(at.dli_fname, '/') - at.dli_fname), at.dli_fname);
    if (access(certificates, R_OK) != 0) certificates[0] = '\0';
}

static void initialise(void)
{
    initialised = curl_lib.curl_global_init(CURL_GLOBAL_DEFAULT);
    find_certificates();
}

cloob_status curl_load(cloob_ctx *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CLOOB_TRY(shared_object_use(ctx, &library));
    pthread_once(&once, initialise);
    if (initialised == CURLE_OK) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "cannot initialise libcurl");
}

void curl_set_up(CURL *c, const char *url)
{
    const char *authorities = getenv("SSL_CERT_FILE");
    if (!authorities || !*authorities) authorities = getenv("REQUESTS_CA_BUNDLE");
    if (!authorities || !*authorities) authorities = certificates;
    if (*authorities) curl_lib.curl_easy_setopt(c, CURLOPT_CAINFO, authorities);
    curl_lib.curl_easy_setopt(c, CURLOPT_URL, url);
    curl_lib.curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_lib.curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_lib.curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_lib.curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_lib.curl_easy_setopt(c, CURLOPT_USERAGENT, "cloob/" CLOOB_VERSION);
}
