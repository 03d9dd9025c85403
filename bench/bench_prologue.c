/* GEMMs that make their left factor themselves (nn/cuda/fused/prologue_gemm.h) beside the ops one after the other, at
 * the sizes of RN50 and RN50x4: floor by bytes, times of every variant, and the largest difference of the results.
 *
 *     bench_prologue [WORD [VARIANTS]]      shapes whose name contains WORD; only the first VARIANTS of the kernel
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/cuda/fused/prologue_gemm.h"
#include "nn/cuda/fused_gemm_kernels.h"
#include "gpu_tensors.h"
#include "nn/cuda/kernels.h"
#include "nn/group.h"

static const double bandwidth = 4.25e9; /* bytes a millisecond */

static cloob_ctx *ctx;
static device *dev;
static int sms, variants = PROLOGUE_VARIANTS;

#define TRY(call) BENCH_TRY(ctx, call)

typedef struct shape {
    const char *name;
    gemm_prologue prologue;
    int64_t batch, side, k, n;
    bool written; /* the factor is wanted elsewhere, too */
    int calls;    /* in a step */
    bool reduced; /* with dw: the reduction of the batch norm before is computed as well */
    bool pools;   /* the factor is wanted behind a pool, too */
} shape;

/* Where the gradient of x does not leave the factor for it, the same kernel computes the weight's gradient. */
static bool takes_dw(const shape *s) { return s->prologue == PROLOGUE_DX && !s->written; }

static const shape shapes[] = {
    { "RN50 add 56", PROLOGUE_ADD, 512, 56, 256, 64, true, 1, false, false },
    { "RN50 add 56 wide", PROLOGUE_ADD, 512, 56, 256, 128, true, 1, false, false },
    { "RN50 add 28", PROLOGUE_ADD, 512, 28, 512, 128, true, 2, false, false },
    { "RN50 add 28 wide", PROLOGUE_ADD, 512, 28, 512, 256, true, 1, false, false },
    { "RN50 add 14", PROLOGUE_ADD, 512, 14, 1024, 256, true, 4, false, false },
    { "RN50 add 14 wide", PROLOGUE_ADD, 512, 14, 1024, 512, true, 1, false, false },
    { "RN50 add 7", PROLOGUE_ADD, 512, 7, 2048, 512, true, 2, false, false },
    { "RN50 add, pool 56", PROLOGUE_ADD, 512, 56, 256, 128, true, 1, false, true },
    { "RN50 add, pool 28", PROLOGUE_ADD, 512, 28, 512, 256, true, 1, false, true },
    { "RN50 add, pool 14", PROLOGUE_ADD, 512, 14, 1024, 512, true, 1, false, true },
    { "x4 add, pool 72", PROLOGUE_ADD, 128, 72, 320, 160, true, 1, false, true },
    { "x4 add, pool 36", PROLOGUE_ADD, 128, 36, 640, 320, true, 1, false, true },
    { "few add, pool", PROLOGUE_ADD, 1, 6, 64, 64, true, 0, false, true },
    { "few add, pool wide", PROLOGUE_ADD, 3, 14, 328, 200, true, 0, false, true },
    { "RN50 both 56", PROLOGUE_BOTH, 512, 56, 256, 64, true, 1, false, false },
    { "RN50 both 28", PROLOGUE_BOTH, 512, 28, 512, 128, true, 1, false, false },
    { "RN50 both 14", PROLOGUE_BOTH, 512, 14, 1024, 256, true, 1, false, false },
    { "RN50 apply 56", PROLOGUE_APPLY, 512, 56, 64, 256, false, 3, false, false },
    { "RN50 apply 28", PROLOGUE_APPLY, 512, 28, 128, 512, false, 3, false, false },
    { "RN50 apply 14", PROLOGUE_APPLY, 512, 14, 256, 1024, false, 5, false, false },
    { "RN50 apply 7", PROLOGUE_APPLY, 512, 7, 512, 2048, false, 2, false, false },
    { "RN50 dx 56", PROLOGUE_DX, 512, 56, 256, 64, true, 4, false, false },
    { "RN50 dx and dw 56", PROLOGUE_DX, 512, 56, 256, 64, false, 3, false, false },
    { "RN50 dx and dw 28", PROLOGUE_DX, 512, 28, 512, 128, false, 4, false, false },
    { "RN50 dx, dw, reduction 56", PROLOGUE_DX, 512, 56, 256, 64, false, 3, true, false },
    { "RN50 dx, dw, reduction 28", PROLOGUE_DX, 512, 28, 512, 128, false, 3, true, false },
    { "RN50 dx 28", PROLOGUE_DX, 512, 28, 512, 128, true, 4, false, false },
    { "RN50 dx 28 wide", PROLOGUE_DX, 512, 28, 512, 256, true, 1, false, false },
    { "RN50 dx 14", PROLOGUE_DX, 512, 14, 1024, 256, true, 6, false, false },
    { "RN50 dx 14 wide", PROLOGUE_DX, 512, 14, 1024, 512, true, 1, false, false },
    { "RN50 dx 7", PROLOGUE_DX, 512, 7, 2048, 512, true, 3, false, false },
    { "x4 add 72", PROLOGUE_ADD, 128, 72, 320, 80, true, 3, false, false },
    { "x4 add 36", PROLOGUE_ADD, 128, 36, 640, 160, true, 5, false, false },
    { "x4 apply 72", PROLOGUE_APPLY, 128, 72, 80, 320, false, 4, false, false },
    { "x4 apply 36", PROLOGUE_APPLY, 128, 36, 160, 640, false, 5, false, false },
    { "x4 apply 18", PROLOGUE_APPLY, 128, 18, 320, 1280, false, 9, false, false },
    { "x4 apply 9", PROLOGUE_APPLY, 128, 9, 640, 2560, false, 5, false, false },
    { "x4 add 18", PROLOGUE_ADD, 128, 18, 1280, 320, true, 8, false, false },
    { "x4 dx 72", PROLOGUE_DX, 128, 72, 320, 80, true, 5, false, false },
    { "x4 dx and dw 72", PROLOGUE_DX, 128, 72, 320, 80, false, 5, false, false },
    { "x4 dx, dw, reduction 72", PROLOGUE_DX, 128, 72, 320, 80, false, 4, true, false },
    { "x4 dx 18", PROLOGUE_DX, 128, 18, 1280, 320, true, 11, false, false },
    { "x4 dx 36", PROLOGUE_DX, 128, 36, 640, 160, true, 6, false, false },
    { "odd", PROLOGUE_ADD, 3, 37, 328, 72, true, 0, false, false },
    { "odd dx", PROLOGUE_DX, 3, 37, 72, 200, true, 0, false, false },
    { "odd apply", PROLOGUE_APPLY, 3, 37, 40, 328, true, 0, false, false },
    { "few dx and dw", PROLOGUE_DX, 1, 9, 256, 64, false, 0, false, false },
    { "few dx and dw wide", PROLOGUE_DX, 1, 9, 512, 128, false, 0, false, false },
    { "few dx and dw of 80", PROLOGUE_DX, 1, 9, 320, 80, false, 0, false, false },
    { "odd dx and dw of 80", PROLOGUE_DX, 31, 53, 296, 72, false, 0, false, false },
    { "few dx, dw, reduction", PROLOGUE_DX, 1, 9, 256, 64, false, 0, true, false },
    { "few dx, dw, reduction wide", PROLOGUE_DX, 1, 9, 512, 128, false, 0, true, false },
    { "few dx, dw, reduction of 80", PROLOGUE_DX, 1, 9, 320, 80, false, 0, true, false },
    { "odd dx, dw, reduction", PROLOGUE_DX, 31, 53, 232, 40, false, 0, true, false },
    { "odd dx, dw, reduction wide", PROLOGUE_DX, 31, 53, 456, 104, false, 0, true, false },
    { "odd dx, dw, reduction of 80", PROLOGUE_DX, 31, 53, 296, 72, false, 0, true, false },
    { "odd dx and dw", PROLOGUE_DX, 31, 53, 232, 40, false, 0, false, false },
    { "odd dx and dw wide", PROLOGUE_DX, 31, 53, 456, 104, false, 0, false, false },
};

/* ---- memory -------------------------------------------------------------------------------------- */

static tensor make(cloob_dtype type, int ndim, const int64_t *dim, double positive)
{
    tensor t = bench_noise(ctx, dev, type, ndim, dim);
    if (positive > 0) {
        int64_t n = tensor_count(&t);
        float *host = malloc((size_t)n * sizeof *host);
        TRY(dev->to_host(ctx, dev, host, t.data, (size_t)n * sizeof *host));
        for (int64_t i = 0; i < n; i++) host[i] = (float)positive + 0.1f * fabsf(host[i]);
        TRY(dev->to_device(ctx, dev, t.data, host, (size_t)n * sizeof *host));
        free(host);
    }
    return t;
}

static tensor rows_of(int64_t batch, int64_t side, int64_t c)
{
    return make(CLOOB_BF16, 4, (int64_t[]){ batch, side, side, c }, 0);
}
static tensor vector_of(int64_t n, double positive) { return make(CLOOB_F32, 1, &n, positive); }

static double difference(const tensor *a, const tensor *b) { return bench_difference(ctx, dev, a, b); }

/* ---- one shape ----------------------------------------------------------------------------------- */

typedef struct job {
    op_env env;
    op_id first;
    op_args a, b[2];  /* the two ops; the second may be conv2d and bn_stats, which are a group */
    op_args shortcut; /* bn_apply of the residual */
    op_group part[GROUP_MEMBERS];
    int parts;
    op_args apply2, weights; /* with dw: bn_apply, conv2d_dw */
    op_args pool;            /* avgpool2 */
    op_args reduce, reduce2; /* with the reduction: bn_bwd_reduce, and where the fused GEMM's ends */
    prologue_gemm p;
    float *dw2; /* the fused GEMM's */
} job;

static cloob_status run_first(void *user)
{
    job *j = user;
    if (j->p.prologue == PROLOGUE_BOTH) return bn_apply_both_cuda(&j->env, &j->a, &j->shortcut);
    return op_kernels_cuda[j->first].run(&j->env, &j->a);
}
static cloob_status run_second(void *user)
{
    job *j = user;
    for (int i = 0; i < j->parts; i++) {
        const op_group *g = &j->part[i];
        CLOOB_TRY(g->kernel ? g->kernel->run(&j->env, g)
                            : op_kernels_cuda[g->member[0]->op].run(&j->env, g->member[0]));
    }
    return CLOOB_OK;
}
static cloob_status run_weights(void *user)
{
    job *j = user;
    CLOOB_TRY(op_kernels_cuda[OP_BN_APPLY].run(&j->env, &j->apply2));
    return op_kernels_cuda[OP_CONV2D_DW].run(&j->env, &j->weights);
}
static cloob_status run_reduce(void *user)
{
    job *j = user;
    return op_kernels_cuda[OP_BN_BWD_REDUCE].run(&j->env, &j->reduce);
}
static cloob_status run_pool(void *user)
{
    job *j = user;
    return op_kernels_cuda[OP_AVGPOOL2].run(&j->env, &j->pool);
}
static cloob_status run_fused(void *user)
{
    job *j = user;
    CLOOB_TRY(cuda_check(ctx, prologue_gemm_run(dev->stream, &j->p, sms), "a fused GEMM"));
    if (!j->p.dw) return CLOOB_OK;
    int parts = REDUCED_PARTS * prologue_gemm_parts(&j->p, sms);
    if (j->p.reduce) CLOOB_TRY(bn_reduce_finish(&j->env, &j->reduce2, j->p.reduced, parts));
    return colsum_finish(&j->env, "dw", j->dw2, j->p.partial, prologue_gemm_parts(&j->p, sms), j->p.k * j->p.n);
}

static float time_of(cloob_status (*run)(void *), job *j)
{
    float ms = -1;
    TRY(cuda_time(ctx, dev, run, j, &ms));
    return ms;
}

static void prepare(job *j, op_id op, op_args *a)
{
    if (op_kernels_cuda[op].prepare) TRY(op_kernels_cuda[op].prepare(&j->env, a));
    if (a->scratch_bytes) TRY(dev->alloc(ctx, dev, a->scratch_bytes, "scratch", &a->scratch));
}

/* conv2d and bn_stats, or conv2d_dx alone, as a plan would run them. */
static void prepare_second(job *j, int members)
{
    const unsigned read[] = { 1, 3 };
    for (int i = 0; i < members; i++) prepare(j, j->b[i].op, &j->b[i]);
    TRY(group_plan(&j->env, &group_kernels_cuda, j->b, members, read, j->part, &j->parts));
    for (int i = 0; i < j->parts; i++)
        if (j->part[i].scratch_bytes)
            TRY(dev->alloc(ctx, dev, j->part[i].scratch_bytes, "scratch", &j->part[i].scratch));
}

/* Mean and rstd out of the partial sums, against those of the op. */
static double statistics_difference(const job *j, const tensor *partial, const tensor *pivot)
{
    int parts = prologue_gemm_parts(&j->p, sms);
    int64_t n = j->p.n;
    float *sums = malloc((size_t)(2 * n * parts) * sizeof *sums), *mean = malloc((size_t)n * 4 * sizeof *mean);
    TRY(dev->to_host(ctx, dev, sums, partial->data, (size_t)(2 * n * parts) * sizeof *sums));
    TRY(dev->to_host(ctx, dev, mean, j->b[1].out[0].data, (size_t)n * sizeof *mean));
    TRY(dev->to_host(ctx, dev, mean + n, j->b[1].out[1].data, (size_t)n * sizeof *mean));
    TRY(dev->to_host(ctx, dev, mean + 2 * n, pivot->data, (size_t)n * sizeof *mean));
    double worst = 0;
    for (int64_t c = 0; c < n; c++) {
        double s1 = 0, s2 = 0;
        for (int i = 0; i < parts; i++) s1 += (double)sums[2 * i * n + c], s2 += (double)sums[(2 * i + 1) * n + c];
        double d = s1 / (double)j->p.m, rstd = 1 / sqrt(s2 / (double)j->p.m - d * d + 1e-5);
        worst = fmax(worst, fabs((double)mean[2 * n + c] + d - (double)mean[c]) * rstd);
        worst = fmax(worst, fabs(rstd / (double)mean[n + c] - 1));
    }
    free(sums), free(mean);
    return worst;
}

static double total_separate, total_fused, total_floor;

/* Tensors of one shape, all on the device; those that it does not need are ABSENT. */
typedef union operands {
    struct {
        tensor x, other, side, side2, y, y2, w, turned, mean, rstd, gain, bias, sums, run_mean, run_var, mean2, rstd2,
            partial, x2, a2, dw, dw2, reduced, sums2, sums3, pooled, pooled2;
    };
    tensor all[27];
} operands;

static operands make_operands(const shape *s)
{
    operands o = { 0 };
    bool dx = s->prologue == PROLOGUE_DX;
    tensor *rows[] = { &o.x, &o.side, &o.side2 }, *coefficients[] = { &o.mean, &o.gain, &o.bias };
    for (int i = 0; i < 3; i++) *rows[i] = rows_of(s->batch, s->side, s->k), *coefficients[i] = vector_of(s->k, 0);
    o.other = s->prologue == PROLOGUE_APPLY ? ABSENT : rows_of(s->batch, s->side, s->k);
    o.y = rows_of(s->batch, s->side, s->n), o.y2 = rows_of(s->batch, s->side, s->n);
    o.w = dx ? make(CLOOB_BF16, 4, (int64_t[]){ s->k, 1, 1, s->n }, 0)
             : make(CLOOB_BF16, 4, (int64_t[]){ s->n, 1, 1, s->k }, 0);
    o.turned = make(CLOOB_BF16, 2, (int64_t[]){ s->n, s->k }, 0);
    o.rstd = vector_of(s->k, 0.8), o.sums = make(CLOOB_F32, 2, (int64_t[]){ 2, s->k }, 1000.0);
    o.run_mean = vector_of(s->n, 0), o.run_var = vector_of(s->n, 0.5);
    o.mean2 = vector_of(s->n, 0), o.rstd2 = vector_of(s->n, 0);
    o.partial = make(CLOOB_F32, 1, (int64_t[]){ (takes_dw(s) ? s->k : 2) * s->n * 160 }, 0);
    o.x2 = o.a2 = o.dw = o.dw2 = o.reduced = o.sums2 = o.sums3 = o.pooled = o.pooled2 = ABSENT;
    if (s->pools) o.pooled = rows_of(s->batch, s->side / 2, s->k), o.pooled2 = rows_of(s->batch, s->side / 2, s->k);
    if (takes_dw(s)) {
        o.x2 = rows_of(s->batch, s->side, s->n), o.a2 = rows_of(s->batch, s->side, s->n);
        o.dw = make(CLOOB_F32, 4, (int64_t[]){ s->k, 1, 1, s->n }, 0);
        o.dw2 = make(CLOOB_F32, 4, (int64_t[]){ s->k, 1, 1, s->n }, 0);
    }
    if (s->reduced) {
        o.reduced = make(CLOOB_F32, 1, (int64_t[]){ 2 * REDUCED_PARTS * s->n * 160 }, 0);
        o.sums2 = make(CLOOB_F32, 2, (int64_t[]){ 2, s->n }, 0),
        o.sums3 = make(CLOOB_F32, 2, (int64_t[]){ 2, s->n }, 0);
    }
    if (dx) TRY(cuda_check(ctx, transpose_bf16(dev->stream, o.turned.data, o.w.data, s->k, s->n), "transpose"));
    return o;
}

/* The two ops that the fused one replaces. */
static void prepare_separate(job *j, const shape *s, const operands *o)
{
    bool dx = s->prologue == PROLOGUE_DX, both = s->prologue == PROLOGUE_BOTH;
    for (int k = 0; k < OP_INPUTS; k++) j->a.in[k] = j->b[0].in[k] = j->b[1].in[k] = j->shortcut.in[k] = ABSENT;
    for (int k = 0; k < OP_OUTPUTS; k++) j->a.out[k] = j->b[0].out[k] = j->b[1].out[k] = j->shortcut.out[k] = ABSENT;
    j->b[0].in[0] = o->side, j->b[0].in[1] = o->w, j->b[0].out[0] = o->y;
    if (dx) {
        tensor in[] = { o->other, o->x, o->mean, o->rstd, o->gain, o->bias, o->sums };
        j->first = OP_BN_BWD_APPLY, j->b[0].op = OP_CONV2D_DX;
        memcpy(j->a.in, in, sizeof in);
        j->b[0].in[2] = o->y;
    } else {
        tensor in[] = { o->x, o->mean, o->rstd, o->gain, o->bias, o->other },
               of[] = { o->other, o->bias, o->rstd, o->mean, o->gain }, running[] = { o->y, o->run_mean, o->run_var };
        j->first = OP_BN_APPLY, j->b[0].op = OP_CONV2D, j->b[1].op = OP_BN_STATS;
        memcpy(j->a.in, in, sizeof in);
        if (both) memcpy(j->shortcut.in, of, sizeof of);
        memcpy(j->b[1].in, running, sizeof running);
        j->b[1].out[0] = o->mean2, j->b[1].out[1] = o->rstd2;
    }
    j->a.attr = (op_attr){ .relu = !dx };
    j->a.out[0] = o->side;
    j->b[0].attr = (op_attr){ .stride = 1 };
    j->b[1].attr = (op_attr){ .eps = 1e-5f, .momentum = 0.1f, .keep_stats = true };
    prepare(j, j->first, &j->a);
    prepare_second(j, dx ? 1 : 2);
}

/* Those of the weight's gradient. */
static void prepare_weights(job *j, const operands *o)
{
    tensor in[] = { o->x2, o->run_mean, o->run_var, o->run_var, o->run_mean };
    for (int k = 0; k < OP_INPUTS; k++) j->apply2.in[k] = j->weights.in[k] = ABSENT;
    for (int k = 0; k < OP_OUTPUTS; k++) j->apply2.out[k] = j->weights.out[k] = ABSENT;
    memcpy(j->apply2.in, in, sizeof in);
    j->apply2.out[0] = j->weights.in[1] = o->a2;
    j->apply2.attr.relu = true;
    j->weights.in[0] = o->side, j->weights.in[2] = o->w;
    j->weights.out[0] = o->dw;
    j->weights.attr.stride = 1;
    j->dw2 = o->dw2.data;
    prepare(j, OP_CONV2D_DW, &j->weights);
}

/* bn_bwd_reduce of dx, a2's mask. */
static void prepare_reduce(job *j, const operands *o)
{
    tensor in[] = { o->y, ABSENT, o->x2, o->run_mean, o->run_var, o->run_var, o->run_mean };
    for (int k = 0; k < OP_INPUTS; k++) j->reduce.in[k] = ABSENT;
    for (int k = 0; k < OP_OUTPUTS; k++) j->reduce.out[k] = ABSENT;
    memcpy(j->reduce.in, in, sizeof in);
    j->reduce.out[2] = o->sums2;
    j->reduce.attr.relu = true;
    prepare(j, OP_BN_BWD_REDUCE, &j->reduce);
    j->reduce2 = j->reduce;
    j->reduce2.out[2] = o->sums3;
}

/* avgpool2 of the factor. */
static void prepare_pool(job *j, const operands *o)
{
    for (int k = 0; k < OP_INPUTS; k++) j->pool.in[k] = ABSENT;
    for (int k = 0; k < OP_OUTPUTS; k++) j->pool.out[k] = ABSENT;
    j->pool.in[0] = o->side, j->pool.out[0] = o->pooled;
    prepare(j, OP_AVGPOOL2, &j->pool);
}

static prologue_gemm fused_of(const shape *s, const operands *o)
{
    bool dx = s->prologue == PROLOGUE_DX;
    return (prologue_gemm){ .prologue = s->prologue,
                            .stats = !dx,
                            .m = tensor_rows(&o->x),
                            .n = s->n,
                            .k = s->k,
                            .x = o->x.data,
                            .other = o->other.ndim > 0 ? o->other.data : NULL,
                            .b = dx ? o->turned.data : o->w.data,
                            .mean = o->mean.data,
                            .rstd = o->rstd.data,
                            .gain = o->gain.data,
                            .bias = o->bias.data,
                            .dw = takes_dw(s),
                            .x2 = takes_dw(s) ? o->x2.data : NULL,
                            .mean2 = takes_dw(s) ? o->run_mean.data : o->bias.data,
                            .rstd2 = takes_dw(s) ? o->run_var.data : o->rstd.data,
                            .gain2 = takes_dw(s) ? o->run_var.data : o->mean.data,
                            .bias2 = takes_dw(s) ? o->run_mean.data : o->gain.data,
                            .pools = s->pools,
                            .pooled = s->pools ? o->pooled2.data : NULL,
                            .line = s->side,
                            .reduce = s->reduced,
                            .reduced = s->reduced ? o->reduced.data : NULL,
                            .sums = o->sums.data,
                            .count = (float)tensor_rows(&o->x),
                            .pivot = o->run_mean.data,
                            .side = s->written ? o->side2.data : NULL,
                            .y = o->y2.data,
                            .partial = o->partial.data };
}

/* Times the variant and compares its results with those of the separate ops. */
static float try_variant(job *j, const shape *s, const operands *o)
{
    TRY(dev->sync(ctx, dev));
    TRY(cuda_check(ctx, cudaMemset(o->y2.data, 0xff, tensor_bytes(&o->y2)), "poison"));
    TRY(cuda_check(ctx, cudaMemset(o->side2.data, 0xff, tensor_bytes(&o->side2)), "poison"));
    if (takes_dw(s)) TRY(cuda_check(ctx, cudaMemset(o->dw2.data, 0xff, tensor_bytes(&o->dw2)), "poison"));
    if (s->pools) TRY(cuda_check(ctx, cudaMemset(o->pooled2.data, 0xff, tensor_bytes(&o->pooled2)), "poison"));
    if (s->reduced) TRY(cuda_check(ctx, cudaMemset(o->sums3.data, 0xff, tensor_bytes(&o->sums3)), "poison"));
    float ms = time_of(run_fused, j);
    double e = difference(&o->y2, &o->y),
           f = s->written   ? difference(&o->side2, &o->side)
               : s->reduced ? difference(&o->sums3, &o->sums2)
                            : 0,
           g = j->p.stats    ? statistics_difference(j, &o->partial, &o->run_mean)
               : takes_dw(s) ? difference(&o->dw2, &o->dw)
                             : 0;
    if (s->pools) f = fmax(f, difference(&o->pooled2, &o->pooled));
    printf("  %.3f", (double)ms);
    if (!(e < 3e-3 && f < 3e-3 && g < 3e-3)) printf(" WRONG %.1e %.1e %.1e", e, f, g);
    return ms;
}

static void release(job *j, operands *o)
{
    for (size_t i = 0; i < sizeof o->all / sizeof *o->all; i++)
        if (o->all[i].ndim > 0) dev->free(dev, o->all[i].data);
    for (int i = 0; i < j->parts; i++) {
        op_group *g = &j->part[i];
        if (g->kernel && g->kernel->release) g->kernel->release(&j->env, g);
        if (g->scratch) dev->free(dev, g->scratch);
    }
    for (int i = 0; i < 2; i++) {
        if (j->b[i].scratch) dev->free(dev, j->b[i].scratch);
        if (j->b[i].op == OP_CONV2D || j->b[i].op == OP_CONV2D_DX)
            op_kernels_cuda[j->b[i].op].release(&j->env, &j->b[i]);
    }
    if (j->p.dw) op_kernels_cuda[OP_CONV2D_DW].release(&j->env, &j->weights);
    if (j->weights.scratch) dev->free(dev, j->weights.scratch);
    if (j->reduce.scratch) dev->free(dev, j->reduce.scratch);
}

static void bench(const shape *s)
{
    job j = { .env = { .ctx = ctx, .dev = dev, .stream = dev->stream, .ranks = 1 }, .p.prologue = s->prologue };
    operands o = make_operands(s);
    prepare_separate(&j, s, &o);
    if (takes_dw(s)) prepare_weights(&j, &o);
    if (s->reduced) prepare_reduce(&j, &o);
    if (s->pools) prepare_pool(&j, &o);
    float first = time_of(run_first, &j), second = time_of(run_second, &j),
          third = (takes_dw(s) ? time_of(run_weights, &j) : 0.0f) + (s->reduced ? time_of(run_reduce, &j) : 0.0f) +
                  (s->pools ? time_of(run_pool, &j) : 0.0f),
          separate = first + second + third, best = separate;
    j.p = fused_of(s, &o);
    double floor = (double)tensor_bytes(&o.x) * (1 + (o.other.ndim > 0) + s->written) +
                   (double)tensor_bytes(&o.y) * (takes_dw(s) ? 2.0 : 1.0);
    printf("%-27s %7lld x %4lld -> %4lld: floor %.3f, separate %.3f + %.3f + %.3f = %.3f;", s->name, (long long)j.p.m,
           (long long)s->k, (long long)s->n, floor / bandwidth, (double)first, (double)second, (double)third,
           (double)separate);
    for (j.p.variant = 0; j.p.variant < variants; j.p.variant++) {
        fflush(stdout);
        float ms = INFINITY;
        if (prologue_gemm_parts(&j.p, sms)) ms = try_variant(&j, s, &o);
        else printf("    -");
        if (ms < best) best = ms;
    }
    total_separate += (double)separate * s->calls, total_fused += (double)best * s->calls;
    total_floor += floor / bandwidth * s->calls;
    printf("  x%d saves %.3f\n", s->calls, (double)(separate - best) * s->calls);
    fflush(stdout);
    release(&j, &o);
}

int main(int argc, char **argv)
{
    ctx = cloob_ctx_create(NULL);
    if (argc > 2) variants = atoi(argv[2]);
    TRY(device_open(ctx, "cuda", &dev));
    sms = ((const cuda_state *)dev->state)->sms;
    printf("ms; variants: 128 rows b stays, 128 rows b streams, 64 rows b stays, 64 rows b streams, 128 rows with less "
           "room for results, strips of 320; with dw as in gradients_gemm.cu\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (argc < 2 || strstr(shapes[i].name, argv[1])) bench(&shapes[i]);
    printf("all calls of a step of each: floor %.2f ms, separate %.2f, the faster of both %.2f\n", total_floor,
           total_separate, total_fused);
    device_close(dev);
    return 0;
}
