/* Shared by the passes of batch norm: per-channel coefficients, and the value whose sign is relu's mask.
 * Forward and backward compute it by the same instructions, so the recomputed mask equals the original. */
#ifndef NN_CUDA_BN_COMMON_CUH
#define NN_CUDA_BN_COMMON_CUH

#include "nn/cuda/common.cuh"

template <int V>
struct bn_affine {
    float mean[V], slope[V], bias[V]; /* slope = rstd gain */
};

template <int V>
__device__ __forceinline__ void bn_affine_load(bn_affine<V> &k, const float *mean, const float *rstd, const float *gain,
                                               const float *bias, int c)
{
    float r[V], g[V];
    load_floats<V>(k.mean, mean + c);
    load_floats<V>(r, rstd + c);
    load_floats<V>(g, gain + c);
    load_floats<V>(k.bias, bias + c);
#pragma unroll
    for (int i = 0; i < V; i++) k.slope[i] = r[i] * g[i];
}

template <int V>
__device__ __forceinline__ float bn_value(const bn_affine<V> &k, float x, int i)
{
    return fmaf(x - k.mean[i], k.slope[i], k.bias[i]);
}

/* A block's sums, added over its rows in order. sums: (block.y, 2 V, block.x) of shared memory. */
template <int V>
__device__ static void bn_write_partial(float *partial, float *sums, const float s1[V], const float s2[V], int C)
{
    int width = blockDim.x, cell = 2 * V * width;
#pragma unroll
    for (int i = 0; i < V; i++) {
        sums[threadIdx.y * cell + i * width + threadIdx.x] = s1[i];
        sums[threadIdx.y * cell + (V + i) * width + threadIdx.x] = s2[i];
    }
    __syncthreads();
    for (int j = threadIdx.y * width + threadIdx.x; j < cell; j += width * blockDim.y) {
        int which = j / width, at = blockIdx.y * width + j % width;
        float sum = 0.0f;
        for (int y = 0; y < blockDim.y; y++) sum += sums[y * cell + j];
        if (at < C / V) partial[((int64_t)blockIdx.x * 2 + which / V) * C + at * V + which % V] = sum;
    }
}

/* Both sums of channel c over all blocks, in double and in a fixed order, by a block of (32 channels, 32 slices). True
 * for the one thread of each channel that has them. */
__device__ static bool bn_add_partials(double &s1, double &s2, const float *partial, int parts, int c, int C)
{
    __shared__ double part[2][32][33];
    s1 = s2 = 0.0;
#pragma unroll 4
    for (int g = threadIdx.y; g < parts && c < C; g += 32) {
        s1 += (double)partial[(int64_t)g * 2 * C + c];
        s2 += (double)partial[((int64_t)g * 2 + 1) * C + c];
    }
    part[0][threadIdx.y][threadIdx.x] = s1;
    part[1][threadIdx.y][threadIdx.x] = s2;
    __syncthreads();
    if (threadIdx.y || c >= C) return false;
    for (int y = 1; y < 32; y++) s1 += part[0][y][threadIdx.x], s2 += part[1][y][threadIdx.x];
    return true;
}

/* Rows of x (N, H, W) and of its 2 x 2 pool. */
typedef struct pool_map {
    int H, W, Ho, Wo;
} pool_map;

/* First of the four input rows behind pooled row r. */
__device__ __forceinline__ int64_t pool_first(const pool_map &m, int64_t r)
{
    int q = (int)r, j = q % m.Wo, t = q / m.Wo, i = t % m.Ho, n = t / m.Ho;
    return ((int64_t)n * m.H + 2 * i) * m.W + 2 * j;
}

/* The pooled row that input row r went into; -1 for an odd last row or column. */
__device__ __forceinline__ int64_t pool_target(const pool_map &m, int64_t r)
{
    int q = (int)r, w = q % m.W, t = q / m.W, h = t % m.H, n = t / m.H;
    return h >= 2 * m.Ho || w >= 2 * m.Wo ? -1 : ((int64_t)n * m.Ho + h / 2) * m.Wo + w / 2;
}

static inline pool_map pool_map_of(const tensor *x)
{
    pool_map m = { (int)x->dim[1], (int)x->dim[2], (int)x->dim[1] / 2, (int)x->dim[2] / 2 };
    return m;
}

#endif
