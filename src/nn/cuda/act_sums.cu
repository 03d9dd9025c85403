/* Backward of an activation that also sums what it writes over the rows: the bias gradient of the layer before it. A
 * thread keeps its columns and walks down the rows; blocks write partial sums, a second launch adds them in order.
 * Forward with the bias of the layer before it. And both directions with an 8-bit copy of what they write, for the GEMM
 * that reads it (linear/quantize.h). */
#include "nn/cuda/activations.cuh"
#include "nn/cuda/linear/quantize.cuh"

enum { SUM_BLOCKS = 4, ROUND_BLOCKS = 6, U = 2 }; /* blocks that a multiprocessor holds: the grid goes around once */

/* partial: (gridDim.x, C). recomputed may be NULL. ROUND: packs of 8 bf16. */
template <typename T, int V, bool ROUND, typename F, typename H>
static __global__ void __launch_bounds__(256, SUM_BLOCKS)
    act_sums_kernel(T *dx, T *recomputed, float *partial, round_out round, const T *dy, const T *x, const T *bias,
                    int64_t R, int C, F f, H h)
{
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
    write_block_sums<V>(partial, s, C);
    if constexpr (ROUND) end_step(round.scale, scale, round.tail);
}

/* y = f(x) over n packs of 8, and its 8-bit copy. */
template <typename F>
static __global__ void __launch_bounds__(256, ROUND_BLOCKS)
    act_rounded_kernel(bf16 *y, round_out round, const bf16 *x, int64_t n, F f)
{
    float scale = scale_for(round.scale->max, QUANT_E4M3), max = 0.0f;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += U * step) {
        pack<bf16, 8> p[U];
#pragma unroll
        for (int u = 0; u < U; u++) p[u] = load<bf16, 8>(x + (i + u * step < n ? i + u * step : i) * 8);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * step >= n) break;
#pragma unroll
            for (int k = 0; k < 8; k++) p[u].v[k] = from_float<bf16>(f(to_float(p[u].v[k]), 0.0f));
            store<bf16, 8>(y + (i + u * step) * 8, p[u]);
            *reinterpret_cast<uint2 *>(round.to + (i + u * step) * 8) = round_pack<QUANT_E4M3>(p[u], scale, &max);
        }
    }
    note_largest(round.scale, max);
    end_step(round.scale, scale, round.tail);
}

/* y = f(x + bias) over rows, and with ROUND its 8-bit copy. */
template <typename T, int V, bool ROUND, typename F>
static __global__ void __launch_bounds__(256, SUM_BLOCKS)
    act_bias_kernel(T *y, round_out round, const T *x, const T *bias, int64_t R, int C, F f)
{
    enum { DEEP = 4 };
    int column = blockIdx.y * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    float scale = ROUND ? scale_for(round.scale->max, QUANT_E4M3) : 0.0f, max = 0.0f;
    pack<T, V> b = {};
    if (column < C / V) b = load<T, V>(bias + column * V);
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
    return rows_over_grid(env->dev, tensor_rows(&a->in[0]), C / pack_width(a->in[0].dtype, C), SUM_BLOCKS);
}

template <typename T, int V, bool ROUND, typename F, typename H>
static void launch_as(const op_env *env, const op_args *a, F f, H h)
{
    row_grid g = grid_of(env, a);
    act_sums_kernel<T, V, ROUND><<<g.grid, g.block, block_sums_bytes(g, V), stream_of(env)>>>(
        (T *)a->out[0].data, (T *)a->out[1].data, (float *)a->scratch, ROUND ? round_out_of(a) : round_out{},
        (const T *)a->in[0].data, (const T *)a->in[1].data, (const T *)a->in[2].data, tensor_rows(&a->in[0]),
        (int)tensor_cols(&a->in[0]), f, h);
}

template <typename T, int V, typename F, typename H>
static void launch(const op_env *env, const op_args *a, F f, H h)
{
    if constexpr (V == 8) {
        if (rounding_is_fused(a)) return launch_as<T, V, true>(env, a, f, h);
    }
    launch_as<T, V, false>(env, a, f, h);
}

template <typename T, int V, bool ROUND, typename F>
static void launch_bias(const op_env *env, const op_args *a, F f)
{
    row_grid g = grid_of(env, a);
    act_bias_kernel<T, V, ROUND>
        <<<g.grid, g.block, 0, stream_of(env)>>>((T *)a->out[0].data, ROUND ? round_out_of(a) : round_out{},
                                                 (const T *)a->in[0].data, (const T *)a->in[1].data,
                                                 tensor_rows(&a->in[0]), (int)tensor_cols(&a->in[0]), f);
}

template <typename F>
static void launch_rounded(const op_env *env, const op_args *a, F f)
{
    if (a->in[1].data) return launch_bias<bf16, 8, true>(env, a, f);
    const cuda_state *s = (const cuda_state *)env->dev->state;
    int64_t packs = tensor_count(&a->out[0]) / 8, limit = (int64_t)s->sms * ROUND_BLOCKS, want = (packs + 255) / 256;
    act_rounded_kernel<<<(unsigned)(want < limit ? want : limit), 256, 0, stream_of(env)>>>((bf16 *)a->out[0].data,
                                                                                            round_out_of(a),
                                                                                            (const bf16 *)a->in[0].data,
                                                                                            packs, f);
}

extern "C" cloob_status act_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    if (op_has(&a->out[2]) || op_has(&a->in[2]))
        a->scratch_bytes = (size_t)grid_of(env, a).grid.x * (size_t)tensor_cols(&a->in[0]) * sizeof(float);
    return rounding_prepare_cuda(env, a);
}

extern "C" cloob_status act_bwd_sums_cuda(const op_env *env, const op_args *a)
{
    int64_t C = tensor_cols(&a->in[0]);
    cloob_dtype type = a->in[0].dtype;
    switch (a->attr.act) {
    case OP_ACT_GELU: WITH_PACK(type, C, (launch<T, V>(env, a, gelu_bwd_fn(), gelu_fn()))); break;
    case OP_ACT_GELU_TANH: WITH_PACK(type, C, (launch<T, V>(env, a, gelu_tanh_bwd_fn(), gelu_tanh_fn()))); break;
    default: WITH_PACK(type, C, (launch<T, V>(env, a, quickgelu_bwd_fn(), quickgelu_fn()))); break;
    }
    CLOOB_TRY(cuda_launched(env->ctx, "act_bwd"));
    if (!a->out[2].data) return CLOOB_OK;
    return colsum_finish(env, "act_bwd", (float *)a->out[2].data, (const float *)a->scratch,
                         (int)grid_of(env, a).grid.x, C);
}

extern "C" cloob_status act_bias_cuda(const op_env *env, const op_args *a)
{
    int64_t C = tensor_cols(&a->in[0]);
    cloob_dtype type = a->in[0].dtype;
    switch (a->attr.act) {
    case OP_ACT_GELU: WITH_PACK(type, C, (launch_bias<T, V, false>(env, a, gelu_fn()))); break;
    case OP_ACT_GELU_TANH: WITH_PACK(type, C, (launch_bias<T, V, false>(env, a, gelu_tanh_fn()))); break;
    default: WITH_PACK(type, C, (launch_bias<T, V, false>(env, a, quickgelu_fn()))); break;
    }
    return cuda_launched(env->ctx, "act");
}

extern "C" cloob_status act_rounded_cuda(const op_env *env, const op_args *a)
{
    switch (a->attr.act) {
    case OP_ACT_GELU: launch_rounded(env, a, gelu_fn()); break;
    case OP_ACT_GELU_TANH: launch_rounded(env, a, gelu_tanh_fn()); break;
    default: launch_rounded(env, a, quickgelu_fn()); break;
    }
    return cuda_launched(env->ctx, "act");
}
