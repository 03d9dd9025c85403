/* Sums over rows, for bias gradients: partial sums per block, added in a fixed order by a second
 * launch. */
#include "nn/cuda/common.cuh"

enum { SUM_BLOCKS = 6 };

/* partial: (gridDim.x, C). */
template <typename T, int V>
static __global__ void __launch_bounds__(256)
    colsum_kernel(float *partial, const T *x, int64_t R, int64_t C, int64_t step)
{
    int column = blockIdx.y * blockDim.x + threadIdx.x, packs = (int)(C / V);
    float s[V] = {};
    if (column < packs) {
#pragma unroll 4
        for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < R; r += (int64_t)gridDim.x * blockDim.y) {
            pack<T, V> k = load<T, V>(x + r * step + (int64_t)column * V);
#pragma unroll
            for (int i = 0; i < V; i++) s[i] += to_float(k.v[i]);
        }
    }
    write_block_sums<V>(partial, s, C);
}

/* block (32 columns, 16 slices). */
static __global__ void colsum_finish_kernel(float *out, const float *partial, int parts, int64_t C)
{
    __shared__ float part[16][33];
    int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float s = 0.0f;
#pragma unroll 4
    for (int g = threadIdx.y; g < parts && c < C; g += 16) s += partial[g * C + c];
    part[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y || c >= C) return;
    for (int y = 1; y < 16; y++) s += part[y][threadIdx.x];
    out[c] = s;
}

static int colsum_pack(cloob_dtype dtype, int64_t C, int64_t step)
{
    int v = pack_width(dtype, C);
    return step % v == 0 ? v : 1;
}

static row_grid colsum_grid(const device *d, int64_t R, int64_t C, int V)
{
    return rows_over_grid(d, R, C / V, SUM_BLOCKS);
}

extern "C" size_t colsum_scratch(const device *d, int64_t R, int64_t C, cloob_dtype dtype)
{
    /* run may use packs of one element, depending on the step between rows */
    int64_t x = colsum_grid(d, R, C, 1).grid.x, y = colsum_grid(d, R, C, pack_width(dtype, C)).grid.x;
    return (size_t)(x > y ? x : y) * (size_t)C * sizeof(float);
}

extern "C" cloob_status colsum(const op_env *env, const char *op, float *out, const void *x, cloob_dtype dtype,
                               int64_t R, int64_t C, int64_t step, void *scratch)
{
    if (!step) step = C;
    int width = colsum_pack(dtype, C, step);
    row_grid g = colsum_grid(env->dev, R, C, width);
    size_t smem = block_sums_bytes(g, width);
    cudaStream_t s = stream_of(env);
    float *partial = (float *)scratch;
    WITH_PACK(dtype, width == 1 ? 1 : 8,
              (colsum_kernel<T, V><<<g.grid, g.block, smem, s>>>(partial, (const T *)x, R, C, step)));
    CLOOB_TRY(cuda_launched(env->ctx, op));
    return colsum_finish(env, op, out, partial, (int)g.grid.x, C);
}

extern "C" cloob_status colsum_finish(const op_env *env, const char *op, float *out, const float *partial, int parts,
                                      int64_t C)
{
    colsum_finish_kernel<<<(unsigned)((C + 31) / 32), dim3(32, 16), 0, stream_of(env)>>>(out, partial, parts, C);
    return cuda_launched(env->ctx, op);
}
