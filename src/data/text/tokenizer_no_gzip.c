/* A build without zlib reads plain files only. */
#include <string.h>

#include "data/text/tokenizer_impl.h"

bool gzip_is(const void *bytes, size_t size) { return size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0; }

cloob_status gzip_expand(cloob_ctx *ctx, const void *bytes, size_t size, size_t limit, const char *name, sbuf *out)
{
    (void)bytes, (void)size, (void)limit, (void)out;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: is gzip and this build has no zlib; gunzip it first", name);
}
