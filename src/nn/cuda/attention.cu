/* Attention on tensor cores: a block per row of the batch and head, everything in shared memory. Up to 128 tokens a
 * warp keeps all scores of its 16 queries in registers; beyond, it goes over the keys twice, first for the log-sum-exp
 * of each query, then for sum p v. */
#include "nn/cuda/attention.cuh"

template <int D, bool PACKED>
static __global__ void __launch_bounds__(32 * MAX_WARPS)
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
        float s[2][4], max[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f }, o[D / 8][4] = {};
        int last = z.causal ? t + 1 : tiles;
        float scale = z.scale * LOG2E; /* in powers of two */
        tl::left(a, q, t * 16);
        for (int j = 0; j < last; j++) {
            tl::times_rows(s, a, k, j * 16);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float top = max[r];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int half = e / 2, i = 2 * r + e % 2, key = j * 16 + col_in_tile(half, i),
                        query = t * 16 + row_in_tile(i);
                    bool seen = key < z.T && !(z.causal && key > query);
                    s[half][i] = seen ? s[half][i] * scale : -INFINITY;
                    top = fmaxf(top, s[half][i]);
                }
                if (top == -INFINITY) continue;
                sum[r] = sum[r] * power2(max[r] - top) + power2(s[0][2 * r] - top) + power2(s[0][2 * r + 1] - top) +
                         power2(s[1][2 * r] - top) + power2(s[1][2 * r + 1] - top);
                max[r] = top;
            }
        }
        float total[2];
#pragma unroll
        for (int r = 0; r < 2; r++) { /* four lanes share a row */
            float top = fmaxf(max[r], __shfl_xor_sync(0xffffffffu, max[r], 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            float part = max[r] == -INFINITY ? 0.0f : sum[r] * power2(max[r] - top);
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

/* A tile of keys: what query tile t sees of its scores; the others become minus infinity. */
__device__ __forceinline__ void hide_scores(float s[2][4], const attn_sizes &z, int t, int j)
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

/* q, k and v, all asked for at once; 2 Tp threads or more. */
template <int D>
__device__ static void take_rows(bf16 *q, bf16 *k, bf16 *v, const bf16 *from, const attn_sizes &z)
{
    typedef tile<D> tl;
    enum { LANES = D / 8 };
    int first = threadIdx.x / LANES, c = threadIdx.x % LANES * 8, down = blockDim.x / LANES;
    bf16 *const to[3] = { q, k, v };
#pragma unroll
    for (int i = 0; i < tl::K; i++) {
        int row = first + i * down, at = tl::at(row, c);
        for (int j = 0; j < 3 && row < z.T; j++) send(to[j] + at, from + (int64_t)row * 3 * z.C + j * z.C + c);
        for (int j = 0; j < 3 && row >= z.T && row < z.Tp; j++)
            *reinterpret_cast<uint4 *>(to[j] + at) = make_uint4(0, 0, 0, 0);
    }
    arrive();
}

/* Up to TILES tiles, a warp to each tile of queries. */
template <int D, bool PACKED, int TILES>
static __global__ void __launch_bounds__(32 * TILES, TILES == 4   ? 6
                                                     : TILES == 5 ? 4
                                                                  : 2)
    short_kernel(bf16 *y, float *lse, const bf16 *qkv, attn_sizes z)
{
    extern __shared__ __align__(16) bf16 smem[];
    typedef tile<D> tl;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H, t = threadIdx.x / 32, lane = threadIdx.x & 31;
    attn_place at = place_of<PACKED>(z, n, h);
    bf16 *q = smem, *k = q + z.Tp * tl::LD, *v = k + z.Tp * tl::LD;
    take_rows<D>(q, k, v, qkv + at.row * 3 * z.C + h * D, z);
    __syncthreads();
    if (t * 16 >= z.T) return;
    unsigned a[tl::K][4];
    float s[TILES][2][4], max[2] = { -INFINITY, -INFINITY }, sum[2] = {}, o[D / 8][4] = {}, scale = z.scale * LOG2E;
    int last = z.causal ? t + 1 : z.Tp / 16;
    tl::left(a, q, t * 16);
#pragma unroll
    for (int j = 0; j < TILES; j++)
        if (j < last) {
            tl::times_rows(s[j], a, k, j * 16);
            hide_scores(s[j], z, t, j);
#pragma unroll
            for (int i = 0; i < 8; i++) max[i % 4 / 2] = fmaxf(max[i % 4 / 2], s[j][i / 4][i % 4]);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) { /* four lanes share a row */
        max[r] = fmaxf(max[r], __shfl_xor_sync(0xffffffffu, max[r], 1));
        max[r] = fmaxf(max[r], __shfl_xor_sync(0xffffffffu, max[r], 2)) * scale;
    }
#pragma unroll
    for (int j = 0; j < TILES; j++)
        if (j < last) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                s[j][i / 4][i % 4] = power2(s[j][i / 4][i % 4] * scale - max[i % 4 / 2]);
                sum[i % 4 / 2] += s[j][i / 4][i % 4];
            }
            tl::add_product(o, s[j], v, j * 16);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
        float inverse = 1.0f / sum[r];
        int query = t * 16 + lane / 4 + 8 * r;
        if (lse && lane % 4 == 0 && query < z.T) lse[at.head + query] = (max[r] + log2f(sum[r])) / LOG2E;
#pragma unroll
        for (int i = 0; i < D / 8; i++) o[i][2 * r] *= inverse, o[i][2 * r + 1] *= inverse;
    }
    tl::write(y + at.row * z.C + h * D, z.C, o, 1.0f, t * 16, z.T, q + t * 16 * tl::LD); /* q's rows have been read */
}

/* ---- launcher ------------------------------------------------------------------------------------ */

typedef void forward_fn(bf16 *y, float *lse, const bf16 *qkv, attn_sizes z);

template <int D, bool PACKED>
static cloob_status launch_forward(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N)
{
    size_t smem = smem_of(z, 3, D);
    int tiles = z.Tp / 16;
    forward_fn *kernel = tiles <= 4           ? short_kernel<D, PACKED, 4>
                         : tiles <= 5         ? short_kernel<D, PACKED, 5>
                         : tiles <= MAX_WARPS ? short_kernel<D, PACKED, MAX_WARPS>
                                              : forward_kernel<D, PACKED>;
    CLOOB_TRY(cuda_check(env->ctx, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
                         "attention"));
    kernel<<<(unsigned)(N * z.H), threads_of(z), smem, stream_of(env)>>>((bf16 *)a->out[0].data,
                                                                         (float *)a->out[1].data,
                                                                         (const bf16 *)a->in[0].data, z);
    return cuda_launched(env->ctx, "attention");
}

/* ---- entry point --------------------------------------------------------------------------------- */

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
