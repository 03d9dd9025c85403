/* Attention's backward pass on tensor cores, three ways, of which timing chooses. No sum has more than one order.
 *
 * shared: a block per row of the batch and head. Scores are computed once, by the queries' warps, and lie in shared
 *         memory for the keys' sums.
 * wide:   by Hopper's warpgroups (attention_bwd_wide.cu).
 * passes: any length (attention_bwd_passes.cu). */
#include <stdio.h>
#include <stdlib.h>

#include "nn/cuda/attention_bwd.cuh"
#include "tensor/cuda/tune.h"

enum { MIDDLE_WARPS = 13, SHARED_WARPS = 20 }; /* 208 tokens, ViT-B-16's, and 320 */

/* What the scores become, in shared memory: p and ds of all queries and the keys of a chunk. */
typedef struct attn_scores {
    bf16 *p, *ds;
    int ld;        /* an odd multiple of 8: eight rows fall on different banks */
    int from, end; /* key tiles of the chunk */
} attn_scores;

__device__ __forceinline__ void put_tile(bf16 *to, int ld, const unsigned a[4])
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 4; i++)
        *reinterpret_cast<unsigned *>(to + (lane / 4 + 8 * (i % 2)) * ld + 8 * (i / 2) + lane % 4 * 2) = a[i];
}

/* The transpose of a stored tile as a left operand. */
__device__ __forceinline__ void turned_tile(unsigned a[4], const bf16 *from, int ld)
{
    int lane = threadIdx.x & 31;
    ldmatrix_trans(a, from + ((lane >> 4) * 8 + (lane & 7)) * ld + ((lane >> 3) & 1) * 8);
}

/* Query tile t against the chunk's keys: p and ds to shared memory, dq += ds k. */
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
    float along[2] = { m.along[t * 16 + row_in_tile(0)], m.along[t * 16 + row_in_tile(2)] };
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
        for (int i = 0; i < 8; i++) dp[i / 4][i % 4] = s[i / 4][i % 4] * (dp[i / 4][i % 4] - along[i % 4 / 2]);
        pack_tile(packed, s);
        put_tile(c.p + at, c.ld, packed);
        pack_tile(packed, dp);
        put_tile(c.ds + at, c.ld, packed);
        tl::add_product(dq, packed, m.k, j * 16);
    }
}

/* Of key tile t: to = scale (scores)^T rows, over all queries that see it. */
template <int D>
__device__ static void sum_tile(bf16 *to, float scale, const bf16 *scores, const bf16 *rows, bf16 *stage,
                                const attn_scores &c, const attn_sizes &z, int t)
{
    typedef tile<D> tl;
    unsigned a[4];
    float acc[D / 8][4] = {};
    for (int j = z.causal ? t : 0; j < z.Tp / 16; j++) {
        turned_tile(a, scores + j * 16 * c.ld + (t - c.from) * 16, c.ld);
        tl::add_product(acc, a, rows, j * 16);
    }
    tl::write(to, 3 * z.C, acc, scale, t * 16, z.T, stage + t * 16 * tl::LD);
}

/* A warp for every tile of queries. Keys go by in chunks of `chunk` tiles: first every warp computes the scores of its
 * queries and adds to dq, then the chunk's dv and dk are shared out over the warps, dk from the last tile on, so that a
 * warp with much of a causal dv has little of dk. Rows of k and v are read in their own chunk alone, so that dk and dv
 * leave by way of them. sums: (N, 3 C), of each sequence, or NULL; round.to may be NULL, too. */
template <int D, bool PACKED, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, WARPS <= MAX_WARPS ? 2 : 1)
    shared_kernel(bf16 *dqkv, float *sums, round_out round, const bf16 *dy, const bf16 *qkv, const bf16 *y,
                  const float *lse, attn_sizes z, int chunk)
{
    extern __shared__ __align__(16) bf16 smem[];
    typedef tile<D> tl;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    attn_place place = place_of<PACKED>(z, n, h);
    int tiles = z.Tp / 16;
    bf16 *q = smem, *k = q + z.Tp * tl::LD, *v = k + z.Tp * tl::LD, *g = v + z.Tp * tl::LD, *p = g + z.Tp * tl::LD;
    attn_scores c = { p, p + z.Tp * (16 * chunk + 8), 16 * chunk + 8, 0, 0 };
    float *lse2 = (float *)(c.ds + z.Tp * c.ld), *along = lse2 + z.Tp, dq[D / 8][4] = {};
    int64_t at = place.row * 3 * z.C + h * D, out = place.row * z.C + h * D;
    attn_rows m = { q, k, v, g, lse2, along, NULL };
    take_rows<D, tl>(m, lse2, along, qkv + at, dy + out, y + out, lse + place.head, z);
    for (c.from = 0; c.from < tiles; c.from = c.end) {
        c.end = min(c.from + chunk, tiles);
        __syncthreads(); /* the rows are there; the chunk before has been read */
        if (warp < tiles) score_tile<D>(dq, c, m, z, warp);
        __syncthreads();
        for (int task = warp, keys = c.end - c.from; task < 2 * keys; task += warps) {
            if (task < keys) sum_tile<D>(dqkv + at + 2 * z.C, 1.0f, c.p, g, v, c, z, c.from + task);
            else sum_tile<D>(dqkv + at + z.C, z.scale, c.ds, q, k, c, z, c.end - 1 - (task - keys));
        }
    }
    __syncthreads();
    if (warp < tiles) tl::write(dqkv + at, 3 * z.C, dq, z.scale, warp * 16, z.T, q + warp * 16 * tl::LD);
    if (!sums && !round.to) return;
    __syncthreads();
    if (sums) sum_columns<D, tl>(sums + (int64_t)n * 3 * z.C + h * D, q, k, v, z);
    if (round.to) round_rows<D, tl>(round, at, q, k, v, z);
}

/* ---- launchers ----------------------------------------------------------------------------------- */

/* Key tiles of a chunk: as many as shared memory holds; 0: not even one, or more tiles than warps. */
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
        (bf16 *)a->out[0].data, (float *)(a->out[1].data ? a->scratch : NULL),
        rounding_is_fused(a) ? round_out_of(a) : round_out{}, (const bf16 *)a->in[0].data, (const bf16 *)a->in[1].data,
        (const bf16 *)a->in[2].data, (const float *)a->in[3].data, z, chunk);
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

enum { SHARED, WIDE, PASSES, WAYS, PLAIN = WAYS };

typedef struct attn_state {
    rounding round;  /* first: what quantize.h reads of a state */
    int way;         /* PLAIN: no kernel on tensor cores takes the call */
    size_t along_at; /* PASSES: where in scratch */
} attn_state;

/* Whether the kernel leaves the sums of each sequence, and an 8-bit copy. */
static bool leaves_more(int way) { return way == SHARED || way == WIDE; }

static bool way_takes(const op_env *env, const op_args *a, int way)
{
    attn_sizes z = sizes_of(a, op_sequences_of(&a->attr, &a->in[1], &a->in[4]), &a->in[2]);
    if (way == WIDE) return attention_bwd_wide_takes(env, a);
    if (way == PASSES) return passes_take(&a->in[2], z);
    return on_tensor_cores(env, &a->in[2], z, 4) && chunk_for(env, z, z.C / z.H) > 0;
}

static cloob_status launch_way(const op_env *env, const op_args *a, int way, float *along)
{
    static launch_fn *const launch[2][2] = { { launch_shared<32, false>, launch_shared<64, false> },
                                             { launch_shared<32, true>, launch_shared<64, true> } };
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    attn_sizes z = sizes_of(a, s, &a->in[2]);
    if (way == WIDE) return attention_bwd_wide(env, a, (float *)(a->out[1].data ? a->scratch : NULL));
    if (way == PASSES) return attention_bwd_passes(env, a, along);
    return launch[s.start != NULL][z.C / z.H == 64](env, a, z, s.N);
}

typedef struct trial {
    const op_env *env;
    op_args call;
    tensor along;
    int way;
} trial;

static cloob_status trial_run(void *user)
{
    trial *t = (trial *)user;
    return launch_way(t->env, &t->call, t->way, (float *)t->along.data);
}

static cloob_status trial_take(trial *t, tensor *x)
{
    return cuda_trial_noise(t->env->ctx, t->env->dev, x->dtype, tensor_count(x), &x->data);
}

static tensor shape3(cloob_dtype dtype, int64_t a, int64_t b, int64_t c)
{
    tensor t = {};
    t.dtype = dtype, t.ndim = 3;
    t.dim[0] = a, t.dim[1] = b, t.dim[2] = c;
    return t;
}

/* A call with rows of equal length, for packed ones of their mean. */
static op_args even_call(const op_args *a, const op_sequences &s)
{
    int64_t N = s.N, T = op_has(&a->in[4]) ? (s.rows / s.N < 1 ? 1 : s.rows / s.N) : s.T, C = tensor_cols(&a->in[2]);
    op_args e = {};
    T = T > s.T ? s.T : T;
    for (int k = 0; k < OP_INPUTS; k++) e.in[k].ndim = -1;
    for (int k = 0; k < OP_OUTPUTS; k++) e.out[k].ndim = -1;
    e.attr = a->attr;
    e.in[0] = e.in[2] = shape3(CLOOB_BF16, N, T, C);
    e.in[1] = e.out[0] = shape3(CLOOB_BF16, N, T, 3 * C);
    e.in[3] = shape3(CLOOB_F32, N, a->attr.heads, T);
    return e;
}

/* The fastest of the ways that take the call; ms of each, infinite of the others. */
static int time_ways(const op_env *env, const op_args *a, const op_sequences &s, float ms[WAYS])
{
    cuda_state *state = cuda_use(env->dev);
    cudaStream_t own = state->stream;
    op_env there = *env;
    there.stream = own;
    trial t = { &there, even_call(a, s), {}, 0 };
    tensor *operand[] = { &t.call.in[0], &t.call.in[1], &t.call.in[2], &t.call.in[3], &t.call.out[0], &t.along };
    t.along = t.call.in[3];
    bool room = true;
    int best = -1;
    for (tensor *x : operand) room = room && trial_take(&t, x) == CLOOB_OK;
    for (t.way = 0; t.way < WAYS; t.way++) {
        ms[t.way] = INFINITY;
        if (!way_takes(env, a, t.way)) continue;
        if (!room || cuda_time(env->ctx, env->dev, trial_run, &t, &ms[t.way]) != CLOOB_OK) ms[t.way] = INFINITY;
        if (best < 0 || ms[t.way] < ms[best]) best = t.way;
    }
    for (tensor *x : operand) cuda_trial_free(env->dev, x->data);
    return best;
}

static int choose_way(const op_env *env, const op_args *a)
{
    int asked = (int)env->ctx->kernels.attention_backward - ATTENTION_SHARED, takers = 0;
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    attn_sizes z = sizes_of(a, s, &a->in[2]);
    tune_cache *cache = cuda_use(env->dev)->tune;
    float ms[WAYS];
    char key[TUNE_KEY];
    int32_t way = PLAIN;
    for (int w = 0; w < WAYS; w++)
        if (way_takes(env, a, w)) takers++, way = w;
    if (asked >= 0 && asked < WAYS && way_takes(env, a, asked)) return asked;
    if (takers < 2) return way;
    snprintf(key, sizeof key, "attention-backward-%lld,%lld,%d,%d,%d-%d", (long long)s.N, (long long)s.rows, z.T, z.C,
             z.H, z.causal);
    if (tune_get(cache, key, &way, sizeof way) && way >= 0 && way < WAYS && way_takes(env, a, way)) return way;
    way = time_ways(env, a, s, ms);
    tune_put(cache, key, &way, sizeof way);
    ctx_log(env->ctx, CLOOB_LOG_DEBUG, "attention_bwd %s: shared %.4f ms, by warpgroups %.4f, in passes %.4f", key,
            (double)ms[SHARED], (double)ms[WIDE], (double)ms[PASSES]);
    return way;
}

/* ---- entry points -------------------------------------------------------------------------------- */

/* What a sequence's sums take, one after the other; behind them the scratch of the pass that adds them. */
static size_t sums_bytes(const op_args *a, const op_sequences &s)
{
    return cuda_align((size_t)(s.N * tensor_cols(&a->out[0])) * sizeof(float));
}

static cloob_status state_make(const op_env *env, op_args *a, attn_state **out)
{
    a->state = *out = (attn_state *)calloc(1, sizeof **out);
    if (!*out) return ctx_no_memory(env->ctx, sizeof **out, "attention");
    (*out)->way = PLAIN;
    return op_has(&a->out[OP_ROUNDED_OUT]) ? rounding_open(env, &(*out)->round) : CLOOB_OK;
}

extern "C" cloob_status attention_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    attn_state *state;
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    int64_t C3 = tensor_cols(&a->out[0]);
    CLOOB_TRY(state_make(env, a, &state));
    state->way = choose_way(env, a);
    if (a->attr.sums) {
        size_t few = colsum_scratch(env->dev, s.N, C3, CLOOB_F32),
               all = colsum_scratch(env->dev, s.rows, C3, a->out[0].dtype);
        a->scratch_bytes = sums_bytes(a, s) + (few > all ? few : all);
    }
    state->along_at = cuda_align(a->scratch_bytes);
    if (state->way == PASSES) a->scratch_bytes = state->along_at + tensor_bytes(&a->in[3]);
    return CLOOB_OK;
}

/* Bytes of dead rows in the copy are 0, too. */
static cloob_status zero_dead_copy(const op_env *env, const op_args *a, const op_sequences &s)
{
    tensor bytes = {};
    bytes.data = a->out[OP_ROUNDED_OUT].data;
    bytes.dtype = CLOOB_U8, bytes.ndim = 2;
    bytes.dim[0] = s.rows, bytes.dim[1] = tensor_cols(&a->out[0]);
    return zero_dead_cuda(env, "attention_bwd", &s, &bytes, NULL);
}

/* Of the sums that the kernel left of each sequence, or of all rows. One launch is enough for few sequences. */
static cloob_status bias_sums(const op_env *env, const op_args *a, const op_sequences &s, int way)
{
    enum { FEW = 256 };
    const tensor *dqkv = &a->out[0];
    float *sums = (float *)a->out[1].data;
    int64_t C3 = tensor_cols(dqkv);
    void *rest = (char *)a->scratch + sums_bytes(a, s);
    if (!sums) return CLOOB_OK;
    if (!leaves_more(way)) return colsum(env, "attention_bwd", sums, dqkv->data, dqkv->dtype, s.rows, C3, 0, rest);
    if (s.N <= FEW) return colsum_finish(env, "attention_bwd", sums, (const float *)a->scratch, (int)s.N, C3);
    return colsum(env, "attention_bwd", sums, a->scratch, CLOOB_F32, s.N, C3, 0, rest);
}

extern "C" cloob_status attention_bwd_cuda(const op_env *env, const op_args *a)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    const attn_state *state = (const attn_state *)a->state;
    int way = state ? state->way : PLAIN;
    bool copied = leaves_more(way) && rounding_is_fused(a);
    float *along = way == PASSES ? (float *)((char *)a->scratch + state->along_at) : NULL;
    if (s.start) CLOOB_TRY(zero_dead_cuda(env, "attention_bwd", &s, &a->out[0], NULL));
    if (s.start && copied) CLOOB_TRY(zero_dead_copy(env, a, s));
    CLOOB_TRY(way == PLAIN ? attention_bwd_plain(env, a) : launch_way(env, a, way, along));
    CLOOB_TRY(bias_sums(env, a, s, way));
    return copied ? rounding_end(env, "attention_bwd", a, QUANT_E5M2)
                  : rounding_pass(env, "attention_bwd", a, QUANT_E5M2);
}
