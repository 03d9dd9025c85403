/* Windows that do not overlap, as rows of a matrix. */
#ifndef NN_CUDA_PATCHES_H
#define NN_CUDA_PATCHES_H

#include "nn/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to (N H/K W/K, K K c) = the K x K windows of x (N,H,W,C), the first c channels of each position. */
cloob_status patches_cuda(const op_env *env, void *to, const tensor *x, int64_t K, int64_t c);

#ifdef __cplusplus
}
#endif
#endif
