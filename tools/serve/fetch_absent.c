/* Replaces fetch_curl.c in a build without libcurl: nothing is downloaded. */
#include "core/ctx.h"
#include "serve/state.h"

cloob_status fetch_url(cloob_ctx *ctx, const serve_options *o, const char *url, size_t max_bytes, long timeout_s,
                       account *memory, unsigned char **data, size_t *bytes)
{
    (void)o, (void)url, (void)max_bytes, (void)timeout_s, (void)memory;
    *data = NULL, *bytes = 0;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "URLs are not supported: this build has no libcurl; send the image itself");
}

cloob_status fetch_forward(cloob_ctx *ctx, const serve_options *o, const http_request *q, int *code,
                           unsigned char **data, size_t *bytes)
{
    (void)o, (void)q;
    *code = 0, *data = NULL, *bytes = 0;
    return ctx_fail(ctx, CLOOB_ERR_IO, "forwarding is not supported: this build has no libcurl");
}
