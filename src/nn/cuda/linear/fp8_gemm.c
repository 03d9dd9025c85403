/* GEMMs of bf16 matrices by 8-bit copies: A's in scratch, B's in memory of its own. */
#include "nn/cuda/linear/fp8_gemm.h"

#include <stdlib.h>

struct fp8_gemm {
    gemm_plan *plan;
    gemm_shape g;        /* of the bf16 factors */
    size_t left, scales; /* offsets in scratch, behind the library's: A's copy and its scales */
    void *weights;       /* device memory: B's copy and behind it its scales */
    bool rounded;        /* weights are filled */
};

static bool fits(const op_env *env, const gemm_shape *g)
{
    return env->dev->fp8 && g->tb && g->in == CLOOB_BF16 && g->out == CLOOB_BF16 && !g->ta && g->m % 16 == 0 &&
           g->n % 16 == 0 && g->k % 16 == 0 && g->alpha == 1.0f;
}

static size_t weight_bytes(const fp8_gemm *p) { return cuda_align((size_t)(p->g.n * p->g.k)); }

/* *taken false: it is slower, or not supported. */
static cloob_status fill(const op_env *env, fp8_gemm *p, bool always, float ms, bool *taken)
{
    const gemm_shape *g = &p->g;
    gemm_shape eight = { .m = g->m,
                         .n = g->n,
                         .k = g->k,
                         .in = g->in,
                         .out = g->out,
                         .fp8 = true,
                         .add = g->add,
                         .extra = g->extra,
                         .alpha = 1.0f };
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &eight, &p->plan));
    if (!p->plan) return CLOOB_OK;
    float own = gemm_plan_ms(p->plan) + cuda_pass_ms(3.0 * (double)(g->m * g->k)); /* and a pass that rounds A */
    ctx_log(env->ctx, CLOOB_LOG_DEBUG, "fp8 %lld x %lld x %lld: %.4f ms, %.4f with its rounding, bf16 %.4f",
            (long long)g->m, (long long)g->n, (long long)g->k, (double)gemm_plan_ms(p->plan), (double)own, (double)ms);
    *taken = always || own < ms;
    if (!*taken) return CLOOB_OK;
    p->left = cuda_align(gemm_plan_workspace(p->plan));
    p->scales = p->left + cuda_align((size_t)(g->m * g->k));
    return env->dev->alloc(env->ctx, env->dev, weight_bytes(p) + (size_t)g->n * sizeof(float), "8-bit weights",
                           &p->weights);
}

cloob_status fp8_gemm_create(const op_env *env, const gemm_shape *g, op_fp8 fp8, float ms, fp8_gemm **out)
{
    bool taken = false;
    *out = NULL;
    if (fp8 == OP_FP8_NEVER || !fits(env, g)) return CLOOB_OK;
    fp8_gemm *p = calloc(1, sizeof *p);
    if (!p) return ctx_no_memory(env->ctx, sizeof *p, "an 8-bit GEMM");
    p->g = *g;
    cloob_status status = fill(env, p, fp8 == OP_FP8_ALWAYS, ms, &taken);
    if (status == CLOOB_OK && taken) *out = p;
    else fp8_gemm_destroy(env, p);
    return status;
}

void fp8_gemm_destroy(const op_env *env, fp8_gemm *p)
{
    if (!p) return;
    if (p->weights) env->dev->free(env->dev, p->weights);
    gemm_plan_destroy(p->plan);
    free(p);
}

size_t fp8_gemm_scratch(const fp8_gemm *p) { return p->scales + (size_t)p->g.m * sizeof(float); }

cloob_status fp8_gemm_run(const op_env *env, fp8_gemm *p, void *D, const void *A, const void *B, const void *C,
                          void *vector, void *scratch)
{
    void *left = (char *)scratch + p->left;
    float *of_left = (float *)((char *)scratch + p->scales),
          *of_right = (float *)((char *)p->weights + weight_bytes(p));
    if (!p->rounded) CLOOB_TRY(quantize_rows_cuda(env, p->weights, of_right, B, p->g.n, p->g.k));
    p->rounded = env->frozen_weights;
    CLOOB_TRY(quantize_rows_cuda(env, left, of_left, A, p->g.m, p->g.k));
    gemm_plan_scales(p->plan, of_left, of_right);
    return gemm_run(env->ctx, env->dev, p->plan, env->stream, D, left, p->weights, C, vector, scratch);
}
