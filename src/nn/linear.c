/* Rules of the GEMM with bias and residual. */
#include "nn/rules.h"

cloob_status shape_linear(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *bias = &a->in[2], *res = &a->in[3];
    char xs[SHAPE_TEXT], ws[SHAPE_TEXT];
    CLOOB_TRY(rule_dims(ctx, OP_LINEAR, a, 1, 2));
    int64_t K = a->attr.transposed ? w->dim[0] : w->dim[1], O = a->attr.transposed ? w->dim[1] : w->dim[0];
    if (x->ndim < 1 || tensor_cols(x) != K || w->dtype != x->dtype)
        return op_refuse(ctx, OP_LINEAR, "input %s and weight %s do not fit", tensor_shape_text(x, xs),
                         tensor_shape_text(w, ws));
    bool compute = op_has(bias) && bias->dtype == x->dtype && bias->ndim == 1 && bias->dim[0] == O;
    if (!compute) CLOOB_TRY(rule_vector(ctx, OP_LINEAR, a, 2, O));
    rule_like(a, 0, x);
    a->out[0].dim[x->ndim - 1] = O;
    if (op_has(res) && !tensor_same_shape(res, &a->out[0]))
        return op_refuse(ctx, OP_LINEAR, "residual has another shape");
    return CLOOB_OK;
}

int grad_linear(const op_attr *attr, unsigned inputs, op_step *s)
{
    STEP(&s[0], OP_LINEAR_DX, attr, (G(0), IN(1), IN(0)), (D(0)));
    STEP(&s[1], OP_LINEAR_DW, attr, (G(0), IN(0), IN(1)), (D(1), inputs & 4 ? D(2) : REF_NONE));
    if (!(inputs & 8)) return 2;
    STEP(&s[2], OP_COUNT, NULL, (G(0)), (D(3)));
    return 3;
}

cloob_status shape_linear_dx(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[2]);
    return CLOOB_OK;
}

cloob_status shape_linear_dw(cloob_ctx *ctx, op_args *a)
{
    (void)ctx;
    rule_like(a, 0, &a->in[2]);
    a->out[0].dtype = CLOOB_F32;
    RULE_OUT(a, 1, CLOOB_F32, tensor_cols(&a->in[0]));
    return CLOOB_OK;
}
