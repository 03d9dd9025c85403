/* The attention pool's softmax between its GEMMs, a warp per row; and, for packed sequences, which a batched GEMM
 * cannot read, plain kernels instead of the GEMMs. All sums have a fixed order. */
#include "nn/cuda/attnpool.h"
#include "nn/cuda/common.cuh"

enum { WARPS = 8, THREADS = 256 };

/* Tokens that the query of sequence n sees. */
static __device__ __forceinline__ int tokens_of(const pool_seen &s, int64_t n)
{
    if (s.start) return s.start[n + 1] - s.start[n];
    return s.index ? min(s.index[n] + 1, (int)s.T) : (int)s.T;
}

template <typename T>
static __global__ void softmax_kernel(float *p, T *half, pool_seen s, int64_t rows, int ld)
{
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (r >= rows) return;
    int seen = tokens_of(s, r / s.H);
    float *row = p + r * s.T, max = -INFINITY, sum = 0.0f;
    for (int j = threadIdx.x; j < seen; j += 32) max = fmaxf(max, row[j]);
    max = warp_max(max);
    for (int j = threadIdx.x; j < seen; j += 32) sum += expf(row[j] - max);
    sum = warp_sum(sum);
    for (int j = threadIdx.x; j < ld; j += 32) {
        float v = j < seen ? expf(row[j] - max) / sum : 0.0f;
        if (j < s.T) row[j] = v;
        half[r * ld + j] = from_float<T>(v);
    }
}

template <typename T>
static __global__ void softmax_bwd_kernel(T *dz, T *half, const float *p, const float *dp, pool_seen s, int64_t rows,
                                          int ld)
{
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (r >= rows) return;
    int seen = tokens_of(s, r / s.H);
    float along = 0.0f;
    for (int j = threadIdx.x; j < seen; j += 32) along += p[r * s.T + j] * dp[r * s.T + j];
    along = warp_sum(along);
    for (int j = threadIdx.x; j < ld; j += 32) {
        float v = j < seen ? p[r * s.T + j] : 0.0f, d = j < seen ? dp[r * s.T + j] : 0.0f;
        half[r * ld + j] = from_float<T>(v);
        dz[r * ld + j] = from_float<T>(v * (d - along));
    }
}

/* ---- packed ---------------------------------------------------------------------------------------- */

/* A warp per score. */
template <typename T>
static __global__ void score_kernel(float *score, const T *a, const T *t, pool_seen s, int64_t scores, int C)
{
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (i >= scores) return;
    int64_t row = i / s.T, j = i % s.T, n = row / s.H;
    if (j >= tokens_of(s, n)) return;
    const T *x = a + row * C, *y = t + (s.start[n] + j) * C;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < C; c += 32) sum += to_float(x[c]) * to_float(y[c]);
    sum = warp_sum(sum);
    if (threadIdx.x == 0) score[i] = sum;
}

/* A thread per element of the result. */
template <typename T>
static __global__ void mix_kernel(T *y, const T *p, const T *t, pool_seen s, int64_t elements, int C, int ld)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= elements) return;
    int64_t row = i / C, n = row / s.H;
    const T *x = t + (int64_t)s.start[n] * C + i % C;
    float sum = 0.0f;
    for (int j = 0, seen = tokens_of(s, n); j < seen; j++)
        sum += to_float(p[row * ld + j]) * to_float(x[(int64_t)j * C]);
    y[i] = from_float<T>(sum);
}

template <typename T>
static __global__ void back_kernel(T *dt, const T *p, const T *ds, const T *dz, const T *u, pool_seen s,
                                   int64_t elements, int C, int ld)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= elements) return;
    int64_t c = i % C, j = i / C % s.T, n = i / C / s.T;
    if (j >= tokens_of(s, n)) return;
    float sum = 0.0f;
    for (int64_t row = n * s.H; row < (n + 1) * s.H; row++)
        sum += to_float(p[row * ld + j]) * to_float(ds[row * C + c]) +
               to_float(dz[row * ld + j]) * to_float(u[row * C + c]);
    dt[(s.start[n] + j) * C + c] = from_float<T>(sum);
}

/* ---- entry points ---------------------------------------------------------------------------------- */

static unsigned blocks_of(int64_t items, int each) { return (unsigned)((items + each - 1) / each); }

extern "C" cloob_status pool_softmax(const op_env *env, float *p, void *half, cloob_dtype dtype, const pool_seen *seen,
                                     int64_t N, int64_t ld)
{
    int64_t rows = N * seen->H;
    WITH_TYPE(dtype, softmax_kernel<T>
              <<<blocks_of(rows, WARPS), dim3(32, WARPS), 0, stream_of(env)>>>(p, (T *)half, *seen, rows, (int)ld));
    return cuda_launched(env->ctx, "pool_attention");
}

extern "C" cloob_status pool_softmax_bwd(const op_env *env, void *dz, void *half, cloob_dtype dtype, const float *p,
                                         const float *dp, const pool_seen *seen, int64_t N, int64_t ld)
{
    int64_t rows = N * seen->H;
    WITH_TYPE(dtype, softmax_bwd_kernel<T>
              <<<blocks_of(rows, WARPS), dim3(32, WARPS), 0, stream_of(env)>>>((T *)dz, (T *)half, p, dp, *seen, rows,
                                                                               (int)ld));
    return cuda_launched(env->ctx, "pool_attention_bwd");
}

extern "C" cloob_status pool_packed_score(const op_env *env, float *score, const void *a, const tensor *t,
                                          const pool_seen *seen, int64_t N)
{
    int64_t scores = N * seen->H * seen->T;
    WITH_TYPE(t->dtype, score_kernel<T><<<blocks_of(scores, WARPS), dim3(32, WARPS), 0, stream_of(env)>>>(
                            score, (const T *)a, (const T *)t->data, *seen, scores, (int)tensor_cols(t)));
    return cuda_launched(env->ctx, "pool_attention");
}

extern "C" cloob_status pool_packed_mix(const op_env *env, void *y, const void *p, const tensor *t,
                                        const pool_seen *seen, int64_t N, int64_t ld)
{
    int64_t elements = N * seen->H * tensor_cols(t);
    WITH_TYPE(t->dtype, mix_kernel<T><<<blocks_of(elements, THREADS), THREADS, 0, stream_of(env)>>>(
                            (T *)y, (const T *)p, (const T *)t->data, *seen, elements, (int)tensor_cols(t), (int)ld));
    return cuda_launched(env->ctx, "pool_attention");
}

extern "C" cloob_status pool_packed_back(const op_env *env, const tensor *dt, const void *p, const void *ds,
                                         const void *dz, const void *u, const pool_seen *seen, int64_t N, int64_t ld)
{
    int64_t elements = N * seen->T * tensor_cols(dt);
    WITH_TYPE(dt->dtype, back_kernel<T>
              <<<blocks_of(elements, THREADS), THREADS, 0, stream_of(env)>>>((T *)dt->data, (const T *)p, (const T *)ds,
                                                                             (const T *)dz, (const T *)u, *seen,
                                                                             elements, (int)tensor_cols(dt), (int)ld));
    return cuda_launched(env->ctx, "pool_attention_bwd");
}
