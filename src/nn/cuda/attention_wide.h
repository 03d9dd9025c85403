/* Attention by Hopper's warpgroups, for heads of 64 in bf16 (attention_wide.cu, attention_bwd_wide.cu). */
#ifndef NN_CUDA_ATTENTION_WIDE_H
#define NN_CUDA_ATTENTION_WIDE_H

#include "nn/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether there is a kernel for the call, and it is the one to take: from 129 tokens on. */
bool attention_wide_takes(const op_env *env, const op_args *a);
cloob_status attention_wide(const op_env *env, const op_args *a);

/* Whether there is one for the backward pass: up to 256 tokens. Timing chooses. */
bool attention_bwd_wide_takes(const op_env *env, const op_args *a);
/* sums: (sequences, 3 C), the sums of each one's dqkv over its rows, or NULL. */
cloob_status attention_bwd_wide(const op_env *env, const op_args *a, float *sums);

/* The same in passes of 128 keys: 129 to 320 tokens, neither causal nor packed, without an 8-bit copy. */
bool attention_bwd_passes_takes(const op_env *env, const op_args *a);
cloob_status attention_bwd_passes(const op_env *env, const op_args *a, float *sums);

#ifdef __cplusplus
}
#endif
#endif
