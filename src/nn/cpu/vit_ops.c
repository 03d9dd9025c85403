/* Tokens without a class token, mean pooling, a repeated query, layer scale. */
#include <string.h>

#include "nn/cpu/cpu.h"

/* out (C) = sums over R rows of a, or of a b. */
typedef struct column_job {
    const void *a, *b;
    float *out;
    int64_t R, C;
} column_job;

#include "nn/cpu/real_f32.h"
#include "nn/cpu/vit_ops_loops.h"
#include "nn/cpu/real_bf16.h"
#include "nn/cpu/vit_ops_loops.h"

void cpu_sum_columns(const op_env *env, const tensor *a, const tensor *b, int64_t C, float *out)
{
    column_job j = { a->data, b ? b->data : NULL, out, tensor_count(a) / C, C };
    if (out) pool_for(env->ctx, C, 64, CPU_PICK(*a, column_range), &j);
}

cloob_status grid_tokens_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, tensor_rows(&a->out[0]), 16, CPU_PICK(a->out[0], grid_tokens_range));
}

cloob_status grid_tokens_bwd_cpu(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0];
    if (a->out[0].data) memcpy(a->out[0].data, dy->data, tensor_bytes(dy));
    cpu_sum_columns(env, dy, NULL, dy->dim[2], a->out[1].data);
    cpu_sum_columns(env, dy, NULL, dy->dim[1] * dy->dim[2], a->out[2].data);
    return CLOOB_OK;
}

cloob_status mean_rows_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, a->out[0].dim[0], 1, CPU_PICK(a->out[0], mean_rows_range));
}

cloob_status mean_rows_bwd_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, tensor_rows(&a->out[0]), 16, CPU_PICK(a->out[0], mean_rows_bwd_range));
}

cloob_status repeat_row_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, a->out[0].dim[0], 16, CPU_PICK(a->out[0], repeat_row_range));
}

cloob_status repeat_row_bwd_cpu(const op_env *env, const op_args *a)
{
    cpu_sum_columns(env, &a->in[0], NULL, a->in[0].dim[1], a->out[0].data);
    return CLOOB_OK;
}

/* y, or dx, is x, or dy, times the gain. */
static cloob_status times_gain(const op_env *env, const tensor *x, const tensor *gain, const tensor *y)
{
    op_args args = { .in = { *x, *gain }, .out = { *y } };
    return cpu_over(env, &args, tensor_rows(y), 16, CPU_PICK(*y, scale_range));
}

cloob_status scale_cpu(const op_env *env, const op_args *a)
{
    return times_gain(env, &a->in[0], &a->in[1], &a->out[0]);
}

cloob_status scale_bwd_cpu(const op_env *env, const op_args *a)
{
    if (a->out[0].data) CLOOB_TRY(times_gain(env, &a->in[0], &a->in[2], &a->out[0]));
    cpu_sum_columns(env, &a->in[0], &a->in[1], tensor_cols(&a->in[1]), a->out[1].data);
    return CLOOB_OK;
}
