/* Kernels the device layer itself needs: a matrix product for what cuBLASLt declines, noise to time on, copies in bf16.
 */
#include "tensor/bf16_copy.h"
#include "tensor/cuda/gemm.h"
#include "tensor/cuda/vendor.cuh"

enum { TILE = 16 };

__device__ static float to_float(float v) { return v; }
__device__ static float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ static void put(float *p, float v) { *p = v; }
__device__ static void put(__nv_bfloat16 *p, float v) { *p = __float2bfloat16_rn(v); }

/* One output per thread, 16 x 16 tiles through shared memory; blockIdx.z is the product of the batch. */
template <typename I, typename O>
static __global__ void product_kernel(gemm_shape g, O *D, const I *A, const I *B, const O *C, const O *bias, int relu)
{
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    int x = threadIdx.x, y = threadIdx.y;
    int64_t row = (int64_t)blockIdx.y * TILE + y, col = (int64_t)blockIdx.x * TILE + x;
    float sum = 0.0f;
    A += blockIdx.z * g.step_a;
    B += blockIdx.z * g.step_b;
    for (int64_t k0 = 0; k0 < g.k; k0 += TILE) {
        int64_t ka = k0 + x, kb = k0 + y;
        a[y][x] = row < g.m && ka < g.k ? to_float(A[g.ta ? ka * g.lda + row : row * g.lda + ka]) : 0.0f;
        b[y][x] = col < g.n && kb < g.k ? to_float(B[g.tb ? col * g.ldb + kb : kb * g.ldb + col]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += a[y][i] * b[i][x];
        __syncthreads();
    }
    if (row >= g.m || col >= g.n) return;
    int64_t at = blockIdx.z * g.step_d + row * g.ldd + col;
    float v = g.alpha * sum + (C ? to_float(C[at]) : 0.0f) + (bias ? to_float(bias[col]) : 0.0f);
    put(&D[at], relu ? fmaxf(v, 0.0f) : v);
}

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

template <typename I, typename O>
static void product(const gemm_shape *g, cudaStream_t stream, void *D, const void *A, const void *B, const void *C,
                    const void *bias)
{
    dim3 grid((unsigned)((g->n + TILE - 1) / TILE), (unsigned)((g->m + TILE - 1) / TILE),
              (unsigned)(g->batch ? g->batch : 1));
    int relu = g->extra == GEMM_RELU || g->extra == GEMM_BIAS_RELU;
    product_kernel<I, O><<<grid, dim3(TILE, TILE), 0, stream>>>(*g, (O *)D, (const I *)A, (const I *)B, (const O *)C,
                                                                (const O *)bias, relu);
}

extern "C" cloob_status gemm_plain(cloob_ctx *ctx, const gemm_shape *g, cudaStream_t stream, void *D, const void *A,
                                   const void *B, const void *C, const void *bias)
{
    if ((g->m + TILE - 1) / TILE > 65535)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "matrix product: %lld rows are too many for the plain kernel",
                        (long long)g->m);
    if (g->in == CLOOB_F32) product<float, float>(g, stream, D, A, B, C, bias);
    else if (g->out == CLOOB_F32) product<__nv_bfloat16, float>(g, stream, D, A, B, C, bias);
    else product<__nv_bfloat16, __nv_bfloat16>(g, stream, D, A, B, C, bias);
    return cuda_launched(ctx, "matrix product");
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
