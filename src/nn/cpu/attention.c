/* Attention over all positions: one (row, head) at a time per thread. Heads in bf16 are turned into floats on the way in and
 * rounded on the way out: their products are a fortieth of a block's. */
#include "nn/cpu/attention.h"

typedef struct job {
    tensor qkv, y, dy, dqkv;
    const float *lse_in;
    float *lse, *scratch;
    int64_t T, C, H, e, room; /* room: floats of scratch per thread */
    bool causal;
    float scale;
} job;

/* Floats of a head's matrices beside `scores` matrices of scores: q, k, v and, backward, y, dy, dq, dk, dv. */
static int64_t room_for(const tensor *qkv, int64_t heads, int64_t scores, int64_t matrices)
{
    int64_t T = qkv->dim[1], e = qkv->dim[2] / 3 / heads;
    return scores * T * T + (qkv->dtype == CLOOB_BF16 ? matrices * T * e : 0);
}

static job job_of(const op_args *a, const tensor *qkv, int64_t room)
{
    int64_t C = qkv->dim[2] / 3, e = C / a->attr.heads;
    return (job){ .qkv = *qkv, .scratch = a->scratch, .T = qkv->dim[1], .C = C, .H = a->attr.heads, .e = e, .room = room,
                  .causal = a->attr.causal, .scale = 1.0f / sqrtf((float)e) };
}

static cloob_status plan(const op_env *env, op_args *a, const tensor *qkv, int64_t room)
{
    a->scratch_bytes = (size_t)(pool_ranges(env->ctx, qkv->dim[0] * a->attr.heads, 1) * room) * sizeof(float);
    return CLOOB_OK;
}

enum { FORWARD_MATRICES = 4, BACKWARD_MATRICES = 8 };

cloob_status attention_prepare(const op_env *env, op_args *a)
{
    return plan(env, a, &a->in[0], room_for(&a->in[0], a->attr.heads, 1, FORWARD_MATRICES));
}

cloob_status attention_bwd_prepare(const op_env *env, op_args *a)
{
    return plan(env, a, &a->in[1], room_for(&a->in[1], a->attr.heads, 2, BACKWARD_MATRICES));
}

static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t T = j->T, C = j->C, e = j->e;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / j->H, h = i % j->H, at = n * T * 3 * C + h * e;
        float *s = j->scratch + thread * j->room, *room = s + T * T;
        floats q = floats_in(&j->qkv, at, 3 * C, T, e, &room), k = floats_in(&j->qkv, at + C, 3 * C, T, e, &room);
        floats v = floats_in(&j->qkv, at + 2 * C, 3 * C, T, e, &room), y = floats_place(&j->y, n * T * C + h * e, C, T, e, &room);
        gemm_tile(false, true, T, T, e, j->scale, q.at, q.ld, k.at, k.ld, 0.0f, s, T);
        for (int64_t t = 0; t < T; t++) {
            float lse = softmax_row(s + t * T, j->causal ? t + 1 : T, T);
            if (j->lse) j->lse[i * T + t] = lse;
        }
        gemm_tile(false, false, T, e, T, 1.0f, s, T, v.at, v.ld, 0.0f, y.at, y.ld);
        floats_out(&j->y, n * T * C + h * e, C, T, e, y);
    }
}

cloob_status attention_cpu(const op_env *env, const op_args *a)
{
    job j = job_of(a, &a->in[0], room_for(&a->in[0], a->attr.heads, 1, FORWARD_MATRICES));
    j.y = a->out[0];
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
CPU_CLONES static void score_gradient(float *dp, const float *p, floats dy, floats y, int64_t T, int64_t e)
{
    for (int64_t t = 0; t < T; t++) {
        float along = 0;
        for (int64_t i = 0; i < e; i++) along += dy.at[t * dy.ld + i] * y.at[t * y.ld + i];
        for (int64_t k = 0; k < T; k++) dp[t * T + k] = p[t * T + k] * (dp[t * T + k] - along);
    }
}

static void backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t T = j->T, C = j->C, e = j->e;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / j->H, h = i % j->H, at = n * T * 3 * C + h * e, at_y = n * T * C + h * e;
        float *p = j->scratch + thread * j->room, *ds = p + T * T, *room = ds + T * T;
        floats q = floats_in(&j->qkv, at, 3 * C, T, e, &room), k = floats_in(&j->qkv, at + C, 3 * C, T, e, &room);
        floats v = floats_in(&j->qkv, at + 2 * C, 3 * C, T, e, &room);
        floats dy = floats_in(&j->dy, at_y, C, T, e, &room), y = floats_in(&j->y, at_y, C, T, e, &room);
        floats dq = floats_place(&j->dqkv, at, 3 * C, T, e, &room), dk = floats_place(&j->dqkv, at + C, 3 * C, T, e, &room);
        floats dv = floats_place(&j->dqkv, at + 2 * C, 3 * C, T, e, &room);
        gemm_tile(false, true, T, T, e, j->scale, q.at, q.ld, k.at, k.ld, 0.0f, p, T);
        probabilities(p, j->lse_in + i * T, T, j->causal);
        gemm_tile(true, false, T, e, T, 1.0f, p, T, dy.at, dy.ld, 0.0f, dv.at, dv.ld);
        gemm_tile(false, true, T, T, e, 1.0f, dy.at, dy.ld, v.at, v.ld, 0.0f, ds, T);
        score_gradient(ds, p, dy, y, T, e);
        gemm_tile(false, false, T, e, T, j->scale, ds, T, k.at, k.ld, 0.0f, dq.at, dq.ld);
        gemm_tile(true, false, T, e, T, j->scale, ds, T, q.at, q.ld, 0.0f, dk.at, dk.ld);
        floats_out(&j->dqkv, at, 3 * C, T, e, dq);
        floats_out(&j->dqkv, at + C, 3 * C, T, e, dk);
        floats_out(&j->dqkv, at + 2 * C, 3 * C, T, e, dv);
    }
}

cloob_status attention_bwd_cpu(const op_env *env, const op_args *a)
{
    job j = job_of(a, &a->in[1], room_for(&a->in[1], a->attr.heads, 2, BACKWARD_MATRICES));
    j.dy = a->in[0];
    j.y = a->in[2];
    j.lse_in = a->in[3].data;
    j.dqkv = a->out[0];
    pool_for(env->ctx, a->in[1].dim[0] * j.H, 1, backward_range, &j);
    return CLOOB_OK;
}
