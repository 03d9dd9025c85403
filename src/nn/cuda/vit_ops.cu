/* Tokens without a class token, mean pooling, a repeated query, layer scale: one thread per element, sums by
 * columns. */
#include "nn/cuda/common.cuh"

static __global__ void position_kernel(int32_t *index, const int32_t *token, int64_t N, int64_t T, int32_t wanted,
                                       int32_t place)
{
    int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    int32_t at = wanted ? 0 : place;
    for (int64_t t = T - 1; wanted && t >= 0; t--)
        if (token[n * T + t] == wanted) at = (int32_t)t;
    index[n] = at;
}

template <typename T>
static __global__ void grid_tokens_kernel(T *y, const T *x, const float *bias, const float *pos, int64_t items,
                                          int64_t C, int64_t TC)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < items) y[i] = from_float<T>(to_float(x[i]) + bias[i % C] + pos[i % TC]);
}

/* out[c] = sum over R rows of a, or of a b: 32 columns a block, 8 threads share the rows; always in the same order. */
template <typename T>
static __global__ void column_kernel(float *out, const T *a, const T *b, int64_t R, int64_t C)
{
    __shared__ float part[8][32];
    int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    for (int64_t r = threadIdx.y; c < C && r < R; r += 8)
        sum += to_float(a[r * C + c]) * (b ? to_float(b[r * C + c]) : 1.0f);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= C) return;
    for (int k = 1; k < 8; k++) sum += part[k][threadIdx.x];
    out[c] = sum;
}

template <typename T>
static __global__ void mean_kernel(T *y, const T *x, int64_t items, int64_t tokens, int64_t C, int64_t first)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    const T *from = x + i / C * tokens * C + i % C;
    float sum = 0.0f;
    for (int64_t t = first; t < tokens; t++) sum += to_float(from[t * C]);
    y[i] = from_float<T>(sum / (float)(tokens - first));
}

template <typename T>
static __global__ void mean_bwd_kernel(T *dx, const T *dy, int64_t items, int64_t tokens, int64_t C, int64_t first)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t t = i / C % tokens, n = i / C / tokens;
    dx[i] = from_float<T>(t < first ? 0.0f : to_float(dy[n * C + i % C]) / (float)(tokens - first));
}

template <typename T>
static __global__ void repeat_kernel(T *y, const float *x, int64_t items, int64_t C)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < items) y[i] = from_float<T>(x[i % C]);
}

template <typename T>
static __global__ void scale_kernel(T *y, const T *x, const float *gain, int64_t items, int64_t C)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < items) y[i] = from_float<T>(to_float(x[i]) * gain[i % C]);
}

/* ---- launchers ----------------------------------------------------------------------------------- */

static cloob_status sum_columns(const op_env *env, const char *op, const tensor *out, const tensor *a, const tensor *b,
                                int64_t C)
{
    if (!out->data) return CLOOB_OK;
    WITH_TYPE(a->dtype, column_kernel<T>
              <<<(unsigned)((C + 31) / 32), dim3(32, 8), 0, stream_of(env)>>>((float *)out->data, (const T *)a->data,
                                                                              b ? (const T *)b->data : (const T *)NULL,
                                                                              tensor_count(a) / C, C));
    return cuda_launched(env->ctx, op);
}

static cloob_status times_gain(const op_env *env, const char *op, const tensor *y, const tensor *x, const tensor *gain)
{
    int64_t items = tensor_count(y);
    WITH_TYPE(y->dtype, scale_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)y->data, (const T *)x->data,
                                                                                       (const float *)gain->data, items,
                                                                                       tensor_cols(y)));
    return cuda_launched(env->ctx, op);
}

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status text_position_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    position_kernel<<<blocks_for(x->dim[0]), 256, 0, stream_of(env)>>>((int32_t *)a->out[0].data,
                                                                       (const int32_t *)x->data, x->dim[0], x->dim[1],
                                                                       (int32_t)a->attr.token, (int32_t)a->attr.tokens);
    return cuda_launched(env->ctx, "text_position");
}

extern "C" cloob_status grid_tokens_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->out[0];
    int64_t items = tensor_count(y), C = y->dim[2];
    WITH_TYPE(y->dtype, grid_tokens_kernel<T>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)y->data, (const T *)a->in[0].data,
                                                              (const float *)a->in[1].data,
                                                              (const float *)a->in[2].data, items, C, y->dim[1] * C));
    return cuda_launched(env->ctx, "grid_tokens");
}

extern "C" cloob_status grid_tokens_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0];
    if (a->out[0].data)
        CLOOB_TRY(cuda_check(env->ctx,
                             cudaMemcpyAsync(a->out[0].data, dy->data, tensor_bytes(dy), cudaMemcpyDeviceToDevice,
                                             stream_of(env)),
                             "grid_tokens_bwd"));
    CLOOB_TRY(sum_columns(env, "grid_tokens_bwd", &a->out[1], dy, NULL, dy->dim[2]));
    return sum_columns(env, "grid_tokens_bwd", &a->out[2], dy, NULL, dy->dim[1] * dy->dim[2]);
}

extern "C" cloob_status mean_rows_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    int64_t items = tensor_count(&a->out[0]);
    WITH_TYPE(x->dtype,
              mean_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (const T *)x->data,
                                                                            items, x->dim[1], x->dim[2], a->attr.rows));
    return cuda_launched(env->ctx, "mean_rows");
}

extern "C" cloob_status mean_rows_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dx = &a->out[0];
    int64_t items = tensor_count(dx);
    WITH_TYPE(dx->dtype, mean_bwd_kernel<T>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)dx->data, (const T *)a->in[0].data, items,
                                                              dx->dim[1], dx->dim[2], a->attr.rows));
    return cuda_launched(env->ctx, "mean_rows_bwd");
}

extern "C" cloob_status repeat_row_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->out[0];
    int64_t items = tensor_count(y);
    WITH_TYPE(y->dtype, repeat_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)y->data,
                                                                                        (const float *)a->in[0].data,
                                                                                        items, y->dim[1]));
    return cuda_launched(env->ctx, "repeat_row");
}

extern "C" cloob_status repeat_row_bwd_cuda(const op_env *env, const op_args *a)
{
    return sum_columns(env, "repeat_row_bwd", &a->out[0], &a->in[0], NULL, a->in[0].dim[1]);
}

extern "C" cloob_status scale_cuda(const op_env *env, const op_args *a)
{
    return times_gain(env, "scale", &a->out[0], &a->in[0], &a->in[1]);
}

extern "C" cloob_status scale_bwd_cuda(const op_env *env, const op_args *a)
{
    if (a->out[0].data) CLOOB_TRY(times_gain(env, "scale_bwd", &a->out[0], &a->in[0], &a->in[2]));
    return sum_columns(env, "scale_bwd", &a->out[1], &a->in[0], &a->in[1], tensor_cols(&a->in[1]));
}
