/* The objective as the minimiser sees it: sizes, memory, the penalty, and who computes the rest. */
#include "eval/probe/probe_objective.h"

#include <stdlib.h>

#include "core/arith.h"
#include "core/pool.h"
#include "eval/probe/probe_gpu.h"

enum {
    BLOCK_BYTES = 4 << 20, /* of features or logits per block: large enough for products at full speed */
    MIN_BLOCK = 256,
    MAX_THREADS = 256
};
static const double SMALL = 2e8;           /* N (D+1) C up to which double costs less than a blink */
static const double SMALL_HESSIAN = 4e9;   /* N (C(D+1))^2 up to which the whole Hessian does */
static const int64_t HESSIAN_LIMIT = 2048; /* its largest size */

/* ---- sizes --------------------------------------------------------------------------------------- */

/* Every thread gets a few blocks. */
static int64_t choose_block(int64_t N, int64_t D, int64_t C, int threads)
{
    int64_t widest = D > C ? D : C, n = BLOCK_BYTES / (widest * (int64_t)sizeof(float));
    n = min64(n < MIN_BLOCK ? MIN_BLOCK : n, (N + 2 * threads - 1) / (2 * threads));
    return n < MIN_BLOCK ? min64(N, MIN_BLOCK) : n;
}

static bool choose_wide(int64_t N, int64_t D, int64_t C) { return (double)N * (double)(D + 1) * (double)C <= SMALL; }

static bool choose_exact(int64_t N, int64_t D, int64_t C)
{
    double n = (double)(C * (D + 1));
    return choose_wide(N, D, C) && n <= (double)HESSIAN_LIMIT && (double)N * n * n <= SMALL_HESSIAN;
}

size_t objective_bytes(int64_t N, int64_t D, int64_t C, int threads, bool gpu, bool *wide, int64_t *block_rows)
{
    int64_t K = D + 1, n = choose_block(N, D, C, threads), narrow = 0, doubles_ = 0, T = threads;
    *wide = choose_wide(N, D, C), *block_rows = n;
    gpu = gpu && !*wide;
    if (choose_exact(N, D, C)) doubles_ += C * K * C * K + n * K;
    else
        narrow += SAMPLE_BLOCK * K + K * K + 2 * C * K + objective_sample_rows(D),
            doubles_ += K * K + objective_sample_rows(D);
    narrow += N;
    if (!gpu) doubles_ += T * (C + 1);
    if (*wide) doubles_ += n * D + n * C + C * K, narrow += n * D;
    else if (!gpu) narrow += T * (n * D + n * C + C * K) + C * K;
    return (size_t)narrow * sizeof(float) + (size_t)doubles_ * sizeof(double);
}

static float *floats(objective *o, int64_t n) { return arena_push(&o->memory, (size_t)n * sizeof(float)); }
static double *doubles(objective *o, int64_t n) { return arena_push(&o->memory, (size_t)n * sizeof(double)); }

static bool allocate_preconditioner(objective *o)
{
    int64_t K = o->D + 1, CK = o->C * K;
    if (o->exact) {
        o->M = doubles(o, CK * CK), o->weighted = doubles(o, o->block * K);
        return o->M && o->weighted;
    }
    o->sample = floats(o, SAMPLE_BLOCK * K), o->Minv = floats(o, K * K), o->v = floats(o, CK), o->Mv = floats(o, CK);
    o->M = doubles(o, K * K), o->root = floats(o, objective_sample_rows(o->D) + 1);
    o->row = arena_push(&o->memory, (size_t)(objective_sample_rows(o->D) + 1) * sizeof *o->row);
    return o->sample && o->Minv && o->v && o->Mv && o->M && o->root && o->row;
}

static bool allocate(objective *o)
{
    int64_t CK = o->C * (o->D + 1), n = o->block, T = o->threads;
    o->uncertain = floats(o, o->N);
    if (!o->uncertain || !allocate_preconditioner(o)) return false;
    if (o->gpu) return true;
    o->bias_sum = doubles(o, T * o->C), o->loss = doubles(o, T);
    if (!o->bias_sum || !o->loss) return false;
    if (o->wide) {
        o->x = floats(o, n * o->D), o->xd = doubles(o, n * o->D), o->zd = doubles(o, n * o->C), o->Gd = doubles(o, CK);
        return o->x && o->xd && o->zd && o->Gd;
    }
    o->x = floats(o, T * n * o->D), o->z = floats(o, T * n * o->C), o->w = floats(o, CK), o->G = floats(o, T * CK);
    return o->x && o->z && o->w && o->G;
}

cloob_status objective_create(cloob_ctx *ctx, objective **out, const probe_data *part, int parts, const int32_t *y,
                              int64_t C, double lambda, probe_gpu *gpu)
{
    objective *o = calloc(1, sizeof *o);
    bool wide;
    int64_t block;
    *out = o;
    if (!o) return ctx_no_memory(ctx, sizeof *o, "the probe");
    *o = (objective){ .ctx = ctx,
                      .part = part,
                      .parts = parts,
                      .y = y,
                      .D = part[0].x.D,
                      .C = C,
                      .lambda = lambda,
                      .threads = ctx->threads };
    for (int k = 0; k < parts; k++) o->N += part[k].x.N;
    size_t bytes = objective_bytes(o->N, o->D, C, o->threads, gpu != NULL, &wide, &block);
    o->wide = wide, o->block = block, o->exact = choose_exact(o->N, o->D, C);
    o->gpu = wide ? NULL : gpu;
    cloob_status status = allocate(o) ? CLOOB_OK : ctx_no_memory(ctx, bytes, "the probe");
    if (status == CLOOB_OK && o->gpu) status = probe_gpu_load(o->gpu, part, parts, y, C);
    if (status == CLOOB_OK) return CLOOB_OK;
    objective_destroy(o);
    *out = NULL;
    return status;
}

void objective_destroy(objective *o)
{
    if (!o) return;
    arena_release(&o->memory);
    free(o);
}

/* ---- value and gradient -------------------------------------------------------------------------- */

typedef struct penalty {
    double lambda, *g, part[MAX_THREADS];
    const double *w;
    int64_t K;
} penalty;

/* g += lambda w; the bias, every class's last, is free. */
static void penalise(void *arg, int64_t begin, int64_t end, int thread)
{
    penalty *p = arg;
    double square = 0;
    for (int64_t c = begin; c < end; c++)
        for (int64_t i = c * p->K; i < c * p->K + p->K - 1; i++)
            p->g[i] += p->lambda * p->w[i], square += p->w[i] * p->w[i];
    p->part[thread] = square;
}

static cloob_status evaluate(void *arg, double *f, double *g, const double *w)
{
    objective *o = arg;
    penalty p = { .lambda = o->lambda, .g = g, .w = w, .K = o->D + 1 };
    int64_t grain = (1 << 15) / p.K + 1;
    if (o->gpu) CLOOB_TRY(probe_gpu_evaluate(o->gpu, f, g, w));
    else *f = o->wide ? objective_blocks_double(o, g, w) : objective_blocks_float(o, g, w);
    pool_for(o->ctx, o->C, grain, penalise, &p);
    for (int k = 0; k < pool_ranges(o->ctx, o->C, grain); k++) *f += 0.5 * o->lambda * p.part[k];
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
