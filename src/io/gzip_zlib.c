/* gzip through zlib's streaming interface. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "io/gzip.h"

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
        if (ferror(f->in)) return ctx_fail(f->ctx, CLOOB_ERR_IO, "%s: cannot read: %s", f->name, strerror(errno));
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
            return ctx_fail(
                f->ctx, CLOOB_ERR_FORMAT,
                "%s: unpacks to more than %d times its size, as no data does; unpack it yourself if it is meant",
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

cloob_status gzip_inflate(cloob_ctx *ctx, unsigned char *first, size_t n, FILE *in, const char *name, gzip_sink *sink,
                          void *arg)
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
