/* Batch norm's four passes over planes of channels. */
#include <string.h>

#include "nn/cpu/cpu.h"

/* Per picture and channel: two sums in double. */
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

cloob_status bn_bwd_sums_prepare(const op_env *env, op_args *a)
{
    (void)env;
    return sums_scratch(a, &a->in[2]);
}

/* Adds the per-picture sums in order. */
static double total(const double *sums, int64_t N, int64_t C, int which, int64_t c)
{
    double sum = 0;
    for (int64_t n = 0; n < N; n++) sum += sums[(n * 2 + which) * C + c];
    return sum;
}

/* ---- statistics ---------------------------------------------------------------------------------- */

typedef struct stats_job {
    planes z;
    const float *x;
    double *sums;
    const float *shift; /* a value near the mean, so that squares do not cancel */
} stats_job;

enum { LANES = 64 };

/* One plane of HW rows of b channels, up to LANES channels at a time. Rows are summed in float 32 at a time, then in double. */
static inline void plane_sums(const float *x, int64_t HW, int64_t b, int64_t width, const float *shift, double *sum, double *square)
{
    double s[LANES] = { 0 }, q[LANES] = { 0 };
    for (int64_t p0 = 0; p0 < HW; p0 += 32) {
        float fs[LANES] = { 0 }, fq[LANES] = { 0 };
        int64_t p1 = p0 + 32 < HW ? p0 + 32 : HW;
        for (int64_t p = p0; p < p1; p++)
            for (int64_t c = 0; c < width; c++) {
                float v = x[p * b + c] - shift[c];
                fs[c] += v;
                fq[c] += v * v;
            }
        for (int64_t c = 0; c < width; c++) s[c] += (double)fs[c], q[c] += (double)fq[c];
    }
    for (int64_t c = 0; c < width; c++) sum[c] = s[c], square[c] = q[c];
}

CPU_CLONES static void stats_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const stats_job *j = arg;
    const planes *z = &j->z;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / z->blocks, first = i % z->blocks * z->b;
        const float *x = j->x + i * z->HW * z->b;
        double *sum = j->sums + n * 2 * z->C + first, *square = sum + z->C;
        if (z->b == 16) plane_sums(x, z->HW, 16, 16, j->shift + first, sum, square);
        else
            for (int64_t c = 0; c < z->b; c += LANES)
                plane_sums(x + c, z->HW, z->b, z->b - c < LANES ? z->b - c : LANES, j->shift + first + c, sum + c, square + c);
    }
}

static int64_t channel_start(const planes *z, int64_t c) { return c / z->b * z->HW * z->b + c % z->b; }

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
    CPU_ONLY_F32(a->in[0], bn_stats_ref);
    float *mean = a->out[0].data, *rstd = a->out[1].data, *run_mean = a->in[1].data, *run_var = a->in[2].data;
    stats_job j = { .z = planes_of(&a->in[0]), .x = a->in[0].data, .sums = a->scratch, .shift = mean };
    double count, m = (double)a->attr.momentum;
    for (int64_t c = 0; c < j.z.C; c++) mean[c] = j.x[channel_start(&j.z, c)];
    pool_for(env->ctx, j.z.N * j.z.blocks, 1, stats_range, &j);
    CLOOB_TRY(finish_stats(env, &j, mean, rstd, &count));
    for (int64_t c = 0; c < j.z.C; c++) {
        double var = (double)rstd[c] > 0 ? (double)rstd[c] : 0;
        if (!a->attr.keep_stats) {
            run_mean[c] = (float)((1 - m) * (double)run_mean[c] + m * (double)mean[c]);
            run_var[c] = (float)((1 - m) * (double)run_var[c] + m * var * count / (count - 1));
        }
        rstd[c] = (float)(1.0 / sqrt(var + (double)a->attr.eps));
    }
    return CLOOB_OK;
}

/* ---- apply --------------------------------------------------------------------------------------- */

typedef struct apply_job {
    planes z;
    const float *x, *res;
    float *y;
    const float *scale, *shift; /* y = x scale + shift */
    bool relu, pool;
} apply_job;

cloob_status bn_apply_prepare(const op_env *env, op_args *a)
{
    (void)env;
    a->scratch_bytes = (size_t)(2 * a->in[0].dim[3]) * sizeof(float);
    return CLOOB_OK;
}

static inline float clamp(float v, bool relu) { return relu && v < 0 ? 0.0f : v; }

static inline void apply_plane(const apply_job *j, const float *x, const float *res, float *y, int64_t b, const float *scale, const float *shift)
{
    for (int64_t p = 0; p < j->z.HW; p++)
        for (int64_t c = 0; c < b; c++) {
            float v = x[p * b + c] * scale[c] + shift[c];
            if (res) v += res[p * b + c];
            y[p * b + c] = clamp(v, j->relu);
        }
}

static inline void apply_pool_plane(const apply_job *j, const float *x, float *y, int64_t b, const float *scale, const float *shift)
{
    int64_t W = j->z.W, Wo = W / 2;
    for (int64_t h = 0; h < j->z.H / 2; h++)
        for (int64_t w = 0; w < Wo; w++) {
            const float *top = x + (2 * h * W + 2 * w) * b, *below = top + W * b;
            for (int64_t c = 0; c < b; c++) {
                float s = scale[c], t = shift[c];
                y[(h * Wo + w) * b + c] = 0.25f * (clamp(top[c] * s + t, j->relu) + clamp(top[b + c] * s + t, j->relu) +
                                                   clamp(below[c] * s + t, j->relu) + clamp(below[b + c] * s + t, j->relu));
            }
        }
}

CPU_CLONES static void apply_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const apply_job *j = arg;
    const planes *z = &j->z;
    int64_t out_rows = j->pool ? (z->H / 2) * (z->W / 2) : z->HW;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % z->blocks * z->b;
        const float *x = j->x + i * z->HW * z->b, *res = j->res ? j->res + i * z->HW * z->b : NULL;
        float *y = j->y + i * out_rows * z->b;
        if (j->pool && z->b == 16) apply_pool_plane(j, x, y, 16, j->scale + first, j->shift + first);
        else if (j->pool) apply_pool_plane(j, x, y, z->b, j->scale + first, j->shift + first);
        else if (z->b == 16) apply_plane(j, x, res, y, 16, j->scale + first, j->shift + first);
        else apply_plane(j, x, res, y, z->b, j->scale + first, j->shift + first);
    }
}

cloob_status bn_apply_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], bn_apply_ref);
    const float *mean = a->in[1].data, *rstd = a->in[2].data, *gain = a->in[3].data, *bias = a->in[4].data;
    planes z = planes_of(&a->in[0]);
    float *scale = a->scratch, *shift = scale + z.C;
    for (int64_t c = 0; c < z.C; c++) {
        scale[c] = gain[c] * rstd[c];
        shift[c] = bias[c] - mean[c] * scale[c];
    }
    apply_job j = { z, a->in[0].data, a->in[5].data, a->out[0].data, scale, shift, a->attr.relu, a->attr.pool };
    pool_for(env->ctx, z.N * z.blocks, 1, apply_range, &j);
    return CLOOB_OK;
}

/* ---- backward ------------------------------------------------------------------------------------ */

typedef struct back_job {
    planes z;
    const float *dy, *dy2, *x, *y, *mean, *rstd, *gain, *bias, *sums;
    float *g, *dx;
    double *part, count;
    bool relu, pool;
} back_job;

/* The gradient before relu and pool, for one row of channels: dy through pool, masked. */
static inline float before_at(const back_job *j, const float *dy, const float *dy2, float x, const float *y, int64_t at, int64_t from, int64_t c)
{
    float v = dy[from];
    if (dy2) v += dy2[from];
    if (j->pool) v *= 0.25f;
    if (!j->relu) return v;
    float z = y ? y[at] : (x - j->mean[c]) * j->rstd[c] * j->gain[c] + j->bias[c];
    return z > 0 ? v : 0.0f;
}

/* Where row p of a plane finds its gradient: itself, or the pooled row; -1 when an odd edge was pooled by nobody. */
static inline int64_t source_row(const back_job *j, int64_t p)
{
    if (!j->pool) return p;
    int64_t h = p / j->z.W / 2, w = p % j->z.W / 2, Ho = j->z.H / 2, Wo = j->z.W / 2;
    return h < Ho && w < Wo ? h * Wo + w : -1;
}

static inline void reduce_plane(const back_job *j, int64_t i, int64_t b)
{
    const planes *z = &j->z;
    int64_t rows_dy = j->pool ? (z->H / 2) * (z->W / 2) : z->HW, n = i / z->blocks, first = i % z->blocks * b;
    const float *x = j->x + i * z->HW * b, *y = j->y ? j->y + i * z->HW * b : NULL;
    const float *dy = j->dy + i * rows_dy * b, *dy2 = j->dy2 ? j->dy2 + i * rows_dy * b : NULL;
    float *g = j->g ? j->g + i * z->HW * b : NULL;
    double *bias = j->part + n * 2 * z->C + first, *gain = bias + z->C;
    for (int64_t c = 0; c < b; c++) bias[c] = gain[c] = 0;
    for (int64_t c0 = 0; c0 < b; c0 += LANES) {
        int64_t width = b - c0 < LANES ? b - c0 : LANES;
        for (int64_t p0 = 0; p0 < z->HW; p0 += 32) {
            float fb[LANES] = { 0 }, fg[LANES] = { 0 };
            int64_t p1 = p0 + 32 < z->HW ? p0 + 32 : z->HW;
            for (int64_t p = p0; p < p1; p++) {
                int64_t r = source_row(j, p);
                for (int64_t k = 0; k < width; k++) {
                    int64_t c = c0 + k, ch = first + c;
                    float v = r < 0 ? 0.0f : before_at(j, dy, dy2, x[p * b + c], y, p * b + c, r * b + c, ch);
                    fb[k] += v;
                    fg[k] += v * (x[p * b + c] - j->mean[ch]);
                    if (g) g[p * b + c] = v;
                }
            }
            for (int64_t k = 0; k < width; k++) bias[c0 + k] += (double)fb[k], gain[c0 + k] += (double)fg[k];
        }
    }
}

CPU_CLONES static void reduce_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const back_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        if (j->z.b == 16) reduce_plane(j, i, 16);
        else reduce_plane(j, i, j->z.b);
    }
}

cloob_status bn_bwd_reduce_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[2], bn_bwd_reduce_ref);
    float *dgain = a->out[0].data, *dbias = a->out[1].data, *sums = a->out[2].data;
    back_job j = { .z = planes_of(&a->in[2]), .dy = a->in[0].data, .dy2 = a->in[1].data, .x = a->in[2].data, .mean = a->in[3].data,
                   .rstd = a->in[4].data, .gain = a->in[5].data, .bias = a->in[6].data, .y = a->in[7].data, .g = a->out[3].data,
                   .part = a->scratch, .relu = a->attr.relu, .pool = a->attr.pool };
    int64_t C = j.z.C;
    pool_for(env->ctx, j.z.N * j.z.blocks, 1, reduce_range, &j);
    for (int64_t c = 0; c < C; c++) {
        sums[c] = (float)total(j.part, j.z.N, C, 0, c);
        sums[C + c] = (float)(total(j.part, j.z.N, C, 1, c) * (double)j.rstd[c]);
        if (dbias) dbias[c] = sums[c];
        if (dgain) dgain[c] = sums[C + c];
    }
    op_args again = bn_again(a);
    if (again.out[0].data) CLOOB_TRY(bn_apply_cpu(env, &again));
    return env->sum_ranks ? env->sum_ranks(env->sum_user, sums, 2 * C) : CLOOB_OK;
}

/* dx = gain rstd (g - mean(g) - xhat mean(g xhat)) = a g + b x + c per channel. */
static inline void back_plane(const back_job *j, int64_t i, int64_t b)
{
    const planes *z = &j->z;
    int64_t rows_dy = j->pool ? (z->H / 2) * (z->W / 2) : z->HW, first = i % z->blocks * b;
    const float *x = j->x + i * z->HW * b, *dy = j->dy + i * rows_dy * b, *dy2 = j->dy2 ? j->dy2 + i * rows_dy * b : NULL;
    float *dx = j->dx + i * z->HW * b;
    for (int64_t c0 = 0; c0 < b; c0 += LANES) {
        int64_t width = b - c0 < LANES ? b - c0 : LANES;
        float ka[LANES], kb[LANES], kc[LANES];
        for (int64_t k = 0; k < width; k++) {
            int64_t ch = first + c0 + k;
            float scale = j->gain[ch] * j->rstd[ch], mg = (float)((double)j->sums[ch] / j->count);
            float mgx = (float)((double)j->sums[z->C + ch] / j->count) * j->rstd[ch];
            ka[k] = scale;
            kb[k] = -scale * mgx;
            kc[k] = scale * (mgx * j->mean[ch] - mg);
        }
        for (int64_t p = 0; p < z->HW; p++) {
            int64_t r = source_row(j, p);
            for (int64_t k = 0; k < width; k++) {
                int64_t c = c0 + k;
                float v = r < 0 ? 0.0f : before_at(j, dy, dy2, x[p * b + c], NULL, 0, r * b + c, first + c);
                dx[p * b + c] = ka[k] * v + kb[k] * x[p * b + c] + kc[k];
            }
        }
    }
}

CPU_CLONES static void back_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const back_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        if (j->z.b == 16) back_plane(j, i, 16);
        else back_plane(j, i, j->z.b);
    }
}

cloob_status bn_bwd_apply_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[1], bn_bwd_apply_ref);
    back_job j = { .z = planes_of(&a->in[1]), .dy = a->in[0].data, .x = a->in[1].data, .mean = a->in[2].data, .rstd = a->in[3].data,
                   .gain = a->in[4].data, .bias = a->in[5].data, .sums = a->in[6].data, .dy2 = a->in[7].data, .dx = a->out[0].data,
                   .relu = a->attr.relu, .pool = a->attr.pool };
    j.count = (double)(j.z.N * j.z.HW) * (env->sum_ranks ? env->ranks : 1);
    pool_for(env->ctx, j.z.N * j.z.blocks, 1, back_range, &j);
    return CLOOB_OK;
}
