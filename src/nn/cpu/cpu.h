/* The cpu backend: fast kernels in F32 and bf16 for the host, over all of the context's threads. bf16 is an element
 * type in memory: sums, statistics and everything between load and store are float.
 *
 * Sums over a batch are taken per image and then in order, so results do not depend on the number of threads. */
#ifndef NN_CPU_CPU_H
#define NN_CPU_CPU_H

#include "core/pool.h"
#include "nn/ref/ref.h"
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/clones.h"
#include "tensor/cpu/vmath.h"

/* The loop of a tensor's element type, where loops exist for F32 and bf16 under one name. */
#define CPU_PICK(t, loop) ((t).dtype == CLOOB_BF16 ? loop##_bf16 : loop##_f32)

/* The sizes of an image tensor. */
typedef struct planes {
    int64_t N, H, W, HW, C;
} planes;

static inline planes planes_of(const tensor *t)
{
    return (planes){ t->dim[0], t->dim[1], t->dim[2], t->dim[1] * t->dim[2], t->dim[3] };
}

/* fn over n items of a call, `grain` or more of them at a time on each thread. */
static inline cloob_status cpu_over(const op_env *env, const op_args *a, int64_t n, int64_t grain, pool_fn *fn)
{
    op_args args = *a;
    pool_for(env->ctx, n, grain, fn, &args);
    return CLOOB_OK;
}

/* Where a call stores output 0 in 8 bits, and where in its own type; NULL: not there. */
static inline void *cpu_rounded_out(const op_args *a)
{
    return !a->attr.rounded_out ? NULL : a->out[OP_ROUNDED_OUT].data ? a->out[OP_ROUNDED_OUT].data : a->out[0].data;
}
static inline void *cpu_own_out(const op_args *a)
{
    return a->attr.rounded_out && !a->out[OP_ROUNDED_OUT].data ? NULL : a->out[0].data;
}

/* out (C) = sums of a, or of a b, over their rows of C elements; NULL: not needed. Threads share the columns, so that
 * every sum is taken in the order of the rows. */
void cpu_sum_columns(const op_env *env, const tensor *a, const tensor *b, int64_t C, float *out);

typedef cloob_status cpu_run(const op_env *env, const op_args *a);
typedef cloob_status cpu_prepare(const op_env *env, op_args *a);
typedef void cpu_release(const op_env *env, op_args *a);

cpu_run image_input_cpu, embed_cpu, embed_bwd_cpu, take_rows_cpu, take_rows_bwd_cpu, mean_tokens_cpu,
    mean_tokens_bwd_cpu, bn_stats_cpu, bn_apply_cpu, bn_bwd_reduce_cpu, bn_bwd_apply_cpu, relu_cpu, add_cpu,
    avgpool2_cpu, avgpool2_bwd_cpu, linear_cpu, linear_dx_cpu, linear_dw_cpu, act_cpu, act_bwd_cpu, layernorm_cpu,
    layernorm_bwd_cpu, attention_cpu, attention_bwd_cpu, heads_project_cpu, heads_collect_cpu, heads_dw_cpu,
    pool_attention_cpu, pool_attention_bwd_cpu, conv2d_cpu, conv2d_dx_cpu, conv2d_dw_cpu, fold_bn_cpu, class_tokens_cpu,
    class_tokens_bwd_cpu, attention_one_cpu, attention_one_bwd_cpu, grid_tokens_cpu, grid_tokens_bwd_cpu, mean_rows_cpu,
    mean_rows_bwd_cpu, repeat_row_cpu, repeat_row_bwd_cpu, scale_cpu, scale_bwd_cpu, bias_cpu, bias_bwd_cpu, gate_cpu,
    gate_bwd_cpu, rope_cpu, mask_queries_cpu, dwconv_cpu, dwconv_dx_cpu, dwconv_dw_cpu, excite_cpu, excite_bwd_cpu;
cpu_prepare bn_sums_prepare, layernorm_bwd_prepare, attention_prepare, attention_bwd_prepare,
    pool_attention_bwd_prepare, conv2d_prepare, conv2d_dx_prepare, conv2d_dw_prepare, bn_bwd_sums_prepare,
    bn_apply_prepare, bn_bwd_apply_prepare, linear_prepare, linear_dx_prepare, linear_dw_prepare, heads_project_prepare,
    heads_collect_prepare, heads_dw_prepare, pool_attention_prepare, attention_one_prepare, attention_one_bwd_prepare,
    rope_prepare, dwconv_prepare;
cpu_release conv2d_release, linear_release;

#endif
