/* Kernels for groups of calls (nn/group.h), and what their launchers share. */
#ifndef NN_CUDA_GROUPS_H
#define NN_CUDA_GROUPS_H

#include "nn/cuda/kernels.h"
#include "nn/group.h"

typedef cloob_status cuda_group_prepare_fn(const op_env *env, op_group *g, bool *claims);
typedef cloob_status cuda_group_fn(const op_env *env, const op_group *g);
typedef void cuda_group_release_fn(const op_env *env, op_group *g);

cuda_group_prepare_fn conv_stats_prepare_cuda, conv_dx_reduce_prepare_cuda, apply_conv_prepare_cuda,
    bn_bwd_conv_prepare_cuda, stem_prepare_cuda, linear_act_prepare_cuda;
cuda_group_fn conv_stats_cuda, conv_dx_reduce_cuda, apply_conv_cuda, bn_bwd_conv_cuda, stem_cuda, linear_act_cuda;
cuda_group_release_fn stem_release_cuda, group_release_cuda; /* the second frees the state alone */

/* Claims the group with a copy of a state of so many bytes. */
cloob_status group_claim_cuda(const op_env *env, op_group *g, const void *state, size_t bytes, bool *claims);

static inline void *group_scratch(const op_group *g, size_t offset) { return (char *)g->scratch + offset; }

/* The first member of this op with the group's scratch: for bn_stats_finish and bn_reduce_finish. */
op_args group_call(const op_group *g, op_id op);

/* Whether a conv2d or conv2d_dx is 1 x 1 in bf16, and nothing but that. */
bool group_is_point(const op_args *conv);

/* The weight (rows, 1, 1, cols) of member `op` as a GEMM reads it, (cols, rows), to scratch. */
cloob_status group_transpose_weight(const op_env *env, const op_group *g, size_t offset, op_id op);

#endif
