/* One query per row and head: the last block, of which one token is wanted. A row at a time per thread. */
#include "nn/cpu/attention.h"

typedef struct job {
    tensor q, kv, index, y, dy, dq, dkv;
    const float *lse_in;
    op_sequences s;
    float *lse, *scratch;
    int64_t C, H, e, room;
    float scale;
} job;

/* Room is in floats per thread: two rows of scores; of a row of the batch in bf16 its keys and values (and their
 * gradients), and q, y, dy and dq. */
static job job_of(const op_args *a, const tensor *q, const tensor *kv, const tensor *index, const tensor *start)
{
    int64_t C = q->dim[1], e = C / a->attr.heads;
    op_sequences s = op_sequences_of(&a->attr, kv, start);
    return (job){ .q = *q,
                  .kv = *kv,
                  .index = *index,
                  .s = s,
                  .scratch = a->scratch,
                  .C = C,
                  .H = a->attr.heads,
                  .e = e,
                  .room = 2 * s.T + (kv->dtype == CLOOB_BF16 ? 4 * s.T * C + 4 * C : 0),
                  .scale = 1.0f / sqrtf((float)e) };
}

static cloob_status plan(const op_env *env, op_args *a, job j)
{
    a->scratch_bytes = (size_t)(pool_ranges(env->ctx, j.s.N, 1) * j.room) * sizeof(float);
    return CLOOB_OK;
}

cloob_status attention_one_prepare(const op_env *env, op_args *a)
{
    return plan(env, a, job_of(a, &a->in[0], &a->in[1], &a->in[2], &a->in[3]));
}

cloob_status attention_one_bwd_prepare(const op_env *env, op_args *a)
{
    return plan(env, a, job_of(a, &a->in[1], &a->in[2], &a->in[3], &a->in[6]));
}

static int64_t keys_of(const job *j, int64_t n)
{
    return j->index.data ? ((const int32_t *)j->index.data)[n] + 1 : op_row_count(&j->s, n);
}

/* s[t] = scale a.b[t] over `keys` rows 2 C apart. */
CPU_INLINE void dots(const float *a, const float *b, int64_t ld, int64_t keys, int64_t e, float scale, float *s)
{
    for (int64_t t = 0; t < keys; t++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < e; i++) sum += a[i] * b[t * ld + i];
        s[t] = scale * sum;
    }
}

/* to = sum over t of s[t] b[t]. */
CPU_INLINE void weighted(const float *s, const float *b, int64_t ld, int64_t keys, int64_t e, float *to)
{
    for (int64_t i = 0; i < e; i++) to[i] = 0;
    for (int64_t t = 0; t < keys; t++)
        for (int64_t i = 0; i < e; i++) to[i] += s[t] * b[t * ld + i];
}

CPU_CLONES static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t C = j->C, e = j->e;
    for (int64_t n = begin; n < end; n++) {
        int64_t first = op_first_row(&j->s, n) * 2 * C, T = op_row_count(&j->s, n);
        float *s = j->scratch + thread * j->room, *room = s + 2 * j->s.T;
        floats q = floats_in(&j->q, n * C, C, 1, C, &room), kv = floats_in(&j->kv, first, 2 * C, T, 2 * C, &room);
        floats y = floats_place(&j->y, n * C, C, 1, C, &room);
        int64_t keys = keys_of(j, n);
        for (int64_t h = 0; h < j->H; h++) {
            dots(q.at + h * e, kv.at + h * e, 2 * C, keys, e, j->scale, s);
            float lse = softmax_row(s, keys, keys);
            if (j->lse) j->lse[n * j->H + h] = lse;
            weighted(s, kv.at + C + h * e, 2 * C, keys, e, y.at + h * e);
        }
        floats_out(&j->y, n * C, C, 1, C, y);
    }
}

cloob_status attention_one_cpu(const op_env *env, const op_args *a)
{
    job j = job_of(a, &a->in[0], &a->in[1], &a->in[2], &a->in[3]);
    j.y = a->out[0];
    j.lse = a->out[1].data;
    pool_share(env->ctx, op_live_places(env, &a->out[0]), 1, forward_range, &j);
    return CLOOB_OK;
}

/* One head: p = exp(s - lse), ds = p (dy.v - dy.y) scale; dq = sum ds k, dk = ds q, dv = p dy. */
CPU_INLINE void head_backward(const job *j, const float *q, const float *k, const float *y, const float *dy, float lse,
                              int64_t keys, float *s, float *dq, float *dk)
{
    const float *v = k + j->C;
    float *ds = s + j->s.T, *dv = dk + j->C, along = 0;
    int64_t ld = 2 * j->C, e = j->e;
    dots(q, k, ld, keys, e, j->scale, s);
    dots(dy, v, ld, keys, e, 1.0f, ds);
    for (int64_t i = 0; i < e; i++) along += dy[i] * y[i];
    for (int64_t t = 0; t < keys; t++) {
        s[t] = vmath_exp(s[t] - lse);
        ds[t] = s[t] * (ds[t] - along) * j->scale;
        for (int64_t i = 0; i < e; i++) dk[t * ld + i] = ds[t] * q[i];
        for (int64_t i = 0; i < e; i++) dv[t * ld + i] = s[t] * dy[i];
    }
    weighted(ds, k, ld, keys, e, dq);
}

CPU_CLONES static void backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    int64_t C = j->C, e = j->e;
    for (int64_t n = begin; n < end; n++) {
        int64_t first = op_first_row(&j->s, n) * 2 * C, T = op_row_count(&j->s, n);
        float *s = j->scratch + thread * j->room, *room = s + 2 * j->s.T;
        floats q = floats_in(&j->q, n * C, C, 1, C, &room), kv = floats_in(&j->kv, first, 2 * C, T, 2 * C, &room);
        floats y = floats_in(&j->y, n * C, C, 1, C, &room), dy = floats_in(&j->dy, n * C, C, 1, C, &room);
        floats dq = floats_place(&j->dq, n * C, C, 1, C, &room),
               dkv = floats_place(&j->dkv, first, 2 * C, T, 2 * C, &room);
        int64_t keys = keys_of(j, n);
        for (int64_t i = keys * 2 * C; i < T * 2 * C; i++) dkv.at[i] = 0; /* keys that no query attends to */
        for (int64_t h = 0; h < j->H; h++)
            head_backward(j, q.at + h * e, kv.at + h * e, y.at + h * e, dy.at + h * e, j->lse_in[n * j->H + h], keys, s,
                          dq.at + h * e, dkv.at + h * e);
        floats_out(&j->dq, n * C, C, 1, C, dq);
        floats_out(&j->dkv, first, 2 * C, T, 2 * C, dkv);
    }
}

cloob_status attention_one_bwd_cpu(const op_env *env, const op_args *a)
{
    job j = job_of(a, &a->in[1], &a->in[2], &a->in[3], &a->in[6]);
    j.dy = a->in[0];
    j.y = a->in[4];
    j.lse_in = a->in[5].data;
    j.dq = a->out[0];
    j.dkv = a->out[1];
    pool_for(env->ctx, j.s.N, 1, backward_range, &j);
    zero_dead(&j.s, &a->out[1]);
    return CLOOB_OK;
}
