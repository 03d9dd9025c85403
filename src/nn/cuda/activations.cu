/* Activations with the bias of the layer before them, and their backward pass, which also sums what it writes over
 * the rows: the bias gradient. A thread owns columns and processes rows; blocks write partial sums, a second launch
 * adds them in order. Both directions can write an 8-bit copy of their result for the GEMM that reads it
 * (linear/quantize.h). */
#include "nn/cuda/activations.cuh"
#include "nn/cuda/linear/quantize.cuh"

enum { BLOCKS = 4 }; /* of a multiprocessor */

/* dx = f(dy, x + bias), recomputed = h(x + bias), partial (gridDim.x, C) the sums of dx; the last two and bias may be
 * NULL. ROUND: packs of 8 bf16, and the 8-bit copy of dx. */
template <typename T, int V, bool ROUND, typename F, typename H>
static __global__ void __launch_bounds__(256, BLOCKS)
    backward_kernel(T *dx, T *recomputed, float *partial, round_out round, const T *dy, const T *x, const T *bias,
                    int64_t R, int C, F f, H h)
{
    enum { U = 2 };
    int column = blockIdx.y * blockDim.x + threadIdx.x, packs = C / V;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    float s[V] = {}, scale = ROUND ? scale_for(round.scale->max, QUANT_E5M2) : 0.0f, max = 0.0f;
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
            if constexpr (ROUND) *reinterpret_cast<uint2 *>(round.to + at) = round_pack<QUANT_E5M2>(out, scale, &max);
            if (!recomputed) continue;
#pragma unroll
            for (int i = 0; i < V; i++) out.v[i] = from_float<T>(h(to_float(q[u].v[i]) + to_float(b.v[i]), 0.0f));
            store<T, V>(recomputed + at, out);
        }
    }
    if constexpr (ROUND) note_largest(round.scale, max);
    if (partial) write_block_sums<V>(partial, s, C);
    if constexpr (ROUND) end_step(round.scale, scale, round.tail);
}

/* y = f(x + bias); bias may be NULL. With ROUND also its 8-bit copy. */
template <typename T, int V, bool ROUND, typename F>
static __global__ void __launch_bounds__(256, BLOCKS)
    forward_kernel(T *y, round_out round, const T *x, const T *bias, int64_t R, int C, F f)
{
    enum { DEEP = 4 };
    int column = blockIdx.y * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    float scale = ROUND ? scale_for(round.scale->max, QUANT_E4M3) : 0.0f, max = 0.0f;
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
            if constexpr (ROUND) *reinterpret_cast<uint2 *>(round.to + at) = round_pack<QUANT_E4M3>(p[u], scale, &max);
        }
    }
    if constexpr (ROUND) note_largest(round.scale, max);
    if constexpr (ROUND) end_step(round.scale, scale, round.tail);
}

static row_grid grid_of(const op_env *env, const op_args *a)
{
    int64_t C = tensor_cols(&a->in[0]);
    return rows_over_grid(env->dev, tensor_rows(&a->in[0]), C / pack_width(a->in[0].dtype, C), BLOCKS);
}

template <typename T, int V, bool ROUND, typename F>
static void launch_forward(const op_env *env, const op_args *a, F f)
{
    row_grid g = grid_of(env, a);
    forward_kernel<T, V, ROUND>
        <<<g.grid, g.block, 0, stream_of(env)>>>(data_of<T>(&a->out[0]), ROUND ? round_out_of(a) : round_out{},
                                                 data_of<T>(&a->in[0]), data_of<T>(&a->in[1]), tensor_rows(&a->in[0]),
                                                 (int)tensor_cols(&a->in[0]), f);
}

template <typename T, int V, bool ROUND, typename F, typename H>
static void launch_backward(const op_env *env, const op_args *a, F f, H h)
{
    row_grid g = grid_of(env, a);
    backward_kernel<T, V, ROUND><<<g.grid, g.block, block_sums_bytes(g, V), stream_of(env)>>>(
        data_of<T>(&a->out[0]), data_of<T>(&a->out[1]), (float *)(a->out[2].data ? a->scratch : NULL),
        ROUND ? round_out_of(a) : round_out{}, data_of<T>(&a->in[0]), data_of<T>(&a->in[1]), data_of<T>(&a->in[2]),
        tensor_rows(&a->in[0]), (int)tensor_cols(&a->in[0]), f, h);
}

/* Either direction with the activation f and its slope. */
template <typename T, int V, typename F, typename D>
static void launch(const op_env *env, const op_args *a, bool backward, F f, D slope)
{
    bool rounded = rounding_is_fused(a);
    if constexpr (V == 8) {
        if (rounded && backward) return launch_backward<T, V, true>(env, a, slope, f);
        if (rounded) return launch_forward<T, V, true>(env, a, f);
    }
    if (backward) launch_backward<T, V, false>(env, a, slope, f);
    else launch_forward<T, V, false>(env, a, f);
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
    bool rounded = rounding_is_fused(a);
    launch_act(env, a, false);
    CLOOB_TRY(cuda_launched(env->ctx, "act"));
    return rounded ? CLOOB_OK : rounding_pass(env, "act", a, QUANT_E4M3);
}

extern "C" cloob_status act_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    if (op_has(&a->out[2]))
        a->scratch_bytes = (size_t)grid_of(env, a).grid.x * (size_t)tensor_cols(&a->in[0]) * sizeof(float);
    return rounding_prepare_cuda(env, a);
}

extern "C" cloob_status act_bwd_cuda(const op_env *env, const op_args *a)
{
    bool rounded = rounding_is_fused(a);
    launch_act(env, a, true);
    CLOOB_TRY(cuda_launched(env->ctx, "act_bwd"));
    if (a->out[2].data)
        CLOOB_TRY(colsum_finish(env, "act_bwd", data_of<float>(&a->out[2]), (const float *)a->scratch,
                                (int)grid_of(env, a).grid.x, tensor_cols(&a->in[0])));
    return rounded ? CLOOB_OK : rounding_pass(env, "act_bwd", a, QUANT_E5M2);
}
