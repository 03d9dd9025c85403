/* Activations with the bias of the layer before them, and their backward pass, which also sums what it writes over
 * the rows: the bias gradient. A thread owns columns and processes rows; blocks write partial sums, a second launch
 * adds them in order. */
#include "nn/cuda/activations.cuh"

enum { BLOCKS = 4 }; /* of a multiprocessor */

/* dx = f(dy, x + bias), recomputed = h(x + bias), partial (gridDim.x, C) the sums of dx; the last two and bias may be
 * NULL. */
template <typename T, int V, typename F, typename H>
static __global__ void __launch_bounds__(256, BLOCKS)
    backward_kernel(T *dx, T *recomputed, float *partial, const T *dy, const T *x, const T *bias, int64_t R, int C, F f,
                    H h)
{
    enum { U = 2 };
    int column = blockIdx.y * blockDim.x + threadIdx.x, packs = C / V;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    float s[V] = {};
    pack<T, V> b = {};
    if (bias && column < packs) b = load<T, V>(bias + column * V);
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < R && column < packs; r += U * step) {
        pack<T, V> p[U], q[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = (r + u * step < R ? r + u * step : r) * C + column * V;
            p[u] = load<T, V>(dy + at), q[u] = load<T, V>(x + at);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (r + u * step >= R) break;
            int64_t at = (r + u * step) * C + column * V;
            pack<T, V> out;
#pragma unroll
            for (int i = 0; i < V; i++) {
                out.v[i] = from_float<T>(f(to_float(p[u].v[i]), to_float(q[u].v[i]) + to_float(b.v[i])));
                s[i] += to_float(out.v[i]);
            }
            store<T, V>(dx + at, out);
            if (!recomputed) continue;
#pragma unroll
            for (int i = 0; i < V; i++) out.v[i] = from_float<T>(h(to_float(q[u].v[i]) + to_float(b.v[i]), 0.0f));
            store<T, V>(recomputed + at, out);
        }
    }
    if (partial) write_block_sums<V>(partial, s, C);
}

/* y = f(x + bias); bias may be NULL. */
template <typename T, int V, typename F>
static __global__ void __launch_bounds__(256, BLOCKS)
    forward_kernel(T *y, const T *x, const T *bias, int64_t R, int C, F f)
{
    enum { DEEP = 4 };
    int column = blockIdx.y * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    pack<T, V> b = {};
    if (bias && column < C / V) b = load<T, V>(bias + column * V);
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < R && column < C / V; r += DEEP * step) {
        pack<T, V> p[DEEP];
#pragma unroll
        for (int u = 0; u < DEEP; u++) p[u] = load<T, V>(x + (r + u * step < R ? r + u * step : r) * C + column * V);
#pragma unroll
        for (int u = 0; u < DEEP; u++) {
            if (r + u * step >= R) break;
            int64_t at = (r + u * step) * C + column * V;
#pragma unroll
            for (int i = 0; i < V; i++) p[u].v[i] = from_float<T>(f(to_float(p[u].v[i]) + to_float(b.v[i]), 0.0f));
            store<T, V>(y + at, p[u]);
        }
    }
}

static row_grid grid_of(const op_env *env, const op_args *a)
{
    int64_t C = tensor_cols(&a->in[0]);
    return rows_over_grid(env->dev, tensor_rows(&a->in[0]), C / pack_width(a->in[0].dtype, C), BLOCKS);
}

/* Either direction with the activation f and its slope. */
template <typename T, int V, typename F, typename D>
static void launch(const op_env *env, const op_args *a, bool backward, F f, D slope)
{
    row_grid g = grid_of(env, a);
    const tensor *x = &a->in[0];
    if (backward)
        backward_kernel<T, V><<<g.grid, g.block, block_sums_bytes(g, V), stream_of(env)>>>(
            data_of<T>(&a->out[0]), data_of<T>(&a->out[1]), (float *)(a->out[2].data ? a->scratch : NULL),
            data_of<T>(x), data_of<T>(&a->in[1]), data_of<T>(&a->in[2]), tensor_rows(x), (int)tensor_cols(x), slope, f);
    else
        forward_kernel<T, V><<<g.grid, g.block, 0, stream_of(env)>>>(data_of<T>(&a->out[0]), data_of<T>(x),
                                                                     data_of<T>(&a->in[1]), tensor_rows(x),
                                                                     (int)tensor_cols(x), f);
}

static void launch_act(const op_env *env, const op_args *a, bool backward)
{
    int64_t C = tensor_cols(&a->in[0]);
    cloob_dtype type = a->in[0].dtype;
    switch (a->attr.act) {
    case OP_ACT_GELU: WITH_PACK(type, C, (launch<T, V>(env, a, backward, gelu_fn(), gelu_bwd_fn()))); break;
    case OP_ACT_GELU_TANH:
        WITH_PACK(type, C, (launch<T, V>(env, a, backward, gelu_tanh_fn(), gelu_tanh_bwd_fn())));
        break;
    default: WITH_PACK(type, C, (launch<T, V>(env, a, backward, quickgelu_fn(), quickgelu_bwd_fn()))); break;
    }
}

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status act_cuda(const op_env *env, const op_args *a)
{
    launch_act(env, a, false);
    return cuda_launched(env->ctx, "act");
}

extern "C" cloob_status act_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    if (op_has(&a->out[2]))
        a->scratch_bytes = (size_t)grid_of(env, a).grid.x * (size_t)tensor_cols(&a->in[0]) * sizeof(float);
    return CLOOB_OK;
}

extern "C" cloob_status act_bwd_cuda(const op_env *env, const op_args *a)
{
    launch_act(env, a, true);
    CLOOB_TRY(cuda_launched(env->ctx, "act_bwd"));
    if (!a->out[2].data) return CLOOB_OK;
    return colsum_finish(env, "act_bwd", data_of<float>(&a->out[2]), (const float *)a->scratch,
                         (int)grid_of(env, a).grid.x, tensor_cols(&a->in[0]));
}
