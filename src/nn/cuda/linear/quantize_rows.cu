/* bf16 rows rounded to e4m3, each with its own scale. */
#include "nn/cuda/common.cuh"
#include "nn/cuda/linear/fp8_gemm.h"

enum { WARPS = 8 };

/* Called by a warp, which reads the row twice: for its largest element, and to round it (from the cache). */
static __device__ __forceinline__ float row_largest(const bf16 *x, int64_t k)
{
    float max = 0.0f;
    for (int64_t i = threadIdx.x * 8; i < k; i += 32 * 8) {
        pack<bf16, 8> p = load<bf16, 8>(x + i);
#pragma unroll
        for (int j = 0; j < 8; j++) max = fmaxf(max, fabsf(to_float(p.v[j])));
    }
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(max)));
}

static __device__ __forceinline__ unsigned round_pair(float low, float high)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

static __device__ __forceinline__ uint2 round_pack(const pack<bf16, 8> &p, float scale)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = to_float(p.v[i]) * scale;
    return make_uint2(round_pair(v[0], v[1]) | round_pair(v[2], v[3]) << 16,
                      round_pair(v[4], v[5]) | round_pair(v[6], v[7]) << 16);
}

static __global__ void __launch_bounds__(32 * WARPS)
    rows_kernel(uint8_t *to, float *inverse, const bf16 *from, int64_t rows, int64_t k)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (row >= rows) return;
    const bf16 *x = from + row * k;
    float max = row_largest(x, k), scale = max > 0.0f ? 448.0f / max : 1.0f; /* 448: the largest number of e4m3 */
    for (int64_t i = threadIdx.x * 8; i < k; i += 32 * 8)
        *reinterpret_cast<uint2 *>(to + row * k + i) = round_pack(load<bf16, 8>(x + i), scale);
    if (threadIdx.x == 0) inverse[row] = max > 0.0f ? max / 448.0f : 1.0f;
}

extern "C" cloob_status quantize_rows_cuda(const op_env *env, void *to, float *inverse, const void *from, int64_t rows,
                                           int64_t k)
{
    if (rows == 0) return CLOOB_OK;
    rows_kernel<<<(unsigned)((rows + WARPS - 1) / WARPS), dim3(32, WARPS), 0, stream_of(env)>>>((uint8_t *)to, inverse,
                                                                                                (const bf16 *)from,
                                                                                                rows, k);
    return cuda_launched(env->ctx, "linear");
}
