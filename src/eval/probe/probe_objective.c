/* The probe's objective: sizes and memory, then value and gradient by blocks of rows: Z = X W' + b, loss and P - Y in
 * place of Z, G += (P - Y)' X. */
#include "eval/probe/probe_objective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vmath.h"

enum {
    BLOCK_BYTES = 4 << 20, /* of features or logits per block: large enough for products at full speed */
    MIN_BLOCK = 256
};
static const double SMALL = 2e8;           /* N (D+1) C up to which double takes a negligible time */
static const double SMALL_HESSIAN = 4e9;   /* N (C(D+1))^2 up to which the whole Hessian takes a negligible time */
static const int64_t HESSIAN_LIMIT = 2048; /* its largest size */

/* ---- sizes --------------------------------------------------------------------------------------- */

/* Every thread gets a few blocks. */
static int64_t choose_block(int64_t N, int64_t D, int64_t C, int threads)
{
    int64_t widest = D > C ? D : C, n = BLOCK_BYTES / (widest * (int64_t)sizeof(float));
    n = min64(n < MIN_BLOCK ? MIN_BLOCK : n, (N + 2 * threads - 1) / (2 * threads));
    return n < MIN_BLOCK ? min64(N, MIN_BLOCK) : n;
}

/* n elements of `size` bytes; while o only counts, any address that is not NULL. */
static void *take(objective *o, int64_t n, size_t size)
{
    o->bytes += (size_t)n * size;
    return o->counts ? (void *)o : arena_push(&o->memory, (size_t)n * size);
}

static float *floats(objective *o, int64_t n) { return take(o, n, sizeof(float)); }
static double *doubles(objective *o, int64_t n) { return take(o, n, sizeof(double)); }

static bool allocate_preconditioner(objective *o)
{
    int64_t K = o->D + 1, CK = o->C * K, sample = objective_sample_rows(o->D) + 1;
    if (o->exact) {
        o->M = doubles(o, CK * CK), o->weighted = doubles(o, o->block * K);
        return o->M && o->weighted;
    }
    o->sample = floats(o, SAMPLE_BLOCK * K), o->Minv = floats(o, K * K), o->v = floats(o, CK), o->Mv = floats(o, CK);
    o->M = doubles(o, K * K), o->root = floats(o, sample), o->row = take(o, sample, sizeof *o->row);
    return o->sample && o->Minv && o->v && o->Mv && o->M && o->root && o->row;
}

static bool allocate(objective *o)
{
    int64_t CK = o->C * (o->D + 1), n = o->block, T = o->threads;
    o->uncertain = floats(o, o->N);
    if (!o->uncertain || !allocate_preconditioner(o)) return false;
    o->bias_sum = doubles(o, T * o->C), o->loss = doubles(o, T);
    if (!o->bias_sum || !o->loss) return false;
    if (o->wide) {
        o->x = floats(o, n * o->D), o->xd = doubles(o, n * o->D), o->zd = doubles(o, n * o->C), o->Gd = doubles(o, CK);
        return o->x && o->xd && o->zd && o->Gd;
    }
    o->x = floats(o, T * n * o->D), o->z = floats(o, T * n * o->C), o->w = floats(o, CK), o->G = floats(o, T * CK);
    return o->x && o->z && o->w && o->G;
}

static void choose_sizes(objective *o, int64_t N, int64_t D, int64_t C, int threads)
{
    o->N = N, o->D = D, o->C = C, o->threads = threads;
    o->wide = (double)N * (double)(D + 1) * (double)C <= SMALL;
    o->block = choose_block(N, D, C, threads);
    double n = (double)(C * (D + 1));
    o->exact = o->wide && n <= (double)HESSIAN_LIMIT && (double)N * n * n <= SMALL_HESSIAN;
}

objective objective_sizes(int64_t N, int64_t D, int64_t C, int threads)
{
    objective o = { .counts = true };
    choose_sizes(&o, N, D, C, threads);
    allocate(&o);
    return o;
}

cloob_status objective_create(cloob_ctx *ctx, objective **out, const probe_data *part, int parts, const int32_t *y,
                              int64_t C, double lambda)
{
    objective *o = calloc(1, sizeof *o);
    int64_t N = 0;
    *out = o;
    if (!o) return ctx_no_memory(ctx, sizeof *o, "the probe");
    for (int k = 0; k < parts; k++) N += part[k].x.N;
    *o = (objective){ .ctx = ctx, .part = part, .parts = parts, .y = y, .lambda = lambda };
    choose_sizes(o, N, part[0].x.D, C, ctx->threads);
    if (allocate(o)) return CLOOB_OK;
    size_t bytes = o->bytes;
    objective_destroy(o);
    *out = NULL;
    return ctx_no_memory(ctx, bytes, "the probe");
}

void objective_destroy(objective *o)
{
    if (!o) return;
    arena_release(&o->memory);
    free(o);
}

/* ---- cross entropy of a block; softmax_loss_real.h has the row ------------------------------- */

#define REAL   float
#define EXP(x) vmath_exp_or_zero(x)
#define NAME   softmax_loss_f
#include "eval/probe/softmax_loss_real.h"
#undef REAL
#undef EXP
#undef NAME

#define REAL   double
#define EXP(x) exp(x)
#define NAME   softmax_loss_d
#include "eval/probe/softmax_loss_real.h"

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
    o->loss[thread] += softmax_loss_f(z, o->uncertain + at, o->y + at, n, C);
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

/* The sum of cross entropies over all rows, and its gradient (C, D+1), overwritten. */
static double blocks_float(objective *o, double *g, const double *w)
{
    int64_t D = o->D, K = D + 1, C = o->C, blocks = 0;
    double loss = 0;
    for (int k = 0; k < o->parts; k++) blocks += blocks_of(o, k);
    for (int64_t i = 0; i < C * K; i++) o->w[i] = (float)w[i];
    pool_for(o->ctx, blocks, 1, run_blocks, o);
    memset(g, 0, (size_t)(C * K) * sizeof *g);
    for (int t = 0; t < pool_ranges(o->ctx, blocks, 1); t++) {
        for (int64_t i = 0; i < C * K; i++) g[i] += o->G[t * C * K + i];
        for (int64_t c = 0; c < C; c++) g[c * K + D] += o->bias_sum[t * C + c]; /* G has no bias */
        loss += o->loss[t];
    }
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
    double loss = softmax_loss_d(o->zd, o->uncertain + at, o->y + at, n, C);
    cpu_dgemm(o->ctx, true, false, C, D, n, 1, o->zd, C, o->xd, D, 1, o->Gd, K);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) o->bias_sum[c] += o->zd[i * C + c];
    return loss;
}

static double blocks_double(objective *o, double *g, const double *w)
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

/* ---- for the minimiser --------------------------------------------------------------------------- */

static cloob_status evaluate(void *arg, double *f, double *g, const double *w)
{
    objective *o = arg;
    double square = 0;
    *f = o->wide ? blocks_double(o, g, w) : blocks_float(o, g, w);
    for (int64_t c = 0; c < o->C; c++, w += o->D + 1, g += o->D + 1)
        for (int64_t i = 0; i < o->D; i++) g[i] += o->lambda * w[i], square += w[i] * w[i]; /* not of the bias */
    *f += 0.5 * o->lambda * square;
    return CLOOB_OK;
}

lbfgs_problem objective_problem(objective *o)
{
    return (lbfgs_problem){ .n = o->C * (o->D + 1),
                            .noise = o->wide ? 1e-15 : 1e-9,
                            .evaluate = evaluate,
                            .precondition = objective_precondition,
                            .prepare = objective_prepare,
                            .arg = o };
}
