/* Groups of a 3 x 3 convolution with few channels, or its weight gradient, and the ops before it (image_input,
 * bn_apply) and after it (bn_stats): one kernel computes all while the image is in shared memory (conv_small.h), if
 * that was faster when the plan was made. */
#include "nn/cuda/groups.h"
#include "nn/cuda/stem/conv_small.h"

typedef struct stem_state {
    small_plan *small;
    size_t partial; /* offset in scratch: partial sums */
} stem_state;

void stem_release_cuda(const op_env *env, op_group *g)
{
    if (g->state) small_plan_destroy(((stem_state *)g->state)->small);
    group_release_cuda(env, g);
}

/* What the kernel computes in addition to the convolution. */
static int work_of(const op_group *g)
{
    return (group_find(g, OP_BN_STATS) ? SMALL_STATS : 0) | (group_find(g, OP_IMAGE_INPUT) ? SMALL_BYTES : 0) |
           (group_find(g, OP_BN_APPLY) ? SMALL_APPLY : 0);
}

/* Whether the kernels compute exactly these members, and no other op reads the values that they do not write. */
static bool takes(const op_group *g)
{
    const op_args *image = group_find(g, OP_IMAGE_INPUT), *apply = group_find(g, OP_BN_APPLY),
                  *conv = group_find(g, OP_CONV2D);
    if (conv && (conv->attr.relu || op_has(&conv->in[2]) || op_has(&conv->in[3]) || group_inner(g, conv))) return false;
    if (image && (image->in[0].dtype != CLOOB_U8 || image_patch(&image->attr) > 1)) return false;
    if (apply && (!apply->attr.relu || apply->attr.pool || op_has(&apply->in[5]))) return false;
    return group_inner(g, image) && group_inner(g, apply);
}

cloob_status stem_prepare_cuda(const op_env *env, op_group *g, bool *claims)
{
    const op_args *conv = group_find(g, OP_CONV2D), *dw = group_find(g, OP_CONV2D_DW);
    const tensor *x = conv ? &conv->in[0] : &dw->in[1], *w = conv ? &conv->in[1] : &dw->in[2];
    dnn_shape shape = conv ? conv_shape(DNN_FORWARD, x, w, &conv->out[0], &conv->attr)
                           : conv_shape(DNN_DW, x, w, &dw->in[0], &dw->attr);
    stem_state s = { .partial = conv ? cuda_align(3 * (size_t)shape.O * sizeof(float)) : 0 }; /* of bn_stats_finish */
    if (w->dim[1] != 3 || !takes(g)) return CLOOB_OK;
    CLOOB_TRY(small_plan_better(env->ctx, env->dev, &shape, w->dim[3], work_of(g), &g->ms, &s.small));
    if (!s.small) return CLOOB_OK;
    g->scratch_bytes = s.partial + small_plan_workspace(s.small);
    cloob_status status = group_claim_cuda(env, g, &s, sizeof s, claims);
    if (status != CLOOB_OK) small_plan_destroy(s.small);
    return status;
}

static small_data data_of(const op_group *g)
{
    const op_args *image = group_find(g, OP_IMAGE_INPUT), *apply = group_find(g, OP_BN_APPLY),
                  *conv = group_find(g, OP_CONV2D), *dw = group_find(g, OP_CONV2D_DW),
                  *stats = group_find(g, OP_BN_STATS);
    small_data d = { .x = conv ? conv->in[0].data : dw->in[1].data,
                     .w = conv ? conv->in[1].data : dw->out[0].data,
                     .y = conv ? conv->out[0].data : dw->in[0].data };
    if (image) d.x = image->in[0].data;
    for (int i = 0; i < 3 && image; i++) d.mean[i] = image->attr.mean[i], d.std[i] = image->attr.std[i];
    if (stats) d.pivot = stats->in[1].data; /* the running mean */
    if (apply) d.x = apply->in[0].data;
    for (int i = 0; i < 4 && apply; i++) d.norm[i] = apply->in[1 + i].data;
    return d;
}

cloob_status stem_cuda(const op_env *env, const op_group *g)
{
    const stem_state *s = g->state;
    small_data d = data_of(g);
    d.workspace = group_scratch(g, s->partial);
    CLOOB_TRY(small_run(env->ctx, env->dev, s->small, env->stream, &d));
    if (!group_find(g, OP_BN_STATS)) return CLOOB_OK;
    op_args stats = group_call(g, OP_BN_STATS);
    return bn_stats_finish(env, &stats, d.workspace, small_plan_parts(s->small), d.pivot);
}
