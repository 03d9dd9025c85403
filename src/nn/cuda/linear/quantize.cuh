/* Device side of quantize.h, for kernels that round what they write to 8 bits. */
#ifndef NN_CUDA_LINEAR_QUANTIZE_CUH
#define NN_CUDA_LINEAR_QUANTIZE_CUH

#include "nn/cuda/common.cuh"
#include "nn/cuda/linear/quantize.h"

/* A power of two, so that scaling does not round; nn/ref/linear.c has the same. */
__device__ __forceinline__ float scale_for(float max, quant_format format)
{
    float limit = format == QUANT_E4M3 ? 448.0f : 57344.0f;
    if (!(max > 0.0f)) return 1.0f;
    return exp2f(fminf(fmaxf(floorf(log2f(0.5f * limit / max)), -100.0f), 100.0f));
}

template <quant_format F>
__device__ __forceinline__ unsigned round_pair(float low, float high)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, F == QUANT_E4M3 ? __NV_E4M3 : __NV_E5M2);
}

/* Eight elements as they were written in bf16, to 8 bytes; *max takes the largest of them. */
template <quant_format F>
__device__ __forceinline__ uint2 round_pack(const pack<bf16, 8> &p, float scale, float *max)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = to_float(p.v[i]);
        *max = fmaxf(*max, fabsf(v[i]));
        v[i] *= scale;
    }
    return make_uint2(round_pair<F>(v[0], v[1]) | round_pair<F>(v[2], v[3]) << 16,
                      round_pair<F>(v[4], v[5]) | round_pair<F>(v[6], v[7]) << 16);
}

/* The block's largest |element| into the tensor's. Bits of floats that are not negative are ordered like them. All
 * threads of the block call it; the first of them has noted when it returns. */
__device__ __forceinline__ void note_largest(quant_scale *s, float max)
{
    __shared__ unsigned largest;
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread == 0) largest = 0;
    __syncthreads();
    unsigned lanes = __activemask(), most = __reduce_max_sync(lanes, __float_as_uint(max));
    if (thread % 32 == __ffs((int)lanes) - 1) atomicMax(&largest, most);
    __syncthreads();
    if (thread == 0) atomicMax(&s->current, largest);
}

/* By the thread that noted: the last of all blocks ends the step. An element that is not finite changes nothing. tail,
 * where given, takes the inverse scale along with the bytes. */
__device__ __forceinline__ void end_step(quant_scale *s, float scale, float *tail)
{
    if (threadIdx.x || threadIdx.y) return;
    __threadfence();
    if (atomicAdd(&s->blocks, 1) + 1 < gridDim.x * gridDim.y) return;
    float current = __uint_as_float(atomicExch(&s->current, 0));
    s->inverse = 1.0f / scale;
    if (tail) *tail = 1.0f / scale;
    if (isfinite(current)) s->max = fmaxf(current, 0.95f * s->max);
    s->blocks = 0;
}

/* Where a kernel's 8-bit copy goes. */
typedef struct round_out {
    uint8_t *to;
    quant_scale *scale;
    float *tail;
} round_out;

static inline round_out round_out_of(const op_args *a)
{
    const tensor *to = &a->out[OP_ROUNDED_OUT];
    uint8_t *bytes = (uint8_t *)to->data;
    if (!bytes) return {};
    return { bytes, ((rounding *)a->state)->scale, (float *)(bytes + tensor_count(to) - OP_ROUNDED_TAIL) };
}

#endif
