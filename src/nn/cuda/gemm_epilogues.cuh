/* What becomes of a fused GEMM's results while they are in registers: one epilogue per kind (fused_gemm_kernels.h), how
 * 8 x 8 matrices travel between registers and boxes of 64 x 64 in shared memory, and how blocks share out tiles and
 * send boxes. */
#ifndef NN_CUDA_GEMM_EPILOGUES_CUH
#define NN_CUDA_GEMM_EPILOGUES_CUH

#include "nn/cuda/fused_gemm_kernels.h"
#include "nn/cuda/mma.cuh"
#include "tensor/cuda/ring.cuh"

namespace {

enum { BOX = 64 * DEPTH * 2 }; /* bytes of a box, as wide as a stage is deep */

/* What a block works on: columns from `strip` on; tiles of `height` rows, every parts-th from `part` on. */
struct share {
    int strip, width, part, parts, depth, tiles, height;
};

/* Teams are warpgroups; named barrier 1 and so on is theirs. */
__device__ __forceinline__ void team_barrier(int team) { asm volatile("bar.sync %0, 128;" ::"r"(team + 1) : "memory"); }
__device__ __forceinline__ bool is_leader() { return threadIdx.x % 128 == 0; }

/* Until the copy engine has read all results handed to it; known to the leader alone, to the others after the next
 * barrier. */
__device__ __forceinline__ void wait_sent()
{
    if (is_leader()) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Results of one box: handed to the copy engine once the whole team has written them. */
__device__ __forceinline__ void store_box(const CUtensorMap *map, const char *from, int column, int row)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(row)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* The same where rows are positions of images. */
__device__ __forceinline__ void store_tile(const CUtensorMap *map, const char *from, int column, int x, int line)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(x), "r"(line)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Four 8 x 8 matrices of a box: rows 16 w + 0..7 and 8..15 of columns 16 k .. 16 k + 7, then of 16 k + 8 ..
 * 16 k + 15. A lane names a row of one of them, and has in v[i] two neighbours of row lane / 4, columns 2
 * (lane % 4) of matrix i. */
__device__ __forceinline__ int matrix_row(int k)
{
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 8 + 8 * (lane / 8 % 2),
        chunk = 2 * k + lane / 16;
    return row * (DEPTH * 2) + ((chunk ^ (lane % 8)) << 4); /* swizzled by the row's last three bits */
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

/* Tiles of rows that are positions of images, for which an input is behind a 2 x 2 pool: so many positions of a line
 * and so many lines, both even. */
struct image_tiles {
    int rows; /* of a tile: all its positions, at most 64 */
    int width, height;
    int beside; /* tiles of a line; 0: rows are rows, 64 a tile */
};

/* Of a tile's row, the place among its rows behind the pool. */
__device__ __forceinline__ int pooled_place(const image_tiles &l, int row)
{
    return row / (2 * l.width) * (l.width / 2) + row % l.width / 2;
}

/* 16 bytes of a box's row. */
__device__ __forceinline__ int chunk_place(int row, int chunk)
{
    return row * (DEPTH * 2) + ((chunk ^ (row % 8)) << 4);
}

/* A box behind the pool: the averages of four rows each, by a warpgroup. */
__device__ __forceinline__ void pool_box(char *to, const char *from, const image_tiles &l)
{
    int thread = threadIdx.x % 128, place = thread / 8, half = l.width / 2;
    if (4 * place >= l.rows) return;
    int row = place / half * 2 * l.width + place % half * 2;
    uint32_t v[4][4], out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 q = *reinterpret_cast<const uint4 *>(from + chunk_place(row + i / 2 * l.width + i % 2, thread % 8));
        v[i][0] = q.x, v[i][1] = q.y, v[i][2] = q.z, v[i][3] = q.w;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 a = unpack_pair(v[0][k]), b = unpack_pair(v[1][k]), c = unpack_pair(v[2][k]), d = unpack_pair(v[3][k]);
        out[k] = pack_pair(0.25f * (a.x + b.x + c.x + d.x), 0.25f * (a.y + b.y + c.y + d.y));
    }
    *reinterpret_cast<uint4 *>(to + chunk_place(place, thread % 8)) = make_uint4(out[0], out[1], out[2], out[3]);
}

/* The numbers of a lane's four columns, in the order of `split`: both rows of a matrix pair have the same. */
__device__ __forceinline__ void columns(float (&out)[8], const float *vector, int k)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float2 f = *reinterpret_cast<const float2 *>(vector + 16 * k + 8 * i + 2 * (threadIdx.x % 4));
        out[4 * i] = out[4 * i + 2] = f.x, out[4 * i + 1] = out[4 * i + 3] = f.y;
    }
}

/* Two sums per column over the rows a thread has seen; columns 16 k + 8 i + 2 (lane % 4) + e at 4 k + 2 i +
 * e. */
template <int N>
struct column_sums {
    float s1[N / 2], s2[N / 2]; /* N accumulators are two rows */
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

/* An epilogue takes four matrices at a time: f, the result; in: boxes, one tensor after the other; out: the
 * result's box; row: a lane's in them; vector: the team's column numbers; k: which 16 of its columns; counts:
 * whether rows (of the first and second half) are there. */
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

/* SPREAD: other is behind a 2 x 2 pool, and each of its rows is a fourth of what four rows get. */
template <int N, bool SPREAD>
struct reducing_epilogue {
    static constexpr int inputs = 3; /* x, other, mask: zeros past the last row */
    static constexpr bool tiled = SPREAD;
    column_sums<N> total;
    int pooled; /* the row of other that belongs to the lane's matrix row */
    __device__ __forceinline__ void begin(const image_tiles &l)
    {
        int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 16;
        total.clear();
        pooled = SPREAD ? pooled_place(l, row < l.rows ? row : 0) : 0;
    }
    __device__ __forceinline__ int other_row(int row, int k) const
    {
        return SPREAD ? chunk_place(pooled, 2 * (k % 4) + threadIdx.x % 32 / 16) : row;
    }
    __device__ __forceinline__ void take(float (&f)[8], const char *in, char *out, int row, const float *vector, int k,
                                         const bool (&)[2])
    {
        uint32_t v[4];
        float mean[8], q[8];
        join(v, f); /* rounded, as a GEMM on its own would */
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
