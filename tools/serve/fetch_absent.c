/* A build without libcurl fetches nothing. */
#include "serve/fetch.h"
#include "core/ctx.h"

bool fetch_available(void) { return false; }

cloob_status fetch_url(cloob_ctx *ctx, const serve_options *o, const char *url, size_t max_bytes, long timeout_s,
                       account *memory, unsigned char **data, size_t *bytes)
{
    (void)o, (void)url, (void)max_bytes, (void)timeout_s, (void)memory;
    *data = NULL, *bytes = 0;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "URLs are not fetched: this build has no libcurl; send the image itself");
}
