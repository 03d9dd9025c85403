/* SigLIP's sigmoid loss of a tile of scores: a block a row. */
#include "loss/cuda/kernels.h"
#include "tensor/cuda/vendor.cuh"

static __device__ __forceinline__ void put(float *to, float v) { *to = v; }
static __device__ __forceinline__ void put(__nv_bfloat16 *to, float v) { *to = __float2bfloat16_rn(v); }

/* The block's sum in every thread of the first warp, always in the same order. */
static __device__ double block_sum(double v, double *shared)
{
    for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(0xffffffffu, v, k);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (unsigned k = 0; k < blockDim.x / 32; k++) v += shared[k];
    return v;
}

template <typename T>
static __global__ void __launch_bounds__(256)
    sigmoid_kernel(T *dk, const float *s, double *value, double *along, double *sum, int64_t n, int64_t own, float bias,
                   double share)
{
    __shared__ double shared[8];
    int64_t row = blockIdx.x, positive = own + row;
    double v = 0, a = 0, b = 0;
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
        float score = s[row * n + c], k = score + bias, z = c == positive ? -k : k, e = expf(-fabsf(z));
        float slope = (z > 0 ? 1.0f : e) / (1.0f + e); /* sigmoid(z) */
        double g = (double)(c == positive ? -slope : slope) * share;
        v += (double)(fmaxf(z, 0.0f) + log1pf(e));
        a += g * (double)score;
        b += g;
        put(&dk[row * n + c], (float)g);
    }
    v = block_sum(v, shared), a = block_sum(a, shared), b = block_sum(b, shared);
    if (threadIdx.x == 0) value[row] += v, along[row] += a, sum[row] += b;
}

extern "C" cudaError_t k_sigmoid(cudaStream_t stream, cloob_dtype T, void *dk, const float *s, double *value,
                                 double *along, double *sum, int64_t m, int64_t n, int64_t own, float bias,
                                 double share)
{
    if (T == CLOOB_BF16)
        sigmoid_kernel<<<(unsigned)m, 256, 0, stream>>>((__nv_bfloat16 *)dk, s, value, along, sum, n, own, bias, share);
    else sigmoid_kernel<<<(unsigned)m, 256, 0, stream>>>((float *)dk, s, value, along, sum, n, own, bias, share);
    return cudaGetLastError();
}
