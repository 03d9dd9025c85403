/* Shared by the attention kernels with warpgroups, for heads of width 64: matrices in shared memory with rows of 64
 * bf16 in the 128-byte swizzle, and their multiplication. */
#ifndef NN_CUDA_ATTENTION_WIDE_CUH
#define NN_CUDA_ATTENTION_WIDE_CUH

#include "nn/cuda/attention.cuh"
#include "tensor/cuda/hopper.cuh"

namespace {

enum {
    WIDTH = 64, /* of a head; keys per warpgroup */
    ROW = 2 * WIDTH,
    TILE = WIDTH * ROW,  /* bytes */
    DOWN = 16 * ROW >> 4 /* 16 rows, in units of a descriptor */
};

struct swizzled {
    __device__ static __forceinline__ int at(int row, int c) { return row * WIDTH + (c ^ (row & 7) * 8); }
};

/* c = a b^T: 64 rows of a, 2 N of b. */
template <int N>
__device__ __forceinline__ void begin_scores(float (&c)[N], const char *a, const char *b)
{
    uint64_t x = descriptor(a), y = descriptor(b);
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) wgmma_k16(c, x + 2 * k, y + 2 * k, k > 0);
    wgmma_commit();
}

/* Position of a thread's first element in a 64 x n result; element i is 8 (i / 2 % 2) rows and 8 (i / 4) + i % 2
 * columns further. */
struct corner {
    int row, column;
};
__device__ __forceinline__ corner first_element()
{
    int lane = threadIdx.x % 32;
    return { (int)threadIdx.x % 128 / 32 * 16 + lane / 4, 2 * (lane % 4) };
}

/* Rounds 16 columns of a result to a left operand. */
__device__ __forceinline__ void pack_columns(unsigned (&a)[4], const float *c, float scale)
{
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = pack_pair(c[2 * i] * scale, c[2 * i + 1] * scale);
}

/* Stores them to rows row0.. (of this warp) and columns c.. of a matrix in shared memory. */
__device__ __forceinline__ void store_columns(char *to, int row0, int c, const unsigned (&a)[4])
{
    int lane = threadIdx.x % 32, row = row0 + lane / 8 % 2 * 8 + lane % 8;
    stmatrix(shared_address(to) + 2 * swizzled::at(row, c + lane / 16 * 8), a[0], a[1], a[2], a[3]);
}

/* Writes 16 rows of a warp to global memory, rows below T only, staged in rows row0.. of a matrix in shared memory. */
__device__ __forceinline__ void store_rows(bf16 *to, int64_t step, const float (&c)[32], float scale, int row0, int T,
                                           char *stage)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned a[4];
        pack_columns(a, c + 8 * k, scale);
        store_columns(stage, row0, 16 * k, a);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = row0 + 4 * i + lane / 8, at = lane % 8 * 8;
        if (row < T)
            *reinterpret_cast<uint4 *>(to + row * step + at) =
                *reinterpret_cast<const uint4 *>(stage + 2 * swizzled::at(row, at));
    }
}

} // namespace

#endif
