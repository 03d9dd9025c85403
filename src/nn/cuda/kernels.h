/* Entry points of the cuda backend, and helpers of its host code. */
#ifndef NN_CUDA_KERNELS_H
#define NN_CUDA_KERNELS_H

#include "tensor/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "nn/op.h"

typedef cloob_status cuda_fn(const op_env *env, const op_args *a);
typedef cloob_status cuda_prepare_fn(const op_env *env, op_args *a);
typedef void cuda_release_fn(const op_env *env, op_args *a);

/* attention_one_cuda is declared, but not defined; see table.c. */
#define OP(id, name, shape, grad) cuda_fn name##_cuda;
#include "nn/op_list.h"
#undef OP

cuda_prepare_fn embed_bwd_prepare_cuda, class_tokens_bwd_prepare_cuda, mean_tokens_bwd_prepare_cuda,
    conv2d_prepare_cuda, conv2d_dx_prepare_cuda, conv2d_dw_prepare_cuda, bn_stats_prepare_cuda,
    bn_bwd_reduce_prepare_cuda, linear_prepare_cuda, linear_dx_prepare_cuda, linear_dw_prepare_cuda,
    layernorm_prepare_cuda, layernorm_bwd_prepare_cuda, act_bwd_prepare_cuda, attention_bwd_prepare_cuda,
    heads_project_prepare_cuda, heads_collect_prepare_cuda, heads_dw_prepare_cuda, pool_attention_prepare_cuda,
    pool_attention_bwd_prepare_cuda, bias_bwd_prepare_cuda;

cuda_release_fn conv_release_cuda, linear_release_cuda, heads_release_cuda, pool_release_cuda;

/* ---- parts of several ops; all launch on the stream and return ---------------------------------------- */

/* out (C) F32 = sums over the rows of x (R, C), rows `step` elements apart (0: C), in a fixed order. */
size_t colsum_scratch(const device *d, int64_t R, int64_t C, cloob_dtype dtype);
cloob_status colsum(const op_env *env, const char *op, float *out, const void *x, cloob_dtype dtype, int64_t R,
                    int64_t C, int64_t step, void *scratch);

/* Its second half: out (C) from partial sums (parts, C), in order. */
cloob_status colsum_finish(const op_env *env, const char *op, float *out, const float *partial, int parts, int64_t C);

/* to = from, F32 to BF16 or back or the same. */
cloob_status convert_cuda(const op_env *env, const char *op, void *to, cloob_dtype to_type, const void *from,
                          cloob_dtype from_type, int64_t n);
/* to (rows, to_cols) = from (rows, from_cols), cut or filled with 0, with a change of type. */
cloob_status repad_cuda(const op_env *env, const char *op, void *to, cloob_dtype to_type, int64_t to_cols,
                        const void *from, cloob_dtype from_type, int64_t from_cols, int64_t rows);
/* y (R, C) = relu?(y + bias? + res?), in place; the bias, which may be absent, is F32 or BF16. */
cloob_status bias_res_relu_cuda(const op_env *env, const char *op, void *y, cloob_dtype dtype, const tensor *bias,
                                const void *res, bool relu, int64_t R, int64_t C);

/* The ends of bn_stats and bn_bwd_reduce: partial sums (parts, 2, C) become results, over all ranks. pivot: what was
 * subtracted from x before summing, NULL: its first row. */
cloob_status bn_stats_finish(const op_env *env, const op_args *stats, const float *partial, int parts,
                             const float *pivot);
cloob_status bn_reduce_finish(const op_env *env, const op_args *reduce, const float *partial, int parts);

/* bn_apply of a call whose residual is bn_apply of `shortcut`, which is not written; NULL: an ordinary call. */
cloob_status bn_apply_both_cuda(const op_env *env, const op_args *a, const op_args *shortcut);

static inline int cuda_sms(const op_env *env) { return ((const cuda_state *)env->dev->state)->sms; }

/* Milliseconds that the timed plan of a convolution takes, after prepare; large where nothing was timed. */
float conv_plan_ms(const op_args *a);

/* Milliseconds for a pass over memory at the bandwidth that kernels reach, and its launches. */
static inline float cuda_pass_ms(double bytes) { return (float)(bytes / 4.0e9) + 0.006f; }

/* to (N H/K W/K, K K c) = the K x K windows of x (N,H,W,C), the first c channels of each position. */
cloob_status patches_cuda(const op_env *env, void *to, const tensor *x, int64_t K, int64_t c);

/* Attention without tensor cores, for any width and F32. */
cloob_status attention_plain(const op_env *env, const op_args *a);
cloob_status attention_bwd_plain(const op_env *env, const op_args *a);
/* By Hopper's warpgroups, for heads of 64 in bf16 and up to 256 tokens (attention_bwd_wide.cu): whether there is a
 * kernel for the call. sums: (sequences, 3 C), of each one's dqkv over its rows, or NULL. */
bool attention_bwd_wide_takes(const op_env *env, const op_args *a);
cloob_status attention_bwd_wide(const op_env *env, const op_args *a, float *sums);
/* Packed rows of x behind the last sequence, and of lse (H, rows) where given: 0. */
cloob_status zero_padding_cuda(const op_env *env, const char *op, const op_sequences *s, const tensor *x,
                               const tensor *lse);

static inline size_t cuda_align(size_t bytes) { return (bytes + 255) / 256 * 256; }

#ifdef __cplusplus
}
#endif
#endif
