/* Rules of attention: over all positions, and for one query per row; over rows of equal length, or packed. */
#include "nn/rules.h"

static cloob_status check_heads(cloob_ctx *ctx, op_id op, int64_t C, int64_t heads)
{
    if (heads > 0 && C % heads == 0) return CLOOB_OK;
    return op_refuse(ctx, op, "width %lld does not divide into %lld heads", (long long)C, (long long)heads);
}

cloob_status shape_attention(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *start = &a->in[1];
    if (x->ndim != 4 || op_has(start)) CLOOB_TRY(rule_sequences(ctx, OP_ATTENTION, a, 0, start));
    int64_t C = tensor_cols(x) / 3, H = a->attr.heads;
    CLOOB_TRY(check_heads(ctx, OP_ATTENTION, C, H));
    if (op_has(start)) {
        RULE_OUT(a, 0, x->dtype, x->dim[0], C);
        RULE_OUT(a, 1, CLOOB_F32, H, x->dim[0]);
    } else {
        rule_like(a, 0, x);
        a->out[0].dim[x->ndim - 1] = C;
        RULE_OUT(a, 1, CLOOB_F32, x->dim[0], H, tensor_rows(x) / x->dim[0]);
    }
    return CLOOB_OK;
}

GRAD_STEP(grad_attention, OP_ATTENTION_BWD, (G(0), IN(0), OUT(0), OUT(1), inputs & 2 ? IN(1) : REF_NONE), (D(0)))

cloob_status shape_attention_bwd(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[1]);
    if (a->attr.sums) RULE_OUT(a, 1, CLOOB_F32, tensor_cols(&a->in[1]));
    return CLOOB_OK;
}

cloob_status shape_attention_one(cloob_ctx *ctx, op_args *a)
{
    const tensor *q = &a->in[0], *kv = &a->in[1], *start = &a->in[3];
    CLOOB_TRY(rule_dims(ctx, OP_ATTENTION_ONE, a, 0, 2));
    CLOOB_TRY(rule_sequences(ctx, OP_ATTENTION_ONE, a, 1, start));
    CLOOB_TRY(check_heads(ctx, OP_ATTENTION_ONE, q->dim[1], a->attr.heads));
    if (op_has(start) && op_has(&a->in[2]))
        return op_refuse(ctx, OP_ATTENTION_ONE, "packed queries see all of their rows: no index");
    if (tensor_cols(kv) != 2 * q->dim[1] || op_sequences_of(&a->attr, kv, start).N != q->dim[0])
        return op_refuse(ctx, OP_ATTENTION_ONE, "queries and keys do not fit");
    rule_like(a, 0, q);
    RULE_OUT(a, 1, CLOOB_F32, q->dim[0], a->attr.heads);
    return CLOOB_OK;
}

GRAD_STEP(grad_attention_one, OP_ATTENTION_ONE_BWD,
          (G(0), IN(0), IN(1), inputs & 4 ? IN(2) : REF_NONE, OUT(0), OUT(1), inputs & 8 ? IN(3) : REF_NONE),
          (D(0), D(1)))
