/* Convolution of each channel by its own kernel. Weights are turned to (k, k, C) first, so that channels are next
 * to each other; threads share rows of the result, or channels of the weights' gradient: sums do not depend on
 * their number. */
#include "nn/cpu/cpu.h"

enum { LANES = 32, KERNEL = 11 }; /* channels at a time; the largest kernel of the gradient's buffer */

typedef struct dw_job {
    const void *x, *dy;
    const float *w; /* (k, k, C) */
    void *y;
    float *dw; /* (C, k, k) */
    int64_t N, H, W, C, k;
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

static cloob_status run(const op_env *env, const op_args *a, bool turned)
{
    const tensor *x = &a->in[0], *w = &a->in[1];
    int64_t C = w->dim[0], k = w->dim[1], K = k * k;
    float *by_place = a->scratch;
    for (int64_t c = 0; c < C; c++)
        for (int64_t p = 0; p < K; p++) by_place[(turned ? K - 1 - p : p) * C + c] = (float)ld(w, c * K + p);
    dw_job j = {
        .x = x->data, .w = by_place, .y = a->out[0].data, .N = x->dim[0], .H = x->dim[1], .W = x->dim[2], .C = C, .k = k
    };
    pool_for(env->ctx, j.N * j.H, 1, CPU_PICK(*x, dwconv_range), &j);
    return CLOOB_OK;
}

cloob_status dwconv_cpu(const op_env *env, const op_args *a) { return run(env, a, false); }

cloob_status dwconv_dx_cpu(const op_env *env, const op_args *a) { return run(env, a, true); }

cloob_status dwconv_dw_cpu(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[1];
    dw_job j = { .x = x->data,
                 .dy = a->in[0].data,
                 .dw = a->out[0].data,
                 .N = x->dim[0],
                 .H = x->dim[1],
                 .W = x->dim[2],
                 .C = x->dim[3],
                 .k = a->out[0].dim[1] };
    if (j.k > KERNEL) return op_kernels_ref[OP_DWCONV_DW].run(env, a);
    pool_for(env->ctx, (j.C + LANES - 1) / LANES, 1, CPU_PICK(*x, dwconv_dw_range), &j);
    return CLOOB_OK;
}
