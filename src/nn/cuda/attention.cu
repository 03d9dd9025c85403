/* Attention on tensor cores. A warp has the scores of 16 queries and G tiles of keys in registers; with more keys, it
 * continues with its sums rescaled to the larger maximum.
 *
 * forward_kernel: a block per row of the batch and head, everything in shared memory.
 * passes_kernel:  a block per 128 queries or fewer, keys in passes: any length, 36 KB. */
#include "nn/cuda/attention.cuh"

/* Masks the scores of query tile t and key tile j: keys that a query does not attend to become minus infinity. */
__device__ __forceinline__ void mask_scores(float s[2][4], const attn_sizes &z, int t, int j)
{
    int seen = z.T - j * 16;
    bool diagonal = z.causal && j == t;
    if (seen >= 16 && !diagonal) return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int key = col_in_tile(i / 4, i % 4);
        if (key >= seen || (diagonal && key > row_in_tile(i % 4))) s[i / 4][i % 4] = -INFINITY;
    }
}

/* Loads q, k and v; the copies of four rows are issued together. */
template <int D>
__device__ static void load_rows(bf16 *q, bf16 *k, bf16 *v, const bf16 *from, const attn_sizes &z)
{
    typedef tile<D> tl;
    enum { LANES = D / 8 };
    int c = threadIdx.x % LANES * 8, down = blockDim.x / LANES;
    bf16 *const to[3] = { q, k, v };
#pragma unroll 4
    for (int row = threadIdx.x / LANES; row < z.Tp; row += down)
#pragma unroll
        for (int j = 0; j < 3; j++) {
            bf16 *at = to[j] + tl::at(row, c);
            if (row < z.T) copy_async16(at, from + (int64_t)row * 3 * z.C + j * z.C + c);
            else *reinterpret_cast<uint4 *>(at) = make_uint4(0, 0, 0, 0);
        }
    copies_wait();
}

/* Running result of a warp's queries, two rows per lane: o = sum 2^(s - max) v, not yet divided by sum. */
template <int D>
struct running {
    float o[D / 8][4], max[2], sum[2];
};

/* Adds key tiles from j0 on, G of them or up to `last`, to query tile t. */
template <int D, int G>
__device__ __forceinline__ void add_keys(running<D> &w, const unsigned a[tile<D>::K][4], const bf16 *k, const bf16 *v,
                                         const attn_sizes &z, int t, int j0, int last)
{
    typedef tile<D> tl;
    float s[G][2][4], top[2] = { -INFINITY, -INFINITY }, scale = z.scale * LOG2E;
#pragma unroll
    for (int g = 0; g < G; g++)
        if (j0 + g < last) {
            tl::times_rows(s[g], a, k, (j0 + g) * 16);
            mask_scores(s[g], z, t, j0 + g);
#pragma unroll
            for (int i = 0; i < 8; i++) top[i % 4 / 2] = fmaxf(top[i % 4 / 2], s[g][i / 4][i % 4]);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        top[r] = fmaxf(row_max(top[r]) * scale, w.max[r]);
        float rescale = power2(w.max[r] - top[r]);
        w.max[r] = top[r], w.sum[r] *= rescale;
        if (j0 > 0)
#pragma unroll
            for (int i = 0; i < D / 8; i++) w.o[i][2 * r] *= rescale, w.o[i][2 * r + 1] *= rescale;
    }
#pragma unroll
    for (int g = 0; g < G; g++)
        if (j0 + g < last) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                s[g][i / 4][i % 4] = power2(s[g][i / 4][i % 4] * scale - w.max[i % 4 / 2]);
                w.sum[i % 4 / 2] += s[g][i / 4][i % 4];
            }
            tl::add_product(w.o, s[g], v, (j0 + g) * 16);
        }
}

/* Writes y and the log-sum-exp of query tile t, staged in 16 rows of shared memory. */
template <int D>
__device__ __forceinline__ void store_queries(running<D> &w, bf16 *y, float *lse, const attn_position &at,
                                              const attn_sizes &z, int h, int t, bf16 *stage)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = row_sum(w.sum[r]), inverse = 1.0f / sum;
        int query = t * 16 + lane / 4 + 8 * r;
        if (lse && lane % 4 == 0 && query < z.T) lse[at.head + query] = (w.max[r] + log2f(sum)) / LOG2E;
#pragma unroll
        for (int i = 0; i < D / 8; i++) w.o[i][2 * r] *= inverse, w.o[i][2 * r + 1] *= inverse;
    }
    tile<D>::write(y + at.row * z.C + h * D, z.C, w.o, 1.0f, t * 16, z.T, stage);
}

constexpr int blocks_of(int G, bool many) { return many ? 2 : G == 4 ? 6 : 4; }

/* MANY: more than G tiles, and then up to MAX_WARPS warps instead of G. */
template <int D, bool PACKED, int G, bool MANY>
static __global__ void __launch_bounds__(32 * (MANY ? MAX_WARPS : G), blocks_of(G, MANY))
    forward_kernel(bf16 *y, float *lse, const bf16 *qkv, attn_sizes z)
{
    extern __shared__ __align__(16) bf16 smem[];
    typedef tile<D> tl;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H;
    attn_position at = position_of<PACKED>(z, n, h);
    bf16 *q = smem, *k = q + z.Tp * tl::LD, *v = k + z.Tp * tl::LD;
    load_rows<D>(q, k, v, qkv + at.row * 3 * z.C + h * D, z);
    __syncthreads();
    for (int t = threadIdx.x / 32; t * 16 < z.T; t += blockDim.x / 32) {
        unsigned a[tl::K][4];
        running<D> w = { {}, { -INFINITY, -INFINITY }, {} };
        tl::left(a, q, t * 16);
        int last = z.causal ? t + 1 : z.Tp / 16;
        add_keys<D, G>(w, a, k, v, z, t, 0, last);
        for (int j = G; MANY && j < last; j += G) add_keys<D, G>(w, a, k, v, z, t, j, last);
        store_queries<D>(w, y, lse, at, z, h, t, q + t * 16 * tl::LD); /* the rows of q are no longer needed */
        if (!MANY) break;
    }
}

/* One pass of keys in shared memory, k before v, while the next one is copied. */
template <int D, bool PACKED>
static __global__ void __launch_bounds__(32 * MAX_WARPS, 2)
    passes_kernel(bf16 *y, float *lse, const bf16 *qkv, attn_sizes z, int groups)
{
    extern __shared__ __align__(16) bf16 smem[];
    typedef tile<D> tl;
    enum { G = PASS / 16, PASS_ELEMENTS = PASS * tl::LD };
    attn_block block = block_of(z, groups);
    attn_position at = position_of<PACKED>(z, block.n, block.h);
    int tiles = z.Tp / 16, t = block.own, most = min(block.first + (int)blockDim.x / 32, tiles);
    if (block.first >= tiles) return;
    int last = t >= tiles ? 0 : z.causal ? t + 1 : tiles, all = z.causal ? most : tiles;
    const bf16 *from = qkv + at.row * 3 * z.C + block.h * D;
    auto load = [&](int j, bf16 *to) {
        const bf16 *k = from + z.C + (int64_t)j * 16 * 3 * z.C;
        tl::fill(to, k, 3 * z.C, z.T - j * 16, PASS);
        tl::fill(to + PASS_ELEMENTS, k + z.C, 3 * z.C, z.T - j * 16, PASS);
    };
    unsigned a[tl::K][4];
    running<D> w = { {}, { -INFINITY, -INFINITY }, {} };
    load(0, smem);
    tl::left(a, from, 3 * z.C, t * 16, z.T);
    for (int j = 0, turn = 0; j < all; j += G, turn ^= 1) {
        copies_wait();
        __syncthreads(); /* this pass has been copied; the previous one has been read */
        if (j + G < all) load(j + G, smem + (turn ^ 1) * 2 * PASS_ELEMENTS);
        const bf16 *k = smem + turn * 2 * PASS_ELEMENTS - j * 16 * tl::LD;
        if (j < last) add_keys<D, G>(w, a, k, k + PASS_ELEMENTS, z, t, j, last);
    }
    __syncthreads();
    if (t < tiles) store_queries<D>(w, y, lse, at, z, block.h, t, smem + threadIdx.x / 32 * 16 * tl::LD);
}

/* ---- launchers ----------------------------------------------------------------------------------- */

template <int D, bool PACKED>
static cloob_status launch_forward(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N)
{
    size_t smem = smem_of(z, 3, D);
    int tiles = z.Tp / 16, turns = (tiles + MAX_WARPS - 1) / MAX_WARPS, warps = (tiles + turns - 1) / turns;
    auto kernel = tiles <= 4   ? forward_kernel<D, PACKED, 4, false>
                  : tiles == 5 ? forward_kernel<D, PACKED, 5, false>
                               : forward_kernel<D, PACKED, 4, true>;
    CLOOB_TRY(cuda_check(env->ctx, allow_shared_memory(kernel), "attention"));
    kernel<<<(unsigned)(N * z.H), 32 * warps, smem, stream_of(env)>>>((bf16 *)a->out[0].data, (float *)a->out[1].data,
                                                                      (const bf16 *)a->in[0].data, z);
    return cuda_launched(env->ctx, "attention");
}

template <int D, bool PACKED>
static cloob_status launch_passes(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N)
{
    attn_split split = split_tiles(z, MAX_WARPS);
    passes_kernel<D, PACKED>
        <<<(unsigned)(N * z.H * split.groups), 32 * split.warps, 4 * PASS * tile<D>::LD * sizeof(bf16),
           stream_of(env)>>>((bf16 *)a->out[0].data, (float *)a->out[1].data, (const bf16 *)a->in[0].data, z,
                             split.groups);
    return cuda_launched(env->ctx, "attention");
}

/* Whether two blocks with a head each fit on a multiprocessor; if only one fits, passes are faster (64 x 257 on an
 * H200: 0.148 against 0.176 ms). A block may use nearly all of the shared memory. */
static bool two_blocks_fit(const op_env *env, const attn_sizes &z)
{
    return 2 * smem_of(z, 3, z.C / z.H) <= (size_t)((const cuda_state *)env->dev->state)->smem_bytes;
}

/* ---- entry point --------------------------------------------------------------------------------- */

extern "C" cloob_status attention_cuda(const op_env *env, const op_args *a)
{
    static launch_fn *const launch[2][2] = { { launch_forward<32, false>, launch_forward<64, false> },
                                             { launch_forward<32, true>, launch_forward<64, true> } };
    static launch_fn *const passes[2][2] = { { launch_passes<32, false>, launch_passes<64, false> },
                                             { launch_passes<32, true>, launch_passes<64, true> } };
    const tensor *y = &a->out[0];
    op_sequences s = op_sequences_of(&a->attr, &a->in[0], &a->in[1]);
    attn_sizes z = sizes_of(a, s, y);
    if (s.start) CLOOB_TRY(zero_padding_cuda(env, "attention", &s, y, &a->out[1]));
    bool wide = z.C / z.H == 64, packed = s.start != NULL;
    if (on_tensor_cores(env, y, z, 3) && two_blocks_fit(env, z)) return launch[packed][wide](env, a, z, s.N);
    return passes_support(y, z) ? passes[packed][wide](env, a, z, s.N) : attention_plain(env, a);
}
