/* What becomes of a GEMM's left factor while it lies in shared memory: one prologue per kind (prologue_gemm.h). A
 * thread has eight neighbouring channels of a row; three numbers for each channel lie in shared memory. */
#ifndef NN_CUDA_FUSED_PROLOGUES_CUH
#define NN_CUDA_FUSED_PROLOGUES_CUH

#include "nn/cuda/fused/prologue_gemm.h"
#include "nn/cuda/mma.cuh"
#include "tensor/cuda/ring.cuh"

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

} // namespace

#endif
