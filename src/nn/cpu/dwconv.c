/* Convolution of each channel by its own kernels. Weights are ordered as (m, k, k, C) first, so that channels are next
 * to each other; threads share rows of the result, or channels of the weights' gradient: sums do not depend on
 * their number. */
#include "nn/cpu/cpu.h"

enum { LANES = 32, KERNEL = 11 }; /* channels at a time; the largest kernel of the gradient's buffer */

typedef struct dw_job {
    const void *x, *dy;
    const float *w;    /* (m, k, k, C) */
    const float *bias; /* (m C) */
    void *y;
    float *dw;             /* (m C, k, k) */
    int64_t N, H, W, C, k; /* of x and the kernel */
    int64_t Ho, Wo, s, m;  /* of the result, steps, kernels per channel */
} dw_job;

#include "nn/cpu/real_f32.h"
#include "nn/cpu/dwconv_loops.h"
#include "nn/cpu/real_bf16.h"
#include "nn/cpu/dwconv_loops.h"

cloob_status dwconv_prepare(const op_env *env, op_args *a)
{
    (void)env;
    a->scratch_bytes = (size_t)tensor_count(&a->in[1]) * sizeof(float);
    return CLOOB_OK;
}

static dw_job job_of(const tensor *x, const tensor *w, const tensor *y, const op_attr *attr)
{
    return (dw_job){ .N = x->dim[0],
                     .H = x->dim[1],
                     .W = x->dim[2],
                     .C = x->dim[3],
                     .k = w->dim[1],
                     .Ho = y->dim[1],
                     .Wo = y->dim[2],
                     .s = attr->stride,
                     .m = w->dim[0] / x->dim[3] };
}

/* The weights in the order of dw_job, with the kernels turned by half a circle or not. */
static const float *by_place(const op_args *a, const dw_job *j, bool turned)
{
    const tensor *w = &a->in[1];
    float *to = a->scratch;
    for (int64_t o = 0, K = j->k * j->k; o < w->dim[0]; o++)
        for (int64_t p = 0; p < K; p++)
            to[(o % j->m * K + (turned ? K - 1 - p : p)) * j->C + o / j->m] = (float)ld(w, o * K + p);
    return to;
}

cloob_status dwconv_cpu(const op_env *env, const op_args *a)
{
    dw_job j = job_of(&a->in[0], &a->in[1], &a->out[0], &a->attr);
    j.x = a->in[0].data, j.w = by_place(a, &j, false), j.bias = a->in[2].data, j.y = a->out[0].data;
    pool_share(env->ctx, op_live_places(env, &a->out[0]) * j.Ho, 1, CPU_PICK(a->in[0], dwconv_range), &j);
    return CLOOB_OK;
}

/* Without steps it is a convolution of dy by the turned kernels. */
cloob_status dwconv_dx_cpu(const op_env *env, const op_args *a)
{
    dw_job j = job_of(&a->out[0], &a->in[1], &a->in[0], &a->attr);
    bool plain = j.s == 1 && j.m == 1;
    j.x = j.dy = a->in[0].data, j.w = by_place(a, &j, plain), j.y = a->out[0].data;
    if (plain) pool_share(env->ctx, j.N * j.H, 1, CPU_PICK(a->in[0], dwconv_range), &j);
    else pool_share(env->ctx, j.N * j.H, 1, CPU_PICK(a->in[0], dwconv_dx_range), &j);
    return CLOOB_OK;
}

cloob_status dwconv_dw_cpu(const op_env *env, const op_args *a)
{
    dw_job j = job_of(&a->in[1], &a->out[0], &a->in[0], &a->attr);
    j.x = a->in[1].data, j.dy = a->in[0].data, j.dw = a->out[0].data;
    if (j.k > KERNEL) return op_kernels_ref[OP_DWCONV_DW].run(env, a);
    pool_share(env->ctx, (j.C + LANES - 1) / LANES * j.m, 1, CPU_PICK(a->in[0], dwconv_dw_range), &j);
    return CLOOB_OK;
}
