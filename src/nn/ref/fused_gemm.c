/* Ops that are two others, one after the other: exactly that. */
#include "nn/ref/ref.h"

cloob_status conv_stats_ref(const op_env *env, const op_args *a)
{
    op_args conv = fused_conv(a), stats = fused_stats(a);
    CLOOB_TRY(conv2d_ref(env, &conv));
    return bn_stats_ref(env, &stats);
}

cloob_status conv_dx_reduce_ref(const op_env *env, const op_args *a)
{
    if (a->attr.pooled) {
        op_args pooled = fused_pooled(a), rest = *a;
        rest.attr.pooled = false;
        CLOOB_TRY(avgpool2_ref(env, &pooled));
        return conv_dx_reduce_ref(env, &rest);
    }
    if (a->attr.spread) {
        op_args spread = fused_spread(a), rest = fused_spread_reduce(a);
        CLOOB_TRY(avgpool2_bwd_ref(env, &spread));
        return conv_dx_reduce_ref(env, &rest);
    }
    op_args dx = fused_conv_dx(a), reduce = fused_reduce(a), dw = fused_conv_dw(a);
    CLOOB_TRY(conv2d_dx_ref(env, &dx));
    if (a->attr.dw) CLOOB_TRY(conv2d_dw_ref(env, &dw));
    return bn_bwd_reduce_ref(env, &reduce);
}

cloob_status apply_conv_stats_ref(const op_env *env, const op_args *a)
{
    op_args apply = fused_apply(a), conv = fused_applied_conv(a), pool = fused_applied_pool(a);
    CLOOB_TRY(has(&a->in[9]) ? bn_apply_both_ref(env, &apply) : bn_apply_ref(env, &apply));
    if (a->attr.pooled) CLOOB_TRY(avgpool2_ref(env, &pool));
    return conv_stats_ref(env, &conv);
}

cloob_status bn_bwd_conv_dx_ref(const op_env *env, const op_args *a)
{
    op_args apply = fused_bwd_apply(a), dx = fused_applied_dx(a), second = fused_second_apply(a),
            dw = fused_applied_dw(a), reduce = fused_second_reduce(a);
    CLOOB_TRY(bn_bwd_apply_ref(env, &apply));
    CLOOB_TRY(conv2d_dx_ref(env, &dx));
    if (!has(&a->in[8])) return CLOOB_OK;
    if (a->attr.reduce) CLOOB_TRY(bn_bwd_reduce_ref(env, &reduce));
    else if (has(&a->in[9])) CLOOB_TRY(bn_apply_ref(env, &second));
    return conv2d_dw_ref(env, &dw);
}

cloob_status image_conv_stats_ref(const op_env *env, const op_args *a)
{
    op_args image = fused_image(a), conv = fused_image_conv(a);
    CLOOB_TRY(image_input_ref(env, &image));
    return conv_stats_ref(env, &conv);
}

cloob_status image_conv_dw_ref(const op_env *env, const op_args *a)
{
    op_args image = fused_dw_image(a), dw = fused_image_dw(a);
    CLOOB_TRY(image_input_ref(env, &image));
    return conv2d_dw_ref(env, &dw);
}

cloob_status apply_stem_stats_ref(const op_env *env, const op_args *a)
{
    op_args apply = fused_stem_apply(a), conv = fused_stem_conv(a);
    CLOOB_TRY(bn_apply_ref(env, &apply));
    return conv_stats_ref(env, &conv);
}

cloob_status bn_bwd_image_dw_ref(const op_env *env, const op_args *a)
{
    op_args apply = fused_dw_bwd(a), dw = fused_bwd_dw(a);
    CLOOB_TRY(bn_bwd_apply_ref(env, &apply));
    return image_conv_dw_ref(env, &dw);
}

cloob_status linear_act_ref(const op_env *env, const op_args *a)
{
    op_args linear = fused_linear(a), act = fused_act(a);
    CLOOB_TRY(linear_ref(env, &linear));
    return act_ref(env, &act);
}

cloob_status linear_dx_act_ref(const op_env *env, const op_args *a)
{
    op_args dx = fused_linear_dx(a), act = fused_act_bwd(a);
    CLOOB_TRY(linear_dx_ref(env, &dx));
    return act_bwd_ref(env, &act);
}
