/* Attention over all positions: one (row, head) at a time per thread. In training, heads in bf16 are converted to
 * floats when they are read; in inference their GEMMs are in bf16 (attention_head.c). */
#include <string.h>

#include "nn/cpu/attention.h"
#include "tensor/cpu/gemm_packed.h"

typedef struct job {
    tensor qkv, y, dy, dqkv;
    void *rounded; /* y in 8 bits (op.h), or NULL */
    op_sequences s;
    const float *lse_in;
    float *lse, *scratch;
    int64_t C, H, e, room; /* room: floats of scratch per thread */
    bool causal, packed;   /* packed: inference, by attention_head.c */
    float scale;
} job;

/* scores: matrices of them that a head needs; matrices: of its rows, as floats: q, k, v, y and, backward, dy, dq, dk,
 * dv. */
typedef struct demand {
    int64_t scores, matrices;
} demand;

static const demand forward = { 1, 4 }, backward = { 2, 8 };

static int64_t up(int64_t n) { return (n + 15) / 16 * 16; }
static bool is_bf16(const tensor *t) { return t->dtype == CLOOB_BF16; }

static job job_of(const op_args *a, const tensor *qkv, const tensor *start, demand d, bool packed)
{
    int64_t C = tensor_cols(qkv) / 3, e = C / a->attr.heads;
    op_sequences s = op_sequences_of(&a->attr, qkv, start);
    return (job){ .qkv = *qkv,
                  .s = s,
                  .scratch = a->scratch,
                  .C = C,
                  .H = a->attr.heads,
                  .e = e,
                  .room = up((packed ? attention_head_room(s.T, e, is_bf16(qkv)) : d.scores * s.T * s.T) +
                             (is_bf16(qkv) ? d.matrices * s.T * e : 0)),
                  .causal = a->attr.causal,
                  .packed = packed,
                  .scale = 1.0f / sqrtf((float)e) };
}

static cloob_status plan(const op_env *env, op_args *a, job j)
{
    a->scratch_bytes = (size_t)(pool_ranges(env->ctx, j.s.N * j.H, 1) * j.room) * sizeof(float);
    return CLOOB_OK;
}

static bool packs(const op_env *env, const op_args *a)
{
    return env->frozen_weights && gemm_is_fast(is_bf16(&a->in[0]) ? GEMM_BF16 : GEMM_F32);
}

cloob_status attention_prepare(const op_env *env, op_args *a)
{
    return plan(env, a, job_of(a, &a->in[0], &a->in[1], forward, packs(env, a)));
}

cloob_status attention_bwd_prepare(const op_env *env, op_args *a)
{
    return plan(env, a, job_of(a, &a->in[1], &a->in[4], backward, false));
}

/* The head whose queries begin at element `at`. lse: (T) or NULL */
static void packed_head(const job *j, int64_t at, int64_t T, floats y, float *room, float *lse)
{
    size_t size = dtype_size(j->qkv.dtype), next = (size_t)j->C * size;
    const char *q = (const char *)j->qkv.data + (size_t)at * size;
    attention_head_run(&(attention_head){ .q = q,
                                          .k = q + next,
                                          .v = q + 2 * next,
                                          .y = y,
                                          .ld = 3 * j->C,
                                          .T = T,
                                          .e = j->e,
                                          .bf16 = is_bf16(&j->qkv),
                                          .causal = j->causal,
                                          .scale = j->scale,
                                          .lse = lse,
                                          .room = room });
}

static void plain_head(const job *j, int64_t at, int64_t T, floats y, float *s, float *room, float *lse)
{
    int64_t C = j->C, e = j->e;
    floats q = floats_in(&j->qkv, at, 3 * C, T, e, &room), k = floats_in(&j->qkv, at + C, 3 * C, T, e, &room);
    floats v = floats_in(&j->qkv, at + 2 * C, 3 * C, T, e, &room);
    gemm_tile(false, true, T, T, j->e, j->scale, q.at, q.ld, k.at, k.ld, 0.0f, s, T);
    for (int64_t t = 0; t < T; t++) {
        float row = softmax_row(s + t * T, j->causal ? t + 1 : T, T);
        if (lse) lse[t] = row;
    }
    gemm_tile(false, false, T, j->e, T, 1.0f, s, T, v.at, v.ld, 0.0f, y.at, y.ld);
}

/* The rows of a head from element `first` of y on in 8 bits, and, where y is there, in bf16. */
static void round_head(const job *j, int64_t first, int64_t T, floats y)
{
    uint16_t group[GEMM_U8_GROUP];
    for (int64_t i = 0; i < T * j->e; i += GEMM_U8_GROUP) {
        int64_t at = first + i / j->e * j->C + i % j->e;
        bf16_round(group, y.at + i, GEMM_U8_GROUP);
        if (j->y.data) memcpy((uint16_t *)j->y.data + at, group, sizeof group);
        gemm_u8_round_groups(group, 1, j->rounded, at / GEMM_U8_GROUP);
    }
}

static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t C = j->C, e = j->e;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / j->H, h = i % j->H, first = op_first_row(&j->s, n), T = op_row_count(&j->s, n);
        int64_t at = first * 3 * C + h * e, at_y = first * C + h * e;
        bool bf16 = is_bf16(&j->qkv);
        float *s = j->scratch + thread * j->room, *room = s + (j->packed ? attention_head_room(T, e, bf16) : T * T);
        floats y = floats_place(&j->y, at_y, C, T, e, &room);
        float *lse = j->lse ? j->lse + op_head_at(&j->s, j->H, n, h) : NULL;
        if (j->packed) packed_head(j, at, T, y, s, lse);
        else plain_head(j, at, T, y, s, room, lse);
        if (j->rounded) round_head(j, at_y, T, y);
        else floats_out(&j->y, at_y, C, T, e, y);
    }
}

cloob_status attention_cpu(const op_env *env, const op_args *a)
{
    job j = job_of(a, &a->in[0], &a->in[1], forward, packs(env, a));
    j.y = a->out[0];
    j.y.data = cpu_own_out(a);
    j.rounded = cpu_rounded_out(a);
    j.lse = a->out[1].data;
    if (env->part[0].of == j.s.N) { /* the rest holds nothing that is read */
        pool_share(env->ctx, env->part[0].live * j.H, 1, forward_range, &j);
        return CLOOB_OK;
    }
    pool_share(env->ctx, j.s.N * j.H, 1, forward_range, &j);
    if (!j.rounded) zero_dead(&j.s, &a->out[0]);
    for (int64_t h = 0; j.s.start && j.lse && h < j.H; h++)
        for (int64_t r = j.s.start[j.s.N]; r < j.s.rows; r++) j.lse[h * j.s.rows + r] = 0;
    return CLOOB_OK;
}

/* p = exp(s - lse) in place. */
CPU_CLONES static void probabilities(float *s, const float *lse, int64_t T, bool causal)
{
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < T; k++) s[t * T + k] = causal && k > t ? 0.0f : vmath_exp(s[t * T + k] - lse[t]);
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
    int64_t C = j->C, e = j->e;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / j->H, h = i % j->H, first = op_first_row(&j->s, n), T = op_row_count(&j->s, n);
        int64_t at = first * 3 * C + h * e, at_y = first * C + h * e;
        float *p = j->scratch + thread * j->room, *ds = p + T * T, *room = ds + T * T;
        floats q = floats_in(&j->qkv, at, 3 * C, T, e, &room), k = floats_in(&j->qkv, at + C, 3 * C, T, e, &room);
        floats v = floats_in(&j->qkv, at + 2 * C, 3 * C, T, e, &room);
        floats dy = floats_in(&j->dy, at_y, C, T, e, &room), y = floats_in(&j->y, at_y, C, T, e, &room);
        floats dq = floats_place(&j->dqkv, at, 3 * C, T, e, &room),
               dk = floats_place(&j->dqkv, at + C, 3 * C, T, e, &room);
        floats dv = floats_place(&j->dqkv, at + 2 * C, 3 * C, T, e, &room);
        gemm_tile(false, true, T, T, e, j->scale, q.at, q.ld, k.at, k.ld, 0.0f, p, T);
        probabilities(p, j->lse_in + op_head_at(&j->s, j->H, n, h), T, j->causal);
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
    if (a->attr.sums) return op_kernels_ref[OP_ATTENTION_BWD].run(env, a); /* as in act_bwd_cpu */
    job j = job_of(a, &a->in[1], &a->in[4], backward, false);
    j.dy = a->in[0];
    j.y = a->in[2];
    j.lse_in = a->in[3].data;
    j.dqkv = a->out[0];
    pool_share(env->ctx, j.s.N * j.H, 1, backward_range, &j);
    zero_dead(&j.s, &a->out[0]);
    return CLOOB_OK;
}
