/* Attention, one (row, head) at a time: scores of all queries in planned scratch, products by BLAS on the calling thread. */
#include "nn/cpu/cpu.h"
#include "tensor/cpu/gemm.h"

typedef struct job {
    const float *qkv, *y, *dy, *lse_in;
    float *out, *lse, *dqkv, *scratch;
    int64_t T, C, H, e;
    bool causal;
    float scale;
} job;

static job job_of(const op_args *a, const tensor *qkv)
{
    int64_t C = qkv->dim[2] / 3, e = C / a->attr.heads;
    return (job){ .qkv = qkv->data, .scratch = a->scratch, .T = qkv->dim[1], .C = C, .H = a->attr.heads, .e = e,
                  .causal = a->attr.causal, .scale = 1.0f / sqrtf((float)e) };
}

static cloob_status scratch_for(const op_env *env, op_args *a, const tensor *qkv, int64_t matrices)
{
    int64_t pairs = qkv->dim[0] * a->attr.heads;
    a->scratch_bytes = (size_t)(pool_ranges(env->ctx, pairs, 1) * matrices * qkv->dim[1] * qkv->dim[1]) * sizeof(float);
    return CLOOB_OK;
}

cloob_status attention_prepare(const op_env *env, op_args *a) { return scratch_for(env, a, &a->in[0], 1); }

cloob_status attention_bwd_prepare(const op_env *env, op_args *a) { return scratch_for(env, a, &a->in[1], 2); }

/* Rows of scores become probabilities; returns the log-sum-exp. */
CPU_CLONES static float softmax_row(float *s, int64_t keys, int64_t T)
{
    float most = s[0], sum = 0;
#pragma omp simd reduction(max : most)
    for (int64_t k = 0; k < keys; k++) most = s[k] > most ? s[k] : most;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < keys; k++) {
        s[k] = fast_exp(s[k] - most);
        sum += s[k];
    }
    float scale = 1.0f / sum;
    for (int64_t k = 0; k < keys; k++) s[k] *= scale;
    for (int64_t k = keys; k < T; k++) s[k] = 0;
    return most + logf(sum);
}

static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t T = j->T, C = j->C, e = j->e;
    float *s = j->scratch + thread * T * T;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / j->H, h = i % j->H;
        const float *q = j->qkv + n * T * 3 * C + h * e, *k = q + C, *v = k + C;
        gemm_tile(false, true, T, T, e, j->scale, q, 3 * C, k, 3 * C, 0.0f, s, T);
        for (int64_t t = 0; t < T; t++) {
            float lse = softmax_row(s + t * T, j->causal ? t + 1 : T, T);
            if (j->lse) j->lse[i * T + t] = lse;
        }
        gemm_tile(false, false, T, e, T, 1.0f, s, T, v, 3 * C, 0.0f, j->out + n * T * C + h * e, C);
    }
}

cloob_status attention_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], attention_ref);
    job j = job_of(a, &a->in[0]);
    j.out = a->out[0].data;
    j.lse = a->out[1].data;
    pool_for(env->ctx, a->in[0].dim[0] * j.H, 1, forward_range, &j);
    return CLOOB_OK;
}

/* p = exp(s - lse) in place. */
CPU_CLONES static void probabilities(float *s, const float *lse, int64_t T, bool causal)
{
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < T; k++) s[t * T + k] = causal && k > t ? 0.0f : fast_exp(s[t * T + k] - lse[t]);
}

/* ds = p (dp - dy.y), overwriting dp. */
CPU_CLONES static void score_gradient(float *dp, const float *p, const float *dy, const float *y, int64_t T, int64_t C, int64_t e)
{
    for (int64_t t = 0; t < T; t++) {
        float along = 0;
        for (int64_t i = 0; i < e; i++) along += dy[t * C + i] * y[t * C + i];
        for (int64_t k = 0; k < T; k++) dp[t * T + k] = p[t * T + k] * (dp[t * T + k] - along);
    }
}

static void backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t T = j->T, C = j->C, e = j->e;
    float *p = j->scratch + thread * 2 * T * T, *ds = p + T * T;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / j->H, h = i % j->H, at = n * T * 3 * C + h * e;
        const float *q = j->qkv + at, *k = q + C, *v = k + C, *dy = j->dy + n * T * C + h * e, *y = j->y + n * T * C + h * e;
        float *dq = j->dqkv + at, *dk = dq + C, *dv = dk + C;
        gemm_tile(false, true, T, T, e, j->scale, q, 3 * C, k, 3 * C, 0.0f, p, T);
        probabilities(p, j->lse_in + i * T, T, j->causal);
        gemm_tile(true, false, T, e, T, 1.0f, p, T, dy, C, 0.0f, dv, 3 * C);
        gemm_tile(false, true, T, T, e, 1.0f, dy, C, v, 3 * C, 0.0f, ds, T);
        score_gradient(ds, p, dy, y, T, C, e);
        gemm_tile(false, false, T, e, T, j->scale, ds, T, k, 3 * C, 0.0f, dq, 3 * C);
        gemm_tile(true, false, T, e, T, j->scale, ds, T, q, 3 * C, 0.0f, dk, 3 * C);
    }
}

cloob_status attention_bwd_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[1], attention_bwd_ref);
    job j = job_of(a, &a->in[1]);
    j.dy = a->in[0].data;
    j.y = a->in[2].data;
    j.lse_in = a->in[3].data;
    j.dqkv = a->out[0].data;
    pool_for(env->ctx, a->in[1].dim[0] * j.H, 1, backward_range, &j);
    return CLOOB_OK;
}

/* ---- the attention pool: H queries over T tokens, one picture at a time -------------------------- */

typedef struct pool_job {
    const float *t, *u, *p, *ds;
    float *s, *p_out, *dt, *du, *scratch;
    int64_t T, C, H;
} pool_job;

static void pool_forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t T = j->T, C = j->C, H = j->H;
    (void)thread;
    for (int64_t n = begin; n < end; n++) {
        float *p = j->p_out + n * H * T;
        gemm_tile(false, true, H, T, C, 1.0f, j->u + n * H * C, C, j->t + n * T * C, C, 0.0f, p, T);
        for (int64_t h = 0; h < H; h++) softmax_row(p + h * T, T, T);
        gemm_tile(false, false, H, C, T, 1.0f, p, T, j->t + n * T * C, C, 0.0f, j->s + n * H * C, C);
    }
}

cloob_status pool_attention_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], pool_attention_ref);
    const tensor *t = &a->in[0], *u = &a->in[1];
    pool_job j = { .t = t->data, .u = u->data, .s = a->out[0].data, .p_out = a->out[1].data, .T = t->dim[1], .C = t->dim[2], .H = u->dim[1] };
    pool_for(env->ctx, t->dim[0], 1, pool_forward_range, &j);
    return CLOOB_OK;
}

cloob_status pool_attention_bwd_prepare(const op_env *env, op_args *a)
{
    a->scratch_bytes = (size_t)(pool_ranges(env->ctx, a->in[1].dim[0], 1) * a->in[2].dim[1] * a->in[1].dim[1]) * sizeof(float);
    return CLOOB_OK;
}

static void pool_score_gradient(float *dz, const float *p, int64_t H, int64_t T)
{
    for (int64_t h = 0; h < H; h++) {
        float along = 0;
        for (int64_t k = 0; k < T; k++) along += dz[h * T + k] * p[h * T + k];
        for (int64_t k = 0; k < T; k++) dz[h * T + k] = p[h * T + k] * (dz[h * T + k] - along);
    }
}

static void pool_backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t T = j->T, C = j->C, H = j->H;
    float *dz = j->scratch + thread * H * T;
    for (int64_t n = begin; n < end; n++) {
        const float *t = j->t + n * T * C, *u = j->u + n * H * C, *ds = j->ds + n * H * C, *p = j->p + n * H * T;
        gemm_tile(false, true, H, T, C, 1.0f, ds, C, t, C, 0.0f, dz, T);
        pool_score_gradient(dz, p, H, T);
        gemm_tile(false, false, H, C, T, 1.0f, dz, T, t, C, 0.0f, j->du + n * H * C, C);
        gemm_tile(true, false, T, C, H, 1.0f, p, T, ds, C, 0.0f, j->dt + n * T * C, C);
        gemm_tile(true, false, T, C, H, 1.0f, dz, T, u, C, 1.0f, j->dt + n * T * C, C);
    }
}

cloob_status pool_attention_bwd_cpu(const op_env *env, const op_args *a)
{
    CPU_ONLY_F32(a->in[0], pool_attention_bwd_ref);
    const tensor *t = &a->in[1], *u = &a->in[2];
    pool_job j = { .ds = a->in[0].data, .t = t->data, .u = u->data, .p = a->in[3].data, .dt = a->out[0].data, .du = a->out[1].data,
                   .scratch = a->scratch, .T = t->dim[1], .C = t->dim[2], .H = u->dim[1] };
    pool_for(env->ctx, t->dim[0], 1, pool_backward_range, &j);
    return CLOOB_OK;
}
