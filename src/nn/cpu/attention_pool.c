/* The attention pool: H queries over the tokens they see, one sequence at a time; and what all attention kernels
 * share. */
#include "nn/cpu/attention.h"

#include <string.h>

CPU_CLONES float softmax_row(float *s, int64_t keys, int64_t T)
{
    float top = s[0], sum = 0;
#pragma omp simd reduction(max : top)
    for (int64_t k = 0; k < keys; k++) top = s[k] > top ? s[k] : top;
#pragma omp simd
    for (int64_t k = 0; k < keys; k++) s[k] = vmath_exp(s[k] - top);
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < keys; k++) sum += s[k];
    float scale = 1.0f / sum;
    for (int64_t k = 0; k < keys; k++) s[k] *= scale;
    for (int64_t k = keys; k < T; k++) s[k] = 0;
    return top + logf(sum);
}

void zero_dead(const op_sequences *s, const tensor *x)
{
    size_t row = (size_t)tensor_cols(x) * dtype_size(x->dtype);
    int64_t alive = s->start ? s->start[s->N] : s->rows;
    memset((char *)x->data + (size_t)alive * row, 0, (size_t)(s->rows - alive) * row);
}

CPU_CLONES static void widen(const uint16_t *from, int64_t ld, int64_t rows, int64_t cols, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[r * cols + c] = bf16_up(from[r * ld + c]);
}

CPU_CLONES static void narrow(const float *from, int64_t rows, int64_t cols, uint16_t *to, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[r * ld + c] = bf16_down(from[r * cols + c]);
}

floats floats_place(const tensor *t, int64_t first, int64_t ld, int64_t rows, int64_t cols, float **room)
{
    if (t->dtype != CLOOB_BF16) return (floats){ (float *)t->data + first, ld };
    floats f = { *room, cols };
    *room += rows * cols;
    return f;
}

floats floats_in(const tensor *t, int64_t first, int64_t ld, int64_t rows, int64_t cols, float **room)
{
    floats f = floats_place(t, first, ld, rows, cols, room);
    if (t->dtype == CLOOB_BF16) widen((const uint16_t *)t->data + first, ld, rows, cols, f.at);
    return f;
}

void floats_out(const tensor *t, int64_t first, int64_t ld, int64_t rows, int64_t cols, floats f)
{
    if (t->dtype == CLOOB_BF16) narrow(f.at, rows, cols, (uint16_t *)t->data + first, ld);
}

/* ---- the pool ------------------------------------------------------------------------------------ */

typedef struct pool_job {
    tensor t, u, index, s, ds, dt, du;
    op_sequences q;
    const float *p;
    float *p_out, *scratch;
    int64_t C, H, room;
} pool_job;

/* Room is in floats per thread: scores backward, and bf16 matrices of T or H rows as floats. */
static pool_job job_of(const op_args *a, const tensor *t, const tensor *u, const tensor *index, const tensor *start,
                       bool backward)
{
    op_sequences q = op_sequences_of(&a->attr, t, start);
    int64_t C = tensor_cols(t), H = u->dim[1], rows = backward ? 2 * q.T + 3 * H : q.T + 2 * H;
    return (pool_job){ .t = *t,
                       .u = *u,
                       .index = *index,
                       .q = q,
                       .scratch = a->scratch,
                       .C = C,
                       .H = H,
                       .room = (backward ? H * q.T : 0) + (t->dtype == CLOOB_BF16 ? rows * C : 0) };
}

static cloob_status plan(const op_env *env, op_args *a, pool_job j)
{
    a->scratch_bytes = (size_t)(pool_ranges(env->ctx, j.q.N * j.H, 1) * j.room) * sizeof(float);
    return CLOOB_OK;
}

cloob_status pool_attention_prepare(const op_env *env, op_args *a)
{
    return plan(env, a, job_of(a, &a->in[0], &a->in[1], &a->in[2], &a->in[3], false));
}

cloob_status pool_attention_bwd_prepare(const op_env *env, op_args *a)
{
    return plan(env, a, job_of(a, &a->in[1], &a->in[2], &a->in[4], &a->in[5], true));
}

/* Tokens that the query of sequence n sees. */
static int64_t seen_of(const pool_job *j, int64_t n)
{
    return j->index.data ? ((const int32_t *)j->index.data)[n] + 1 : op_row_count(&j->q, n);
}

/* Queries of a sequence that a thread takes at a time, so that one sequence keeps several threads busy. */
static int64_t some_queries(int64_t H) { return H % 16 ? H : 16; }

static void pool_forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t T = j->q.T, C = j->C, some = some_queries(j->H);
    for (int64_t q = begin * some; q < end * some; q += some) {
        int64_t n = q / j->H, first = op_first_row(&j->q, n) * C, seen = seen_of(j, n);
        float *p = j->p_out + q * T, *room = j->scratch + thread * j->room;
        floats t = floats_in(&j->t, first, C, seen, C, &room), u = floats_in(&j->u, q * C, C, some, C, &room);
        floats s = floats_place(&j->s, q * C, C, some, C, &room);
        gemm_tile(false, true, some, seen, C, 1.0f, u.at, C, t.at, C, 0.0f, p, T);
        for (int64_t h = 0; h < some; h++) softmax_row(p + h * T, seen, T);
        gemm_tile(false, false, some, C, seen, 1.0f, p, T, t.at, C, 0.0f, s.at, C);
        floats_out(&j->s, q * C, C, some, C, s);
    }
}

cloob_status pool_attention_cpu(const op_env *env, const op_args *a)
{
    pool_job j = job_of(a, &a->in[0], &a->in[1], &a->in[2], &a->in[3], false);
    j.s = a->out[0];
    j.p_out = a->out[1].data;
    pool_for(env->ctx, j.q.N * (j.H / some_queries(j.H)), 1, pool_forward_range, &j);
    return CLOOB_OK;
}

static void pool_score_gradient(float *dz, const float *p, int64_t H, int64_t seen, int64_t T)
{
    for (int64_t h = 0; h < H; h++) {
        float along = 0;
        for (int64_t k = 0; k < seen; k++) along += dz[h * T + k] * p[h * T + k];
        for (int64_t k = 0; k < seen; k++) dz[h * T + k] = p[h * T + k] * (dz[h * T + k] - along);
    }
}

static void pool_backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = arg;
    int64_t T = j->q.T, C = j->C, H = j->H;
    for (int64_t n = begin; n < end; n++) {
        int64_t first = op_first_row(&j->q, n) * C, seen = seen_of(j, n), rows = op_row_count(&j->q, n);
        float *dz = j->scratch + thread * j->room, *room = dz + H * T;
        const float *p = j->p + n * H * T;
        floats t = floats_in(&j->t, first, C, seen, C, &room), u = floats_in(&j->u, n * H * C, C, H, C, &room);
        floats ds = floats_in(&j->ds, n * H * C, C, H, C, &room);
        gemm_tile(false, true, H, seen, C, 1.0f, ds.at, C, t.at, C, 0.0f, dz, T);
        pool_score_gradient(dz, p, H, seen, T);
        if (j->du.data) {
            floats du = floats_place(&j->du, n * H * C, C, H, C, &room);
            gemm_tile(false, false, H, C, seen, 1.0f, dz, T, t.at, C, 0.0f, du.at, C);
            floats_out(&j->du, n * H * C, C, H, C, du);
        }
        if (!j->dt.data) continue;
        floats dt = floats_place(&j->dt, first, C, rows, C, &room);
        gemm_tile(true, false, seen, C, H, 1.0f, p, T, ds.at, C, 0.0f, dt.at, C);
        gemm_tile(true, false, seen, C, H, 1.0f, dz, T, u.at, C, 1.0f, dt.at, C);
        memset(dt.at + seen * C, 0, (size_t)((rows - seen) * C) * sizeof(float)); /* tokens that no query attends to */
        floats_out(&j->dt, first, C, rows, C, dt);
    }
}

cloob_status pool_attention_bwd_cpu(const op_env *env, const op_args *a)
{
    pool_job j = job_of(a, &a->in[1], &a->in[2], &a->in[4], &a->in[5], true);
    j.ds = a->in[0];
    j.p = a->in[3].data;
    j.dt = a->out[0];
    j.du = a->out[1];
    pool_for(env->ctx, j.q.N, 1, pool_backward_range, &j);
    if (j.dt.data) zero_dead(&j.q, &j.dt);
    return CLOOB_OK;
}
