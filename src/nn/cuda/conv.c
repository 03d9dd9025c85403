/* Convolution: cloob's kernels for few channels if they support it; else cuDNN, or a GEMM where the windows do not
 * overlap (1 x 1, and a patch embedding), whichever was faster when the plan was made. */
#include <stdlib.h>

#include "nn/cuda/stem/conv_small.h"
#include "nn/cuda/kernels.h"
#include "tensor/cuda/dnn.h"
#include "tensor/cuda/gemm.h"

typedef struct conv_state { /* one of the three plans */
    gemm_plan *gemm;
    dnn_plan *dnn;
    small_plan *small;
    bool gather;             /* gemm: the windows are copied out first */
    cloob_dtype w_type;      /* dnn, gradient of w: what it writes */
    size_t windows, w, bias; /* offsets in scratch behind the workspace: copied windows, padded or half weights, bias */
} conv_state;

typedef struct conv_tensors {
    const tensor *x, *w, *y; /* or their gradients */
    cloob_dtype dtype;
    int64_t rows, O, K, c, C; /* rows of y; K: kernel width */
} conv_tensors;

static conv_tensors tensors_of(const tensor *x, const tensor *w, const tensor *y, cloob_dtype dtype)
{
    return (conv_tensors){ x, w, y, dtype, tensor_rows(y), w->dim[0], w->dim[1], w->dim[3], x->dim[3] };
}

static dnn_shape dnn_shape_of(dnn_kind kind, const conv_tensors *t, const op_attr *at, cloob_dtype w_type)
{
    dnn_shape s = conv_shape(kind, t->x, t->w, t->y, at);
    s.w_dtype = w_type;
    return s;
}

static cloob_status state_make(const op_env *env, op_args *a, conv_state **out)
{
    a->state = *out = calloc(1, sizeof **out);
    return *out ? CLOOB_OK : ctx_no_memory(env->ctx, sizeof **out, "a convolution's plan");
}

void conv_release_cuda(const op_env *env, op_args *a)
{
    conv_state *s = a->state;
    (void)env;
    if (s) {
        gemm_plan_destroy(s->gemm);
        dnn_plan_destroy(s->dnn);
        small_plan_destroy(s->small);
    }
    free(s);
    a->state = NULL;
}

float conv_plan_ms(const op_args *a)
{
    const conv_state *s = a->state;
    return s->gemm ? gemm_plan_ms(s->gemm) : s->small ? small_plan_ms(s->small) : s->dnn ? dnn_plan_ms(s->dnn) : 1e30f;
}

static void *at(const op_args *a, size_t offset) { return (char *)a->scratch + offset; }

/* Milliseconds for moving bytes at the bandwidth that kernels reach. */
static float move_ms(double bytes) { return (float)(bytes / 3.5e9) + 0.003f; }

static bool windows_apart(const conv_tensors *t, const op_attr *attr) { return t->K == attr->stride && attr->pad == 0; }
static bool is_matrix(const conv_tensors *t) { return t->K == 1 && t->c == t->C; }
static size_t window_bytes(const conv_tensors *t)
{
    return (size_t)(t->rows * t->K * t->K * t->c) * dtype_size(t->dtype);
}

/* Keeps the fastest, given the extra time of each (cloob's kernels: as for cuDNN); lays out scratch. Refuses a
 * convolution that nothing computes. */
static cloob_status decide(const op_env *env, conv_state *s, op_args *a, const conv_tensors *t, float gemm_extra_ms,
                           float dnn_extra_ms)
{
    const float never = 1e30f;
    float dnn = s->dnn ? dnn_plan_ms(s->dnn) + dnn_extra_ms : never,
          gemm = s->gemm ? gemm_plan_ms(s->gemm) + gemm_extra_ms : never,
          small = s->small ? small_plan_ms(s->small) + dnn_extra_ms : never;
    ctx_log(env->ctx, CLOOB_LOG_DEBUG,
            "conv %lldx%lldx%lld %lld->%lld, %lldx%lld: cuDNN %.4g ms, GEMM %.4g ms, cloob %.4g ms",
            (long long)t->x->dim[0], (long long)t->x->dim[1], (long long)t->x->dim[2], (long long)t->C, (long long)t->O,
            (long long)t->K, (long long)t->K, (double)dnn, (double)gemm, (double)small);
    bool by_gemm = s->gemm && gemm <= dnn && gemm <= small, by_small = s->small && !by_gemm && small <= dnn;
    if (!by_gemm) gemm_plan_destroy(s->gemm), s->gemm = NULL;
    if (!by_small) small_plan_destroy(s->small), s->small = NULL;
    if (by_gemm || by_small || (s->dnn && !dnn_plan_ready(env->ctx, env->dev, s->dnn)))
        dnn_plan_destroy(s->dnn), s->dnn = NULL;
    if (!by_gemm && !by_small && !s->dnn)
        return ctx_fail(env->ctx, CLOOB_ERR_UNSUPPORTED,
                        "convolution of %lld to %lld channels by %lld x %lld: cuDNN has no engine for it",
                        (long long)t->C, (long long)t->O, (long long)t->K, (long long)t->K);
    size_t workspace = by_gemm    ? gemm_plan_workspace(s->gemm)
                       : by_small ? small_plan_workspace(s->small)
                                  : dnn_plan_workspace(s->dnn);
    s->windows = cuda_align(workspace);
    s->w = s->windows + (s->gemm && s->gather ? cuda_align(window_bytes(t)) : 0);
    s->bias = s->w + cuda_align((size_t)(t->O * t->K * t->K * t->C) * sizeof(float));
    a->scratch_bytes = s->bias + cuda_align((size_t)t->O * sizeof(float));
    return CLOOB_OK;
}

static cloob_status run_small(const op_env *env, const op_args *a, const conv_state *s, const conv_tensors *t)
{
    small_data data = { .x = t->x->data, .w = t->w->data, .y = t->y->data, .workspace = a->scratch };
    return small_run(env->ctx, env->dev, s->small, env->stream, &data);
}

/* cloob's kernels are up to 4 times as fast as cuDNN's on the shapes of RN50 (batch 512) and RN50x4 (batch 128) on an
 * H200, and slower on none, so cuDNN is not tried for shapes that they support; other batch sizes were not compared. */
static cloob_status ours_or_dnn(const op_env *env, const dnn_shape *d, int64_t c, conv_state *s)
{
    CLOOB_TRY(small_plan_create(env->ctx, env->dev, d, c, 0, &s->small));
    return s->small ? CLOOB_OK : dnn_plan_create(env->ctx, env->dev, d, &s->dnn);
}

/* ---- forward ------------------------------------------------------------------------------------- */

cloob_status conv2d_prepare_cuda(const op_env *env, op_args *a)
{
    conv_tensors t = tensors_of(&a->in[0], &a->in[1], &a->out[0], a->in[0].dtype);
    bool bias = op_has(&a->in[2]), res = op_has(&a->in[3]), relu = a->attr.relu;
    dnn_shape d = dnn_shape_of(DNN_FORWARD, &t, &a->attr, t.dtype);
    gemm_shape g = { .m = t.rows,
                     .n = t.O,
                     .k = t.K * t.K * t.c,
                     .tb = true,
                     .in = t.dtype,
                     .out = t.dtype,
                     .add = res,
                     .alpha = 1.0f,
                     .extra = bias ? (relu ? GEMM_BIAS_RELU : GEMM_BIAS) : (relu ? GEMM_RELU : GEMM_PLAIN) };
    conv_state *s;
    CLOOB_TRY(state_make(env, a, &s));
    s->gather = !is_matrix(&t);
    CLOOB_TRY(ours_or_dnn(env, &d, t.c, s));
    if (windows_apart(&t, &a->attr)) CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &g, &s->gemm));
    double y_bytes = (double)tensor_bytes(t.y);
    return decide(env, s, a, &t, s->gather ? move_ms(2.0 * (double)window_bytes(&t)) : 0.0f,
                  bias || res || relu ? move_ms(y_bytes * (res ? 3.0 : 2.0)) : 0.0f);
}

/* The weights as cuDNN needs them: with as many channels as x. */
static cloob_status full_weights(const op_env *env, const op_args *a, const conv_tensors *t, size_t offset, void **out)
{
    *out = t->w->data;
    if (t->c == t->C) return CLOOB_OK;
    *out = at(a, offset);
    return repad_cuda(env, "conv2d", *out, t->dtype, t->C, t->w->data, t->dtype, t->c, t->O * t->K * t->K);
}

static cloob_status windows_of(const op_env *env, const op_args *a, const conv_state *s, const conv_tensors *t,
                               const void **out)
{
    *out = t->x->data;
    if (!s->gather) return CLOOB_OK;
    *out = at(a, s->windows);
    return patches_cuda(env, at(a, s->windows), t->x, t->K, t->c);
}

static cloob_status forward_gemm(const op_env *env, const op_args *a, const conv_state *s, const conv_tensors *t)
{
    const tensor *b = &a->in[2];
    const void *windows;
    void *bias = b->data;
    CLOOB_TRY(windows_of(env, a, s, t, &windows));
    if (bias && t->dtype == CLOOB_BF16) {
        bias = at(a, s->bias);
        CLOOB_TRY(convert_cuda(env, "conv2d", bias, CLOOB_BF16, b->data, CLOOB_F32, t->O));
    }
    return gemm_run(env->ctx, env->dev, s->gemm, env->stream, t->y->data, windows, t->w->data, a->in[3].data, bias,
                    a->scratch);
}

cloob_status conv2d_cuda(const op_env *env, const op_args *a)
{
    const conv_state *s = a->state;
    conv_tensors t = tensors_of(&a->in[0], &a->in[1], &a->out[0], a->in[0].dtype);
    void *w;
    if (s->gemm) return forward_gemm(env, a, s, &t);
    if (s->small) {
        CLOOB_TRY(run_small(env, a, s, &t));
    } else {
        CLOOB_TRY(full_weights(env, a, &t, s->w, &w));
        CLOOB_TRY(dnn_run(env->ctx, env->dev, s->dnn, env->stream, t.x->data, w, t.y->data, a->scratch));
    }
    if (!a->in[2].data && !a->in[3].data && !a->attr.relu) return CLOOB_OK;
    return bias_res_relu_cuda(env, "conv2d", t.y->data, t.dtype, &a->in[2], a->in[3].data, a->attr.relu, t.rows, t.O);
}

/* ---- backward ------------------------------------------------------------------------------------ */

cloob_status conv2d_dx_prepare_cuda(const op_env *env, op_args *a)
{
    conv_tensors t = tensors_of(&a->out[0], &a->in[1], &a->in[0], a->in[0].dtype);
    dnn_shape d = dnn_shape_of(DNN_DX, &t, &a->attr, t.dtype);
    gemm_shape g = { .m = t.rows, .n = t.C, .k = t.O, .in = t.dtype, .out = t.dtype, .alpha = 1.0f };
    conv_state *s;
    CLOOB_TRY(state_make(env, a, &s));
    CLOOB_TRY(ours_or_dnn(env, &d, t.c, s));
    if (windows_apart(&t, &a->attr) && is_matrix(&t)) CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &g, &s->gemm));
    return decide(env, s, a, &t, 0.0f, 0.0f);
}

cloob_status conv2d_dx_cuda(const op_env *env, const op_args *a)
{
    const conv_state *s = a->state;
    conv_tensors t = tensors_of(&a->out[0], &a->in[1], &a->in[0], a->in[0].dtype);
    void *w;
    if (s->gemm)
        return gemm_run(env->ctx, env->dev, s->gemm, env->stream, t.x->data, t.y->data, t.w->data, NULL, NULL,
                        a->scratch);
    if (s->small) return run_small(env, a, s, &t);
    CLOOB_TRY(full_weights(env, a, &t, s->w, &w));
    return dnn_run(env->ctx, env->dev, s->dnn, env->stream, t.x->data, w, t.y->data, a->scratch);
}

/* By cuDNN in the compute type first: its only engine with F32 output is its fallback, two to sixty times as slow on an
 * H200. */
static cloob_status dw_plan(const op_env *env, const op_args *a, const conv_tensors *t, conv_state *s)
{
    dnn_shape d = dnn_shape_of(DNN_DW, t, &a->attr, t->dtype);
    s->w_type = t->dtype;
    CLOOB_TRY(ours_or_dnn(env, &d, t->c, s));
    if (s->small || s->dnn || t->dtype == CLOOB_F32) return CLOOB_OK;
    d.w_dtype = s->w_type = CLOOB_F32;
    return dnn_plan_create(env->ctx, env->dev, &d, &s->dnn);
}

cloob_status conv2d_dw_prepare_cuda(const op_env *env, op_args *a)
{
    conv_tensors t = tensors_of(&a->in[1], &a->in[2], &a->in[0], a->in[0].dtype);
    gemm_shape g = {
        .m = t.O, .n = t.K * t.K * t.c, .k = t.rows, .ta = true, .in = t.dtype, .out = CLOOB_F32, .alpha = 1.0f
    };
    conv_state *s;
    CLOOB_TRY(state_make(env, a, &s));
    s->gather = !is_matrix(&t);
    CLOOB_TRY(dw_plan(env, a, &t, s));
    if (windows_apart(&t, &a->attr)) CLOOB_TRY(gemm_plan_create(env->ctx, env->dev, &g, &s->gemm));
    return decide(env, s, a, &t, s->gather ? move_ms(2.0 * (double)window_bytes(&t)) : 0.0f, 0.0f);
}

cloob_status conv2d_dw_cuda(const op_env *env, const op_args *a)
{
    const conv_state *s = a->state;
    conv_tensors t = tensors_of(&a->in[1], &a->out[0], &a->in[0], a->in[0].dtype);
    const void *windows;
    if (s->gemm) {
        CLOOB_TRY(windows_of(env, a, s, &t, &windows));
        return gemm_run(env->ctx, env->dev, s->gemm, env->stream, t.w->data, t.y->data, windows, NULL, NULL,
                        a->scratch);
    }
    if (s->small) return run_small(env, a, s, &t);
    bool direct = s->w_type == CLOOB_F32 && t.c == t.C;
    void *dw = direct ? t.w->data : at(a, s->w);
    CLOOB_TRY(dnn_run(env->ctx, env->dev, s->dnn, env->stream, t.x->data, dw, t.y->data, a->scratch));
    if (direct) return CLOOB_OK;
    return repad_cuda(env, "conv2d_dw", t.w->data, CLOOB_F32, t.c, dw, s->w_type, t.C, t.O * t.K * t.K);
}
