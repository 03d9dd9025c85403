/* Rows taken out, grids made into tokens. One pass each; widths in packs of 16 bytes where they
 * divide. */
#include "nn/cuda/common.cuh"

/* A warp per row of tokens: the first largest id. */
static __global__ void eot_kernel(int32_t *index, const int32_t *token, int64_t N, int T)
{
    int64_t n = (int64_t)blockIdx.x * 8 + threadIdx.y;
    if (n >= N) return;
    int best = INT32_MIN, at = T;
    for (int t = threadIdx.x; t < T; t += 32) {
        int id = token[n * T + t];
        if (id > best || at == T) best = id, at = t; /* a lane sees its positions in rising order */
    }
    for (int k = 16; k; k >>= 1) {
        int other = __shfl_xor_sync(0xffffffffu, best, k), where = __shfl_xor_sync(0xffffffffu, at, k);
        if (where < T && (at == T || other > best || (other == best && where < at))) best = other, at = where;
    }
    if (threadIdx.x == 0) index[n] = at;
}

/* One block: lengths are added up over its threads, each with its own stretch of texts; then its warps write
 * the rows of one text after the other. */
static __global__ void __launch_bounds__(1024)
    pack_texts_kernel(int32_t *start, int32_t *row, int32_t *last, int32_t *first, const int32_t *index, int N, int T,
                      int R)
{
    __shared__ int total[32];
    int tid = threadIdx.x, lane = tid & 31, warp = tid / 32, per = (N + 1023) / 1024, from = min(tid * per, N),
        to = min(from + per, N), sum = 0;
    for (int n = from; n < to; n++) sum += index[n] + 1;
    int before = sum; /* up to and with this thread, first of its warp, then of all */
    for (int k = 1; k < 32; k <<= 1) {
        int left = __shfl_up_sync(0xffffffffu, before, k);
        if (lane >= k) before += left;
    }
    if (lane == 31) total[warp] = before;
    __syncthreads();
    for (int w = 0; w < warp; w++) before += total[w];
    int at = before - sum;
    for (int n = from; n < to; n++) {
        start[n] = min(at, R);
        if (first) first[n] = min(at, R);
        at += index[n] + 1;
        if (last) last[n] = max(min(at, R) - 1, 0);
        if (n + 1 == N) start[N] = min(at, R);
    }
    __syncthreads();
    for (int n = warp; n < N; n += 32)
        for (int from = start[n], end = start[n + 1], r = from + lane; r < end; r += 32) row[r] = n * T + r - from;
    for (int r = start[N] + tid; r < R; r += 1024) row[r] = 0;
}

/* A thread per pack; rows of `packs` packs, `each` of a sequence. */
template <typename T, int V>
static __global__ void __launch_bounds__(256)
    take_kernel(T *y, const T *x, const int32_t *index, int64_t items, int64_t tokens, int64_t each, int64_t packs)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t n = i / packs, c = i % packs, t = index ? index[n] : 0;
    store<T, V>(y + i * V, load<T, V>(x + ((n / each * tokens + t) * packs + c) * V));
}

template <typename T, int V>
static __global__ void __launch_bounds__(256) take_bwd_kernel(T *dx, const T *dy, const int32_t *index, const T *extra,
                                                              int64_t items, int64_t tokens, int64_t packs)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t r = i / packs, c = i % packs, n = r / tokens, t = r % tokens;
    pack<T, V> out = {};
    if (extra) out = load<T, V>(extra + i * V);
    if (t == (index ? index[n] : 0)) {
        pack<T, V> d = load<T, V>(dy + (n * packs + c) * V);
#pragma unroll
        for (int j = 0; j < V; j++) out.v[j] = from_float<T>(to_float(out.v[j]) + to_float(d.v[j]));
    }
    store<T, V>(dx + i * V, out);
}

/* dy[r] onto the row that index[r] names (the first without index), and no other: inside its sequence, or packed
 * (tokens 0), of all. */
template <typename T, int V>
static __global__ void __launch_bounds__(256) add_rows_kernel(T *dx, const T *dy, const int32_t *index, int64_t items,
                                                              int64_t tokens, int64_t each, int64_t packs)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t r = i / packs;
    T *to = dx + ((r / each * tokens + (index ? index[r] : 0)) * packs + i % packs) * V;
    pack<T, V> out = load<T, V>(to), d = load<T, V>(dy + i * V);
#pragma unroll
    for (int j = 0; j < V; j++) out.v[j] = from_float<T>(to_float(out.v[j]) + to_float(d.v[j]));
    store<T, V>(to, out);
}

/* y[n, t] = (t ? x[n, t-1] : cls) + pos[t] */
template <typename T, int V>
static __global__ void __launch_bounds__(256)
    class_kernel(T *y, const T *x, const float *cls, const float *pos, int64_t items, int64_t tokens, int64_t packs)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t r = i / packs, c = (i % packs) * V, n = r / tokens, t = r % tokens, C = packs * V;
    float p[V], v[V];
    pack<T, V> out;
    load_floats<V>(p, pos + t * C + c);
    if (t == 0) load_floats<V>(v, cls + c);
    else {
        pack<T, V> k = load<T, V>(x + (n * (tokens - 1) + t - 1) * C + c);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = to_float(k.v[j]);
    }
#pragma unroll
    for (int j = 0; j < V; j++) out.v[j] = from_float<T>(v[j] + p[j]);
    store<T, V>(y + i * V, out);
}

/* dx[n, t] = dy[n, t+1] + share dy[n, 0]; items over dx. */
template <typename T, int V>
static __global__ void __launch_bounds__(256)
    grid_bwd_kernel(T *dx, const T *dy, float share, int64_t items, int64_t tokens, int64_t packs)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t r = i / packs, c = i % packs, n = r / (tokens - 1), t = r % (tokens - 1) + 1;
    pack<T, V> out = load<T, V>(dy + ((n * tokens + t) * packs + c) * V);
    if (share != 0.0f) {
        pack<T, V> first = load<T, V>(dy + (n * tokens * packs + c) * V);
#pragma unroll
        for (int j = 0; j < V; j++) out.v[j] = from_float<T>(to_float(out.v[j]) + share * to_float(first.v[j]));
    }
    store<T, V>(dx + i * V, out);
}

/* A thread per row and pack walks the grid. */
template <typename T, int V>
static __global__ void __launch_bounds__(256)
    mean_kernel(T *__restrict__ y, const T *__restrict__ x, const float *__restrict__ pos, int64_t items,
                int64_t tokens, int64_t packs)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    int64_t n = i / packs, c = (i % packs) * V, C = packs * V;
    float sum[V] = {}, p[V];
    pack<T, V> out;
#pragma unroll 4
    for (int64_t t = 1; t < tokens; t++) {
        pack<T, V> k = load<T, V>(x + (n * (tokens - 1) + t - 1) * C + c);
        load_floats<V>(p, pos + t * C + c);
#pragma unroll
        for (int j = 0; j < V; j++) {
            sum[j] += to_float(k.v[j]);
            out.v[j] = from_float<T>(to_float(k.v[j]) + p[j]);
        }
        store<T, V>(y + (n * tokens + t) * C + c, out);
    }
    load_floats<V>(p, pos + c);
#pragma unroll
    for (int j = 0; j < V; j++) out.v[j] = from_float<T>(sum[j] / (float)(tokens - 1) + p[j]);
    store<T, V>(y + n * tokens * C + c, out);
}

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status eot_index_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    eot_kernel<<<(unsigned)((x->dim[0] + 7) / 8), dim3(32, 8), 0, stream_of(env)>>>((int32_t *)a->out[0].data,
                                                                                    (const int32_t *)x->data, x->dim[0],
                                                                                    (int)x->dim[1]);
    return cuda_launched(env->ctx, "eot_index");
}

extern "C" cloob_status pack_texts_cuda(const op_env *env, const op_args *a)
{
    int64_t N = a->in[1].dim[0], T = a->in[1].dim[1], R = a->attr.rows;
    if (N * T > INT32_MAX || R > INT32_MAX)
        return ctx_fail(env->ctx, CLOOB_ERR_UNSUPPORTED, "pack_texts: %lld tokens are too many", (long long)(N * T));
    pack_texts_kernel<<<1, 1024, 0, stream_of(env)>>>((int32_t *)a->out[0].data, (int32_t *)a->out[1].data,
                                                      (int32_t *)a->out[2].data, (int32_t *)a->out[3].data,
                                                      (const int32_t *)a->in[0].data, (int)N, (int)T, (int)R);
    return cuda_launched(env->ctx, "pack_texts");
}

/* Rows that are taken of each sequence. */
static int64_t rows_each(const tensor *index) { return index->data && index->ndim == 2 ? index->dim[1] : 1; }

/* Index counts inside sequences of `tokens` rows; packed, over all rows. */
extern "C" cloob_status take_rows_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    int64_t N = tensor_rows(&a->out[0]), tokens = x->ndim == 3 ? x->dim[1] : 0, C = tensor_cols(x),
            packs = C / pack_width(x->dtype, C), each = rows_each(&a->in[1]);
    WITH_PACK(x->dtype, C,
              take_kernel<T, V>
              <<<blocks_for(N * packs), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (const T *)x->data,
                                                                  (const int32_t *)a->in[1].data, N * packs, tokens,
                                                                  each, packs));
    return cuda_launched(env->ctx, "take_rows");
}

/* Packed, the rows that are read are too few to look for, and of several of a sequence each would be looked for by all
 * threads: a copy, and a sum onto each of them. Where dx lies in the place of the other gradient, the sum is all. */
static cloob_status take_many_bwd(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0];
    const void *extra = a->in[3].data;
    int64_t C = tensor_cols(dx), packs = C / pack_width(dx->dtype, C), items = tensor_rows(dy) * packs;
    int64_t tokens = dx->ndim == 3 ? dx->dim[1] : 0, each = rows_each(&a->in[1]);
    cudaStream_t s = stream_of(env);
    size_t bytes = tensor_bytes(dx);
    if (extra && extra != dx->data)
        CLOOB_TRY(cuda_check(env->ctx, cudaMemcpyAsync(dx->data, extra, bytes, cudaMemcpyDeviceToDevice, s),
                             "take_rows_bwd"));
    if (!extra) CLOOB_TRY(cuda_check(env->ctx, cudaMemsetAsync(dx->data, 0, bytes, s), "take_rows_bwd"));
    WITH_PACK(dx->dtype, C,
              add_rows_kernel<T, V>
              <<<blocks_for(items), 256, 0, s>>>((T *)dx->data, (const T *)dy->data, (const int32_t *)a->in[1].data,
                                                 items, tokens, each, packs));
    return cuda_launched(env->ctx, "take_rows_bwd");
}

extern "C" cloob_status take_rows_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *dx = &a->out[0];
    bool many = dx->ndim == 2 || (a->in[1].data && a->in[1].ndim == 2);
    if (many || a->in[3].data == dx->data) return take_many_bwd(env, a);
    int64_t N = dx->dim[0], tokens = dx->dim[1], C = dx->dim[2], packs = C / pack_width(dx->dtype, C),
            items = N * tokens * packs;
    WITH_PACK(dx->dtype, C,
              take_bwd_kernel<T, V>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)dx->data, (const T *)a->in[0].data,
                                                              (const int32_t *)a->in[1].data, (const T *)a->in[3].data,
                                                              items, tokens, packs));
    return cuda_launched(env->ctx, "take_rows_bwd");
}

extern "C" cloob_status class_tokens_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->out[0];
    int64_t N = y->dim[0], tokens = y->dim[1], C = y->dim[2], packs = C / pack_width(y->dtype, C),
            items = N * tokens * packs;
    WITH_PACK(y->dtype, C,
              class_kernel<T, V>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)y->data, (const T *)a->in[0].data,
                                                              (const float *)a->in[1].data,
                                                              (const float *)a->in[2].data, items, tokens, packs));
    return cuda_launched(env->ctx, "class_tokens");
}

/* Both backward ops: dx, and sums over the batch for the parameters. */
static cloob_status grid_bwd(const op_env *env, const char *op, const tensor *dy, const tensor *dx, const tensor *dcls,
                             const tensor *dpos, bool mean, void *scratch)
{
    int64_t N = dy->dim[0], tokens = dy->dim[1], C = dy->dim[2], packs = C / pack_width(dy->dtype, C),
            items = N * (tokens - 1) * packs;
    float share = mean ? 1.0f / (float)(tokens - 1) : 0.0f;
    if (dx->data && items) {
        WITH_PACK(dy->dtype, C,
                  grid_bwd_kernel<T, V>
                  <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)dx->data, (const T *)dy->data, share, items,
                                                                  tokens, packs));
        CLOOB_TRY(cuda_launched(env->ctx, op));
    }
    if (dcls && dcls->data)
        CLOOB_TRY(colsum(env, op, (float *)dcls->data, dy->data, dy->dtype, N, C, tokens * C, scratch));
    if (!dpos->data) return CLOOB_OK;
    return colsum(env, op, (float *)dpos->data, dy->data, dy->dtype, N, tokens * C, 0, scratch);
}

static size_t grid_bwd_scratch(const op_env *env, const tensor *dy)
{
    size_t cls = colsum_scratch(env->dev, dy->dim[0], dy->dim[2], dy->dtype);
    size_t pos = colsum_scratch(env->dev, dy->dim[0], dy->dim[1] * dy->dim[2], dy->dtype);
    return cls > pos ? cls : pos;
}

extern "C" cloob_status class_tokens_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    a->scratch_bytes = grid_bwd_scratch(env, &a->in[0]);
    return CLOOB_OK;
}

extern "C" cloob_status class_tokens_bwd_cuda(const op_env *env, const op_args *a)
{
    return grid_bwd(env, "class_tokens_bwd", &a->in[0], &a->out[0], &a->out[1], &a->out[2], false, a->scratch);
}

extern "C" cloob_status mean_tokens_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->out[0];
    int64_t N = y->dim[0], tokens = y->dim[1], C = y->dim[2], packs = C / pack_width(y->dtype, C), items = N * packs;
    WITH_PACK(y->dtype, C,
              mean_kernel<T, V>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)y->data, (const T *)a->in[0].data,
                                                              (const float *)a->in[1].data, items, tokens, packs));
    return cuda_launched(env->ctx, "mean_tokens");
}

extern "C" cloob_status mean_tokens_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    a->scratch_bytes = grid_bwd_scratch(env, &a->in[0]);
    return CLOOB_OK;
}

extern "C" cloob_status mean_tokens_bwd_cuda(const op_env *env, const op_args *a)
{
    return grid_bwd(env, "mean_tokens_bwd", &a->in[0], &a->out[0], NULL, &a->out[1], true, a->scratch);
}
