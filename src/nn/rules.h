/* Shape and backward rules, by name, for the table; and the helpers they are written with. */
#ifndef NN_RULES_H
#define NN_RULES_H

#include "nn/op.h"

#define OP(id, name, shape, grad) op_shape_fn shape;
#include "nn/op_list.h"
#undef OP

op_grad_fn grad_embed, grad_take_rows, grad_class_tokens, grad_mean_tokens, grad_conv2d, grad_bn_apply, grad_relu,
    grad_add, grad_avgpool2, grad_linear, grad_act, grad_layernorm, grad_l2norm, grad_attention, grad_attention_one,
    grad_heads_project, grad_heads_collect, grad_pool_attention, grad_grid_tokens, grad_grid_positions, grad_mean_rows,
    grad_repeat_row, grad_bias, grad_tanh, grad_dwconv, grad_gate, grad_rope, grad_mask_queries, grad_scale,
    grad_excite;

/* A backward rule of one step; the lists are STEP's. */
#define GRAD_STEP(name, op, ins, outs)                                                                                 \
    int name(const op_attr *attr, unsigned inputs, op_step *s)                                                         \
    {                                                                                                                  \
        (void)inputs;                                                                                                  \
        STEP(&s[0], op, attr, ins, outs);                                                                              \
        return 1;                                                                                                      \
    }

/* out k: shape and type of t, data absent. */
void rule_like(op_args *a, int k, const tensor *t);
/* out k: a type and its dimensions. */
#define RULE_OUT(a, k, dtype, ...) ((a)->out[k] = TENSOR(dtype, NULL, __VA_ARGS__))

/* Refuses unless input k is there with this many dimensions. */
cloob_status rule_dims(cloob_ctx *ctx, op_id op, const op_args *a, int k, int ndim);
/* Refuses unless input k holds sequences: (N, T, ...), or (R, ...) with a table of their starts. */
cloob_status rule_sequences(cloob_ctx *ctx, op_id op, const op_args *a, int k, const tensor *start);
/* Refuses unless input k, when present, is F32 with exactly these dimensions (a gain, a bias, a statistic). */
cloob_status rule_vector(cloob_ctx *ctx, op_id op, const op_args *a, int k, int64_t n);

#endif
