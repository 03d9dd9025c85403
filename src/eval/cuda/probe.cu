/* Between the probe's products: softmax and loss of rows of logits, sums, weighted rows, and the inverse of a
 * symmetric matrix. */
#include "eval/cuda/kernels.h"

enum { WARPS = 8 };

static __device__ __forceinline__ double warp_sum(double v)
{
    for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(0xffffffffu, v, k);
    return v;
}

/* ---- softmax and loss: a warp per row ------------------------------------------------------------ */

/* The largest value of a row and its first index. */
static __device__ void row_top(const float *z, const float *bias, int C, float *high, int *top)
{
    float max = -INFINITY;
    int at = C;
    for (int j = threadIdx.x; j < C; j += 32) {
        float v = z[j] + bias[j];
        if (v > max || at == C) max = v, at = j;
    }
    for (int k = 16; k; k >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, max, k);
        int where = __shfl_xor_sync(0xffffffffu, at, k);
        if (where < C && (at == C || other > max || (other == max && where < at))) max = other, at = where;
    }
    *high = max, *top = at;
}

/* As in softmax_loss_real.h: the largest logit stays out of the sum, so that a confident row keeps its
 * digits. */
static __global__ void softmax_loss_kernel(float *z, int64_t ld, const float *bias, double *loss, float *uncertain,
                                           const int32_t *y, int64_t n, int C)
{
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (i >= n) return;
    float *row = z + i * ld, high, rest = 0, square = 0;
    int top, own = y[i];
    row_top(row, bias, C, &high, &top);
    double behind = (double)high - (double)(row[own] + bias[own]);
    __syncwarp(); /* the row is overwritten from here on */
    for (int j = threadIdx.x; j < C; j += 32) {
        float e = j == top ? 0.0f : expf(row[j] + bias[j] - high);
        row[j] = e, rest += e, square += e * e;
    }
    double r = warp_sum((double)rest), q = warp_sum((double)square);
    float inverse = (float)(1 / (1 + r));
    for (int j = threadIdx.x; j < C; j += 32) {
        float p = j == top ? inverse : row[j] * inverse;
        if (j == own) p = j == top ? (float)(-r / (1 + r)) : p - 1;
        row[j] = p;
    }
    if (threadIdx.x == 0) {
        loss[i] = log1p(r) + behind;
        uncertain[i] = (float)((r * (2 + r) - q) / ((1 + r) * (1 + r)));
    }
}

cloob_status eval_softmax_loss(cloob_ctx *ctx, cudaStream_t stream, float *z, int64_t ld, const float *bias,
                               double *loss, float *uncertain, const int32_t *y, int64_t n, int64_t C)
{
    unsigned blocks = (unsigned)((n + WARPS - 1) / WARPS);
    softmax_loss_kernel<<<blocks, dim3(32, WARPS), 0, stream>>>(z, ld, bias, loss, uncertain, y, n, (int)C);
    return cuda_launched(ctx, "probe: softmax");
}

/* ---- sums ---------------------------------------------------------------------------------------- */

/* Block (x, s): 32 columns, every COLUMN_SLICES-th group of 8 rows. */
static __global__ void column_sums_kernel(double *part, const float *z, int64_t ld, int64_t n, int64_t C)
{
    __shared__ double sum[WARPS][33];
    int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    double mine = 0;
    for (int64_t i = (int64_t)blockIdx.y * WARPS + threadIdx.y; i < n && c < C; i += WARPS * COLUMN_SLICES)
        mine += z[i * ld + c];
    sum[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y || c >= C) return;
    for (int k = 1; k < WARPS; k++) mine += sum[k][threadIdx.x];
    part[blockIdx.y * C + c] += mine;
}

cloob_status eval_column_sums(cloob_ctx *ctx, cudaStream_t stream, double *part, const float *z, int64_t ld, int64_t n,
                              int64_t C)
{
    dim3 grid((unsigned)((C + 31) / 32), COLUMN_SLICES);
    column_sums_kernel<<<grid, dim3(32, WARPS), 0, stream>>>(part, z, ld, n, C);
    return cuda_launched(ctx, "probe: bias");
}

static __global__ void sum_kernel(double *to, const double *from, int64_t n)
{
    __shared__ double part[32];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 1024) sum += from[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = warp_sum(part[threadIdx.x]);
    if (threadIdx.x == 0) *to = sum;
}

cloob_status eval_sum(cloob_ctx *ctx, cudaStream_t stream, double *to, const double *from, int64_t n)
{
    sum_kernel<<<1, 1024, 0, stream>>>(to, from, n);
    return cuda_launched(ctx, "probe: loss");
}

/* ---- the preconditioner -------------------------------------------------------------------------- */

static __global__ void weighted_rows_kernel(float *out, int64_t ldo, const float *x, int64_t ldx, int64_t x_step,
                                            const float *u, int64_t u_step, int64_t D)
{
    int64_t s = blockIdx.x;
    const float *row = x + s * x_step * ldx;
    float root = sqrtf(u[s * u_step]);
    for (int64_t k = threadIdx.x; k < ldo; k += blockDim.x)
        out[s * ldo + k] = k < D ? root * row[k] : k == D ? root : 0.0f;
}

cloob_status eval_weighted_rows(cloob_ctx *ctx, cudaStream_t stream, float *out, int64_t ldo, const float *x,
                                int64_t ldx, int64_t x_step, const float *u, int64_t u_step, int64_t n, int64_t D)
{
    weighted_rows_kernel<<<(unsigned)n, 256, 0, stream>>>(out, ldo, x, ldx, x_step, u, u_step, D);
    return cuda_launched(ctx, "probe: rows of the preconditioner");
}

/* One sweep: with p = A_kk and c = A's column k,
 *     A_ij -= c_i c_j / p,   A_ik = A_ki = c_i / p,   A_kk = -1 / p.
 * After all of them A holds -A^-1; symmetry stays throughout, and of a positive definite A every pivot is
 * positive. */
static __global__ void take_column_kernel(double *column, int *bad, const double *A, int64_t k, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    column[i] = A[k * n + i];
    if (i == k && !(column[i] > 0)) *bad = 1;
}

static __global__ void sweep_kernel(double *A, const double *column, int64_t k, int64_t n)
{
    int64_t j = (int64_t)blockIdx.x * 32 + threadIdx.x, i = (int64_t)blockIdx.y * 8 + threadIdx.y;
    if (i >= n || j >= n) return;
    double p = column[k], *a = A + i * n + j;
    if (i == k) *a = j == k ? -1 / p : column[j] / p;
    else if (j == k) *a = column[i] / p;
    else *a -= column[i] * (column[j] / p);
}

cloob_status eval_sweep(cloob_ctx *ctx, cudaStream_t stream, double *A, double *column, int *bad, int64_t n)
{
    dim3 grid((unsigned)((n + 31) / 32), (unsigned)((n + 7) / 8));
    for (int64_t k = 0; k < n; k++) {
        take_column_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(column, bad, A, k, n);
        sweep_kernel<<<grid, dim3(32, 8), 0, stream>>>(A, column, k, n);
    }
    return cuda_launched(ctx, "probe: inverse");
}

static __global__ void narrow_kernel(float *out, int64_t ldo, const double *A, double factor, int64_t n)
{
    int64_t j = (int64_t)blockIdx.x * 256 + threadIdx.x, i = blockIdx.y;
    if (j < n) out[i * ldo + j] = (float)(factor * A[i * n + j]);
}

cloob_status eval_narrow(cloob_ctx *ctx, cudaStream_t stream, float *out, int64_t ldo, const double *A, double factor,
                         int64_t n)
{
    narrow_kernel<<<dim3((unsigned)((n + 255) / 256), (unsigned)n), 256, 0, stream>>>(out, ldo, A, factor, n);
    return cuda_launched(ctx, "probe: inverse");
}
