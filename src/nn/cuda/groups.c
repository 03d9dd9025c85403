/* The groups that the cuda backend has kernels for. Shorter patterns come first: a longer one is compared with what
 * they have claimed. */
#include <stdlib.h>
#include <string.h>

#include "nn/cuda/fused_gemm_kernels.h"
#include "nn/cuda/groups.h"

/* ---- what launchers share ------------------------------------------------------------------------ */

cloob_status group_claim_cuda(const op_env *env, op_group *g, const void *state, size_t bytes, bool *claims)
{
    g->state = malloc(bytes);
    if (!g->state) return ctx_no_memory(env->ctx, bytes, "the plan of a group");
    memcpy(g->state, state, bytes);
    *claims = true;
    return CLOOB_OK;
}

void group_release_cuda(const op_env *env, op_group *g)
{
    (void)env;
    free(g->state);
    g->state = NULL;
}

op_args group_call(const op_group *g, op_id op)
{
    op_args a = *group_find(g, op);
    a.scratch = g->scratch;
    return a;
}

bool group_is_point(const op_args *conv)
{
    const tensor *w = &conv->in[1], *x = conv->op == OP_CONV2D ? &conv->in[0] : &conv->out[0];
    bool plain = conv->op != OP_CONV2D || (!op_has(&conv->in[2]) && !op_has(&conv->in[3]) && !conv->attr.relu);
    return plain && w->dim[1] == 1 && conv->attr.stride == 1 && conv->attr.pad == 0 && w->dim[3] == x->dim[3] &&
           x->dtype == CLOOB_BF16;
}

cloob_status group_transpose_weight(const op_env *env, const op_group *g, size_t offset, op_id op)
{
    const tensor *w = &group_find(g, op)->in[1];
    return cuda_check(env->ctx, transpose_bf16(env->stream, group_scratch(g, offset), w->data, w->dim[0], w->dim[3]),
                      "a weight");
}

/* A pass over memory reads and writes every image once. */
static float call_ms(const op_args *a)
{
    double bytes = 0;
    if (a->op == OP_CONV2D || a->op == OP_CONV2D_DX || a->op == OP_CONV2D_DW) return conv_plan_ms(a);
    for (int k = 0; k < OP_INPUTS; k++)
        if (a->in[k].ndim == 4 && !op_lends_shape(a->op, k)) bytes += (double)tensor_bytes(&a->in[k]);
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (a->out[k].ndim == 4) bytes += (double)tensor_bytes(&a->out[k]);
    return cuda_pass_ms(bytes);
}

/* ---- batch norms together ------------------------------------------------------------------------ */

/* The residual of an apply is an apply itself, and no other op reads it. */
static cloob_status apply_both_prepare(const op_env *env, op_group *g, bool *claims)
{
    const op_args *shortcut = g->member[0], *apply = g->member[1];
    (void)env;
    *claims = group_inner(g, shortcut) && !shortcut->attr.relu && !shortcut->attr.pool && !op_has(&shortcut->in[5]) &&
              !apply->attr.pool && apply->in[5].data == shortcut->out[0].data;
    g->ms = cuda_pass_ms(3.0 * (double)tensor_bytes(&apply->in[0]));
    return CLOOB_OK;
}

static cloob_status apply_both(const op_env *env, const op_group *g)
{
    return bn_apply_both_cuda(env, g->member[1], g->member[0]);
}

/* The reduction reads x and writes what the apply makes of it, too. */
static op_args reduce_and_apply(const op_group *g)
{
    op_args reduce = group_call(g, OP_BN_BWD_REDUCE);
    reduce.out[4] = g->member[0]->out[0];
    return reduce;
}

static cloob_status apply_reduce_prepare(const op_env *env, op_group *g, bool *claims)
{
    const op_args *apply = g->member[0], *reduce = g->member[1];
    op_args both = reduce_and_apply(g);
    *claims = apply->in[0].data == reduce->in[2].data && apply->attr.relu == reduce->attr.relu &&
              apply->attr.pool == reduce->attr.pool && !op_has(&apply->in[5]) && !op_has(&reduce->out[4]) &&
              !group_inner(g, apply);
    CLOOB_TRY(bn_bwd_reduce_prepare_cuda(env, &both));
    g->scratch_bytes = both.scratch_bytes;
    return CLOOB_OK;
}

static cloob_status apply_reduce(const op_env *env, const op_group *g)
{
    op_args both = reduce_and_apply(g);
    return bn_bwd_reduce_cuda(env, &both);
}

/* ---- the table ----------------------------------------------------------------------------------- */

#define STEM   .prepare = stem_prepare_cuda, .run = stem_cuda, .release = stem_release_cuda
#define DX_RED .prepare = conv_dx_reduce_prepare_cuda, .run = conv_dx_reduce_cuda, .release = group_release_cuda
#define APPLY  .prepare = apply_conv_prepare_cuda, .run = apply_conv_cuda, .release = group_release_cuda
#define BN_BWD .prepare = bn_bwd_conv_prepare_cuda, .run = bn_bwd_conv_cuda, .release = group_release_cuda

static const group_kernel kernels[] = {
    { .name = "bn_apply_both",
      GROUP_PATTERN(OP_BN_APPLY, OP_BN_APPLY),
      .prepare = apply_both_prepare,
      .run = apply_both },
    { .name = "conv_stats",
      GROUP_PATTERN(OP_CONV2D, OP_BN_STATS),
      .prepare = conv_stats_prepare_cuda,
      .run = conv_stats_cuda,
      .release = group_release_cuda },
    { .name = "stem_conv_stats", GROUP_PATTERN(OP_CONV2D, OP_BN_STATS), STEM },
    { .name = "image_conv_stats", GROUP_PATTERN(OP_IMAGE_INPUT, OP_CONV2D, OP_BN_STATS), STEM },
    { .name = "apply_stem_stats", GROUP_PATTERN(OP_BN_APPLY, OP_CONV2D, OP_BN_STATS), STEM },
    { .name = "apply_conv_stats", GROUP_PATTERN(GROUP_MAYBE(OP_BN_APPLY), OP_BN_APPLY, OP_CONV2D, OP_BN_STATS), APPLY },
    { .name = "conv_dx_reduce",
      GROUP_PATTERN(GROUP_MAYBE(OP_AVGPOOL2), GROUP_MAYBE(OP_AVGPOOL2_BWD), OP_CONV2D_DX, OP_BN_BWD_REDUCE),
      DX_RED },
    { .name = "conv_dx_dw_reduce",
      GROUP_PATTERN(GROUP_MAYBE(OP_AVGPOOL2), OP_CONV2D_DW, GROUP_MAYBE(OP_AVGPOOL2_BWD), OP_CONV2D_DX,
                    OP_BN_BWD_REDUCE),
      DX_RED },
    { .name = "bn_bwd_conv_dx", GROUP_PATTERN(OP_BN_BWD_APPLY, OP_CONV2D_DX), BN_BWD, .in_place = true },
    { .name = "bn_bwd_conv_dx_dw",
      GROUP_PATTERN(OP_BN_BWD_APPLY, OP_CONV2D_DX, GROUP_MAYBE(OP_BN_APPLY), OP_CONV2D_DW),
      BN_BWD },
    { .name = "bn_apply_reduce", /* where the GEMM computes neither of them */
      GROUP_PATTERN(OP_BN_APPLY, OP_BN_BWD_REDUCE),
      .prepare = apply_reduce_prepare,
      .run = apply_reduce },
    { .name = "image_conv_dw", GROUP_PATTERN(OP_IMAGE_INPUT, OP_CONV2D_DW), STEM },
    { .name = "linear_act",
      GROUP_PATTERN(OP_LINEAR, OP_ACT),
      .prepare = linear_act_prepare_cuda,
      .run = linear_act_cuda },
    { .name = "linear_dx_act",
      GROUP_PATTERN(OP_LINEAR_DX, OP_ACT_BWD),
      .prepare = linear_act_prepare_cuda,
      .run = linear_act_cuda },
};

const group_table group_kernels_cuda = { kernels, sizeof kernels / sizeof *kernels, call_ms };
