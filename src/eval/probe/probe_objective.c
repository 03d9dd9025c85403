/* Value and gradient by blocks of rows: Z = X W' + b, loss and P - Y in place of Z, G += (P - Y)' X. And the inverse of
 * an approximate Hessian, sum_n (diag p_n - p_n p_n') (x) x_n x_n' + lambda, where x has a 1 behind it for the bias.
 *
 * Averaged over classes it is
 *
 *     M = 1/C sum_n u_n x_n x_n' + lambda I,    u_n = 1 - sum_c p_nc^2
 *
 * one (D+1)^2 matrix for all classes: exact at W = 0, and later still right about which directions of the features are
 * steep. It is made again when the objective has fallen enough for u to have moved, from a sample of rows, so that it
 * costs a few evaluations at most.
 *
 * When all of the Hessian is small it is taken whole, at every iteration: these are Newton steps then, which solve
 * problems with a tiny lambda that would not converge in 1,000 iterations. */
#include "eval/probe/probe_objective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "eval/probe/probe_gpu.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linalg.h"

enum {
    BLOCK_BYTES = 8 << 20, /* of features or logits per block: large enough for products at full speed */
    MIN_BLOCK = 256,
    MIN_SAMPLE = 4096, /* rows of the preconditioner's sample: at least this many, or */
    SAMPLE_PER_DIMENSION = 4,
    GRAIN = 1 << 15, /* numbers per thread at least: less is not worth waking one */
    MAX_PARTS = 256
};
static const double SMALL = 2e8;       /* N (D+1) C up to which a GPU does not help */
static const double NEWTON_WORK = 4e9; /* N (C(D+1))^2 up to which Newton steps are affordable */
static const int64_t NEWTON_UNKNOWNS = 2048;

/* ---- sizes --------------------------------------------------------------------------------------- */

bool probe_is_small(int64_t N, int64_t D, int64_t C) { return (double)N * (double)(D + 1) * (double)C <= SMALL; }

static bool takes_newton_steps(int64_t N, int64_t D, int64_t C)
{
    double n = (double)(C * (D + 1));
    return n <= (double)NEWTON_UNKNOWNS && (double)N * n * n <= NEWTON_WORK;
}

/* memory NULL: only counts. Returns the bytes. */
static size_t lay_out(objective *o, char *memory)
{
    int64_t K = o->D + 1, size = takes_newton_steps(o->N, o->D, o->C) ? o->C * K : K;
    int64_t widest = max64(o->D, o->C);
    o->newton = size != K;
    o->block = min64(o->N, max64(MIN_BLOCK, BLOCK_BYTES / (widest * (int64_t)sizeof(double))));
    int64_t doubles[] = { o->block * o->D, o->block * o->C, o->block * K, size * size };
    double **at[] = { &o->x, &o->z, &o->weighted, &o->M };
    size_t used = 0;
    for (int i = 0; i < 4; i++) {
        *at[i] = memory ? (double *)(void *)(memory + used) : NULL;
        used += (size_t)doubles[i] * sizeof(double);
    }
    o->read = memory ? (float *)(void *)(memory + used) : NULL;
    o->uncertain = memory ? o->read + o->block * o->D : NULL;
    return used + (size_t)(o->block * o->D + o->N) * sizeof(float);
}

size_t objective_bytes(int64_t N, int64_t D, int64_t C, int64_t *block_rows)
{
    objective o = { .N = N, .D = D, .C = C };
    size_t bytes = lay_out(&o, NULL);
    *block_rows = o.block;
    return bytes;
}

cloob_status objective_create(cloob_ctx *ctx, objective **out, const probe_data *part, int parts, const int32_t *y,
                              int64_t C, double lambda, probe_gpu *gpu)
{
    objective *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o) return ctx_no_memory(ctx, sizeof *o, "the probe");
    *o = (objective){ .ctx = ctx, .part = part, .parts = parts, .y = y, .D = part[0].x.D, .C = C, .lambda = lambda };
    for (int k = 0; k < parts; k++) o->N += part[k].x.N;
    o->gpu = probe_is_small(o->N, o->D, C) ? NULL : gpu;
    size_t bytes = lay_out(o, NULL);
    o->memory = malloc(bytes);
    cloob_status status = o->memory ? CLOOB_OK : ctx_no_memory(ctx, bytes, "the probe");
    if (o->memory) lay_out(o, o->memory);
    if (status == CLOOB_OK && o->gpu) status = probe_gpu_load(o->gpu, part, parts, y, C);
    if (status == CLOOB_OK) *out = o;
    else objective_destroy(o);
    return status;
}

void objective_destroy(objective *o)
{
    if (!o) return;
    free(o->memory);
    free(o);
}

/* ---- cross entropy ------------------------------------------------------------------------------- */

/* The largest logit is kept out of the sum (S = 1 + rest), so that -ln p = ln(1 + rest) and 1 - p = rest / S of a
 * confident row keep their digits instead of being lost to rounding against 1. */
static double softmax_row(double *z, float *uncertain, int32_t own, int64_t C)
{
    double rest = 0, square = 0;
    int64_t top = 0;
    for (int64_t j = 1; j < C; j++)
        if (z[j] > z[top]) top = j;
    double high = z[top], behind = high - z[own];
    for (int64_t j = 0; j < C; j++) z[j] = j == top ? 0 : exp(z[j] - high);
    for (int64_t j = 0; j < C; j++) rest += z[j], square += z[j] * z[j];
    if (uncertain) *uncertain = (float)((rest * (2 + rest) - square) / ((1 + rest) * (1 + rest)));
    for (int64_t j = 0; j < C; j++) z[j] /= 1 + rest;
    z[top] = 1 / (1 + rest);
    z[own] = own == top ? -rest / (1 + rest) : z[own] - 1;
    return log1p(rest) + behind;
}

typedef struct softmax_job {
    double *z;
    float *uncertain;
    const int32_t *y;
    int64_t C;
    double part[MAX_PARTS];
} softmax_job;

static void softmax_range(void *arg, int64_t begin, int64_t end, int thread)
{
    softmax_job *j = arg;
    double loss = 0;
    for (int64_t i = begin; i < end; i++)
        loss += softmax_row(j->z + i * j->C, j->uncertain ? j->uncertain + i : NULL, j->y[i], j->C);
    j->part[thread] = loss;
}

double softmax_loss(cloob_ctx *ctx, double *z, float *uncertain, const int32_t *y, int64_t n, int64_t C)
{
    softmax_job j = { .z = z, .uncertain = uncertain, .y = y, .C = C };
    int64_t grain = GRAIN / C + 1;
    double loss = 0;
    pool_for(ctx, n, grain, softmax_range, &j);
    for (int k = 0; k < pool_ranges(ctx, n, grain); k++) loss += j.part[k];
    return loss;
}

/* ---- value and gradient -------------------------------------------------------------------------- */

/* Calls visit for every block, with its rows in o->x and their logits, bias included, in o->z. at: the first row over
 * all parts. */
typedef void block_visitor(objective *o, int64_t at, int64_t n, void *user);

static void each_block(objective *o, const double *w, block_visitor *visit, void *user)
{
    int64_t D = o->D, K = D + 1, C = o->C, before = 0;
    for (int k = 0; k < o->parts; before += o->part[k++].x.N)
        for (int64_t at = 0, n; at < o->part[k].x.N; at += n) {
            n = min64(o->block, o->part[k].x.N - at);
            const float *x = rows_read(&o->part[k].x, at, n, o->read);
            for (int64_t i = 0; i < n * D; i++) o->x[i] = x[i];
            for (int64_t i = 0; i < n * C; i++) o->z[i] = w[i % C * K + D];
            cpu_dgemm(o->ctx, false, true, n, C, D, 1, o->x, D, w, K, 1, o->z, C);
            visit(o, before + at, n, user);
        }
}

typedef struct sums {
    double loss, *g; /* (C, D+1) */
} sums;

static void add_gradient(objective *o, int64_t at, int64_t n, void *user)
{
    sums *s = user;
    int64_t D = o->D, K = D + 1, C = o->C;
    s->loss += softmax_loss(o->ctx, o->z, o->uncertain + at, o->y + at, n, C);
    cpu_dgemm(o->ctx, true, false, C, D, n, 1, o->z, C, o->x, D, 1, s->g, K);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) s->g[c * K + D] += o->z[i * C + c];
}

/* The penalty does not include the bias, every class's last. */
static cloob_status evaluate(void *arg, double *f, double *g, const double *w)
{
    objective *o = arg;
    int64_t K = o->D + 1;
    sums s = { 0, g };
    if (o->gpu) CLOOB_TRY(probe_gpu_evaluate(o->gpu, &s.loss, g, w));
    else {
        memset(g, 0, (size_t)(o->C * K) * sizeof *g);
        each_block(o, w, add_gradient, &s);
    }
    *f = s.loss;
    for (int64_t i = 0; i < o->C * K; i++) {
        if (i % K == o->D) continue;
        g[i] += o->lambda * w[i];
        *f += 0.5 * o->lambda * w[i] * w[i];
    }
    return CLOOB_OK;
}

/* ---- the preconditioner: an average over classes ------------------------------------------------------ */

/* M += X' X of the n rows in `weighted` */
static void add_squares(objective *o, int64_t n)
{
    int64_t K = o->D + 1;
    cpu_dgemm(o->ctx, true, false, K, K, n, 1, o->weighted, K, o->weighted, K, 1, o->M, K);
}

/* Row `at` over all parts times a factor, with a 1 behind it. */
static void weigh_row(objective *o, int64_t at, double factor, double *row)
{
    const probe_data *part = o->part;
    for (; at >= part->x.N; part++) at -= part->x.N;
    const float *x = rows_read(&part->x, at, 1, o->read);
    for (int64_t i = 0; i < o->D; i++) row[i] = factor * x[i];
    row[o->D] = factor;
}

/* M = sum of u x x' by a sample of rows: those whose weight u is above the step are taken as they are, lighter ones
 * whenever together they have come to one step, with its weight. So at most `wanted` rows are taken and the sum of
 * weights is kept. With equal weights that is every so-many-th row; once most rows are certain it is the others. */
static void sum_sample(objective *o)
{
    int64_t K = o->D + 1, wanted = max64(MIN_SAMPLE, SAMPLE_PER_DIMENSION * K), n = 0;
    double total = 0, carried = 0;
    for (int64_t i = 0; i < o->N; i++) total += o->uncertain[i];
    double step = o->N > wanted ? total / (double)wanted : 0;
    memset(o->M, 0, (size_t)(K * K) * sizeof *o->M);
    for (int64_t i = 0; i < o->N; i++) {
        double weight = o->uncertain[i];
        if (weight < step) {
            carried += weight;
            if (carried < step) continue;
            carried -= step, weight = step;
        }
        weigh_row(o, i, sqrt(weight), o->weighted + n++ * K);
        if (n == o->block) add_squares(o, n), n = 0;
    }
    if (n) add_squares(o, n);
}

static cloob_status make_average(objective *o)
{
    int64_t K = o->D + 1;
    double trace = 0;
    if (o->gpu) CLOOB_TRY(probe_gpu_uncertain(o->gpu, o->uncertain));
    sum_sample(o);
    for (int64_t i = 0; i < K * K; i++) o->M[i] /= (double)o->C;
    for (int64_t i = 0; i < K; i++) trace += o->M[i * K + i];
    for (int64_t i = 0; i < K; i++) o->M[i * K + i] += (i < o->D ? o->lambda : 0) + 1e-7 * trace + 1e-30;
    return linalg_spd_inverse(o->ctx, o->M, K);
}

/* ---- or the whole Hessian ------------------------------------------------------------------------ */

/* Adds a block's sum_n p_a (delta_ab - p_b) x x' to the blocks (a, b) of M with b <= a. */
static void add_hessian(objective *o, int64_t at, int64_t n, void *user)
{
    int64_t D = o->D, K = D + 1, C = o->C, CK = C * K;
    (void)user;
    softmax_loss(o->ctx, o->z, NULL, o->y + at, n, C);
    for (int64_t i = 0; i < n; i++) o->z[i * C + o->y[at + i]] += 1; /* p - onehot(y) becomes p */
    for (int64_t ab = 0; ab < C * C; ab++) {
        int64_t a = ab / C, b = ab % C;
        if (b > a) continue;
        double *M = o->M + a * K * CK + b * K, *corner = M + D * CK;
        for (int64_t i = 0; i < n; i++) {
            const double *p = o->z + i * C;
            double weight = p[a] * ((a == b ? 1 : 0) - p[b]), *row = o->weighted + i * K;
            for (int64_t k = 0; k < D; k++) row[k] = weight * o->x[i * D + k];
            for (int64_t k = 0; k < D; k++) corner[k] += row[k], M[k * CK + D] += row[k];
            corner[D] += weight;
        }
        cpu_dgemm(o->ctx, true, false, D, D, n, 1, o->weighted, K, o->x, D, 1, M, CK);
    }
}

static cloob_status make_hessian(objective *o, const double *w)
{
    int64_t K = o->D + 1, n = o->C * K;
    double trace = 0;
    memset(o->M, 0, (size_t)(n * n) * sizeof *o->M);
    each_block(o, w, add_hessian, NULL);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) o->M[j * n + i] = o->M[i * n + j];
    for (int64_t i = 0; i < n; i++) trace += o->M[i * n + i];
    for (int64_t i = 0; i < n; i++) /* moving all biases alike changes nothing: the floor keeps that direction */
        o->M[i * n + i] += (i % K == o->D ? 0 : o->lambda) + 1e-13 * trace + 1e-30;
    return linalg_spd_inverse(o->ctx, o->M, n);
}

/* ---- for the minimiser --------------------------------------------------------------------------- */

static cloob_status prepare(void *arg, int iteration, double f, const double *w, bool *forget)
{
    objective *o = arg;
    bool fell = o->since >= 6 && f < 0.4 * o->last_f, aged = o->since >= 15 && f < 0.97 * o->last_f;
    *forget = o->newton;
    if (o->newton) return make_hessian(o, w);
    o->since++;
    if (iteration > 0 && !fell && !aged) return CLOOB_OK;
    o->last_f = f, o->since = 1;
    return make_average(o);
}

static cloob_status precondition(void *arg, double *out, const double *v)
{
    objective *o = arg;
    int64_t rows_ = o->newton ? 1 : o->C, n = o->C * (o->D + 1) / rows_;
    cpu_dgemm(o->ctx, false, false, rows_, n, n, 1, v, n, o->M, n, 0, out, n);
    return CLOOB_OK;
}

lbfgs_problem objective_problem(objective *o)
{
    return (lbfgs_problem){ .n = o->C * (o->D + 1),
                            .noise = o->gpu ? 1e-9 : 1e-15,
                            .evaluate = evaluate,
                            .precondition = precondition,
                            .prepare = prepare,
                            .arg = o };
}
