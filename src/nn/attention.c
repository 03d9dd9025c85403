/* Rules of attention: over all positions, and for one query per row. */
#include "nn/rules.h"

static cloob_status check_heads(cloob_ctx *ctx, op_id op, int64_t C, int64_t heads)
{
    if (heads > 0 && C % heads == 0) return CLOOB_OK;
    return op_refuse(ctx, op, "width %lld does not divide into %lld heads", (long long)C, (long long)heads);
}

cloob_status shape_attention(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0];
    CLOOB_TRY(rule_dims(ctx, OP_ATTENTION, a, 0, 3));
    CLOOB_TRY(check_heads(ctx, OP_ATTENTION, x->dim[2] / 3, a->attr.heads));
    RULE_OUT(a, 0, x->dtype, x->dim[0], x->dim[1], x->dim[2] / 3);
    RULE_OUT(a, 1, CLOOB_F32, x->dim[0], a->attr.heads, x->dim[1]);
    return CLOOB_OK;
}

int grad_attention(const op_attr *attr, unsigned inputs, op_step *s)
{
    (void)inputs;
    STEP(&s[0], OP_ATTENTION_BWD, attr, (G(0), IN(0), OUT(0), OUT(1)), (D(0)));
    return 1;
}

cloob_status shape_attention_bwd(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[1]);
    return CLOOB_OK;
}

cloob_status shape_attention_one(cloob_ctx *ctx, op_args *a)
{
    const tensor *q = &a->in[0], *kv = &a->in[1];
    CLOOB_TRY(rule_dims(ctx, OP_ATTENTION_ONE, a, 0, 2));
    CLOOB_TRY(rule_dims(ctx, OP_ATTENTION_ONE, a, 1, 3));
    CLOOB_TRY(check_heads(ctx, OP_ATTENTION_ONE, q->dim[1], a->attr.heads));
    if (kv->dim[2] != 2 * q->dim[1] || kv->dim[0] != q->dim[0])
        return op_refuse(ctx, OP_ATTENTION_ONE, "queries and keys do not fit");
    rule_like(a, 0, q);
    RULE_OUT(a, 1, CLOOB_F32, q->dim[0], a->attr.heads);
    return CLOOB_OK;
}

int grad_attention_one(const op_attr *attr, unsigned inputs, op_step *s)
{
    STEP(&s[0], OP_ATTENTION_ONE_BWD, attr, (G(0), IN(0), IN(1), inputs & 4 ? IN(2) : REF_NONE, OUT(0), OUT(1)), (D(0), D(1)));
    return 1;
}

cloob_status shape_attention_one_bwd(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[1]);
    rule_like(a, 1, &a->in[2]);
    return CLOOB_OK;
}
