/* A build without zlib reads plain files only. */
#include "io/gzip.h"

cloob_status gzip_inflate(cloob_ctx *ctx, unsigned char *first, size_t n, FILE *in, const char *name, gzip_sink *sink,
                          void *arg)
{
    (void)first, (void)n, (void)in, (void)sink, (void)arg;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: this build has no zlib; gunzip the file first", name);
}
