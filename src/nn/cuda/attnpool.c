/* The attention pool as batched GEMMs: over the heads for the projections, over the batch for the pooling, with the
 * softmax between them. Packed sequences differ in length, so plain kernels replace the GEMMs of the pooling. */
#include <stdlib.h>

#include "nn/cuda/attnpool.h"
#include "tensor/cuda/gemm.h"

static void *at(const op_args *a, size_t offset) { return (char *)a->scratch + offset; }

static cloob_status state_make(const op_env *env, op_args *a, size_t bytes)
{
    a->state = calloc(1, bytes);
    return a->state ? CLOOB_OK : ctx_no_memory(env->ctx, bytes, "a matrix product's plan");
}

/* ---- projections per head ------------------------------------------------------------------------ */

typedef struct heads_state {
    gemm_plan *plan;
    size_t sums; /* offset in scratch */
} heads_state;

void heads_release_cuda(const op_env *env, op_args *a)
{
    heads_state *s = a->state;
    (void)env;
    if (s) gemm_plan_destroy(s->plan);
    free(s);
    a->state = NULL;
}

static cloob_status heads_plan(const op_env *env, op_args *a, const gemm_shape *g)
{
    CLOOB_TRY(state_make(env, a, sizeof(heads_state)));
    heads_state *s = a->state;
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, g, &s->plan));
    s->sums = cuda_align(gemm_plan_workspace(s->plan));
    a->scratch_bytes = s->sums;
    return CLOOB_OK;
}

cloob_status heads_project_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *x = &a->in[0], *u = &a->out[0];
    int64_t N = u->dim[0], H = u->dim[1], C = u->dim[2], He = x->dim[1], E = He / H;
    gemm_shape g = { .m = N, .n = C, .k = E, .in = x->dtype, .out = u->dtype, .alpha = a->attr.scale };
    g.lda = He, g.ldb = C, g.ldd = H * C;
    g.batch = H, g.step_a = E, g.step_b = E * C, g.step_d = C;
    return heads_plan(env, a, &g);
}

cloob_status heads_project_cuda(const op_env *env, const op_args *a)
{
    const heads_state *s = a->state;
    return gemm_run(env->ctx, env->dev, s->plan, env->stream, a->out[0].data, a->in[0].data, a->in[1].data, NULL, NULL,
                    a->scratch);
}

cloob_status heads_collect_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *s = &a->in[0], *o = &a->out[0];
    int64_t N = s->dim[0], H = s->dim[1], C = s->dim[2], He = o->dim[1], E = He / H;
    gemm_shape g = { .m = N, .n = E, .k = C, .tb = true, .in = s->dtype, .out = o->dtype, .alpha = a->attr.scale };
    g.lda = H * C, g.ldb = C, g.ldd = He;
    g.batch = H, g.step_a = C, g.step_b = E * C, g.step_d = E;
    return heads_plan(env, a, &g);
}

cloob_status heads_collect_cuda(const op_env *env, const op_args *a)
{
    const heads_state *s = a->state;
    const tensor *o = &a->out[0], *bias = &a->in[2];
    CLOOB_TRY(gemm_run(env->ctx, env->dev, s->plan, env->stream, o->data, a->in[0].data, a->in[1].data, NULL, NULL,
                       a->scratch));
    if (!bias->data) return CLOOB_OK;
    return bias_res_relu_cuda(env, "heads_collect", o->data, o->dtype, bias, NULL, false, o->dim[0], o->dim[1]);
}

cloob_status heads_dw_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *x = &a->in[0], *u = &a->in[1];
    int64_t N = u->dim[0], H = u->dim[1], C = u->dim[2], He = x->dim[1], E = He / H;
    gemm_shape g = { .m = E, .n = C, .k = N, .ta = true, .in = x->dtype, .out = CLOOB_F32, .alpha = a->attr.scale };
    g.lda = He, g.ldb = H * C, g.ldd = C;
    g.batch = H, g.step_a = E, g.step_b = C, g.step_d = E * C;
    CLOOB_TRY(heads_plan(env, a, &g));
    if (op_has(&a->out[1])) a->scratch_bytes += colsum_scratch(env->dev, N, He, x->dtype);
    return CLOOB_OK;
}

cloob_status heads_dw_cuda(const op_env *env, const op_args *a)
{
    const heads_state *s = a->state;
    const tensor *x = &a->in[0];
    if (a->out[0].data)
        CLOOB_TRY(gemm_run(env->ctx, env->dev, s->plan, env->stream, a->out[0].data, x->data, a->in[1].data, NULL, NULL,
                           a->scratch));
    if (!a->out[1].data) return CLOOB_OK;
    return colsum(env, "heads_dw", a->out[1].data, x->data, x->dtype, x->dim[0], x->dim[1], 0, at(a, s->sums));
}

/* ---- pooling ------------------------------------------------------------------------------------- */

typedef struct pool_state {
    gemm_plan *score, *mix, *back, *back_add; /* (H,T) = (H,C)(T,C)^T; (H,C) = (H,T)(T,C); (T,C) [+]= (H,T)^T (H,C) */
    size_t half, dz, dp;                      /* offsets in scratch: p and dz in the compute type, dp in F32 */
    int64_t N, T, H, ld;
} pool_state;

void pool_release_cuda(const op_env *env, op_args *a)
{
    pool_state *s = a->state;
    (void)env;
    if (s) {
        gemm_plan_destroy(s->score);
        gemm_plan_destroy(s->mix);
        gemm_plan_destroy(s->back);
        gemm_plan_destroy(s->back_add);
    }
    free(s);
    a->state = NULL;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* GEMMs that both directions use, over sequences of one length. */
static cloob_status plan_gemms(const op_env *env, pool_state *s, cloob_dtype dtype, int64_t C, bool backward)
{
    int64_t N = s->N, T = s->T, H = s->H, ld = s->ld;
    gemm_shape score = { .m = H, .n = T, .k = C, .tb = true, .in = dtype, .out = CLOOB_F32, .alpha = 1.0f };
    gemm_shape mix = { .m = H, .n = C, .k = T, .lda = ld, .in = dtype, .out = dtype, .alpha = 1.0f };
    gemm_shape back = { .m = T, .n = C, .k = H, .ta = true, .lda = ld, .in = dtype, .out = dtype, .alpha = 1.0f };
    score.batch = N, score.step_a = H * C, score.step_b = T * C, score.step_d = H * T;
    mix.batch = N, mix.step_a = H * ld, mix.step_b = T * C, mix.step_d = H * C;
    back.batch = N, back.step_a = H * ld, back.step_b = H * C, back.step_d = T * C;
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &score, &s->score));
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &mix, &s->mix));
    if (backward) CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &back, &s->back));
    back.add = true;
    if (backward) CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &back, &s->back_add));
    return CLOOB_OK;
}

/* Rows of half and dz are padded so that every one begins on 16 bytes. */
static cloob_status pool_plan(const op_env *env, op_args *a, const tensor *t, const tensor *u, const tensor *start,
                              bool backward)
{
    CLOOB_TRY(state_make(env, a, sizeof(pool_state)));
    pool_state *s = a->state;
    op_sequences q = op_sequences_of(&a->attr, t, start);
    int64_t C = tensor_cols(t), H = u->dim[1], ld = (q.T + 7) / 8 * 8;
    s->N = q.N, s->T = q.T, s->H = H, s->ld = ld;
    size_t work = 0;
    if (!op_has(start)) {
        CLOOB_TRY(plan_gemms(env, s, t->dtype, C, backward));
        work = larger(gemm_plan_workspace(s->score), gemm_plan_workspace(s->mix));
        work = larger(work, larger(gemm_plan_workspace(s->back), gemm_plan_workspace(s->back_add)));
    }
    size_t rows = cuda_align((size_t)(q.N * H * ld) * dtype_size(t->dtype));
    s->half = cuda_align(work);
    s->dz = s->half + rows;
    s->dp = s->dz + (backward ? rows : 0);
    a->scratch_bytes = s->dp + (size_t)(q.N * H * q.T) * sizeof(float); /* dp; forward: p, if it is not an output */
    return CLOOB_OK;
}

static pool_seen seen_of(const pool_state *s, const tensor *index, const tensor *start)
{
    return (pool_seen){ index->data, start->data, s->T, s->H };
}

static cloob_status product(const op_env *env, const op_args *a, const gemm_plan *p, void *D, const void *A,
                            const void *B)
{
    return gemm_run(env->ctx, env->dev, p, env->stream, D, A, B, D, NULL, a->scratch);
}

static cloob_status score(const op_env *env, const op_args *a, float *out, const void *heads, const tensor *t,
                          const pool_seen *seen)
{
    const pool_state *s = a->state;
    if (seen->start) return pool_packed_score(env, out, heads, t, seen, s->N);
    return product(env, a, s->score, out, heads, t->data);
}

static cloob_status mix(const op_env *env, const op_args *a, void *out, const void *p, const tensor *t,
                        const pool_seen *seen)
{
    const pool_state *s = a->state;
    if (seen->start) return pool_packed_mix(env, out, p, t, seen, s->N, s->ld);
    return product(env, a, s->mix, out, p, t->data);
}

cloob_status pool_attention_prepare_cuda(const op_env *env, op_args *a)
{
    return pool_plan(env, a, &a->in[0], &a->in[1], &a->in[3], false);
}

cloob_status pool_attention_cuda(const op_env *env, const op_args *a)
{
    const pool_state *s = a->state;
    const tensor *t = &a->in[0], *u = &a->in[1];
    pool_seen seen = seen_of(s, &a->in[2], &a->in[3]);
    float *p = a->out[1].data ? a->out[1].data : at(a, s->dp);
    CLOOB_TRY(score(env, a, p, u->data, t, &seen));
    CLOOB_TRY(pool_softmax(env, p, at(a, s->half), t->dtype, &seen, s->N, s->ld));
    return mix(env, a, a->out[0].data, at(a, s->half), t, &seen);
}

cloob_status pool_attention_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    return pool_plan(env, a, &a->in[1], &a->in[2], &a->in[5], true);
}

cloob_status pool_attention_bwd_cuda(const op_env *env, const op_args *a)
{
    const pool_state *s = a->state;
    op_sequences q = op_sequences_of(&a->attr, &a->in[1], &a->in[5]);
    const tensor *ds = &a->in[0], *t = &a->in[1], *u = &a->in[2], *dt = &a->out[0], *du = &a->out[1];
    pool_seen seen = seen_of(s, &a->in[4], &a->in[5]);
    void *half = at(a, s->half), *dz = at(a, s->dz);
    float *dp = at(a, s->dp);
    if (q.start && dt->data) CLOOB_TRY(zero_padding_cuda(env, "pool_attention_bwd", &q, dt, NULL));
    CLOOB_TRY(score(env, a, dp, ds->data, t, &seen));
    CLOOB_TRY(pool_softmax_bwd(env, dz, half, t->dtype, a->in[3].data, dp, &seen, s->N, s->ld));
    if (du->data) CLOOB_TRY(mix(env, a, du->data, dz, t, &seen));
    if (!dt->data) return CLOOB_OK;
    if (seen.start) return pool_packed_back(env, dt, half, ds->data, dz, u->data, &seen, s->N, s->ld);
    CLOOB_TRY(product(env, a, s->back, dt->data, half, ds->data));
    return product(env, a, s->back_add, dt->data, dz, u->data);
}
