/* Rules of the ops at the beginning and the end of a tower: images, token embeddings, extraction of rows. */
#include "nn/rules.h"

cloob_status shape_image_input(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0];
    CLOOB_TRY(rule_dims(ctx, OP_IMAGE_INPUT, a, 0, 4));
    bool bytes = x->dtype == CLOOB_U8;
    int64_t H = x->dim[bytes ? 1 : 2], W = x->dim[bytes ? 2 : 3], P = image_patch(&a->attr);
    if ((bytes ? x->dim[3] : x->dim[1]) != 3 || a->attr.channels < 3 || (!bytes && x->dtype != CLOOB_F32))
        return op_refuse(ctx, OP_IMAGE_INPUT, "needs (N,H,W,3) bytes or (N,3,H,W) floats");
    if (H % P || W % P)
        return op_refuse(ctx, OP_IMAGE_INPUT, "%lld x %lld does not divide into patches of %lld", (long long)H,
                         (long long)W, (long long)P);
    RULE_OUT(a, 0, a->attr.dtype, x->dim[0], H / P, W / P, P * P * a->attr.channels);
    return CLOOB_OK;
}

cloob_status shape_embed(cloob_ctx *ctx, op_args *a)
{
    const tensor *tokens = &a->in[0], *table = &a->in[1], *pos = &a->in[2];
    for (int k = 0; k < 3; k++) CLOOB_TRY(rule_dims(ctx, OP_EMBED, a, k, 2));
    if (tokens->dtype != CLOOB_I32 || tokens->dim[1] != pos->dim[0] || pos->dim[1] != table->dim[1])
        return op_refuse(ctx, OP_EMBED, "%lld tokens a row, %lld positions; widths %lld and %lld",
                         (long long)tokens->dim[1], (long long)pos->dim[0], (long long)table->dim[1],
                         (long long)pos->dim[1]);
    if (op_has(&a->in[3])) RULE_OUT(a, 0, a->attr.dtype, a->in[3].dim[0], table->dim[1]);
    else RULE_OUT(a, 0, a->attr.dtype, tokens->dim[0], tokens->dim[1], table->dim[1]);
    return CLOOB_OK;
}

GRAD_STEP(grad_embed, OP_EMBED_BWD, (G(0), IN(0), IN(1), IN(2), inputs & 8 ? IN(3) : REF_NONE), (D(1), D(2)))

cloob_status shape_embed_bwd(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[2]);
    rule_like(a, 1, &a->in[3]);
    return CLOOB_OK;
}

cloob_status shape_eot_index(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_EOT_INDEX, a, 0, 2));
    RULE_OUT(a, 0, CLOOB_I32, a->in[0].dim[0]);
    return CLOOB_OK;
}

cloob_status shape_pack_texts(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_PACK_TEXTS, a, 0, 1));
    CLOOB_TRY(rule_dims(ctx, OP_PACK_TEXTS, a, 1, 2));
    int64_t N = a->in[0].dim[0];
    if (a->in[1].dim[0] != N || a->attr.rows < 1)
        return op_refuse(ctx, OP_PACK_TEXTS, "%lld ends of %lld texts, %lld rows", (long long)N,
                         (long long)a->in[1].dim[0], (long long)a->attr.rows);
    RULE_OUT(a, 0, CLOOB_I32, N + 1);
    RULE_OUT(a, 1, CLOOB_I32, a->attr.rows);
    RULE_OUT(a, 2, CLOOB_I32, N);
    RULE_OUT(a, 3, CLOOB_I32, N);
    return CLOOB_OK;
}

/* Of packed rows there is no first one of each sequence: they are named by index. */
cloob_status shape_take_rows(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *index = &a->in[1];
    bool packed = x->ndim == 2 && op_has(index);
    if (!packed) CLOOB_TRY(rule_dims(ctx, OP_TAKE_ROWS, a, 0, 3));
    if (op_has(index) && index->ndim == 2) {
        if (packed || index->dim[0] != x->dim[0] || index->dim[1] > x->dim[1])
            return op_refuse(ctx, OP_TAKE_ROWS, "%lld x %lld rows of %lld x %lld", (long long)index->dim[0],
                             (long long)index->dim[1], (long long)x->dim[0], (long long)x->dim[1]);
        RULE_OUT(a, 0, x->dtype, x->dim[0], index->dim[1], x->dim[2]);
        return CLOOB_OK;
    }
    RULE_OUT(a, 0, x->dtype, packed ? index->dim[0] : x->dim[0], tensor_cols(x));
    return CLOOB_OK;
}

GRAD_STEP(grad_take_rows, OP_TAKE_ROWS_BWD, (G(0), inputs & 2 ? IN(1) : REF_NONE, IN(0), REF_NONE), (D(0)))

cloob_status shape_take_rows_bwd(cloob_ctx *ctx, op_args *a)
{
    if (!(a->in[2].ndim == 2 && op_has(&a->in[1]))) CLOOB_TRY(rule_dims(ctx, OP_TAKE_ROWS_BWD, a, 2, 3));
    rule_like(a, 0, &a->in[2]);
    return CLOOB_OK;
}

/* class_tokens and mean_tokens both turn a grid into a row of tokens with one more in front. */
static cloob_status grid_to_tokens(cloob_ctx *ctx, op_id op, op_args *a, const tensor *pos)
{
    const tensor *x = &a->in[0];
    CLOOB_TRY(rule_dims(ctx, op, a, 0, 4));
    int64_t tokens = 1 + x->dim[1] * x->dim[2], C = x->dim[3];
    if (pos->ndim != 2 || pos->dim[0] != tokens || pos->dim[1] != C)
        return op_refuse(ctx, op, "positional embedding needs (%lld, %lld)", (long long)tokens, (long long)C);
    RULE_OUT(a, 0, x->dtype, x->dim[0], tokens, C);
    return CLOOB_OK;
}

cloob_status shape_class_tokens(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(grid_to_tokens(ctx, OP_CLASS_TOKENS, a, &a->in[2]));
    return rule_vector(ctx, OP_CLASS_TOKENS, a, 1, a->in[0].dim[3]);
}

GRAD_STEP(grad_class_tokens, OP_CLASS_TOKENS_BWD, (G(0), IN(0), IN(1), IN(2)), (D(0), D(1), D(2)))

cloob_status shape_mean_tokens(cloob_ctx *ctx, op_args *a) { return grid_to_tokens(ctx, OP_MEAN_TOKENS, a, &a->in[1]); }

GRAD_STEP(grad_mean_tokens, OP_MEAN_TOKENS_BWD, (G(0), IN(0), IN(1)), (D(0), D(1)))
