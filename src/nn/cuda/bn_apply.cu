/* y = relu((x - mean) rstd gain + bias [+ res]), or the 2 x 2 average of that: one pass over memory. */
#include "nn/cuda/bn_common.cuh"

enum { APPLY_BLOCKS = 4, POOL_BLOCKS = 3 };

typedef struct apply_in {
    const float *mean, *rstd, *gain, *bias;
} apply_in;

enum residual { NONE, ADDED, NORMALIZED };

/* NORMALIZED: relu(bn(x) + bn(res)) with in2: two factors a channel and one number for the rest. */
template <typename T, int V, bool RELU, residual RES, int U>
static __global__ void __launch_bounds__(256, APPLY_BLOCKS)
    apply_kernel(T *y, const T *x, const T *res, apply_in in, apply_in in2, int64_t R, int C)
{
    int column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column * V >= C) return;
    bn_affine<V> k, k2;
    float rest[V];
    bn_affine_load<V>(k, in.mean, in.rstd, in.gain, in.bias, column * V);
    if (RES == NORMALIZED) {
        bn_affine_load<V>(k2, in2.mean, in2.rstd, in2.gain, in2.bias, column * V);
#pragma unroll
        for (int i = 0; i < V; i++)
            rest[i] = fmaf(-k.mean[i], k.slope[i], k.bias[i]) + fmaf(-k2.mean[i], k2.slope[i], k2.bias[i]);
    }
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < R; r += U * step) {
        pack<T, V> a[U], b[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = (r + u * step < R ? r + u * step : r) * C + column * V;
            a[u] = load<T, V>(x + at);
            if (RES != NONE) b[u] = load<T, V>(res + at);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            pack<T, V> out;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float v;
                if (RES == NORMALIZED)
                    v = fmaf(k2.slope[i], to_float(b[u].v[i]), fmaf(k.slope[i], to_float(a[u].v[i]), rest[i]));
                else v = bn_value<V>(k, to_float(a[u].v[i]), i);
                if (RES == ADDED) v += to_float(b[u].v[i]);
                out.v[i] = from_float<T>(RELU ? fmaxf(v, 0.0f) : v);
            }
            if (r + u * step < R) store<T, V>(y + (r + u * step) * C + column * V, out);
        }
    }
}

/* R counts pooled rows. */
template <typename T, int V, bool RELU>
static __global__ void __launch_bounds__(256, POOL_BLOCKS)
    apply_pool_kernel(T *__restrict__ y, const T *__restrict__ x, apply_in in, pool_map m, int64_t R, int C)
{
    int column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column * V >= C) return;
    bn_affine<V> k;
    bn_affine_load<V>(k, in.mean, in.rstd, in.gain, in.bias, column * V);
    int64_t step = (int64_t)gridDim.x * blockDim.y;
#pragma unroll 2
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < R; r += step) {
        const T *from = x + pool_first(m, r) * C + column * V;
        pack<T, V> q[4], out;
#pragma unroll
        for (int s = 0; s < 4; s++) q[s] = load<T, V>(from + ((int64_t)(s / 2) * m.W + s % 2) * C);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float sum = 0.0f;
#pragma unroll
            for (int s = 0; s < 4; s++) {
                float v = bn_value<V>(k, to_float(q[s].v[i]), i);
                sum += RELU ? fmaxf(v, 0.0f) : v;
            }
            out.v[i] = from_float<T>(0.25f * sum);
        }
        store<T, V>(y + r * C + column * V, out);
    }
}

/* ---- launchers ----------------------------------------------------------------------------------- */

static apply_in numbers_of(const op_args *a)
{
    return { data_of<float>(&a->in[1]), data_of<float>(&a->in[2]), data_of<float>(&a->in[3]),
             data_of<float>(&a->in[4]) };
}

template <typename T, int V, bool RELU>
static void launch_apply(const op_env *env, const op_args *a, const op_args *shortcut)
{
    const tensor *x = &a->in[0];
    int C = (int)tensor_cols(x);
    int64_t R = tensor_rows(&a->out[0]);
    row_grid g = rows_over_grid(env->dev, R, C / V, a->attr.pool ? POOL_BLOCKS : APPLY_BLOCKS);
    T *to = data_of<T>(&a->out[0]);
    const T *from = data_of<T>(x), *res = data_of<T>(shortcut ? &shortcut->in[0] : &a->in[5]);
    apply_in in = numbers_of(a), in2 = shortcut ? numbers_of(shortcut) : apply_in{};
    cudaStream_t s = stream_of(env);
    if (a->attr.pool) {
        apply_pool_kernel<T, V, RELU><<<g.grid, g.block, 0, s>>>(to, from, in, pool_map_of(x), R, C);
        return;
    }
    auto kernel = shortcut ? apply_kernel<T, V, RELU, NORMALIZED, 2>
                  : res    ? apply_kernel<T, V, RELU, ADDED, 2>
                           : apply_kernel<T, V, RELU, NONE, 4>;
    kernel<<<g.grid, g.block, 0, s>>>(to, from, res, in, in2, R, C);
}

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status bn_apply_both_cuda(const op_env *env, const op_args *a, const op_args *shortcut)
{
    if (tensor_count(&a->out[0]) == 0) return CLOOB_OK;
    WITH_PACK(a->in[0].dtype, tensor_cols(&a->in[0]),
              a->attr.relu ? launch_apply<T, V, true>(env, a, shortcut) : launch_apply<T, V, false>(env, a, shortcut));
    return cuda_launched(env->ctx, "bn_apply");
}

extern "C" cloob_status bn_apply_cuda(const op_env *env, const op_args *a) { return bn_apply_both_cuda(env, a, NULL); }
