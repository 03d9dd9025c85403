/* Attention's backward pass by warpgroups (attention_bwd_wide.cu). */
#ifndef NN_CUDA_ATTENTION_BWD_WIDE_H
#define NN_CUDA_ATTENTION_BWD_WIDE_H

#include "nn/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTENTION_WIDE_KINDS = 2 };

/* Whether there is a kernel of this kind for the call: bf16, heads of 64, up to 256 tokens, on Hopper. Kinds differ in
 * the queries they take at a time. */
bool attention_wide_takes(const op_env *env, const op_args *a, int kind);
/* sums: (sequences, 3 C), the sums of each one's dqkv over its rows, or NULL. */
cloob_status attention_wide_run(const op_env *env, const op_args *a, int kind, float *sums);

#ifdef __cplusplus
}
#endif
#endif
