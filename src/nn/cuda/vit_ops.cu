/* Tokens without a class token, mean pooling, a repeated query, layer scale, gates, rotary positions: one thread per
 * element, sums by columns. */
#include "nn/cuda/common.cuh"

/* ---- positions and tokens ------------------------------------------------------------------------ */

extern "C" cloob_status text_position_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    int32_t *index = data_of<int32_t>(&a->out[0]), wanted = (int32_t)a->attr.token, place = (int32_t)a->attr.tokens;
    const int32_t *token = data_of<int32_t>(x);
    int64_t T = x->dim[1];
    bool unlike = a->attr.unlike, by_token = unlike || wanted;
    return for_each(env, "text_position", x->dim[0], [=] __device__(int64_t n) {
        int32_t at = by_token ? 0 : place;
        for (int64_t t = T - 1; by_token && t >= 0; t--) {
            if ((token[n * T + t] == wanted) == unlike) continue;
            at = (int32_t)t;
            if (unlike) break;
        }
        index[n] = at;
    });
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

static cloob_status sum_columns(const op_env *env, const char *op, const tensor *out, const tensor *a, const tensor *b,
                                int64_t C)
{
    if (!out->data) return CLOOB_OK;
    WITH_TYPE(a->dtype, column_kernel<T><<<(unsigned)((C + 31) / 32), dim3(32, 8), 0, stream_of(env)>>>(
                            data_of<float>(out), data_of<T>(a), b ? data_of<T>(b) : NULL, tensor_count(a) / C, C));
    return cuda_launched(env->ctx, op);
}

extern "C" cloob_status grid_tokens_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->out[0];
    const float *bias = data_of<float>(&a->in[1]), *pos = data_of<float>(&a->in[2]);
    int64_t items = tensor_count(y), C = y->dim[2], TC = y->dim[1] * C;
    WITH_TYPE(y->dtype, {
        T *to = data_of<T>(y);
        const T *x = data_of<T>(&a->in[0]);
        return for_each(env, "grid_tokens", items, [=] __device__(int64_t i) {
            to[i] = from_float<T>(to_float(x[i]) + (bias ? bias[i % C] : 0.0f) + pos[i % TC]);
        });
    });
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

/* ---- NaFlex -------------------------------------------------------------------------------------- */

/* The sequence of packed row r, by bisection; N: a padding row. */
static __device__ int64_t sequence_of(const int32_t *start, int64_t N, int64_t r)
{
    int64_t low = 0, high = N;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (start[middle + 1] <= r) low = middle + 1;
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

extern "C" cloob_status patch_rows_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0], *out = &a->out[0];
    int64_t N = in->dim[0], bytes = tensor_count(in) / N, P = a->attr.patch, row = 3 * P * P;
    const uint8_t *x = data_of<uint8_t>(in);
    int32_t *start = data_of<int32_t>(&a->out[1]), *grid = data_of<int32_t>(&a->out[2]);
    channel_scale s;
    for (int c = 0; c < 3; c++) s.mean[c] = a->attr.mean[c], s.std[c] = a->attr.std[c];
    record_grids_kernel<<<1, 1, 0, stream_of(env)>>>(start, grid, x, N, bytes, a->attr.rows);
    CLOOB_TRY(cuda_launched(env->ctx, "patch_rows"));
    WITH_TYPE(out->dtype, {
        T *y = data_of<T>(out);
        return for_each(env, "patch_rows", tensor_count(out), [=] __device__(int64_t e) {
            int64_t r = e / row, k = e % row, c = k % 3, n = sequence_of(start, N, r);
            if (n == N) {
                y[e] = from_float<T>(0.0f);
                return;
            }
            int64_t t = r - start[n], w = grid[2 * n + 1], i = t / w * P + k / 3 / P, j = t % w * P + k / 3 % P;
            y[e] = from_float<T>((x[n * bytes + (i * w * P + j) * 3 + c] / 255.0f - s.mean[c]) / s.std[c]);
        });
    });
}

/* The share of place j of a grid in the place whose centre is there, before they are scaled to sum to 1. */
static __device__ float grid_share(int64_t j, float centre, float wide)
{
    return fmaxf(0.0f, 1.0f - fabsf((float)j + 0.5f - centre) / wide);
}

extern "C" cloob_status grid_positions_cuda(const op_env *env, const op_args *a)
{
    const tensor *out = &a->out[0];
    const float *pos = data_of<float>(&a->in[1]);
    const int32_t *start = data_of<int32_t>(&a->in[2]), *grid = data_of<int32_t>(&a->in[3]);
    int64_t C = tensor_cols(out), N = a->in[3].dim[0], side = 1;
    while (side * side < a->in[1].dim[0]) side++;
    const int64_t G = side;
    WITH_TYPE(out->dtype, {
        T *y = data_of<T>(out);
        const T *x = data_of<T>(&a->in[0]);
        return for_each(env, "grid_positions", tensor_count(out), [=] __device__(int64_t e) {
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
        });
    });
}

/* One axis of a table of `places` resampled to `to`. */
struct grid_axis {
    float scale, wide;
    int64_t places, to;

    __device__ grid_axis(int64_t places, int64_t to)
        : scale((float)places / (float)to), wide(fmaxf(scale, 1.0f)), places(places), to(to)
    {
    }
    /* The places whose share of j may be above 0. */
    __device__ int64_t first(int64_t j) const
    {
        return max((int64_t)floorf(((float)j + 0.5f - wide) / scale - 0.5f), (int64_t)0);
    }
    __device__ int64_t last(int64_t j) const
    {
        return min((int64_t)ceilf(((float)j + 0.5f + wide) / scale - 0.5f), to - 1);
    }
    /* The share of j in place i. */
    __device__ float share(int64_t i, int64_t j) const
    {
        float centre = ((float)i + 0.5f) * scale, all = 0.0f;
        for (int64_t k = max((int64_t)(centre - wide), (int64_t)0); k < places && (float)k < centre + wide; k++)
            all += grid_share(k, centre, wide);
        return grid_share(j, centre, wide) / all;
    }
};

/* One thread for each element of the table: images in order, so that the sum is the same in every run. */
extern "C" cloob_status grid_positions_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0], *out = &a->out[0];
    const int32_t *start = data_of<int32_t>(&a->in[2]), *grid = data_of<int32_t>(&a->in[3]);
    int64_t C = tensor_cols(in), N = a->in[3].dim[0], side = 1;
    while (side * side < out->dim[0]) side++;
    const int64_t G = side;
    float *dpos = data_of<float>(out);
    WITH_TYPE(in->dtype, {
        const T *dy = data_of<T>(in);
        return for_each(env, "grid_positions_bwd", tensor_count(out), [=] __device__(int64_t e) {
            int64_t i = e / C / G, j = e / C % G;
            float sum = 0.0f;
            for (int64_t n = 0; n < N; n++) {
                int64_t rows = start[n + 1] - start[n], h = max(grid[2 * n], 1), w = max(grid[2 * n + 1], 1);
                const T *from = dy + start[n] * C + e % C;
                grid_axis down(G, h), across(G, w);
                int64_t right = across.last(j), bottom = down.last(i);
                if (bottom == h - 1) bottom = (rows - 1) / w; /* rows below the grid have its last row's positions */
                for (int64_t y = down.first(i); y <= bottom; y++) {
                    float share = down.share(min(y, h - 1), i);
                    for (int64_t x = across.first(j); x <= right && y * w + x < rows && share > 0.0f; x++)
                        sum += share * across.share(x, j) * to_float(from[(y * w + x) * C]);
                }
            }
            dpos[e] = sum;
        });
    });
}

/* ---- rows ---------------------------------------------------------------------------------------- */

extern "C" cloob_status mean_rows_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0];
    const int32_t *start = data_of<int32_t>(&a->in[1]);
    int64_t tokens = tensor_rows(in) / in->dim[0], C = tensor_cols(in), skip = a->attr.rows;
    WITH_TYPE(in->dtype, {
        T *y = data_of<T>(&a->out[0]);
        const T *x = data_of<T>(in);
        return for_each(env, "mean_rows", tensor_count(&a->out[0]), [=] __device__(int64_t i) {
            int64_t n = i / C, first = start ? start[n] : n * tokens, rows = start ? start[n + 1] - first : tokens;
            const T *from = x + first * C + i % C;
            float sum = 0.0f;
            for (int64_t t = skip; t < rows; t++) sum += to_float(from[t * C]);
            y[i] = from_float<T>(sum / (float)(rows - skip));
        });
    });
}

extern "C" cloob_status mean_rows_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *out = &a->out[0];
    const int32_t *start = data_of<int32_t>(&a->in[2]);
    int64_t N = a->in[0].dim[0], tokens = tensor_rows(out) / out->dim[0], C = tensor_cols(out), skip = a->attr.rows;
    WITH_TYPE(out->dtype, {
        T *dx = data_of<T>(out);
        const T *dy = data_of<T>(&a->in[0]);
        return for_each(env, "mean_rows_bwd", tensor_count(out), [=] __device__(int64_t i) {
            int64_t row = i / C, n = start ? sequence_of(start, N, row) : row / tokens, first = n * tokens,
                    rows = tokens;
            if (start) first = n < N ? start[n] : 0, rows = n < N ? start[n + 1] - first : 0;
            bool none = row - first < skip || (start && n == N);
            dx[i] = from_float<T>(none ? 0.0f : to_float(dy[n * C + i % C]) / (float)(rows - skip));
        });
    });
}

extern "C" cloob_status repeat_row_cuda(const op_env *env, const op_args *a)
{
    const tensor *out = &a->out[0];
    const float *x = data_of<float>(&a->in[0]);
    int64_t C = out->dim[1];
    WITH_TYPE(out->dtype, {
        T *y = data_of<T>(out);
        return for_each(env, "repeat_row", tensor_count(out),
                        [=] __device__(int64_t i) { y[i] = from_float<T>(x[i % C]); });
    });
}

extern "C" cloob_status repeat_row_bwd_cuda(const op_env *env, const op_args *a)
{
    return sum_columns(env, "repeat_row_bwd", &a->out[0], &a->in[0], NULL, a->in[0].dim[1]);
}

/* ---- scales, biases, gates ----------------------------------------------------------------------- */

static cloob_status times_gain(const op_env *env, const char *op, const tensor *out, const tensor *in,
                               const tensor *factor)
{
    const float *gain = data_of<float>(factor);
    int64_t C = tensor_cols(out);
    WITH_TYPE(out->dtype, {
        T *y = data_of<T>(out);
        const T *x = data_of<T>(in);
        return for_each(env, op, tensor_count(out),
                        [=] __device__(int64_t i) { y[i] = from_float<T>(to_float(x[i]) * gain[i % C]); });
    });
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

/* A bias of 2/3 of the columns has none for the keys, the second third. */
extern "C" cloob_status bias_cuda(const op_env *env, const op_args *a)
{
    const tensor *out = &a->out[0];
    const float *bias = data_of<float>(&a->in[1]);
    int64_t C = tensor_cols(out), n = a->in[1].dim[0], third = C / 3;
    WITH_TYPE(out->dtype, {
        T *y = data_of<T>(out);
        const T *x = data_of<T>(&a->in[0]);
        return for_each(env, "bias", tensor_count(out), [=] __device__(int64_t i) {
            int64_t c = i % C;
            float b = n == C || c < third ? bias[c] : c < 2 * third ? 0.0f : bias[c - third];
            y[i] = from_float<T>(to_float(x[i]) + b);
        });
    });
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
    float *out = data_of<float>(&a->out[0]);
    const char *values = (const char *)dy->data + (size_t)(2 * third) * dtype_size(dy->dtype);
    if (a->out[0].dim[0] == C) return colsum(env, "bias_bwd", out, dy->data, dy->dtype, R, C, 0, a->scratch);
    CLOOB_TRY(colsum(env, "bias_bwd", out, dy->data, dy->dtype, R, third, C, a->scratch));
    return colsum(env, "bias_bwd", out + third, values, dy->dtype, R, third, C, a->scratch);
}

extern "C" cloob_status gate_cuda(const op_env *env, const op_args *a)
{
    const tensor *out = &a->out[0];
    int64_t C = tensor_cols(out);
    WITH_TYPE(out->dtype, {
        T *y = data_of<T>(out);
        const T *x = data_of<T>(&a->in[0]);
        return for_each(env, "gate", tensor_count(out), [=] __device__(int64_t i) {
            int64_t at = i / C * 2 * C + i % C;
            float g = to_float(x[at]);
            y[i] = from_float<T>(g * to_float(x[at + C]) / (1.0f + expf(-g)));
        });
    });
}

extern "C" cloob_status gate_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0];
    int64_t C = tensor_cols(in);
    WITH_TYPE(in->dtype, {
        T *dx = data_of<T>(&a->out[0]);
        const T *dy = data_of<T>(in), *x = data_of<T>(&a->in[1]);
        return for_each(env, "gate_bwd", tensor_count(in), [=] __device__(int64_t i) {
            int64_t at = i / C * 2 * C + i % C;
            float g = to_float(x[at]), s = 1.0f / (1.0f + expf(-g)), d = to_float(dy[i]);
            dx[at] = from_float<T>(d * to_float(x[at + C]) * (s + g * s * (1.0f - s)));
            dx[at + C] = from_float<T>(d * g * s);
        });
    });
}

extern "C" cloob_status excite_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0];
    int64_t C = in->dim[3], image = in->dim[1] * in->dim[2] * C;
    WITH_TYPE(in->dtype, {
        T *y = data_of<T>(&a->out[0]);
        const T *x = data_of<T>(in), *g = data_of<T>(&a->in[1]);
        return for_each(env, "excite", tensor_count(in), [=] __device__(int64_t i) {
            y[i] = from_float<T>(to_float(x[i]) / (1.0f + expf(-to_float(g[i / image * C + i % C]))));
        });
    });
}

/* A thread per image and channel; neighbours read neighbouring channels. */
extern "C" cloob_status excite_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[1];
    int64_t C = in->dim[3], P = in->dim[1] * in->dim[2];
    WITH_TYPE(in->dtype, {
        T *dx = data_of<T>(&a->out[0]), *dg = data_of<T>(&a->out[1]);
        const T *dy = data_of<T>(&a->in[0]), *x = data_of<T>(in), *g = data_of<T>(&a->in[2]);
        return for_each(env, "excite_bwd", tensor_count(&a->in[2]), [=] __device__(int64_t i) {
            int64_t first = i / C * P * C + i % C;
            float s = 1.0f / (1.0f + expf(-to_float(g[i]))), sum = 0.0f;
            for (int64_t at = first; at < first + P * C; at += C) {
                float d = to_float(dy[at]);
                sum += d * to_float(x[at]);
                if (dx) dx[at] = from_float<T>(d * s);
            }
            if (dg) dg[i] = from_float<T>(sum * s * (1.0f - s));
        });
    });
}

/* ---- queries and keys ---------------------------------------------------------------------------- */

/* A thread per pair of columns. */
extern "C" cloob_status rope_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0];
    int64_t tokens = in->dim[1], C = in->dim[2] / 3;
    int e = (int)(C / a->attr.heads), skip = (int)a->attr.rows, side = (int)a->attr.tokens;
    float scale = a->attr.scale, offset = a->attr.offset;
    bool swapped = a->attr.swapped, inverse = a->attr.inverse;
    WITH_TYPE(in->dtype, {
        T *y = data_of<T>(&a->out[0]);
        const T *x = data_of<T>(in);
        return for_each(env, "rope", tensor_count(in) / 2, [=] __device__(int64_t i) {
            int64_t c = 2 * i % (3 * C), t = 2 * i / (3 * C) % tokens - skip;
            float u = to_float(x[2 * i]), v = to_float(x[2 * i + 1]), sine = 0.0f, cosine = 1.0f;
            if (c < 2 * C && t >= 0) {
                int p = (int)(c % e / 2), bands = e / 4, row = (int)(t / side), column = (int)(t % side);
                float at = (float)((p < bands) != swapped ? row : column) + offset;
                sincosf(at * scale * exp2f(-(float)(p % bands) / (float)bands * 13.2877123795f), &sine, &cosine);
                if (inverse) sine = -sine;
            }
            y[2 * i] = from_float<T>(u * cosine - v * sine);
            y[2 * i + 1] = from_float<T>(v * cosine + u * sine);
        });
    });
}

extern "C" cloob_status mask_queries_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0];
    const int32_t *index = data_of<int32_t>(&a->in[1]);
    int64_t tokens = in->dim[1], C = in->dim[2] / 3;
    WITH_TYPE(in->dtype, {
        T *y = data_of<T>(&a->out[0]);
        const T *x = data_of<T>(in);
        return for_each(env, "mask_queries", tensor_count(in), [=] __device__(int64_t i) {
            int64_t row = i / (3 * C);
            y[i] = i % (3 * C) < C && row % tokens > index[row / tokens] ? from_float<T>(0.0f) : x[i];
        });
    });
}
