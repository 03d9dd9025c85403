/* Hopfield retrieval in tiles of scores: R_i = sum_j exp(beta a_i.b_j - shift_i) b_j, without the softmax denominator,
 * because what is retrieved is scaled to unit length (docs/explanation/objective.md 3). */
#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "loss/cpu.h"
#include "tensor/cpu/gemm.h"

typedef struct block { /* one tile: rows [i, i + m) of a against rows [j, j + n) of b */
    const retrieval *p;
    const tiles *t;
    int64_t i, j, m, n, d;
    const float *a, *b;
    bool both; /* the transposed direction counts, too */
} block;

/* What b retrieves from a, or NULL. */
static float *other_r(const retrieval *p) { return p->same ? p->ra : p->rb; }
static float *other_d(const retrieval *p) { return p->same ? p->da : p->db; }

/* ---- E = exp(beta a b^T - shift) ---- */

static void exp_row(const block *b, int64_t r)
{
    float *e = b->t->e + r * b->n;
    double shift = b->p->shift ? (double)b->p->shift[b->i + r] : b->p->beta;
    if (b->t->wide) vec_exp_wide(e, b->t->wide + r * b->n, b->n, b->p->beta, shift);
    else vec_exp(e, b->n, (float)shift, 1.0f);
}

static void exp_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t r = begin; r < end; r++) exp_row(arg, r);
}

/* The same with a running maximum: a new maximum rescales the previous sum. */
static void exp_shift_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t row = b->i + r;
        float *e = b->t->e + r * b->n, *shift = &b->p->shift[row], top = vec_max(e, b->n);
        if (top > *shift) {
            float shrink = isinf(*shift) ? 0.0f : expf(*shift - top), *sum = b->p->ra + row * b->d;
            for (int64_t k = 0; k < b->d; k++) sum[k] *= shrink;
            if (b->p->sum) b->p->sum[row] *= (double)shrink;
            *shift = top;
        }
        exp_row(b, r);
        for (int64_t j = 0; b->p->sum && j < b->n; j++) b->p->sum[row] += (double)e[j];
    }
}

static void block_exp(cloob_ctx *ctx, block *b, pool_fn *exp_rows)
{
    float *e = b->t->e;
    if (b->t->wide) {
        wide_scores(ctx, b->t, b->a, b->b, b->m, b->n, b->d);
        for (int64_t i = 0; i < b->m * b->n; i++) e[i] = (float)(b->p->beta * b->t->wide[i]);
    } else cpu_sgemm(ctx, false, true, b->m, b->n, b->d, (float)b->p->beta, b->a, b->d, b->b, b->d, 0, e, b->n);
    pool_for(ctx, b->m, 8, exp_rows, b);
}

/* ---- forward and backward of a tile ---- */

/* r (m, d) += e b, or with transpose r (n, d) += e^T a */
static void add_sums(cloob_ctx *ctx, const block *b, bool transpose, float *r)
{
    int64_t out = transpose ? b->n : b->m, in = transpose ? b->m : b->n;
    if (b->t->wide) wide_sums(ctx, b->t, transpose, r, b->m, b->n, b->d);
    else cpu_sgemm(ctx, transpose, false, out, b->d, in, 1, b->t->e, b->n, transpose ? b->a : b->b, b->d, 1, r, b->d);
}

/* ra_i += E b_j;  rb_j += E^T a_i */
static void block_forward(cloob_ctx *ctx, block *b)
{
    block_exp(ctx, b, b->p->shift ? exp_shift_range : exp_range);
    add_sums(ctx, b, false, b->p->ra + b->i * b->d);
    if (b->both) add_sums(ctx, b, true, other_r(b->p) + b->j * b->d);
}

static void dscore_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) vec_scale_by(b->t->t + r * b->n, b->t->e + r * b->n, b->n, (float)b->p->beta);
}

/* T = dra_i b_j^T + a_i drb_j^T,  dS = beta E o T
 * da_i += dS b_j + E drb_j;  db_j += dS^T a_i + E^T dra_i */
static void block_backward(cloob_ctx *ctx, block *b)
{
    const retrieval *p = b->p;
    int64_t d = b->d, m = b->m, n = b->n;
    const float *dra = p->ra + b->i * d, *drb = other_r(p) ? other_r(p) + b->j * d : NULL;
    float *e = b->t->e, *t = b->t->t, *da = p->da + b->i * d, *db = other_d(p) ? other_d(p) + b->j * d : NULL;
    bool first = false;
    if (!drb) da = b->t->panel, first = b->j == 0;
    block_exp(ctx, b, exp_range);
    cpu_sgemm(ctx, false, true, m, n, d, 1, dra, d, b->b, d, 0, t, n);
    if (drb) cpu_sgemm(ctx, false, true, m, n, d, 1, b->a, d, drb, d, 1, t, n);
    pool_for(ctx, m, 8, dscore_range, b);
    cpu_sgemm(ctx, false, false, m, d, n, 1, t, n, b->b, d, !first, da, d);
    if (drb) cpu_sgemm(ctx, false, false, m, d, n, 1, e, n, drb, d, 1, da, d);
    if (!db || (drb && !b->both)) return;
    cpu_sgemm(ctx, true, false, n, d, m, 1, t, n, b->a, d, 1, db, d);
    cpu_sgemm(ctx, true, false, n, d, m, 1, e, n, dra, d, 1, db, d);
}

/* ---- all tiles ---- */

/* da_i += panel_i; returns sum_i a_i.panel_i */
static double finish_panel(const block *b)
{
    double along = 0;
    float *da = b->p->da + b->i * b->d;
    for (int64_t r = 0; r < b->m; r++) along += vec_dot(b->a + r * b->d, b->t->panel + r * b->d, b->d);
    for (int64_t k = 0; k < b->m * b->d; k++) da[k] += b->t->panel[k];
    return along;
}

static double every_block(cloob_ctx *ctx, const retrieval *p, const tiles *t, bool backward)
{
    double along = 0;
    for (int64_t i = 0; i < p->a.n; i += TILE) {
        block b = { .p = p, .t = t, .i = i, .m = min64(TILE, p->a.n - i), .d = p->a.d };
        b.a = rows_f32(&p->a, i, b.m, t->a);
        for (b.j = p->same ? i : 0; b.j < p->b.n; b.j += TILE) {
            b.n = min64(TILE, p->b.n - b.j);
            b.b = p->same && b.j == i ? b.a : rows_f32(&p->b, b.j, b.n, t->b);
            b.both = other_r(p) && !(p->same && b.j == i);
            if (backward) block_backward(ctx, &b);
            else block_forward(ctx, &b);
        }
        if (backward && !other_r(p)) along += finish_panel(&b);
    }
    return along;
}

void retrieve_forward(cloob_ctx *ctx, const retrieval *p, const tiles *t)
{
    memset(p->ra, 0, (size_t)(p->a.n * p->a.d) * sizeof(float));
    if (p->rb) memset(p->rb, 0, (size_t)(p->b.n * p->a.d) * sizeof(float));
    for (int64_t i = 0; p->shift && i < p->a.n; i++) p->shift[i] = -INFINITY;
    for (int64_t i = 0; p->sum && i < p->a.n; i++) p->sum[i] = 0;
    every_block(ctx, p, t, false);
}

double retrieve_backward(cloob_ctx *ctx, const retrieval *p, const tiles *t) { return every_block(ctx, p, t, true); }
