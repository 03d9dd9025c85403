/* Rules of ops that are two others, one after the other (op_list.h). */
#include "nn/rules.h"

op_args fused_conv(const op_args *a)
{
    return (op_args){
        .attr = a->attr, .in = { a->in[0], a->in[1], ABSENT, ABSENT }, .out = { a->out[0] }, .scratch = a->scratch
    };
}

op_args fused_stats(const op_args *a)
{
    return (op_args){
        .attr = a->attr, .in = { a->out[0], a->in[2], a->in[3] }, .out = { a->out[1], a->out[2] }, .scratch = a->scratch
    };
}

/* The gradient of x goes where g will be. */
op_args fused_conv_dx(const op_args *a)
{
    return (op_args){
        .attr = a->attr, .in = { a->in[0], a->in[1], a->in[3] }, .out = { a->out[3] }, .scratch = a->scratch
    };
}

op_args fused_conv_dw(const op_args *a)
{
    return (op_args){
        .attr = a->attr, .in = { a->in[0], a->in[8], a->in[1] }, .out = { a->out[4] }, .scratch = a->scratch
    };
}

op_args fused_reduce(const op_args *a)
{
    op_args r = { .attr = a->attr,
                  .in = { a->out[3] },
                  .out = { a->out[0], a->out[1], a->out[2], a->out[3], ABSENT },
                  .scratch = a->scratch };
    for (int k = 1; k < 8; k++) r.in[k] = a->in[k + 1];
    return r;
}

op_args fused_spread(const op_args *a)
{
    return (op_args){ .attr = a->attr, .in = { a->in[2], a->in[3] }, .out = { a->out[5] }, .scratch = a->scratch };
}

op_args fused_pooled(const op_args *a)
{
    return (op_args){ .attr = a->attr, .in = { a->in[8] }, .out = { a->out[6] }, .scratch = a->scratch };
}

op_args fused_spread_reduce(const op_args *a)
{
    op_args r = *a;
    r.in[2] = a->out[5];
    r.attr.spread = false;
    return r;
}

op_args fused_apply(const op_args *a)
{
    op_args r = { .attr = a->attr, .out = { a->out[3] }, .scratch = a->scratch };
    for (int k = 0; k < 6; k++) r.in[k] = a->in[k];
    for (int k = 6; k < 10; k++) r.in[k] = a->in[k + 3];
    return r;
}

/* The attributes are both ops', but relu is the apply's. */
op_args fused_applied_conv(const op_args *a)
{
    op_args r = { .attr = a->attr,
                  .in = { a->out[3], a->in[6], a->in[7], a->in[8] },
                  .out = { a->out[0], a->out[1], a->out[2] },
                  .scratch = a->scratch };
    r.attr.relu = false;
    return r;
}

op_args fused_applied_pool(const op_args *a)
{
    return (op_args){ .attr = a->attr, .in = { a->out[3] }, .out = { a->out[4] }, .scratch = a->scratch };
}

op_args fused_bwd_apply(const op_args *a)
{
    op_args r = { .attr = a->attr, .out = { a->out[0] }, .scratch = a->scratch };
    for (int k = 0; k < 7; k++) r.in[k] = a->in[k];
    r.in[7] = ABSENT;
    return r;
}

op_args fused_applied_dx(const op_args *a)
{
    return (op_args){
        .attr = a->attr, .in = { a->out[0], a->in[7], a->out[1] }, .out = { a->out[1] }, .scratch = a->scratch
    };
}

op_args fused_second_apply(const op_args *a)
{
    op_args r = { .attr = a->attr, .out = { a->out[3] }, .scratch = a->scratch };
    for (int k = 0; k < 5; k++) r.in[k] = a->in[k + 8];
    r.in[5] = ABSENT;
    r.attr.relu = true;
    return r;
}

/* It writes a2 on its way, as the apply would. */
op_args fused_second_reduce(const op_args *a)
{
    op_args r = { .attr = a->attr,
                  .in = { a->out[1], ABSENT },
                  .out = { a->out[4], a->out[5], a->out[6], ABSENT, a->out[3] },
                  .scratch = a->scratch };
    for (int k = 0; k < 5; k++) r.in[k + 2] = a->in[k + 8];
    r.in[7] = ABSENT;
    r.attr.relu = true;
    return r;
}

op_args fused_applied_dw(const op_args *a)
{
    tensor a2 = op_has(&a->in[9]) ? a->out[3] : a->in[8];
    return (op_args){ .attr = a->attr, .in = { a->out[0], a2, a->in[7] }, .out = { a->out[2] }, .scratch = a->scratch };
}

op_args fused_image(const op_args *a)
{
    return (op_args){ .attr = a->attr, .in = { a->in[0] }, .out = { a->out[3] }, .scratch = a->scratch };
}

op_args fused_image_conv(const op_args *a)
{
    return (op_args){ .attr = a->attr,
                      .in = { a->out[3], a->in[1], a->in[2], a->in[3] },
                      .out = { a->out[0], a->out[1], a->out[2] },
                      .scratch = a->scratch };
}

op_args fused_dw_image(const op_args *a)
{
    return (op_args){ .attr = a->attr, .in = { a->in[1] }, .out = { a->out[1] }, .scratch = a->scratch };
}

op_args fused_image_dw(const op_args *a)
{
    return (op_args){
        .attr = a->attr, .in = { a->in[0], a->out[1], a->in[2] }, .out = { a->out[0] }, .scratch = a->scratch
    };
}

op_args fused_stem_apply(const op_args *a)
{
    op_args r = { .attr = a->attr, .out = { a->out[3] }, .scratch = a->scratch };
    for (int k = 0; k < 5; k++) r.in[k] = a->in[k];
    r.in[5] = ABSENT;
    return r;
}

/* The attributes are both ops', but relu is the apply's. */
op_args fused_stem_conv(const op_args *a)
{
    op_args r = { .attr = a->attr,
                  .in = { a->out[3], a->in[5], a->in[6], a->in[7] },
                  .out = { a->out[0], a->out[1], a->out[2] },
                  .scratch = a->scratch };
    r.attr.relu = false;
    return r;
}

op_args fused_dw_bwd(const op_args *a)
{
    op_args r = { .attr = a->attr, .out = { a->out[1] }, .scratch = a->scratch };
    for (int k = 0; k < 7; k++) r.in[k] = a->in[k];
    r.in[7] = ABSENT;
    return r;
}

op_args fused_bwd_dw(const op_args *a)
{
    return (op_args){
        .attr = a->attr, .in = { a->out[1], a->in[7], a->in[8] }, .out = { a->out[0], a->out[2] }, .scratch = a->scratch
    };
}

/* ---- shapes -------------------------------------------------------------------------------------- */

cloob_status shape_conv_stats(cloob_ctx *ctx, op_args *a)
{
    op_args conv = fused_conv(a);
    CLOOB_TRY(shape_conv2d(ctx, &conv));
    a->out[0] = conv.out[0];
    op_args stats = fused_stats(a);
    CLOOB_TRY(shape_bn_stats(ctx, &stats));
    for (int k = 0; k < 2; k++) a->out[k + 1] = stats.out[k];
    return CLOOB_OK;
}

cloob_status shape_conv_dx_reduce(cloob_ctx *ctx, op_args *a)
{
    const tensor *w = &a->in[1], *x = &a->in[3];
    CLOOB_TRY(rule_dims(ctx, OP_CONV_DX_REDUCE, a, 1, 4));
    CLOOB_TRY(rule_dims(ctx, OP_CONV_DX_REDUCE, a, 3, 4));
    if (w->dim[1] != 1 || a->attr.stride != 1 || a->attr.pad || a->attr.pool || w->dim[3] != x->dim[3] ||
        !op_has(&a->in[2]) || !op_has(&a->in[8]))
        return op_refuse(ctx, OP_CONV_DX_REDUCE, "a 1 x 1 convolution of x, a second gradient and y are needed");
    if (a->attr.spread) {
        op_args spread = fused_spread(a);
        if (x->dim[1] % 2 || x->dim[2] % 2) return op_refuse(ctx, OP_CONV_DX_REDUCE, "spread needs even sides");
        CLOOB_TRY(shape_avgpool2_bwd(ctx, &spread));
        a->out[5] = spread.out[0];
    }
    if (a->attr.pooled) {
        op_args pooled = fused_pooled(a);
        CLOOB_TRY(shape_avgpool2(ctx, &pooled));
        a->out[6] = pooled.out[0];
    }
    op_args apart = a->attr.spread ? fused_spread_reduce(a) : *a, reduce = fused_reduce(&apart);
    CLOOB_TRY(shape_bn_bwd_reduce(ctx, &reduce));
    for (int k = 0; k < 4; k++) a->out[k] = reduce.out[k];
    if (!a->attr.dw) return CLOOB_OK;
    op_args dw = fused_conv_dw(a);
    CLOOB_TRY(shape_conv2d_dw(ctx, &dw));
    a->out[4] = dw.out[0];
    return CLOOB_OK;
}

cloob_status shape_apply_conv_stats(cloob_ctx *ctx, op_args *a)
{
    op_args apply = fused_apply(a);
    CLOOB_TRY(rule_dims(ctx, OP_APPLY_CONV_STATS, a, 6, 4));
    if (a->in[6].dim[1] != 1 || a->attr.stride != 1 || a->attr.pad || a->attr.pool || !a->attr.relu)
        return op_refuse(ctx, OP_APPLY_CONV_STATS, "relu without a pool and a 1 x 1 convolution are needed");
    CLOOB_TRY(op_has(&a->in[9]) ? shape_bn_apply_both(ctx, &apply) : shape_bn_apply(ctx, &apply));
    a->out[3] = apply.out[0];
    op_args conv = fused_applied_conv(a), pool = fused_applied_pool(a);
    CLOOB_TRY(shape_conv_stats(ctx, &conv));
    for (int k = 0; k < 3; k++) a->out[k] = conv.out[k];
    if (!a->attr.pooled) return CLOOB_OK;
    if (a->in[0].dim[1] % 2 || a->in[0].dim[2] % 2 || a->attr.alone)
        return op_refuse(ctx, OP_APPLY_CONV_STATS, "pooled needs even sides, and applied for others");
    CLOOB_TRY(shape_avgpool2(ctx, &pool));
    a->out[4] = pool.out[0];
    return CLOOB_OK;
}

cloob_status shape_bn_bwd_conv_dx(cloob_ctx *ctx, op_args *a)
{
    const tensor *x = &a->in[1], *w = &a->in[7];
    CLOOB_TRY(rule_dims(ctx, OP_BN_BWD_CONV_DX, a, 1, 4));
    CLOOB_TRY(rule_dims(ctx, OP_BN_BWD_CONV_DX, a, 7, 4));
    if (w->dim[1] != 1 || a->attr.stride != 1 || a->attr.pad || a->attr.pool || a->attr.relu || w->dim[0] != x->dim[3])
        return op_refuse(ctx, OP_BN_BWD_CONV_DX, "no relu, no pool and a 1 x 1 convolution are needed");
    rule_like(a, 0, x);
    rule_like(a, 1, x);
    a->out[1].dim[3] = w->dim[3];
    if (!op_has(&a->in[8])) return CLOOB_OK;
    CLOOB_TRY(rule_dims(ctx, OP_BN_BWD_CONV_DX, a, 8, 4));
    if (tensor_rows(&a->in[8]) != tensor_rows(x) || a->in[8].dim[3] != w->dim[3])
        return op_refuse(ctx, OP_BN_BWD_CONV_DX, "x2 must have the shape of dx");
    if (op_has(&a->in[9])) rule_like(a, 3, &a->in[8]);
    op_args dw = fused_applied_dw(a), reduce = fused_second_reduce(a);
    CLOOB_TRY(shape_conv2d_dw(ctx, &dw));
    a->out[2] = dw.out[0];
    if (!a->attr.reduce) return CLOOB_OK;
    if (!op_has(&a->in[9])) return op_refuse(ctx, OP_BN_BWD_CONV_DX, "reduce needs the batch norm of x2");
    CLOOB_TRY(shape_bn_bwd_reduce(ctx, &reduce));
    for (int k = 0; k < 3; k++) a->out[k + 4] = reduce.out[k];
    return CLOOB_OK;
}

static cloob_status needs_bytes(cloob_ctx *ctx, op_id op, const tensor *x)
{
    if (op_has(x) && x->dtype == CLOOB_U8) return CLOOB_OK;
    return op_refuse(ctx, op, "images in bytes are needed");
}

cloob_status shape_image_conv_stats(cloob_ctx *ctx, op_args *a)
{
    op_args image = fused_image(a);
    CLOOB_TRY(needs_bytes(ctx, OP_IMAGE_CONV_STATS, &a->in[0]));
    CLOOB_TRY(shape_image_input(ctx, &image));
    a->out[3] = image.out[0];
    op_args conv = fused_image_conv(a);
    CLOOB_TRY(shape_conv_stats(ctx, &conv));
    for (int k = 0; k < 3; k++) a->out[k] = conv.out[k];
    return CLOOB_OK;
}

cloob_status shape_image_conv_dw(cloob_ctx *ctx, op_args *a)
{
    op_args image = fused_dw_image(a);
    CLOOB_TRY(needs_bytes(ctx, OP_IMAGE_CONV_DW, &a->in[1]));
    CLOOB_TRY(shape_image_input(ctx, &image));
    a->out[1] = image.out[0];
    op_args dw = fused_image_dw(a);
    CLOOB_TRY(shape_conv2d_dw(ctx, &dw));
    a->out[0] = dw.out[0];
    return CLOOB_OK;
}

cloob_status shape_apply_stem_stats(cloob_ctx *ctx, op_args *a)
{
    op_args apply = fused_stem_apply(a);
    if (!a->attr.relu || a->attr.pool) return op_refuse(ctx, OP_APPLY_STEM_STATS, "relu without a pool is needed");
    CLOOB_TRY(shape_bn_apply(ctx, &apply));
    a->out[3] = apply.out[0];
    op_args conv = fused_stem_conv(a);
    CLOOB_TRY(shape_conv_stats(ctx, &conv));
    for (int k = 0; k < 3; k++) a->out[k] = conv.out[k];
    return CLOOB_OK;
}

cloob_status shape_bn_bwd_image_dw(cloob_ctx *ctx, op_args *a)
{
    op_args apply = fused_dw_bwd(a);
    if (!a->attr.relu || a->attr.pool) return op_refuse(ctx, OP_BN_BWD_IMAGE_DW, "relu without a pool is needed");
    CLOOB_TRY(shape_bn_bwd_apply(ctx, &apply));
    a->out[1] = apply.out[0];
    op_args dw = fused_bwd_dw(a);
    CLOOB_TRY(shape_image_conv_dw(ctx, &dw));
    a->out[0] = dw.out[0], a->out[2] = dw.out[1];
    return CLOOB_OK;
}
