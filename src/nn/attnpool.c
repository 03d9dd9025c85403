/* Rules of the attention pool's parts, and of a transformer's last block. Only one token's query is needed, the key
 * bias cancels in the softmax, and the value projection commutes with the weighted mean; so keys and values are never
 * formed (docs/explanation/attention-pool.md). */
#include "nn/rules.h"

cloob_status shape_heads_project(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1];
    CLOOB_TRY(rule_dims(ctx, OP_HEADS_PROJECT, a, 0, 2));
    CLOOB_TRY(rule_dims(ctx, OP_HEADS_PROJECT, a, 1, 2));
    if (x->dim[1] != w->dim[0] || a->attr.heads < 1 || w->dim[0] % a->attr.heads || x->dtype != w->dtype)
        return op_refuse(ctx, OP_HEADS_PROJECT, "width %lld does not divide into %lld heads", (long long)w->dim[0],
                         (long long)a->attr.heads);
    RULE_OUT(a, 0, x->dtype, x->dim[0], a->attr.heads, w->dim[1]);
    return CLOOB_OK;
}

int grad_heads_project(const op_attr *attr, unsigned inputs, op_step *s)
{
    (void)inputs;
    STEP(&s[0], OP_HEADS_COLLECT, attr, (G(0), IN(1), REF_NONE), (D(0)));
    STEP(&s[1], OP_HEADS_DW, attr, (IN(0), G(0), IN(1)), (D(1), REF_NONE));
    return 2;
}

cloob_status shape_heads_collect(cloob_ctx *ctx, op_args *a)
{
    const tensor *s = &a->in[0], *w = &a->in[1], *bias = &a->in[2];
    CLOOB_TRY(rule_dims(ctx, OP_HEADS_COLLECT, a, 0, 3));
    CLOOB_TRY(rule_dims(ctx, OP_HEADS_COLLECT, a, 1, 2));
    if (s->dim[1] != a->attr.heads || s->dim[2] != w->dim[1] || w->dim[0] % a->attr.heads || s->dtype != w->dtype)
        return op_refuse(ctx, OP_HEADS_COLLECT, "sizes do not fit");
    bool compute = op_has(bias) && bias->dtype == s->dtype && bias->ndim == 1 && bias->dim[0] == w->dim[0];
    if (!compute) CLOOB_TRY(rule_vector(ctx, OP_HEADS_COLLECT, a, 2, w->dim[0]));
    RULE_OUT(a, 0, s->dtype, s->dim[0], w->dim[0]);
    return CLOOB_OK;
}

int grad_heads_collect(const op_attr *attr, unsigned inputs, op_step *s)
{
    STEP(&s[0], OP_HEADS_PROJECT, attr, (G(0), IN(1)), (D(0)));
    STEP(&s[1], OP_HEADS_DW, attr, (G(0), IN(0), IN(1)), (D(1), inputs & 4 ? D(2) : REF_NONE));
    return 2;
}

cloob_status shape_heads_dw(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_HEADS_DW, a, 2, 2));
    rule_like(a, 0, &a->in[2]);
    a->out[0].dtype = CLOOB_F32;
    RULE_OUT(a, 1, CLOOB_F32, a->in[2].dim[0]);
    return CLOOB_OK;
}

cloob_status shape_pool_attention(cloob_ctx *ctx, op_args *a)
{
    const tensor *t = &a->in[0], *u = &a->in[1], *index = &a->in[2], *start = &a->in[3];
    CLOOB_TRY(rule_sequences(ctx, OP_POOL_ATTENTION, a, 0, start));
    CLOOB_TRY(rule_dims(ctx, OP_POOL_ATTENTION, a, 1, 3));
    if (op_has(start) && op_has(index))
        return op_refuse(ctx, OP_POOL_ATTENTION, "packed queries see all of their rows: no index");
    op_sequences s = op_sequences_of(&a->attr, t, start);
    if (s.N != u->dim[0] || tensor_cols(t) != u->dim[2] || (op_has(index) && tensor_count(index) != s.N))
        return op_refuse(ctx, OP_POOL_ATTENTION, "sizes do not fit");
    rule_like(a, 0, u);
    /* probabilities are never kept shorter than F32; slopes in tests are taken in double throughout */
    RULE_OUT(a, 1, u->dtype == CLOOB_F64 ? CLOOB_F64 : CLOOB_F32, s.N, u->dim[1], s.T);
    return CLOOB_OK;
}

GRAD_STEP(grad_pool_attention, OP_POOL_ATTENTION_BWD,
          (G(0), IN(0), IN(1), OUT(1), inputs & 4 ? IN(2) : REF_NONE, inputs & 8 ? IN(3) : REF_NONE), (D(0), D(1)))
