/* Tokens without a class token, mean pooling, a repeated query, layer scale: one thread per element, sums by
 * columns. */
#include "nn/cuda/common.cuh"

static __global__ void position_kernel(int32_t *index, const int32_t *token, int64_t N, int64_t T, int32_t wanted,
                                       int32_t place, bool unlike)
{
    int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    bool by_token = unlike || wanted;
    int32_t at = by_token ? 0 : place;
    for (int64_t t = T - 1; by_token && t >= 0; t--) {
        if ((token[n * T + t] == wanted) == unlike) continue;
        at = (int32_t)t;
        if (unlike) break;
    }
    index[n] = at;
}

template <typename T>
static __global__ void grid_tokens_kernel(T *y, const T *x, const float *bias, const float *pos, int64_t items,
                                          int64_t C, int64_t TC)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < items) y[i] = from_float<T>(to_float(x[i]) + (bias ? bias[i % C] : 0.0f) + pos[i % TC]);
}

/* ---- NaFlex ---- */

/* Which sequence row r belongs to; N: none. */
static __device__ int64_t sequence_of(const int32_t *start, int64_t N, int64_t r)
{
    int64_t low = 0, high = N; /* start[low] <= r < start[high], if r is of any */
    if (r >= start[N]) return N;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (start[middle] <= r) low = middle;
        else high = middle;
    }
    return low;
}

/* One thread: there are few images. */
static __global__ void record_grids_kernel(int32_t *start, int32_t *grid, const uint8_t *x, int64_t N, int64_t bytes,
                                           int64_t most)
{
    int32_t r = 0;
    for (int64_t n = 0; n < N; n++) {
        const uint8_t *end = x + (n + 1) * bytes - 4;
        int32_t h = end[0] | end[1] << 8, w = end[2] | end[3] << 8;
        if (h < 1 || w < 1 || (int64_t)h * w > most) {
            for (h = 1; (int64_t)(h + 1) * (h + 1) <= most;) h++;
            w = h;
        }
        start[n] = r, grid[2 * n] = h, grid[2 * n + 1] = w;
        r += h * w;
    }
    start[N] = r;
}

struct channel_scale {
    float mean[3], std[3];
};

template <typename T>
static __global__ void patch_rows_kernel(T *y, const uint8_t *x, const int32_t *start, const int32_t *grid,
                                         int64_t items, int64_t N, int64_t bytes, int64_t P, channel_scale s)
{
    int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = 3 * P * P;
    if (e >= items) return;
    int64_t r = e / row, k = e % row, c = k % 3, n = sequence_of(start, N, r);
    if (n == N) {
        y[e] = from_float<T>(0.0f);
        return;
    }
    int64_t t = r - start[n], w = grid[2 * n + 1], i = t / w * P + k / 3 / P, j = t % w * P + k / 3 % P;
    y[e] = from_float<T>((x[n * bytes + (i * w * P + j) * 3 + c] / 255.0f - s.mean[c]) / s.std[c]);
}

/* The share of place j of a grid in the place whose centre is there, before they are scaled to sum to 1. */
static __device__ float grid_share(int64_t j, float centre, float wide)
{
    return fmaxf(0.0f, 1.0f - fabsf((float)j + 0.5f - centre) / wide);
}

template <typename T>
static __global__ void grid_positions_kernel(T *y, const T *x, const float *pos, const int32_t *start,
                                             const int32_t *grid, int64_t items, int64_t N, int64_t C, int64_t G)
{
    int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= items) return;
    int64_t r = e / C, c = e % C, n = sequence_of(start, N, r);
    float v = to_float(x[e]), sum = 0.0f, all = 0.0f;
    if (n < N) {
        int64_t h = max(grid[2 * n], 1), w = max(grid[2 * n + 1], 1), t = r - start[n], top = min(t / w, h - 1);
        float sy = (float)G / (float)h, sx = (float)G / (float)w, wy = fmaxf(sy, 1.0f), wx = fmaxf(sx, 1.0f);
        float cy = ((float)top + 0.5f) * sy, cx = ((float)(t % w) + 0.5f) * sx;
        for (int64_t i = max((int64_t)(cy - wy), (int64_t)0); i < G && (float)i < cy + wy; i++)
            for (int64_t j = max((int64_t)(cx - wx), (int64_t)0); j < G && (float)j < cx + wx; j++) {
                float share = grid_share(i, cy, wy) * grid_share(j, cx, wx);
                sum += share * pos[(i * G + j) * C + c];
                all += share;
            }
        v += sum / all;
    }
    y[e] = from_float<T>(v);
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
static __global__ void mean_kernel(T *y, const T *x, const int32_t *start, int64_t items, int64_t tokens, int64_t C,
                                   int64_t skip)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t n = i / C, first = start ? start[n] : n * tokens, rows = start ? start[n + 1] - first : tokens;
    const T *from = x + first * C + i % C;
    float sum = 0.0f;
    for (int64_t t = skip; t < rows; t++) sum += to_float(from[t * C]);
    y[i] = from_float<T>(sum / (float)(rows - skip));
}

template <typename T>
static __global__ void mean_bwd_kernel(T *dx, const T *dy, const int32_t *start, int64_t items, int64_t N,
                                       int64_t tokens, int64_t C, int64_t skip)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t row = i / C, n = row / tokens, first = n * tokens, rows = tokens;
    if (start) {
        int64_t low = 0, high = N; /* the sequence of a row by bisection; N: a padding row */
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (start[middle + 1] <= row) low = middle + 1;
            else high = middle;
        }
        n = low, first = n < N ? start[n] : 0, rows = n < N ? start[n + 1] - first : 0;
    }
    bool none = row - first < skip || (start && n == N);
    dx[i] = from_float<T>(none ? 0.0f : to_float(dy[n * C + i % C]) / (float)(rows - skip));
}

template <typename T>
static __global__ void bias_kernel(T *y, const T *x, const float *bias, int64_t items, int64_t C, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, c = i % C, third = C / 3;
    if (i >= items) return;
    float b = n == C || c < third ? bias[c] : c < 2 * third ? 0.0f : bias[c - third];
    y[i] = from_float<T>(to_float(x[i]) + b);
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

template <typename T>
static __global__ void gate_kernel(T *y, const T *x, int64_t items, int64_t C)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, at = i / C * 2 * C + i % C;
    if (i >= items) return;
    float g = to_float(x[at]);
    y[i] = from_float<T>(g * to_float(x[at + C]) / (1.0f + expf(-g)));
}

template <typename T>
static __global__ void gate_bwd_kernel(T *dx, const T *dy, const T *x, int64_t items, int64_t C)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, at = i / C * 2 * C + i % C;
    if (i >= items) return;
    float g = to_float(x[at]), s = 1.0f / (1.0f + expf(-g)), d = to_float(dy[i]);
    dx[at] = from_float<T>(d * to_float(x[at + C]) * (s + g * s * (1.0f - s)));
    dx[at + C] = from_float<T>(d * g * s);
}

template <typename T>
static __global__ void excite_kernel(T *y, const T *x, const T *g, int64_t items, int64_t C, int64_t image)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < items) y[i] = from_float<T>(to_float(x[i]) / (1.0f + expf(-to_float(g[i / image * C + i % C]))));
}

/* A thread per image and channel; neighbours read neighbouring channels. */
template <typename T>
static __global__ void excite_bwd_kernel(T *dx, T *dg, const T *dy, const T *x, const T *g, int64_t items, int64_t C,
                                         int64_t P)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, first = i / C * P * C + i % C;
    if (i >= items) return;
    float s = 1.0f / (1.0f + expf(-to_float(g[i]))), sum = 0.0f;
    for (int64_t at = first; at < first + P * C; at += C) {
        float d = to_float(dy[at]);
        sum += d * to_float(x[at]);
        if (dx) dx[at] = from_float<T>(d * s);
    }
    if (dg) dg[i] = from_float<T>(sum * s * (1.0f - s));
}

/* A thread per pair of columns. */
template <typename T>
static __global__ void rope_kernel(T *y, const T *x, int64_t pairs, int64_t tokens, int64_t C, int e, int skip,
                                   int side, float scale, float offset, bool swapped, bool inverse)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, c = 2 * i % (3 * C),
            t = 2 * i / (3 * C) % tokens - skip;
    if (i >= pairs) return;
    float u = to_float(x[2 * i]), v = to_float(x[2 * i + 1]), sine = 0.0f, cosine = 1.0f;
    if (c < 2 * C && t >= 0) {
        int p = (int)(c % e / 2), bands = e / 4, row = (int)(t / side), column = (int)(t % side);
        float at = (float)((p < bands) != swapped ? row : column) + offset;
        sincosf(at * scale * exp2f(-(float)(p % bands) / (float)bands * 13.2877123795f), &sine, &cosine);
        if (inverse) sine = -sine;
    }
    y[2 * i] = from_float<T>(u * cosine - v * sine);
    y[2 * i + 1] = from_float<T>(v * cosine + u * sine);
}

template <typename T>
static __global__ void mask_queries_kernel(T *y, const T *x, const int32_t *index, int64_t items, int64_t tokens,
                                           int64_t C)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / (3 * C);
    if (i >= items) return;
    y[i] = i % (3 * C) < C && row % tokens > index[row / tokens] ? from_float<T>(0.0f) : x[i];
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
                                                                       (int32_t)a->attr.token, (int32_t)a->attr.tokens,
                                                                       a->attr.unlike);
    return cuda_launched(env->ctx, "text_position");
}

extern "C" cloob_status patch_rows_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t N = x->dim[0], bytes = tensor_count(x) / N, items = tensor_count(y);
    const uint8_t *from = (const uint8_t *)x->data;
    int32_t *start = (int32_t *)a->out[1].data, *grid = (int32_t *)a->out[2].data;
    channel_scale s;
    for (int c = 0; c < 3; c++) s.mean[c] = a->attr.mean[c], s.std[c] = a->attr.std[c];
    record_grids_kernel<<<1, 1, 0, stream_of(env)>>>(start, grid, from, N, bytes, a->attr.rows);
    CLOOB_TRY(cuda_launched(env->ctx, "patch_rows"));
    WITH_TYPE(y->dtype,
              patch_rows_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)y->data, from, start, grid,
                                                                                  items, N, bytes, a->attr.patch, s));
    return cuda_launched(env->ctx, "patch_rows");
}

extern "C" cloob_status grid_positions_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->out[0];
    int64_t items = tensor_count(y), C = tensor_cols(y), G = 1;
    while (G * G < a->in[1].dim[0]) G++;
    WITH_TYPE(y->dtype,
              grid_positions_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>(
                  (T *)y->data, (const T *)a->in[0].data, (const float *)a->in[1].data, (const int32_t *)a->in[2].data,
                  (const int32_t *)a->in[3].data, items, a->in[3].dim[0], C, G));
    return cuda_launched(env->ctx, "grid_positions");
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
    int64_t items = tensor_count(&a->out[0]), T_ = tensor_rows(x) / x->dim[0];
    WITH_TYPE(x->dtype,
              mean_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (const T *)x->data,
                                                                            (const int32_t *)a->in[1].data, items, T_,
                                                                            tensor_cols(x), a->attr.rows));
    return cuda_launched(env->ctx, "mean_rows");
}

extern "C" cloob_status mean_rows_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dx = &a->out[0];
    int64_t items = tensor_count(dx), T_ = tensor_rows(dx) / dx->dim[0];
    WITH_TYPE(dx->dtype, mean_bwd_kernel<T>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)dx->data, (const T *)a->in[0].data,
                                                              (const int32_t *)a->in[2].data, items, a->in[0].dim[0],
                                                              T_, tensor_cols(dx), a->attr.rows));
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

extern "C" cloob_status bias_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->out[0];
    int64_t items = tensor_count(y);
    WITH_TYPE(y->dtype,
              bias_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)y->data, (const T *)a->in[0].data,
                                                                            (const float *)a->in[1].data, items,
                                                                            tensor_cols(y), a->in[1].dim[0]));
    return cuda_launched(env->ctx, "bias");
}

extern "C" cloob_status bias_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *dy = &a->in[0];
    a->scratch_bytes = colsum_scratch(env->dev, tensor_rows(dy), tensor_cols(dy), dy->dtype);
    return CLOOB_OK;
}

/* Without a bias of the keys: the sums of the first and the last third. */
extern "C" cloob_status bias_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0];
    int64_t R = tensor_rows(dy), C = tensor_cols(dy), third = C / 3;
    float *out = (float *)a->out[0].data;
    const char *values = (const char *)dy->data + (size_t)(2 * third) * dtype_size(dy->dtype);
    if (a->out[0].dim[0] == C) return colsum(env, "bias_bwd", out, dy->data, dy->dtype, R, C, 0, a->scratch);
    CLOOB_TRY(colsum(env, "bias_bwd", out, dy->data, dy->dtype, R, third, C, a->scratch));
    return colsum(env, "bias_bwd", out + third, values, dy->dtype, R, third, C, a->scratch);
}

extern "C" cloob_status gate_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->out[0];
    int64_t items = tensor_count(y);
    WITH_TYPE(y->dtype,
              gate_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)y->data, (const T *)a->in[0].data,
                                                                            items, tensor_cols(y)));
    return cuda_launched(env->ctx, "gate");
}

extern "C" cloob_status gate_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0];
    int64_t items = tensor_count(dy);
    WITH_TYPE(dy->dtype, gate_bwd_kernel<T>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (const T *)dy->data,
                                                              (const T *)a->in[1].data, items, tensor_cols(dy)));
    return cuda_launched(env->ctx, "gate_bwd");
}

extern "C" cloob_status excite_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    int64_t items = tensor_count(x), C = x->dim[3];
    WITH_TYPE(x->dtype,
              excite_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (const T *)x->data,
                                                                              (const T *)a->in[1].data, items, C,
                                                                              x->dim[1] * x->dim[2] * C));
    return cuda_launched(env->ctx, "excite");
}

extern "C" cloob_status excite_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *g = &a->in[2];
    int64_t items = tensor_count(g);
    WITH_TYPE(x->dtype, excite_bwd_kernel<T><<<blocks_for(items), 256, 0, stream_of(env)>>>(
                            (T *)a->out[0].data, (T *)a->out[1].data, (const T *)dy->data, (const T *)x->data,
                            (const T *)g->data, items, x->dim[3], x->dim[1] * x->dim[2]));
    return cuda_launched(env->ctx, "excite_bwd");
}

extern "C" cloob_status rope_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    const op_attr *at = &a->attr;
    int64_t pairs = tensor_count(x) / 2, C = x->dim[2] / 3;
    WITH_TYPE(x->dtype, rope_kernel<T>
              <<<blocks_for(pairs), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (const T *)x->data, pairs, x->dim[1],
                                                              C, (int)(C / at->heads), (int)at->rows, (int)at->tokens,
                                                              at->scale, at->offset, at->swapped, at->inverse));
    return cuda_launched(env->ctx, "rope");
}

extern "C" cloob_status mask_queries_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    int64_t items = tensor_count(x);
    WITH_TYPE(x->dtype, mask_queries_kernel<T>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (const T *)x->data,
                                                              (const int32_t *)a->in[1].data, items, x->dim[1],
                                                              x->dim[2] / 3));
    return cuda_launched(env->ctx, "mask_queries");
}
