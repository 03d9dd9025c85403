/* Attention without tensor cores: any head width, F32 included; and attention for one query per row. A warp
 * per query (or per key): first its lanes share the keys (scores), then the columns (weighted sums). Sums
 * have one order. */
#include "nn/cuda/common.cuh"

enum { WARPS = 4 };

typedef struct sizes {
    int64_t N;
    int T, C, H, D; /* D = C / H */
    int causal;
    float scale;
} sizes;

/* Dot product of two rows of D elements by one lane; V divides D and both rows are aligned to it. */
template <typename T, int V>
__device__ __forceinline__ float dot(const T *a, const T *b, int D)
{
    float sum = 0.0f;
    for (int i = 0; i < D; i += V) {
        pack<T, V> p = load<T, V>(a + i), q = load<T, V>(b + i);
#pragma unroll
        for (int j = 0; j < V; j++) sum += to_float(p.v[j]) * to_float(q.v[j]);
    }
    return sum;
}

/* softmax(q.k) v for one query; score holds `keys` floats of this warp. Returns the log-sum-exp. */
template <typename T, int V>
__device__ static float query_forward(T *y, float *score, const T *q, const T *k, const T *v, int64_t step,
                                      int keys, int D, float scale)
{
    int lane = threadIdx.x;
    float most = -INFINITY, sum = 0.0f;
    for (int j = lane; j < keys; j += 32) {
        score[j] = dot<T, V>(q, k + j * step, D) * scale;
        most = fmaxf(most, score[j]);
    }
    most = warp_max(most);
    for (int j = lane; j < keys; j += 32) {
        score[j] = expf(score[j] - most);
        sum += score[j];
    }
    sum = warp_sum(sum);
    __syncwarp();
    for (int i = lane; i < D; i += 32) {
        float out = 0.0f;
#pragma unroll 4
        for (int j = 0; j < keys; j++) out += score[j] * to_float(v[j * step + i]);
        y[i] = from_float<T>(out / sum);
    }
    return most + logf(sum);
}

template <typename T, int V>
static __global__ void __launch_bounds__(32 * WARPS) forward_kernel(T *y, float *lse, const T *qkv, sizes z)
{
    extern __shared__ float smem[];
    int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.y, step = 3 * (int64_t)z.C;
    if (id >= z.N * z.H * z.T) return;
    int t = (int)(id % z.T), h = (int)(id / z.T % z.H);
    int64_t n = id / z.T / z.H;
    const T *base = qkv + n * z.T * step + h * z.D;
    float l =
        query_forward<T, V>(y + (n * z.T + t) * z.C + h * z.D, smem + threadIdx.y * z.T, base + t * step,
                            base + z.C, base + 2 * z.C, step, z.causal ? t + 1 : z.T, z.D, z.scale);
    if (threadIdx.x == 0 && lse) lse[id] = l;
}

/* dq of one query. */
template <typename T, int V>
static __global__ void __launch_bounds__(32 * WARPS)
    query_kernel(T *dqkv, const T *dy, const T *qkv, const T *y, const float *lse, sizes z)
{
    extern __shared__ float smem[];
    int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.y, step = 3 * (int64_t)z.C;
    if (id >= z.N * z.H * z.T) return;
    int t = (int)(id % z.T), h = (int)(id / z.T % z.H), lane = threadIdx.x, keys = z.causal ? t + 1 : z.T;
    int64_t n = id / z.T / z.H, row = (n * z.T + t) * z.C + h * z.D;
    const T *base = qkv + n * z.T * step + h * z.D;
    float *ds = smem + threadIdx.y * z.T, along = dot<T, V>(dy + row, y + row, z.D);
    for (int j = lane; j < keys; j += 32) {
        float p = expf(dot<T, V>(base + t * step, base + z.C + j * step, z.D) * z.scale - lse[id]);
        ds[j] = p * (dot<T, V>(dy + row, base + 2 * z.C + j * step, z.D) - along) * z.scale;
    }
    __syncwarp();
    for (int i = lane; i < z.D; i += 32) {
        float out = 0.0f;
        for (int j = 0; j < keys; j++) out += ds[j] * to_float(base[z.C + j * step + i]);
        dqkv[n * z.T * step + t * step + h * z.D + i] = from_float<T>(out);
    }
}

/* dk and dv of one key: over the queries that see it. */
template <typename T, int V>
static __global__ void __launch_bounds__(32 * WARPS)
    key_kernel(T *dqkv, const T *dy, const T *qkv, const T *y, const float *lse, sizes z)
{
    extern __shared__ float smem[];
    int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.y, step = 3 * (int64_t)z.C;
    if (id >= z.N * z.H * z.T) return;
    int j = (int)(id % z.T), h = (int)(id / z.T % z.H), lane = threadIdx.x, first = z.causal ? j : 0;
    int64_t n = id / z.T / z.H;
    const T *base = qkv + n * z.T * step + h * z.D, *dy0 = dy + n * z.T * z.C + h * z.D,
            *y0 = y + n * z.T * z.C + h * z.D;
    float *p = smem + threadIdx.y * 2 * z.T, *ds = p + z.T;
    for (int t = first + lane; t < z.T; t += 32) {
        const T *g = dy0 + (int64_t)t * z.C;
        p[t] = expf(dot<T, V>(base + t * step, base + z.C + j * step, z.D) * z.scale - lse[id - j + t]);
        ds[t] = p[t] *
                (dot<T, V>(g, base + 2 * z.C + j * step, z.D) - dot<T, V>(g, y0 + (int64_t)t * z.C, z.D)) *
                z.scale;
    }
    __syncwarp();
    for (int i = lane; i < z.D; i += 32) {
        float dk = 0.0f, dv = 0.0f;
        for (int t = first; t < z.T; t++) {
            dk += ds[t] * to_float(base[t * step + i]);
            dv += p[t] * to_float(dy0[(int64_t)t * z.C + i]);
        }
        T *out = dqkv + n * z.T * step + j * step + h * z.D + i;
        out[z.C] = from_float<T>(dk);
        out[2 * z.C] = from_float<T>(dv);
    }
}

/* ---- one query per row --------------------------------------------------------------------------- */

__device__ __forceinline__ int keys_of(const int32_t *index, int64_t n, int T)
{
    return index ? min(index[n] + 1, T) : T;
}

template <typename T, int V>
static __global__ void __launch_bounds__(32 * WARPS)
    one_kernel(T *y, float *lse, const T *q, const T *kv, const int32_t *index, sizes z)
{
    extern __shared__ float smem[];
    int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.y, step = 2 * (int64_t)z.C;
    if (id >= z.N * z.H) return;
    int64_t n = id / z.H, at = n * z.C + id % z.H * z.D;
    const T *base = kv + n * z.T * step + id % z.H * z.D;
    float l = query_forward<T, V>(y + at, smem + threadIdx.y * z.T, q + at, base, base + z.C, step,
                                  keys_of(index, n, z.T), z.D, z.scale);
    if (threadIdx.x == 0 && lse) lse[id] = l;
}

template <typename T, int V>
static __global__ void __launch_bounds__(32 * WARPS)
    one_bwd_kernel(T *dq, T *dkv, const T *dy, const T *q, const T *kv, const int32_t *index, const T *y,
                   const float *lse, sizes z)
{
    extern __shared__ float smem[];
    int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.y, step = 2 * (int64_t)z.C;
    if (id >= z.N * z.H) return;
    int64_t n = id / z.H, at = n * z.C + id % z.H * z.D, first = n * z.T * step + id % z.H * z.D;
    const T *base = kv + first;
    int lane = threadIdx.x, keys = keys_of(index, n, z.T);
    float *p = smem + threadIdx.y * 2 * z.T, *ds = p + z.T, along = dot<T, V>(dy + at, y + at, z.D);
    for (int j = lane; j < z.T; j += 32) {
        p[j] = ds[j] = 0.0f; /* keys the query does not see */
        if (j >= keys) continue;
        p[j] = expf(dot<T, V>(q + at, base + j * step, z.D) * z.scale - lse[id]);
        ds[j] = p[j] * (dot<T, V>(dy + at, base + z.C + j * step, z.D) - along) * z.scale;
    }
    __syncwarp();
    for (int i = lane; i < z.D; i += 32) {
        float sum = 0.0f, qi = to_float(q[at + i]), gi = to_float(dy[at + i]);
#pragma unroll 4
        for (int j = 0; j < z.T; j++) {
            if (j < keys) sum += ds[j] * to_float(base[j * step + i]);
            if (!dkv) continue;
            dkv[first + j * step + i] = from_float<T>(ds[j] * qi);
            dkv[first + j * step + z.C + i] = from_float<T>(p[j] * gi);
        }
        if (dq) dq[at + i] = from_float<T>(sum);
    }
}

/* ---- launchers ----------------------------------------------------------------------------------- */

static sizes sizes_of(const op_args *a, int64_t N, int64_t T, int64_t C)
{
    int D = (int)(C / a->attr.heads);
    sizes z = { N, (int)T, (int)C, (int)a->attr.heads, D, a->attr.causal, 1.0f / sqrtf((float)D) };
    return z;
}

static cloob_status check_room(const op_env *env, const char *op, const sizes &z)
{
    if ((size_t)WARPS * 2 * z.T * sizeof(float) <= 48u << 10) return CLOOB_OK;
    return ctx_fail(env->ctx, CLOOB_ERR_UNSUPPORTED, "%s: %d tokens are more than the GPU kernel holds", op,
                    z.T);
}

static unsigned blocks_of(int64_t warps) { return (unsigned)((warps + WARPS - 1) / WARPS); }

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status attention_plain(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    sizes z = sizes_of(a, y->dim[0], y->dim[1], y->dim[2]);
    size_t smem = (size_t)WARPS * z.T * sizeof(float);
    CLOOB_TRY(check_room(env, "attention", z));
    WITH_PACK(x->dtype, z.D,
              forward_kernel<T, V><<<blocks_of(z.N * z.H * z.T), dim3(32, WARPS), smem, stream_of(env)>>>(
                  (T *)y->data, (float *)a->out[1].data, (const T *)x->data, z));
    return cuda_launched(env->ctx, "attention");
}

extern "C" cloob_status attention_bwd_plain(const op_env *env, const op_args *a)
{
    const tensor *y = &a->in[2];
    sizes z = sizes_of(a, y->dim[0], y->dim[1], y->dim[2]);
    size_t smem = (size_t)WARPS * 2 * z.T * sizeof(float);
    dim3 block(32, WARPS);
    unsigned blocks = blocks_of(z.N * z.H * z.T);
    cudaStream_t s = stream_of(env);
    const float *lse = (const float *)a->in[3].data;
    CLOOB_TRY(check_room(env, "attention_bwd", z));
    WITH_PACK(y->dtype, z.D,
              query_kernel<T, V>
              <<<blocks, block, smem, s>>>((T *)a->out[0].data, (const T *)a->in[0].data,
                                           (const T *)a->in[1].data, (const T *)y->data, lse, z));
    CLOOB_TRY(cuda_launched(env->ctx, "attention_bwd"));
    WITH_PACK(y->dtype, z.D,
              key_kernel<T, V>
              <<<blocks, block, smem, s>>>((T *)a->out[0].data, (const T *)a->in[0].data,
                                           (const T *)a->in[1].data, (const T *)y->data, lse, z));
    return cuda_launched(env->ctx, "attention_bwd");
}

extern "C" cloob_status attention_one_cuda(const op_env *env, const op_args *a)
{
    const tensor *q = &a->in[0], *kv = &a->in[1];
    sizes z = sizes_of(a, q->dim[0], kv->dim[1], q->dim[1]);
    size_t smem = (size_t)WARPS * z.T * sizeof(float);
    CLOOB_TRY(check_room(env, "attention_one", z));
    WITH_PACK(q->dtype, z.D,
              one_kernel<T, V><<<blocks_of(z.N * z.H), dim3(32, WARPS), smem, stream_of(env)>>>(
                  (T *)a->out[0].data, (float *)a->out[1].data, (const T *)q->data, (const T *)kv->data,
                  (const int32_t *)a->in[2].data, z));
    return cuda_launched(env->ctx, "attention_one");
}

extern "C" cloob_status attention_one_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *q = &a->in[1], *kv = &a->in[2];
    sizes z = sizes_of(a, q->dim[0], kv->dim[1], q->dim[1]);
    size_t smem = (size_t)WARPS * 2 * z.T * sizeof(float);
    CLOOB_TRY(check_room(env, "attention_one_bwd", z));
    WITH_PACK(q->dtype, z.D,
              one_bwd_kernel<T, V><<<blocks_of(z.N * z.H), dim3(32, WARPS), smem, stream_of(env)>>>(
                  (T *)a->out[0].data, (T *)a->out[1].data, (const T *)a->in[0].data, (const T *)q->data,
                  (const T *)kv->data, (const int32_t *)a->in[3].data, (const T *)a->in[4].data,
                  (const float *)a->in[5].data, z));
    return cuda_launched(env->ctx, "attention_one_bwd");
}
