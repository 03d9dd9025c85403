/* Attention for short sequences on tensor cores: a block per row of the batch and head, everything in shared
 * memory.
 *
 * Forward goes over the keys twice, first for the log-sum-exp of each query, then for sum p v; scores are
 * cheap to work out again. Backward lets each warp own a tile of queries (dq) and a tile of keys (dk, dv) and
 * works the scores out for both, so nothing is shared between warps and every sum has one order.
 *
 * mma.sync m16n8k16: lane l holds rows l/4 and l/4 + 8, columns 2 (l%4) and + 1 of a 16 x 8 result. */
#include "nn/cuda/mma.cuh"

#define LOG2E 1.4426950408889634f

enum { MOST_WARPS = 8, BACKWARD_BLOCKS = 2 };

typedef struct attn_sizes {
    int T, Tp, C, H; /* Tp: T rounded up to whole tiles */
    int causal;
    float scale;
    const int32_t *start; /* packed: where sequences begin among `rows`; T is the most of one */
    int64_t rows;
} attn_sizes;

__host__ __device__ __forceinline__ int whole_tiles(int T) { return (T + 15) / 16 * 16; }

/* Where a block works: the first row of its sequence, and of its head's log-sum-exp. */
typedef struct attn_place {
    int64_t row, head;
} attn_place;

/* Of a packed sequence z takes on the length. */
template <bool PACKED>
__device__ __forceinline__ attn_place place_of(attn_sizes &z, int n, int h)
{
    if constexpr (!PACKED) return { (int64_t)n * z.T, ((int64_t)n * z.H + h) * z.T };
    int first = z.start[n];
    z.T = z.start[n + 1] - first;
    z.Tp = whole_tiles(z.T);
    return { first, h * z.rows + first };
}

/* 16 bytes to shared memory without passing through registers; arrive() waits for all of a thread's. */
__device__ __forceinline__ void send(bf16 *to, const bf16 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void arrive() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Tiles in shared memory have rows of D + 8 elements: eight rows then fall on different banks. */
template <int D>
struct tile {
    enum { LD = D + 8, K = D / 16 };

    __device__ static void fill(bf16 *to, const bf16 *from, int64_t step, int T, int Tp)
    {
        for (int i = threadIdx.x; i < Tp * (D / 8); i += blockDim.x) {
            int row = i / (D / 8), c = i % (D / 8) * 8;
            if (row < T) send(to + row * LD + c, from + row * step + c);
            else store<bf16, 8>(to + row * LD + c, pack<bf16, 8>{});
        }
    }

    /* Rows row0.. as the left operand, D wide. */
    __device__ static void left(unsigned a[K][4], const bf16 *s, int row0)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int k = 0; k < K; k++) ldmatrix(a[k], s + (row0 + (lane & 15)) * LD + k * 16 + (lane >> 4) * 8);
    }

    /* c (16 x 16, two halves) = a times the transpose of rows row0.. */
    __device__ static void times_rows(float c[2][4], const unsigned a[K][4], const bf16 *s, int row0)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < 4; i++) c[0][i] = c[1][i] = 0.0f;
#pragma unroll
        for (int k = 0; k < K; k++) {
            unsigned b[4];
            ldmatrix(b, s + (row0 + (lane & 7) + (lane >> 4) * 8) * LD + k * 16 + ((lane >> 3) & 1) * 8);
            mma(c[0], a[k], b[0], b[1]);
            mma(c[1], a[k], b[2], b[3]);
        }
    }

    /* acc (16 x D) += p (16 x 16) times rows row0.. */
    __device__ static void add_product(float acc[D / 8][4], const float p[2][4], const bf16 *s, int row0)
    {
        int lane = threadIdx.x & 31;
        unsigned a[4] = { pack2(p[0][0], p[0][1]), pack2(p[0][2], p[0][3]), pack2(p[1][0], p[1][1]),
                          pack2(p[1][2], p[1][3]) };
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            unsigned b[4];
            ldmatrix_trans(b, s + (row0 + (lane & 15)) * LD + j * 16 + (lane >> 4) * 8);
            mma(acc[2 * j], a, b[0], b[1]);
            mma(acc[2 * j + 1], a, b[2], b[3]);
        }
    }

    /* Rows row0.. below T of the result to memory, by way of 16 rows of shared memory that are this warp's alone: whole
     * rows leave 16 bytes at a time. */
    __device__ static void write(bf16 *to, int64_t step, const float acc[D / 8][4], float scale, int row0, int T,
                                 bf16 *stage)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int j = 0; j < D / 8; j++)
                *reinterpret_cast<unsigned *>(stage + (lane / 4 + 8 * half) * LD + j * 8 + lane % 4 * 2) =
                    pack2(acc[j][2 * half] * scale, acc[j][2 * half + 1] * scale);
        __syncwarp();
#pragma unroll
        for (int i = lane; i < 16 * (D / 8); i += 32) {
            int row = i / (D / 8), c = i % (D / 8) * 8;
            if (row0 + row < T) store<bf16, 8>(to + (row0 + row) * step + c, load<bf16, 8>(stage + row * LD + c));
        }
        __syncwarp();
    }
};

/* Element (half, i) of a 16 x 16 result: row lane/4 + 8 (i/2), column 8 half + 2 (lane%4) + i%2. */
__device__ __forceinline__ int row_in_tile(int i) { return (threadIdx.x & 31) / 4 + 8 * (i / 2); }
__device__ __forceinline__ int col_in_tile(int half, int i) { return 8 * half + (threadIdx.x & 3) * 2 + i % 2; }

template <int D, bool PACKED>
static __global__ void __launch_bounds__(32 * MOST_WARPS)
    forward_kernel(bf16 *y, float *lse, const bf16 *qkv, attn_sizes z)
{
    extern __shared__ __align__(16) bf16 smem[];
    typedef tile<D> tl;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H, warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    attn_place at = place_of<PACKED>(z, n, h);
    int tiles = z.Tp / 16;
    bf16 *q = smem, *k = q + z.Tp * tl::LD, *v = k + z.Tp * tl::LD;
    const bf16 *from = qkv + at.row * 3 * z.C + h * D;
    tl::fill(q, from, 3 * z.C, z.T, z.Tp);
    tl::fill(k, from + z.C, 3 * z.C, z.T, z.Tp);
    tl::fill(v, from + 2 * z.C, 3 * z.C, z.T, z.Tp);
    arrive();
    __syncthreads();
    for (int t = warp; t < tiles; t += blockDim.x / 32) {
        unsigned a[tl::K][4];
        float s[2][4], most[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f }, o[D / 8][4] = {};
        int last = z.causal ? t + 1 : tiles;
        float scale = z.scale * LOG2E; /* in powers of two */
        tl::left(a, q, t * 16);
        for (int j = 0; j < last; j++) {
            tl::times_rows(s, a, k, j * 16);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float top = most[r];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int half = e / 2, i = 2 * r + e % 2, key = j * 16 + col_in_tile(half, i),
                        query = t * 16 + row_in_tile(i);
                    bool seen = key < z.T && !(z.causal && key > query);
                    s[half][i] = seen ? s[half][i] * scale : -INFINITY;
                    top = fmaxf(top, s[half][i]);
                }
                if (top == -INFINITY) continue;
                sum[r] = sum[r] * power2(most[r] - top) + power2(s[0][2 * r] - top) + power2(s[0][2 * r + 1] - top) +
                         power2(s[1][2 * r] - top) + power2(s[1][2 * r + 1] - top);
                most[r] = top;
            }
        }
        float total[2];
#pragma unroll
        for (int r = 0; r < 2; r++) { /* four lanes share a row */
            float top = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            float part = most[r] == -INFINITY ? 0.0f : sum[r] * power2(most[r] - top);
            part += __shfl_xor_sync(0xffffffffu, part, 1);
            part += __shfl_xor_sync(0xffffffffu, part, 2);
            total[r] = top + log2f(part);
            int query = t * 16 + lane / 4 + 8 * r;
            if (lse && lane % 4 == 0 && query < z.T) lse[at.head + query] = total[r] / LOG2E;
        }
        for (int j = 0; j < last; j++) {
            tl::times_rows(s, a, k, j * 16);
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int key = j * 16 + col_in_tile(half, i), query = t * 16 + row_in_tile(i);
                    bool seen = key < z.T && !(z.causal && key > query);
                    s[half][i] = seen ? power2(s[half][i] * scale - total[i / 2]) : 0.0f;
                }
            tl::add_product(o, s, v, j * 16);
        }
        tl::write(y + at.row * z.C + h * D, z.C, o, 1.0f, t * 16, z.T,
                  q + t * 16 * tl::LD); /* q's rows have been read */
    }
}

/* What both halves of backward need of a score tile. */
typedef struct attn_rows {
    const bf16 *q, *k, *v, *dy;
    const float *lse, *along; /* per query: log2-sum-exp, and dy.y */
    bf16 *stage;              /* 16 rows of this warp */
} attn_rows;

template <int D>
__device__ static void query_tile(bf16 *dq, const attn_rows &m, const attn_sizes &z, int t)
{
    typedef tile<D> tl;
    unsigned a[tl::K][4], g[tl::K][4];
    float s[2][4], dp[2][4], acc[D / 8][4] = {}, scale = z.scale * LOG2E;
    tl::left(a, m.q, t * 16);
    tl::left(g, m.dy, t * 16);
    float lse[2] = { m.lse[t * 16 + row_in_tile(0)], m.lse[t * 16 + row_in_tile(2)] };
    float along[2] = { m.along[t * 16 + row_in_tile(0)], m.along[t * 16 + row_in_tile(2)] };
    for (int j = 0, last = z.causal ? t + 1 : z.Tp / 16; j < last; j++) {
        tl::times_rows(s, a, m.k, j * 16);
        tl::times_rows(dp, g, m.v, j * 16);
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = j * 16 + col_in_tile(half, i), query = t * 16 + row_in_tile(i);
                bool seen = key < z.T && query < z.T && !(z.causal && key > query);
                s[half][i] = seen ? power2(s[half][i] * scale - lse[i / 2]) * (dp[half][i] - along[i / 2]) : 0.0f;
            }
        tl::add_product(acc, s, m.k, j * 16);
    }
    tl::write(dq, 3 * z.C, acc, z.scale, t * 16, z.T, m.stage);
}

/* Rows are keys here, columns queries. */
template <int D>
__device__ static void key_tile(bf16 *dk, bf16 *dv, const attn_rows &m, const attn_sizes &z, int t)
{
    typedef tile<D> tl;
    unsigned a[tl::K][4], g[tl::K][4];
    float p[2][4], ds[2][4], acc_k[D / 8][4] = {}, acc_v[D / 8][4] = {}, scale = z.scale * LOG2E;
    tl::left(a, m.k, t * 16);
    tl::left(g, m.v, t * 16);
    for (int j = z.causal ? t : 0; j < z.Tp / 16; j++) {
        tl::times_rows(p, a, m.q, j * 16);
        tl::times_rows(ds, g, m.dy, j * 16);
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int query = j * 16 + col_in_tile(half, i), key = t * 16 + row_in_tile(i);
                bool seen = key < z.T && query < z.T && !(z.causal && key > query);
                p[half][i] = seen ? power2(p[half][i] * scale - m.lse[query]) : 0.0f;
                ds[half][i] = seen ? p[half][i] * (ds[half][i] - m.along[query]) : 0.0f;
            }
        tl::add_product(acc_v, p, m.dy, j * 16);
        tl::add_product(acc_k, ds, m.q, j * 16);
    }
    tl::write(dk, 3 * z.C, acc_k, z.scale, t * 16, z.T, m.stage);
    tl::write(dv, 3 * z.C, acc_v, 1.0f, t * 16, z.T, m.stage);
}

/* along[t] = dy[t].y[t]: D / 8 lanes a row. Rows come in fours or eights, so a warp is in or out as a whole. */
template <int D>
__device__ static void dot_rows(float *along, const bf16 *dy, const bf16 *y, int64_t step, int T, int Tp)
{
    enum { LANES = D / 8 };
    int part = threadIdx.x % LANES;
#pragma unroll 4
    for (int t = threadIdx.x / LANES; t < Tp; t += blockDim.x / LANES) {
        float sum = 0.0f;
        if (t < T) {
            pack<bf16, 8> a = load<bf16, 8>(dy + t * step + part * 8), b = load<bf16, 8>(y + t * step + part * 8);
#pragma unroll
            for (int i = 0; i < 8; i++) sum += to_float(a.v[i]) * to_float(b.v[i]);
        }
#pragma unroll
        for (int k = LANES / 2; k; k >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, k);
        if (part == 0) along[t] = sum;
    }
}

template <int D, bool PACKED>
static __global__ void __launch_bounds__(32 * MOST_WARPS, BACKWARD_BLOCKS)
    backward_kernel(bf16 *dqkv, const bf16 *dy, const bf16 *qkv, const bf16 *y, const float *lse, attn_sizes z)
{
    extern __shared__ __align__(16) bf16 smem[];
    typedef tile<D> tl;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    attn_place place = place_of<PACKED>(z, n, h);
    bf16 *q = smem, *k = q + z.Tp * tl::LD, *v = k + z.Tp * tl::LD, *g = v + z.Tp * tl::LD, *stage = g + z.Tp * tl::LD;
    float *lse2 = (float *)(stage + z.Tp * tl::LD), *along = lse2 + z.Tp;
    int64_t at = place.row * 3 * z.C + h * D, out = place.row * z.C + h * D;
    tl::fill(q, qkv + at, 3 * z.C, z.T, z.Tp);
    tl::fill(k, qkv + at + z.C, 3 * z.C, z.T, z.Tp);
    tl::fill(v, qkv + at + 2 * z.C, 3 * z.C, z.T, z.Tp);
    tl::fill(g, dy + out, z.C, z.T, z.Tp);
    for (int t = threadIdx.x; t < z.Tp; t += blockDim.x) lse2[t] = t < z.T ? lse[place.head + t] * LOG2E : 0.0f;
    dot_rows<D>(along, dy + out, y + out, z.C, z.T, z.Tp);
    arrive();
    __syncthreads();
    attn_rows m = { q, k, v, g, lse2, along, stage + warp * 16 * tl::LD };
    for (int t = warp; t < z.Tp / 16; t += warps) {
        query_tile<D>(dqkv + at, m, z, t);
        key_tile<D>(dqkv + at + z.C, dqkv + at + 2 * z.C, m, z, t);
    }
}

/* ---- launchers ----------------------------------------------------------------------------------- */

static attn_sizes sizes_of(const op_args *a, const op_sequences &s, const tensor *y)
{
    int T = (int)s.T, C = (int)tensor_cols(y), H = (int)a->attr.heads;
    attn_sizes z = { T, whole_tiles(T), C, H, a->attr.causal, 1.0f / sqrtf((float)C / (float)H), s.start, s.rows };
    return z;
}

static unsigned threads_of(const attn_sizes &z)
{
    return 32u * (unsigned)(z.Tp / 16 < MOST_WARPS ? z.Tp / 16 : MOST_WARPS);
}

/* tiles: how many (T, D) matrices lie in shared memory. */
static size_t smem_of(const attn_sizes &z, int tiles, int D)
{
    return (size_t)z.Tp * ((size_t)tiles * (D + 8) * sizeof(bf16) + 2 * sizeof(float));
}

static bool on_tensor_cores(const op_env *env, const tensor *y, const attn_sizes &z, int tiles)
{
    int D = z.C / z.H;
    return y->dtype == CLOOB_BF16 && (D == 64 || D == 32) &&
           smem_of(z, tiles, D) <= (size_t)((const cuda_state *)env->dev->state)->smem_bytes;
}

template <int D, bool PACKED>
static cloob_status launch_forward(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N)
{
    size_t smem = smem_of(z, 3, D);
    CLOOB_TRY(cuda_check(env->ctx,
                         cudaFuncSetAttribute(forward_kernel<D, PACKED>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)smem),
                         "attention"));
    forward_kernel<D, PACKED>
        <<<(unsigned)(N * z.H), threads_of(z), smem, stream_of(env)>>>((bf16 *)a->out[0].data, (float *)a->out[1].data,
                                                                       (const bf16 *)a->in[0].data, z);
    return cuda_launched(env->ctx, "attention");
}

template <int D, bool PACKED>
static cloob_status launch_backward(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N)
{
    size_t smem = smem_of(z, 5, D);
    CLOOB_TRY(cuda_check(env->ctx,
                         cudaFuncSetAttribute(backward_kernel<D, PACKED>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)smem),
                         "attention_bwd"));
    backward_kernel<D, PACKED><<<(unsigned)(N * z.H), threads_of(z), smem, stream_of(env)>>>(
        (bf16 *)a->out[0].data, (const bf16 *)a->in[0].data, (const bf16 *)a->in[1].data, (const bf16 *)a->in[2].data,
        (const float *)a->in[3].data, z);
    return cuda_launched(env->ctx, "attention_bwd");
}

typedef cloob_status launch_fn(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N);

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status attention_cuda(const op_env *env, const op_args *a)
{
    static launch_fn *const launch[2][2] = { { launch_forward<32, false>, launch_forward<64, false> },
                                             { launch_forward<32, true>, launch_forward<64, true> } };
    const tensor *y = &a->out[0];
    op_sequences s = op_sequences_of(&a->attr, &a->in[0], &a->in[1]);
    attn_sizes z = sizes_of(a, s, y);
    if (s.start) CLOOB_TRY(zero_dead_cuda(env, "attention", &s, y, &a->out[1]));
    if (!on_tensor_cores(env, y, z, 3)) return attention_plain(env, a);
    return launch[s.start != NULL][z.C / z.H == 64](env, a, z, s.N);
}

extern "C" cloob_status attention_bwd_cuda(const op_env *env, const op_args *a)
{
    static launch_fn *const launch[2][2] = { { launch_backward<32, false>, launch_backward<64, false> },
                                             { launch_backward<32, true>, launch_backward<64, true> } };
    const tensor *y = &a->in[2];
    op_sequences s = op_sequences_of(&a->attr, &a->in[1], &a->in[4]);
    attn_sizes z = sizes_of(a, s, y);
    if (s.start) CLOOB_TRY(zero_dead_cuda(env, "attention_bwd", &s, &a->out[0], NULL));
    if (!on_tensor_cores(env, y, z, 5)) return attention_bwd_plain(env, a);
    return launch[s.start != NULL][z.C / z.H == 64](env, a, z, s.N);
}
