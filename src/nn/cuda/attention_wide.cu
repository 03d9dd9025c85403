/* Attention by warpgroups, for heads of width 64 and many tokens. A block processes 128 queries of one head, 64 per
 * warpgroup, and all keys, 64 at a time. Scores stay in registers and become the left operand of p v. */
#include "nn/cuda/attention_wide.cuh"

namespace {

enum { WARPGROUPS = 2 };

struct call {
    bf16 *y;
    float *lse;
    const bf16 *qkv;
    attn_sizes z;
};

/* Loads rows of 64 elements, `step` apart; 0 from row `rows` to row `all`. */
__device__ __forceinline__ void load(char *to, const bf16 *from, int64_t step, int rows, int all)
{
    int c = threadIdx.x % 8 * 8;
#pragma unroll 4
    for (int row = threadIdx.x / 8; row < all; row += WARPGROUPS * 128 / 8) {
        bf16 *at = (bf16 *)to + swizzled::at(row, c);
        if (row < rows) copy_async16(at, from + row * step + c);
        else *reinterpret_cast<uint4 *>(at) = make_uint4(0, 0, 0, 0);
    }
}

/* Running result of a warpgroup's queries, two rows per lane: o = sum 2^(s - max) v, not yet divided by sum. */
struct running {
    float o[32], max[2], sum[2];
};

/* Turns scores into p and rescales the running result to the larger maximum. first: first key; own: first query. */
__device__ __forceinline__ void softmax_update(float (&s)[32], running &w, const attn_sizes &z, int first, int own)
{
    float top[2] = { -INFINITY, -INFINITY }, rescale[2], scale = z.scale * LOG2E;
    int column = first + first_element().column, query = own + first_element().row;
    if (first + WIDTH > z.T || (z.causal && first == own)) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int key = column + i / 4 * 8 + i % 2;
            if (key >= z.T || (z.causal && key > query + i / 2 % 2 * 8)) s[i] = -INFINITY;
        }
    }
#pragma unroll
    for (int i = 0; i < 32; i++) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) { /* four lanes share a row */
        top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
        top[r] = fmaxf(fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2)) * scale, w.max[r]);
        rescale[r] = power2(w.max[r] - top[r]);
        w.max[r] = top[r], w.sum[r] *= rescale[r];
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
        s[i] = power2(s[i] * scale - top[i / 2 % 2]);
        w.sum[i / 2 % 2] += s[i];
        w.o[i] *= rescale[i / 2 % 2];
    }
}

/* Adds all keys that the 64 queries from `own` on attend to. */
__device__ __forceinline__ void process_keys(running &w, const char *q, const char *k, const char *v,
                                             const attn_sizes &z, int own)
{
    unsigned p[WIDTH / 16][4];
    int end = z.causal ? min(own + WIDTH, z.T) : z.T;
    for (int first = 0; first < end; first += WIDTH) {
        float s[32];
        fence_registers(s);
        wgmma_fence();
        begin_scores(s, q, k + first * ROW);
        wgmma_wait<0>();
        fence_registers(s);
        softmax_update(s, w, z, first, own);
        uint64_t b = descriptor_transposed(v + first * ROW);
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) pack_columns(p[i], s + 8 * i, 1.0f);
        fence_registers(w.o);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) wgmma_rows_transposed(w.o, p[i], b + i * DOWN);
        wgmma_commit();
        wgmma_wait<0>();
        fence_registers(w.o);
    }
}

template <bool PACKED>
__global__ void __launch_bounds__(128 * WARPGROUPS, 2) wide_kernel(const __grid_constant__ call j)
{
    extern __shared__ char memory[];
    attn_sizes z = j.z;
    int groups = (z.T + WARPGROUPS * WIDTH - 1) / (WARPGROUPS * WIDTH), at = (int)blockIdx.x / groups, h = at % z.H;
    int all = (int)blockIdx.x % groups * WARPGROUPS * WIDTH, warpgroup = warp_number() / 4;
    char *q = shared_begin(memory), *k = q + WARPGROUPS * TILE;
    attn_position position = position_of<PACKED>(z, at / z.H, h);
    if (all >= z.T) return;
    int rows = (z.T + WIDTH - 1) / WIDTH * WIDTH, own = all + warpgroup * WIDTH;
    char *v = k + rows * ROW;
    const bf16 *from = j.qkv + position.row * 3 * z.C + h * WIDTH;
    load(q, from + (int64_t)all * 3 * z.C, 3 * z.C, z.T - all, WARPGROUPS * WIDTH);
    load(k, from + z.C, 3 * z.C, z.T, rows);
    load(v, from + 2 * z.C, 3 * z.C, z.T, rows);
    copies_wait();
    shared_publish();
    __syncthreads();
    if (own >= z.T) return;
    running w = { {}, { -INFINITY, -INFINITY }, {} };
    int row = first_element().row;
    process_keys(w, q + warpgroup * TILE, k, v, z, own);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        w.sum[r] += __shfl_xor_sync(~0u, w.sum[r], 1);
        w.sum[r] += __shfl_xor_sync(~0u, w.sum[r], 2);
        int query = own + row + 8 * r;
        if (j.lse && threadIdx.x % 4 == 0 && query < z.T)
            j.lse[position.head + query] = (w.max[r] + log2f(w.sum[r])) / LOG2E;
        w.sum[r] = 1.0f / w.sum[r];
    }
#pragma unroll
    for (int i = 0; i < 32; i++) w.o[i] *= w.sum[i / 2 % 2];
    store_rows(j.y + (position.row + own) * z.C + h * WIDTH, z.C, w.o, 1.0f, row / 16 * 16, z.T - own,
               q + warpgroup * TILE);
}

size_t smem_for(int64_t T) { return 1024 + (size_t)(WARPGROUPS + 2 * ((T + WIDTH - 1) / WIDTH)) * TILE; }

} // namespace

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" bool attention_wide_takes(const op_env *env, const op_args *a)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[0], &a->in[1]);
    return cuda_has_hopper(env->dev) && a->out[0].dtype == CLOOB_BF16 &&
           tensor_cols(&a->out[0]) == a->attr.heads * WIDTH && s.T > WARPGROUPS * WIDTH &&
           smem_for(s.T) <= (size_t)((const cuda_state *)env->dev->state)->smem_bytes;
}

extern "C" cloob_status attention_wide(const op_env *env, const op_args *a)
{
    op_sequences s = op_sequences_of(&a->attr, &a->in[0], &a->in[1]);
    call j = { (bf16 *)a->out[0].data, (float *)a->out[1].data, (const bf16 *)a->in[0].data,
               sizes_of(a, s, &a->out[0]) };
    size_t smem = smem_for(s.T);
    auto kernel = s.start ? wide_kernel<true> : wide_kernel<false>;
    int64_t groups = (s.T + WARPGROUPS * WIDTH - 1) / (WARPGROUPS * WIDTH);
    CLOOB_TRY(cuda_check(env->ctx, allow_shared_memory(kernel), "attention"));
    kernel<<<(unsigned)(s.N * j.z.H * groups), 128 * WARPGROUPS, smem, stream_of(env)>>>(j);
    return cuda_launched(env->ctx, "attention");
}
