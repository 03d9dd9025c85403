/* InfoLOOB and InfoNCE from unit rows: the log-sum-exp of each anchor with a running maximum, and back.
 *
 * Only the leave-one-out sum is computed. InfoNCE follows from it: with v = lse - positive it is softplus(v), and
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
    int64_t i, j, m, n, d;
    const float *a, *b; /* their rows minus their means */
    double *top;        /* (m) running maximum */
    double own[TILE];   /* scores in double: each anchor's positive, which is subtracted from its row */
} strip;

/* The column of row r's positive in the tile; n if it is outside. */
static int64_t own_column(const strip *s, int64_t r)
{
    int64_t at = s->c->first + s->i + r - s->j;
    return at >= 0 && at < s->n ? at : s->n;
}

/* ---- means ----
 *
 * They are subtracted before the GEMMs. Scores are needed up to a constant per anchor, so a.(b - mean_b) serves for
 * a.b, with less rounding the closer the samples are together; with the anchors' mean subtracted as well, each column
 * gets inv_tau mean_a.(b - mean_b) back: the bias. Rows of dK sum to zero, so dA = dK (B - mean_b), and with the column
 * sums dB = dK^T (A - mean_a) + (dK^T 1) mean_a. Rows that are close together (a cone, or beta near 0) would otherwise
 * leave sums of large terms that cancel. */

typedef struct centring {
    float *x;
    const float *mean;
    int64_t d;
} centring;

static void centre_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const centring *c = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t k = 0; k < c->d; k++) c->x[r * c->d + k] -= c->mean[k];
}

/* mean (d) of the rows of x (n, d); subtracts it from them */
static void centre(cloob_ctx *ctx, float *x, int64_t n, int64_t d, double *sums, float *mean)
{
    memset(sums, 0, (size_t)d * sizeof *sums);
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < d; k++) sums[k] += (double)x[j * d + k];
    for (int64_t k = 0; k < d; k++) mean[k] = n > 0 ? (float)(sums[k] / (double)n) : 0;
    pool_for(ctx, n, 16, centre_range, &(centring){ x, mean, d });
}

static void bias_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const contrast *c = arg;
    (void)thread;
    for (int64_t j = begin; j < end; j++) c->bias[j] = c->inv_tau * vec_dot(c->mean_a, c->b + j * c->d, c->d);
}

/* ---- scores ---- */

/* Anchors from s->i on. Scores in double are rounded as distances from the positive's: those that matter are small. */
static void begin_anchors(strip *s)
{
    const contrast *c = s->c;
    s->m = min64(TILE, c->n - s->i);
    s->a = c->a + s->i * c->d;
    for (int64_t r = 0; s->t->wide && r < s->m; r++) {
        int64_t own = c->first + s->i + r;
        s->own[r] = c->inv_tau * vec_dot(s->a + r * c->d, c->b + own * c->d, c->d) + c->bias[own];
    }
}

/* Row r of e: from the GEMM, or from doubles, with the bias of its columns. */
static float *finish_scores(const strip *s, int64_t r)
{
    float *e = s->t->e + r * s->n;
    const double *bias = s->c->bias + s->j;
    if (s->t->wide) vec_narrow(e, s->t->wide + r * s->n, bias, s->n, s->c->inv_tau, s->own[r]);
    else vec_add(e, bias, s->n);
    return e;
}

/* e = inv_tau a b^T up to a constant per anchor and finish_scores, of samples from s->j on */
static void scores(cloob_ctx *ctx, strip *s)
{
    s->n = min64(TILE, s->c->N - s->j);
    s->b = s->c->b + s->j * s->d;
    if (s->t->wide) wide_scores(ctx, s->t, s->a, s->b, s->m, s->n, s->d);
    else cpu_sgemm(ctx, false, true, s->m, s->n, s->d, (float)s->c->inv_tau, s->a, s->d, s->b, s->d, 0, s->t->e, s->n);
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

/* Until then lse has the sum, and weight the positive's score. */
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
    strip s = { .c = c, .t = t, .d = c->d, .top = top };
    centre(ctx, c->a, c->n, c->d, t->sums, c->mean_a);
    centre(ctx, c->b, c->N, c->d, t->sums, c->mean_b);
    pool_for(ctx, c->N, 16, bias_range, (void *)(uintptr_t)c);
    for (s.i = 0; s.i < c->n; s.i += TILE) {
        begin_anchors(&s);
        begin_rows(&s);
        for (s.j = 0; s.j < c->N; s.j += TILE) {
            scores(ctx, &s);
            pool_for(ctx, s.m, 8, sum_range, &s);
        }
        total += finish_rows(&s);
    }
    return total;
}

/* dK_ij = weight_i / N (exp(k_ij - lse_i) [i != j] - [i = j]). The shift is a float; the factor restores its rounding
 * error. */
static void dscore_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const strip *s = arg;
    double N = (double)s->c->N;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double lse = s->c->lse[s->i + r], weight = s->c->weight[s->i + r] / N;
        float shift = isfinite(lse) ? (float)lse : 0.0f, *k = finish_scores(s, r);
        int64_t own = own_column(s, r);
        vec_exp(k, s->n, shift, isfinite(lse) ? (float)(weight * exp((double)shift - lse)) : 0.0f);
        if (own < s->n) k[own] = (float)-weight;
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
    (void)thread;
    for (int64_t j = begin; j < end; j++)
        for (int64_t k = 0; k < s->d; k++) s->c->db[j * s->d + k] += (float)(s->c->column[j] * (double)s->c->mean_a[k]);
}

/* dA_i += dK B_j (into the panel);  dB_j += dK^T A_i */
static void tile_backward(cloob_ctx *ctx, strip *s)
{
    int64_t d = s->d;
    float *e = s->t->e;
    scores(ctx, s);
    pool_for(ctx, s->m, 8, dscore_range, s);
    pool_for(ctx, s->n, 16, column_range, s);
    cpu_sgemm(ctx, false, false, s->m, d, s->n, 1, e, s->n, s->b, d, s->j > 0, s->t->panel, d);
    cpu_sgemm(ctx, true, false, s->n, d, s->m, 1, e, s->n, s->a, d, 1, s->c->db + s->j * d, d);
}

double contrast_backward(cloob_ctx *ctx, const contrast *c, const tiles *t)
{
    double along = 0, dots[TILE];
    strip s = { .c = c, .t = t, .d = c->d };
    memset(c->column, 0, (size_t)c->N * sizeof *c->column);
    for (s.i = 0; s.i < c->n; s.i += TILE) {
        begin_anchors(&s);
        for (s.j = 0; s.j < c->N; s.j += TILE) tile_backward(ctx, &s);
        unit_backward(ctx, c->a + s.i * c->d, c->mean_a, t->panel, c->length ? c->length + s.i : NULL, dots, s.m, c->d);
        for (int64_t r = 0; r < s.m; r++) along += dots[r];
    }
    pool_for(ctx, c->N, 8, add_columns_range, &s);
    return along;
}
