#include "nn/cuda/linear/fp8_rows.h"

#include <stdlib.h>

struct fp8_rows {
    gemm_plan *plan;
    int64_t m, n, k;
    size_t left, inverse; /* in scratch, behind the library's: A's copy and its scales */
    void *right;          /* device memory of its own: B's copy, and behind it its scales */
    bool rounded;         /* B was */
};

static size_t right_bytes(const fp8_rows *p) { return cuda_align((size_t)(p->n * p->k)); }

static bool fits(const op_env *env, const gemm_shape *g)
{
    return env->dev->fp8_rows && g->in == CLOOB_BF16 && g->out == CLOOB_BF16 && !g->ta && g->tb && g->m % 16 == 0 &&
           g->n % 16 == 0 && g->k % 16 == 0 && g->alpha == 1.0f;
}

/* *taken false: it is slower, or cannot be. */
static cloob_status fill(const op_env *env, const gemm_shape *g, op_fp8 fp8, float ms, fp8_rows *p, bool *taken)
{
    gemm_shape eight = *g;
    eight.fp8 = GEMM_E4M3;
    eight.row_scales = true;
    CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &eight, &p->plan));
    float own = p->plan ? gemm_plan_ms(p->plan) + cuda_pass_ms(3.0 * (double)(g->m * g->k)) : 1e30f;
    *taken = p->plan && (fp8 == OP_FP8_ROWS_ALWAYS || own < ms);
    ctx_log(env->ctx, CLOOB_LOG_DEBUG, "fp8 by rows %lld x %lld x %lld: %.4f ms with its rounding, bf16 %.4f",
            (long long)g->m, (long long)g->n, (long long)g->k, (double)own, (double)ms);
    if (!*taken) return CLOOB_OK;
    p->left = cuda_align(gemm_plan_workspace(p->plan));
    p->inverse = p->left + cuda_align((size_t)(g->m * g->k));
    return env->dev->alloc(env->ctx, env->dev, right_bytes(p) + (size_t)g->n * sizeof(float), "8-bit weights",
                           &p->right);
}

cloob_status fp8_rows_create(const op_env *env, const gemm_shape *g, op_fp8 fp8, float ms, fp8_rows **out)
{
    bool taken = false;
    *out = NULL;
    if (!fits(env, g)) return CLOOB_OK;
    fp8_rows *p = calloc(1, sizeof *p);
    if (!p) return ctx_no_memory(env->ctx, sizeof *p, "an 8-bit GEMM");
    p->m = g->m, p->n = g->n, p->k = g->k;
    cloob_status status = fill(env, g, fp8, ms, p, &taken);
    if (status == CLOOB_OK && taken) *out = p;
    else fp8_rows_destroy(env, p);
    return status;
}

void fp8_rows_destroy(const op_env *env, fp8_rows *p)
{
    if (!p) return;
    if (p->right) env->dev->free(env->dev, p->right);
    gemm_plan_destroy(p->plan);
    free(p);
}

size_t fp8_rows_scratch(const fp8_rows *p) { return p->inverse + (size_t)p->m * sizeof(float); }

cloob_status fp8_rows_run(const op_env *env, const char *op, fp8_rows *p, void *D, const void *A, const void *B,
                          const void *C, void *vector, void *scratch)
{
    void *left = (char *)scratch + p->left;
    float *of_left = (float *)((char *)scratch + p->inverse), *of_right = (float *)((char *)p->right + right_bytes(p));
    if (!p->rounded) CLOOB_TRY(quantize_rows_cuda(env, op, p->right, of_right, B, p->n, p->k));
    p->rounded = env->frozen_weights;
    CLOOB_TRY(quantize_rows_cuda(env, op, left, of_left, A, p->m, p->k));
    gemm_plan_scales(p->plan, of_left, of_right);
    return gemm_run(env->ctx, env->dev, p->plan, env->stream, D, left, p->right, C, vector, scratch);
}
