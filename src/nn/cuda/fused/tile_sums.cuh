/* Column sums of a GEMM's result while it is in registers: the statistics of batch norm. */
#ifndef NN_CUDA_FUSED_TILE_SUMS_CUH
#define NN_CUDA_FUSED_TILE_SUMS_CUH

#include "nn/cuda/fused/prologue_tiles.cuh"

namespace {

/* Sums v[k][i] over the eight lanes that hold different rows: afterwards v[k][0] of a lane is the sum of element
 * 4 b4 + 2 b3 + b2 of v[k], where b4, b3, b2 are bits of the lane's index. */
template <int HALF = 4, int COUNT>
__device__ __forceinline__ void scatter_sums(float (&v)[COUNT][8])
{
    bool high = threadIdx.x & (4 * HALF);
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float sent = high ? v[k][i] : v[k][i + HALF], kept = high ? v[k][i + HALF] : v[k][i];
            v[k][i] = kept + __shfl_xor_sync(~0u, sent, 4 * HALF);
        }
    if constexpr (HALF > 1) scatter_sums<HALF / 2>(v);
}

/* Sums of y - pivot and of its square over the rows of a warp: in registers if N is small enough, else added to the
 * warp's cells (2, 2 N) box by box. */
template <int N>
struct statistics {
    static constexpr bool stay = N <= 64;
    column_sums<stay ? N : 2> total;
    float v[stay ? 1 : 4][8];

    /* Four 8 x 8 matrices of the result (gemm_epilogues.cuh), rounded; k: which 16 of the consumer's columns. */
    __device__ __forceinline__ void take(const float (&f)[8], const float *pivots, int k, const bool (&counts)[2])
    {
        float pivot[8], d[8];
        columns(pivot, pivots, k);
#pragma unroll
        for (int i = 0; i < 8; i++) d[i] = counts[i / 2 % 2] ? f[i] - pivot[i] : 0.0f;
        if constexpr (stay) {
#pragma unroll
            for (int i = 0; i < 8; i++) total.add(k, i, d[i], d[i], d[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) { /* columns 2 (lane % 4) + i % 2; i >= 2: plus eight */
                float a = d[i / 2 * 4 + i % 2], b = d[i / 2 * 4 + i % 2 + 2];
                v[k % 4][i] = a + b, v[k % 4][4 + i] = fmaf(a, a, b * b);
            }
        }
    }

    /* Called after the four calls of take for a box. */
    __device__ __forceinline__ void end_box(float *cell, int box)
    {
        if constexpr (!stay) {
            int lane = threadIdx.x % 32;
            float *at = cell + lane / 16 * 2 * N + 64 * box + lane / 8 % 2 * 8 + 2 * (lane % 4) + lane / 4 % 2;
            scatter_sums(v);
#pragma unroll
            for (int k = 0; k < 4; k++) at[16 * k] += v[k][0];
        }
    }

    /* Called after the last tile. */
    __device__ __forceinline__ void end(float *cell)
    {
        if constexpr (stay) write_warp_sums(total, cell);
    }
};

} // namespace

#endif
