/* Kernels that the device layer itself needs: noise to time on, and copies in bf16. */
#include "tensor/bf16_copy.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/vendor.cuh"

__device__ static void put(float *p, float v) { *p = v; }
__device__ static void put(__nv_bfloat16 *p, float v) { *p = __float2bfloat16_rn(v); }

/* The four bytes of a hash of the index, added up: near enough to normal, with variance 1. */
__device__ static float noise_at(uint32_t i)
{
    uint32_t h = i * 2654435761u ^ 0x9e3779b9u;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u, h ^= h >> 16;
    uint32_t sum = (h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24);
    return ((float)sum - 510.0f) * (1.0f / 147.8f);
}

/* 16 bytes at a time. */
template <typename T>
static __global__ void noise_kernel(T *p, int64_t n)
{
    constexpr int EACH = 16 / (int)sizeof(T);
    int64_t step = (int64_t)gridDim.x * blockDim.x * EACH;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * EACH; i < n; i += step) {
        __align__(16) T v[EACH];
        for (int k = 0; k < EACH; k++) put(&v[k], noise_at((uint32_t)(i + k)));
        if (i + EACH <= n) *(uint4 *)(p + i) = *(const uint4 *)v;
        else
            for (int k = 0; i + k < n; k++) p[i + k] = v[k];
    }
}

extern "C" cloob_status cuda_fill_noise(cloob_ctx *ctx, cudaStream_t stream, void *p, cloob_dtype dtype, int64_t n)
{
    if (dtype == CLOOB_F32) noise_kernel<<<1024, 256, 0, stream>>>((float *)p, n);
    else noise_kernel<<<1024, 256, 0, stream>>>((__nv_bfloat16 *)p, n);
    return cuda_launched(ctx, "noise");
}

static __global__ void bf16_copy_kernel(__nv_bfloat16 *to, const float *from, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) put(&to[i], from[i]);
}

extern "C" cloob_status bf16_copy_cuda(cloob_ctx *ctx, device *d, uint16_t *to, const float *from, int64_t n)
{
    cudaStream_t stream = cuda_use(d)->stream;
    if (n > 0) bf16_copy_kernel<<<1024, 256, 0, stream>>>((__nv_bfloat16 *)to, from, n);
    return cuda_launched(ctx, "bf16 copies");
}

extern "C" bool cuda_has_code(void)
{
    cudaFuncAttributes a;
    bool there = cudaFuncGetAttributes(&a, noise_kernel<float>) == cudaSuccess;
    cudaGetLastError();
    return there;
}
