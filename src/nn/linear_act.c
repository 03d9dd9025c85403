/* Rules of a GEMM with the activation behind it, or before its gradient, in one (op_list.h): the two calls, and
 * shapes. */
#include "nn/rules.h"

static op_args empty_call(const op_args *a)
{
    op_args r = { .attr = a->attr, .scratch = a->scratch };
    for (int k = 0; k < OP_INPUTS; k++) r.in[k] = ABSENT;
    for (int k = 0; k < OP_OUTPUTS; k++) r.out[k] = ABSENT;
    return r;
}

/* Where nobody wants pre, it lies where y will be. */
op_args fused_linear(const op_args *a)
{
    op_args r = empty_call(a);
    r.in[0] = a->in[0], r.in[1] = a->in[1];
    r.out[0] = a->out[op_has(&a->out[0]) ? 0 : 1];
    return r;
}

op_args fused_act(const op_args *a)
{
    op_args r = empty_call(a);
    r.in[0] = a->out[op_has(&a->out[0]) ? 0 : 1], r.in[1] = a->in[2];
    r.out[0] = a->out[1];
    return r;
}

/* The gradient of the activation goes where that of pre will be. */
op_args fused_linear_dx(const op_args *a)
{
    op_args r = empty_call(a);
    for (int k = 0; k < 3; k++) r.in[k] = a->in[k];
    r.out[0] = a->out[0];
    return r;
}

op_args fused_act_bwd(const op_args *a)
{
    op_args r = empty_call(a);
    r.in[0] = a->out[0], r.in[1] = a->in[2], r.in[2] = a->in[3];
    for (int k = 0; k < 3; k++) r.out[k] = a->out[k];
    return r;
}

cloob_status shape_linear_act(cloob_ctx *ctx, op_args *a)
{
    a->out[0] = (tensor){ 0 }; /* wanted, as far as shapes go */
    op_args linear = fused_linear(a);
    CLOOB_TRY(shape_linear(ctx, &linear));
    a->out[0] = linear.out[0];
    op_args act = fused_act(a);
    CLOOB_TRY(shape_act(ctx, &act));
    a->out[1] = act.out[0];
    return CLOOB_OK;
}

cloob_status shape_linear_dx_act(cloob_ctx *ctx, op_args *a)
{
    const tensor *dy = &a->in[0], *w = &a->in[1], *pre = &a->in[2];
    CLOOB_TRY(rule_dims(ctx, OP_LINEAR_DX_ACT, a, 1, 2));
    if (!op_has(pre) || tensor_cols(dy) != w->dim[0] || tensor_cols(pre) != w->dim[1] || w->dtype != dy->dtype ||
        pre->dtype != dy->dtype || tensor_rows(dy) != tensor_rows(pre))
        return op_refuse(ctx, OP_LINEAR_DX_ACT, "gradient, weight and x do not fit");
    a->out[0] = *pre;
    op_args act = fused_act_bwd(a);
    CLOOB_TRY(shape_act_bwd(ctx, &act));
    for (int k = 0; k < 3; k++) a->out[k] = act.out[k];
    return CLOOB_OK;
}
