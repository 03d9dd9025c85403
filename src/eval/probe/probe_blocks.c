/* Value and gradient by blocks of rows: Z = X W' + b, loss and P - Y in place of Z, G += (P - Y)' X. */
#include "eval/probe/probe_objective.h"

#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vmath.h"

/* ---- cross entropy of a block; softmax_loss_real.h has the row ------------------------------- */

enum { GRAIN = 1 << 16, MAX_PARTS = 256 }; /* logits per thread at least: less is not worth waking one */

#define REAL   float
#define EXP(x) vmath_exp_or_zero(x)
#define NAME   rows_f
#include "eval/probe/softmax_loss_real.h"
#undef REAL
#undef EXP
#undef NAME

#define REAL   double
#define EXP(x) exp(x)
#define NAME   rows_d
#include "eval/probe/softmax_loss_real.h"

typedef struct job {
    float *narrow; /* one of the two */
    double *wide;
    float *uncertain;
    const int32_t *y;
    int64_t C;
    double part[MAX_PARTS];
} job;

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    float *u = j->uncertain ? j->uncertain + begin : NULL;
    if (j->narrow) j->part[thread] = rows_f(j->narrow + begin * j->C, u, j->y + begin, end - begin, j->C);
    else j->part[thread] = rows_d(j->wide + begin * j->C, u, j->y + begin, end - begin, j->C);
}

static double run(cloob_ctx *ctx, job *j, int64_t n)
{
    double loss = 0;
    int64_t grain = GRAIN / j->C + 1;
    pool_for(ctx, n, grain, run_range, j);
    for (int k = 0; k < pool_ranges(ctx, n, grain); k++) loss += j->part[k];
    return loss;
}

double softmax_loss_f(cloob_ctx *ctx, float *z, float *uncertain, const int32_t *y, int64_t n, int64_t C)
{
    job j = { .narrow = z, .uncertain = uncertain, .y = y, .C = C };
    return run(ctx, &j, n);
}

double softmax_loss_d(cloob_ctx *ctx, double *z, float *uncertain, const int32_t *y, int64_t n, int64_t C)
{
    job j = { .wide = z, .uncertain = uncertain, .y = y, .C = C };
    return run(ctx, &j, n);
}

/* ---- in float: every thread takes whole blocks, so that threads do not wait between GEMMs ---------- */

static int64_t blocks_of(const objective *o, int part) { return (o->part[part].x.N + o->block - 1) / o->block; }

/* Adds one block to the thread's gradient, bias sums and loss. x: (n, D); at: its first row over all parts.
 */
static void add_block(objective *o, const float *x, int64_t at, int64_t n, int thread)
{
    int64_t D = o->D, K = D + 1, C = o->C;
    float *z = o->z + thread * o->block * C;
    double *bias = o->bias_sum + thread * C;
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) z[i * C + c] = o->w[c * K + D];
    gemm_tile(false, true, n, C, D, 1, x, D, o->w, K, 1, z, C);
    o->loss[thread] += softmax_loss_f(o->ctx, z, o->uncertain + at, o->y + at, n, C);
    gemm_tile(true, false, C, D, n, 1, z, C, x, D, 1, o->G + thread * C * K, K);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) bias[c] += z[i * C + c];
}

static void run_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    objective *o = arg;
    int64_t CK = o->C * (o->D + 1);
    o->loss[thread] = 0;
    memset(o->bias_sum + thread * o->C, 0, (size_t)o->C * sizeof *o->bias_sum);
    memset(o->G + thread * CK, 0, (size_t)CK * sizeof *o->G);
    for (int64_t block = begin; block < end; block++) {
        int64_t k = 0, local = block, before = 0; /* which part it is of, and the rows of earlier parts */
        for (; local >= blocks_of(o, (int)k); k++) local -= blocks_of(o, (int)k), before += o->part[k].x.N;
        const rows *r = &o->part[k].x;
        int64_t at = local * o->block, n = min64(o->block, r->N - at);
        add_block(o, rows_read(r, at, n, o->x + thread * o->block * o->D), before + at, n, thread);
    }
}

typedef struct gathering {
    const objective *o;
    double *g;
    int parts;
} gathering;

/* g = the threads' gradients and bias sums together, class by class. */
static void gather_classes(void *arg, int64_t begin, int64_t end, int thread)
{
    const gathering *t = arg;
    int64_t C = t->o->C, D = t->o->D, K = D + 1;
    (void)thread;
    for (int64_t i = begin * K; i < end * K; i++) t->g[i] = t->o->G[i];
    for (int k = 1; k < t->parts; k++)
        for (int64_t i = begin * K; i < end * K; i++) t->g[i] += t->o->G[k * C * K + i];
    for (int64_t c = begin; c < end; c++) {
        t->g[c * K + D] = 0;
        for (int k = 0; k < t->parts; k++) t->g[c * K + D] += t->o->bias_sum[k * C + c];
    }
}

double objective_blocks_float(objective *o, double *g, const double *w)
{
    int64_t CK = o->C * (o->D + 1), blocks = 0;
    double loss = 0;
    for (int k = 0; k < o->parts; k++) blocks += blocks_of(o, k);
    for (int64_t i = 0; i < CK; i++) o->w[i] = (float)w[i];
    pool_for(o->ctx, blocks, 1, run_blocks, o);
    gathering t = { o, g, pool_ranges(o->ctx, blocks, 1) };
    pool_for(o->ctx, o->C, (1 << 15) / (o->D + 1) + 1, gather_classes, &t);
    for (int k = 0; k < t.parts; k++) loss += o->loss[k];
    return loss;
}

/* ---- in double: small problems --------------------------------------------------------------------- */

void objective_logits_double(objective *o, const float *x, const double *w, int64_t n)
{
    int64_t D = o->D, K = D + 1, C = o->C;
    for (int64_t i = 0; i < n * D; i++) o->xd[i] = x[i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) o->zd[i * C + c] = w[c * K + D];
    cpu_dgemm(o->ctx, false, true, n, C, D, 1, o->xd, D, w, K, 1, o->zd, C);
}

static double add_block_double(objective *o, const float *x, const double *w, int64_t at, int64_t n)
{
    int64_t D = o->D, K = D + 1, C = o->C;
    objective_logits_double(o, x, w, n);
    double loss = softmax_loss_d(o->ctx, o->zd, o->uncertain + at, o->y + at, n, C);
    cpu_dgemm(o->ctx, true, false, C, D, n, 1, o->zd, C, o->xd, D, 1, o->Gd, K);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) o->bias_sum[c] += o->zd[i * C + c];
    return loss;
}

double objective_blocks_double(objective *o, double *g, const double *w)
{
    int64_t D = o->D, K = D + 1, C = o->C, before = 0;
    double loss = 0;
    memset(o->bias_sum, 0, (size_t)C * sizeof *o->bias_sum);
    memset(o->Gd, 0, (size_t)(C * K) * sizeof *o->Gd);
    for (int k = 0; k < o->parts; before += o->part[k++].x.N)
        for (int64_t at = 0, n; at < o->part[k].x.N; at += n) {
            n = min64(o->block, o->part[k].x.N - at);
            loss += add_block_double(o, rows_read(&o->part[k].x, at, n, o->x), w, before + at, n);
        }
    memcpy(g, o->Gd, (size_t)(C * K) * sizeof *g);
    for (int64_t c = 0; c < C; c++) g[c * K + D] = o->bias_sum[c];
    return loss;
}
