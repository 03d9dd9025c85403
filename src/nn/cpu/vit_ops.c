/* Tokens without a class token, mean pooling, a repeated query, layer scale. */
#include <string.h>

#include "nn/cpu/cpu.h"

/* out (C) = sums over R rows of a, or of a b, `step` elements apart. */
typedef struct column_job {
    const void *a, *b;
    float *out;
    int64_t R, C, step;
} column_job;

#include "nn/cpu/real_f32.h"
#include "nn/cpu/vit_ops_loops.h"
#include "nn/cpu/real_bf16.h"
#include "nn/cpu/vit_ops_loops.h"

void cpu_sum_columns(const op_env *env, const tensor *a, const tensor *b, int64_t C, float *out)
{
    column_job j = { a->data, b ? b->data : NULL, out, tensor_count(a) / C, C, C };
    if (out) pool_for(env->ctx, C, 64, CPU_PICK(*a, column_range), &j);
}

static cloob_status sum_columns_of(const op_env *env, const tensor *a, column_job *j)
{
    pool_for(env->ctx, j->C, 64, CPU_PICK(*a, column_range), j);
    return CLOOB_OK;
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
    return cpu_over(env, a, op_live_places(env, &a->out[0]), 1, CPU_PICK(a->out[0], mean_rows_range));
}

cloob_status mean_rows_bwd_cpu(const op_env *env, const op_args *a)
{
    const tensor *dx = &a->out[0], *start = &a->in[2];
    int64_t N = a->in[0].dim[0], dead = start->data ? ((const int32_t *)start->data)[N] : tensor_rows(dx);
    size_t row = (size_t)tensor_cols(dx) * dtype_size(dx->dtype);
    memset((char *)dx->data + (size_t)dead * row, 0, (size_t)(tensor_rows(dx) - dead) * row);
    return cpu_over(env, a, N, 1, CPU_PICK(*dx, mean_rows_bwd_range));
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
    pool_share(env->ctx, tensor_rows(y), 16, CPU_PICK(*y, scale_range), &args);
    return CLOOB_OK;
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

cloob_status bias_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, op_live_rows(env, &a->out[0]), 16, CPU_PICK(a->out[0], bias_range));
}

/* Columns without a bias are left out: the sums of the three thirds are taken one by one. */
cloob_status bias_bwd_cpu(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0];
    int64_t C = tensor_cols(dy), n = a->out[0].dim[0], third = C / 3;
    float *out = a->out[0].data;
    size_t element = dtype_size(dy->dtype);
    column_job all = { dy->data, NULL, out, tensor_rows(dy), C, C };
    if (n == C) return sum_columns_of(env, dy, &all);
    column_job q = { dy->data, NULL, out, tensor_rows(dy), third, C };
    column_job v = { (const char *)dy->data + (size_t)(2 * third) * element, NULL, out + third, q.R, third, C };
    CLOOB_TRY(sum_columns_of(env, dy, &q));
    return sum_columns_of(env, dy, &v);
}

cloob_status gate_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, op_live_rows(env, &a->out[0]), 4, CPU_PICK(a->out[0], gate_range));
}

cloob_status gate_bwd_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, tensor_rows(&a->in[0]), 4, CPU_PICK(a->out[0], gate_bwd_range));
}

cloob_status excite_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, op_live_places(env, &a->out[0]), 1, CPU_PICK(a->out[0], excite_range));
}

cloob_status excite_bwd_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, a->in[0].dim[0], 1, CPU_PICK(a->in[0], excite_bwd_range));
}

cloob_status rope_prepare(const op_env *env, op_args *a)
{
    (void)env;
    int64_t T = a->in[0].dim[1], e = a->in[0].dim[2] / 3 / a->attr.heads;
    a->scratch_bytes = (size_t)(T * e) * sizeof(float);
    return CLOOB_OK;
}

/* The table of all places is a few hundred times smaller than x. */
cloob_status rope_cpu(const op_env *env, const op_args *a)
{
    int64_t T = a->in[0].dim[1], e = a->in[0].dim[2] / 3 / a->attr.heads;
    float *turn = a->scratch;
    for (int64_t i = 0; i < T * e; i += 2) {
        int64_t t = i / e - a->attr.rows;
        double angle = t < 0 ? 0.0 : op_rope_angle(&a->attr, t, i % e / 2, e);
        turn[i] = (float)cos(angle), turn[i + 1] = (float)sin(angle);
    }
    return cpu_over(env, a, op_live_rows(env, &a->out[0]), 16, CPU_PICK(a->out[0], rope_range));
}

cloob_status mask_queries_cpu(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    const int32_t *index = a->in[1].data;
    size_t row = (size_t)x->dim[2] * dtype_size(x->dtype);
    (void)env;
    for (int64_t r = 0, T = x->dim[1]; r < tensor_rows(x); r++) {
        char *y = (char *)a->out[0].data + (size_t)r * row;
        memcpy(y, (const char *)x->data + (size_t)r * row, row);
        if (r % T > index[r / T]) memset(y, 0, row / 3);
    }
    return CLOOB_OK;
}
