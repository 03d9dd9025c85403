/* Attention's backward pass for any length, in 37 KB of shared memory; all sums have a fixed order. Two kernels compute
 * the scores: a block of the first owns up to 128 queries and processes the keys in passes; a block of the second owns
 * up to 96 keys and processes the queries in passes. What a block owns is in registers, one tile per warp; the next
 * pass is copied while the current one is processed. */
#include "nn/cuda/attention_bwd.cuh"

enum { KEY_WARPS = 6, TILES = PASS / 16 };

struct passes_call {
    bf16 *dqkv;
    float *dot_dy_y; /* dy.y of every query, in the layout of lse */
    const bf16 *dy, *qkv, *y;
    const float *lse;
    attn_sizes z;
    int groups;
};

/* dy.y of this lane's two queries of tile t; g: their dy. */
template <int D>
__device__ __forceinline__ void dots_dy_y(float dot_dy_y[2], const unsigned g[D / 16][4], const bf16 *y, int64_t step,
                                          int t, int T)
{
    unsigned b[D / 16][4];
    tile<D>::left(b, y, step, t * 16, T);
    dot_dy_y[0] = dot_dy_y[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 4; i++) {
        float2 u = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&g[i / 4][i % 4]));
        float2 v = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&b[i / 4][i % 4]));
        dot_dy_y[i % 2] += u.x * v.x + u.y * v.y;
    }
    dot_dy_y[0] = row_sum(dot_dy_y[0]), dot_dy_y[1] = row_sum(dot_dy_y[1]);
}

/* ---- dq ------------------------------------------------------------------------------------------ */

/* A warp's tile of queries. */
template <int D>
struct query_tile {
    unsigned q[D / 16][4], dy[D / 16][4];
    float lse[2], dot_dy_y[2]; /* log2-sum-exp */
};

/* dq += ds k over key tile j of query tile t. */
template <int D>
__device__ __forceinline__ void add_key_tile(float dq[D / 8][4], const query_tile<D> &w, const bf16 *k, const bf16 *v,
                                             const attn_sizes &z, int t, int j)
{
    typedef tile<D> tl;
    float s[2][4], dp[2][4], scale = z.scale * LOG2E;
    bool diagonal = z.causal && j == t;
    int seen = z.T - j * 16;
    tl::times_rows(s, w.q, k, j * 16);
    tl::times_rows(dp, w.dy, v, j * 16);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float p = power2(s[i / 4][i % 4] * scale - w.lse[i % 4 / 2]);
        dp[i / 4][i % 4] = p * (dp[i / 4][i % 4] - w.dot_dy_y[i % 4 / 2]);
    }
    if (diagonal || seen < 16) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int key = col_in_tile(i / 4, i % 4);
            if (key >= seen || (diagonal && key > row_in_tile(i % 4))) dp[i / 4][i % 4] = 0.0f;
        }
    }
    tl::add_product(dq, dp, k, j * 16);
}

template <int D, bool PACKED>
static __global__ void __launch_bounds__(32 * MAX_WARPS, 2) queries_kernel(const passes_call c)
{
    extern __shared__ __align__(16) bf16 smem[];
    typedef tile<D> tl;
    enum { PASS_ELEMENTS = PASS * tl::LD };
    attn_sizes z = c.z;
    attn_block block = block_of(z, c.groups);
    attn_position at = position_of<PACKED>(z, block.n, block.h);
    int tiles = z.Tp / 16, t = block.own, most = min(block.first + (int)blockDim.x / 32, tiles);
    if (block.first >= tiles) return;
    int last = t >= tiles ? 0 : z.causal ? t + 1 : tiles, all = z.causal ? most : tiles;
    int64_t row = at.row * 3 * z.C + block.h * D, out = at.row * z.C + block.h * D;
    auto load = [&](int j, bf16 *to) {
        const bf16 *k = c.qkv + row + z.C + (int64_t)j * 16 * 3 * z.C;
        tl::fill(to, k, 3 * z.C, z.T - j * 16, PASS);
        tl::fill(to + PASS_ELEMENTS, k + z.C, 3 * z.C, z.T - j * 16, PASS);
    };
    query_tile<D> w;
    float dq[D / 8][4] = {};
    load(0, smem);
    tl::left(w.q, c.qkv + row, 3 * z.C, t * 16, z.T);
    tl::left(w.dy, c.dy + out, z.C, t * 16, z.T);
    dots_dy_y<D>(w.dot_dy_y, w.dy, c.y + out, z.C, t, z.T);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int query = t * 16 + row_in_tile(2 * r);
        w.lse[r] = query < z.T ? c.lse[at.head + query] * LOG2E : INFINITY;
        if (threadIdx.x % 4 == 0 && query < z.T) c.dot_dy_y[at.head + query] = w.dot_dy_y[r];
    }
    for (int j0 = 0, turn = 0; j0 < all; j0 += TILES, turn ^= 1) {
        copies_wait();
        __syncthreads(); /* this pass has been copied; the previous one has been read */
        if (j0 + TILES < all) load(j0 + TILES, smem + (turn ^ 1) * 2 * PASS_ELEMENTS);
        const bf16 *k = smem + turn * 2 * PASS_ELEMENTS - j0 * 16 * tl::LD;
        for (int j = j0; j < j0 + TILES && j < last; j++) add_key_tile<D>(dq, w, k, k + PASS_ELEMENTS, z, t, j);
    }
    __syncthreads();
    if (t < tiles) tl::write(c.dqkv + row, 3 * z.C, dq, z.scale, t * 16, z.T, smem + threadIdx.x / 32 * 16 * tl::LD);
}

/* ---- dk and dv ----------------------------------------------------------------------------------- */

/* A pass of queries in shared memory. */
template <int D>
struct query_pass {
    bf16 q[PASS * tile<D>::LD], dy[PASS * tile<D>::LD];
    float lse[PASS], dot_dy_y[PASS];
};

/* Loads one value per query: `count` of them, then `rest`. */
__device__ __forceinline__ void load_floats(float *to, const float *from, int count, float rest)
{
    for (int i = threadIdx.x; i < PASS; i += blockDim.x) {
        if (i < count) copy_async4(to + i, from + i);
        else to[i] = rest;
    }
}

/* A warp's tile of keys. */
template <int D>
struct key_tile {
    unsigned k[D / 16][4], v[D / 16][4];
    float dk[D / 8][4], dv[D / 8][4];
};

/* dv += p^T dy, dk += ds^T q over query tile j of the pass. Scores are transposed: keys are rows. diagonal: queries and
 * keys are the same tokens, and earlier queries do not attend to later keys. Queries after the last one have an
 * infinite log-sum-exp. */
template <int D>
__device__ __forceinline__ void add_query_tile(key_tile<D> &w, const query_pass<D> &m, const attn_sizes &z, int j,
                                               bool diagonal)
{
    typedef tile<D> tl;
    float s[2][4], dp[2][4], scale = z.scale * LOG2E;
    tl::times_rows(s, w.k, m.q, j * 16);
    tl::times_rows(dp, w.v, m.dy, j * 16);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float2 lse = *reinterpret_cast<const float2 *>(m.lse + j * 16 + col_in_tile(half, 0));
        float2 dot_dy_y = *reinterpret_cast<const float2 *>(m.dot_dy_y + j * 16 + col_in_tile(half, 0));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float p = power2(s[half][i] * scale - (i % 2 ? lse.y : lse.x) * LOG2E);
            if (diagonal && row_in_tile(i) > col_in_tile(half, i)) p = 0.0f;
            s[half][i] = p;
            dp[half][i] = p * (dp[half][i] - (i % 2 ? dot_dy_y.y : dot_dy_y.x));
        }
    }
    tl::add_product(w.dv, s, m.dy, j * 16);
    tl::add_product(w.dk, dp, m.q, j * 16);
}

template <int D, bool PACKED>
static __global__ void __launch_bounds__(32 * KEY_WARPS, 2) keys_kernel(const passes_call c)
{
    extern __shared__ __align__(16) char memory[];
    typedef tile<D> tl;
    query_pass<D> *pass = reinterpret_cast<query_pass<D> *>(memory);
    attn_sizes z = c.z;
    attn_block block = block_of(z, c.groups);
    attn_position at = position_of<PACKED>(z, block.n, block.h);
    int tiles = z.Tp / 16, t = block.own;
    if (block.first >= tiles) return;
    int64_t row = at.row * 3 * z.C + block.h * D, out = at.row * z.C + block.h * D;
    auto load = [&](int j, query_pass<D> &to) {
        int left = z.T - j * 16;
        tl::fill(to.q, c.qkv + row + (int64_t)j * 16 * 3 * z.C, 3 * z.C, left, PASS);
        tl::fill(to.dy, c.dy + out + (int64_t)j * 16 * z.C, z.C, left, PASS);
        load_floats(to.lse, c.lse + at.head + j * 16, left, INFINITY);
        load_floats(to.dot_dy_y, c.dot_dy_y + at.head + j * 16, left, 0.0f);
    };
    key_tile<D> w = {};
    int begin = z.causal ? block.first : 0, own = z.causal ? t : 0;
    load(begin, pass[0]);
    tl::left(w.k, c.qkv + row + z.C, 3 * z.C, t * 16, z.T);
    tl::left(w.v, c.qkv + row + 2 * z.C, 3 * z.C, t * 16, z.T);
    for (int j0 = begin, turn = 0; j0 < tiles; j0 += TILES, turn ^= 1) {
        copies_wait();
        __syncthreads(); /* this pass has been copied; the previous one has been read */
        if (j0 + TILES < tiles) load(j0 + TILES, pass[turn ^ 1]);
        for (int j = max(j0, own); t < tiles && j < j0 + TILES && j < tiles; j++)
            add_query_tile<D>(w, pass[turn], z, j - j0, z.causal && j == t);
    }
    __syncthreads();
    if (t >= tiles) return;
    bf16 *stage = reinterpret_cast<bf16 *>(memory) + threadIdx.x / 32 * 16 * tl::LD;
    tl::write(c.dqkv + row + 2 * z.C, 3 * z.C, w.dv, 1.0f, t * 16, z.T, stage);
    tl::write(c.dqkv + row + z.C, 3 * z.C, w.dk, z.scale, t * 16, z.T, stage);
}

/* ---- entry point --------------------------------------------------------------------------------- */

template <int D, bool PACKED>
static cloob_status launch(const op_env *env, passes_call c, int64_t N)
{
    attn_split queries = split_tiles(c.z, MAX_WARPS), keys = split_tiles(c.z, KEY_WARPS);
    size_t allocated = 4 * PASS * tile<D>::LD * sizeof(bf16);
    c.groups = queries.groups;
    queries_kernel<D, PACKED>
        <<<(unsigned)(N * c.z.H * queries.groups), 32 * queries.warps, allocated, stream_of(env)>>>(c);
    CLOOB_TRY(cuda_launched(env->ctx, "attention_bwd"));
    c.groups = keys.groups;
    keys_kernel<D, PACKED>
        <<<(unsigned)(N * c.z.H * keys.groups), 32 * keys.warps, 2 * sizeof(query_pass<D>), stream_of(env)>>>(c);
    return cuda_launched(env->ctx, "attention_bwd");
}

cloob_status attention_bwd_passes(const op_env *env, const op_args *a, float *dot_dy_y)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    passes_call c = { (bf16 *)a->out[0].data,      dot_dy_y,
                      (const bf16 *)a->in[0].data, (const bf16 *)a->in[1].data,
                      (const bf16 *)a->in[2].data, (const float *)a->in[3].data,
                      sizes_of(a, s, &a->in[2]),   0 };
    if (c.z.C / c.z.H == 64) return s.start ? launch<64, true>(env, c, s.N) : launch<64, false>(env, c, s.N);
    return s.start ? launch<32, true>(env, c, s.N) : launch<32, false>(env, c, s.N);
}
