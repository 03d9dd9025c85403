/* InfoLOOB and InfoNCE from unit rows: the log-sum-exp of each anchor with a running maximum, and back.
 *
 * Only the leave-one-out sum is made. InfoNCE follows from it: with v = lse - positive it is softplus(v), and
 * its gradient is InfoLOOB's times 1 - p1 = sigmoid(v) (docs/explanation/objective.md 2), so that a saturated InfoNCE
 * does not lose its last digits in 1 - 0.9999999. */
#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "loss/cpu.h"
#include "tensor/cpu/gemm.h"

typedef struct strip { /* one tile: anchors [i, i + m) against samples [j, j + n) */
    const contrast *c;
    const tiles *t;
    int64_t i, j, m, n;
    const float *a, *b;   /* anchors as they are, samples less their mean */
    const float *centred; /* anchors less their mean; backward */
    double *top;          /* (m) running maximum */
    double *dots;
    double own[TILE]; /* scores in double: each anchor's positive, which is taken off its row */
} strip;

/* Where row r of the tile meets its own positive; n when it does not. */
static int64_t own_column(const strip *s, int64_t r)
{
    int64_t at = s->c->first + s->i + r - s->j;
    return at >= 0 && at < s->n ? at : s->n;
}

/* ---- means ----
 *
 * They are taken off before the products. Scores are needed up to a constant per anchor, so a.(b - mean)
 * serves for a.b, with less rounding the closer the samples are together; with the anchors' mean off as well,
 * each column gets inv_tau mean_a.(b - mean_b) back: the bias. Rows of dK sum to zero, so dA = dK (B - b),
 * and with the column sums dB = dK^T (A - a) + (dK^T 1) a. Rows that are close together (a cone, or beta near
 * 0) would otherwise leave sums of large terms that cancel. Rows that the loss owns lose their mean in
 * place, others in copies, a tile at a time. */

static void mean_row(const rows *r, const tiles *t, float *mean)
{
    for (int64_t k = 0; k < r->d; k++) t->sums[k] = 0;
    for (int64_t j = 0; j < r->n; j++) {
        const float *b = rows_f32(r, j, 1, t->b);
        for (int64_t k = 0; k < r->d; k++) t->sums[k] += (double)b[k];
    }
    for (int64_t k = 0; k < r->d; k++) mean[k] = r->n > 0 ? (float)(t->sums[k] / (double)r->n) : 0;
}

typedef struct centring {
    float *to;
    const float *from, *mean;
    int64_t d;
} centring;

static void centre_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const centring *c = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t k = 0; k < c->d; k++) c->to[r * c->d + k] = c->from[r * c->d + k] - c->mean[k];
}

static void centre(cloob_ctx *ctx, float *to, const float *from, const float *mean, int64_t n, int64_t d)
{
    pool_for(ctx, n, 16, centre_range, &(centring){ to, from, mean, d });
}

static void centre_owned(cloob_ctx *ctx, const rows *r, const tiles *t, float *mean)
{
    float *at = (float *)(uintptr_t)r->data;
    mean_row(r, t, mean);
    centre(ctx, at, at, mean, r->n, r->d);
}

/* Samples [j, j + n) less their mean. */
static const float *centred_samples(cloob_ctx *ctx, const strip *s, int64_t j, int64_t n)
{
    const contrast *c = s->c;
    if (c->owned) return (const float *)c->b.data + j * c->b.d;
    centre(ctx, s->t->t, rows_f32(&c->b, j, n, s->t->b), c->mean_b, n, c->b.d);
    return s->t->t;
}

static void bias_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const contrast *c = arg;
    (void)thread;
    for (int64_t j = begin; j < end; j++)
        c->bias[j] = c->owned ? c->inv_tau * vec_dot(c->mean_a, (const float *)c->b.data + j * c->b.d, c->b.d) : 0;
}

/* ---- scores ---- */

/* Scores in double are rounded as distances from the positive's: those that matter are small. */
static void begin_anchors(cloob_ctx *ctx, strip *s)
{
    const contrast *c = s->c;
    int64_t d = c->a.d;
    s->a = rows_f32(&c->a, s->i, s->m, s->t->a);
    for (int64_t r = 0; s->t->wide && r < s->m; r++) {
        int64_t own = c->first + s->i + r;
        s->own[r] = c->inv_tau * vec_dot(s->a + r * d, centred_samples(ctx, s, own, 1), d) + c->bias[own];
    }
}

/* Row r of e: from the product, or from doubles, with the bias of its columns. */
static float *finish_scores(const strip *s, int64_t r)
{
    float *e = s->t->e + r * s->n;
    const double *bias = s->c->bias + s->j;
    if (s->t->wide) vec_narrow(e, s->t->wide + r * s->n, bias, s->n, s->c->inv_tau, s->own[r]);
    else vec_add(e, bias, s->n);
    return e;
}

/* e = inv_tau a (b - mean)^T up to a constant per anchor and finish_scores */
static void scores(cloob_ctx *ctx, const strip *s)
{
    int64_t d = s->c->a.d;
    if (s->t->wide) wide_scores(ctx, s->t, s->a, s->b, s->m, s->n, d);
    else cpu_sgemm(ctx, false, true, s->m, s->n, d, (float)s->c->inv_tau, s->a, d, s->b, d, 0, s->t->e, s->n);
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
        const float *k = finish_scores(s, r);
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
}

double contrast_forward(cloob_ctx *ctx, const contrast *c, const tiles *t)
{
    double total = 0, top[TILE];
    strip s = { .c = c, .t = t, .top = top };
    if (c->owned) centre_owned(ctx, &c->a, t, c->mean_a), centre_owned(ctx, &c->b, t, c->mean_b);
    else mean_row(&c->b, t, c->mean_b);
    pool_for(ctx, c->b.n, 16, bias_range, (void *)(uintptr_t)c);
    for (s.i = 0; s.i < c->a.n; s.i += TILE) {
        s.m = min64(TILE, c->a.n - s.i);
        begin_rows(&s);
        begin_anchors(ctx, &s);
        for (s.j = 0; s.j < c->b.n; s.j += TILE) {
            s.n = min64(TILE, c->b.n - s.j);
            s.b = centred_samples(ctx, &s, s.j, s.n);
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
        float shift = isfinite(lse) ? (float)lse : 0.0f, *k = finish_scores(s, r);
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
        unit_backward(ctx, unit, c->owned ? c->mean_a : NULL, s->t->panel, c->unit_length + s->i, s->dots, s->m, d);
        return;
    }
    for (int64_t r = 0; r < s->m; r++) {
        float *to = c->da + (s->i + r) * d, *from = s->t->panel + r * d;
        s->dots[r] = vec_dot(s->a + r * d, from, d);
        for (int64_t k = 0; k < d; k++) to[k] += from[k];
    }
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
        for (int64_t k = 0; k < d; k++) s->c->db[j * d + k] += (float)(s->c->column[j] * (double)s->c->mean_a[k]);
}

/* The means of rows that the loss owns were subtracted by forward. */
static void backward_begin(cloob_ctx *ctx, const contrast *c, const tiles *t)
{
    if (!c->owned) mean_row(&c->a, t, c->mean_a), mean_row(&c->b, t, c->mean_b);
    pool_for(ctx, c->b.n, 16, bias_range, (void *)(uintptr_t)c);
    memset(c->column, 0, (size_t)c->b.n * sizeof *c->column);
}

/* dA_i += dK B_j (into the panel);  dB_j += dK^T A_i */
static void tile_backward(cloob_ctx *ctx, strip *s)
{
    int64_t d = s->c->a.d;
    const tiles *t = s->t;
    s->b = centred_samples(ctx, s, s->j, s->n);
    scores(ctx, s);
    pool_for(ctx, s->m, 8, dscore_range, s);
    pool_for(ctx, s->n, 16, column_range, s);
    cpu_sgemm(ctx, false, false, s->m, d, s->n, 1, t->e, s->n, s->b, d, s->j > 0, t->panel, d);
    cpu_sgemm(ctx, true, false, s->n, d, s->m, 1, t->e, s->n, s->centred, d, 1, s->c->db + s->j * d, d);
}

double contrast_backward(cloob_ctx *ctx, const contrast *c, const tiles *t)
{
    double along = 0, dots[TILE];
    strip s = { .c = c, .t = t, .dots = dots };
    backward_begin(ctx, c, t);
    for (s.i = 0; s.i < c->a.n; s.i += TILE) {
        s.m = min64(TILE, c->a.n - s.i);
        begin_anchors(ctx, &s);
        s.centred = c->owned ? s.a : t->anchors;
        if (!c->owned) centre(ctx, t->anchors, s.a, c->mean_a, s.m, c->a.d);
        for (s.j = 0; s.j < c->b.n; s.j += TILE) {
            s.n = min64(TILE, c->b.n - s.j);
            tile_backward(ctx, &s);
        }
        finish_panel(ctx, &s);
        for (int64_t r = 0; r < s.m; r++) along += dots[r];
    }
    pool_for(ctx, c->b.n, 8, add_columns_range, &s);
    return along;
}
