/* The definitions: every op as a plain, readable loop with double sums, one thread, F32 or BF16
 * (and F64, for slopes). Fast kernels are compared with these. */
#ifndef NN_REF_REF_H
#define NN_REF_REF_H

#include <math.h>

#include "nn/op.h"

static inline double ld(const tensor *t, int64_t i)
{
    if (t->dtype == CLOOB_F32) return (double)((const float *)t->data)[i];
    if (t->dtype == CLOOB_F64) return ((const double *)t->data)[i]; /* tests take slopes in double */
    return (double)bf16_to_float(((const uint16_t *)t->data)[i]);
}

static inline void st(const tensor *t, int64_t i, double v)
{
    if (t->dtype == CLOOB_F32) ((float *)t->data)[i] = (float)v;
    else if (t->dtype == CLOOB_F64) ((double *)t->data)[i] = v;
    else ((uint16_t *)t->data)[i] = bf16_from_float((float)v);
}

static inline bool has(const tensor *t) { return t->data != NULL; }

/* sums (C) of x's columns over its rows; sums may be absent. */
static inline void sum_over_rows(const tensor *sums, const tensor *x)
{
    if (!has(sums)) return;
    int64_t R = tensor_rows(x), C = tensor_cols(x);
    for (int64_t c = 0; c < C; c++) {
        double sum = 0;
        for (int64_t r = 0; r < R; r++) sum += ld(x, r * C + c);
        st(sums, c, sum);
    }
}

static inline void fill_zero(const tensor *t)
{
    for (int64_t i = 0, n = tensor_count(t); i < n; i++) st(t, i, 0.0);
}

typedef void ref_fn(const op_args *a);
/* Of ops that sum over ranks, or that leave out a part of the batch. */
typedef cloob_status ref_env_fn(const op_env *env, const op_args *a);
ref_fn image_input_ref, embed_ref, embed_bwd_ref, eot_index_ref, pack_texts_ref, take_rows_ref, take_rows_bwd_ref,
    class_tokens_ref, class_tokens_bwd_ref, mean_tokens_ref, mean_tokens_bwd_ref, conv2d_ref, conv2d_dx_ref,
    conv2d_dw_ref, bn_running_ref, bn_apply_ref, fold_bn_ref, relu_ref, relu_bwd_ref, add_ref, avgpool2_ref,
    avgpool2_bwd_ref, linear_ref, linear_dx_ref, linear_dw_ref, act_ref, act_bwd_ref, layernorm_ref, layernorm_bwd_ref,
    l2norm_ref, l2norm_bwd_ref, attention_ref, attention_bwd_ref, attention_one_ref, attention_one_bwd_ref,
    heads_project_ref, heads_collect_ref, heads_dw_ref, pool_attention_ref, pool_attention_bwd_ref, text_position_ref,
    grid_tokens_ref, grid_tokens_bwd_ref, mean_rows_ref, mean_rows_bwd_ref, repeat_row_ref, repeat_row_bwd_ref,
    scale_ref, scale_bwd_ref, bias_ref, bias_bwd_ref, tanh_ref, tanh_bwd_ref, grid_positions_bwd_ref, gate_ref,
    gate_bwd_ref, rope_ref, mask_queries_ref, dwconv_ref, dwconv_dx_ref, dwconv_dw_ref, excite_ref, excite_bwd_ref;
ref_env_fn bn_bwd_apply_ref, bn_bwd_reduce_ref, bn_stats_ref, grid_positions_ref, patch_rows_ref;

#endif
