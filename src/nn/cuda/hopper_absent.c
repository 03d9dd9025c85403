/* A build without kernels for Hopper: fused GEMMs and small convolutions decline every shape, so that their callers
 * take cuDNN, cuBLASLt or a kernel for all GPUs. */
#include "nn/cuda/kernels.h"
#include "nn/cuda/stem/conv_small.h"
#include "nn/cuda/fused/prologue_gemm.h"
#include "nn/cuda/linear/act_gemm.h"
#include "nn/cuda/fused_gemm_kernels.h"

const small_kernel small_forward_kernels[] = { { .name = NULL } }, small_dw_kernels[] = { { .name = NULL } },
                   small_first_kernels[] = { { .name = NULL } };

bool fused_gemm_takes(int64_t n, int64_t k) { return (void)n, (void)k, false; }
int fused_gemm_parts(const fused_gemm *p, int sms) { return (void)p, (void)sms, 0; }

cudaError_t fused_gemm_run(cudaStream_t stream, const fused_gemm *p, int sms)
{
    return (void)stream, (void)p, (void)sms, cudaErrorNotSupported;
}

int prologue_gemm_parts(const prologue_gemm *p, int sms) { return (void)p, (void)sms, 0; }

cudaError_t prologue_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    return (void)stream, (void)p, (void)sms, cudaErrorNotSupported;
}

cudaError_t transpose_bf16(cudaStream_t stream, void *to, const void *from, int64_t rows, int64_t cols)
{
    return (void)stream, (void)to, (void)from, (void)rows, (void)cols, cudaErrorNotSupported;
}

int act_gemm_parts(const act_gemm *g, int sms) { return (void)g, (void)sms, 0; }

int act_gemm_run(void *stream, const act_gemm *g, int sms)
{
    return (void)stream, (void)g, (void)sms, cudaErrorNotSupported;
}

bool attention_bwd_wide_takes(const op_env *env, const op_args *a) { return (void)env, (void)a, false; }

cloob_status attention_bwd_wide(const op_env *env, const op_args *a, float *sums)
{
    (void)a, (void)sums;
    return ctx_fail(env->ctx, CLOOB_ERR_UNSUPPORTED, "attention by warpgroups: this build has no kernels for Hopper");
}
