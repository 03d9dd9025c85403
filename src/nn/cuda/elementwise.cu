/* relu, tanh, add, pooling, and the small conversions other ops are made of. Packs of 16 bytes, several in flight. */
#include "nn/cuda/common.cuh"

/* ---- one element at a time ----------------------------------------------------------------------- */

struct relu_fn {
    __device__ float operator()(float x, float) const { return fmaxf(x, 0.0f); }
};
struct relu_bwd_fn {
    __device__ float operator()(float dy, float y) const { return y > 0.0f ? dy : 0.0f; }
};
struct tanh_fn {
    __device__ float operator()(float x, float) const { return tanhf(x); }
};
struct tanh_bwd_fn {
    __device__ float operator()(float dy, float y) const { return dy * (1.0f - y * y); }
};
struct add_fn {
    __device__ float operator()(float a, float b) const { return a + b; }
};
/* out = f(a, b) over n packs; b may be NULL. */
template <typename T, int V, int U, typename F>
static __global__ void __launch_bounds__(256) map_kernel(T *out, const T *a, const T *b, int64_t n, F f)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += U * step) {
        pack<T, V> p[U], q[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = (i + u * step < n ? i + u * step : i) * V;
            p[u] = load<T, V>(a + at);
            q[u] = b ? load<T, V>(b + at) : p[u];
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            pack<T, V> y;
#pragma unroll
            for (int j = 0; j < V; j++) y.v[j] = from_float<T>(f(to_float(p[u].v[j]), to_float(q[u].v[j])));
            if (i + u * step < n) store<T, V>(out + (i + u * step) * V, y);
        }
    }
}

/* ---- conversions --------------------------------------------------------------------------------- */

template <typename O, typename I>
static __global__ void repad_kernel(O *to, const I *from, int64_t n, int64_t to_cols, int64_t from_cols)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t c = i % to_cols, r = i / to_cols;
        to[i] = from_float<O>(c < from_cols ? to_float(from[r * from_cols + c]) : 0.0f);
    }
}

template <int V>
static __device__ __forceinline__ void load_bias(float out[V], const float *p)
{
    load_floats<V>(out, p);
}

template <int V>
static __device__ __forceinline__ void load_bias(float out[V], const bf16 *p)
{
    pack<bf16, V> k = load<bf16, V>(p);
#pragma unroll
    for (int i = 0; i < V; i++) out[i] = to_float(k.v[i]);
}

template <typename T, int V, typename S>
static __global__ void __launch_bounds__(256)
    finish_kernel(T *y, const S *bias, const T *res, bool relu, int64_t R, int C)
{
    enum { U = 4 };
    int column = blockIdx.y * blockDim.x + threadIdx.x, c = column * V;
    float b[V] = {};
    if (c >= C) return;
    if (bias) load_bias<V>(b, bias + c);
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < R; r += U * step) {
        pack<T, V> p[U], q[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = (r + u * step < R ? r + u * step : r) * C + c;
            p[u] = load<T, V>(y + at);
            q[u] = res ? load<T, V>(res + at) : p[u];
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                float v = to_float(p[u].v[i]) + b[i] + (res ? to_float(q[u].v[i]) : 0.0f);
                p[u].v[i] = from_float<T>(relu ? fmaxf(v, 0.0f) : v);
            }
            if (r + u * step < R) store<T, V>(y + (r + u * step) * C + c, p[u]);
        }
    }
}

/* ---- launchers ----------------------------------------------------------------------------------- */

template <typename T, int V, typename F>
static void launch_map(const op_env *env, void *out, const void *a, const void *b, int64_t n, F f)
{
    int64_t packs = n / V, limit = resident_blocks(env, map_kernel<T, V, 4, F>), want = (packs + 255) / 256;
    if (packs == 0) return;
    map_kernel<T, V, 4, F><<<(unsigned)(want < limit ? want : limit), 256, 0, stream_of(env)>>>((T *)out, (const T *)a,
                                                                                                (const T *)b, packs, f);
}

template <typename F>
static cloob_status map(const op_env *env, const char *op, const op_args *a, bool two, F f)
{
    const tensor *y = &a->out[0];
    int64_t n = tensor_count(y);
    WITH_PACK(y->dtype, n, launch_map<T, V>(env, y->data, a->in[0].data, two ? a->in[1].data : NULL, n, f));
    return cuda_launched(env->ctx, op);
}

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status relu_cuda(const op_env *env, const op_args *a) { return map(env, "relu", a, false, relu_fn()); }
extern "C" cloob_status relu_bwd_cuda(const op_env *env, const op_args *a)
{
    return map(env, "relu_bwd", a, true, relu_bwd_fn());
}
extern "C" cloob_status tanh_cuda(const op_env *env, const op_args *a) { return map(env, "tanh", a, false, tanh_fn()); }
extern "C" cloob_status tanh_bwd_cuda(const op_env *env, const op_args *a)
{
    return map(env, "tanh_bwd", a, true, tanh_bwd_fn());
}
extern "C" cloob_status add_cuda(const op_env *env, const op_args *a) { return map(env, "add", a, true, add_fn()); }

extern "C" cloob_status avgpool2_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0], *out = &a->out[0];
    int64_t H = in->dim[1], W = in->dim[2], C = in->dim[3], Ho = out->dim[1], Wo = out->dim[2];
    WITH_PACK(in->dtype, C, {
        T *y = data_of<T>(out);
        const T *x = data_of<T>(in);
        int64_t packs = C / V;
        return for_each(env, "avgpool2", tensor_rows(out) * packs, [=] __device__(int64_t i) {
            int64_t c = i % packs, r = i / packs, w = r % Wo, t = r / Wo, h = t % Ho, n = t / Ho;
            const T *from = x + (((n * H + 2 * h) * W) + 2 * w) * C + c * V;
            pack<T, V> q[4], mean;
            for (int s = 0; s < 4; s++) q[s] = load<T, V>(from + ((int64_t)(s / 2) * W + s % 2) * C);
            for (int j = 0; j < V; j++)
                mean.v[j] = from_float<T>(
                    0.25f * (to_float(q[0].v[j]) + to_float(q[1].v[j]) + to_float(q[2].v[j]) + to_float(q[3].v[j])));
            store<T, V>(y + i * V, mean);
        });
    });
}

extern "C" cloob_status avgpool2_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0], *out = &a->out[0];
    int64_t H = out->dim[1], W = out->dim[2], Ho = in->dim[1], Wo = in->dim[2], C = out->dim[3];
    WITH_PACK(out->dtype, C, {
        T *dx = data_of<T>(out);
        const T *dy = data_of<T>(in);
        int64_t packs = C / V;
        return for_each(env, "avgpool2_bwd", tensor_rows(out) * packs, [=] __device__(int64_t i) {
            int64_t c = i % packs, r = i / packs, w = r % W, t = r / W, h = t % H, n = t / H;
            pack<T, V> share = {};
            if (h / 2 < Ho && w / 2 < Wo) {
                share = load<T, V>(dy + (((n * Ho + h / 2) * Wo + w / 2) * packs + c) * V);
                for (int j = 0; j < V; j++) share.v[j] = from_float<T>(0.25f * to_float(share.v[j]));
            }
            store<T, V>(dx + i * V, share);
        });
    });
}

extern "C" cloob_status repad_cuda(const op_env *env, const char *op, void *to, cloob_dtype to_type, int64_t to_cols,
                                   const void *from, cloob_dtype from_type, int64_t from_cols, int64_t rows)
{
    int64_t n = rows * to_cols;
    unsigned blocks = n < 4096 * 256 ? blocks_for(n) : 4096;
    cudaStream_t s = stream_of(env);
    bool half_to = to_type == CLOOB_BF16, half_from = from_type == CLOOB_BF16;
    if (n == 0) return CLOOB_OK;
    if (half_to && half_from)
        repad_kernel<<<blocks, 256, 0, s>>>((bf16 *)to, (const bf16 *)from, n, to_cols, from_cols);
    else if (half_to) repad_kernel<<<blocks, 256, 0, s>>>((bf16 *)to, (const float *)from, n, to_cols, from_cols);
    else if (half_from) repad_kernel<<<blocks, 256, 0, s>>>((float *)to, (const bf16 *)from, n, to_cols, from_cols);
    else repad_kernel<<<blocks, 256, 0, s>>>((float *)to, (const float *)from, n, to_cols, from_cols);
    return cuda_launched(env->ctx, op);
}

extern "C" cloob_status convert_cuda(const op_env *env, const char *op, void *to, cloob_dtype to_type, const void *from,
                                     cloob_dtype from_type, int64_t n)
{
    return repad_cuda(env, op, to, to_type, n, from, from_type, n, 1);
}

extern "C" cloob_status bias_res_relu_cuda(const op_env *env, const char *op, void *y, cloob_dtype dtype,
                                           const tensor *bias, const void *res, bool relu, int64_t R, int64_t C)
{
    row_grid g = rows_over_grid(env->dev, R, C / pack_width(dtype, C), 8);
    cudaStream_t s = stream_of(env);
    if (bias->data && bias->dtype == CLOOB_BF16)
        WITH_PACK(dtype, C,
                  (finish_kernel<T, V, bf16>
                   <<<g.grid, g.block, 0, s>>>((T *)y, (const bf16 *)bias->data, (const T *)res, relu, R, (int)C)));
    else
        WITH_PACK(dtype, C,
                  (finish_kernel<T, V, float>
                   <<<g.grid, g.block, 0, s>>>((T *)y, (const float *)bias->data, (const T *)res, relu, R, (int)C)));
    return cuda_launched(env->ctx, op);
}
