/* InfoLOOB and InfoNCE from unit rows: the log-sum-exp of each anchor with a running maximum, and back.
 *
 * Only the leave-one-out sum is made. InfoNCE follows from it: with v = lse - positive it is softplus(v), and
 * its gradient is InfoLOOB's times 1 - p1 = sigmoid(v) (docs/objective.md 2), so that a saturated InfoNCE
 * does not lose its last digits in 1 - 0.9999999. */
#include <math.h>
#include <string.h>

#include "core/pool.h"
#include "loss/cpu.h"
#include "loss/cpu_vec.h"
#include "tensor/cpu/gemm.h"

typedef struct strip { /* one tile: anchors [i, i + m) against samples [j, j + n) */
    const contrast *c;
    const tiles *t;
    int64_t i, j, m, n;
    const float *a, *b;
    double *top; /* (m) running maximum */
    double *dots;
    double own[TILE]; /* scores in double: each anchor's positive, which is taken off its row */
} strip;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Where row r of the tile meets its own positive; n when it does not. */
static int64_t own_column(const strip *s, int64_t r)
{
    int64_t at = s->c->first + s->i + r - s->j;
    return at >= 0 && at < s->n ? at : s->n;
}

/* Means are taken off before the products. Scores are needed up to a constant per anchor, so a.(b - mean)
 * serves for a.b, with less rounding the closer the samples lie together. Rows of dK sum to zero, so dA = dK
 * (B - b), and with the column sums dB = dK^T (A - a) + (dK^T 1) a. Rows that lie close together (a cone, or
 * beta near 0) would otherwise leave sums of large terms that cancel. */
static void mean_row(const rows *r, const tiles *t, float *mean)
{
    for (int64_t k = 0; k < r->d; k++) t->sums[k] = 0;
    for (int64_t j = 0; j < r->n; j++) {
        const float *b = rows_f32(r, j, 1, t->b);
        for (int64_t k = 0; k < r->d; k++) t->sums[k] += (double)b[k];
    }
    for (int64_t k = 0; k < r->d; k++) mean[k] = r->n > 0 ? (float)(t->sums[k] / (double)r->n) : 0;
}

static void less_mean(float *to, const float *from, const float *mean, int64_t begin, int64_t end, int64_t d)
{
    for (int64_t r = begin; r < end; r++)
        for (int64_t k = 0; k < d; k++) to[r * d + k] = from[r * d + k] - mean[k];
}

static void centre_samples_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *s = arg;
    (void)thread;
    less_mean(s->t->t, s->b, s->t->mean_b, begin, end, s->c->a.d);
}

/* t = samples [j, j + n) less their mean */
static void centre_samples(cloob_ctx *ctx, strip *s)
{
    s->b = rows_f32(&s->c->b, s->j, s->n, s->t->b);
    pool_for(ctx, s->n, 8, centre_samples_range, s);
}

/* Scores in double are rounded as distances from the positive's: those that matter are small. */
static void begin_own(strip *s)
{
    const contrast *c = s->c;
    for (int64_t r = 0; s->t->wide && r < s->m; r++) {
        less_mean(s->t->t, rows_f32(&c->b, c->first + s->i + r, 1, s->t->b), s->t->mean_b, 0, 1, c->a.d);
        s->own[r] = c->inv_tau * vec_dot(s->a + r * c->a.d, s->t->t, c->a.d);
    }
}

static void narrow_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *s = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        vec_narrow(s->t->e + r * s->n, s->t->wide + r * s->n, s->n, s->c->inv_tau, s->own[r]);
}

/* e = inv_tau a (b - mean)^T, up to a constant per anchor */
static void scores(cloob_ctx *ctx, strip *s)
{
    int64_t d = s->c->a.d;
    if (s->t->wide) {
        wide_scores(ctx, s->t, s->a, s->t->t, s->m, s->n, d);
        pool_for(ctx, s->m, 8, narrow_range, s);
        return;
    }
    cpu_sgemm(ctx, false, true, s->m, s->n, d, (float)s->c->inv_tau, s->a, d, s->t->t, d, 0, s->t->e, s->n);
}

/* (top, sum) of one more piece of a row */
static void add_piece(double *top, double *sum, const float *k, int64_t n)
{
    double piece_top = (double)vec_max(k, n);
    if (piece_top > *top) {
        *sum = isinf(*top) ? 0 : *sum * exp(*top - piece_top);
        *top = piece_top;
    }
    if (n > 0) *sum += vec_sum_exp(k, n, (float)*top); /* top is a float, so nothing is lost */
}

/* Meanwhile lse holds the sum and weight the positive's score. */
static void sum_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *s = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *k = s->t->e + r * s->n;
        int64_t own = own_column(s, r), after = own < s->n ? own + 1 : s->n;
        if (own < s->n) s->c->weight[s->i + r] = (double)k[own];
        add_piece(&s->top[r], &s->c->lse[s->i + r], k, own);
        add_piece(&s->top[r], &s->c->lse[s->i + r], k + after, s->n - after);
    }
}

static double finish_rows(const strip *s)
{
    double total = 0;
    for (int64_t r = s->i; r < s->i + s->m; r++) {
        double lse = s->top[r - s->i] + log(s->c->lse[r]);
        double pos = s->c->weight[r];
        s->c->lse[r] = lse;
        total += loss_row_value(lse, pos, s->c->leave_one_out, &s->c->weight[r]);
    }
    return total;
}

static void begin_rows(strip *s)
{
    for (int64_t r = 0; r < s->m; r++) s->top[r] = -INFINITY;
    memset(s->c->lse + s->i, 0, (size_t)s->m * sizeof(double));
    s->a = rows_f32(&s->c->a, s->i, s->m, s->t->a);
    begin_own(s);
}

double contrast_forward(cloob_ctx *ctx, const contrast *c, const tiles *t)
{
    double total = 0, top[TILE];
    strip s = { .c = c, .t = t, .top = top };
    mean_row(&c->b, t, t->mean_b);
    for (s.i = 0; s.i < c->a.n; s.i += TILE) {
        s.m = least(TILE, c->a.n - s.i);
        begin_rows(&s);
        for (s.j = 0; s.j < c->b.n; s.j += TILE) {
            s.n = least(TILE, c->b.n - s.j);
            centre_samples(ctx, &s);
            scores(ctx, &s);
            pool_for(ctx, s.m, 8, sum_range, &s);
        }
        total += finish_rows(&s);
    }
    return total;
}

/* dK_ij = weight_i / N (exp(k_ij - lse_i) [i != j] - [i = j]). The shift is a float; what rounding took from
 * it goes back through the factor. */
static void dscore_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *s = arg;
    double N = (double)s->c->b.n;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double lse = s->c->lse[s->i + r], weight = s->c->weight[s->i + r] / N;
        float shift = isfinite(lse) ? (float)lse : 0.0f, *k = s->t->e + r * s->n;
        int64_t own = own_column(s, r);
        vec_exp(k, s->n, shift, isfinite(lse) ? (float)(weight * exp((double)shift - lse)) : 0.0f);
        if (own < s->n) k[own] = (float)-weight;
    }
}

/* dots[i] = a_i.da_i; da goes where the caller wants it. */
static void finish_panel(cloob_ctx *ctx, const strip *s)
{
    const contrast *c = s->c;
    int64_t d = c->a.d;
    if (c->unit_length) {
        float *unit = (float *)(uintptr_t)c->a.data + s->i * d;
        unit_backward(ctx, unit, s->t->panel, c->unit_length + s->i, s->dots, s->m, d);
        return;
    }
    for (int64_t r = 0; r < s->m; r++) {
        float *to = c->da + (s->i + r) * d, *from = s->t->panel + r * d;
        s->dots[r] = vec_dot(s->a + r * d, from, d);
        for (int64_t k = 0; k < d; k++) to[k] += from[k];
    }
}

static void centre_anchors_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *s = arg;
    (void)thread;
    less_mean(s->t->anchors, s->a, s->t->mean_a, begin, end, s->c->a.d);
}

/* column[j] += sum_i dK_ij over the tile; ranges are columns */
static void column_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *s = arg;
    (void)thread;
    for (int64_t r = 0; r < s->m; r++)
        for (int64_t k = begin; k < end; k++) s->c->column[s->j + k] += (double)s->t->e[r * s->n + k];
}

static void add_columns_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *s = arg;
    int64_t d = s->c->a.d;
    (void)thread;
    for (int64_t j = begin; j < end; j++)
        for (int64_t k = 0; k < d; k++)
            s->c->db[j * d + k] += (float)(s->c->column[j] * (double)s->t->mean_a[k]);
}

static void backward_begin(const contrast *c, const tiles *t)
{
    mean_row(&c->a, t, t->mean_a);
    mean_row(&c->b, t, t->mean_b);
    memset(c->column, 0, (size_t)c->b.n * sizeof *c->column);
}

/* dA_i += dK B_j (into the panel);  dB_j += dK^T A_i */
static void tile_backward(cloob_ctx *ctx, strip *s)
{
    int64_t d = s->c->a.d;
    const tiles *t = s->t;
    centre_samples(ctx, s);
    scores(ctx, s);
    pool_for(ctx, s->m, 8, dscore_range, s);
    pool_for(ctx, s->n, 16, column_range, s);
    cpu_sgemm(ctx, false, false, s->m, d, s->n, 1, t->e, s->n, t->t, d, s->j > 0, t->panel, d);
    cpu_sgemm(ctx, true, false, s->n, d, s->m, 1, t->e, s->n, t->anchors, d, 1, s->c->db + s->j * d, d);
}

double contrast_backward(cloob_ctx *ctx, const contrast *c, const tiles *t)
{
    double along = 0, dots[TILE];
    strip s = { .c = c, .t = t, .dots = dots };
    backward_begin(c, t);
    for (s.i = 0; s.i < c->a.n; s.i += TILE) {
        s.m = least(TILE, c->a.n - s.i);
        s.a = rows_f32(&c->a, s.i, s.m, t->a);
        begin_own(&s);
        pool_for(ctx, s.m, 8, centre_anchors_range, &s);
        for (s.j = 0; s.j < c->b.n; s.j += TILE) {
            s.n = least(TILE, c->b.n - s.j);
            tile_backward(ctx, &s);
        }
        finish_panel(ctx, &s);
        for (int64_t r = 0; r < s.m; r++) along += dots[r];
    }
    pool_for(ctx, c->b.n, 8, add_columns_range, &s);
    return along;
}
