/* What attention's backward passes by warpgroups share: W queries against the 64 keys of a warpgroup. */
#ifndef NN_CUDA_ATTENTION_BWD_QUERIES_CUH
#define NN_CUDA_ATTENTION_BWD_QUERIES_CUH

#include "nn/cuda/attention_bwd.cuh"
#include "nn/cuda/attention_wide.cuh"

namespace {

enum { W = 32 }; /* queries at a time */

struct wide_call {
    bf16 *dqkv;
    float *sums;
    round_out round;
    const bf16 *dy, *qkv, *y;
    const float *lse;
    attn_sizes z;
};

struct head { /* in shared memory */
    char *k, *v, *q, *dy, *ds;
    float *lse, *along;
};

/* W queries from `first` on against a warpgroup's keys from `key` on: dv += p^T dy, dk += ds^T q, ds to `to`. */
__device__ __forceinline__ void add_queries(float (&dk)[32], float (&dv)[32], char *to, const head &m,
                                            const attn_sizes &z, int key, int first)
{
    float s[W / 2], dp[W / 2], scale = z.scale * LOG2E;
    unsigned pa[W / 16][4], da[W / 16][4];
    corner at = first_element();
    settle(s), settle(dp);
    wgmma_fence();
    begin_scores(s, m.k + key * ROW, m.q + first * ROW);
    begin_scores(dp, m.v + key * ROW, m.dy + first * ROW);
    wgmma_wait<1>();
    settle(s);
    bool seen[2] = { key + at.row < z.T, key + at.row + 8 < z.T };
#pragma unroll
    for (int i = 0; i < W / 2; i += 2) {
        float2 lse = *reinterpret_cast<const float2 *>(m.lse + first + i / 4 * 8 + at.column);
        s[i] = seen[i / 2 % 2] ? power2(s[i] * scale - lse.x) : 0.0f;
        s[i + 1] = seen[i / 2 % 2] ? power2(s[i + 1] * scale - lse.y) : 0.0f;
    }
    if (z.causal && key + WIDTH > first) {
#pragma unroll
        for (int i = 0; i < W / 2; i++)
            if (key + at.row + i / 2 % 2 * 8 > first + at.column + i / 4 * 8 + i % 2) s[i] = 0.0f;
    }
    wgmma_wait<0>();
    settle(dp);
#pragma unroll
    for (int i = 0; i < W / 2; i += 2) {
        float2 along = *reinterpret_cast<const float2 *>(m.along + first + i / 4 * 8 + at.column);
        dp[i] = s[i] * (dp[i] - along.x);
        dp[i + 1] = s[i + 1] * (dp[i + 1] - along.y);
    }
    uint64_t by = descriptor_turned(m.dy + first * ROW), bq = descriptor_turned(m.q + first * ROW);
#pragma unroll
    for (int k = 0; k < W / 16; k++) pack_columns(pa[k], s + 8 * k, 1.0f), pack_columns(da[k], dp + 8 * k, 1.0f);
    settle(dv), settle(dk);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < W / 16; k++) add_rows(dv, pa[k], by + k * DOWN);
#pragma unroll
    for (int k = 0; k < W / 16; k++) add_rows(dk, da[k], bq + k * DOWN);
    wgmma_commit();
#pragma unroll
    for (int k = 0; k < W / 16; k++) put_columns(to, at.row / 16 * 16, first % WIDTH + 16 * k, da[k]);
    wgmma_wait<0>();
    settle(dv), settle(dk);
}

/* c (64 x 64) += ds^T k over up to KT tiles of 64 keys, of `keys` keys in all. */
template <int KT>
__device__ __forceinline__ void multiply_tiles(float (&c)[32], const char *ds, const char *k, int keys)
{
#pragma unroll
    for (int tile = 0; tile < KT; tile++) {
        if (tile > 0 && tile * WIDTH >= keys) break;
        uint64_t a = descriptor_turned(ds + tile * TILE), b = descriptor_turned(k + tile * TILE);
        settle(c);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) wgmma_turned_k16(c, a + i * DOWN, b + i * DOWN);
        wgmma_commit();
        wgmma_wait<0>();
        settle(c);
    }
}

inline wide_call wide_call_of(const op_args *a, const op_sequences &s, float *sums)
{
    return { (bf16 *)a->out[0].data,
             sums,
             rounding_is_fused(a) ? round_out_of(a) : round_out{},
             (const bf16 *)a->in[0].data,
             (const bf16 *)a->in[1].data,
             (const bf16 *)a->in[2].data,
             (const float *)a->in[3].data,
             sizes_of(a, s, &a->in[2]) };
}

} // namespace

#endif
