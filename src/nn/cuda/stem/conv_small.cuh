/* Shared by the kernels of conv_small.h: boxes of images in shared memory, the copies that fill them, and the grid of
 * tiles. */
#ifndef NN_CUDA_STEM_CONV_SMALL_CUH
#define NN_CUDA_STEM_CONV_SMALL_CUH

#include "nn/cuda/stem/conv_small.h"
#include "nn/cuda/mma.cuh"
#include "tensor/cuda/hopper.cuh"

enum { TILE = SMALL_TILE, TAPS = 9, SMEM_ALIGN = 1024 };

/* Tiles of TILE columns and some rows over N images of H x W outputs. The column index varies fastest, so that blocks
 * that run at the same time share their borders in the L2 cache. */
typedef struct tile_grid {
    int H, W, across, down, count;
} tile_grid;

typedef struct tile_position {
    int n, y, x; /* image, first row, first column */
} tile_position;

__device__ __forceinline__ tile_position position_of(const tile_grid &t, int tile, int rows)
{
    int x = tile % t.across, q = tile / t.across;
    tile_position p = { q / t.down, q % t.down * rows, x * TILE };
    return p;
}

static inline tile_grid tile_grid_of(int64_t N, int64_t H, int64_t W, int rows)
{
    tile_grid t = { (int)H, (int)W, (int)((W + TILE - 1) / TILE), (int)((H + rows - 1) / rows), 0 };
    t.count = (int)N * t.across * t.down;
    return t;
}

/* A box of ROWS x COLS positions and C channels in shared memory, as a bulk copy writes it. Channels come in chunks of
 * 16 bytes; eight neighbouring positions of a chunk are on different banks, by the swizzle or because a position has an
 * odd number of chunks (80 channels: on half as many banks). */
template <int C, int ROWS, int COLS, bool WHOLE = true>
struct box {
    /* RUN: a position ends inside a sector, so a row of the box is copied as one run of 8-byte words; only if the box
     * has all channels of the image (WHOLE). */
    enum {
        FULL = ROWS * COLS * C * 2, /* bytes that the barrier waits for */
        BYTES = (FULL + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN,
        POSITIONS = ROWS * COLS,
        RUN = C == 40 && WHOLE,
        CONVERTED = 0 /* bytes after conversion; 0: used as copied */
    };
    static_assert(C == 32 || C == 64 || C == 40 || C == 80, "banks");

    /* Offset of a chunk of position row * COLS + column. */
    __device__ __forceinline__ static unsigned at(int position, int chunk)
    {
        if constexpr (C == 32) return position * 64 + ((chunk ^ (position >> 1 & 3)) << 4);
        else if constexpr (C == 64) return position * 128 + ((chunk ^ (position & 7)) << 4);
        else return position * (C * 2) + chunk * 16;
    }

    /* Called by one thread; channels from c on. Positions outside the image are 0. */
    __device__ __forceinline__ static void copy(char *to, const CUtensorMap *map, tile_position p, int border, int c,
                                                uint64_t *barrier)
    {
        if constexpr (RUN) copy_box3(to, map, (p.x - border) * (C / 4), p.y - border, p.n, barrier);
        else copy_box4(to, map, c, p.x - border, p.y - border, p.n, barrier);
    }

    /* x (N,H,W,channels); with RUN the box has all channels. */
    static cudaError_t map(CUtensorMap *m, const void *x, int64_t N, int64_t H, int64_t W, int64_t channels);
};

template <int C, int ROWS, int COLS, bool WHOLE>
cudaError_t box<C, ROWS, COLS, WHOLE>::map(CUtensorMap *m, const void *x, int64_t N, int64_t H, int64_t W,
                                           int64_t channels)
{
    cuuint64_t c = (cuuint64_t)channels, w = (cuuint64_t)W, h = (cuuint64_t)H, n = (cuuint64_t)N;
    if (RUN) {
        cuuint64_t size[3] = { w * c / 4, h, n }, stride[2] = { 2 * c * w, 2 * c * w * h };
        cuuint32_t part[3] = { COLS * C / 4, ROWS, 1 };
        return tensor_map_encode(m, CU_TENSOR_MAP_DATA_TYPE_UINT64, x, 3, size, stride, part,
                                 CU_TENSOR_MAP_SWIZZLE_NONE);
    }
    cuuint64_t size[4] = { c, w, h, n }, stride[3] = { 2 * c, 2 * c * w, 2 * c * w * h };
    cuuint32_t part[4] = { C, COLS, ROWS, 1 };
    return tensor_map_encode(m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x, 4, size, stride, part,
                             C == 32   ? CU_TENSOR_MAP_SWIZZLE_64B
                             : C == 64 ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : CU_TENSOR_MAP_SWIZZLE_NONE);
}

/* Conversion of bytes, (byte / 255 - mean) / std, and the size of the images. */
typedef struct pixels {
    float slope[3], bias[3];
    int H, W;
} pixels;

static inline pixels pixels_of(const small_call *c)
{
    pixels p = { {}, {}, (int)c->shape.H, (int)c->shape.W };
    for (int i = 0; i < 3; i++) {
        double std = c->data.std[i];
        p.slope[i] = (float)(1.0 / (255.0 * std)), p.bias[i] = (float)(-(double)c->data.mean[i] / std);
    }
    return p;
}

/* Loads a kernel; returns how many blocks with this much shared memory fit on a multiprocessor. */
template <typename F>
static cudaError_t kernel_ready(F *kernel, int threads, size_t smem, int *blocks_per_sm)
{
    cudaError_t e = allow_shared_memory(kernel);
    if (e == cudaSuccess) e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_per_sm, kernel, threads, smem);
    return e;
}

/* Statistics of batch norm over a lane's outputs, which always have the same eight channels: sums of y - pivot and of
 * its square, y rounded. */
struct channel_sums {
    enum { WITH = SMALL_STATS, LANE_BYTES = 16 * sizeof(float) };
    float pivot[8], s1[8], s2[8];

    __device__ __forceinline__ channel_sums(const float *of, int chunk)
    {
#pragma unroll
        for (int i = 0; i < 8; i++) pivot[i] = of[chunk * 8 + i], s1[i] = s2[i] = 0.0f;
    }

    __device__ __forceinline__ void add(uint4 v)
    {
        unsigned pair[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (int i = 0; i < 8; i++) {
            unsigned bits = i & 1 ? pair[i / 2] & 0xffff0000u : pair[i / 2] << 16;
            float d = __uint_as_float(bits) - pivot[i];
            s1[i] += d;
            s2[i] = fmaf(d, d, s2[i]);
        }
    }
};

struct no_sums {
    enum { WITH = 0, LANE_BYTES = 0 };
    __device__ __forceinline__ no_sums(const float *, int) {}
    __device__ __forceinline__ void add(uint4) {}
};

/* Staging of rows of 16 outputs from a warp's accumulators to global memory: written as 16 x 8 results, read as whole
 * positions, EACH at a time, so that a lane always has the same chunk. LINES rows alternate. */
template <int NT, int LINES>
struct row_out {
    enum {
        LD = NT * 16 + (NT % 2 ? 0 : 16), /* an odd number of chunks */
        ROW = TILE * LD,
        BYTES = LINES * ROW,
        EACH = 32 / NT
    };

    __device__ __forceinline__ static int chunk_of_lane() { return (threadIdx.x & 31) % NT; }

    /* y: channels of the row's first output; `inside`: how many of the 16 are written. */
    template <class SUMS>
    __device__ __forceinline__ static void store(unsigned smem, int row, const float acc[NT][4], bf16 *y, int inside,
                                                 SUMS &sums)
    {
        int lane = threadIdx.x & 31;
        unsigned to = smem + row % LINES * ROW;
        if (LINES == 1) __syncwarp(); /* the previous row has been read */
#pragma unroll
        for (int t = 0; t < NT; t += 2) {
            unsigned at = to + (lane & 15) * LD + (t + (lane >> 4)) * 16;
            unsigned a = pack2(acc[t][0], acc[t][1]), b = pack2(acc[t][2], acc[t][3]);
            if (t + 1 == NT) stmatrix(at, a, b);
            else stmatrix(at, a, b, pack2(acc[t + 1][0], acc[t + 1][1]), pack2(acc[t + 1][2], acc[t + 1][3]));
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < (TILE + EACH - 1) / EACH; i++) {
            int x = i * EACH + lane / NT;
            if (lane / NT < EACH && x < TILE && x < inside) {
                uint4 v = load_shared(to + x * LD + lane % NT * 16);
                *reinterpret_cast<uint4 *>(y + (x * NT + lane % NT) * 8) = v;
                sums.add(v);
            }
        }
    }

    /* Adds a block's sums over warps and lanes in order and writes them to partial (2, 8 NT). smem: shared memory that
     * is no longer used, LANE_BYTES per thread. */
    template <int WARPS>
    __device__ __forceinline__ static void write_sums(float *partial, float *smem, const channel_sums &sums)
    {
        const int threads = 32 * WARPS;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            smem[i * threads + threadIdx.x] = sums.s1[i];
            smem[(8 + i) * threads + threadIdx.x] = sums.s2[i];
        }
        __syncthreads();
        for (int k = threadIdx.x; k < 16 * NT; k += threads) {
            int channel = k % (8 * NT);
            const float *from = smem + (k / (8 * NT) * 8 + channel % 8) * threads + channel / 8;
            float sum = 0.0f;
            for (int warp = 0; warp < WARPS; warp++)
#pragma unroll
                for (int i = 0; i < EACH; i++) sum += from[warp * 32 + i * NT];
            partial[k] = sum;
        }
    }
    template <int WARPS>
    __device__ __forceinline__ static void write_sums(float *, float *, const no_sums &)
    {
    }
};

/* Adds the sums of all blocks in order, for the weight gradients: sum over b of partial[b][slot], by blocks of (32
 * slots, 8 slices). Returns true in the thread that has the result. */
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
