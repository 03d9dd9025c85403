/* Rules of the convolution. */
#include "nn/rules.h"

static int64_t out_size(int64_t in, int64_t kernel, const op_attr *attr)
{
    return (in + 2 * attr->pad - kernel) / attr->stride + 1;
}

cloob_status shape_conv2d(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1];
    char xs[SHAPE_TEXT], ws[SHAPE_TEXT];
    CLOOB_TRY(rule_dims(ctx, OP_CONV2D, a, 0, 4));
    CLOOB_TRY(rule_dims(ctx, OP_CONV2D, a, 1, 4));
    if (w->dim[3] > x->dim[3] || w->dim[1] != w->dim[2] || w->dtype != x->dtype || a->attr.stride < 1 ||
        x->dim[1] + 2 * a->attr.pad < w->dim[1] || x->dim[2] + 2 * a->attr.pad < w->dim[1])
        return op_refuse(ctx, OP_CONV2D, "image %s and weight %s do not fit", tensor_shape_text(x, xs),
                         tensor_shape_text(w, ws));
    CLOOB_TRY(rule_vector(ctx, OP_CONV2D, a, 2, w->dim[0]));
    RULE_OUT(a, 0, x->dtype, x->dim[0], out_size(x->dim[1], w->dim[1], &a->attr),
             out_size(x->dim[2], w->dim[2], &a->attr), w->dim[0]);
    return CLOOB_OK;
}

int grad_conv2d(const op_attr *attr, unsigned inputs, op_step *s)
{
    (void)inputs;
    STEP(&s[0], OP_CONV2D_DX, attr, (G(0), IN(1), IN(0)), (D(0)));
    STEP(&s[1], OP_CONV2D_DW, attr, (G(0), IN(0), IN(1)), (D(1)));
    return 2;
}

cloob_status shape_conv2d_dx(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_CONV2D_DX, a, 2, 4));
    rule_like(a, 0, &a->in[2]);
    return CLOOB_OK;
}

cloob_status shape_conv2d_dw(cloob_ctx *ctx, op_args *a)
{
    CLOOB_TRY(rule_dims(ctx, OP_CONV2D_DW, a, 2, 4));
    rule_like(a, 0, &a->in[2]);
    a->out[0].dtype = CLOOB_F32;
    return CLOOB_OK;
}

cloob_status shape_dwconv(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1];
    char xs[SHAPE_TEXT], ws[SHAPE_TEXT];
    CLOOB_TRY(rule_dims(ctx, OP_DWCONV, a, 0, 4));
    CLOOB_TRY(rule_dims(ctx, OP_DWCONV, a, 1, 4));
    if (w->dim[0] % x->dim[3] || w->dim[3] != 1 || w->dim[1] != w->dim[2] || w->dim[1] % 2 == 0 ||
        w->dtype != x->dtype || a->attr.stride < 1)
        return op_refuse(ctx, OP_DWCONV, "image %s and weight %s do not fit", tensor_shape_text(x, xs),
                         tensor_shape_text(w, ws));
    CLOOB_TRY(rule_vector(ctx, OP_DWCONV, a, 2, w->dim[0]));
    RULE_OUT(a, 0, x->dtype, x->dim[0], (x->dim[1] - 1) / a->attr.stride + 1, (x->dim[2] - 1) / a->attr.stride + 1,
             w->dim[0]);
    return CLOOB_OK;
}

int grad_dwconv(const op_attr *attr, unsigned inputs, op_step *s)
{
    STEP(&s[0], OP_DWCONV_DX, attr, (G(0), IN(1), IN(0)), (D(0)));
    STEP(&s[1], OP_DWCONV_DW, attr, (G(0), IN(0), IN(1)), (D(1)));
    if (inputs & 4) STEP(&s[2], OP_BIAS_BWD, attr, (G(0), IN(2)), (D(2)));
    return inputs & 4 ? 3 : 2;
}
