/* Blocks of rows out of any floating type. */
#include "eval/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"

enum { CHECK_GRAIN = 256, CHECK_BLOCK = 64 };

cloob_status rows_of(cloob_ctx *ctx, rows *r, const tensor *t, const char *name)
{
    char shape[SHAPE_TEXT];
    bool floating =
        t->dtype == CLOOB_F32 || t->dtype == CLOOB_BF16 || t->dtype == CLOOB_F16 || t->dtype == CLOOB_F64;
    if (t->ndim != 2 || t->dim[0] < 1 || t->dim[1] < 1)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has shape %s, needs (rows, dimensions)", name,
                        tensor_shape_text(t, shape));
    if (!floating)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has type %s, needs F32, F16, BF16 or F64", name,
                        dtype_name(t->dtype));
    *r = (rows){ t->data, t->dtype, t->dim[0], t->dim[1], name };
    return CLOOB_OK;
}

const float *rows_read(const rows *r, int64_t begin, int64_t n, float *scratch)
{
    const char *at = (const char *)r->data + (size_t)begin * (size_t)r->D * dtype_size(r->dtype);
    if (r->dtype == CLOOB_F32 && (uintptr_t)at % sizeof(float) == 0) return (const float *)at;
    if (r->dtype == CLOOB_F32) memcpy(scratch, at, (size_t)(n * r->D) * sizeof(float));
    else dtype_convert(CLOOB_F32, scratch, r->dtype, at, n * r->D);
    return scratch;
}

int64_t rows_block(const rows *r, size_t bytes)
{
    int64_t n = (int64_t)(bytes / ((size_t)r->D * sizeof(float)));
    return n < 1 ? 1 : n > r->N ? r->N : n;
}

/* ---- checking ------------------------------------------------------------------------------------ */

typedef struct check {
    const rows *r;
    float *inverse;          /* NULL: finite values are enough */
    int64_t bad_row, scaled; /* bad_row N: none */
    bool no_memory;
} check;

/* The lowest bad row, whatever the threads. */
static void report_bad(check *c, int64_t row)
{
    int64_t seen = __atomic_load_n(&c->bad_row, __ATOMIC_RELAXED);
    while (row < seen &&
           !__atomic_compare_exchange_n(&c->bad_row, &seen, row, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void check_row(check *c, const float *x, int64_t row, int64_t *scaled)
{
    double square = 0;
    for (int64_t i = 0; i < c->r->D; i++) square += (double)x[i] * x[i];
    if (!isfinite(square)) { /* floats cannot overflow a double's square, so one of them is not finite */
        report_bad(c, row);
        return;
    }
    if (!c->inverse) return;
    if (square == 0) report_bad(c, row);
    else c->inverse[row] = fabs(square - 1) < 2e-6 ? 1.0f : (float)(1 / sqrt(square));
    if (fabs(square - 1) > 1e-2) ++*scaled;
}

static void check_range(void *arg, int64_t begin, int64_t end, int thread)
{
    check *c = arg;
    int64_t scaled = 0, D = c->r->D;
    float *scratch = malloc((size_t)(CHECK_BLOCK * D) * sizeof *scratch);
    (void)thread;
    if (!scratch) {
        __atomic_store_n(&c->no_memory, true, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t at = begin; at < end; at += CHECK_BLOCK) {
        int64_t n = end - at < CHECK_BLOCK ? end - at : CHECK_BLOCK;
        const float *x = rows_read(c->r, at, n, scratch);
        for (int64_t i = 0; i < n; i++) check_row(c, x + i * D, at + i, &scaled);
    }
    free(scratch);
    __atomic_fetch_add(&c->scaled, scaled, __ATOMIC_RELAXED);
}

static cloob_status describe_bad(cloob_ctx *ctx, const rows *r, int64_t row)
{
    for (int64_t i = 0; i < r->D; i++) {
        float scratch;
        rows one = *r;
        one.data = (const char *)r->data + (size_t)(row * r->D + i) * dtype_size(r->dtype);
        one.D = 1;
        if (!isfinite(*rows_read(&one, 0, 1, &scratch)))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC,
                            "%s: row %lld, column %lld is not a finite number; leave the row out", r->name,
                            (long long)row, (long long)i);
    }
    return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "%s: row %lld is all zeros and has no direction; leave it out",
                    r->name, (long long)row);
}

static cloob_status check_all(cloob_ctx *ctx, check *c)
{
    c->bad_row = c->r->N;
    pool_for(ctx, c->r->N, CHECK_GRAIN, check_range, c);
    if (c->no_memory)
        return ctx_no_memory(ctx, (size_t)(CHECK_BLOCK * c->r->D) * sizeof(float), "a block of rows");
    return c->bad_row < c->r->N ? describe_bad(ctx, c->r, c->bad_row) : CLOOB_OK;
}

cloob_status rows_check(cloob_ctx *ctx, const rows *r)
{
    check c = { .r = r };
    return check_all(ctx, &c);
}

/* ---- unit rows ----------------------------------------------------------------------------------- */

cloob_status unit_rows_init(cloob_ctx *ctx, unit_rows *u, const rows *r)
{
    *u = (unit_rows){ .src = *r, .inverse = malloc((size_t)r->N * sizeof *u->inverse) };
    if (!u->inverse) return ctx_no_memory(ctx, (size_t)r->N * sizeof *u->inverse, "lengths of rows");
    check c = { .r = r, .inverse = u->inverse };
    cloob_status status = check_all(ctx, &c);
    u->scaled = c.scaled;
    if (status != CLOOB_OK) unit_rows_release(u);
    return status;
}

void unit_rows_release(unit_rows *u)
{
    free(u->inverse);
    u->inverse = NULL;
}

cloob_status unit_rows_match(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b)
{
    if (a->src.N == b->src.N && a->src.D == b->src.D) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                    "%s is %lld x %lld and %s is %lld x %lld: row i of one belongs to row i of the other",
                    a->src.name, (long long)a->src.N, (long long)a->src.D, b->src.name, (long long)b->src.N,
                    (long long)b->src.D);
}

void unit_rows_read(const unit_rows *u, int64_t begin, int64_t n, float *out)
{
    const float *x = rows_read(&u->src, begin, n, out);
    int64_t D = u->src.D;
    for (int64_t i = 0; i < n; i++) {
        float r = u->inverse[begin + i];
        for (int64_t k = i * D; k < (i + 1) * D; k++) out[k] = x[k] * r;
    }
}
