/* Ops that are two others, one after the other: exactly that. */
#include "nn/ref/ref.h"

cloob_status conv_stats_ref(const op_env *env, const op_args *a)
{
    op_args conv = joined_conv(a), stats = joined_stats(a);
    CLOOB_TRY(conv2d_ref(env, &conv));
    return bn_stats_ref(env, &stats);
}

cloob_status conv_dx_reduce_ref(const op_env *env, const op_args *a)
{
    op_args dx = joined_conv_dx(a), reduce = joined_reduce(a);
    CLOOB_TRY(conv2d_dx_ref(env, &dx));
    return bn_bwd_reduce_ref(env, &reduce);
}
