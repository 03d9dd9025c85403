/* Attention's backward pass by warpgroups in passes of 128 keys, for heads of 64 and many tokens: two warpgroups to a
 * block, so that two blocks fit on a multiprocessor and one loads while the other multiplies. As attention_bwd_wide.cu
 * otherwise; dq of the passes before waits, rounded, where it belongs. Rows of equal length, whose tokens all see each
 * other. */
#include "nn/cuda/attention_bwd_queries.cuh"

namespace {

enum { TEAMS = 2, KEYS = TEAMS * WIDTH, MAX_TOKENS = 320, DOWN_ROWS = 128 * TEAMS / 8 };

struct place_of_head {
    head m;
    attn_sizes z;
    int base; /* first key of the pass */
    bool last;
};

/* q, dy and the log-sum-exp to shared memory, and along = dy.y; as take_rows, without k and v. */
__device__ __forceinline__ void take_queries(const head &m, const bf16 *q, const bf16 *dy, const bf16 *y,
                                             const float *lse, const attn_sizes &z)
{
    enum { ROUNDS = MAX_TOKENS / DOWN_ROWS };
    int first = threadIdx.x / 8, c = threadIdx.x % 8 * 8;
    uint4 own[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int row = first + i * DOWN_ROWS, at = 2 * swizzled::at(row, c);
        own[i] = make_uint4(0, 0, 0, 0);
        if (row < z.T) {
            send((bf16 *)(m.q + at), q + (int64_t)row * 3 * z.C + c);
            send((bf16 *)(m.dy + at), dy + (int64_t)row * z.C + c);
            own[i] = *reinterpret_cast<const uint4 *>(y + (int64_t)row * z.C + c);
        } else if (row < z.Tp) {
            *reinterpret_cast<uint4 *>(m.q + at) = *reinterpret_cast<uint4 *>(m.dy + at) = make_uint4(0, 0, 0, 0);
        }
    }
    for (int t = threadIdx.x; t < z.T; t += 128 * TEAMS) send4(m.lse + t, lse + t);
    arrive();
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int row = first + i * DOWN_ROWS;
        if (i * DOWN_ROWS >= z.Tp) break;
        float sum = row < z.Tp ? dot8(own[i], *reinterpret_cast<uint4 *>(m.dy + 2 * swizzled::at(row, c))) : 0.0f;
#pragma unroll
        for (int k = 4; k; k >>= 1) sum += __shfl_xor_sync(~0u, sum, k);
        if (c == 0 && row < z.Tp) m.along[row] = sum;
    }
    for (int t = threadIdx.x; t < z.Tp; t += 128 * TEAMS) m.lse[t] = t < z.T ? m.lse[t] * LOG2E : INFINITY;
}

/* The pass's rows of k and v. */
__device__ __forceinline__ void take_keys(const place_of_head &p, const bf16 *qkv)
{
    int c = threadIdx.x % 8 * 8;
#pragma unroll
    for (int row = threadIdx.x / 8; row < KEYS; row += DOWN_ROWS) {
        int at = 2 * swizzled::at(row, c);
        const bf16 *from = qkv + (int64_t)(p.base + row) * 3 * p.z.C + c;
        if (p.base + row < p.z.T) {
            send((bf16 *)(p.m.k + at), from + p.z.C);
            send((bf16 *)(p.m.v + at), from + 2 * p.z.C);
        } else {
            *reinterpret_cast<uint4 *>(p.m.k + at) = *reinterpret_cast<uint4 *>(p.m.v + at) = make_uint4(0, 0, 0, 0);
        }
    }
}

/* The pass's part of dq of 64 queries from `first` on. A lane finds what it left itself in the pass before. */
__device__ __forceinline__ void add_part(bf16 *dq, const place_of_head &p, int first)
{
    const attn_sizes &z = p.z;
    float c[32] = {};
    multiply_tiles<TEAMS>(c, p.m.ds, p.m.k, z.T - p.base);
    corner at = first_element();
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        int row = first + at.row + i / 2 % 2 * 8;
        unsigned *there = reinterpret_cast<unsigned *>(dq + (int64_t)row * 3 * z.C + i / 4 * 8 + at.column);
        float2 before = p.base > 0 && row < z.T ? unpack_pair(*there) : make_float2(0.0f, 0.0f);
        c[i] = c[i] * z.scale + before.x, c[i + 1] = c[i + 1] * z.scale + before.y;
        if (!p.last && row < z.T) *there = pack_pair(c[i], c[i + 1]);
    }
    int row0 = first + at.row / 16 * 16;
    if (p.last && row0 < z.Tp) leave(dq, 3 * z.C, c, 1.0f, row0, z.T, p.m.q);
}

/* dk and dv of the pass's keys, by way of k's and v's rows, which nobody reads any more, and their sums. */
__device__ __forceinline__ void finish_keys(bf16 *dqkv, float *sums, const place_of_head &p, float (&dk)[32],
                                            float (&dv)[32])
{
    const attn_sizes &z = p.z;
    int row0 = (int)threadIdx.x / 32 * 16, rows = min(z.Tp - p.base, (int)KEYS);
    bf16 *to = dqkv + (int64_t)p.base * 3 * z.C;
    if (row0 < rows) {
        leave(to + 2 * z.C, 3 * z.C, dv, 1.0f, row0, z.T - p.base, p.m.v);
        leave(to + z.C, 3 * z.C, dk, z.scale, row0, z.T - p.base, p.m.k);
    }
    __syncthreads();
    for (int task = threadIdx.x / 32; sums && task < (p.last ? 12 : 8); task += 4 * TEAMS) {
        int part = task / 4, c = task % 4 * 16;
        if (part < 2) sum_16<swizzled>(sums + (part + 1) * z.C, (bf16 *)(part ? p.m.v : p.m.k), c, rows, p.base > 0);
        else sum_16<swizzled>(sums, (bf16 *)p.m.q, c, z.Tp, false);
    }
    __syncthreads();
}

__global__ void __launch_bounds__(128 * TEAMS, 2) passes_kernel(const __grid_constant__ wide_call j)
{
    extern __shared__ char memory[];
    attn_sizes z = j.z;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H, team = __shfl_sync(~0u, threadIdx.x / 128, 0);
    char *k = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023), *q = k + 3 * TEAMS * TILE;
    int R = (z.T + W - 1) / W * W;
    float *lse = (float *)(q + 2 * R * ROW);
    attn_place place = place_of<false>(z, n, h);
    z.Tp = (z.T + W - 1) / W * W;
    head m = { k, k + TEAMS * TILE, q, q + R * ROW, k + 2 * TEAMS * TILE, lse, lse + R };
    int64_t at = place.row * 3 * z.C + h * WIDTH, out = place.row * z.C + h * WIDTH;
    place_of_head p = { m, z, 0, z.T <= KEYS };
    take_keys(p, j.qkv + at);
    take_queries(m, j.qkv + at, j.dy + out, j.y + out, j.lse + place.head, z);
    p.z.Tp = whole_tiles(z.T);
    for (; p.base < z.T; p.base += KEYS) {
        p.last = p.base + KEYS >= z.T;
        if (p.base > 0) take_keys(p, j.qkv + at), arrive();
        shared_publish();
        __syncthreads();
        float dk[32] = {}, dv[32] = {};
        int key = p.base + team * WIDTH;
        head here = m;
        here.k -= p.base * ROW, here.v -= p.base * ROW;
        for (int first = 0, turn = 0; first < z.T; first += WIDTH, turn++) {
            for (int i = first; key < z.T && i < first + WIDTH && i < z.T; i += W)
                add_queries(dk, dv, m.ds + team * TILE, here, z, key, i);
            shared_publish();
            __syncthreads(); /* ds is there */
            if (team == turn % TEAMS) add_part(j.dqkv + at, p, first);
            __syncthreads(); /* it has been read */
        }
        finish_keys(j.dqkv + at, j.sums ? j.sums + (int64_t)n * 3 * z.C + h * WIDTH : NULL, p, dk, dv);
    }
}

size_t smem_for(int64_t T)
{
    int64_t R = (T + W - 1) / W * W;
    return 1024 + 3 * TEAMS * TILE + (size_t)R * (2 * ROW + 2 * sizeof(float));
}

} // namespace

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" bool attention_bwd_passes_takes(const op_env *env, const op_args *a)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    int64_t C = tensor_cols(&a->in[2]);
    return cuda_has_hopper(env->dev) && a->in[2].dtype == CLOOB_BF16 && C == a->attr.heads * WIDTH && s.T > KEYS &&
           s.T <= MAX_TOKENS && !a->attr.causal && !s.start && !op_has(&a->out[OP_ROUNDED_OUT]);
}

extern "C" cloob_status attention_bwd_passes(const op_env *env, const op_args *a, float *sums)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    wide_call j = wide_call_of(a, s, sums);
    size_t smem = smem_for(s.T);
    CLOOB_TRY(cuda_check(env->ctx,
                         cudaFuncSetAttribute(passes_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
                         "attention_bwd"));
    passes_kernel<<<(unsigned)(s.N * j.z.H), 128 * TEAMS, smem, stream_of(env)>>>(j);
    return cuda_launched(env->ctx, "attention_bwd");
}
