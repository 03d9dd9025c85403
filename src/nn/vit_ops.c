/* Rules of what ViTs without a class token, with mean or attention pooling, and with layer scale need. */
#include "nn/rules.h"

cloob_status shape_grid_tokens(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *pos = &a->in[2];
    CLOOB_TRY(rule_dims(ctx, OP_GRID_TOKENS, a, 0, 4));
    int64_t tokens = x->dim[1] * x->dim[2], C = x->dim[3];
    CLOOB_TRY(rule_vector(ctx, OP_GRID_TOKENS, a, 1, C));
    if (pos->ndim != 2 || pos->dim[0] != tokens || pos->dim[1] != C)
        return op_refuse(ctx, OP_GRID_TOKENS, "positional embedding needs (%lld, %lld)", (long long)tokens,
                         (long long)C);
    RULE_OUT(a, 0, x->dtype, x->dim[0], tokens, C);
    return CLOOB_OK;
}

GRAD_STEP(grad_grid_tokens, OP_GRID_TOKENS_BWD, (G(0), IN(0), IN(1), IN(2)), (D(0), D(1), D(2)))

cloob_status shape_mean_rows(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0];
    CLOOB_TRY(rule_dims(ctx, OP_MEAN_ROWS, a, 0, 3));
    if (a->attr.rows < 0 || a->attr.rows >= x->dim[1])
        return op_refuse(ctx, OP_MEAN_ROWS, "leaves out %lld of %lld rows", (long long)a->attr.rows,
                         (long long)x->dim[1]);
    RULE_OUT(a, 0, x->dtype, x->dim[0], x->dim[2]);
    return CLOOB_OK;
}

GRAD_STEP(grad_mean_rows, OP_MEAN_ROWS_BWD, (G(0), IN(0)), (D(0)))

cloob_status shape_mean_rows_bwd(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_MEAN_ROWS_BWD, a, 1, 3));
    rule_like(a, 0, &a->in[1]);
    return CLOOB_OK;
}

cloob_status shape_repeat_row(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_REPEAT_ROW, a, 0, 1));
    if (a->attr.rows < 1) return op_refuse(ctx, OP_REPEAT_ROW, "needs a number of rows");
    RULE_OUT(a, 0, a->attr.dtype, a->attr.rows, a->in[0].dim[0]);
    return CLOOB_OK;
}

GRAD_STEP(grad_repeat_row, OP_REPEAT_ROW_BWD, (G(0)), (D(0)))

cloob_status shape_repeat_row_bwd(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_REPEAT_ROW_BWD, a, 0, 2));
    RULE_OUT(a, 0, a->in[0].dtype == CLOOB_F64 ? CLOOB_F64 : CLOOB_F32, a->in[0].dim[1]);
    return CLOOB_OK;
}

cloob_status shape_scale(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_vector(ctx, OP_SCALE, a, 1, tensor_cols(&a->in[0])));
    rule_like(a, 0, &a->in[0]);
    return CLOOB_OK;
}

GRAD_STEP(grad_scale, OP_SCALE_BWD, (G(0), IN(0), IN(1)), (D(0), D(1)))
