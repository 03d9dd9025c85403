/* Retrieval of any states from any stored patterns: R_i = sum_j exp(beta s_ij - shift_i) W_j with a running
 * maximum as the shift, so that it holds however large beta is and however far the patterns are. */
#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "loss/cpu.h"
#include "tensor/cpu/gemm.h"

typedef struct strip { /* one tile: states [i, i + m) against stored [j, j + n) */
    const search *s;
    const tiles *t;
    int64_t i, j, m, n;
    const float *a, *w;
} strip;

/* e = beta a w^T; in double into wide as well, where that is made */
static void scores(cloob_ctx *ctx, const strip *b)
{
    int64_t d = b->s->states.d;
    if (b->t->wide) {
        wide_scores(ctx, b->t, b->a, b->w, b->m, b->n, d);
        for (int64_t i = 0; i < b->m * b->n; i++) b->t->e[i] = (float)(b->s->beta * b->t->wide[i]);
        return;
    }
    cpu_sgemm(ctx, false, true, b->m, b->n, d, (float)b->s->beta, b->a, d, b->w, d, 0, b->t->e, b->n);
}

/* Row r of scores becomes exp(score - shift). */
static void exp_row(const strip *b, int64_t r)
{
    float *e = b->t->e + r * b->n, shift = b->s->shift[b->i + r];
    if (b->t->wide) vec_exp_wide(e, b->t->wide + r * b->n, b->n, b->s->beta, (double)shift);
    else vec_exp(e, b->n, shift, 1.0f);
}

/* e = exp(score - shift); where a new maximum appears, what was summed so far shrinks. */
static void exp_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *b = arg;
    int64_t d = b->s->states.d;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *e = b->t->e + r * b->n, *shift = &b->s->shift[b->i + r], top = vec_max(e, b->n);
        if (top > *shift) {
            float shrink = isinf(*shift) ? 0.0f : expf(*shift - top), *sum = b->s->r + (b->i + r) * d;
            for (int64_t k = 0; k < d; k++) sum[k] *= shrink;
            *shift = top;
        }
        exp_row(b, r);
    }
}

/* All tiles, those of the same states one after the other; `finish` (or NULL) then gets these states. */
static void each_tile(cloob_ctx *ctx, const search *s, const tiles *t, void (*tile)(cloob_ctx *, strip *),
                      pool_fn *finish)
{
    strip b = { .s = s, .t = t };
    for (b.i = 0; b.i < s->states.n; b.i += TILE) {
        b.m = min64(TILE, s->states.n - b.i);
        b.a = rows_f32(&s->states, b.i, b.m, t->a);
        for (b.j = 0; b.j < s->stored.n; b.j += TILE) {
            b.n = min64(TILE, s->stored.n - b.j);
            b.w = rows_f32(&s->stored, b.j, b.n, t->b);
            tile(ctx, &b);
        }
        if (finish) pool_for(ctx, b.m, 8, finish, &b);
    }
}

static void tile_forward(cloob_ctx *ctx, strip *b)
{
    int64_t d = b->s->states.d;
    float *r = b->s->r + b->i * d;
    scores(ctx, b);
    pool_for(ctx, b->m, 8, exp_range, b);
    if (b->t->wide) wide_sums(ctx, b->t, false, r, b->m, b->n, d);
    else cpu_sgemm(ctx, false, false, b->m, d, b->n, 1, b->t->e, b->n, b->w, d, 1, r, d);
}

void search_forward(cloob_ctx *ctx, const search *s, const tiles *t)
{
    memset(s->r, 0, (size_t)(s->states.n * s->states.d) * sizeof(float));
    for (int64_t i = 0; i < s->states.n; i++) s->shift[i] = -INFINITY;
    each_tile(ctx, s, t, tile_forward, NULL);
}

static void recompute_exp_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *b = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) exp_row(b, r);
}

static void dscore_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *b = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) vec_scale_by(b->t->t + r * b->n, b->t->e + r * b->n, b->n, 1.0f);
}

/* dS = E o (dR_i W_j^T);  G_i = sum_j dS W_j;  dW_j += E^T dR_i + beta dS^T a_i */
static void tile_backward(cloob_ctx *ctx, strip *b)
{
    int64_t d = b->s->states.d;
    const float *dr = b->s->r + b->i * d;
    float *e = b->t->e, *ds = b->t->t, *dw = b->s->dstored ? b->s->dstored + b->j * d : NULL;
    scores(ctx, b);
    pool_for(ctx, b->m, 8, recompute_exp_range, b);
    cpu_sgemm(ctx, false, true, b->m, b->n, d, 1, dr, d, b->w, d, 0, ds, b->n);
    pool_for(ctx, b->m, 8, dscore_range, b);
    cpu_sgemm(ctx, false, false, b->m, d, b->n, 1, ds, b->n, b->w, d, b->j > 0, b->t->panel, d);
    if (!dw) return;
    cpu_sgemm(ctx, true, false, b->n, d, b->m, 1, e, b->n, dr, d, 1, dw, d);
    cpu_sgemm(ctx, true, false, b->n, d, b->m, (float)b->s->beta, ds, b->n, b->a, d, 1, dw, d);
}

/* da_i += beta G_i; row_i = a_i.G_i = sum_j dS_ij s_ij */
static void finish_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *b = arg;
    int64_t d = b->s->states.d;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *g = b->t->panel + r * d;
        float *da = b->s->dstates + (b->i + r) * d;
        b->s->row[b->i + r] = vec_dot(b->a + r * d, g, d);
        for (int64_t k = 0; k < d; k++) da[k] += (float)b->s->beta * g[k];
    }
}

double search_backward(cloob_ctx *ctx, const search *s, const tiles *t)
{
    double total = 0;
    each_tile(ctx, s, t, tile_backward, finish_range);
    for (int64_t i = 0; i < s->states.n; i++) total += s->row[i];
    return total;
}
