/* Detects gzip by the first two bytes; gzip_zlib.c unpacks, gzip_absent.c reports that zlib is missing. */
#include "io/gzip.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/sbuf.h"

bool gzip_is(const void *bytes, size_t size) { return size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0; }

static cloob_status copy_plain(cloob_ctx *ctx, unsigned char *chunk, size_t n, FILE *in, const char *name,
                               gzip_sink *sink, void *arg)
{
    while (n > 0) {
        CLOOB_TRY(sink(arg, chunk, n));
        n = fread(chunk, 1, GZIP_CHUNK, in);
    }
    if (ferror(in)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot read: %s", name, strerror(errno));
    return CLOOB_OK;
}

cloob_status gzip_copy(cloob_ctx *ctx, FILE *in, const char *name, gzip_sink *sink, void *arg)
{
    unsigned char *chunk = malloc(GZIP_CHUNK);
    if (!chunk) return ctx_no_memory(ctx, GZIP_CHUNK, name);
    size_t n = fread(chunk, 1, GZIP_CHUNK, in);
    cloob_status status = gzip_is(chunk, n) ? gzip_inflate(ctx, chunk, n, in, name, sink, arg)
                                            : copy_plain(ctx, chunk, n, in, name, sink, arg);
    free(chunk);
    return status;
}

bool gzip_is_file(const char *path)
{
    unsigned char head[2];
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
    if (!f) return false;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    return gzip_is(head, n);
}

typedef struct collector {
    cloob_ctx *ctx;
    const char *name;
    size_t limit;
    sbuf out;
} collector;

static cloob_status collect(void *arg, const void *bytes, size_t n)
{
    collector *c = arg;
    if (n > c->limit - c->out.len)
        return ctx_fail(c->ctx, CLOOB_ERR_FORMAT, "%s: larger than the %zu bytes allowed here", c->name, c->limit);
    sbuf_add(&c->out, bytes, n);
    return c->out.failed ? ctx_no_memory(c->ctx, c->out.len + n, c->name) : CLOOB_OK;
}

cloob_status gzip_expand(cloob_ctx *ctx, const void *bytes, size_t size, size_t limit, const char *name, sbuf *out)
{
    collector c = { ctx, name, limit, { 0 } };
    FILE *f = size ? fmemopen((void *)(uintptr_t)bytes, size, "rb") : NULL; /* only read */
    if (!f) return size ? ctx_no_memory(ctx, size, name) : CLOOB_OK;
    cloob_status status = gzip_copy(ctx, f, name, collect, &c);
    fclose(f);
    if (c.out.data) sbuf_add(out, c.out.data, c.out.len);
    sbuf_release(&c.out);
    return status == CLOOB_OK && out->failed ? ctx_no_memory(ctx, out->len, name) : status;
}
