/* A block works on one image or text. First its scores (H, T) over all channels, a warp taking every W-th pair of runs
 * of 32 of them; the warps' sums are added in order. Then the softmax, or its backward rule. Then the results over all
 * channels, a warp again taking every W-th pair: t is read a second time, from the L2 cache where that still has it.
 * Tokens that the query does not see are not read.
 *
 * No tile passes through shared memory. A lane loads 16 bytes of a row, eight channels, where mma.sync wants channels
 * 2 q and 2 q + 8 and their neighbours: the sum over channels does not care about their order, as long as both
 * factors have the same. Where tokens or heads are summed over, a lane loads four channels of two rows and pairs them
 * up; its column g of the i-th product then is channel 4 g + i, which makes eight neighbouring channels of a lane's
 * results. */
#include "nn/cuda/mma.cuh"
#include "nn/cuda/pool/pool_kernel.h"

enum {
    TILE = 16,    /* heads; a group has one tile or two */
    TOKENS = 64,  /* a group: eight tiles of 8, or four of 16 */
    CHANNELS = 32 /* a run */
};

typedef struct pool_sizes {
    int T, C, H;                  /* T: the most tokens of a sequence */
    int Tp, Hp;                   /* in whole groups */
    int ld;                       /* from row to row of p and dz in shared memory: eight rows fall on different banks */
    const int32_t *index, *start; /* as in op_list.h */
} pool_sizes;

/* The rows of t that are a block's own, and how many of them its query sees. */
typedef struct pool_place {
    int64_t row;
    int rows, seen;
} pool_place;

typedef struct pool_rooms {
    float *partial; /* (W, group of heads, LDP) */
    float *score;   /* (Hp, Tp) */
    bf16 *p, *dz;   /* (Hp, ld) each; 0 where there is no token or head */
} pool_rooms;

enum { LDP = TOKENS + 8 };

/* M: tiles of a group of heads. */
static __host__ __device__ __forceinline__ size_t rooms_bytes(const pool_sizes &z, int warps, int M)
{
    return ((size_t)warps * M * TILE * LDP + (size_t)z.Hp * z.Tp) * sizeof(float) +
           2 * (size_t)z.Hp * z.ld * sizeof(bf16);
}

static __device__ __forceinline__ pool_rooms rooms_at(char *shared, const pool_sizes &z, int warps, int M)
{
    pool_rooms r;
    r.partial = (float *)shared;
    r.score = r.partial + warps * M * TILE * LDP;
    r.p = (bf16 *)(r.score + z.Hp * z.Tp);
    r.dz = r.p + z.Hp * z.ld;
    return r;
}

static __device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }

static __device__ __forceinline__ pool_place place_of(const pool_sizes &z, int64_t n)
{
    if (!z.start) return { n * z.T, z.T, z.index ? least(z.index[n] + 1, z.T) : z.T };
    int first = z.start[n], rows = z.start[n + 1] - first;
    return { first, rows, rows };
}

/* Rows of a matrix in groups of eight, of which a lane reads row `lane`; those that are not there become the last one.
 * All but one addend is the same for the whole warp. */
struct eights {
    int last, over, C; /* the last group's first row; what brings this lane back into it */

    __device__ __forceinline__ eights(int rows, int lane, int C) : last((rows - 1) / 8 * 8), C(C)
    {
        over = least(rows - 1 - last - lane, 0) * C;
    }
    __device__ __forceinline__ int offset(int row0) const { return row0 < last ? row0 * C : last * C + over; }
};

/* Loads that bring the whole line of 128 bytes into the L2 cache; the other half of it is the warp's next run. */
static __device__ __forceinline__ uint4 load16(const bf16 *p)
{
    uint4 v;
    asm("ld.global.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
static __device__ __forceinline__ uint2 load8(const bf16 *p)
{
    uint2 v;
    asm("ld.global.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

/* A warp's runs of channels: two neighbouring ones, then those of the other W - 1 warps are passed over. */
static __device__ __forceinline__ int first_run() { return (int)(threadIdx.x >> 5) * 2 * CHANNELS; }
template <int W>
static __device__ __forceinline__ int next_run(int c)
{
    return c & CHANNELS ? c + (2 * W - 1) * CHANNELS : c + CHANNELS;
}

/* ---- scores ---------------------------------------------------------------------------------------- */

/* This warp's part of a . b over channels, a from head h0, b from token t0 on. Rows that are not there are read as the
 * last one, and nobody reads their sums. */
template <int W, int M>
static __device__ __forceinline__ void score_part(float *out, const bf16 *a, const bf16 *b, const pool_sizes &z,
                                                  int seen, int h0, int t0)
{
    int lane = threadIdx.x & 31, g = lane >> 2, q = lane & 3;
    int tiles = least((seen - t0 + 7) / 8, TOKENS / 8);
    float sum[M][TOKENS / 8][4] = {};
    eights heads(z.H, g, z.C), tokens(seen, g, z.C);
    a += g * z.C + q * 8, b += g * z.C + q * 8;
    for (int c = first_run(); c < z.C; c = next_run<W>(c)) {
        uint4 left[2 * M], right[TOKENS / 8];
#pragma unroll
        for (int i = 0; i < 2 * M; i++) left[i] = load16(a + c + heads.offset(h0 + i * 8));
#pragma unroll
        for (int i = 0; i < TOKENS / 8; i++)
            if (M > 1 || i < tiles) /* beside two tiles of heads, conditions cost registers that are not there */
                right[i] = load16(b + c + tokens.offset(t0 + i * 8));
        unsigned low[M][4], high[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            uint4 x = left[2 * m], y = left[2 * m + 1];
            low[m][0] = x.x, low[m][1] = y.x, low[m][2] = x.y, low[m][3] = y.y;
            high[m][0] = x.z, high[m][1] = y.z, high[m][2] = x.w, high[m][3] = y.w;
        }
#pragma unroll
        for (int i = 0; i < TOKENS / 8; i++) {
            if (i >= tiles) continue;
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma(sum[m][i], low[m], right[i].x, right[i].y);
                mma(sum[m][i], high[m], right[i].z, right[i].w);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < TOKENS / 8; i++) {
            float *at = out + (m * TILE + g) * LDP + i * 8 + q * 2;
            *(float2 *)at = make_float2(sum[m][i][0], sum[m][i][1]);
            *(float2 *)(at + 8 * LDP) = make_float2(sum[m][i][2], sum[m][i][3]);
        }
}

/* score (Hp, Tp) = a b^T for one sequence. */
template <int W, int M>
static __device__ __forceinline__ void scores(const pool_rooms &r, const bf16 *a, const bf16 *b, const pool_sizes &z,
                                              int seen)
{
    const int HEADS = M * TILE;
    for (int h0 = 0; h0 < z.Hp; h0 += HEADS)
        for (int t0 = 0; t0 < seen; t0 += TOKENS) {
            score_part<W, M>(r.partial + (threadIdx.x >> 5) * HEADS * LDP, a, b, z, seen, h0, t0);
            __syncthreads();
            for (int i = threadIdx.x; i < HEADS * TOKENS; i += W * 32) {
                int row = i / TOKENS, column = i % TOKENS;
                float sum = 0.0f;
#pragma unroll
                for (int w = 0; w < W; w++) sum += r.partial[(w * HEADS + row) * LDP + column];
                r.score[(h0 + row) * z.Tp + t0 + column] = sum;
            }
            __syncthreads();
        }
}

/* ---- between scores and results: a warp to a row ----------------------------------------------------- */

template <int W>
static __device__ __forceinline__ void softmax(const pool_rooms &r, float *p, const pool_sizes &z, int seen)
{
    int lane = threadIdx.x & 31;
    for (int h = threadIdx.x >> 5; h < z.Hp; h += W) {
        float *row = r.score + h * z.Tp, max = -INFINITY, sum = 0.0f;
        for (int j = lane; j < seen; j += 32) max = fmaxf(max, row[j]);
        max = warp_max(max);
        for (int j = lane; j < seen; j += 32) sum += row[j] = expf(row[j] - max);
        sum = warp_sum(sum);
        for (int j = lane; j < z.ld; j += 32) {
            float v = h < z.H && j < seen ? row[j] / sum : 0.0f;
            if (p && h < z.H && j < z.T) p[h * z.T + j] = v;
            r.p[h * z.ld + j] = from_float<bf16>(v);
        }
    }
    __syncthreads();
}

/* The scores are dp: dz = p (dp - sum p dp). */
template <int W>
static __device__ __forceinline__ void softmax_bwd(const pool_rooms &r, const float *p, const pool_sizes &z, int seen)
{
    int lane = threadIdx.x & 31;
    for (int h = threadIdx.x >> 5; h < z.Hp; h += W) {
        const float *dp = r.score + h * z.Tp, *row = p + least(h, z.H - 1) * z.T;
        float along = 0.0f;
        for (int j = lane; j < seen; j += 32) along += row[j] * dp[j];
        along = warp_sum(along);
        for (int j = lane; j < z.ld; j += 32) {
            bool there = h < z.H && j < seen;
            float v = there ? row[j] : 0.0f, d = there ? dp[j] : 0.0f;
            r.p[h * z.ld + j] = from_float<bf16>(v);
            r.dz[h * z.ld + j] = from_float<bf16>(v * (d - along));
        }
    }
    __syncthreads();
}

/* ---- results ----------------------------------------------------------------------------------------- */

/* Four channels of rows 2 q, 2 q + 1, 2 q + 8, 2 q + 9 behind row0, of at most `rows`. */
struct quad {
    uint2 v[4];

    __device__ __forceinline__ void load(const bf16 *x, int row0, int rows, int C)
    {
        int q = threadIdx.x & 3;
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = load8(x + least(row0 + 2 * q + (i & 1) + (i >> 1) * 8, rows - 1) * C);
    }
    /* The i-th channel of both pairs of rows, as a right operand. */
    __device__ __forceinline__ unsigned pair(int half, int i) const
    {
        uint2 a = v[2 * half], b = v[2 * half + 1];
        return __byte_perm(i < 2 ? a.x : a.y, i < 2 ? b.x : b.y, i & 1 ? 0x7632 : 0x5410);
    }
};

/* sum (the first `tiles` of M tiles of 16 rows, 32 channels) += a (from shared memory, M x 16) x (16, 32 channels). */
template <int M, bool TRANSPOSED>
static __device__ __forceinline__ void mix(float sum[M][4][4], const bf16 *a, int ld, const quad &x, int tiles)
{
    int lane = threadIdx.x & 31;
    unsigned b[4][2];
#pragma unroll
    for (int i = 0; i < 4; i++) b[i][0] = x.pair(0, i), b[i][1] = x.pair(1, i);
#pragma unroll
    for (int m = 0; m < M; m++) {
        unsigned left[4];
        if (m >= tiles) continue;
        if (TRANSPOSED) ldmatrix_trans(left, a + ((lane >> 4) * 8 + (lane & 7)) * ld + m * 16 + (lane >> 3 & 1) * 8);
        else ldmatrix(left, a + (m * 16 + (lane & 15)) * ld + (lane >> 4) * 8);
#pragma unroll
        for (int i = 0; i < 4; i++) mma(sum[m][i], left, b[i][0], b[i][1]);
    }
}

/* Rows row0.. of y (rows, C), at this lane's eight channels. */
template <int M>
static __device__ __forceinline__ void write(bf16 *y, const float sum[M][4][4], int row0, int rows, int C)
{
    int g = (threadIdx.x & 31) >> 2;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int row = row0 + m * 16 + k * 8 + g, e = 2 * k;
            uint4 v = { pack2(sum[m][0][e], sum[m][1][e]), pack2(sum[m][2][e], sum[m][3][e]),
                        pack2(sum[m][0][e + 1], sum[m][1][e + 1]), pack2(sum[m][2][e + 1], sum[m][3][e + 1]) };
            if (row < rows) *(uint4 *)(y + row * C) = v;
        }
}

/* Tiles of 16 of the tokens that are seen, in the group from t0 on; 0 behind them. */
static __device__ __forceinline__ int tiles_seen(int seen, int t0)
{
    return t0 < seen ? least((seen - t0 + 15) / 16, TOKENS / 16) : 0;
}

/* y (H, C) = a (Hp, Tp, in shared memory) x (T, C), at one run of channels from c on. */
template <int M>
static __device__ __forceinline__ void over_tokens(bf16 *y, const bf16 *a, const bf16 *x, const pool_sizes &z, int seen,
                                                   int c)
{
    int lane = threadIdx.x & 31, in = c + (lane >> 2) * 4, out = c + (lane & 3) * 8;
    for (int h0 = 0; h0 < z.Hp; h0 += M * TILE) {
        float sum[M][4][4] = {};
        for (int t0 = 0; t0 < seen; t0 += TOKENS) {
            quad right[TOKENS / 16];
#pragma unroll
            for (int k = 0; k < TOKENS / 16; k++) right[k].load(x + in, t0 + k * 16, seen, z.C);
#pragma unroll
            for (int k = 0; k < TOKENS / 16; k++) mix<M, false>(sum, a + h0 * z.ld + t0 + k * 16, z.ld, right[k], M);
        }
        write<M>(y + out, sum, h0, z.H, z.C);
    }
}

/* dt (T, C) = p^T ds + dz^T u, at one run of channels; 0 for tokens that are not seen. */
template <int M>
static __device__ __forceinline__ void over_heads(bf16 *dt, const pool_rooms &r, const bf16 *ds, const bf16 *u,
                                                  const pool_sizes &z, const pool_place &at, int c)
{
    int lane = threadIdx.x & 31, in = c + (lane >> 2) * 4, out = c + (lane & 3) * 8;
    for (int t0 = 0; t0 < at.rows; t0 += TOKENS) {
        int tiles = tiles_seen(at.seen, t0);
        float sum[TOKENS / 16][4][4] = {};
        for (int h0 = 0; h0 < z.Hp && tiles > 0; h0 += M * TILE) {
            quad x[M], y[M];
#pragma unroll
            for (int k = 0; k < M; k++) {
                x[k].load(ds + in, h0 + k * TILE, z.H, z.C);
                y[k].load(u + in, h0 + k * TILE, z.H, z.C);
            }
#pragma unroll
            for (int k = 0; k < M; k++) {
                mix<TOKENS / 16, true>(sum, r.p + (h0 + k * TILE) * z.ld + t0, z.ld, x[k], tiles);
                mix<TOKENS / 16, true>(sum, r.dz + (h0 + k * TILE) * z.ld + t0, z.ld, y[k], tiles);
            }
        }
        write<TOKENS / 16>(dt + out, sum, t0, at.rows, z.C);
    }
}

template <int W, int M>
__launch_bounds__(W * 32, 16 / W) static __global__
    void pool_forward_kernel(bf16 *s, float *p, const bf16 *t, const bf16 *u, pool_sizes z)
{
    extern __shared__ __align__(16) char shared[];
    pool_rooms r = rooms_at(shared, z, W, M);
    int64_t n = blockIdx.x;
    pool_place at = place_of(z, n);
    t += at.row * z.C, u += n * z.H * z.C, s += n * z.H * z.C;
    scores<W, M>(r, u, t, z, at.seen);
    softmax<W>(r, p ? p + n * z.H * z.T : nullptr, z, at.seen);
    for (int c = first_run(); c < z.C; c = next_run<W>(c)) over_tokens<M>(s, r.p, t, z, at.seen, c);
}

template <int W, int M>
__launch_bounds__(W * 32, 16 / W) static __global__
    void pool_backward_kernel(bf16 *dt, bf16 *du, const bf16 *ds, const bf16 *t, const bf16 *u, const float *p,
                              pool_sizes z)
{
    extern __shared__ __align__(16) char shared[];
    pool_rooms r = rooms_at(shared, z, W, M);
    int64_t n = blockIdx.x, heads = n * z.H * z.C;
    pool_place at = place_of(z, n);
    t += at.row * z.C, ds += heads, u += heads;
    scores<W, M>(r, ds, t, z, at.seen);
    softmax_bwd<W>(r, p + n * z.H * z.T, z, at.seen);
    for (int c = first_run(); c < z.C; c = next_run<W>(c)) {
        if (du) over_tokens<M>(du + heads, r.dz, t, z, at.seen, c);
        if (dt) over_heads<M>(dt + at.row * z.C, r, ds, u, z, at, c);
    }
}

/* ---- launches ---------------------------------------------------------------------------------------- */

static int groups(int64_t n, int group) { return (int)((n + group - 1) / group) * group; }
static int head_tiles(int64_t H) { return H > TILE ? 2 : 1; }

static pool_sizes sizes_of(int64_t T, int64_t C, int64_t H, const tensor *index, const tensor *start)
{
    int tokens = groups(T, TOKENS);
    return { (int)T,
             (int)C,
             (int)H,
             tokens,
             groups(H, head_tiles(H) * TILE),
             tokens + 8,
             index ? (const int32_t *)index->data : nullptr,
             start ? (const int32_t *)start->data : nullptr };
}

extern "C" bool pool_kernel_fits(const device *d, int warps, cloob_dtype dtype, int64_t T, int64_t C, int64_t H)
{
    const cuda_state *s = (const cuda_state *)d->state;
    const int64_t most = 2048; /* of tokens and heads, so that sizes stay far from overflowing */
    if (dtype != CLOOB_BF16 || C % CHANNELS || C > 1 << 16 || T > most || H > most) return false;
    return rooms_bytes(sizes_of(T, C, H, nullptr, nullptr), warps, head_tiles(H)) <= (size_t)s->smem_bytes;
}

extern "C" int pool_kernel_warps(const device *d, int wanted, cloob_dtype dtype, int64_t N, int64_t T, int64_t C,
                                 int64_t H)
{
    const int64_t full = 16 * (int64_t)((const cuda_state *)d->state)->sms; /* warps that the chip holds */
    int warps = wanted;
    if (head_tiles(H) == 1)
        for (warps = 4; warps < 16 && 10 * N * warps < 9 * full;) warps *= 2;
    while (warps >= 4 && !pool_kernel_fits(d, warps, dtype, T, C, H)) warps /= 2;
    return warps >= 4 ? warps : 0;
}

template <int W, int M>
static cloob_status forward(const op_env *env, const op_args *a, const pool_sizes &z, int64_t N)
{
    size_t bytes = rooms_bytes(z, W, M);
    CLOOB_TRY(cuda_check(env->ctx, allow_shared_memory(pool_forward_kernel<W, M>), "pool_attention"));
    pool_forward_kernel<W, M>
        <<<(unsigned)N, W * 32, bytes, stream_of(env)>>>((bf16 *)a->out[0].data, (float *)a->out[1].data,
                                                         (const bf16 *)a->in[0].data, (const bf16 *)a->in[1].data, z);
    return cuda_launched(env->ctx, "pool_attention");
}

template <int W, int M>
static cloob_status backward(const op_env *env, const op_args *a, const pool_sizes &z, int64_t N)
{
    size_t bytes = rooms_bytes(z, W, M);
    CLOOB_TRY(cuda_check(env->ctx, allow_shared_memory(pool_backward_kernel<W, M>), "pool_attention_bwd"));
    pool_backward_kernel<W, M>
        <<<(unsigned)N, W * 32, bytes, stream_of(env)>>>((bf16 *)a->out[0].data, (bf16 *)a->out[1].data,
                                                         (const bf16 *)a->in[0].data, (const bf16 *)a->in[1].data,
                                                         (const bf16 *)a->in[2].data, (const float *)a->in[3].data, z);
    return cuda_launched(env->ctx, "pool_attention_bwd");
}

template <int N>
struct number {
    static constexpr int value = N;
};

template <int M, typename F>
static cloob_status by_warps(int warps, F run)
{
    return warps == 4   ? run(number<4>(), number<M>())
           : warps == 8 ? run(number<8>(), number<M>())
                        : run(number<16>(), number<M>());
}

/* run(W, M): with so many warps, and tiles of a group of heads. */
template <typename F>
static cloob_status by_size(int warps, int64_t H, F run)
{
    return head_tiles(H) == 1 ? by_warps<1>(warps, run) : by_warps<2>(warps, run);
}

extern "C" cloob_status pool_kernel(const op_env *env, const op_args *a, int warps)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[0], &a->in[3]);
    int64_t H = a->in[1].dim[1];
    pool_sizes z = sizes_of(s.T, a->in[1].dim[2], H, &a->in[2], &a->in[3]);
    return by_size(warps, H,
                   [&](auto W, auto M) { return forward<decltype(W)::value, decltype(M)::value>(env, a, z, s.N); });
}

extern "C" cloob_status pool_kernel_bwd(const op_env *env, const op_args *a, int warps)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[5]);
    int64_t H = a->in[2].dim[1];
    pool_sizes z = sizes_of(s.T, a->in[2].dim[2], H, &a->in[4], &a->in[5]);
    return by_size(warps, H,
                   [&](auto W, auto M) { return backward<decltype(W)::value, decltype(M)::value>(env, a, z, s.N); });
}
