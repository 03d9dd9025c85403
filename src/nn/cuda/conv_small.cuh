/* What the kernels of conv_small.h share: boxes of pictures in shared memory, the copies that fill them, and
 * the walk over tiles. */
#ifndef NN_CUDA_CONV_SMALL_CUH
#define NN_CUDA_CONV_SMALL_CUH

#include <cudaTypedefs.h>

#include "nn/cuda/conv_small.h"
#include "nn/cuda/mma.cuh"
#include "tensor/cuda/hopper.cuh"

enum { TILE = 16, TAPS = 9, SMEM_ALIGN = 1024 };

/* Tiles of TILE columns and some rows over N pictures of H x W outputs; the column runs fastest, so that
 * blocks at work together share their borders in the L2 cache. */
typedef struct tile_walk {
    int H, W, across, down, count;
} tile_walk;

typedef struct tile_place {
    int n, y, x; /* picture, first row, first column */
} tile_place;

__device__ __forceinline__ tile_place place_of(const tile_walk &t, int tile, int rows)
{
    int x = tile % t.across, q = tile / t.across;
    tile_place p = { q / t.down, q % t.down * rows, x * TILE };
    return p;
}

static inline tile_walk walk_of(int64_t N, int64_t H, int64_t W, int rows)
{
    tile_walk t = { (int)H, (int)W, (int)((W + TILE - 1) / TILE), (int)((H + rows - 1) / rows), 0 };
    t.count = (int)N * t.across * t.down;
    return t;
}

/* A box of ROWS x COLS positions, C channels, in shared memory as the copy engine leaves it. Channels come in
 * chunks of 16 bytes; eight neighbouring positions of a chunk lie on different banks, by the engine's swizzle
 * or because the row of a position is an odd number of chunks. */
template <int C, int ROWS, int COLS>
struct box {
    enum {
        FULL = ROWS * COLS * C * 2, /* what the barrier waits for */
        BYTES = (FULL + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN
    };
    static_assert(C == 32 || C == 64 || C % 16 == 8, "banks");

    /* Bytes from the box's begin to the chunk of position row * COLS + column. */
    __device__ __forceinline__ static unsigned at(int position, int chunk)
    {
        if constexpr (C == 32) return position * 64 + ((chunk ^ (position >> 1 & 3)) << 4);
        else if constexpr (C == 64) return position * 128 + ((chunk ^ (position & 7)) << 4);
        else return position * (C * 2) + chunk * 16;
    }

    /* By one thread, channels from c on. Positions outside the picture come as zeros. */
    __device__ __forceinline__ static void copy(char *to, const CUtensorMap *map, tile_place p, int border,
                                                int c, uint64_t *barrier)
    {
        copy_box4(to, map, c, p.x - border, p.y - border, p.n, barrier);
    }

    /* x (N,H,W,channels). */
    static cudaError_t map(CUtensorMap *m, const void *x, int64_t N, int64_t H, int64_t W, int64_t channels);
};

static inline PFN_cuTensorMapEncodeTiled_v12000 map_encoder(void)
{
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? (PFN_cuTensorMapEncodeTiled_v12000)entry
                                                                    : NULL;
}

static inline cudaError_t map_encode(CUtensorMap *m, CUtensorMapDataType type, const void *x, int dims,
                                     const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *part,
                                     CUtensorMapSwizzle swizzle)
{
    static const cuuint32_t step[4] = { 1, 1, 1, 1 };
    PFN_cuTensorMapEncodeTiled_v12000 make = map_encoder();
    if (!make) return cudaErrorNotSupported;
    CUresult r = make(m, type, (cuuint32_t)dims, const_cast<void *>(x), size, stride, part, step,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <int C, int ROWS, int COLS>
cudaError_t box<C, ROWS, COLS>::map(CUtensorMap *m, const void *x, int64_t N, int64_t H, int64_t W,
                                    int64_t channels)
{
    cuuint64_t size[4] = { (cuuint64_t)channels, (cuuint64_t)W, (cuuint64_t)H, (cuuint64_t)N };
    cuuint64_t stride[3] = { 2 * size[0], 2 * size[0] * size[1], 2 * size[0] * size[1] * size[2] };
    cuuint32_t part[4] = { C, COLS, ROWS, 1 };
    return map_encode(m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x, 4, size, stride, part,
                      C == 32   ? CU_TENSOR_MAP_SWIZZLE_64B
                      : C == 64 ? CU_TENSOR_MAP_SWIZZLE_128B
                                : CU_TENSOR_MAP_SWIZZLE_NONE);
}

/* The shared memory of a block begins at a multiple of what the swizzle repeats by. */
__device__ __forceinline__ char *smem_begin(char *raw)
{
    unsigned at = shared_address(raw);
    return raw + ((at + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN - at);
}

/* How many blocks of a kernel with this much shared memory fit on a multiprocessor. */
template <typename F>
static cudaError_t kernel_ready(F *kernel, int threads, size_t smem, int *blocks_per_sm)
{
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_sm, kernel, threads, smem);
    return e;
}

/* A thread's pairs of four neighbouring 16 x 8 results become the eight channels of one: lane l gets channels
 * 8 (l % 4) .. + 7 of the row that it shares with its three neighbours. */
__device__ __forceinline__ void gather_channels(unsigned v[4])
{
    int t = threadIdx.x & 3;
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        unsigned other = __shfl_xor_sync(0xffffffffu, t & 1 ? v[k] : v[k + 1], 1);
        if (t & 1) v[k] = other;
        else v[k + 1] = other;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        unsigned other = __shfl_xor_sync(0xffffffffu, t & 2 ? v[k] : v[k + 2], 2);
        if (t & 2) v[k] = other;
        else v[k + 2] = other;
    }
}

/* Half `high` (0: rows 0..7, 1: 8..15) of NT results 16 x 8, as channels of one position `to`; lanes of a row
 * agree on `inside`. */
template <int NT>
__device__ __forceinline__ void store_channels(bf16 *to, const float acc[NT][4], int high, bool inside)
{
    int t = threadIdx.x & 3;
#pragma unroll
    for (int k = 0; k + 4 <= NT; k += 4) {
        unsigned v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = pack2(acc[k + i][2 * high], acc[k + i][2 * high + 1]);
        gather_channels(v);
        if (inside) *reinterpret_cast<uint4 *>(to + k * 8 + t * 8) = make_uint4(v[0], v[1], v[2], v[3]);
    }
#pragma unroll
    for (int k = NT / 4 * 4; k < NT; k++)
        if (inside)
            *reinterpret_cast<unsigned *>(to + k * 8 + t * 2) = pack2(acc[k][2 * high], acc[k][2 * high + 1]);
}

/* Sums of the blocks in order, for the weight gradients: out[i] = sum over b of partial[b][i], by blocks of
 * (32 slots, 8 slices). True for the thread that has it. */
__device__ static bool add_blocks(float &sum, const float *partial, int blocks, int slot, int slots)
{
    __shared__ float part[8][33];
    sum = 0.0f;
#pragma unroll 4
    for (int b = threadIdx.y; b < blocks && slot < slots; b += 8) sum += partial[(int64_t)b * slots + slot];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || slot >= slots) return false;
#pragma unroll
    for (int y = 1; y < 8; y++) sum += part[y][threadIdx.x];
    return true;
}

#endif
