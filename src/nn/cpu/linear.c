/* GEMMs with bias and residual, and the attention pool's per-head ones: F32 by BLAS, bf16 in
 * linear_bf16.c. */
#include <string.h>

#include "nn/cpu/cpu.h"
#include "nn/cpu/gemm_op.h"
#include "tensor/cpu/gemm.h"

typedef struct bias_job {
    const float *bias, *res;
    float *y;
    int64_t O;
} bias_job;

/* y starts as bias + residual; the GEMM is then added to it. */
CPU_CLONES static void start_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const bias_job *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *y = j->y + r * j->O;
        const float *res = j->res ? j->res + r * j->O : NULL;
        for (int64_t o = 0; o < j->O; o++) y[o] = (j->bias ? j->bias[o] : 0.0f) + (res ? res[o] : 0.0f);
    }
}

cloob_status linear_cpu(const op_env *env, const op_args *a)
{
    if (a->in[0].dtype == CLOOB_BF16) return linear_bf16(env, a);
    if (linear_frozen(env, a)) return CLOOB_OK;
    int64_t R = tensor_rows(&a->out[0]), O = tensor_cols(&a->out[0]), K = tensor_cols(&a->in[0]);
    bias_job j = { a->in[2].data, a->in[3].data, a->out[0].data, O };
    bool start = j.bias || j.res;
    if (start) pool_for(env->ctx, R, 1 + (1 << 14) / O, start_range, &j);
    cpu_sgemm(env->ctx, false, !a->attr.transposed, R, O, K, 1.0f, a->in[0].data, K, a->in[1].data,
              a->attr.transposed ? O : K, start ? 1.0f : 0.0f, j.y, O);
    return CLOOB_OK;
}

cloob_status linear_dx_cpu(const op_env *env, const op_args *a)
{
    if (a->in[0].dtype == CLOOB_BF16) return linear_dx_bf16(env, a);
    int64_t R = tensor_rows(&a->in[0]), O = tensor_cols(&a->in[0]), K = tensor_cols(&a->out[0]);
    cpu_sgemm(env->ctx, false, a->attr.transposed, R, K, O, 1.0f, a->in[0].data, O, a->in[1].data,
              a->attr.transposed ? O : K, 0.0f, a->out[0].data, K);
    return CLOOB_OK;
}

cloob_status linear_dw_cpu(const op_env *env, const op_args *a)
{
    if (a->in[0].dtype == CLOOB_BF16) return linear_dw_bf16(env, a);
    const float *dy = a->in[0].data, *x = a->in[1].data;
    int64_t R = tensor_rows(&a->in[0]), O = tensor_cols(&a->in[0]), K = tensor_cols(&a->in[1]);
    cpu_sum_columns(env, &a->in[0], NULL, O, a->out[1].data);
    if (!a->out[0].data) return CLOOB_OK;
    if (a->attr.transposed) cpu_sgemm(env->ctx, true, false, K, O, R, 1.0f, x, K, dy, O, 0.0f, a->out[0].data, O);
    else cpu_sgemm(env->ctx, true, false, O, K, R, 1.0f, dy, O, x, K, 0.0f, a->out[0].data, K);
    return CLOOB_OK;
}

/* ---- one GEMM per head --------------------------------------------------------------------------- */

cloob_status heads_project_cpu(const op_env *env, const op_args *a)
{
    if (a->in[0].dtype == CLOOB_BF16) return heads_project_bf16(env, a);
    const float *x = a->in[0].data, *w = a->in[1].data;
    float *u = a->out[0].data;
    int64_t N = a->out[0].dim[0], H = a->out[0].dim[1], C = a->out[0].dim[2], E = a->in[1].dim[0] / H;
    for (int64_t h = 0; h < H; h++)
        cpu_sgemm(env->ctx, false, false, N, C, E, a->attr.scale, x + h * E, H * E, w + h * E * C, C, 0.0f, u + h * C,
                  H * C);
    return CLOOB_OK;
}

cloob_status heads_collect_cpu(const op_env *env, const op_args *a)
{
    if (a->in[0].dtype == CLOOB_BF16) return heads_collect_bf16(env, a);
    const float *s = a->in[0].data, *w = a->in[1].data;
    float *o = a->out[0].data;
    int64_t N = a->in[0].dim[0], H = a->in[0].dim[1], C = a->in[0].dim[2], E = a->in[1].dim[0] / H;
    bias_job j = { a->in[2].data, NULL, o, H * E };
    if (j.bias) pool_for(env->ctx, N, 16, start_range, &j);
    for (int64_t h = 0; h < H; h++)
        cpu_sgemm(env->ctx, false, true, N, E, C, a->attr.scale, s + h * C, H * C, w + h * E * C, C,
                  j.bias ? 1.0f : 0.0f, o + h * E, H * E);
    return CLOOB_OK;
}

cloob_status heads_dw_cpu(const op_env *env, const op_args *a)
{
    if (a->in[0].dtype == CLOOB_BF16) return heads_dw_bf16(env, a);
    const float *x = a->in[0].data, *u = a->in[1].data;
    float *dw = a->out[0].data;
    int64_t N = a->in[1].dim[0], H = a->in[1].dim[1], C = a->in[1].dim[2], E = a->in[2].dim[0] / H;
    cpu_sum_columns(env, &a->in[0], NULL, H * E, a->out[1].data);
    for (int64_t h = 0; h < H && dw; h++)
        cpu_sgemm(env->ctx, true, false, E, C, N, a->attr.scale, x + h * E, H * E, u + h * C, H * C, 0.0f,
                  dw + h * E * C, C);
    return CLOOB_OK;
}
