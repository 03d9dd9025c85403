/* Rules of the ops that read one element, or four. */
#include "nn/rules.h"

cloob_status shape_same(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[0]);
    return CLOOB_OK;
}

cloob_status shape_add(cloob_ctx *ctx, op_args *a)
{
    char s[SHAPE_TEXT], t[SHAPE_TEXT];
    if (!op_has(&a->in[1]) || !tensor_same_shape(&a->in[0], &a->in[1]) || a->in[0].dtype != a->in[1].dtype)
        return op_refuse(ctx, OP_ADD, "%s and %s do not match", tensor_shape_text(&a->in[0], s),
                         tensor_shape_text(&a->in[1], t));
    return shape_same(ctx, a);
}

int grad_add(const op_attr *attr, unsigned inputs, op_step *s)
{
    (void)attr, (void)inputs;
    STEP(&s[0], OP_COUNT, NULL, (G(0)), (D(0)));
    STEP(&s[1], OP_COUNT, NULL, (G(0)), (D(1)));
    return 2;
}

GRAD_STEP(grad_relu, OP_RELU_BWD, (G(0), OUT(0)), (D(0)))

GRAD_STEP(grad_tanh, OP_TANH_BWD, (G(0), OUT(0)), (D(0)))

GRAD_STEP(grad_act, OP_ACT_BWD, (G(0), IN(0)), (D(0)))

/* A bias is of x's type, or absent. */
static cloob_status act_bias(cloob_ctx *ctx, op_id op, const tensor *x, const tensor *bias)
{
    if (!op_has(bias) || (bias->dtype == x->dtype && bias->ndim == 1 && bias->dim[0] == tensor_cols(x)))
        return CLOOB_OK;
    return op_refuse(ctx, op, "the bias needs (%lld) %s", (long long)tensor_cols(x), dtype_name(x->dtype));
}

cloob_status shape_act(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(act_bias(ctx, OP_ACT, &a->in[0], &a->in[1]));
    return shape_same(ctx, a);
}

cloob_status shape_act_bwd(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(act_bias(ctx, OP_ACT_BWD, &a->in[1], &a->in[2]));
    rule_like(a, 0, &a->in[0]);
    rule_like(a, 1, &a->in[1]);
    if (a->attr.sums) RULE_OUT(a, 2, CLOOB_F32, tensor_cols(&a->in[0]));
    return CLOOB_OK;
}

op_args act_recompute(const op_args *backward)
{
    return (op_args){ .attr = backward->attr, .in = { backward->in[1], backward->in[2] }, .out = { backward->out[1] } };
}

cloob_status shape_avgpool2(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_AVGPOOL2, a, 0, 4));
    rule_like(a, 0, &a->in[0]);
    a->out[0].dim[1] /= 2;
    a->out[0].dim[2] /= 2;
    return CLOOB_OK;
}

GRAD_STEP(grad_avgpool2, OP_AVGPOOL2_BWD, (G(0), IN(0)), (D(0)))
