/* Batch norm's four passes over planes of channels, and its folding into convolutions. */
#include <math.h>
#include <string.h>

#include "nn/cpu/cpu.h"

/* Per image and channel: two sums in double. */
static cloob_status sums_scratch(op_args *a, const tensor *x)
{
    a->scratch_bytes = (size_t)(x->dim[0] * 2 * x->dim[3]) * sizeof(double);
    return CLOOB_OK;
}

cloob_status bn_sums_prepare(const op_env *env, op_args *a)
{
    (void)env;
    return sums_scratch(a, &a->in[0]);
}

/* Adds the per-image sums in order. */
static double total(const double *sums, int64_t N, int64_t C, int which, int64_t c)
{
    double sum = 0;
    for (int64_t n = 0; n < N; n++) sum += sums[(n * 2 + which) * C + c];
    return sum;
}

/* ---- jobs ---------------------------------------------------------------------------------------- */

enum { LANES = 32, ROWS = 32 };

typedef struct stats_job {
    planes z;
    const void *x;
    double *sums;
    const float *shift; /* a value near the mean, so that squares do not cancel */
} stats_job;

typedef struct apply_job {
    planes z;
    const void *x, *res;
    void *y;
    const float *mean, *scale, *bias; /* y = (x - mean) scale + bias */
    bool relu, pool;
} apply_job;

/* Per channel: y = (x - mean) scale + bias before relu, in this form since near 0 its sign is that of x - mean;
 * dx = g scale + (x - mean) of_x + rest. */
typedef struct channels {
    const float *mean, *scale, *bias, *of_x, *rest;
} channels;

typedef struct back_job {
    planes z;
    const void *dy, *dy2, *x, *y;
    void *g, *dx;
    channels k;
    double *part;
    bool relu, pool;
} back_job;

CPU_INLINE float clamp(float v, bool relu) { return relu && v < 0 ? 0.0f : v; }

/* Where row p of a plane finds its gradient: itself, or the pooled row; -1 when an odd edge was pooled by nobody. */
CPU_INLINE int64_t source_row(const back_job *j, int64_t p)
{
    if (!j->pool) return p;
    int64_t h = p / j->z.W / 2, w = p % j->z.W / 2, Ho = j->z.H / 2, Wo = j->z.W / 2;
    return h < Ho && w < Wo ? h * Wo + w : -1;
}

/* Per channel, from the first of a stretch on. */
CPU_INLINE channels channels_at(const channels *k, int64_t c)
{
    return (channels){ k->mean + c, k->scale + c, k->bias + c, k->of_x + c, k->rest + c };
}

#include "nn/cpu/real_f32.h"
#include "nn/cpu/batchnorm_loops.h"
#include "nn/cpu/real_bf16.h"
#include "nn/cpu/batchnorm_loops.h"

/* ---- statistics ---------------------------------------------------------------------------------- */

/* One element as a float. */
static float first_of(const tensor *x, int64_t i)
{
    return x->dtype == CLOOB_BF16 ? bf16_up(((const uint16_t *)x->data)[i]) : ((const float *)x->data)[i];
}

/* Turns the sums of this rank into mean and variance of all ranks. */
static cloob_status finish_stats(const op_env *env, const stats_job *j, float *mean, float *rstd, double *count)
{
    const planes *z = &j->z;
    double rows = (double)(z->N * z->HW);
    for (int64_t c = 0; c < z->C; c++) {
        double d = total(j->sums, z->N, z->C, 0, c) / rows, q = total(j->sums, z->N, z->C, 1, c) / rows;
        mean[c] = (float)((double)j->shift[c] + d);
        rstd[c] = (float)(q - d * d); /* the variance; bn_stats_cpu takes its root when all ranks have spoken */
    }
    *count = rows;
    if (!env->sum_ranks) return CLOOB_OK;
    for (int64_t c = 0; c < z->C; c++) rstd[c] += mean[c] * mean[c];
    CLOOB_TRY(env->sum_ranks(env->sum_user, mean, z->C));
    CLOOB_TRY(env->sum_ranks(env->sum_user, rstd, z->C));
    for (int64_t c = 0; c < z->C; c++) {
        mean[c] /= (float)env->ranks;
        rstd[c] = rstd[c] / (float)env->ranks - mean[c] * mean[c];
    }
    *count = rows * env->ranks;
    return CLOOB_OK;
}

cloob_status bn_stats_cpu(const op_env *env, const op_args *a)
{
    float *mean = a->out[0].data, *rstd = a->out[1].data, *run_mean = a->in[1].data, *run_var = a->in[2].data;
    stats_job j = { .z = planes_of(&a->in[0]), .x = a->in[0].data, .sums = a->scratch, .shift = mean };
    double count, m = (double)a->attr.momentum;
    for (int64_t c = 0; c < j.z.C; c++) mean[c] = first_of(&a->in[0], c);
    pool_for(env->ctx, j.z.N, 1, CPU_PICK(a->in[0], stats_range), &j);
    CLOOB_TRY(finish_stats(env, &j, mean, rstd, &count));
    for (int64_t c = 0; c < j.z.C; c++) {
        double var = (double)rstd[c] > 0 ? (double)rstd[c] : 0;
        if (!a->attr.keep_stats && !env->keep_stats) {
            run_mean[c] = (float)((1 - m) * (double)run_mean[c] + m * (double)mean[c]);
            run_var[c] = (float)((1 - m) * (double)run_var[c] + m * var * count / (count - 1));
        }
        rstd[c] = (float)(1.0 / sqrt(var + (double)a->attr.eps));
    }
    return CLOOB_OK;
}

/* ---- apply --------------------------------------------------------------------------------------- */

cloob_status bn_apply_prepare(const op_env *env, op_args *a)
{
    (void)env;
    a->scratch_bytes = (size_t)a->in[0].dim[3] * sizeof(float);
    return CLOOB_OK;
}

cloob_status bn_apply_cpu(const op_env *env, const op_args *a)
{
    const float *mean = a->in[1].data, *rstd = a->in[2].data, *gain = a->in[3].data, *bias = a->in[4].data;
    planes z = planes_of(&a->in[0]);
    float *scale = a->scratch;
    for (int64_t c = 0; c < z.C; c++) scale[c] = gain[c] * rstd[c];
    apply_job j = { z, a->in[0].data, a->in[5].data, a->out[0].data, mean, scale, bias, a->attr.relu, a->attr.pool };
    pool_for(env->ctx, z.N, 1, CPU_PICK(a->in[0], apply_range), &j);
    return CLOOB_OK;
}

/* ---- backward ------------------------------------------------------------------------------------ */

/* scale, and for the apply of_x and rest as well, into `room` (3 C). */
static channels find_channels(const op_args *a, int mean_at, const float *sums, double count, float *room)
{
    const float *mean = a->in[mean_at].data, *rstd = a->in[mean_at + 1].data, *gain = a->in[mean_at + 2].data,
                *bias = a->in[mean_at + 3].data;
    int64_t C = tensor_count(&a->in[mean_at]);
    float *scale = room, *of_x = scale + C, *rest = of_x + C;
    for (int64_t c = 0; c < C; c++) {
        scale[c] = gain[c] * rstd[c];
        float mg = sums ? (float)((double)sums[c] / count) : 0,
              mgx = sums ? (float)((double)sums[C + c] / count) * rstd[c] : 0;
        of_x[c] = -scale[c] * mgx;
        rest[c] = -scale[c] * mg;
    }
    return (channels){ mean, scale, bias, of_x, rest };
}

cloob_status bn_bwd_sums_prepare(const op_env *env, op_args *a)
{
    (void)env;
    sums_scratch(a, &a->in[2]);
    a->scratch_bytes += (size_t)(3 * a->in[2].dim[3]) * sizeof(float);
    return CLOOB_OK;
}

cloob_status bn_bwd_reduce_cpu(const op_env *env, const op_args *a)
{
    float *dgain = a->out[0].data, *dbias = a->out[1].data, *sums = a->out[2].data;
    const float *rstd = a->in[4].data;
    back_job j = { .z = planes_of(&a->in[2]),
                   .dy = a->in[0].data,
                   .dy2 = a->in[1].data,
                   .x = a->in[2].data,
                   .y = a->in[7].data,
                   .g = a->out[3].data,
                   .part = a->scratch,
                   .relu = a->attr.relu,
                   .pool = a->attr.pool };
    int64_t C = j.z.C;
    j.k = find_channels(a, 3, NULL, 1, (float *)(void *)(j.part + j.z.N * 2 * C));
    pool_for(env->ctx, j.z.N, 1, CPU_PICK(a->in[2], reduce_range), &j);
    for (int64_t c = 0; c < C; c++) {
        sums[c] = (float)total(j.part, j.z.N, C, 0, c);
        sums[C + c] = (float)(total(j.part, j.z.N, C, 1, c) * (double)rstd[c]);
        if (dbias) dbias[c] = sums[c];
        if (dgain) dgain[c] = sums[C + c];
    }
    op_args recomputed = bn_recompute(a);
    if (recomputed.out[0].data) CLOOB_TRY(bn_apply_cpu(env, &recomputed));
    return env->sum_ranks ? env->sum_ranks(env->sum_user, sums, 2 * C) : CLOOB_OK;
}

cloob_status bn_bwd_apply_prepare(const op_env *env, op_args *a)
{
    (void)env;
    a->scratch_bytes = (size_t)(3 * a->in[1].dim[3]) * sizeof(float);
    return CLOOB_OK;
}

cloob_status bn_bwd_apply_cpu(const op_env *env, const op_args *a)
{
    back_job j = { .z = planes_of(&a->in[1]),
                   .dy = a->in[0].data,
                   .x = a->in[1].data,
                   .dy2 = a->in[7].data,
                   .dx = a->out[0].data,
                   .relu = a->attr.relu,
                   .pool = a->attr.pool };
    double count = (double)(j.z.N * j.z.HW) * (env->sum_ranks ? env->ranks : 1);
    j.k = find_channels(a, 2, a->in[6].data, count, a->scratch);
    pool_for(env->ctx, j.z.N, 1, CPU_PICK(a->in[1], back_range), &j);
    return CLOOB_OK;
}

/* ---- folded into the convolution before it ----------------------------------------------------------- */

/* Runs once per model, but over all of its weights: it is part of how fast a program starts. */
typedef struct fold_job {
    const float *w, *gain, *bias, *mean, *var;
    float *folded, *shift;
    int64_t K;
    float eps;
} fold_job;

CPU_CLONES static void fold_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const fold_job *j = arg;
    (void)thread;
    for (int64_t o = begin; o < end; o++) {
        double s = (double)j->gain[o] / sqrt((double)j->var[o] + (double)j->eps);
        const float *w = j->w + o * j->K;
        float *folded = j->folded + o * j->K;
        for (int64_t k = 0; k < j->K; k++) folded[k] = (float)(s * (double)w[k]);
        j->shift[o] = (float)((double)j->bias[o] - s * (double)j->mean[o]);
    }
}

cloob_status fold_bn_cpu(const op_env *env, const op_args *a)
{
    if (a->in[0].dtype != CLOOB_F32) return op_kernels_ref[OP_FOLD_BN].run(env, a);
    int64_t O = a->in[0].dim[0], K = tensor_count(&a->in[0]) / O;
    fold_job j = { .w = a->in[0].data,
                   .gain = a->in[1].data,
                   .bias = a->in[2].data,
                   .mean = a->in[3].data,
                   .var = a->in[4].data,
                   .folded = a->out[0].data,
                   .shift = a->out[1].data,
                   .K = K,
                   .eps = a->attr.eps };
    pool_for(env->ctx, O, 1 + 32768 / K, fold_range, &j);
    return CLOOB_OK;
}
