/* Images in bytes and the convolution that reads them first, or its weight gradient: by a kernel of the stem that makes
 * numbers of bytes in shared memory (conv_small.h), or image_input and the convolution one after the other, whichever
 * was faster when the plan was made. */
#include <stdlib.h>

#include "nn/cuda/kernels.h"
#include "nn/cuda/stem/conv_small.h"

typedef struct image_state {
    op_args second;    /* the plan of conv_stats or conv2d_dw, for when they run one after the other */
    small_plan *small; /* NULL: one after the other */
    size_t partial;    /* offset in scratch: partial sums */
} image_state;

static void release(const op_env *env, op_args *a, cuda_release_fn *second)
{
    image_state *s = a->state;
    if (s && s->second.state) second(env, &s->second);
    if (s) small_plan_destroy(s->small);
    free(s);
    a->state = NULL;
}

void image_conv_release_cuda(const op_env *env, op_args *a) { release(env, a, fused_release_cuda); }
void image_dw_release_cuda(const op_env *env, op_args *a) { release(env, a, conv_release_cuda); }

static cloob_status state_make(const op_env *env, op_args *a, op_args second, image_state **out)
{
    a->state = *out = calloc(1, sizeof **out);
    if (!*out) return ctx_no_memory(env->ctx, sizeof **out, "a convolution's plan");
    (*out)->second = second;
    return CLOOB_OK;
}

/* Which of the two; second_ms: of the convolution alone. */
static cloob_status decide(const op_env *env, op_args *a, image_state *s, const dnn_shape *shape, int with,
                           const op_args *image, float second_ms)
{
    float ms = second_ms + cuda_pass_ms((double)tensor_bytes(&image->in[0]) + (double)tensor_bytes(&image->out[0]));
    CLOOB_TRY(small_plan_better(env->ctx, env->dev, shape, 3, with, &ms, &s->small));
    a->scratch_bytes = s->small ? s->partial + small_plan_workspace(s->small) : s->second.scratch_bytes;
    return CLOOB_OK;
}

static small_data data_of(const op_args *a, const image_state *s)
{
    small_data d = { .workspace = (char *)a->scratch + s->partial };
    for (int i = 0; i < 3; i++) d.mean[i] = a->attr.mean[i], d.std[i] = a->attr.std[i];
    return d;
}

/* ---- image_input, then conv_stats ---------------------------------------------------------------- */

cloob_status image_conv_stats_prepare_cuda(const op_env *env, op_args *a)
{
    image_state *s;
    op_args image = fused_image(a);
    dnn_shape shape = conv_shape(DNN_FORWARD, &a->out[3], &a->in[1], &a->out[0], &a->attr);
    CLOOB_TRY(state_make(env, a, fused_image_conv(a), &s));
    CLOOB_TRY(conv_stats_prepare_cuda(env, &s->second));
    s->partial = cuda_align(3 * (size_t)shape.O * sizeof(float)); /* the end of batch norm's sums uses the start */
    return decide(env, a, s, &shape, SMALL_BYTES | SMALL_STATS, &image, conv_stats_plan_ms(&s->second));
}

cloob_status image_conv_stats_cuda(const op_env *env, const op_args *a)
{
    const image_state *s = a->state;
    op_args image = fused_image(a), conv = fused_image_conv(a), stats = fused_stats(&conv);
    if (!s->small) {
        CLOOB_TRY(image_input_cuda(env, &image));
        conv.state = s->second.state;
        return conv_stats_cuda(env, &conv);
    }
    small_data d = data_of(a, s);
    d.x = a->in[0].data, d.w = a->in[1].data, d.y = a->out[0].data, d.pivot = a->in[2].data;
    CLOOB_TRY(small_run(env->ctx, env->dev, s->small, env->stream, &d));
    return bn_stats_finish(env, &stats, d.workspace, small_plan_parts(s->small), d.pivot);
}

/* ---- image_input, then conv2d_dw ----------------------------------------------------------------- */

cloob_status image_conv_dw_prepare_cuda(const op_env *env, op_args *a)
{
    image_state *s;
    op_args image = fused_dw_image(a);
    dnn_shape shape = conv_shape(DNN_DW, &a->out[1], &a->in[2], &a->in[0], &a->attr);
    CLOOB_TRY(state_make(env, a, fused_image_dw(a), &s));
    CLOOB_TRY(conv2d_dw_prepare_cuda(env, &s->second));
    return decide(env, a, s, &shape, SMALL_BYTES, &image, conv_plan_ms(&s->second));
}

cloob_status image_conv_dw_cuda(const op_env *env, const op_args *a)
{
    const image_state *s = a->state;
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
