/* Epilogues (fused_gemm_kernels.h): they process a GEMM's result in registers. Also the moves of 8 x 8 matrices between
 * registers and boxes of 64 x 64 in shared memory, the tiles of a block, and bulk stores. */
#ifndef NN_CUDA_GEMM_EPILOGUES_CUH
#define NN_CUDA_GEMM_EPILOGUES_CUH

#include "nn/cuda/fused_gemm_kernels.h"
#include "nn/cuda/mma.cuh"
#include "tensor/cuda/ring.cuh"

namespace {

enum { BOX = 64 * DEPTH * 2 }; /* bytes of a box of 64 x 64 bf16 */

/* The tiles of a block: `width` columns from first_column on; of the tiles of `height` rows, every parts-th from `part`
 * on; each `depth` stages deep. */
struct block_tiles {
    int first_column, width, part, parts, depth, tiles, height;
};

/* The tiles of this block, of `tiles` tiles of `height` rows of a GEMM with n columns and a depth of k. */
__device__ __forceinline__ block_tiles block_tiles_of(int64_t n, int64_t k, int width, int height, int64_t tiles)
{
    int column_blocks = (int)((n + width - 1) / width);
    return { (int)blockIdx.x % column_blocks * width,
             width,
             (int)blockIdx.x / column_blocks,
             (int)gridDim.x / column_blocks,
             (int)(k + DEPTH - 1) / DEPTH,
             (int)tiles,
             height };
}

/* A consumer is a warpgroup; consumer i uses named barrier i + 1. */
__device__ __forceinline__ void consumer_barrier(int consumer)
{
    asm volatile("bar.sync %0, 128;" ::"r"(consumer + 1) : "memory");
}
__device__ __forceinline__ bool is_leader() { return threadIdx.x % 128 == 0; }

/* Waits until all issued bulk stores have read their data. Only the leader waits; the other threads know after the next
 * barrier. */
__device__ __forceinline__ void wait_stores()
{
    if (is_leader()) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Bulk store of a box, after all threads of the consumer have written it. */
__device__ __forceinline__ void store_box(const CUtensorMap *map, const char *from, int column, int row)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(row)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* The same for rows that are image positions. */
__device__ __forceinline__ void store_tile(const CUtensorMap *map, const char *from, int column, int x, int line)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(x), "r"(line)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Four 8 x 8 matrices of a box: rows 16 w + 0..7 and 8..15 of columns 16 k .. 16 k + 7, then of 16 k + 8 ..
 * 16 k + 15. A lane addresses a row of one of them; its v[i] holds two neighbours of row lane / 4, columns 2
 * (lane % 4), of matrix i. */
__device__ __forceinline__ int matrix_row(int k)
{
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 8 + 8 * (lane / 8 % 2),
        chunk = 2 * k + lane / 16;
    return row * (DEPTH * 2) + ((chunk ^ (lane % 8)) << 4); /* swizzled by the low three bits of the row */
}

__device__ __forceinline__ void split(float (&out)[8], const uint32_t (&v)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 f = unpack_pair(v[i]);
        out[2 * i] = f.x, out[2 * i + 1] = f.y;
    }
}
__device__ __forceinline__ void join(uint32_t (&v)[4], const float (&f)[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = pack_pair(f[2 * i], f[2 * i + 1]);
}

/* Tiles of image positions, used if an input is a 2 x 2 pool: `width` positions of `height` lines, both even. */
struct image_tiles {
    int rows; /* positions of a tile, at most 64 */
    int width, height;
    int tiles_per_line; /* 0: plain rows, 64 per tile */
};

/* The pooled row of a tile's row. */
__device__ __forceinline__ int pooled_row(const image_tiles &l, int row)
{
    return row / (2 * l.width) * (l.width / 2) + row % l.width / 2;
}

/* Offset of 16 bytes in a row of a box, swizzled by the low three bits of the row. */
__device__ __forceinline__ int chunk_offset(int row, int chunk)
{
    return row * (DEPTH * 2) + ((chunk ^ (row % 8)) << 4);
}

/* Pools a box: each result is the average of four rows. Called by a warpgroup. */
__device__ __forceinline__ void pool_box(char *to, const char *from, const image_tiles &l)
{
    int thread = threadIdx.x % 128, place = thread / 8, half = l.width / 2;
    if (4 * place >= l.rows) return;
    int row = place / half * 2 * l.width + place % half * 2;
    uint32_t v[4][4], out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 q = *reinterpret_cast<const uint4 *>(from + chunk_offset(row + i / 2 * l.width + i % 2, thread % 8));
        v[i][0] = q.x, v[i][1] = q.y, v[i][2] = q.z, v[i][3] = q.w;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 a = unpack_pair(v[0][k]), b = unpack_pair(v[1][k]), c = unpack_pair(v[2][k]), d = unpack_pair(v[3][k]);
        out[k] = pack_pair(0.25f * (a.x + b.x + c.x + d.x), 0.25f * (a.y + b.y + c.y + d.y));
    }
    *reinterpret_cast<uint4 *>(to + chunk_offset(place, thread % 8)) = make_uint4(out[0], out[1], out[2], out[3]);
}

/* Loads the values of a lane's four columns in the order of `split`; both rows of a matrix pair get the same. */
__device__ __forceinline__ void columns(float (&out)[8], const float *vector, int k)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float2 f = *reinterpret_cast<const float2 *>(vector + 16 * k + 8 * i + 2 * (threadIdx.x % 4));
        out[4 * i] = out[4 * i + 2] = f.x, out[4 * i + 1] = out[4 * i + 3] = f.y;
    }
}

/* Two sums per column over a thread's rows; column 16 k + 8 i + 2 (lane % 4) + e is at 4 k + 2 i + e. */
template <int N>
struct column_sums {
    float s1[N / 2], s2[N / 2]; /* N accumulators cover two rows */
    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < N / 2; i++) s1[i] = s2[i] = 0.0f;
    }
    __device__ __forceinline__ void add(int k, int i, float a, float b, float c) /* s1 += a, s2 += b c */
    {
        int at = 4 * k + i / 4 * 2 + i % 2;
        s1[at] += a;
        s2[at] = fmaf(b, c, s2[at]);
    }
};

/* Adds a warp's sums over its rows and writes them to its cell (2, 2 N) in shared memory. */
template <int N>
__device__ __forceinline__ void write_warp_sums(const column_sums<N> &total, float *cell)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        float a = total.s1[i], b = total.s2[i];
#pragma unroll
        for (int k = 4; k < 32; k *= 2) a += __shfl_xor_sync(~0u, a, k), b += __shfl_xor_sync(~0u, b, k);
        int at = 16 * (i / 4) + 8 * (i / 2 % 2) + 2 * (lane % 4) + i % 2;
        if (lane / 4 == 0) cell[at] = a, cell[2 * N + at] = b;
    }
}

/* Adds the warps' cells (warps, 2, 2 N) in a fixed order over the consumers with the same columns. Called by all
 * consumers, the block's last warpgroups, after a barrier; n: columns of the GEMM; partial: (parts, 2, n). */
template <int CONSUMERS, int N>
__device__ void add_warp_sums(float *partial, const float *cells, const block_tiles &w, int64_t n, int across)
{
    int thread = threadIdx.x + CONSUMERS * 128 - blockDim.x, consumer = thread / 128, width = 2 * N,
        column = w.first_column + consumer * width;
    for (int i = thread % 128; i < 2 * width && consumer < across; i += 128) {
        int which = i / width, at = i % width;
        float sum = 0.0f;
        for (int u = consumer; u < CONSUMERS; u += across)
            for (int v = 4 * u; v < 4 * u + 4; v++) sum += cells[(2 * v + which) * width + at];
        if (column + at < n) partial[((int64_t)w.part * 2 + which) * n + column + at] = sum;
    }
}

/* An epilogue processes four matrices per call. f: the result; in: boxes of the inputs, one after the other; out: the
 * box of the output; row: the lane's offset in a box; vector: one value per column; k: which 16 of the consumer's
 * columns; counts: whether the lane's rows exist. */
template <int N>
struct stats_epilogue {
    static constexpr int inputs = 0;
    static constexpr bool tiled = false;
    column_sums<N> total;
    __device__ __forceinline__ void begin(const image_tiles &) { total.clear(); }
    __device__ __forceinline__ void take(float (&f)[8], const char *, char *out, int row, const float *vector, int k,
                                         const bool (&counts)[2])
    {
        uint32_t v[4];
        float pivot[8];
        columns(pivot, vector, k);
        join(v, f);
        stmatrix(shared_address(out + row), v[0], v[1], v[2], v[3]);
        split(f, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float d = counts[i / 2 % 2] ? f[i] - pivot[i] : 0.0f;
            total.add(k, i, d, d, d);
        }
    }
};

/* SPREAD: other is the gradient of a 2 x 2 average pool: each of its rows adds a quarter to four rows. */
template <int N, bool SPREAD>
struct reducing_epilogue {
    static constexpr int inputs = 3; /* x, other, mask: 0 past the last row */
    static constexpr bool tiled = SPREAD;
    column_sums<N> total;
    int pooled; /* the row of other for the lane's matrix row */
    __device__ __forceinline__ void begin(const image_tiles &l)
    {
        int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 16;
        total.clear();
        pooled = SPREAD ? pooled_row(l, row < l.rows ? row : 0) : 0;
    }
    __device__ __forceinline__ int other_row(int row, int k) const
    {
        return SPREAD ? chunk_offset(pooled, 2 * (k % 4) + threadIdx.x % 32 / 16) : row;
    }
    __device__ __forceinline__ void take(float (&f)[8], const char *in, char *out, int row, const float *vector, int k,
                                         const bool (&)[2])
    {
        uint32_t v[4];
        float mean[8], q[8];
        join(v, f); /* rounded, as by a separate GEMM */
        split(f, v);
        ldmatrix(v, shared_address(in + BOX + other_row(row, k)));
        split(q, v);
#pragma unroll
        for (int i = 0; i < 8; i++) f[i] = SPREAD ? fmaf(0.25f, q[i], f[i]) : f[i] + q[i];
        ldmatrix(v, shared_address(in + 2 * BOX + row));
        split(q, v);
#pragma unroll
        for (int i = 0; i < 8; i++) f[i] = q[i] > 0.0f ? f[i] : 0.0f;
        join(v, f);
        stmatrix(shared_address(out + row), v[0], v[1], v[2], v[3]);
        columns(mean, vector, k);
        ldmatrix(v, shared_address(in + row));
        split(q, v);
#pragma unroll
        for (int i = 0; i < 8; i++) total.add(k, i, f[i], f[i], q[i] - mean[i]);
    }
};

template <int N>
using reduce_epilogue = reducing_epilogue<N, false>;
template <int N>
using spread_epilogue = reducing_epilogue<N, true>;

} // namespace

#endif
