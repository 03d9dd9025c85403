/* One block per row, or a thread takes four elements of a tile. Sums over a row are made in a fixed order. */
#include <math.h>

#include "loss/cuda/kernels.h"
#include "tensor/cuda/vendor.cuh"

namespace {

typedef __nv_bfloat16 bf16;
enum { BLOCK = 256, WARPS = BLOCK / 32 };

__device__ float widen(float v) { return v; }
__device__ float widen(bf16 v) { return __bfloat162float(v); }
__device__ void put(float *p, float v) { *p = v; }
__device__ void put(bf16 *p, float v) { *p = __float2bfloat16(v); }

/* The accurate exponential for f32, the hardware's where bf16 rounds the result anyway. */
template <typename T>
__device__ float exp_as(float x);
template <>
__device__ float exp_as<float>(float x)
{
    return expf(x);
}
template <>
__device__ float exp_as<bf16>(float x)
{
    return __expf(x);
}

struct add_op {
    template <typename V>
    __device__ V operator()(V a, V b) const
    {
        return a + b;
    }
};
struct max_op {
    __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

/* Every thread gets the result. */
template <typename V, typename Op>
__device__ V block_reduce(V v, Op op)
{
    __shared__ V part[WARPS];
    for (int k = 16; k > 0; k /= 2) v = op(v, __shfl_xor_sync(~0u, v, k));
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < WARPS; w++) v = op(v, part[w]);
    return v;
}

template <typename V>
__device__ V block_sum(V v)
{
    return block_reduce(v, add_op());
}

template <typename A, typename B>
__device__ double row_dot(const A *a, const B *b, int64_t d)
{
    double sum = 0;
    for (int64_t k = threadIdx.x; k < d; k += BLOCK) sum += (double)widen(a[k]) * (double)widen(b[k]);
    return block_sum(sum);
}

template <typename T>
__global__ void check_rows(const T *x, int64_t d, double tolerance, float *length, unsigned long long *bad)
{
    int64_t i = blockIdx.x;
    double l = sqrt(row_dot(x + i * d, x + i * d, d));
    if (threadIdx.x > 0) return;
    length[i] = (float)l;
    if (!(fabs(l - 1) <= tolerance)) atomicMin(bad, (unsigned long long)i);
}

template <typename T>
__global__ void unit_forward(T *p, T *low, float *length, const float *r, int64_t d, unsigned long long *bad)
{
    int64_t i = blockIdx.x;
    double l = sqrt(row_dot(r + i * d, r + i * d, d)), inverse = 1 / l;
    for (int64_t k = i * d + threadIdx.x; k < (i + 1) * d; k += BLOCK) {
        float v = (float)((double)r[k] * inverse);
        put(&p[k], v);
        if (low) put(&low[k], v - widen(p[k]));
    }
    if (threadIdx.x > 0) return;
    length[i] = (float)l;
    if (!(l > 0) || isinf(l)) atomicMin(bad, (unsigned long long)i);
}

template <typename T>
__global__ void unit_backward(T *p, const T *low, const float *g, const float *length, double *dots, int64_t d)
{
    int64_t i = blockIdx.x;
    double along = row_dot(p + i * d, g + i * d, d), inverse = 1 / (double)length[i];
    if (low) along += row_dot(low + i * d, g + i * d, d);
    for (int64_t k = i * d + threadIdx.x; k < (i + 1) * d; k += BLOCK) {
        double unit = (double)widen(p[k]) + (low ? (double)widen(low[k]) : 0.0);
        put(&p[k], (float)((g[k] - along * unit) * inverse));
    }
    if (threadIdx.x == 0) dots[i] = along;
}

template <typename T>
__global__ void exp_tile(T *e, T *ds, const float *s, const float *t, int64_t n, float shift, const float *row_shift,
                         float factor)
{
    int64_t i = blockIdx.y, j = (int64_t)blockIdx.x * BLOCK * 4 + threadIdx.x;
    if (row_shift) shift = row_shift[i];
    for (int64_t k = j; k < j + 4 * BLOCK && k < n; k += BLOCK) {
        float v = exp_as<T>(s[i * n + k] - shift);
        put(&e[i * n + k], v);
        if (t) put(&ds[i * n + k], factor * v * t[i * n + k]);
    }
}

__global__ void row_max(float *top, const float *s, int64_t n)
{
    int64_t i = blockIdx.x;
    float best = top[i];
    for (int64_t k = threadIdx.x; k < n; k += BLOCK) best = fmaxf(best, s[i * n + k]);
    best = block_reduce(best, max_op());
    if (threadIdx.x == 0) top[i] = best;
}

__global__ void lse_add(float *top, double *sum, float *pos, const float *s, int64_t n, int64_t own)
{
    int64_t i = blockIdx.x, mine = own + i;
    const float *k = s + i * n;
    float old = top[i], best = old, part = 0;
    for (int64_t j = threadIdx.x; j < n; j += BLOCK)
        if (j != mine) best = fmaxf(best, k[j]);
    best = block_reduce(best, max_op());
    for (int64_t j = threadIdx.x; j < n; j += BLOCK)
        if (j != mine) part += expf(k[j] - best);
    double total = block_sum((double)part);
    if (threadIdx.x > 0) return;
    if (mine >= 0 && mine < n) pos[i] = k[mine];
    if (isinf(best)) return; /* nothing but the positive so far */
    sum[i] = (isinf(old) ? 0 : sum[i] * exp((double)old - best)) + total;
    top[i] = best;
}

__global__ void lse_finish(double *lse, double *weight, double *value, const float *top, const double *sum,
                           const float *pos, int64_t n, bool leave_one_out)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    double l = top[i] + log(sum[i]), v = l - pos[i], w = 1;
    if (!leave_one_out) {
        w = v > 0 ? 1 / (1 + exp(-v)) : exp(v) / (1 + exp(v));
        v = v > 0 ? v + log1p(exp(-v)) : log1p(exp(v));
    }
    lse[i] = l;
    weight[i] = w;
    value[i] = v;
}

template <typename T>
__global__ void dscore(T *dk, const float *s, const double *lse, const double *weight, int64_t n, int64_t own, double N)
{
    int64_t i = blockIdx.y, j = (int64_t)blockIdx.x * BLOCK * 4 + threadIdx.x;
    double l = lse[i], w = weight[i] / N;
    float shift = isfinite(l) ? (float)l : 0.0f, factor = isfinite(l) ? (float)(w * exp((double)shift - l)) : 0.0f;
    for (int64_t k = j; k < j + 4 * BLOCK && k < n; k += BLOCK)
        put(&dk[i * n + k], k == own + i ? (float)-w : factor * exp_as<T>(s[i * n + k] - shift));
}

template <typename T>
__global__ void add_rows(float *to, const float *from, float factor, const T *a, double *dots, int64_t d)
{
    int64_t i = blockIdx.x;
    double along = row_dot(a + i * d, from + i * d, d);
    for (int64_t k = threadIdx.x; k < d; k += BLOCK) to[i * d + k] += factor * from[i * d + k];
    if (threadIdx.x == 0) dots[i] = along;
}

template <typename T>
__global__ void dot_rows(const T *a, const float *b, double *dots, int64_t d)
{
    int64_t i = blockIdx.x;
    double along = row_dot(a + i * d, b + i * d, d);
    if (threadIdx.x == 0) dots[i] = along;
}

__global__ void sum_all(double *to, const double *from, int64_t n)
{
    double part = 0;
    for (int64_t k = threadIdx.x; k < n; k += BLOCK) part += from[k];
    part = block_sum(part);
    if (threadIdx.x == 0) *to += part;
}

/* One block per column. */
__global__ void mean_rows(float *mean, const float *rows, int64_t n, int64_t d)
{
    double part = 0;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) part += rows[i * d + blockIdx.x];
    part = block_sum(part);
    if (threadIdx.x == 0) mean[blockIdx.x] = n > 0 ? (float)(part / (double)n) : 0.0f;
}

__global__ void less_mean(float *to, const float *from, const float *mean, int64_t d)
{
    int64_t i = blockIdx.x;
    for (int64_t k = threadIdx.x; k < d; k += BLOCK) to[i * d + k] = from[i * d + k] - mean[k];
}

__global__ void column_sums(double *column, const float *dk, int64_t m, int64_t n)
{
    int64_t j = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (j >= n) return;
    double sum = 0;
    for (int64_t i = 0; i < m; i++) sum += dk[i * n + j];
    column[j] += sum;
}

__global__ void add_outer(float *db, const double *column, const float *mean, int64_t d)
{
    int64_t i = blockIdx.x;
    for (int64_t k = threadIdx.x; k < d; k += BLOCK) db[i * d + k] += (float)(column[i] * mean[k]);
}

/* SigLIP: a block a row. */
template <typename T>
__global__ void sigmoid(T *dk, const float *s, double *value, double *along, double *sum, int64_t n, int64_t own,
                        float bias, double share)
{
    int64_t row = blockIdx.x, positive = own + row;
    double v = 0, a = 0, b = 0;
    for (int64_t c = threadIdx.x; c < n; c += BLOCK) {
        float score = s[row * n + c], k = score + bias, z = c == positive ? -k : k, e = expf(-fabsf(z));
        float slope = (z > 0 ? 1.0f : e) / (1.0f + e); /* sigmoid(z) */
        double g = (double)(c == positive ? -slope : slope) * share;
        v += (double)(fmaxf(z, 0.0f) + log1pf(e));
        a += g * (double)score;
        b += g;
        put(&dk[row * n + c], (float)g);
    }
    v = block_sum(v), a = block_sum(a), b = block_sum(b);
    if (threadIdx.x == 0) value[row] += v, along[row] += a, sum[row] += b;
}

__global__ void fill(float *x, float value, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) x[i] = value;
}

unsigned blocks(int64_t n) { return (unsigned)((n + BLOCK - 1) / BLOCK); }
dim3 tile_grid(int64_t m, int64_t n) { return dim3((unsigned)((n + 4 * BLOCK - 1) / (4 * BLOCK)), (unsigned)m); }
bool is_bf16(cloob_dtype T) { return T == CLOOB_BF16; }

} // namespace

/* Launches kernel<T> with T from the dtype; nothing for an empty grid. */
#define LAUNCH(T, rows, grid, kernel, ...)                                                                             \
    do {                                                                                                               \
        if ((rows) == 0) return cudaSuccess;                                                                           \
        if (is_bf16(T)) {                                                                                              \
            typedef bf16 E;                                                                                            \
            kernel<E><<<grid, BLOCK, 0, stream>>>(__VA_ARGS__);                                                        \
        } else {                                                                                                       \
            typedef float E;                                                                                           \
            kernel<E><<<grid, BLOCK, 0, stream>>>(__VA_ARGS__);                                                        \
        }                                                                                                              \
        return cudaGetLastError();                                                                                     \
    } while (0)

#define LAUNCH_PLAIN(rows, grid, kernel, ...)                                                                          \
    do {                                                                                                               \
        if ((rows) == 0) return cudaSuccess;                                                                           \
        kernel<<<grid, BLOCK, 0, stream>>>(__VA_ARGS__);                                                               \
        return cudaGetLastError();                                                                                     \
    } while (0)

extern "C" {

cudaError_t k_check_rows(cudaStream_t stream, cloob_dtype T, const void *x, int64_t n, int64_t d, double tolerance,
                         float *length, unsigned long long *bad)
{
    LAUNCH(T, n, (unsigned)n, check_rows, (const E *)x, d, tolerance, length, bad);
}

cudaError_t k_unit_forward(cudaStream_t stream, cloob_dtype T, void *p, void *low, float *length, const float *r,
                           int64_t n, int64_t d, unsigned long long *bad)
{
    LAUNCH(T, n, (unsigned)n, unit_forward, (E *)p, (E *)low, length, r, d, bad);
}

cudaError_t k_unit_backward(cudaStream_t stream, cloob_dtype T, void *p, const void *low, const float *g,
                            const float *length, double *dots, int64_t n, int64_t d)
{
    LAUNCH(T, n, (unsigned)n, unit_backward, (E *)p, (const E *)low, g, length, dots, d);
}

cudaError_t k_exp(cudaStream_t stream, cloob_dtype T, void *e, void *ds, const float *s, const float *t, int64_t m,
                  int64_t n, float shift, const float *row_shift, float factor)
{
    LAUNCH(T, m, tile_grid(m, n), exp_tile, (E *)e, (E *)ds, s, t, n, shift, row_shift, factor);
}

cudaError_t k_row_max(cudaStream_t stream, float *top, const float *s, int64_t m, int64_t n)
{
    LAUNCH_PLAIN(m, (unsigned)m, row_max, top, s, n);
}

cudaError_t k_lse_add(cudaStream_t stream, float *top, double *sum, float *pos, const float *s, int64_t m, int64_t n,
                      int64_t own)
{
    LAUNCH_PLAIN(m, (unsigned)m, lse_add, top, sum, pos, s, n, own);
}

cudaError_t k_lse_finish(cudaStream_t stream, double *lse, double *weight, double *value, const float *top,
                         const double *sum, const float *pos, int64_t n, bool leave_one_out)
{
    LAUNCH_PLAIN(n, blocks(n), lse_finish, lse, weight, value, top, sum, pos, n, leave_one_out);
}

cudaError_t k_dscore(cudaStream_t stream, cloob_dtype T, void *dk, const float *s, const double *lse,
                     const double *weight, int64_t m, int64_t n, int64_t own, double N)
{
    LAUNCH(T, m, tile_grid(m, n), dscore, (E *)dk, s, lse, weight, n, own, N);
}

cudaError_t k_add_rows(cudaStream_t stream, cloob_dtype T, float *to, const float *from, float factor, const void *a,
                       double *dots, int64_t n, int64_t d)
{
    LAUNCH(T, n, (unsigned)n, add_rows, to, from, factor, (const E *)a, dots, d);
}

cudaError_t k_dot_rows(cudaStream_t stream, cloob_dtype T, const void *a, const float *b, double *dots, int64_t n,
                       int64_t d)
{
    LAUNCH(T, n, (unsigned)n, dot_rows, (const E *)a, b, dots, d);
}

cudaError_t k_sum(cudaStream_t stream, double *to, const double *from, int64_t n)
{
    LAUNCH_PLAIN(n, 1u, sum_all, to, from, n);
}

cudaError_t k_mean(cudaStream_t stream, float *mean, const float *rows, int64_t n, int64_t d)
{
    LAUNCH_PLAIN(d, (unsigned)d, mean_rows, mean, rows, n, d);
}

cudaError_t k_less_mean(cudaStream_t stream, float *to, const float *from, const float *mean, int64_t n, int64_t d)
{
    LAUNCH_PLAIN(n, (unsigned)n, less_mean, to, from, mean, d);
}

cudaError_t k_column_sums(cudaStream_t stream, double *column, const float *dk, int64_t m, int64_t n)
{
    LAUNCH_PLAIN(n, blocks(n), column_sums, column, dk, m, n);
}

cudaError_t k_add_outer(cudaStream_t stream, float *db, const double *column, const float *mean, int64_t n, int64_t d)
{
    LAUNCH_PLAIN(n, (unsigned)n, add_outer, db, column, mean, d);
}

cudaError_t k_sigmoid(cudaStream_t stream, cloob_dtype T, void *dk, const float *s, double *value, double *along,
                      double *sum, int64_t m, int64_t n, int64_t own, float bias, double share)
{
    LAUNCH(T, m, (unsigned)m, sigmoid, (E *)dk, s, value, along, sum, n, own, bias, share);
}

cudaError_t k_fill(cudaStream_t stream, float *x, float value, int64_t n)
{
    LAUNCH_PLAIN(n, blocks(n), fill, x, value, n);
}

} // extern "C"
