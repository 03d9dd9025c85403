/* gzip by zlib. */
#include <string.h>
#include <zlib.h>

#include "data/text/tokenizer_impl.h"

bool gzip_is(const void *bytes, size_t size) { return size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0; }

static cloob_status inflate_all(cloob_ctx *ctx, z_stream *z, const unsigned char *bytes, size_t size, size_t limit,
                                const char *name, sbuf *out)
{
    unsigned char chunk[1 << 15];
    int code = Z_OK;
    for (size_t used = 0;;) {
        if (z->avail_in == 0 && used < size) {
            size_t piece = size - used < (1u << 30) ? size - used : (1u << 30);
            z->next_in = (unsigned char *)bytes + used;
            z->avail_in = (unsigned)piece;
            used += piece;
        }
        if (code == Z_STREAM_END) { /* gzip files may be joined */
            if (z->avail_in == 0) return CLOOB_OK;
            inflateReset(z);
        }
        z->next_out = chunk;
        z->avail_out = sizeof chunk;
        code = inflate(z, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: gzip data is %s; get the file again", name,
                            code == Z_BUF_ERROR ? "cut short" : "damaged");
        sbuf_add(out, chunk, sizeof chunk - z->avail_out);
        if (out->failed) return ctx_no_memory(ctx, out->len, name);
        if (out->len > limit) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds more than %zu bytes", name, limit);
    }
}

cloob_status gzip_expand(cloob_ctx *ctx, const void *bytes, size_t size, size_t limit, const char *name, sbuf *out)
{
    z_stream z = { 0 };
    if (inflateInit2(&z, 15 + 16) != Z_OK) return ctx_no_memory(ctx, 1 << 16, "gzip");
    cloob_status status = inflate_all(ctx, &z, bytes, size, limit, name, out);
    inflateEnd(&z);
    return status;
}
