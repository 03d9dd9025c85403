/* Token embedding and its gradient.
 *
 * The gradient of the table adds rows of dy by token id. To add in a fixed order without atomics, positions are first
 * sorted by id (each block owns a range of ids and collects their positions in rising order); then every block sums a
 * stretch of the sorted list, run by run; runs that cross stretches are combined by a last small launch. `row` is the
 * token index of each packed row; the gradient of the positions is then taken the same way, with positions for ids. */
#include "nn/cuda/common.cuh"

enum { RANGE = 64, STRETCH = 32, SORT_WARPS = 8, JOIN_ROWS = 8 };

/* How often each id of a range occurs in a warp's stretch [begin, end) of the list, and how many are smaller. */
static __device__ __forceinline__ void count_ids(int cursor[RANGE], int *smaller, const int32_t *token, int low,
                                                 int begin, int end)
{
    int mine = 0;
#pragma unroll 16
    for (int i = begin + (int)threadIdx.x % 32; i < end; i += 32) {
        int id = token[i] - low;
        if (id < 0) mine++;
        else if (id < RANGE) atomicAdd(&cursor[id], 1); /* counts: the order does not show */
    }
    atomicAdd(smaller, mine);
}

/* Counts become the places where each warp's first of an id goes. */
static __device__ __forceinline__ void places_of(int cursor[SORT_WARPS][RANGE], int total[RANGE], int smaller)
{
    int id = threadIdx.x, at = smaller;
    if (id < RANGE) {
        total[id] = 0;
        for (int w = 0; w < SORT_WARPS; w++) total[id] += cursor[w][id];
    }
    __syncthreads();
    if (id >= RANGE) return;
    for (int k = 0; k < id; k++) at += total[k];
    for (int w = 0; w < SORT_WARPS; w++) {
        int count = cursor[w][id];
        cursor[w][id] = at;
        at += count;
    }
}

/* One place of the list for each lane: id below 0 or from RANGE on is another block's. */
static __device__ __forceinline__ void place_id(int32_t *id_out, int32_t *pos_out, int cursor[RANGE], int id, int low,
                                                int position)
{
    int lane = threadIdx.x & 31;
    bool hit = id >= 0 && id < RANGE;
    if (!__any_sync(0xffffffffu, hit)) return;
    unsigned same = __match_any_sync(0xffffffffu, hit ? id : -1);
    int rank = __popc(same & ((1u << lane) - 1)), start = hit ? cursor[id] : 0;
    __syncwarp();
    if (hit) id_out[start + rank] = id + low, pos_out[start + rank] = position;
    if (hit && rank == 0) cursor[id] = start + __popc(same);
    __syncwarp();
}

/* Ids [RANGE b, RANGE (b+1)) belong to block b: it counts the smaller ids and its own, then writes the positions of its
 * own in rising order. Each warp has a stretch of the list. The sort is stable, so the sums that follow have one
 * order. */
static __global__ void __launch_bounds__(SORT_WARPS * 32)
    sort_kernel(int32_t *id_out, int32_t *pos_out, const int32_t *token, int n)
{
    enum { U = 16 };
    __shared__ int cursor[SORT_WARPS][RANGE], total[RANGE], smaller;
    int low = blockIdx.x * RANGE, tid = threadIdx.x, warp = tid / 32;
    int each = (n + SORT_WARPS * 32 - 1) / (SORT_WARPS * 32) * 32, begin = warp * each, end = min(begin + each, n);
    for (int k = tid; k < SORT_WARPS * RANGE; k += SORT_WARPS * 32) cursor[k / RANGE][k % RANGE] = 0;
    if (tid == 0) smaller = 0;
    __syncthreads();
    count_ids(cursor[warp], &smaller, token, low, begin, end);
    __syncthreads();
    places_of(cursor, total, smaller);
    __syncthreads();
    for (int i = begin + tid % 32; i - tid % 32 < end; i += U * 32) {
        int id[U];
#pragma unroll
        for (int u = 0; u < U; u++) id[u] = i + u * 32 < end ? token[i + u * 32] - low : -1;
#pragma unroll
        for (int u = 0; u < U; u++) place_id(id_out, pos_out, cursor[warp], id[u], low, i + u * 32);
    }
}

/* Block b sums entries [STRETCH b, STRETCH (b+1)) of the sorted list; threads hold V columns each. A run that begins
 * and ends inside goes to the table; one that came in from the left to edge[b][0], one that continues to the
 * right to edge[b][1]. */
template <typename T, int V>
static __global__ void __launch_bounds__(128)
    run_sum_kernel(float *dtable, float *edge, const int32_t *id, const int32_t *pos, const T *dy, int n, int64_t C)
{
    enum { U = 8 };
    __shared__ int ids[STRETCH], rows[STRETCH];
    int begin = blockIdx.x * STRETCH, count = min(STRETCH, n - begin);
    bool from_left = begin > 0 && id[begin - 1] == id[begin];
    bool to_right = begin + count < n && id[begin + count] == id[begin + count - 1];
    if (threadIdx.x < count) ids[threadIdx.x] = id[begin + threadIdx.x], rows[threadIdx.x] = pos[begin + threadIdx.x];
    __syncthreads();
    for (int64_t c = threadIdx.x * V; c < C; c += blockDim.x * V) {
        float sum[V] = {};
        bool first = true;
        for (int i0 = 0; i0 < count; i0 += U) {
            pack<T, V> q[U];
#pragma unroll
            for (int u = 0; u < U; u++) q[u] = load<T, V>(dy + (int64_t)rows[min(i0 + u, count - 1)] * C + c);
#pragma unroll
            for (int u = 0; u < U; u++) {
                int i = i0 + u;
                if (i >= count) break;
#pragma unroll
                for (int k = 0; k < V; k++) sum[k] += to_float(q[u].v[k]);
                bool last = i + 1 == count;
                if (!last && ids[i + 1] == ids[i]) continue;
                float *to = first && from_left ? edge + (int64_t)blockIdx.x * 2 * C
                            : last && to_right ? edge + ((int64_t)blockIdx.x * 2 + 1) * C
                                               : dtable + ids[i] * C;
#pragma unroll
                for (int k = 0; k < V; k++) to[c + k] = sum[k], sum[k] = 0.0f;
                first = false;
            }
        }
    }
}

/* Block (b, k) finishes columns [128 k, 128 (k+1)) of the run that begins in stretch b and continues to the right. Long
 * runs (padding) have hundreds of stretches: rows of threads share them out and are added in order. */
static __global__ void __launch_bounds__(128 * JOIN_ROWS)
    run_join_kernel(float *dtable, const float *edge, const int32_t *id, int n, int64_t C)
{
    __shared__ float part[JOIN_ROWS][128];
    int begin = blockIdx.x * STRETCH, end = min(begin + STRETCH, n), stretches = gridDim.x;
    if (end >= n || id[end] != id[end - 1]) return;                                  /* nothing continues */
    if (begin > 0 && id[begin - 1] == id[begin] && id[begin] == id[end - 1]) return; /* it began further left */
    int key = id[end - 1], stop = blockIdx.x + 1, high = stretches; /* the first stretch that begins with another id */
    while (stop < high) {
        int middle = (stop + high) / 2;
        if (id[middle * STRETCH] == key) stop = middle + 1;
        else high = middle;
    }
    int first = blockIdx.x + 1, each = (stop - first + JOIN_ROWS - 1) / JOIN_ROWS,
        from = first + (int)threadIdx.y * each, to = min(from + each, stop);
    int64_t c = blockIdx.y * 128 + threadIdx.x;
    float sum = 0.0f;
    if (c < C) {
#pragma unroll 8
        for (int s = from; s < to; s++) sum += edge[(int64_t)s * 2 * C + c];
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= C) return;
    sum = edge[((int64_t)blockIdx.x * 2 + 1) * C + c];
    for (int y = 0; y < JOIN_ROWS; y++) sum += part[y][threadIdx.x];
    dtable[key * C + c] = sum;
}

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status embed_cuda(const op_env *env, const op_args *a)
{
    const tensor *out = &a->out[0];
    int64_t tokens = a->in[0].dim[1], C = tensor_cols(out);
    const int32_t *token = data_of<int32_t>(&a->in[0]), *row = data_of<int32_t>(&a->in[3]);
    const float *table = data_of<float>(&a->in[1]), *pos = data_of<float>(&a->in[2]);
    WITH_PACK(out->dtype, C, {
        T *y = data_of<T>(out);
        int64_t packs = C / V;
        return for_each(env, "embed", tensor_count(out) / V, [=] __device__(int64_t i) {
            int64_t r = row ? row[i / packs] : i / packs, c = i % packs * V;
            float p[V], q[V];
            pack<T, V> sum;
            load_floats<V>(p, table + token[r] * C + c);
            load_floats<V>(q, pos + (r % tokens) * C + c);
            for (int j = 0; j < V; j++) sum.v[j] = from_float<T>(p[j] + q[j]);
            store<T, V>(y + i * V, sum);
        });
    });
}

typedef struct bwd_layout {
    size_t own, id, pos, edge, sums, bytes; /* offsets in scratch */
    int n, stretches;
} bwd_layout;

static bwd_layout layout_of(const op_env *env, const op_args *a)
{
    bwd_layout l;
    const tensor *dy = &a->in[0];
    int64_t C = tensor_cols(dy), R = tensor_rows(dy);
    bool packed = op_has(&a->in[4]);
    l.n = (int)R;
    l.stretches = (l.n + STRETCH - 1) / STRETCH;
    size_t list = cuda_align((size_t)l.n * sizeof(int32_t));
    l.own = 0; /* ids of packed rows */
    l.id = packed ? list : 0;
    l.pos = l.id + list;
    l.edge = l.pos + list;
    l.sums = l.edge + cuda_align((size_t)l.stretches * 2 * (size_t)C * sizeof(float));
    l.bytes = l.sums + (packed ? 0 : colsum_scratch(env->dev, dy->dim[0], dy->dim[1] * C, dy->dtype));
    return l;
}

/* out (V, C) = sums of the rows of dy with each id. */
static cloob_status sum_by_id(const op_env *env, const op_args *a, const bwd_layout &l, const tensor *to,
                              const int32_t *ids)
{
    const tensor *dy = &a->in[0];
    int64_t C = tensor_cols(dy), V = to->dim[0];
    int32_t *id = (int32_t *)((char *)a->scratch + l.id), *pos = (int32_t *)((char *)a->scratch + l.pos);
    float *edge = (float *)((char *)a->scratch + l.edge), *out = (float *)to->data;
    cudaStream_t s = stream_of(env);
    CLOOB_TRY(cuda_check(env->ctx, cudaMemsetAsync(out, 0, tensor_bytes(to), s), "embed_bwd"));
    sort_kernel<<<(unsigned)((V + RANGE - 1) / RANGE), SORT_WARPS * 32, 0, s>>>(id, pos, ids, l.n);
    CLOOB_TRY(cuda_launched(env->ctx, "embed_bwd"));
    if (C % 4 == 0)
        WITH_TYPE(dy->dtype, (run_sum_kernel<T, 4>
                              <<<(unsigned)l.stretches, 128, 0, s>>>(out, edge, id, pos, (const T *)dy->data, l.n, C)));
    else
        WITH_TYPE(dy->dtype, (run_sum_kernel<T, 1>
                              <<<(unsigned)l.stretches, 128, 0, s>>>(out, edge, id, pos, (const T *)dy->data, l.n, C)));
    CLOOB_TRY(cuda_launched(env->ctx, "embed_bwd"));
    run_join_kernel<<<dim3((unsigned)l.stretches, (unsigned)((C + 127) / 128)), dim3(128, JOIN_ROWS), 0, s>>>(out, edge,
                                                                                                              id, l.n,
                                                                                                              C);
    return cuda_launched(env->ctx, "embed_bwd");
}

/* The same for packed rows, whose ids are looked up first: of their tokens, or of their positions. */
static cloob_status sum_packed(const op_env *env, const op_args *a, const bwd_layout &l, const tensor *to,
                               const int32_t *token)
{
    int32_t *own = (int32_t *)((char *)a->scratch + l.own);
    const int32_t *row = data_of<int32_t>(&a->in[4]);
    int32_t tokens = (int32_t)a->in[1].dim[1];
    CLOOB_TRY(for_each(env, "embed_bwd", l.n,
                       [=] __device__(int64_t i) { own[i] = token ? token[row[i]] : row[i] % tokens; }));
    return sum_by_id(env, a, l, to, own);
}

extern "C" cloob_status embed_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    if (tensor_rows(&a->in[0]) > INT32_MAX / 2)
        return ctx_fail(env->ctx, CLOOB_ERR_UNSUPPORTED, "embed_bwd: %lld tokens are too many",
                        (long long)tensor_rows(&a->in[0]));
    a->scratch_bytes = layout_of(env, a).bytes;
    return CLOOB_OK;
}

extern "C" cloob_status embed_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *dtable = &a->out[0], *dpos = &a->out[1];
    const int32_t *token = (const int32_t *)a->in[1].data;
    bwd_layout l = layout_of(env, a);
    if (op_has(&a->in[4])) {
        if (dtable->data) CLOOB_TRY(sum_packed(env, a, l, dtable, token));
        return dpos->data ? sum_packed(env, a, l, dpos, NULL) : CLOOB_OK;
    }
    if (dtable->data) CLOOB_TRY(sum_by_id(env, a, l, dtable, token));
    if (!dpos->data) return CLOOB_OK;
    return colsum(env, "embed_bwd", (float *)dpos->data, dy->data, dy->dtype, dy->dim[0], dy->dim[1] * dy->dim[2], 0,
                  (char *)a->scratch + l.sums);
}
