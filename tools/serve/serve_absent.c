/* Replaces server.c in a build without libmicrohttpd. */
#include "serve/serve.h"
#include "core/ctx.h"

cloob_status serve_run(cloob_ctx *ctx, const serve_options *o)
{
    (void)o;
    return ctx_fail(
        ctx, CLOOB_ERR_UNSUPPORTED,
        "this build has no HTTP server; install libmicrohttpd's headers (libmicrohttpd-dev) and build again");
}
