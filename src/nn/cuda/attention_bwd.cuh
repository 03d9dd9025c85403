/* Shared by the variants of attention's backward pass: loading the rows of a head, and the column sums of its results.
 * L::at(row, c), c a multiple of 8, is the index of an element of a matrix in shared memory. */
#ifndef NN_CUDA_ATTENTION_BWD_CUH
#define NN_CUDA_ATTENTION_BWD_CUH

#include "nn/cuda/attention.cuh"

/* The rows of a head in shared memory. */
typedef struct attn_rows {
    const bf16 *q, *k, *v, *dy;
    const float *lse, *dot_dy_y; /* per query: log2-sum-exp; dy.y */
    bf16 *stage;                 /* 16 staging rows of this warp */
} attn_rows;

/* The sum of eight products of bf16. */
__device__ __forceinline__ float dot8(uint4 a, uint4 b)
{
    const __nv_bfloat162 *x = reinterpret_cast<const __nv_bfloat162 *>(&a);
    const __nv_bfloat162 *y = reinterpret_cast<const __nv_bfloat162 *>(&b);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 u = __bfloat1622float2(x[i]), v = __bfloat1622float2(y[i]);
        sum += u.x * v.x + u.y * v.y;
    }
    return sum;
}

/* Issues all loads of a block together: q, k, v, dy and the log-sum-exp to shared memory, y to registers. dy.y needs no
 * barrier, because a thread reads the pieces of dy that it copied itself. lse2 is the log2-sum-exp, infinite after the
 * last query, so that p is 0 there. The block has at least 2 Tp threads. */
template <int D, class L>
__device__ static void load_rows(const attn_rows &m, float *lse2, float *dot_dy_y, const bf16 *qkv, const bf16 *dy,
                                 const bf16 *y, const float *lse, const attn_sizes &z)
{
    enum { LANES = D / 8, ROUNDS = D / 16 };
    int first = threadIdx.x / LANES, c = threadIdx.x % LANES * 8, down = blockDim.x / LANES, t = threadIdx.x;
    bf16 *const to[4] = { (bf16 *)m.q, (bf16 *)m.k, (bf16 *)m.v, (bf16 *)m.dy };
    uint4 own[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int row = first + i * down, at = L::at(row, c);
        own[i] = make_uint4(0, 0, 0, 0);
        if (row < z.T) {
            const bf16 *from = qkv + (int64_t)row * 3 * z.C + c;
            for (int k = 0; k < 3; k++) copy_async16(to[k] + at, from + k * z.C);
            copy_async16(to[3] + at, dy + (int64_t)row * z.C + c);
            own[i] = *reinterpret_cast<const uint4 *>(y + (int64_t)row * z.C + c);
        } else if (row < z.Tp) {
            for (int k = 0; k < 4; k++) *reinterpret_cast<uint4 *>(to[k] + at) = make_uint4(0, 0, 0, 0);
        }
    }
    if (t < z.T) copy_async4(lse2 + t, lse + t);
    copies_wait();
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int row = first + i * down;
        float sum = row < z.Tp ? dot8(own[i], *reinterpret_cast<const uint4 *>(m.dy + L::at(row, c))) : 0.0f;
#pragma unroll
        for (int k = LANES / 2; k; k >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, k);
        if (c == 0 && row < z.Tp) dot_dy_y[row] = sum;
    }
    if (t < z.Tp) lse2[t] = t < z.T ? lse2[t] * LOG2E : INFINITY;
}

/* to[c..c+15] = the sums of these columns over `rows` rows, as a multiplication by ones. Called by a warp. */
template <class L>
__device__ static void sum_16(float *to, const bf16 *from, int c, int rows)
{
    const unsigned one = 0x3f803f80u, ones[4] = { one, one, one, one };
    int lane = threadIdx.x & 31;
    float sum[2][4] = {};
#pragma unroll 4
    for (int t = 0; t < rows; t += 16) {
        unsigned b[4];
        ldmatrix_trans(b, from + L::at(t + (lane & 15), c + (lane >> 4) * 8));
        mma(sum[0], ones, b[0], b[1]);
        mma(sum[1], ones, b[2], b[3]);
    }
    if (lane >= 4) return;
#pragma unroll
    for (int half = 0; half < 2; half++)
        *reinterpret_cast<float2 *>(to + c + 8 * half + 2 * lane) = make_float2(sum[half][0], sum[half][1]);
}

/* Sums over rows of dq, dk and dv, which are still in their staging rows: 3 D values of one head. Rows after the last
 * token are 0. */
template <int D, class L>
__device__ static void sum_columns(float *to, const bf16 *q, const bf16 *k, const bf16 *v, const attn_sizes &z)
{
    for (int task = threadIdx.x / 32; task < 3 * (D / 16); task += blockDim.x / 32) {
        int part = task / (D / 16), c = task % (D / 16) * 16;
        sum_16<L>(to + part * z.C, part == 0 ? q : part == 1 ? k : v, c, z.Tp);
    }
}

/* The backward pass of heads of width 32 or 64 in bf16, any length (attention_bwd_passes.cu). dot_dy_y: scratch of the
 * size of the log-sum-exp. */
cloob_status attention_bwd_passes(const op_env *env, const op_args *a, float *dot_dy_y);

#endif
