/* What becomes of a tile of an MLP's GEMM (act_gemm.h) while it is in registers, by a warpgroup: 64 rows and 128
 * columns, 64 accumulators a thread as wgmma leaves them (hopper.cuh). Rows travel between memory and registers in
 * pieces of 64 bytes, four lanes each, without shared memory: lanes exchange what they hold (transpose_quad). */
#ifndef NN_CUDA_LINEAR_ACT_EPILOGUE_CUH
#define NN_CUDA_LINEAR_ACT_EPILOGUE_CUH

#include "nn/cuda/activations.cuh"
#include "nn/cuda/linear/act_gemm.h"
#include "tensor/cuda/hopper.cuh"

namespace {

enum { ACT_ROWS = 64, ACT_COLUMNS = 128, ACT_GROUPS = ACT_COLUMNS / 32 }; /* a group: 32 columns, a piece of each row */

/* Where a lane's pieces lie: of its first row, first group; the second row is 8 further down. */
struct act_place {
    int64_t at, below; /* elements */
    int first;         /* where it would lie in row 0 */
    bool there[2];     /* whether rows exist */
};

__device__ __forceinline__ act_place act_place_of(int64_t m, int64_t n, int64_t row, int strip)
{
    int lane = threadIdx.x % 32;
    int64_t first = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
    int column = strip + 8 * (lane % 4);
    return { first * n + column, 8 * n, column, { first < m, first + 8 < m } };
}

/* 16 bytes of x. A row that does not exist is multiplied by a gradient of zero: any other will do, and the load needs
 * no predicate, which would make ptxas wait for it at once. */
__device__ __forceinline__ void load_piece(uint32_t (&v)[4], const bf16 *p)
{
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(p));
}

/* Pairs of columns of four lanes, stored as pieces where there is a row: a predicate, not a branch. */
__device__ __forceinline__ void store_pairs(bf16 *p, uint32_t (&v)[4], bool there)
{
    transpose_quad(v);
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "setp.ne.b32 there, %5, 0;\n"
                 "@there st.global.v4.b32 [%4], {%0,%1,%2,%3};\n"
                 "}\n" ::"r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3]), "l"(p), "r"((int)there)
                 : "memory");
}

/* What the backward epilogue reads, on its way while products run. */
struct act_ahead {
    uint32_t v[2 * ACT_GROUPS][4];
    __device__ __forceinline__ void load(const bf16 *x, const act_place &p, int from, int to)
    {
#pragma unroll
        for (int i = from; i < to; i++)
            load_piece(v[i], x + (p.there[i % 2] ? p.at + i % 2 * p.below : p.first) + i / 2 * 32);
    }
};

/* x, where it is wanted, and y = f(x + bias). bias: F32, of the tile's columns, in shared memory. */
template <class F>
__device__ __forceinline__ void act_forward(const float (&c)[64], bf16 *x, bf16 *y, const float *bias,
                                            const act_place &p)
{
    F f;
#pragma unroll
    for (int i = 0; i < 2 * ACT_GROUPS; i++) {
        int g = i / 2, h = i % 2;
        int64_t at = p.at + h * p.below + 32 * g;
        uint32_t before[4], after[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 b = *reinterpret_cast<const float2 *>(bias + 32 * g + 8 * j + 2 * (threadIdx.x % 4));
            before[j] = pack_pair(c[4 * (4 * g + j) + 2 * h], c[4 * (4 * g + j) + 2 * h + 1]);
            float2 v = unpack_pair(before[j]);
            after[j] = pack_pair(f(v.x + b.x, 0.0f), f(v.y + b.y, 0.0f));
        }
        if (x) store_pairs(x + at, before, p.there[h]);
        store_pairs(y + at, after, p.there[h]);
    }
}

/* y = f(c, x + bias), its sums over rows, and where it is wanted recomputed = h(x + bias). Groups from LATE on are
 * loaded here, not ahead. */
template <class F, class H, int LATE>
__device__ __forceinline__ void act_backward(const float (&c)[64], act_ahead &ahead, float (&sum)[32], const bf16 *x,
                                             bf16 *y, bf16 *recomputed, const float *bias, const act_place &p)
{
    F f;
    H again;
    ahead.load(x, p, 2 * LATE, 2 * ACT_GROUPS);
#pragma unroll
    for (int i = 0; i < 2 * ACT_GROUPS; i++) {
        int g = i / 2, h = i % 2;
        int64_t at = p.at + h * p.below + 32 * g;
        uint32_t out[4], forward[4];
        transpose_quad(ahead.v[i]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int k = 4 * g + j;
            float2 b = *reinterpret_cast<const float2 *>(bias + 8 * k + 2 * (threadIdx.x % 4));
            float2 v = unpack_pair(ahead.v[i][j]), d = unpack_pair(pack_pair(c[4 * k + 2 * h], c[4 * k + 2 * h + 1]));
            v.x += b.x, v.y += b.y;
            out[j] = pack_pair(f(d.x, v.x), f(d.y, v.y));
            float2 s = unpack_pair(out[j]);
            sum[2 * k] += s.x, sum[2 * k + 1] += s.y;
            if (recomputed) forward[j] = pack_pair(again(v.x, 0.0f), again(v.y, 0.0f));
        }
        store_pairs(y + at, out, p.there[h]);
        if (recomputed) store_pairs(recomputed + at, forward, p.there[h]);
    }
}

/* A warp's sums to its row of cells: 128 floats. */
__device__ __forceinline__ void act_sums_of_warp(float *cell, const float (&sum)[32])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        float s = sum[i];
#pragma unroll
        for (int k = 4; k < 32; k *= 2) s += __shfl_xor_sync(~0u, s, k);
        if (lane < 4) cell[8 * (i / 2) + 2 * lane + i % 2] = s;
    }
}

} // namespace

#endif
