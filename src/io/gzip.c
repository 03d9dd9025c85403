/* Detects gzip by the first two bytes; zlib unpacks it. A build without zlib (CLOOB_NO_ZLIB) reads plain files only. */
#include "io/gzip.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GZIP_CHUNK = 1 << 16 };

/* ---- unpacking a stream that begins with the n bytes of `first` and continues in `in` ---------------------- */

#ifdef CLOOB_NO_ZLIB
static cloob_status gzip_inflate(cloob_ctx *ctx, unsigned char *first, size_t n, FILE *in, const char *name,
                                 gzip_sink *sink, void *arg)
{
    (void)first, (void)n, (void)in, (void)sink, (void)arg;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: this build has no zlib; gunzip the file first", name);
}
#else
#    include <zlib.h>

typedef struct inflater {
    cloob_ctx *ctx;
    const char *name;
    FILE *in;
    gzip_sink *sink;
    void *arg;
    z_stream z;
    unsigned char *chunk, *out;
    int64_t taken, given; /* bytes so far, of all members */
} inflater;

static cloob_status damaged(inflater *f, const char *why)
{
    return ctx_fail(f->ctx, CLOOB_ERR_FORMAT, "%s: damaged gzip stream: %s", f->name, why);
}

/* More input when there is none; *more: whether there was any. */
static cloob_status refill(inflater *f, bool *more)
{
    if (f->z.avail_in == 0) {
        f->z.next_in = f->chunk;
        f->z.avail_in = (uInt)fread(f->chunk, 1, GZIP_CHUNK, f->in);
        f->taken += f->z.avail_in;
        if (ferror(f->in)) return file_fail(f->ctx, f->name, "cannot read");
    }
    *more = f->z.avail_in > 0;
    return CLOOB_OK;
}

/* One gzip member, from its header to its checksum. */
static cloob_status inflate_member(inflater *f)
{
    for (int code = Z_OK; code != Z_STREAM_END;) {
        bool more = false;
        CLOOB_TRY(refill(f, &more));
        if (!more) return damaged(f, "it ends early");
        f->z.next_out = f->out;
        f->z.avail_out = GZIP_CHUNK;
        code = inflate(&f->z, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return damaged(f, f->z.msg ? f->z.msg : "zlib cannot go on");
        size_t n = GZIP_CHUNK - f->z.avail_out;
        f->given += (int64_t)n;
        if (f->given > GZIP_GRACE && f->given / GZIP_RATIO > f->taken)
            return ctx_fail(f->ctx, CLOOB_ERR_FORMAT,
                            "%s: unpacks to more than %d times its size, which real data does not; unpack it yourself "
                            "if this is intended",
                            f->name, GZIP_RATIO);
        if (n) CLOOB_TRY(f->sink(f->arg, f->out, n));
    }
    return CLOOB_OK;
}

/* Members follow each other; what does not begin like one (padding of tapes) ends the stream. */
static cloob_status inflate_all(inflater *f)
{
    for (;;) {
        bool more = false;
        CLOOB_TRY(inflate_member(f));
        CLOOB_TRY(refill(f, &more));
        if (!more || f->z.next_in[0] != 0x1F) return CLOOB_OK;
        if (inflateReset(&f->z) != Z_OK) return damaged(f, "zlib cannot go on");
    }
}

static cloob_status gzip_inflate(cloob_ctx *ctx, unsigned char *first, size_t n, FILE *in, const char *name,
                                 gzip_sink *sink, void *arg)
{
    inflater f = { .ctx = ctx, .name = name, .in = in, .sink = sink, .arg = arg, .chunk = first };
    f.out = malloc(GZIP_CHUNK);
    if (!f.out) return ctx_no_memory(ctx, GZIP_CHUNK, name);
    f.z.next_in = first;
    f.z.avail_in = (uInt)n;
    f.taken = (int64_t)n;
    enum { WINDOW = 15, GZIP_ONLY = 16 };
    cloob_status status = CLOOB_OK;
    if (inflateInit2(&f.z, WINDOW + GZIP_ONLY) != Z_OK) status = ctx_no_memory(ctx, GZIP_CHUNK, name);
    else status = inflate_all(&f);
    inflateEnd(&f.z);
    free(f.out);
    return status;
}
#endif

/* ---- streams that may be gzip ---------------------------------------------------------------------- */

bool gzip_is(const void *bytes, size_t size) { return size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0; }

static cloob_status copy_plain(cloob_ctx *ctx, unsigned char *chunk, size_t n, FILE *in, const char *name,
                               gzip_sink *sink, void *arg)
{
    while (n > 0) {
        CLOOB_TRY(sink(arg, chunk, n));
        n = fread(chunk, 1, GZIP_CHUNK, in);
    }
    if (ferror(in)) return file_fail(ctx, name, "cannot read");
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
