/* Attention's backward pass by warpgroups, for heads of width 64. One block per row of the batch and head; a warpgroup
 * owns 64 keys and processes the queries, 32 at a time. Scores are transposed, keys as rows, so that p and ds in
 * registers are the left operands of dv and dk. Only ds is written to shared memory, for dq, which the warpgroups
 * compute alternately for 64 queries at a time.
 *
 * Matrices in shared memory have rows of 64 bf16 in the 128-byte swizzle: k, v, q, dy. Results are staged in rows that
 * are no longer read: dq in q, dv in v, dk in dy. */
#include "nn/cuda/attention_bwd.cuh"
#include "tensor/cuda/hopper.cuh"

namespace {

enum {
    WIDTH = 64, /* of a head; keys per warpgroup */
    ROW = 2 * WIDTH,
    TILE = WIDTH * ROW,  /* bytes */
    DOWN = 16 * ROW >> 4 /* 16 rows, in units of a descriptor */
};

struct swizzled {
    __device__ static __forceinline__ int at(int row, int c) { return row * WIDTH + (c ^ (row & 7) * 8); }
};

/* c = a b^T: 64 rows of a, 2 N of b. */
template <int N>
__device__ __forceinline__ void begin_scores(float (&c)[N], const char *a, const char *b)
{
    uint64_t x = descriptor(a), y = descriptor(b);
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) wgmma_k16(c, x + 2 * k, y + 2 * k, k > 0);
    wgmma_commit();
}

/* Position of a thread's first element in a 64 x n result; element i is 8 (i / 2 % 2) rows and 8 (i / 4) + i % 2
 * columns further. */
struct corner {
    int row, column;
};
__device__ __forceinline__ corner first_element()
{
    int lane = threadIdx.x % 32;
    return { (int)threadIdx.x % 128 / 32 * 16 + lane / 4, 2 * (lane % 4) };
}

/* Rounds 16 columns of a result to a left operand. */
__device__ __forceinline__ void pack_columns(unsigned (&a)[4], const float *c, float scale)
{
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = pack_pair(c[2 * i] * scale, c[2 * i + 1] * scale);
}

/* Stores them to rows row0.. (of this warp) and columns c.. of a matrix in shared memory. */
__device__ __forceinline__ void store_columns(char *to, int row0, int c, const unsigned (&a)[4])
{
    int lane = threadIdx.x % 32, row = row0 + lane / 8 % 2 * 8 + lane % 8;
    stmatrix(shared_address(to) + 2 * swizzled::at(row, c + lane / 16 * 8), a[0], a[1], a[2], a[3]);
}

/* Writes 16 rows of a warp to global memory, rows below T only, staged in rows row0.. of a matrix in shared memory. */
__device__ __forceinline__ void store_rows(bf16 *to, int64_t step, const float (&c)[32], float scale, int row0, int T,
                                           char *stage)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned a[4];
        pack_columns(a, c + 8 * k, scale);
        store_columns(stage, row0, 16 * k, a);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = row0 + 4 * i + lane / 8, at = lane % 8 * 8;
        if (row < T)
            *reinterpret_cast<uint4 *>(to + row * step + at) =
                *reinterpret_cast<const uint4 *>(stage + 2 * swizzled::at(row, at));
    }
}

enum { W = 32 }; /* queries at a time */

struct wide_call {
    bf16 *dqkv;
    float *sums;
    const bf16 *dy, *qkv, *y;
    const float *lse;
    attn_sizes z;
};

struct head { /* in shared memory */
    char *k, *v, *q, *dy, *ds;
    float *lse, *dot_dy_y;
};

/* W queries from `first` on and a warpgroup's keys from `key` on: dv += p^T dy, dk += ds^T q; writes ds to `to`. */
__device__ __forceinline__ void add_queries(float (&dk)[32], float (&dv)[32], char *to, const head &m,
                                            const attn_sizes &z, int key, int first)
{
    float s[W / 2], dp[W / 2], scale = z.scale * LOG2E;
    unsigned pa[W / 16][4], da[W / 16][4];
    corner at = first_element();
    fence_registers(s), fence_registers(dp);
    wgmma_fence();
    begin_scores(s, m.k + key * ROW, m.q + first * ROW);
    begin_scores(dp, m.v + key * ROW, m.dy + first * ROW);
    wgmma_wait<1>();
    fence_registers(s);
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
    fence_registers(dp);
#pragma unroll
    for (int i = 0; i < W / 2; i += 2) {
        float2 dot_dy_y = *reinterpret_cast<const float2 *>(m.dot_dy_y + first + i / 4 * 8 + at.column);
        dp[i] = s[i] * (dp[i] - dot_dy_y.x);
        dp[i + 1] = s[i + 1] * (dp[i + 1] - dot_dy_y.y);
    }
    uint64_t by = descriptor_transposed(m.dy + first * ROW), bq = descriptor_transposed(m.q + first * ROW);
#pragma unroll
    for (int k = 0; k < W / 16; k++) pack_columns(pa[k], s + 8 * k, 1.0f), pack_columns(da[k], dp + 8 * k, 1.0f);
    fence_registers(dv), fence_registers(dk);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < W / 16; k++) wgmma_rows_transposed(dv, pa[k], by + k * DOWN);
#pragma unroll
    for (int k = 0; k < W / 16; k++) wgmma_rows_transposed(dk, da[k], bq + k * DOWN);
    wgmma_commit();
#pragma unroll
    for (int k = 0; k < W / 16; k++) store_columns(to, at.row / 16 * 16, first % WIDTH + 16 * k, da[k]);
    wgmma_wait<0>();
    fence_registers(dv), fence_registers(dk);
}

/* c (64 x 64) += ds^T k over up to KT tiles of 64 keys, of `keys` keys in all. */
template <int KT>
__device__ __forceinline__ void multiply_tiles(float (&c)[32], const char *ds, const char *k, int keys)
{
#pragma unroll
    for (int tile = 0; tile < KT; tile++) {
        if (tile > 0 && tile * WIDTH >= keys) break;
        uint64_t a = descriptor_transposed(ds + tile * TILE), b = descriptor_transposed(k + tile * TILE);
        fence_registers(c);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) wgmma_transposed_k16(c, a + i * DOWN, b + i * DOWN);
        wgmma_commit();
        wgmma_wait<0>();
        fence_registers(c);
    }
}

/* dq of 64 queries from `first` on: ds of `keys` keys times k. ds: a tile for every 64 keys. */
template <int KT>
__device__ __forceinline__ void store_dq(bf16 *dq, const char *ds, const head &m, const attn_sizes &z, int first,
                                         int keys)
{
    float c[32] = {};
    multiply_tiles<KT>(c, ds, m.k, keys);
    int row0 = first + (int)threadIdx.x % 128 / 32 * 16;
    if (row0 < z.Tp) store_rows(dq, 3 * z.C, c, z.scale, row0, z.T, m.q);
}

template <int KT>
__device__ __forceinline__ head head_of(char *memory)
{
    enum { R = KT * WIDTH };
    char *k = shared_begin(memory), *ds = k + 4 * R * ROW;
    float *lse = (float *)(ds + (KT > 1 ? 2 : 1) * KT * TILE);
    return { k, k + R * ROW, k + 2 * R * ROW, k + 3 * R * ROW, ds, lse, lse + R };
}

template <int KT, bool PACKED>
__global__ void __launch_bounds__(128 * KT, 4 / KT) wide_kernel(const __grid_constant__ wide_call j)
{
    extern __shared__ char memory[];
    attn_sizes z = j.z;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H, own = KT == 1 ? 0 : warp_number() / 4;
    attn_position position = position_of<PACKED>(z, n, h);
    z.Tp = (z.T + WIDTH - 1) / WIDTH * WIDTH;
    head m = head_of<KT>(memory);
    int64_t at = position.row * 3 * z.C + h * WIDTH, out = position.row * z.C + h * WIDTH;
    attn_rows rows = { (bf16 *)m.q, (bf16 *)m.k, (bf16 *)m.v, (bf16 *)m.dy, m.lse, m.dot_dy_y, NULL };
    load_rows<WIDTH, swizzled>(rows, m.lse, m.dot_dy_y, j.qkv + at, j.dy + out, j.y + out, j.lse + position.head, z);
    z.Tp = whole_tiles(z.T);
    shared_publish();
    __syncthreads();
    float dk[32] = {}, dv[32] = {};
    int key = own * WIDTH;
    for (int first = 0, turn = 0; first < z.T && (KT > 1 || first == 0); first += WIDTH, turn++) {
        char *ds = m.ds + (turn & 1) * KT * TILE;
        if (key < z.T && !(z.causal && key > first))
            for (int i = first; i < first + WIDTH && i < z.T; i += W)
                add_queries(dk, dv, ds + own * TILE, m, z, key, i);
        shared_publish();
        __syncthreads(); /* ds is written; q and dy of these queries have been read */
        int keys = z.causal ? min(first + WIDTH, z.T) : z.T;
        if (own == turn % KT) store_dq<KT>(j.dqkv + at, ds, m, z, first, keys);
    }
    int row0 = key + (int)threadIdx.x % 128 / 32 * 16;
    if (row0 < z.Tp) {
        store_rows(j.dqkv + at + 2 * z.C, 3 * z.C, dv, 1.0f, row0, z.T, m.v);
        store_rows(j.dqkv + at + z.C, 3 * z.C, dk, z.scale, row0, z.T, m.dy);
    }
    if (!j.sums) return;
    __syncthreads();
    const bf16 *q = rows.q, *k = rows.dy, *v = rows.v;
    sum_columns<WIDTH, swizzled>(j.sums + (int64_t)n * 3 * z.C + h * WIDTH, q, k, v, z);
}

/* ---- launchers ----------------------------------------------------------------------------------- */

wide_call wide_call_of(const op_args *a, const op_sequences &s, float *sums)
{
    return { (bf16 *)a->out[0].data,      sums,
             (const bf16 *)a->in[0].data, (const bf16 *)a->in[1].data,
             (const bf16 *)a->in[2].data, (const float *)a->in[3].data,
             sizes_of(a, s, &a->in[2]) };
}

template <int KT, bool PACKED>
cloob_status launch(const op_env *env, const wide_call &j, int64_t N)
{
    size_t smem = 1024 + (size_t)KT * ((KT > 1 ? 6 : 5) * TILE + 2 * WIDTH * sizeof(float));
    auto kernel = wide_kernel<KT, PACKED>;
    CLOOB_TRY(cuda_check(env->ctx, allow_shared_memory(kernel), "attention_bwd"));
    kernel<<<(unsigned)(N * j.z.H), 128 * KT, smem, stream_of(env)>>>(j);
    return cuda_launched(env->ctx, "attention_bwd");
}

template <bool PACKED>
cloob_status launch_for(const op_env *env, const wide_call &j, int64_t N)
{
    if (j.z.T <= WIDTH) return launch<1, PACKED>(env, j, N);
    return j.z.T <= 2 * WIDTH ? launch<2, PACKED>(env, j, N) : launch<4, PACKED>(env, j, N);
}

} // namespace

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" bool attention_bwd_wide_takes(const op_env *env, const op_args *a)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    int64_t C = tensor_cols(&a->in[2]);
    return cuda_has_hopper(env->dev) && a->in[2].dtype == CLOOB_BF16 && C == a->attr.heads * WIDTH && s.T <= 4 * WIDTH;
}

extern "C" cloob_status attention_bwd_wide(const op_env *env, const op_args *a, float *sums)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    wide_call j = wide_call_of(a, s, sums);
    return s.start ? launch_for<true>(env, j, s.N) : launch_for<false>(env, j, s.N);
}
