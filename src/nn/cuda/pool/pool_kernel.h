/* The attention pool of an image in one launch: scores, softmax and what they mix, a block to an image.
 *
 * bf16, widths that are multiples of 32; tokens and heads as far as shared memory goes. cuda/attnpool.c has GEMMs for
 * the rest. */
#ifndef NN_CUDA_POOL_POOL_KERNEL_H
#define NN_CUDA_POOL_POOL_KERNEL_H

#include "nn/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Warps of a block; more of them leave fewer images on the GPU at a time, whose rows then stay in the L2 cache. */
enum { POOL_FORWARD_WARPS = 8, POOL_BACKWARD_WARPS = 16 };

/* Whether a block of so many warps (4, 8 or 16) can do it. */
bool pool_kernel_fits(const device *d, int warps, cloob_dtype dtype, int64_t T, int64_t C, int64_t H);

/* The ops of op_list.h; p of the first may be absent, either result of the second. */
cloob_status pool_kernel(const op_env *env, const op_args *a, int warps);
cloob_status pool_kernel_bwd(const op_env *env, const op_args *a, int warps);

#ifdef __cplusplus
}
#endif
#endif
