/* Bulk copies of stages to shared memory, and prologues (prologue_gemm.h): transformations of operand a there. A thread
 * transforms eight neighbouring channels of a row with three coefficients per channel, which are in shared memory. */
#ifndef NN_CUDA_FUSED_PROLOGUES_CUH
#define NN_CUDA_FUSED_PROLOGUES_CUH

#include "nn/cuda/fused/prologue_gemm.h"
#include "nn/cuda/gemm_epilogues.cuh"

namespace {

enum {
    ROWS = 64, /* per consumer warpgroup */
    CONSUMERS = 2,
    MAX_STAGES = 8,
    B_STAGES = 2,
    THREADS = 256 + CONSUMERS * 128,
    SHARED_BYTES = 224 << 10, /* dynamic, in addition to what the kernel declares */
    ROW = DEPTH * 2           /* bytes of a row in a stage */
};

struct maps {
    CUtensorMap x, other, b, side, out;
};

/* Of dynamic shared memory, in this order: b, stages of x, stages of other, output buffers, coefficients, sums. */
struct layout {
    int across;      /* consumers that split the columns; the others split the rows */
    bool b_resident; /* all of b is loaded once, instead of in stages */
    int x_stages, other_stages, b_stages, out_buffers;
};

/* ---- copying ------------------------------------------------------------------------------------- */

__device__ void copy_rows(ring r, const block_tiles &w, const CUtensorMap *map)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            r.begin_fill();
            copy_box(r.here(), map, s * DEPTH, tile * w.height, &r.full[r.at]);
            r.next();
        }
}

/* Rows of b per bulk copy: a box has at most 256. */
__host__ __device__ inline int b_box(int width) { return width > 256 ? width / 2 : width; }

__device__ void copy_b(ring r, const block_tiles &w, const CUtensorMap *map, bool b_resident)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        for (int s = 0; s < w.depth; s++) {
            if (b_resident) barrier_expect(&r.full[0], r.bytes);
            else r.begin_fill();
            char *to = b_resident ? r.stage + s * r.bytes : r.here();
            for (int y = 0; y < w.width; y += b_box(w.width))
                copy_box(to + y * ROW, map, s * DEPTH, w.first_column + y, &r.full[b_resident ? 0 : r.at]);
            if (!b_resident) r.next();
        }
        if (b_resident) return;
    }
}

/* ---- barriers ------------------------------------------------------------------------------------ */

/* Named barriers: 1 and 2 for each consumer, 14 for the transforming warpgroup, 15 for all consumers. */
__device__ __forceinline__ void transform_barrier() { asm volatile("bar.sync 14, 128;" ::: "memory"); }
__device__ __forceinline__ void consumers_barrier() { asm volatile("bar.sync 15, 256;" ::: "memory"); }

/* ---- transforming --------------------------------------------------------------------------------- */

enum { CHANNEL_COEFFICIENTS = 3 };

/* Coefficients of eight channels. Apply: mean, slope, bias. Backward apply: the factors of other and of x, and a
 * constant. */
struct channel_coefficients {
    float v[CHANNEL_COEFFICIENTS][8];
    /* from: (CHANNEL_COEFFICIENTS, stride), at the first channel */
    __device__ __forceinline__ void read(const float *from, int stride)
    {
#pragma unroll
        for (int i = 0; i < CHANNEL_COEFFICIENTS; i++) load_floats<8>(v[i], from + i * stride);
    }
};

/* The same instructions as bn_value of bn_common.cuh, so that the backward pass computes the same ReLU mask. */
template <bool ADD>
struct apply_prologue {
    static constexpr int sources = ADD ? 2 : 1;
    static __device__ __forceinline__ void coefficients(float (&out)[CHANNEL_COEFFICIENTS], const prologue_gemm &j,
                                                        int c)
    {
        out[0] = j.mean[c], out[1] = j.rstd[c] * j.gain[c], out[2] = j.bias[c];
    }
    static __device__ __forceinline__ float value(const channel_coefficients &n, int i, float x, float other)
    {
        float y = fmaf(x - n.v[0][i], n.v[1][i], n.v[2][i]);
        return fmaxf(ADD ? y + other : y, 0.0f);
    }
};

/* Two batch norms, added: two factors and one constant. */
struct both_prologue {
    static constexpr int sources = 2;
    static __device__ __forceinline__ void coefficients(float (&out)[CHANNEL_COEFFICIENTS], const prologue_gemm &j,
                                                        int c)
    {
        float slope = j.rstd[c] * j.gain[c], slope2 = j.rstd2[c] * j.gain2[c];
        out[0] = slope2, out[1] = slope;
        out[2] = fmaf(-j.mean[c], slope, j.bias[c]) + fmaf(-j.mean2[c], slope2, j.bias2[c]);
    }
    static __device__ __forceinline__ float value(const channel_coefficients &n, int i, float x, float other)
    {
        return fmaxf(fmaf(n.v[0][i], other, fmaf(n.v[1][i], x, n.v[2][i])), 0.0f);
    }
};

struct dx_prologue {
    static constexpr int sources = 2;
    static __device__ __forceinline__ void coefficients(float (&out)[CHANNEL_COEFFICIENTS], const prologue_gemm &j,
                                                        int c)
    {
        float slope = j.rstd[c] * j.gain[c], m1 = j.sums[c] / j.count,
              m2 = j.sums[j.k + c] / j.count * j.rstd[c] * slope;
        out[0] = slope, out[1] = -m2, out[2] = j.mean[c] * m2 - slope * m1;
    }
    static __device__ __forceinline__ float value(const channel_coefficients &n, int i, float x, float other)
    {
        return fmaf(n.v[0][i], other, fmaf(n.v[1][i], x, n.v[2][i]));
    }
};

/* Writes the coefficients of all channels: (CHANNEL_COEFFICIENTS, count), 0 past the last channel. Called by the whole
 * block. */
template <class P>
__device__ void write_channels(float *to, int count, const prologue_gemm &j)
{
    for (int c = threadIdx.x; c < count; c += THREADS) {
        float v[CHANNEL_COEFFICIENTS] = {};
        if (c < j.k) P::coefficients(v, j, c);
        for (int i = 0; i < CHANNEL_COEFFICIENTS; i++) to[i * count + c] = v[i];
    }
}

/* Eight neighbouring channels of a row: 16 bytes. */
template <class P>
__device__ __forceinline__ uint4 transformed(const channel_coefficients &n, const uint4 &x, const uint4 &other)
{
    const uint32_t *p = &x.x, *q = &other.x;
    uint4 out;
    uint32_t *o = &out.x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 a = unpack_pair(p[i]), b = P::sources == 2 ? unpack_pair(q[i]) : make_float2(0.0f, 0.0f);
        o[i] = pack_pair(P::value(n, 2 * i, a.x, b.x), P::value(n, 2 * i + 1, a.y, b.y));
    }
    return out;
}

/* Transforms every 16th of HEIGHT rows of x in place. Four rows are read before the first is written: the compiler
 * cannot prove that reads and writes do not overlap, and would serialise them. */
template <class P, int HEIGHT>
__device__ __forceinline__ void transform_rows(char *to, const char *from, const channel_coefficients &n)
{
    constexpr int BATCH = 4;
#pragma unroll
    for (int row = 0; row < HEIGHT; row += 16 * BATCH) {
        uint4 a[BATCH], b[BATCH] = {};
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            a[i] = *reinterpret_cast<const uint4 *>(to + (row + 16 * i) * ROW);
            if (P::sources == 2) b[i] = *reinterpret_cast<const uint4 *>(from + (row + 16 * i) * ROW);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            *reinterpret_cast<uint4 *>(to + (row + 16 * i) * ROW) = transformed<P>(n, a[i], b[i]);
    }
}

/* Main loop of the transforming warpgroup: turns stages of x into stages of a and signals `ready`. If a is also stored
 * (side), the leader releases a stage after its store has read it. */
template <class P, int HEIGHT>
__device__ void transform_stages(ring x, ring other, const block_tiles &w, const float *channels, uint64_t *ready,
                                 const CUtensorMap *side)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, first = thread / 8, before = -1;
    int offset = first * ROW + ((chunk ^ (first % 8)) << 4); /* swizzled by the low three bits of the row */
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            channel_coefficients n;
            n.read(channels + s * DEPTH + chunk * 8, w.depth * DEPTH);
            barrier_wait(&x.full[x.at], x.parity);
            if (P::sources == 2) barrier_wait(&other.full[other.at], other.parity);
            transform_rows<P, HEIGHT>(x.here() + offset, other.here() + offset, n);
            shared_publish();
            transform_barrier();
            if (thread == 0) {
                barrier_arrive(&ready[x.at]);
                if (P::sources == 2) barrier_arrive(&other.empty[other.at]);
                if (side) {
                    store_box(side, x.here(), s * DEPTH, tile * w.height);
                    if (before >= 0) {
                        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                        barrier_arrive(&x.empty[before]);
                    }
                    before = x.at;
                }
            }
            x.next();
            if (P::sources == 2) other.next();
        }
    if (thread == 0 && side) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

} // namespace

#endif
