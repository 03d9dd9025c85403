/* What becomes of a GEMM's left factor while it lies in shared memory: one prologue per kind (prologue_gemm.h). A
 * thread has eight neighbouring channels of a row; three numbers for each channel lie in shared memory. */
#ifndef NN_CUDA_FUSED_PROLOGUES_CUH
#define NN_CUDA_FUSED_PROLOGUES_CUH

#include "nn/cuda/fused/walk.cuh"

namespace {

enum { CHANNEL_NUMBERS = 3 };

/* Of eight channels: mean, slope, bias of batch norm's apply; factors of other and of x and what is left, of its
 * backward pass. */
struct channel_numbers {
    float v[CHANNEL_NUMBERS][8];
    /* from: (CHANNEL_NUMBERS, stride), at the first of the channels */
    __device__ __forceinline__ void read(const float *from, int stride)
    {
#pragma unroll
        for (int i = 0; i < CHANNEL_NUMBERS; i++) load_floats<8>(v[i], from + i * stride);
    }
};

/* As bn_value of bn_common.cuh: the backward pass finds relu's mask by the same instructions. */
template <bool ADD>
struct apply_prologue {
    static constexpr int sources = ADD ? 2 : 1;
    static __device__ __forceinline__ void numbers(float (&out)[CHANNEL_NUMBERS], const prologue_gemm &j, int c)
    {
        out[0] = j.mean[c], out[1] = j.rstd[c] * j.gain[c], out[2] = j.bias[c];
    }
    static __device__ __forceinline__ float value(const channel_numbers &n, int i, float x, float other)
    {
        float y = fmaf(x - n.v[0][i], n.v[1][i], n.v[2][i]);
        return fmaxf(ADD ? y + other : y, 0.0f);
    }
};

/* Two factors and one number for the rest. */
struct both_prologue {
    static constexpr int sources = 2;
    static __device__ __forceinline__ void numbers(float (&out)[CHANNEL_NUMBERS], const prologue_gemm &j, int c)
    {
        float slope = j.rstd[c] * j.gain[c], slope2 = j.rstd2[c] * j.gain2[c];
        out[0] = slope2, out[1] = slope;
        out[2] = fmaf(-j.mean[c], slope, j.bias[c]) + fmaf(-j.mean2[c], slope2, j.bias2[c]);
    }
    static __device__ __forceinline__ float value(const channel_numbers &n, int i, float x, float other)
    {
        return fmaxf(fmaf(n.v[0][i], other, fmaf(n.v[1][i], x, n.v[2][i])), 0.0f);
    }
};

struct dx_prologue {
    static constexpr int sources = 2;
    static __device__ __forceinline__ void numbers(float (&out)[CHANNEL_NUMBERS], const prologue_gemm &j, int c)
    {
        float slope = j.rstd[c] * j.gain[c], m1 = j.sums[c] / j.count,
              m2 = j.sums[j.k + c] / j.count * j.rstd[c] * slope;
        out[0] = slope, out[1] = -m2, out[2] = j.mean[c] * m2 - slope * m1;
    }
    static __device__ __forceinline__ float value(const channel_numbers &n, int i, float x, float other)
    {
        return fmaf(n.v[0][i], other, fmaf(n.v[1][i], x, n.v[2][i]));
    }
};

/* The numbers of all channels, by the whole block: (CHANNEL_NUMBERS, count); 0 past the last. */
template <class P>
__device__ void write_channels(float *to, int count, const prologue_gemm &j)
{
    for (int c = threadIdx.x; c < count; c += THREADS) {
        float v[CHANNEL_NUMBERS] = {};
        if (c < j.k) P::numbers(v, j, c);
        for (int i = 0; i < CHANNEL_NUMBERS; i++) to[i * count + c] = v[i];
    }
}

/* Eight neighbours of a row, as 16 bytes. */
template <class P>
__device__ __forceinline__ uint4 transformed(const channel_numbers &n, const uint4 &x, const uint4 &other)
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

/* Every 16th of HEIGHT rows, in place of x. Four are read before the first is written: the compiler does not know that
 * what is written is not what is read next, and would wait for each. */
template <class P, int HEIGHT>
__device__ __forceinline__ void make_rows(char *to, const char *from, const channel_numbers &n)
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

/* A warpgroup's life: stages of x become the factor. ready: the factor is there. A stage that is written out as well
 * is given back by the leader when the copy engine has read it. */
template <class P, int HEIGHT>
__device__ void make_factor(ring x, ring other, const share &w, const float *channels, uint64_t *ready,
                            const CUtensorMap *side)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, first = thread / 8, before = -1;
    int offset = first * ROW + ((chunk ^ (first % 8)) << 4); /* swizzled by the row's last three bits */
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            channel_numbers n;
            n.read(channels + s * DEPTH + chunk * 8, w.depth * DEPTH);
            barrier_wait(&x.full[x.at], x.parity);
            if (P::sources == 2) barrier_wait(&other.full[other.at], other.parity);
            make_rows<P, HEIGHT>(x.here() + offset, other.here() + offset, n);
            shared_publish();
            makers_barrier();
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
