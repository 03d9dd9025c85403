/* Extraction of rows, and grids as tokens. One pass each; widths in packs of 16 bytes where they
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

/* A thread per pack. Index counts inside sequences of `tokens` rows; packed, over all rows. */
extern "C" cloob_status take_rows_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0];
    const int32_t *index = data_of<int32_t>(&a->in[1]);
    int64_t N = tensor_rows(&a->out[0]), tokens = in->ndim == 3 ? in->dim[1] : 0, C = tensor_cols(in),
            each = rows_each(&a->in[1]);
    WITH_PACK(in->dtype, C, {
        T *y = data_of<T>(&a->out[0]);
        const T *x = data_of<T>(in);
        int64_t packs = C / V;
        return for_each(env, "take_rows", N * packs, [=] __device__(int64_t i) {
            int64_t n = i / packs, c = i % packs, t = index ? index[n] : 0;
            store<T, V>(y + i * V, load<T, V>(x + ((n / each * tokens + t) * packs + c) * V));
        });
    });
}

/* a + b, rounded. */
template <typename T, int V>
__device__ __forceinline__ pack<T, V> sum_of(pack<T, V> a, const pack<T, V> &b)
{
#pragma unroll
    for (int j = 0; j < V; j++) a.v[j] = from_float<T>(to_float(a.v[j]) + to_float(b.v[j]));
    return a;
}

/* Packed, the rows that are read are too few to look for, and of several of a sequence each would be looked for by
 * all threads: a copy, then dy[r] is added to the row that index[r] names (the first without index), inside its
 * sequence, or packed (tokens 0), of all. Where dx is stored in place of the other gradient, nothing is copied. */
static cloob_status take_many_bwd(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0], *out = &a->out[0];
    const void *extra = a->in[3].data;
    const int32_t *index = data_of<int32_t>(&a->in[1]);
    int64_t C = tensor_cols(out), rows = tensor_rows(in), tokens = out->ndim == 3 ? out->dim[1] : 0,
            each = rows_each(&a->in[1]);
    cudaStream_t s = stream_of(env);
    size_t bytes = tensor_bytes(out);
    if (extra && extra != out->data)
        CLOOB_TRY(cuda_check(env->ctx, cudaMemcpyAsync(out->data, extra, bytes, cudaMemcpyDeviceToDevice, s),
                             "take_rows_bwd"));
    if (!extra) CLOOB_TRY(cuda_check(env->ctx, cudaMemsetAsync(out->data, 0, bytes, s), "take_rows_bwd"));
    WITH_PACK(out->dtype, C, {
        T *dx = data_of<T>(out);
        const T *dy = data_of<T>(in);
        int64_t packs = C / V;
        return for_each(env, "take_rows_bwd", rows * packs, [=] __device__(int64_t i) {
            int64_t r = i / packs;
            T *to = dx + ((r / each * tokens + (index ? index[r] : 0)) * packs + i % packs) * V;
            store<T, V>(to, sum_of(load<T, V>(to), load<T, V>(dy + i * V)));
        });
    });
}

extern "C" cloob_status take_rows_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *out = &a->out[0];
    const int32_t *index = data_of<int32_t>(&a->in[1]);
    bool many = out->ndim == 2 || (index && a->in[1].ndim == 2);
    if (many || a->in[3].data == out->data) return take_many_bwd(env, a);
    int64_t tokens = out->dim[1], C = out->dim[2];
    WITH_PACK(out->dtype, C, {
        T *dx = data_of<T>(out);
        const T *dy = data_of<T>(&a->in[0]), *extra = data_of<T>(&a->in[3]);
        int64_t packs = C / V;
        return for_each(env, "take_rows_bwd", tensor_count(out) / V, [=] __device__(int64_t i) {
            int64_t r = i / packs, n = r / tokens;
            pack<T, V> sum = {};
            if (extra) sum = load<T, V>(extra + i * V);
            if (r % tokens == (index ? index[n] : 0)) sum = sum_of(sum, load<T, V>(dy + (n * packs + i % packs) * V));
            store<T, V>(dx + i * V, sum);
        });
    });
}

/* y[n, t] = (t ? x[n, t-1] : cls) + pos[t] */
extern "C" cloob_status class_tokens_cuda(const op_env *env, const op_args *a)
{
    const tensor *out = &a->out[0];
    const float *cls = data_of<float>(&a->in[1]), *pos = data_of<float>(&a->in[2]);
    int64_t tokens = out->dim[1], C = out->dim[2];
    WITH_PACK(out->dtype, C, {
        T *y = data_of<T>(out);
        const T *x = data_of<T>(&a->in[0]);
        return for_each(env, "class_tokens", tensor_count(out) / V, [=] __device__(int64_t i) {
            int64_t r = i * V / C, c = i * V % C, n = r / tokens, t = r % tokens;
            float p[V], v[V];
            pack<T, V> sum;
            load_floats<V>(p, pos + t * C + c);
            if (t == 0) load_floats<V>(v, cls + c);
            else {
                pack<T, V> k = load<T, V>(x + (n * (tokens - 1) + t - 1) * C + c);
                for (int j = 0; j < V; j++) v[j] = to_float(k.v[j]);
            }
            for (int j = 0; j < V; j++) sum.v[j] = from_float<T>(v[j] + p[j]);
            store<T, V>(y + i * V, sum);
        });
    });
}

/* dx[n, t] = dy[n, t+1] + share dy[n, 0] */
static cloob_status grid_dx(const op_env *env, const char *op, const tensor *in, const tensor *out, float share)
{
    int64_t tokens = in->dim[1], C = in->dim[2], items = in->dim[0] * (tokens - 1) * C;
    WITH_PACK(in->dtype, C, {
        T *dx = data_of<T>(out);
        const T *dy = data_of<T>(in);
        int64_t packs = C / V;
        return for_each(env, op, items / V, [=] __device__(int64_t i) {
            int64_t r = i / packs, c = i % packs, n = r / (tokens - 1), t = r % (tokens - 1) + 1;
            pack<T, V> sum = load<T, V>(dy + ((n * tokens + t) * packs + c) * V);
            if (share != 0.0f) {
                pack<T, V> first = load<T, V>(dy + (n * tokens * packs + c) * V);
                for (int j = 0; j < V; j++) sum.v[j] = from_float<T>(to_float(sum.v[j]) + share * to_float(first.v[j]));
            }
            store<T, V>(dx + i * V, sum);
        });
    });
}

/* Both backward ops: dx, and sums over the batch for the parameters. */
static cloob_status grid_bwd(const op_env *env, const char *op, const tensor *dy, const tensor *dx, const tensor *dcls,
                             const tensor *dpos, bool mean, void *scratch)
{
    int64_t N = dy->dim[0], tokens = dy->dim[1], C = dy->dim[2];
    if (dx->data) CLOOB_TRY(grid_dx(env, op, dy, dx, mean ? 1.0f / (float)(tokens - 1) : 0.0f));
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

/* A thread per row and pack; it processes all tokens of the grid. */
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
