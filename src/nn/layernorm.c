/* Rules of layer norm and of scaling rows to unit length. */
#include "nn/rules.h"

cloob_status shape_layernorm(cloob_ctx *ctx, op_args *a)
{
    for (int k = 1; k < 3; k++) CLOOB_TRY(rule_vector(ctx, OP_LAYERNORM, a, k, tensor_cols(&a->in[0])));
    rule_like(a, 0, &a->in[0]);
    for (int k = 1; k < 3; k++) RULE_OUT(a, k, CLOOB_F32, tensor_rows(&a->in[0]));
    return CLOOB_OK;
}

GRAD_STEP(grad_layernorm, OP_LAYERNORM_BWD, (G(0), IN(0), OUT(1), OUT(2), IN(1), REF_NONE), (D(0), D(1), D(2)))

cloob_status shape_layernorm_bwd(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[1]);
    for (int k = 1; k < 3; k++) RULE_OUT(a, k, CLOOB_F32, tensor_cols(&a->in[1]));
    if (op_has(&a->in[6])) rule_like(a, 3, &a->in[1]);
    if (a->attr.sums) RULE_OUT(a, 4, CLOOB_F32, tensor_cols(&a->in[1]));
    return CLOOB_OK;
}

op_args layernorm_recompute(const op_args *backward)
{
    return (op_args){ .attr = backward->attr,
                      .in = { backward->in[1], backward->in[4], backward->in[6] },
                      .out = { backward->out[3] } };
}

cloob_status shape_l2norm(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_L2NORM, a, 0, 2));
    rule_like(a, 0, &a->in[0]);
    if (a->out[0].dtype == CLOOB_BF16) a->out[0].dtype = CLOOB_F32; /* the loss reads embeddings in full precision */
    RULE_OUT(a, 1, CLOOB_F32, a->in[0].dim[0]);
    return CLOOB_OK;
}

GRAD_STEP(grad_l2norm, OP_L2NORM_BWD, (G(0), OUT(0), OUT(1), IN(0)), (D(0)))

cloob_status shape_l2norm_bwd(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[3]);
    return CLOOB_OK;
}
