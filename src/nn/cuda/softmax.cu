/* The softmax of the attention pool, between its matrix products: a warp per row. */
#include "nn/cuda/common.cuh"

enum { WARPS = 8 };

template <typename T>
static __global__ void softmax_kernel(float *p, T *half, int64_t rows, int tokens, int ld)
{
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (r >= rows) return;
    float *row = p + r * tokens, max = -INFINITY, sum = 0.0f;
    for (int j = threadIdx.x; j < tokens; j += 32) max = fmaxf(max, row[j]);
    max = warp_max(max);
    for (int j = threadIdx.x; j < tokens; j += 32) sum += expf(row[j] - max);
    sum = warp_sum(sum);
    for (int j = threadIdx.x; j < ld; j += 32) {
        float v = j < tokens ? expf(row[j] - max) / sum : 0.0f;
        if (j < tokens) row[j] = v;
        half[r * ld + j] = from_float<T>(v);
    }
}

template <typename T>
static __global__ void softmax_bwd_kernel(T *dz, T *half, const float *p, const float *dp, int64_t rows, int tokens,
                                          int ld)
{
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (r >= rows) return;
    float along = 0.0f;
    for (int j = threadIdx.x; j < tokens; j += 32) along += p[r * tokens + j] * dp[r * tokens + j];
    along = warp_sum(along);
    for (int j = threadIdx.x; j < ld; j += 32) {
        float v = j < tokens ? p[r * tokens + j] : 0.0f, d = j < tokens ? dp[r * tokens + j] : 0.0f;
        half[r * ld + j] = from_float<T>(v);
        dz[r * ld + j] = from_float<T>(v * (d - along));
    }
}

extern "C" cloob_status pool_softmax(const op_env *env, float *p, void *half, cloob_dtype dtype, int64_t rows,
                                     int64_t tokens, int64_t ld)
{
    unsigned blocks = (unsigned)((rows + WARPS - 1) / WARPS);
    WITH_TYPE(dtype, softmax_kernel<T>
              <<<blocks, dim3(32, WARPS), 0, stream_of(env)>>>(p, (T *)half, rows, (int)tokens, (int)ld));
    return cuda_launched(env->ctx, "pool_attention");
}

extern "C" cloob_status pool_softmax_bwd(const op_env *env, void *dz, void *half, cloob_dtype dtype, const float *p,
                                         const float *dp, int64_t rows, int64_t tokens, int64_t ld)
{
    unsigned blocks = (unsigned)((rows + WARPS - 1) / WARPS);
    WITH_TYPE(dtype, softmax_bwd_kernel<T>
              <<<blocks, dim3(32, WARPS), 0, stream_of(env)>>>((T *)dz, (T *)half, p, dp, rows, (int)tokens, (int)ld));
    return cuda_launched(env->ctx, "pool_attention_bwd");
}
