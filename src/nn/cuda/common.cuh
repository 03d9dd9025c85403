/* What kernels share: 16-byte packs of elements, sums over warps, and how rows of channels are laid over a
 * grid. */
#ifndef NN_CUDA_COMMON_CUH
#define NN_CUDA_COMMON_CUH

#include "nn/cuda/kernels.h"
#include "tensor/cuda/vendor.cuh"

typedef __nv_bfloat16 bf16;

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(bf16 v) { return __bfloat162float(v); }
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v)
{
    return v;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float v)
{
    return __float2bfloat16_rn(v);
}

/* Allows a kernel all of the shared memory that a block may have. Always the same limit: the attribute belongs to the
 * process, so another thread could lower a limit set for one call before its launch. */
template <typename K>
static cudaError_t allow_shared_memory(K *kernel)
{
    cudaFuncAttributes f;
    int device, most;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess) e = cudaFuncGetAttributes(&f, kernel);
    if (e != cudaSuccess) return e;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most - (int)f.sharedSizeBytes);
}

/* V neighbouring elements; V elements of T make 16 bytes, or V is 1 where a width does not divide. */
template <typename T, int V>
struct __align__(sizeof(T) * V) pack
{
    T v[V];
};

template <typename T, int V>
__device__ __forceinline__ pack<T, V> load(const T *p)
{
    return *reinterpret_cast<const pack<T, V> *>(p);
}
template <typename T, int V>
__device__ __forceinline__ void store(T *p, const pack<T, V> &k)
{
    *reinterpret_cast<pack<T, V> *>(p) = k;
}

/* V floats of a per-channel vector; 16 bytes at a time where V allows. */
template <int V>
__device__ __forceinline__ void load_floats(float out[V], const float *p)
{
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            float4 q = *reinterpret_cast<const float4 *>(p + i);
            out[i] = q.x, out[i + 1] = q.y, out[i + 2] = q.z, out[i + 3] = q.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) out[i] = p[i];
    }
}

__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(0xffffffffu, v, k);
    return v;
}

__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int k = 16; k; k >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, k));
    return v;
}

/* Runs the statement with T the element type and V the widest pack that divides `width`. */
#define WITH_PACK(dtype, width, ...)                                                                                   \
    do {                                                                                                               \
        if ((dtype) == CLOOB_BF16) {                                                                                   \
            using T = bf16;                                                                                            \
            if ((width) % 8 == 0) {                                                                                    \
                constexpr int V = 8;                                                                                   \
                __VA_ARGS__;                                                                                           \
            } else {                                                                                                   \
                constexpr int V = 1;                                                                                   \
                __VA_ARGS__;                                                                                           \
            }                                                                                                          \
        } else {                                                                                                       \
            using T = float;                                                                                           \
            if ((width) % 4 == 0) {                                                                                    \
                constexpr int V = 4;                                                                                   \
                __VA_ARGS__;                                                                                           \
            } else {                                                                                                   \
                constexpr int V = 1;                                                                                   \
                __VA_ARGS__;                                                                                           \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

#define WITH_TYPE(dtype, ...)                                                                                          \
    do {                                                                                                               \
        if ((dtype) == CLOOB_BF16) {                                                                                   \
            using T = bf16;                                                                                            \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            using T = float;                                                                                           \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

static inline int pack_width(cloob_dtype d, int64_t width)
{
    int v = d == CLOOB_BF16 ? 8 : 4;
    return width % v == 0 ? v : 1;
}

/* Rows of `packs` packs over a grid: a thread owns a column of packs and processes rows, so that what
 * belongs to a channel stays in registers. block.x columns (at most 64), block.y rows; grid.x blocks share
 * the rows, grid.y the columns. The grid fills the chip once. */
typedef struct row_grid {
    dim3 grid, block;
} row_grid;

static inline row_grid rows_over_grid(const device *d, int64_t R, int64_t packs, int blocks_per_sm)
{
    const cuda_state *s = (const cuda_state *)d->state;
    int64_t chunks = (packs + 63) / 64, width = (packs + chunks - 1) / chunks, height = 256 / width;
    int64_t limit = (int64_t)s->sms * blocks_per_sm / chunks, want = (R + height - 1) / height;
    int64_t x = want < limit ? want : limit;
    row_grid g;
    g.grid = dim3((unsigned)(x < 1 ? 1 : x), (unsigned)chunks);
    g.block = dim3((unsigned)width, (unsigned)height);
    return g;
}

/* How a block on such a grid ends that sums columns. s: this thread's sums of its V columns. Adds those of the block's
 * rows in order and writes the block's row of partial (gridDim.x, C). Shared memory: (block.y, V, block.x) floats,
 * `block_sums_bytes`. */
template <int V>
__device__ __forceinline__ void write_block_sums(float *partial, const float s[V], int64_t C)
{
    extern __shared__ float block_sums[];
    int width = blockDim.x, cell = V * width, packs = (int)(C / V);
#pragma unroll
    for (int i = 0; i < V; i++) block_sums[threadIdx.y * cell + i * width + threadIdx.x] = s[i];
    __syncthreads();
    for (int j = threadIdx.y * width + threadIdx.x; j < cell; j += width * blockDim.y) {
        int at = blockIdx.y * width + j % width;
        float sum = 0.0f;
        for (int y = 0; y < blockDim.y; y++) sum += block_sums[y * cell + j];
        if (at < packs) partial[blockIdx.x * C + (int64_t)at * V + j / width] = sum;
    }
}

static inline size_t block_sums_bytes(const row_grid &g, int V)
{
    return (size_t)g.block.x * g.block.y * (size_t)V * sizeof(float);
}

/* Blocks of 256 threads that the chip holds at a time: a grid of so many has no last round that is half empty. */
template <typename K>
static inline int64_t resident_blocks(const op_env *env, K *kernel)
{
    int each = 0;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 256, 0) != cudaSuccess || each < 1) each = 1;
    return (int64_t)((const cuda_state *)env->dev->state)->sms * each;
}

/* One thread per item, 256 a block. */
static inline unsigned blocks_for(int64_t items) { return (unsigned)((items + 255) / 256); }

static inline cudaStream_t stream_of(const op_env *env) { return (cudaStream_t)env->stream; }

template <typename T>
static inline T *data_of(const tensor *t)
{
    return (T *)t->data;
}

/* f(i) for every i below `items`, a thread each. */
template <typename F>
static __global__ void __launch_bounds__(256) each_kernel(int64_t items, F f)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < items) f(i);
}

template <typename F>
static cloob_status for_each(const op_env *env, const char *op, int64_t items, F f)
{
    if (items > 0) each_kernel<<<blocks_for(items), 256, 0, stream_of(env)>>>(items, f);
    return cuda_launched(env->ctx, op);
}

#endif
