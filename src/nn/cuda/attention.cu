/* Attention for short sequences on tensor cores: a block per row of the batch and head, everything in shared
 * memory. Goes over the keys twice, first for the log-sum-exp of each query, then for sum p v; scores are
 * cheap to recompute. */
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

/* ---- launcher ------------------------------------------------------------------------------------ */

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
