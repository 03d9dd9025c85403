/* Approximates the inverse Hessian of the probe's objective, sum_n (diag p_n - p_n p_n') (x) x_n x_n' +
 * lambda, where x has a 1 behind it for the bias.
 *
 * Averaged over classes it is
 *
 *     M = 1/C sum_n u_n x_n x_n' + lambda I,    u_n = 1 - sum_c p_nc^2
 *
 * one (D+1)^2 matrix for all classes: exact at W = 0, and later still right about which directions of the features are
 * steep. It is recomputed from a sample of rows (choose_sample) when the objective has decreased enough to change u, so
 * it costs a few evaluations at most.
 *
 * A small Hessian is used in full at every iteration. These Newton steps solve problems with a tiny lambda that would
 * not converge in 1,000 iterations. */
#include "eval/probe/probe_objective.h"

#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linalg.h"

/* ---- the sample of rows ---------------------------------------------------------------------- */

enum { PANELS = 4 }; /* of columns: a symmetric product is made of those on and right of the diagonal */

/* Rows by their weight u: those above the step are taken as they are, lighter ones whenever together they
 * have come to one step, with its weight. So the sample has at most `wanted` rows, and the sum of
 * weights is kept. With equal weights that is every so-many-th row; once most rows are certain it is the
 * others. */
static void choose_sample(objective *o, int64_t wanted)
{
    double total = 0, step = 0, carried = 0;
    if (o->N > wanted) {
        for (int64_t i = 0; i < o->N; i++) total += o->uncertain[i];
        step = total / (double)wanted;
    }
    o->sampled = 0;
    for (int64_t i = 0; i < o->N && o->sampled <= wanted; i++) {
        double u = o->uncertain[i], weight = u;
        if (u < step) {
            carried += u;
            if (carried < step) continue;
            carried -= step, weight = step;
        }
        o->row[o->sampled] = i, o->root[o->sampled++] = (float)sqrt(weight);
    }
}

/* Sampled rows from `first` on, times the root of their weight, a 1 behind each. */
static int64_t gather(objective *o, int64_t first)
{
    int64_t K = o->D + 1, n = 0;
    for (; n < SAMPLE_BLOCK && first + n < o->sampled; n++) {
        int64_t at = o->row[first + n];
        const probe_data *part = o->part;
        for (; at >= part->x.N; part++) at -= part->x.N;
        float *row = o->sample + n * K, root = o->root[first + n];
        const float *x = rows_read(&part->x, at, 1, o->x);
        for (int64_t i = 0; i < o->D; i++) row[i] = root * x[i];
        row[o->D] = root;
    }
    return n;
}

/* Minv (D+1, D+1) = sum of root^2 x x' over the sample. */
static void square_sample(objective *o)
{
    int64_t K = o->D + 1, width = (K + PANELS - 1) / PANELS;
    memset(o->Minv, 0, (size_t)(K * K) * sizeof *o->Minv);
    for (int64_t first = 0, n; (n = gather(o, first)) > 0; first += n)
        for (int64_t at = 0; at < K; at += width) {
            int64_t m = at + width < K ? width : K - at;
            cpu_sgemm(o->ctx, true, false, m, K - at, n, 1, o->sample + at, K, o->sample + at, K, 1,
                      o->Minv + at * K + at, K);
        }
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j < i; j++) o->Minv[i * K + j] = o->Minv[j * K + i];
}

/* ---- the average over classes -------------------------------------------------------------------- */

static cloob_status make_average(objective *o)
{
    int64_t D = o->D, K = D + 1;
    double trace = 0;
    choose_sample(o, objective_sample_rows(D));
    square_sample(o);
    for (int64_t i = 0; i < K * K; i++) o->M[i] = o->Minv[i] / (double)o->C;
    for (int64_t i = 0; i < K; i++) trace += o->M[i * K + i];
    double floor_ = 1e-7 * trace + 1e-30; /* keeps the inverse positive definite in float */
    for (int64_t i = 0; i < D; i++) o->M[i * K + i] += o->lambda + floor_;
    o->M[D * K + D] += floor_;
    CLOOB_TRY(linalg_spd_inverse(o->ctx, o->M, K));
    for (int64_t i = 0; i < K * K; i++) o->Minv[i] = (float)o->M[i];
    return CLOOB_OK;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

/* Adds one block's sum_n p_a (delta_ab - p_b) x x' to the blocks (a, b) and (b, a) of M. p: zd, x: xd (n, D).
 */
static void add_pair(objective *o, int64_t a, int64_t b, int64_t n)
{
    int64_t D = o->D, K = D + 1, C = o->C, CK = C * K;
    double *M = o->M + a * K * CK + b * K;
    for (int64_t i = 0; i < n; i++) {
        const double *p = o->zd + i * C;
        double weight = p[a] * ((a == b ? 1 : 0) - p[b]), *row = o->weighted + i * K, *corner = M + D * CK;
        for (int64_t k = 0; k < D; k++) row[k] = weight * o->xd[i * D + k];
        for (int64_t k = 0; k < D; k++) corner[k] += row[k], M[k * CK + D] += row[k];
        corner[D] += weight;
    }
    cpu_dgemm(o->ctx, true, false, D, D, n, 1, o->weighted, K, o->xd, D, 1, M, CK);
}

/* Logits to probabilities: the loss function leaves p - onehot(y). */
static void probabilities(objective *o, int64_t at, int64_t n)
{
    softmax_loss_d(o->zd, NULL, o->y + at, n, o->C);
    for (int64_t i = 0; i < n; i++) o->zd[i * o->C + o->y[at + i]] += 1;
}

static void add_blocks(objective *o, const double *w)
{
    int64_t before = 0;
    for (int k = 0; k < o->parts; before += o->part[k++].x.N)
        for (int64_t at = 0, n; at < o->part[k].x.N; at += n) {
            n = min64(o->block, o->part[k].x.N - at);
            objective_logits_double(o, rows_read(&o->part[k].x, at, n, o->x), w, n);
            probabilities(o, before + at, n);
            for (int64_t a = 0; a < o->C; a++)
                for (int64_t b = 0; b <= a; b++) add_pair(o, a, b, n);
        }
}

static cloob_status make_whole(objective *o, const double *w)
{
    int64_t K = o->D + 1, n = o->C * K;
    double trace = 0;
    memset(o->M, 0, (size_t)(n * n) * sizeof *o->M);
    add_blocks(o, w);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) o->M[j * n + i] = o->M[i * n + j];
    for (int64_t i = 0; i < n; i++) trace += o->M[i * n + i];
    /* Adding a constant to all biases changes nothing: the floor keeps that direction invertible. */
    for (int64_t i = 0; i < n; i++) o->M[i * n + i] += (i % K == o->D ? 0 : o->lambda) + 1e-13 * trace + 1e-30;
    return linalg_spd_inverse(o->ctx, o->M, n);
}

/* ---- for the minimiser --------------------------------------------------------------------------- */

cloob_status objective_prepare(void *arg, int iteration, double f, const double *w, bool *forget)
{
    objective *o = arg;
    bool fell = o->since >= 6 && f < 0.4 * o->last_f, aged = o->since >= 15 && f < 0.97 * o->last_f;
    *forget = o->exact;
    if (o->exact) return make_whole(o, w);
    o->since++;
    if (iteration > 0 && !fell && !aged) return CLOOB_OK;
    o->last_f = f, o->since = 1;
    return make_average(o);
}

cloob_status objective_precondition(void *arg, double *out, const double *v)
{
    objective *o = arg;
    int64_t K = o->D + 1, n = o->C * K;
    if (o->exact) {
        cpu_dgemm(o->ctx, false, false, 1, n, n, 1, v, n, o->M, n, 0, out, n);
        return CLOOB_OK;
    }
    for (int64_t i = 0; i < n; i++) o->v[i] = (float)v[i];
    cpu_sgemm(o->ctx, false, false, o->C, K, K, 1, o->v, K, o->Minv, K, 0, o->Mv, K);
    for (int64_t i = 0; i < n; i++) out[i] = o->Mv[i];
    return CLOOB_OK;
}
