/* relu, add, pool and activations. */
#include "nn/cpu/cpu.h"

typedef struct job {
    const float *a, *b;
    float *y;
    bool gelu;
} job;

static void each(const op_env *env, const op_args *a, pool_fn *fn)
{
    job j = { a->in[0].data, a->in[1].data, a->out[0].data, a->attr.act == OP_ACT_GELU };
    pool_for(env->ctx, tensor_count(&a->out[0]), 1 << 14, fn, &j);
}

CPU_CLONES static void relu_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) j->y[i] = j->a[i] > 0 ? j->a[i] : 0.0f;
}

cloob_status relu_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], relu_ref);
    each(env, a, relu_range);
    return CLOOB_OK;
}

CPU_CLONES static void add_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) j->y[i] = j->a[i] + j->b[i];
}

cloob_status add_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], add_ref);
    each(env, a, add_range);
    return CLOOB_OK;
}

/* ---- pool ---------------------------------------------------------------------------------------- */

typedef struct pool_job {
    planes big;
    const float *from;
    float *to;
} pool_job;

CPU_CLONES static void pool_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t b = j->big.b, W = j->big.W, Ho = j->big.H / 2, Wo = W / 2;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t r = 0; r < Ho * Wo; r++) {
            const float *top = j->from + (i * j->big.HW + r / Wo * 2 * W + r % Wo * 2) * b, *below = top + W * b;
            float *y = j->to + (i * Ho * Wo + r) * b;
            for (int64_t c = 0; c < b; c++) y[c] = 0.25f * (top[c] + top[b + c] + below[c] + below[b + c]);
        }
}

cloob_status avgpool2_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], avgpool2_ref);
    pool_job j = { planes_of(&a->in[0]), a->in[0].data, a->out[0].data };
    pool_for(env->ctx, j.big.N * j.big.blocks, 1, pool_range, &j);
    return CLOOB_OK;
}

CPU_CLONES static void unpool_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t b = j->big.b, W = j->big.W, Ho = j->big.H / 2, Wo = W / 2;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t p = 0; p < j->big.HW; p++) {
            int64_t h = p / W / 2, w = p % W / 2;
            const float *dy = j->from + (i * Ho * Wo + h * Wo + w) * b;
            float *dx = j->to + (i * j->big.HW + p) * b;
            bool pooled = h < Ho && w < Wo;
            for (int64_t c = 0; c < b; c++) dx[c] = pooled ? 0.25f * dy[c] : 0.0f;
        }
}

cloob_status avgpool2_bwd_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], avgpool2_bwd_ref);
    pool_job j = { planes_of(&a->out[0]), a->in[0].data, a->out[0].data };
    pool_for(env->ctx, j.big.N * j.big.blocks, 1, unpool_range, &j);
    return CLOOB_OK;
}

/* ---- activations --------------------------------------------------------------------------------- */

static inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

CPU_CLONES static void act_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    if (j->gelu)
        for (int64_t i = begin; i < end; i++) j->y[i] = 0.5f * j->a[i] * (1.0f + erff(j->a[i] * 0.70710678f));
    else
        for (int64_t i = begin; i < end; i++) j->y[i] = j->a[i] * sigmoid(1.702f * j->a[i]);
}

cloob_status act_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], act_ref);
    each(env, a, act_range);
    return CLOOB_OK;
}

CPU_CLONES static void act_bwd_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    if (j->gelu)
        for (int64_t i = begin; i < end; i++) {
            float x = j->b[i];
            j->y[i] = j->a[i] * (0.5f * (1.0f + erff(x * 0.70710678f)) + x * fast_exp(-0.5f * x * x) * 0.39894228f);
        }
    else
        for (int64_t i = begin; i < end; i++) {
            float x = j->b[i], s = sigmoid(1.702f * x);
            j->y[i] = j->a[i] * (s + 1.702f * x * s * (1.0f - s));
        }
}

cloob_status act_bwd_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], act_bwd_ref);
    each(env, a, act_bwd_range);
    op_args again = act_again(a);
    return again.out[0].data ? act_cpu(env, &again) : CLOOB_OK;
}
