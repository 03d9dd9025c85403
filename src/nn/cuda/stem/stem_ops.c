/* What stands before a convolution of the stem and the convolution, or its weight gradient: by a kernel that does the
 * first while the image lies in shared memory (conv_small.h), or one after the other, whichever was faster when the
 * plan was made. */
#include <stdlib.h>

#include "nn/cuda/kernels.h"
#include "nn/cuda/stem/conv_small.h"

typedef struct stem_state {
    op_args second;    /* the second op's plan, for when they run one after the other */
    small_plan *small; /* NULL: one after the other */
    size_t partial;    /* offset in scratch: partial sums */
    float ms;          /* of whichever was chosen */
} stem_state;

static void release(const op_env *env, op_args *a, cuda_release_fn *second)
{
    stem_state *s = a->state;
    if (s && s->second.state) second(env, &s->second);
    if (s) small_plan_destroy(s->small);
    free(s);
    a->state = NULL;
}

void stem_stats_release_cuda(const op_env *env, op_args *a) { release(env, a, fused_release_cuda); }
void stem_dw_release_cuda(const op_env *env, op_args *a) { release(env, a, conv_release_cuda); }
void stem_bwd_release_cuda(const op_env *env, op_args *a) { release(env, a, stem_dw_release_cuda); }

static cloob_status state_make(const op_env *env, op_args *a, op_args second, stem_state **out)
{
    a->state = *out = calloc(1, sizeof **out);
    if (!*out) return ctx_no_memory(env->ctx, sizeof **out, "a convolution's plan");
    (*out)->second = second;
    return CLOOB_OK;
}

/* Which of the two. first: the call that reads and writes an image; second_ms: of the convolution alone; c: channels of
 * its weight. */
static cloob_status decide(const op_env *env, op_args *a, stem_state *s, const dnn_shape *shape, int64_t c, int with,
                           const op_args *first, float second_ms)
{
    double bytes = (double)tensor_bytes(&first->in[0]) + (double)tensor_bytes(&first->out[0]);
    if (with & SMALL_BWD) bytes += (double)tensor_bytes(&first->in[1]);
    s->ms = second_ms + cuda_pass_ms(bytes);
    CLOOB_TRY(small_plan_better(env->ctx, env->dev, shape, c, with, &s->ms, &s->small));
    a->scratch_bytes = s->small ? s->partial + small_plan_workspace(s->small) : s->second.scratch_bytes;
    return CLOOB_OK;
}

static small_data data_of(const op_args *a, const stem_state *s)
{
    small_data d = { .workspace = (char *)a->scratch + s->partial };
    for (int i = 0; i < 3; i++) d.mean[i] = a->attr.mean[i], d.std[i] = a->attr.std[i];
    return d;
}

/* ---- image_input or bn_apply, then conv_stats ---------------------------------------------------- */

/* first, conv: the two calls; conv reads what first writes. */
static cloob_status prepare_stats(const op_env *env, op_args *a, const op_args *first, const op_args *conv, int with)
{
    stem_state *s;
    dnn_shape shape = conv_shape(DNN_FORWARD, &conv->in[0], &conv->in[1], &conv->out[0], &conv->attr);
    CLOOB_TRY(state_make(env, a, *conv, &s));
    CLOOB_TRY(conv_stats_prepare_cuda(env, &s->second));
    s->partial = cuda_align(3 * (size_t)shape.O * sizeof(float)); /* the end of batch norm's sums uses the start */
    return decide(env, a, s, &shape, conv->in[1].dim[3], with | SMALL_STATS, first, conv_stats_plan_ms(&s->second));
}

/* The same when they run. norm: batch norm's four vectors, or NULL. */
static cloob_status run_stats(const op_env *env, const op_args *a, const op_args *first, op_args *conv,
                              cuda_fn *run_first, const tensor *norm)
{
    const stem_state *s = a->state;
    op_args stats = fused_stats(conv);
    if (!s->small) {
        CLOOB_TRY(run_first(env, first));
        conv->state = s->second.state;
        return conv_stats_cuda(env, conv);
    }
    small_data d = data_of(a, s);
    d.x = first->in[0].data, d.w = conv->in[1].data, d.y = conv->out[0].data;
    d.pivot = conv->in[2].data; /* the running mean */
    for (int i = 0; norm && i < 4; i++) d.norm[i] = norm[i].data;
    CLOOB_TRY(small_run(env->ctx, env->dev, s->small, env->stream, &d));
    return bn_stats_finish(env, &stats, d.workspace, small_plan_parts(s->small), d.pivot);
}

cloob_status image_conv_stats_prepare_cuda(const op_env *env, op_args *a)
{
    op_args image = fused_image(a), conv = fused_image_conv(a);
    return prepare_stats(env, a, &image, &conv, SMALL_BYTES);
}

cloob_status image_conv_stats_cuda(const op_env *env, const op_args *a)
{
    op_args image = fused_image(a), conv = fused_image_conv(a);
    return run_stats(env, a, &image, &conv, image_input_cuda, NULL);
}

cloob_status apply_stem_stats_prepare_cuda(const op_env *env, op_args *a)
{
    op_args apply = fused_stem_apply(a), conv = fused_stem_conv(a);
    return prepare_stats(env, a, &apply, &conv, SMALL_APPLY);
}

cloob_status apply_stem_stats_cuda(const op_env *env, const op_args *a)
{
    op_args apply = fused_stem_apply(a), conv = fused_stem_conv(a);
    return run_stats(env, a, &apply, &conv, bn_apply_cuda, &a->in[1]);
}

/* ---- image_input, then conv2d_dw ----------------------------------------------------------------- */

cloob_status image_conv_dw_prepare_cuda(const op_env *env, op_args *a)
{
    stem_state *s;
    op_args image = fused_dw_image(a);
    dnn_shape shape = conv_shape(DNN_DW, &a->out[1], &a->in[2], &a->in[0], &a->attr);
    CLOOB_TRY(state_make(env, a, fused_image_dw(a), &s));
    CLOOB_TRY(conv2d_dw_prepare_cuda(env, &s->second));
    return decide(env, a, s, &shape, a->in[2].dim[3], SMALL_BYTES, &image, conv_plan_ms(&s->second));
}

cloob_status image_conv_dw_cuda(const op_env *env, const op_args *a)
{
    const stem_state *s = a->state;
    op_args image = fused_dw_image(a), dw = fused_image_dw(a);
    if (!s->small) {
        CLOOB_TRY(image_input_cuda(env, &image));
        dw.state = s->second.state;
        return conv2d_dw_cuda(env, &dw);
    }
    small_data d = data_of(a, s);
    d.x = a->in[1].data, d.w = a->out[0].data, d.y = a->in[0].data;
    return small_run(env->ctx, env->dev, s->small, env->stream, &d);
}

/* ---- bn_bwd_apply, then image_conv_dw ------------------------------------------------------------ */

cloob_status bn_bwd_image_dw_prepare_cuda(const op_env *env, op_args *a)
{
    stem_state *s;
    op_args apply = fused_dw_bwd(a), dw = fused_bwd_dw(a);
    dnn_shape shape = conv_shape(DNN_DW, &a->out[2], &a->in[8], &a->in[0], &a->attr);
    CLOOB_TRY(state_make(env, a, dw, &s));
    CLOOB_TRY(image_conv_dw_prepare_cuda(env, &s->second));
    return decide(env, a, s, &shape, a->in[8].dim[3], SMALL_BYTES | SMALL_BWD, &apply,
                  ((const stem_state *)s->second.state)->ms);
}

cloob_status bn_bwd_image_dw_cuda(const op_env *env, const op_args *a)
{
    const stem_state *s = a->state;
    op_args apply = fused_dw_bwd(a), dw = fused_bwd_dw(a);
    if (!s->small) {
        CLOOB_TRY(bn_bwd_apply_cuda(env, &apply));
        dw.state = s->second.state;
        return image_conv_dw_cuda(env, &dw);
    }
    small_data d = data_of(a, s);
    d.x = a->in[7].data, d.w = a->out[0].data, d.y = a->in[0].data;
    for (int i = 0; i < 4; i++) d.norm[i] = a->in[2 + i].data;
    d.before = a->in[1].data, d.sums = a->in[6].data;
    d.count = (float)tensor_rows(&a->in[1]) * (float)(env->sum_ranks ? env->ranks : 1);
    return small_run(env->ctx, env->dev, s->small, env->stream, &d);
}
