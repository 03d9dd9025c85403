/* Convolutions of either element type: F32 by oneDNN (conv.c) or, without it, BLAS (conv_gemm.c); bf16 by our own
 * GEMM (conv_bf16.c); patches that do not overlap, in inference, by packed weights (conv_patches.c). */
#include "nn/cpu/conv_patches.h"
#include "nn/cpu/gemm_bf16.h"

cloob_status conv2d_prepare(const op_env *env, op_args *a)
{
    if (conv_patches_fit(env, a)) return conv_patches_prepare(env, a);
    return CPU_PICK(a->in[0], conv2d_prepare_of)(env, a);
}

cloob_status conv2d_dx_prepare(const op_env *env, op_args *a)
{
    return CPU_PICK(a->in[0], conv2d_dx_prepare_of)(env, a);
}

cloob_status conv2d_dw_prepare(const op_env *env, op_args *a)
{
    return CPU_PICK(a->in[0], conv2d_dw_prepare_of)(env, a);
}

cloob_status conv2d_cpu(const op_env *env, const op_args *a)
{
    return conv_patches_fit(env, a) ? conv_patches(env, a) : CPU_PICK(a->in[0], conv2d)(env, a);
}

cloob_status conv2d_dx_cpu(const op_env *env, const op_args *a) { return CPU_PICK(a->in[0], conv2d_dx)(env, a); }

cloob_status conv2d_dw_cpu(const op_env *env, const op_args *a) { return CPU_PICK(a->in[0], conv2d_dw)(env, a); }

void conv2d_release(const op_env *env, op_args *a)
{
    if (conv_patches_fit(env, a)) return; /* keeps nothing of its own */
    if (a->in[0].dtype == CLOOB_BF16) gemm_bf16_release(a);
    else conv2d_f32_release(env, a);
}
