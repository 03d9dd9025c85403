/* Backward of an activation that also sums what it writes over the rows: the bias gradient of the layer before it. A
 * thread keeps its columns and walks down the rows; blocks write partial sums, a second launch adds them in order. */
#include "nn/cuda/activations.cuh"

enum { SUM_BLOCKS = 8, U = 2 };

/* partial: (gridDim.x, C). recomputed may be NULL. */
template <typename T, int V, typename F, typename H>
static __global__ void __launch_bounds__(256)
    act_sums_kernel(T *dx, T *recomputed, float *partial, const T *dy, const T *x, int64_t R, int C, F f, H h)
{
    extern __shared__ float sums[]; /* (block.y, V, block.x) */
    int width = blockDim.x, column = blockIdx.y * width + threadIdx.x, packs = C / V;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    float s[V] = {};
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
                out.v[i] = from_float<T>(f(to_float(p[u].v[i]), to_float(q[u].v[i])));
                s[i] += to_float(out.v[i]);
            }
            store<T, V>(dx + at, out);
            if (!recomputed) continue;
#pragma unroll
            for (int i = 0; i < V; i++) out.v[i] = from_float<T>(h(to_float(q[u].v[i]), 0.0f));
            store<T, V>(recomputed + at, out);
        }
    }
    int cell = V * width;
#pragma unroll
    for (int i = 0; i < V; i++) sums[threadIdx.y * cell + i * width + threadIdx.x] = s[i];
    __syncthreads();
    for (int j = threadIdx.y * width + threadIdx.x; j < cell; j += width * blockDim.y) {
        int at = blockIdx.y * width + j % width;
        float sum = 0.0f;
        for (int y = 0; y < blockDim.y; y++) sum += sums[y * cell + j];
        if (at < packs) partial[(int64_t)blockIdx.x * C + at * V + j / width] = sum;
    }
}

static row_grid grid_of(const op_env *env, const op_args *a)
{
    int64_t C = tensor_cols(&a->in[0]);
    return rows_over_grid(env->dev, tensor_rows(&a->in[0]), C / pack_width(a->in[0].dtype, C), SUM_BLOCKS);
}

template <typename T, int V, typename F, typename H>
static void launch(const op_env *env, const op_args *a, F f, H h)
{
    row_grid g = grid_of(env, a);
    size_t smem = (size_t)g.block.x * g.block.y * V * sizeof(float);
    act_sums_kernel<T, V><<<g.grid, g.block, smem, stream_of(env)>>>((T *)a->out[0].data, (T *)a->out[1].data,
                                                                     (float *)a->scratch, (const T *)a->in[0].data,
                                                                     (const T *)a->in[1].data, tensor_rows(&a->in[0]),
                                                                     (int)tensor_cols(&a->in[0]), f, h);
}

extern "C" cloob_status act_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    if (op_has(&a->out[2]))
        a->scratch_bytes = (size_t)grid_of(env, a).grid.x * (size_t)tensor_cols(&a->in[0]) * sizeof(float);
    return CLOOB_OK;
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
    return colsum_finish(env, "act_bwd", (float *)a->out[2].data, (const float *)a->scratch,
                         (int)grid_of(env, a).grid.x, C);
}
