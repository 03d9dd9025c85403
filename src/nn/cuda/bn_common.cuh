/* What the passes of batch norm agree on: per-channel coefficients, and the value whose sign is relu's mask.
 * Forward and backward compute it by the same instructions, so the mask worked out again is the mask that
 * was. */
#ifndef NN_CUDA_BN_COMMON_CUH
#define NN_CUDA_BN_COMMON_CUH

#include "nn/cuda/common.cuh"

template <int V>
struct bn_affine {
    float mean[V], slope[V], bias[V]; /* slope = rstd gain */
};

template <int V>
__device__ __forceinline__ void bn_affine_load(bn_affine<V> &k, const float *mean, const float *rstd,
                                               const float *gain, const float *bias, int c)
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

/* Rows of x (N, H, W) and of what 2 x 2 pooling makes of it. */
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
