#include "io/rows_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/text.h"

static cloob_status fail(cloob_ctx *ctx, const rows_file *f, int error)
{
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write: %s", f->w.path, strerror(error));
}

static int64_t row_bytes(const rows_part *p) { return (int64_t)dtype_size(p->dtype) * (p->width > 0 ? p->width : 1); }

/* ---- the beginning ------------------------------------------------------------------------------- */

static void put_beginning(const rows_file *f, const int64_t *rows, const st_meta *meta, int64_t metas, sbuf *s)
{
    st_entry entry[ROWS_PARTS];
    if (f->npy) {
        npy_put_beginning(s, rows[0], f->part[0].width);
        return;
    }
    for (int i = 0; i < f->parts; i++) {
        const rows_part *p = &f->part[i];
        entry[i] = (st_entry){ p->name,
                               p->width ? TENSOR(p->dtype, NULL, rows[i], p->width) : TENSOR(p->dtype, NULL, rows[i]) };
    }
    st_put_beginning(s, entry, f->parts, meta, metas, (size_t)f->header);
}

/* Where each part begins when all its rows come, and the space for them. */
static cloob_status set_aside(cloob_ctx *ctx, rows_file *f, const st_meta *meta, int64_t metas)
{
    sbuf s = { 0 };
    int64_t max_rows[ROWS_PARTS];
    for (int i = 0; i < f->parts; i++) max_rows[i] = f->part[i].max_rows;
    put_beginning(f, max_rows, meta, metas, &s);
    f->header = (int64_t)s.len;
    sbuf_release(&s);
    if (s.failed) return ctx_no_memory(ctx, (size_t)f->header, f->w.path);
    int64_t at = f->header;
    for (int i = 0; i < f->parts; i++) {
        f->begin[i] = at;
        at += f->part[i].max_rows * row_bytes(&f->part[i]);
    }
    int error = posix_fallocate(fileno(f->w.stream), 0, at);
    if (!error) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot reserve %lld bytes: %s", f->w.path, (long long)at, strerror(error));
}

cloob_status rows_file_begin(cloob_ctx *ctx, const char *path, const rows_part *part, int parts, const st_meta *meta,
                             int64_t metas, rows_file *f)
{
    *f = (rows_file){ .npy = text_ends_with(path, ".npy"), .parts = parts };
    for (int i = 0; i < parts; i++) f->part[i] = part[i];
    if (f->npy && parts > 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "%s: a .npy file holds one matrix, and there are %s and %s; use .safetensors", path,
                        part[0].name, part[1].name);
    if (file_is_dir(path)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: is a folder; name a file", path);
    CLOOB_TRY(file_writer_begin(ctx, path, &f->w));
    cloob_status status =
        f->w.direct
            ? ctx_fail(ctx, CLOOB_ERR_IO, "%s: is a device or a pipe; rows are written in place: name a file", path)
            : set_aside(ctx, f, meta, metas);
    if (status != CLOOB_OK) rows_file_abort(f);
    return status;
}

/* ---- rows ---------------------------------------------------------------------------------------- */

static cloob_status write_at(cloob_ctx *ctx, const rows_file *f, const char *data, int64_t n, int64_t at)
{
    return file_write_at(fileno(f->w.stream), data, (size_t)n, at) ? CLOOB_OK : fail(ctx, f, errno);
}

cloob_status rows_file_put(cloob_ctx *ctx, rows_file *f, int part, const void *rows, int64_t n)
{
    const rows_part *p = &f->part[part];
    int64_t bytes = row_bytes(p);
    if (f->rows[part] + n > p->max_rows)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: more than the %lld rows of %s that were announced", f->w.path,
                        (long long)p->max_rows, p->name);
    CLOOB_TRY(write_at(ctx, f, rows, n * bytes, f->begin[part] + f->rows[part] * bytes));
    f->rows[part] += n;
    return CLOOB_OK;
}

/* ---- the end ------------------------------------------------------------------------------------- */

/* Towards the beginning of the file, so that nothing is written over before it was read. */
static cloob_status move_down(cloob_ctx *ctx, const rows_file *f, int64_t to, int64_t from, int64_t n)
{
    enum { PIECE = 1 << 20 };
    if (to == from || n == 0) return CLOOB_OK;
    char *piece = malloc(PIECE);
    cloob_status status = piece ? CLOOB_OK : ctx_no_memory(ctx, PIECE, f->w.path);
    while (n > 0 && status == CLOOB_OK) {
        ssize_t got = file_read_at(fileno(f->w.stream), piece, n < PIECE ? (size_t)n : PIECE, from);
        if (got <= 0) status = fail(ctx, f, got ? errno : EIO);
        else status = write_at(ctx, f, piece, got, to);
        to += got, from += got, n -= got;
    }
    free(piece);
    return status;
}

static cloob_status close_gaps(cloob_ctx *ctx, const rows_file *f)
{
    int64_t at = f->header;
    for (int i = 0; i < f->parts; i++) {
        int64_t bytes = f->rows[i] * row_bytes(&f->part[i]);
        CLOOB_TRY(move_down(ctx, f, at, f->begin[i], bytes));
        at += bytes;
    }
    return ftruncate(fileno(f->w.stream), at) == 0 ? CLOOB_OK : fail(ctx, f, errno);
}

static cloob_status write_beginning(cloob_ctx *ctx, const rows_file *f, const st_meta *meta, int64_t metas)
{
    sbuf s = { 0 };
    put_beginning(f, f->rows, meta, metas, &s);
    cloob_status status = CLOOB_OK;
    if (s.failed) status = ctx_no_memory(ctx, s.len, f->w.path);
    else if ((int64_t)s.len != f->header)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: its metadata grew to %zu bytes; %lld were reserved", f->w.path,
                          s.len, (long long)f->header);
    else status = write_at(ctx, f, s.data, f->header, 0);
    sbuf_release(&s);
    return status;
}

cloob_status rows_file_end(cloob_ctx *ctx, rows_file *f, const st_meta *meta, int64_t metas)
{
    cloob_status status = close_gaps(ctx, f);
    if (status == CLOOB_OK) status = write_beginning(ctx, f, meta, metas);
    if (status == CLOOB_OK) status = file_writer_commit(ctx, &f->w);
    rows_file_abort(f);
    return status;
}

void rows_file_abort(rows_file *f)
{
    file_writer_abort(&f->w);
    *f = (rows_file){ 0 };
}
