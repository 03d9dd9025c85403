/* Rules of the ops for ViTs without a class token, with mean or attention pooling, layer scale, rotary positions and
 * gates. */
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

GRAD_STEP(grad_grid_tokens, OP_GRID_TOKENS_BWD, (G(0), IN(0), inputs & 2 ? IN(1) : REF_NONE, IN(2)),
          (D(0), inputs & 2 ? D(1) : REF_NONE, D(2)))

cloob_status shape_patch_rows(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0];
    int64_t row = 3 * a->attr.patch * a->attr.patch;
    CLOOB_TRY(rule_dims(ctx, OP_PATCH_ROWS, a, 0, 4));
    if (x->dtype != CLOOB_U8 || a->attr.patch < 1 || a->attr.rows < 1 ||
        x->dim[1] * x->dim[2] * x->dim[3] < a->attr.rows * row + 4)
        return op_refuse(ctx, OP_PATCH_ROWS, "records too short for %lld patches of %lld", (long long)a->attr.rows,
                         (long long)a->attr.patch);
    RULE_OUT(a, 0, a->attr.dtype, x->dim[0] * a->attr.rows, row);
    RULE_OUT(a, 1, CLOOB_I32, x->dim[0] + 1);
    RULE_OUT(a, 2, CLOOB_I32, x->dim[0], 2);
    return CLOOB_OK;
}

cloob_status shape_grid_positions(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *pos = &a->in[1];
    int64_t side = 1;
    for (int i = 0; i < 2; i++) CLOOB_TRY(rule_dims(ctx, OP_GRID_POSITIONS, a, i, 2));
    CLOOB_TRY(rule_dims(ctx, OP_GRID_POSITIONS, a, 2, 1));
    CLOOB_TRY(rule_dims(ctx, OP_GRID_POSITIONS, a, 3, 2));
    while (side * side < pos->dim[0]) side++;
    if (side * side != pos->dim[0] || side > OP_GRID_SIDE || pos->dim[1] != x->dim[1] || a->in[3].dim[1] != 2 ||
        a->in[2].dim[0] != a->in[3].dim[0] + 1)
        return op_refuse(ctx, OP_GRID_POSITIONS, "%lld positions of %lld for rows of %lld", (long long)pos->dim[0],
                         (long long)pos->dim[1], (long long)x->dim[1]);
    rule_like(a, 0, x);
    return CLOOB_OK;
}

int grad_grid_positions(const op_attr *attr, unsigned inputs, op_step *s)
{
    (void)inputs;
    STEP(&s[0], OP_COUNT, NULL, (G(0)), (D(0)));
    STEP(&s[1], OP_GRID_POSITIONS_BWD, attr, (G(0), IN(1), IN(2), IN(3)), (D(1)));
    return 2;
}

cloob_status shape_mean_rows(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *start = &a->in[1];
    if (x->ndim != 4) CLOOB_TRY(rule_sequences(ctx, OP_MEAN_ROWS, a, 0, start));
    op_sequences s = op_sequences_of(&a->attr, x, start);
    if (a->attr.rows < 0 || a->attr.rows >= (op_has(start) ? 1 : s.T))
        return op_refuse(ctx, OP_MEAN_ROWS, "leaves out %lld of %lld rows", (long long)a->attr.rows, (long long)s.T);
    RULE_OUT(a, 0, x->dtype, s.N, tensor_cols(x));
    return CLOOB_OK;
}

GRAD_STEP(grad_mean_rows, OP_MEAN_ROWS_BWD, (G(0), IN(0), inputs & 2 ? IN(1) : REF_NONE), (D(0)))

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

cloob_status shape_bias(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *bias = &a->in[1];
    int64_t C = tensor_cols(x);
    bool keyless = bias->ndim == 1 && 3 * bias->dim[0] == 2 * C;
    CLOOB_TRY(rule_vector(ctx, OP_BIAS, a, 1, keyless ? bias->dim[0] : C));
    rule_like(a, 0, x);
    return CLOOB_OK;
}

int grad_bias(const op_attr *attr, unsigned inputs, op_step *s)
{
    (void)inputs;
    STEP(&s[0], OP_COUNT, NULL, (G(0)), (D(0)));
    STEP(&s[1], OP_BIAS_BWD, attr, (G(0), IN(1)), (D(1)));
    return 2;
}

cloob_status shape_gate(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0];
    if (x->ndim < 1 || tensor_cols(x) % 2) return op_refuse(ctx, OP_GATE, "needs two halves");
    rule_like(a, 0, x);
    a->out[0].dim[x->ndim - 1] /= 2;
    return CLOOB_OK;
}

GRAD_STEP(grad_gate, OP_GATE_BWD, (G(0), IN(0)), (D(0)))

cloob_status shape_excite(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *g = &a->in[1];
    CLOOB_TRY(rule_dims(ctx, OP_EXCITE, a, 0, 4));
    CLOOB_TRY(rule_dims(ctx, OP_EXCITE, a, 1, 2));
    if (g->dim[0] != x->dim[0] || g->dim[1] != x->dim[3] || g->dtype != x->dtype)
        return op_refuse(ctx, OP_EXCITE, "needs one gate for each image and channel");
    rule_like(a, 0, x);
    return CLOOB_OK;
}

GRAD_STEP(grad_excite, OP_EXCITE_BWD, (G(0), IN(0), IN(1)), (D(0), D(1)))

cloob_status shape_rope(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0];
    const op_attr *at = &a->attr;
    CLOOB_TRY(rule_dims(ctx, OP_ROPE, a, 0, 3));
    int64_t C = x->dim[2] / 3;
    if (x->dim[2] % 3 || at->heads < 1 || C % at->heads || C / at->heads % 4 || at->tokens < 1 || at->rows < 0)
        return op_refuse(ctx, OP_ROPE, "%lld columns in %lld heads, a grid of %lld", (long long)x->dim[2],
                         (long long)at->heads, (long long)at->tokens);
    rule_like(a, 0, x);
    return CLOOB_OK;
}

int grad_rope(const op_attr *attr, unsigned inputs, op_step *s)
{
    op_attr back = *attr;
    (void)inputs;
    back.inverse = !attr->inverse;
    STEP(&s[0], OP_ROPE, &back, (G(0)), (D(0)));
    return 1;
}

cloob_status shape_mask_queries(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_MASK_QUERIES, a, 0, 3));
    CLOOB_TRY(rule_dims(ctx, OP_MASK_QUERIES, a, 1, 1));
    if (a->in[0].dim[2] % 3 || a->in[1].dim[0] != a->in[0].dim[0])
        return op_refuse(ctx, OP_MASK_QUERIES, "needs queries, keys and values, and one index per sequence");
    rule_like(a, 0, &a->in[0]);
    return CLOOB_OK;
}

GRAD_STEP(grad_mask_queries, OP_MASK_QUERIES, (G(0), IN(1)), (D(0)))
