/* The gradient of a weight, computed next to a GEMM from operands that are in shared memory anyway: 64 x 64 sums at a
 * time, in registers over all tiles of a block. */
#ifndef NN_CUDA_FUSED_WEIGHT_SUMS_CUH
#define NN_CUDA_FUSED_WEIGHT_SUMS_CUH

#include "tensor/cuda/ring.cuh"

namespace {

enum { TRANSPOSED_STEP = 16 * DEPTH * 2 >> 4 }; /* 16 rows, in units of a descriptor */

/* c = a b^T over STAGES stages, which are not released; stage[s] returns their addresses. b_step: bytes from one stage
 * of b to the next. */
template <int STAGES, int N>
__device__ __forceinline__ void multiply_resident(float (&c)[N], ring a, const char *b, int b_step,
                                                  const char *(&stage)[STAGES])
{
    fence_registers(c);
#pragma unroll
    for (int s = 0; s < STAGES; s++) {
        barrier_wait(&a.full[a.at], a.parity);
        stage[s] = a.here();
        uint64_t da = descriptor(stage[s]), db = descriptor(b + s * b_step);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) wgmma_k16(c, da + 2 * k, db + 2 * k, s > 0 || k > 0);
        wgmma_commit();
        a.next();
    }
    wgmma_wait<0>();
    fence_registers(c);
}

/* sums += a^T b over ROWS_DEEP rows of 64 channels in the 128-byte swizzle. Issued without waiting. */
template <int ROWS_DEEP>
__device__ __forceinline__ void add_products(float (&sums)[32], const char *a, const char *b)
{
    uint64_t da = descriptor_transposed(a), db = descriptor_transposed(b);
#pragma unroll
    for (int k = 0; k < ROWS_DEEP / 16; k++)
        wgmma_transposed_k16(sums, da + k * TRANSPOSED_STEP, db + k * TRANSPOSED_STEP);
}

/* The same for several a; the warpgroup may do other work between begin and end. */
template <int ROWS_DEEP, int COUNT>
__device__ __forceinline__ void begin_products(float (&sums)[COUNT][32], const char *const (&a)[COUNT], const char *b)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) fence_registers(sums[i]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < COUNT; i++) add_products<ROWS_DEEP>(sums[i], a[i], b);
    wgmma_commit();
}
template <int COUNT>
__device__ __forceinline__ void end_products(float (&sums)[COUNT][32])
{
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < COUNT; i++) fence_registers(sums[i]);
}

/* The same for 16 columns of b in the 32-byte swizzle. */
template <int ROWS_DEEP>
__device__ __forceinline__ void add_products(float (&sums)[8], const char *a, const char *b)
{
    uint64_t da = descriptor_transposed(a), db = descriptor_transposed_16(b);
#pragma unroll
    for (int k = 0; k < ROWS_DEEP / 16; k++)
        wgmma_transposed_k16(sums, da + k * TRANSPOSED_STEP, db + k * TRANSPOSED_STEP / 4);
}

/* Writes a warpgroup's sums to `to` (rows, columns) from (row, column) on; columns is even. hopper.cuh has the layout
 * of the accumulators. */
template <int N>
__device__ __forceinline__ void write_products(float *to, const float (&sums)[N], int row, int column, int64_t rows,
                                               int64_t columns)
{
    int lane = threadIdx.x % 32;
    row += threadIdx.x % 128 / 32 * 16 + lane / 4, column += 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        int r = row + i % 2 * 8, c = column + i / 2 * 8;
        if (r < rows && c < columns)
            *reinterpret_cast<float2 *>(to + r * columns + c) = make_float2(sums[2 * i], sums[2 * i + 1]);
    }
}

} // namespace

#endif
