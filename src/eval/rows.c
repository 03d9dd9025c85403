/* Blocks of rows in any floating type and tiles of their similarities. */
#include "eval/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/gemm.h"

enum { CHECK_GRAIN = 256, CHECK_BLOCK = 64 };

cloob_status rows_of(cloob_ctx *ctx, rows *r, const tensor *t, const char *name)
{
    char shape[SHAPE_TEXT];
    bool floating = dtype_is_float(t->dtype);
    if (t->ndim != 2 || t->dim[0] < 1 || t->dim[1] < 1)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has shape %s, needs (rows, dimensions)", name,
                        tensor_shape_text(t, shape));
    if (!floating)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has type %s, needs F32, F16, BF16 or F64", name,
                        dtype_name(t->dtype));
    *r = (rows){ t->data, t->dtype, t->dim[0], t->dim[1], 1, name };
    return CLOOB_OK;
}

rows rows_every(const rows *r, int64_t step, int64_t first)
{
    rows part = *r;
    part.data = (const char *)r->data + (size_t)(first * r->step * r->D) * dtype_size(r->dtype);
    part.step = r->step * step;
    part.N = (r->N - first + step - 1) / step;
    return part;
}

/* ---- conversion ---------------------------------------------------------------------------------- */

/* `in` may not be aligned. */
static void convert(float *out, cloob_dtype dtype, const unsigned char *in, int64_t n)
{
    uint16_t half;
    double wide;
    if (dtype == CLOOB_F32) memcpy(out, in, (size_t)n * sizeof *out);
    else if (dtype == CLOOB_F64)
        for (int64_t i = 0; i < n; i++) memcpy(&wide, in + 8 * i, 8), out[i] = (float)wide;
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(&half, in + 2 * i, 2), out[i] = dtype == CLOOB_BF16 ? bf16_to_float(half) : f16_to_float(half);
}

const float *rows_read(const rows *r, int64_t begin, int64_t n, float *scratch)
{
    size_t row = (size_t)r->D * dtype_size(r->dtype), pitch = row * (size_t)r->step;
    const unsigned char *at = (const unsigned char *)r->data + (size_t)begin * pitch;
    bool together = r->step == 1 || n == 1;
    if (r->dtype == CLOOB_F32 && together && (uintptr_t)at % sizeof(float) == 0) return (const float *)at;
    if (together) convert(scratch, r->dtype, at, n * r->D);
    else
        for (int64_t i = 0; i < n; i++) convert(scratch + i * r->D, r->dtype, at + (size_t)i * pitch, r->D);
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

/* The lowest bad row, independent of the threads. */
static void report_bad(check *c, int64_t row)
{
    int64_t seen = __atomic_load_n(&c->bad_row, __ATOMIC_RELAXED);
    while (row < seen &&
           !__atomic_compare_exchange_n(&c->bad_row, &seen, row, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

static void check_row(check *c, const float *x, int64_t row, int64_t *scaled)
{
    double square = 0;
    for (int64_t i = 0; i < c->r->D; i++) square += (double)x[i] * x[i];
    if (!isfinite(square)) { /* squares of floats cannot overflow a double, so a value is not finite */
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
    size_t size = dtype_size(r->dtype);
    const unsigned char *at = (const unsigned char *)r->data + (size_t)(row * r->step * r->D) * size;
    for (int64_t i = 0; i < r->D; i++) {
        float x;
        convert(&x, r->dtype, at + (size_t)i * size, 1);
        if (!isfinite(x))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC,
                            "%s: row %lld, column %lld is not a finite number; leave the row out", r->name,
                            (long long)(row * r->step), (long long)i);
    }
    return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "%s: row %lld is all zeros and has no direction; leave it out", r->name,
                    (long long)(row * r->step));
}

static cloob_status check_all(cloob_ctx *ctx, check *c)
{
    c->bad_row = c->r->N;
    pool_for(ctx, c->r->N, CHECK_GRAIN, check_range, c);
    if (c->no_memory) return ctx_no_memory(ctx, (size_t)(CHECK_BLOCK * c->r->D) * sizeof(float), "a block of rows");
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
                    "%s is %lld x %lld and %s is %lld x %lld: row i of one belongs to row i of the other", a->src.name,
                    (long long)a->src.N, (long long)a->src.D, b->src.name, (long long)b->src.N, (long long)b->src.D);
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

/* ---- tiles of similarities ------------------------------------------------------------------- */

typedef struct walk {
    const unit_rows *a, *b;
    tile_part part;
    const tile_visitor *v;
    int64_t block, blocks; /* rows per block */
    float *scratch;
    int64_t scratch_each;
} walk;

/* Small sets have smaller blocks, so that every thread gets some rows. */
static int64_t block_rows(const cloob_ctx *ctx, int64_t N)
{
    int64_t share = (N + ctx->threads - 1) / ctx->threads;
    return share < TILE_ROWS ? share : TILE_ROWS;
}

int tiles_threads(const cloob_ctx *ctx, const unit_rows *a)
{
    int64_t block = block_rows(ctx, a->src.N);
    return pool_ranges(ctx, (a->src.N + block - 1) / block, 1);
}

static void walk_block(const walk *w, int64_t i0, float *scratch, int thread)
{
    int64_t D = w->a->src.D, N = w->b->src.N, ni = min64(w->block, w->a->src.N - i0);
    float *a = scratch, *b = a + TILE_ROWS * D, *s = b + TILE_COLUMNS * D;
    unit_rows_read(w->a, i0, ni, a);
    for (int64_t j0 = w->part == TILES_UPPER ? i0 - i0 % TILE_COLUMNS : 0; j0 < N; j0 += TILE_COLUMNS) {
        tile t = { s, i0, ni, j0, min64(TILE_COLUMNS, N - j0), thread };
        unit_rows_read(w->b, j0, t.nj, b);
        gemm_tile(false, true, ni, t.nj, D, 1, a, D, b, D, 0, s, t.nj);
        w->v->visit(w->v->arg, &t);
    }
    if (w->v->rows_done) w->v->rows_done(w->v->arg, i0, ni, thread);
}

/* Blocks are taken alternately from both ends: above the diagonal early rows are long and late rows short. */
static void walk_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    for (int64_t k = begin; k < end; k++) {
        int64_t block = k % 2 ? w->blocks - 1 - k / 2 : k / 2;
        walk_block(w, block * w->block, w->scratch + thread * w->scratch_each, thread);
    }
}

cloob_status tiles_run(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b, tile_part part, const tile_visitor *v)
{
    int64_t block = block_rows(ctx, a->src.N), D = a->src.D;
    walk w = { a, b, part, v, block, (a->src.N + block - 1) / block, NULL, 0 };
    w.scratch_each = (TILE_ROWS + TILE_COLUMNS) * D + (int64_t)TILE_ROWS * TILE_COLUMNS;
    size_t bytes = (size_t)(w.scratch_each * tiles_threads(ctx, a)) * sizeof(float);
    w.scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!w.scratch) return ctx_no_memory(ctx, bytes, "tiles of similarities");
    pool_for(ctx, w.blocks, 1, walk_range, &w);
    free(w.scratch);
    return CLOOB_OK;
}

/* ---- nearest rows ---------------------------------------------------------------------------- */

static bool worse(near_row a, near_row b) { return a.score < b.score || (a.score == b.score && a.entry > b.entry); }

static void sift_down(near_row *h, int64_t n, int64_t i)
{
    for (;;) {
        int64_t worst = i, left = 2 * i + 1, right = left + 1;
        if (left < n && worse(h[left], h[worst])) worst = left;
        if (right < n && worse(h[right], h[worst])) worst = right;
        if (worst == i) return;
        near_row swap = h[i];
        h[i] = h[worst], h[worst] = swap;
        i = worst;
    }
}

void best_take(near_row *heap, int64_t *n, int64_t k, near_row x)
{
    if (*n < k) {
        heap[(*n)++] = x;
        if (*n == k)
            for (int64_t i = k / 2; i-- > 0;) sift_down(heap, k, i);
    } else if (worse(heap[0], x)) {
        heap[0] = x;
        sift_down(heap, k, 0);
    }
}

int best_first(const void *a, const void *b)
{
    const near_row *x = a, *y = b;
    return worse(*y, *x) ? -1 : worse(*x, *y) ? 1 : 0;
}

typedef struct nearest_search {
    bool same;
    int64_t k;
    near_row *best; /* (rows, k) a heap for each row */
    int64_t *found; /* (rows) */
} nearest_search;

static void offer_tile(void *arg, const tile *t)
{
    nearest_search *s = arg;
    for (int64_t i = t->i0; i < t->i0 + t->ni; i++)
        for (int64_t j = t->j0; j < t->j0 + t->nj; j++)
            if (!s->same || i != j)
                best_offer(s->best + i * s->k, &s->found[i], s->k, j, t->s[(i - t->i0) * t->nj + (j - t->j0)]);
}

static void sort_rows(void *arg, int64_t i0, int64_t ni, int thread)
{
    nearest_search *s = arg;
    (void)thread;
    for (int64_t i = i0; i < i0 + ni; i++) qsort(s->best + i * s->k, (size_t)s->k, sizeof *s->best, best_first);
}

cloob_status nearest_rows(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b, int64_t k, near_row *best)
{
    nearest_search s = { a == b, k, best, calloc((size_t)a->src.N, sizeof *s.found) };
    if (!s.found) return ctx_no_memory(ctx, (size_t)a->src.N * sizeof *s.found, "neighbours");
    cloob_status status = tiles_run(ctx, a, b, TILES_ALL, &(tile_visitor){ offer_tile, sort_rows, &s });
    free(s.found);
    return status;
}
