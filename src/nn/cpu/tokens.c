/* Images, token embeddings, and the grid of an image as tokens, which may come in blocks of channels. */
#include <string.h>

#include "nn/cpu/cpu.h"

enum { LANES = 64 };

typedef struct sum_job {
    const void *dy;
    float *sum;
    int64_t N, stride;
} sum_job;

#include "nn/cpu/real_f32.h"
#include "nn/cpu/tokens_loops.h"
#include "nn/cpu/real_bf16.h"
#include "nn/cpu/tokens_loops.h"

cloob_status image_input_cpu(const op_env *env, const op_args *a)
{
    if (image_patch(&a->attr) > 1) return op_kernels_ref[OP_IMAGE_INPUT].run(env, a); /* for GPUs: not used here */
    return cpu_over(env, a, op_live_places(env, &a->out[0]) * a->out[0].dim[1], 8, CPU_PICK(a->out[0], input_range));
}

cloob_status embed_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, op_live_rows(env, &a->out[0]), 64, CPU_PICK(a->out[0], embed_range));
}

cloob_status embed_bwd_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, tensor_cols(&a->in[0]), 16, CPU_PICK(a->in[0], embed_bwd_range));
}

/* The row of x that entry i of index names: inside its sequence, or packed, of all. */
static size_t row_of(const tensor *x, const tensor *index, int64_t i)
{
    int64_t t = index->data ? ((const int32_t *)index->data)[i] : 0;
    int64_t each = index->data && index->ndim == 2 ? index->dim[1] : 1;
    return (size_t)(x->ndim == 2 ? t : i / each * x->dim[1] + t);
}

cloob_status take_rows_cpu(const op_env *env, const op_args *a)
{
    const tensor *from = &a->in[0];
    size_t row = (size_t)tensor_cols(from) * dtype_size(from->dtype);
    const char *x = from->data;
    char *y = a->out[0].data;
    int64_t N = op_live_rows(env, &a->out[0]);
    for (int64_t n = 0; n < N; n++) memcpy(y + (size_t)n * row, x + row_of(from, &a->in[1], n) * row, row);
    return CLOOB_OK;
}

cloob_status take_rows_bwd_cpu(const op_env *env, const op_args *a)
{
    const tensor *to = &a->out[0];
    int64_t C = tensor_cols(to);
    size_t row = (size_t)C * dtype_size(to->dtype);
    const char *dy = a->in[0].data, *extra = a->in[3].data;
    char *dx = to->data;
    (void)env;
    if (extra && extra != dx) memcpy(dx, extra, tensor_bytes(to));
    if (!extra) memset(dx, 0, tensor_bytes(to));
    for (int64_t n = 0; n < tensor_rows(&a->in[0]); n++)
        CPU_PICK(a->in[0], add_row)(dx + row_of(to, &a->in[1], n) * row, dy + (size_t)n * row, C);
    return CLOOB_OK;
}

/* ---- grid to tokens ------------------------------------------------------------------------------ */

/* Sums the first `count` elements of every row of the batch. */
static void batch_sum(const op_env *env, const tensor *dy, float *sum, int64_t count)
{
    sum_job j = { dy->data, sum, dy->dim[0], dy->dim[1] * dy->dim[2] };
    if (sum) pool_for(env->ctx, count, 1024, CPU_PICK(*dy, batch_sum_range), &j);
}

cloob_status mean_tokens_cpu(const op_env *env, const op_args *a)
{
    planes z = planes_of(&a->in[0]);
    return cpu_over(env, a, z.N * ((z.C + LANES - 1) / LANES), 1, CPU_PICK(a->in[0], mean_tokens_range));
}

cloob_status mean_tokens_bwd_cpu(const op_env *env, const op_args *a)
{
    if (a->out[0].data) {
        planes z = planes_of(&a->out[0]);
        cpu_over(env, a, z.N, 1, CPU_PICK(a->in[0], mean_tokens_dx_range));
    }
    batch_sum(env, &a->in[0], a->out[1].data, tensor_count(&a->out[1]));
    return CLOOB_OK;
}

cloob_status class_tokens_cpu(const op_env *env, const op_args *a)
{
    return cpu_over(env, a, op_live_rows(env, &a->out[0]), 16, CPU_PICK(a->out[0], class_tokens_range));
}

cloob_status class_tokens_bwd_cpu(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0];
    size_t token = (size_t)dy->dim[2] * dtype_size(dy->dtype), grid = token * (size_t)(dy->dim[1] - 1);
    for (int64_t n = 0; a->out[0].data && n < dy->dim[0]; n++)
        memcpy((char *)a->out[0].data + (size_t)n * grid, (const char *)dy->data + (size_t)n * (grid + token) + token,
               grid);
    batch_sum(env, dy, a->out[1].data, dy->dim[2]);
    batch_sum(env, dy, a->out[2].data, dy->dim[1] * dy->dim[2]);
    return CLOOB_OK;
}
