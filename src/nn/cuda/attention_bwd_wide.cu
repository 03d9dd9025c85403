/* Attention's backward pass by warpgroups, for heads of 64. A block per row of the batch and head; a warpgroup owns 64
 * keys and goes over the queries, 32 at a time. Scores stand turned, keys as rows: p and ds then are left factors of dv
 * and dk as they come out of the products, in registers. ds alone goes to shared memory, for dq, which is made of 64
 * queries at a time by the warpgroups in turn.
 *
 * Matrices in shared memory have rows of 64 bf16 in the 128-byte swizzle: k, v, q, dy. Results leave by way
 * of rows that nobody reads any more: dq by q's, dv by v's, dk by dy's. */
#include "nn/cuda/attention_bwd_queries.cuh"

namespace {

/* dq of 64 queries from `first` on: ds of `keys` keys times k. ds: a tile for every 64 keys. */
template <int KT>
__device__ __forceinline__ void finish_queries(bf16 *dq, const char *ds, const head &m, const attn_sizes &z, int first,
                                               int keys)
{
    float c[32] = {};
    multiply_tiles<KT>(c, ds, m.k, keys);
    int row0 = first + (int)threadIdx.x % 128 / 32 * 16;
    if (row0 < z.Tp) leave(dq, 3 * z.C, c, z.scale, row0, z.T, m.q);
}

template <int KT>
__device__ __forceinline__ head head_of(char *memory)
{
    enum { R = KT * WIDTH };
    char *k = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023), *ds = k + 4 * R * ROW;
    float *lse = (float *)(ds + (KT > 1 ? 2 : 1) * KT * TILE);
    return { k, k + R * ROW, k + 2 * R * ROW, k + 3 * R * ROW, ds, lse, lse + R };
}

template <int KT, bool PACKED>
__global__ void __launch_bounds__(128 * KT, 4 / KT) wide_kernel(const __grid_constant__ wide_call j)
{
    extern __shared__ char memory[];
    attn_sizes z = j.z;
    int n = blockIdx.x / z.H, h = blockIdx.x % z.H, own = KT == 1 ? 0 : __shfl_sync(~0u, threadIdx.x / 128, 0);
    attn_place place = place_of<PACKED>(z, n, h);
    z.Tp = (z.T + WIDTH - 1) / WIDTH * WIDTH;
    head m = head_of<KT>(memory);
    int64_t at = place.row * 3 * z.C + h * WIDTH, out = place.row * z.C + h * WIDTH;
    attn_rows rows = { (bf16 *)m.q, (bf16 *)m.k, (bf16 *)m.v, (bf16 *)m.dy, m.lse, m.along, NULL };
    take_rows<WIDTH, swizzled>(rows, m.lse, m.along, j.qkv + at, j.dy + out, j.y + out, j.lse + place.head, z);
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
        __syncthreads(); /* ds is there; of these queries q and dy have been read */
        int keys = z.causal ? min(first + WIDTH, z.T) : z.T;
        if (own == turn % KT) finish_queries<KT>(j.dqkv + at, ds, m, z, first, keys);
    }
    int row0 = key + (int)threadIdx.x % 128 / 32 * 16;
    if (row0 < z.Tp) {
        leave(j.dqkv + at + 2 * z.C, 3 * z.C, dv, 1.0f, row0, z.T, m.v);
        leave(j.dqkv + at + z.C, 3 * z.C, dk, z.scale, row0, z.T, m.dy);
    }
    if (!j.sums && !j.round.to) return;
    __syncthreads();
    const bf16 *q = rows.q, *k = rows.dy, *v = rows.v;
    if (j.sums) sum_columns<WIDTH, swizzled>(j.sums + (int64_t)n * 3 * z.C + h * WIDTH, q, k, v, z);
    if (j.round.to) round_rows<WIDTH, swizzled>(j.round, at, q, k, v, z);
}

/* ---- launchers ----------------------------------------------------------------------------------- */

template <int KT, bool PACKED>
cloob_status launch(const op_env *env, const wide_call &j, int64_t N)
{
    size_t smem = 1024 + (size_t)KT * ((KT > 1 ? 6 : 5) * TILE + 2 * WIDTH * sizeof(float));
    auto kernel = wide_kernel<KT, PACKED>;
    CLOOB_TRY(cuda_check(env->ctx, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
                         "attention_bwd"));
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
