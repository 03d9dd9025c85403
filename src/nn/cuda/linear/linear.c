/* GEMMs of the towers by cuBLASLt: bias and residual are fused into them, the bias gradient into the
 * weight gradient where the library can do it for less than another pass over dy. */
#include <stdlib.h>

#include "nn/cuda/groups.h"
#include "nn/cuda/linear/act_gemm.h"
#include "nn/cuda/linear/fp8_gemm.h"
#include "tensor/cuda/gemm.h"

typedef struct linear_state {
    gemm_plan *plan;
    fp8_gemm *eight;   /* used instead; NULL: 16 or 32 bits */
    size_t bias, sums; /* offsets in scratch, behind the workspace */
    bool fused_sum;    /* linear_dw: the GEMM also sums dy */
} linear_state;

static cloob_status state_make(const op_env *env, op_args *a, linear_state **out)
{
    a->state = *out = calloc(1, sizeof **out);
    return *out ? CLOOB_OK : ctx_no_memory(env->ctx, sizeof **out, "the plan of a GEMM");
}

void linear_release_cuda(const op_env *env, op_args *a)
{
    linear_state *s = a->state;
    if (s) gemm_plan_destroy(s->plan);
    if (s) fp8_gemm_destroy(env, s->eight);
    free(s);
    a->state = NULL;
}

static void *at(const op_args *a, size_t offset) { return (char *)a->scratch + offset; }

/* ---- forward ------------------------------------------------------------------------------------- */

cloob_status linear_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    linear_state *s;
    gemm_shape g = { .m = tensor_rows(y),
                     .n = tensor_cols(y),
                     .k = tensor_cols(x),
                     .tb = !a->attr.transposed,
                     .in = x->dtype,
                     .out = y->dtype,
                     .add = op_has(&a->in[3]),
                     .extra = op_has(&a->in[2]) ? GEMM_BIAS : GEMM_PLAIN,
                     .alpha = 1.0f };
    CLOOB_TRY(state_make(env, a, &s));
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &g, &s->plan));
    CLOOB_TRY(fp8_gemm_create(env, &g, a->attr.fp8, gemm_plan_ms(s->plan), &s->eight));
    s->bias = cuda_align(s->eight ? fp8_gemm_scratch(s->eight) : gemm_plan_workspace(s->plan));
    a->scratch_bytes = s->bias + (size_t)g.n * sizeof(float);
    return CLOOB_OK;
}

cloob_status linear_cuda(const op_env *env, const op_args *a)
{
    const linear_state *s = a->state;
    const tensor *y = &a->out[0], *b = &a->in[2];
    void *D = y->data, *A = a->in[0].data, *B = a->in[1].data, *C = a->in[3].data, *bias = b->data;
    if (bias && (b->dtype != y->dtype || (uintptr_t)bias % 16)) { /* the library wants it in the type of the result */
        bias = at(a, s->bias);
        CLOOB_TRY(convert_cuda(env, "linear", bias, y->dtype, b->data, b->dtype, tensor_count(b)));
    }
    if (s->eight) return fp8_gemm_run(env, s->eight, D, A, B, C, bias, a->scratch);
    return gemm_run(env->ctx, env->dev, s->plan, env->stream, D, A, B, C, bias, a->scratch);
}

/* ---- backward ------------------------------------------------------------------------------------ */

cloob_status linear_dx_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0];
    linear_state *s;
    gemm_shape g = { .m = tensor_rows(dy),
                     .n = tensor_cols(dx),
                     .k = tensor_cols(dy),
                     .tb = a->attr.transposed,
                     .in = dy->dtype,
                     .out = dx->dtype,
                     .alpha = 1.0f };
    CLOOB_TRY(state_make(env, a, &s));
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &g, &s->plan));
    a->scratch_bytes = gemm_plan_workspace(s->plan);
    return CLOOB_OK;
}

cloob_status linear_dx_cuda(const op_env *env, const op_args *a)
{
    const linear_state *s = a->state;
    return gemm_run(env->ctx, env->dev, s->plan, env->stream, a->out[0].data, a->in[0].data, a->in[1].data, NULL, NULL,
                    a->scratch);
}

/* The cost of summing dy in a separate pass: reading it at the bandwidth that kernels reach, and two launches. */
static float sum_ms(const tensor *dy) { return (float)tensor_bytes(dy) / 3.5e9f + 0.006f; }

/* dw (O, K) = dy^T x, or dw (K, O) = x^T dy when the weight is stored transposed. */
cloob_status linear_dw_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1];
    int64_t R = tensor_rows(dy), O = tensor_cols(dy), K = tensor_cols(x);
    bool turned = a->attr.transposed, sums = op_has(&a->out[1]);
    linear_state *s;
    gemm_plan *fused = NULL;
    gemm_shape g = {
        .m = turned ? K : O, .n = turned ? O : K, .k = R, .ta = true, .in = dy->dtype, .out = CLOOB_F32, .alpha = 1.0f
    };
    CLOOB_TRY(state_make(env, a, &s));
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &g, &s->plan));
    g.extra = turned ? GEMM_SUM_B : GEMM_SUM_A;
    if (sums && op_has(&a->out[0])) CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &g, &fused));
    s->fused_sum = fused && gemm_plan_ms(fused) < gemm_plan_ms(s->plan) + sum_ms(dy);
    ctx_log(env->ctx, CLOOB_LOG_DEBUG,
            "linear_dw %lld x %lld x %lld: %.4f ms, %.4f with the bias's sums, %.4f by a pass", (long long)g.m,
            (long long)g.n, (long long)g.k, (double)gemm_plan_ms(s->plan), (double)(fused ? gemm_plan_ms(fused) : 0),
            (double)sum_ms(dy));
    gemm_plan_destroy(s->fused_sum ? s->plan : fused);
    if (s->fused_sum) s->plan = fused;
    s->sums = cuda_align(gemm_plan_workspace(s->plan));
    a->scratch_bytes = s->sums + (sums && !s->fused_sum ? colsum_scratch(env->dev, R, O, dy->dtype) : 0);
    return CLOOB_OK;
}

cloob_status linear_dw_cuda(const op_env *env, const op_args *a)
{
    const linear_state *s = a->state;
    const tensor *dy = &a->in[0], *x = &a->in[1];
    void *dw = a->out[0].data, *dbias = a->out[1].data;
    const void *left = a->attr.transposed ? x->data : dy->data, *right = a->attr.transposed ? dy->data : x->data;
    if (dw) CLOOB_TRY(gemm_run(env->ctx, env->dev, s->plan, env->stream, dw, left, right, NULL, dbias, a->scratch));
    if (!dbias || (dw && s->fused_sum)) return CLOOB_OK;
    return colsum(env, "linear_dw", dbias, dy->data, dy->dtype, tensor_rows(dy), tensor_cols(dy), 0, at(a, s->sums));
}

/* ---- groups of a GEMM and its activation ----------------------------------------------------------
 *
 * linear then act, or linear_dx then act_bwd, by one kernel (act_gemm.h). */

/* From this many rows on the kernel takes less time than cuBLASLt and a pass, measured on an H200 for RN50, RN50x4,
 * ViT-B-32 and ViT-B-16: 0.36 and 0.46 ms forward, 0.38 and 0.55 ms backward for 51,200 rows of 768. */
enum { ENOUGH_ROWS = 4096 };

static act_gemm gemm_of(const op_group *g)
{
    const op_args *gemm = g->member[0], *act = g->member[1];
    bool backward = act->op == OP_ACT_BWD;
    act_gemm j = { .m = tensor_rows(&gemm->in[0]),
                   .n = gemm->in[1].dim[backward],
                   .k = gemm->in[1].dim[!backward],
                   .backward = backward,
                   .act = act->attr.act,
                   .a = gemm->in[0].data,
                   .b = gemm->in[1].data,
                   .bias = act->in[backward ? 2 : 1].data,
                   .x = backward ? act->in[1].data : gemm->out[0].data,
                   .y = act->out[0].data };
    if (backward) j.recomputed = act->out[1].data, j.partial = act->out[2].data ? g->scratch : NULL;
    return j;
}

/* With enough rows, or as the context asks. */
cloob_status linear_act_prepare_cuda(const op_env *env, op_group *g, bool *claims)
{
    const op_args *gemm = g->member[0], *act = g->member[1];
    act_gemm j = gemm_of(g);
    fused_gemm_choice asked = env->ctx->kernels.fused_gemm;
    bool plain = !gemm->attr.transposed && gemm->attr.fp8 == OP_FP8_NEVER &&
                 (j.backward ? group_inner(g, gemm) : !op_has(&gemm->in[2]) && !op_has(&gemm->in[3]));
    bool possible = asked != FUSED_GEMM_NEVER && cuda_has_hopper(env->dev) && plain &&
                    gemm->in[0].dtype == CLOOB_BF16 && act_gemm_parts(&j, cuda_sms(env)) > 0;
    *claims = possible && (asked != FUSED_GEMM_AUTO || j.m >= ENOUGH_ROWS);
    if (*claims && j.backward && op_has(&act->out[2]))
        g->scratch_bytes = (size_t)act_gemm_parts(&j, cuda_sms(env)) * (size_t)j.n * sizeof(float);
    return CLOOB_OK;
}

cloob_status linear_act_cuda(const op_env *env, const op_group *g)
{
    act_gemm j = gemm_of(g);
    CLOOB_TRY(cuda_check(env->ctx, act_gemm_run(env->stream, &j, cuda_sms(env)), g->kernel->name));
    if (!j.partial) return CLOOB_OK;
    return colsum_finish(env, g->kernel->name, g->member[1]->out[2].data, j.partial, act_gemm_parts(&j, cuda_sms(env)),
                         j.n);
}
