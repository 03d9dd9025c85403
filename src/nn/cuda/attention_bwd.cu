/* Attention's backward pass on tensor cores in three variants. All sums have a fixed order.
 *
 * shared: a block per row of the batch and head. The queries' warps compute the scores once and store them in shared
 *         memory for the keys' sums.
 * wide:   by Hopper's warpgroups (attention_bwd_wide.cu).
 * passes: any length (attention_bwd_passes.cu). */
#include "nn/cuda/attention_bwd.cuh"

enum { MIDDLE_WARPS = 13, SHARED_WARPS = 20 }; /* 208 tokens (ViT-B-16) and 320 */

/* p and ds of all queries and the keys of a chunk, in shared memory. */
typedef struct attn_scores {
    bf16 *p, *ds;
    int ld;        /* an odd multiple of 8: eight rows are on different banks */
    int from, end; /* key tiles of the chunk */
} attn_scores;

__device__ __forceinline__ void store_tile(bf16 *to, int ld, const unsigned a[4])
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 4; i++)
        *reinterpret_cast<unsigned *>(to + (lane / 4 + 8 * (i % 2)) * ld + 8 * (i / 2) + lane % 4 * 2) = a[i];
}

/* Loads the transpose of a stored tile as a left operand. */
__device__ __forceinline__ void load_transposed_tile(unsigned a[4], const bf16 *from, int ld)
{
    int lane = threadIdx.x & 31;
    ldmatrix_trans(a, from + ((lane >> 4) * 8 + (lane & 7)) * ld + ((lane >> 3) & 1) * 8);
}

/* Query tile t and the chunk's keys: writes p and ds to shared memory, dq += ds k. */
template <int D>
__device__ static void score_tile(float dq[D / 8][4], const attn_scores &c, const attn_rows &m, const attn_sizes &z,
                                  int t)
{
    typedef tile<D> tl;
    unsigned a[tl::K][4], g[tl::K][4], packed[4];
    float s[2][4], dp[2][4], scale = z.scale * LOG2E;
    tl::left(a, m.q, t * 16);
    tl::left(g, m.dy, t * 16);
    float lse[2] = { m.lse[t * 16 + row_in_tile(0)], m.lse[t * 16 + row_in_tile(2)] };
    float dot_dy_y[2] = { m.dot_dy_y[t * 16 + row_in_tile(0)], m.dot_dy_y[t * 16 + row_in_tile(2)] };
    for (int j = c.from, last = z.causal && t + 1 < c.end ? t + 1 : c.end; j < last; j++) {
        int at = t * 16 * c.ld + (j - c.from) * 16, seen = z.T - j * 16; /* keys of the tile */
        tl::times_rows(s, a, m.k, j * 16);
        tl::times_rows(dp, g, m.v, j * 16);
#pragma unroll
        for (int i = 0; i < 8; i++) s[i / 4][i % 4] = power2(s[i / 4][i % 4] * scale - lse[i % 4 / 2]);
        if (seen < 16 || (z.causal && j == t)) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int key = col_in_tile(i / 4, i % 4), query = z.causal && j == t ? row_in_tile(i % 4) : 16;
                if (key >= seen || key > query) s[i / 4][i % 4] = 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) dp[i / 4][i % 4] = s[i / 4][i % 4] * (dp[i / 4][i % 4] - dot_dy_y[i % 4 / 2]);
        pack_tile(packed, s);
        store_tile(c.p + at, c.ld, packed);
        pack_tile(packed, dp);
        store_tile(c.ds + at, c.ld, packed);
        tl::add_product(dq, packed, m.k, j * 16);
    }
}

/* For key tile t: to = scale (scores)^T rows, over all queries that attend to it. */
template <int D>
__device__ static void sum_tile(bf16 *to, float scale, const bf16 *scores, const bf16 *rows, bf16 *stage,
                                const attn_scores &c, const attn_sizes &z, int t)
{
    typedef tile<D> tl;
    unsigned a[4];
    float acc[D / 8][4] = {};
    for (int j = z.causal ? t : 0; j < z.Tp / 16; j++) {
        load_transposed_tile(a, scores + j * 16 * c.ld + (t - c.from) * 16, c.ld);
        tl::add_product(acc, a, rows, j * 16);
    }
    tl::write(to, 3 * z.C, acc, scale, t * 16, z.T, stage + t * 16 * tl::LD);
}

/* One warp per tile of queries. Keys are processed in chunks of `chunk` tiles: first every warp computes the scores of
 * its queries and adds to dq, then the warps split the chunk's dv and dk; dk in reverse order, so that a warp with much
 * of a causal dv has little of dk. Rows of k and v are read in their own chunk only, so dk and dv are staged in them.
 * sums: (N, 3 C), per sequence, or NULL. */
template <int D, bool PACKED, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, WARPS <= MAX_WARPS ? 2 : 1)
    shared_kernel(bf16 *dqkv, float *sums, const bf16 *dy, const bf16 *qkv, const bf16 *y, const float *lse,
                  attn_sizes z, int chunk)
{
    extern __shared__ __align__(16) bf16 smem[];
    typedef tile<D> tl;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    attn_position position = position_of<PACKED>(z, n, h);
    int tiles = z.Tp / 16;
    bf16 *q = smem, *k = q + z.Tp * tl::LD, *v = k + z.Tp * tl::LD, *g = v + z.Tp * tl::LD, *p = g + z.Tp * tl::LD;
    attn_scores c = { p, p + z.Tp * (16 * chunk + 8), 16 * chunk + 8, 0, 0 };
    float *lse2 = (float *)(c.ds + z.Tp * c.ld), *dot_dy_y = lse2 + z.Tp, dq[D / 8][4] = {};
    int64_t at = position.row * 3 * z.C + h * D, out = position.row * z.C + h * D;
    attn_rows m = { q, k, v, g, lse2, dot_dy_y, NULL };
    load_rows<D, tl>(m, lse2, dot_dy_y, qkv + at, dy + out, y + out, lse + position.head, z);
    for (c.from = 0; c.from < tiles; c.from = c.end) {
        c.end = min(c.from + chunk, tiles);
        __syncthreads(); /* the rows have been loaded; the previous chunk has been read */
        if (warp < tiles) score_tile<D>(dq, c, m, z, warp);
        __syncthreads();
        for (int task = warp, keys = c.end - c.from; task < 2 * keys; task += warps) {
            if (task < keys) sum_tile<D>(dqkv + at + 2 * z.C, 1.0f, c.p, g, v, c, z, c.from + task);
            else sum_tile<D>(dqkv + at + z.C, z.scale, c.ds, q, k, c, z, c.end - 1 - (task - keys));
        }
    }
    __syncthreads();
    if (warp < tiles) tl::write(dqkv + at, 3 * z.C, dq, z.scale, warp * 16, z.T, q + warp * 16 * tl::LD);
    if (!sums) return;
    __syncthreads();
    sum_columns<D, tl>(sums + (int64_t)n * 3 * z.C + h * D, q, k, v, z);
}

/* ---- launchers ----------------------------------------------------------------------------------- */

/* Key tiles of a chunk: the largest number that fits in shared memory; 0: none fits, or there are more tiles than
 * warps. */
static int chunk_for(const op_env *env, const attn_sizes &z, int D)
{
    size_t limit = (size_t)((const cuda_state *)env->dev->state)->smem_bytes, rows = smem_of(z, 4, D);
    int tiles = z.Tp / 16, chunk = tiles;
    while (chunk > 0 && rows + (size_t)z.Tp * (size_t)(16 * chunk + 8) * 2 * sizeof(bf16) > limit) chunk--;
    return tiles <= SHARED_WARPS ? chunk : 0;
}

template <int D, bool PACKED, int WARPS>
static cloob_status launch_warps(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N)
{
    int chunk = chunk_for(env, z, D);
    size_t smem = smem_of(z, 4, D) + (size_t)z.Tp * (size_t)(16 * chunk + 8) * 2 * sizeof(bf16);
    auto kernel = shared_kernel<D, PACKED, WARPS>;
    CLOOB_TRY(cuda_check(env->ctx, allow_shared_memory(kernel), "attention_bwd"));
    kernel<<<(unsigned)(N * z.H), 2 * (unsigned)z.Tp, smem, stream_of(env)>>>(
        (bf16 *)a->out[0].data, (float *)(a->out[1].data ? a->scratch : NULL), (const bf16 *)a->in[0].data,
        (const bf16 *)a->in[1].data, (const bf16 *)a->in[2].data, (const float *)a->in[3].data, z, chunk);
    return cuda_launched(env->ctx, "attention_bwd");
}

template <int D, bool PACKED>
static cloob_status launch_shared(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N)
{
    int tiles = z.Tp / 16;
    if (tiles <= MAX_WARPS) return launch_warps<D, PACKED, MAX_WARPS>(env, a, z, N);
    return tiles <= MIDDLE_WARPS ? launch_warps<D, PACKED, MIDDLE_WARPS>(env, a, z, N)
                                 : launch_warps<D, PACKED, SHARED_WARPS>(env, a, z, N);
}

/* ---- the choice ---------------------------------------------------------------------------------- */

typedef enum variant { SHARED, WIDE, PASSES, PLAIN } variant;

/* Whether the kernel writes the sums of each sequence. */
static bool has_sums(variant v) { return v == SHARED || v == WIDE; }

/* Timed on an H200: warpgroups are faster than `shared` without a mask (0.18 and 0.22 ms for 1024 x 50), slower with
 * one (0.26 and 0.21 ms for 1024 x 77), and `shared` is faster than passes wherever it fits. */
static variant variant_for(const op_env *env, const op_args *a)
{
    attn_sizes z = sizes_of(a, op_sequences_of(&a->attr, &a->in[1], &a->in[4]), &a->in[2]);
    if (!z.causal && attention_bwd_wide_takes(env, a)) return WIDE;
    if (on_tensor_cores(env, &a->in[2], z, 4) && chunk_for(env, z, z.C / z.H) > 0) return SHARED;
    return passes_support(&a->in[2], z) ? PASSES : PLAIN;
}

static cloob_status launch_variant(const op_env *env, const op_args *a, variant v, float *dot_dy_y)
{
    static launch_fn *const launch[2][2] = { { launch_shared<32, false>, launch_shared<64, false> },
                                             { launch_shared<32, true>, launch_shared<64, true> } };
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    attn_sizes z = sizes_of(a, s, &a->in[2]);
    if (v == PLAIN) return attention_bwd_plain(env, a);
    if (v == WIDE) return attention_bwd_wide(env, a, (float *)(a->out[1].data ? a->scratch : NULL));
    if (v == PASSES) return attention_bwd_passes(env, a, dot_dy_y);
    return launch[s.start != NULL][z.C / z.H == 64](env, a, z, s.N);
}

/* ---- entry points -------------------------------------------------------------------------------- */

static size_t sums_bytes(const op_args *a, const op_sequences &s)
{
    return cuda_align((size_t)(s.N * tensor_cols(&a->out[0])) * sizeof(float));
}

/* Scratch: the sequences' sums, the scratch of the pass that adds them, then dy.y of each query. */
static size_t dot_dy_y_at(const op_env *env, const op_args *a, const op_sequences &s)
{
    int64_t C3 = tensor_cols(&a->out[0]);
    if (!a->attr.sums) return 0;
    size_t few = colsum_scratch(env->dev, s.N, C3, CLOOB_F32),
           all = colsum_scratch(env->dev, s.rows, C3, a->out[0].dtype);
    return sums_bytes(a, s) + cuda_align(few > all ? few : all);
}

extern "C" cloob_status attention_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    a->scratch_bytes = dot_dy_y_at(env, a, s) + (variant_for(env, a) == PASSES ? tensor_bytes(&a->in[3]) : 0);
    return CLOOB_OK;
}

/* Adds the sums of each sequence, or of all rows. One launch is enough for few sequences. */
static cloob_status bias_sums(const op_env *env, const op_args *a, const op_sequences &s, variant v)
{
    enum { FEW = 256 };
    const tensor *dqkv = &a->out[0];
    float *sums = (float *)a->out[1].data;
    int64_t C3 = tensor_cols(dqkv);
    void *rest = (char *)a->scratch + sums_bytes(a, s);
    if (!sums) return CLOOB_OK;
    if (!has_sums(v)) return colsum(env, "attention_bwd", sums, dqkv->data, dqkv->dtype, s.rows, C3, 0, rest);
    if (s.N <= FEW) return colsum_finish(env, "attention_bwd", sums, (const float *)a->scratch, (int)s.N, C3);
    return colsum(env, "attention_bwd", sums, a->scratch, CLOOB_F32, s.N, C3, 0, rest);
}

extern "C" cloob_status attention_bwd_cuda(const op_env *env, const op_args *a)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    variant v = variant_for(env, a);
    if (s.start) CLOOB_TRY(zero_padding_cuda(env, "attention_bwd", &s, &a->out[0], NULL));
    CLOOB_TRY(launch_variant(env, a, v, (float *)((char *)a->scratch + dot_dy_y_at(env, a, s))));
    return bias_sums(env, a, s, v);
}
