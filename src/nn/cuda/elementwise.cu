/* relu, add, activations, pooling, and the small conversions other ops are made of. Packs of 16 bytes,
 * several in flight. */
#include "nn/cuda/activations.cuh"
#include "nn/cuda/linear/quantize.h"

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

/* The same with two results: out = f(a, b), recomputed = h(b). */
template <typename T, int V, int U, typename F, typename H>
static __global__ void __launch_bounds__(256)
    map_two_kernel(T *out, T *recomputed, const T *a, const T *b, int64_t n, F f, H h)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += U * step) {
        pack<T, V> p[U], q[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = (i + u * step < n ? i + u * step : i) * V;
            p[u] = load<T, V>(a + at);
            q[u] = load<T, V>(b + at);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            pack<T, V> y, z;
#pragma unroll
            for (int j = 0; j < V; j++) {
                y.v[j] = from_float<T>(f(to_float(p[u].v[j]), to_float(q[u].v[j])));
                z.v[j] = from_float<T>(h(to_float(q[u].v[j]), 0.0f));
            }
            if (i + u * step >= n) continue;
            store<T, V>(out + (i + u * step) * V, y);
            store<T, V>(recomputed + (i + u * step) * V, z);
        }
    }
}

/* ---- pooling ------------------------------------------------------------------------------------- */

typedef struct pool_sizes {
    int64_t items; /* packs of the output */
    int H, W, Ho, Wo, packs;
} pool_sizes;

template <typename T, int V>
static __global__ void __launch_bounds__(256) pool_kernel(T *y, const T *x, pool_sizes z)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, C = (int64_t)z.packs * V;
    if (i >= z.items) return;
    int64_t c = i % z.packs, r = i / z.packs, w = r % z.Wo, t = r / z.Wo, h = t % z.Ho, n = t / z.Ho;
    const T *from = x + (((n * z.H + 2 * h) * z.W) + 2 * w) * C + c * V;
    pack<T, V> q[4], out;
#pragma unroll
    for (int s = 0; s < 4; s++) q[s] = load<T, V>(from + ((int64_t)(s / 2) * z.W + s % 2) * C);
#pragma unroll
    for (int j = 0; j < V; j++)
        out.v[j] = from_float<T>(
            0.25f * (to_float(q[0].v[j]) + to_float(q[1].v[j]) + to_float(q[2].v[j]) + to_float(q[3].v[j])));
    store<T, V>(y + i * V, out);
}

/* items: packs of dx. */
template <typename T, int V>
static __global__ void __launch_bounds__(256) pool_bwd_kernel(T *dx, const T *dy, pool_sizes z)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= z.items) return;
    int64_t c = i % z.packs, r = i / z.packs, w = r % z.W, t = r / z.W, h = t % z.H, n = t / z.H;
    pack<T, V> out = {};
    if (h / 2 < z.Ho && w / 2 < z.Wo) {
        out = load<T, V>(dy + (((n * z.Ho + h / 2) * z.Wo + w / 2) * z.packs + c) * V);
#pragma unroll
        for (int j = 0; j < V; j++) out.v[j] = from_float<T>(0.25f * to_float(out.v[j]));
    }
    store<T, V>(dx + i * V, out);
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

template <typename T, int V, typename F, typename H>
static void launch_two(const op_env *env, const op_args *a, int64_t n, F f, H h)
{
    int64_t packs = n / V, limit = resident_blocks(env, map_two_kernel<T, V, 2, F, H>), want = (packs + 255) / 256;
    if (packs == 0) return;
    map_two_kernel<T, V, 2, F, H>
        <<<(unsigned)(want < limit ? want : limit), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (T *)a->out[1].data,
                                                                              (const T *)a->in[0].data,
                                                                              (const T *)a->in[1].data, packs, f, h);
}

template <typename F>
static cloob_status map(const op_env *env, const char *op, const op_args *a, bool two, F f)
{
    const tensor *y = &a->out[0];
    int64_t n = tensor_count(y);
    WITH_PACK(y->dtype, n, launch_map<T, V>(env, y->data, a->in[0].data, two ? a->in[1].data : NULL, n, f));
    return cuda_launched(env->ctx, op);
}

static pool_sizes pool_sizes_of(const tensor *large, const tensor *small, const tensor *out)
{
    int64_t C = large->dim[3], packs = C / pack_width(large->dtype, C);
    pool_sizes z = { tensor_rows(out) * packs, (int)large->dim[1], (int)large->dim[2],
                     (int)small->dim[1],       (int)small->dim[2], (int)packs };
    return z;
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

extern "C" cloob_status act_cuda(const op_env *env, const op_args *a)
{
    if (rounding_is_fused(a)) return act_rounded_cuda(env, a);
    if (a->in[1].data) CLOOB_TRY(act_bias_cuda(env, a));
    else
        CLOOB_TRY(a->attr.act == OP_ACT_GELU        ? map(env, "act", a, false, gelu_fn())
                  : a->attr.act == OP_ACT_GELU_TANH ? map(env, "act", a, false, gelu_tanh_fn())
                                                    : map(env, "act", a, false, quickgelu_fn()));
    return rounding_pass(env, "act", a, QUANT_E4M3);
}

static cloob_status act_bwd_plain(const op_env *env, const op_args *a)
{
    bool gelu = a->attr.act == OP_ACT_GELU, tanh = a->attr.act == OP_ACT_GELU_TANH;
    int64_t n = tensor_count(&a->out[0]);
    if (!a->out[1].data && tanh) return map(env, "act_bwd", a, true, gelu_tanh_bwd_fn());
    if (!a->out[1].data)
        return gelu ? map(env, "act_bwd", a, true, gelu_bwd_fn()) : map(env, "act_bwd", a, true, quickgelu_bwd_fn());
    if (tanh) WITH_PACK(a->out[0].dtype, n, (launch_two<T, V>(env, a, n, gelu_tanh_bwd_fn(), gelu_tanh_fn())));
    else if (gelu) WITH_PACK(a->out[0].dtype, n, (launch_two<T, V>(env, a, n, gelu_bwd_fn(), gelu_fn())));
    else WITH_PACK(a->out[0].dtype, n, (launch_two<T, V>(env, a, n, quickgelu_bwd_fn(), quickgelu_fn())));
    return cuda_launched(env->ctx, "act_bwd");
}

extern "C" cloob_status act_bwd_cuda(const op_env *env, const op_args *a)
{
    bool sums = a->out[2].data || a->in[2].data, along = sums && rounding_is_fused(a);
    CLOOB_TRY(sums ? act_bwd_sums_cuda(env, a) : act_bwd_plain(env, a));
    return along ? CLOOB_OK : rounding_pass(env, "act_bwd", a, QUANT_E5M2);
}

extern "C" cloob_status avgpool2_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    pool_sizes z = pool_sizes_of(x, y, y);
    if (z.items == 0) return CLOOB_OK;
    WITH_PACK(x->dtype, x->dim[3],
              (pool_kernel<T, V>
               <<<blocks_for(z.items), 256, 0, stream_of(env)>>>((T *)y->data, (const T *)x->data, z)));
    return cuda_launched(env->ctx, "avgpool2");
}

extern "C" cloob_status avgpool2_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0];
    pool_sizes z = pool_sizes_of(dx, dy, dx);
    WITH_PACK(dx->dtype, dx->dim[3],
              (pool_bwd_kernel<T, V>
               <<<blocks_for(z.items), 256, 0, stream_of(env)>>>((T *)dx->data, (const T *)dy->data, z)));
    return cuda_launched(env->ctx, "avgpool2_bwd");
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
