/* Attention without tensor cores: any head width, also F32. One warp per query (or per key): its lanes split the
 * keys for the scores, then the columns for the weighted sums. All sums have a fixed order. */
#include "nn/cuda/common.cuh"

enum { WARPS = 4 };

typedef struct sizes {
    int64_t N;
    int T, C, H, D; /* D = C / H */
    int causal;
    float scale;
    const int32_t *start; /* packed: first rows of the sequences; T is the longest length */
    int64_t rows;
} sizes;

/* A sequence of one head: first row, index of its log-sum-exp, length. */
typedef struct position {
    int64_t row, head;
    int T;
} position;

__device__ __forceinline__ position position_of(const sizes &z, int64_t n, int h)
{
    if (!z.start) return { n * z.T, (n * z.H + h) * z.T, z.T };
    int first = z.start[n];
    return { first, h * z.rows + first, z.start[n + 1] - first };
}

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

template <typename T, int V>
static __global__ void __launch_bounds__(32 * WARPS) forward_kernel(T *y, float *lse, const T *qkv, sizes z)
{
    extern __shared__ float smem[];
    int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.y, step = 3 * (int64_t)z.C;
    if (id >= z.N * z.H * z.T) return;
    int t = (int)(id % z.T), h = (int)(id / z.T % z.H);
    position at = position_of(z, id / z.T / z.H, h);
    if (t >= at.T) return;
    const T *q = qkv + (at.row + t) * step + h * z.D, *k = qkv + at.row * step + h * z.D + z.C, *v = k + z.C;
    int lane = threadIdx.x, keys = z.causal ? t + 1 : at.T;
    float *score = smem + threadIdx.y * z.T, max = -INFINITY, sum = 0.0f;
    for (int j = lane; j < keys; j += 32) {
        score[j] = dot<T, V>(q, k + j * step, z.D) * z.scale;
        max = fmaxf(max, score[j]);
    }
    max = warp_max(max);
    for (int j = lane; j < keys; j += 32) {
        score[j] = expf(score[j] - max);
        sum += score[j];
    }
    sum = warp_sum(sum);
    __syncwarp();
    for (int i = lane; i < z.D; i += 32) {
        float out = 0.0f;
#pragma unroll 4
        for (int j = 0; j < keys; j++) out += score[j] * to_float(v[j * step + i]);
        y[(at.row + t) * z.C + h * z.D + i] = from_float<T>(out / sum);
    }
    if (lane == 0 && lse) lse[at.head + t] = max + logf(sum);
}

/* dq of one query. */
template <typename T, int V>
static __global__ void __launch_bounds__(32 * WARPS)
    query_kernel(T *dqkv, const T *dy, const T *qkv, const T *y, const float *lse, sizes z)
{
    extern __shared__ float smem[];
    int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.y, step = 3 * (int64_t)z.C;
    if (id >= z.N * z.H * z.T) return;
    int t = (int)(id % z.T), h = (int)(id / z.T % z.H), lane = threadIdx.x;
    position at = position_of(z, id / z.T / z.H, h);
    if (t >= at.T) return;
    int keys = z.causal ? t + 1 : at.T;
    int64_t row = (at.row + t) * z.C + h * z.D;
    const T *base = qkv + at.row * step + h * z.D;
    float *ds = smem + threadIdx.y * z.T, dot_dy_y = dot<T, V>(dy + row, y + row, z.D);
    for (int j = lane; j < keys; j += 32) {
        float p = expf(dot<T, V>(base + t * step, base + z.C + j * step, z.D) * z.scale - lse[at.head + t]);
        ds[j] = p * (dot<T, V>(dy + row, base + 2 * z.C + j * step, z.D) - dot_dy_y) * z.scale;
    }
    __syncwarp();
    for (int i = lane; i < z.D; i += 32) {
        float out = 0.0f;
        for (int j = 0; j < keys; j++) out += ds[j] * to_float(base[z.C + j * step + i]);
        dqkv[(at.row + t) * step + h * z.D + i] = from_float<T>(out);
    }
}

/* dk and dv of one key, over the queries that attend to it. */
template <typename T, int V>
static __global__ void __launch_bounds__(32 * WARPS)
    key_kernel(T *dqkv, const T *dy, const T *qkv, const T *y, const float *lse, sizes z)
{
    extern __shared__ float smem[];
    int64_t id = (int64_t)blockIdx.x * WARPS + threadIdx.y, step = 3 * (int64_t)z.C;
    if (id >= z.N * z.H * z.T) return;
    int j = (int)(id % z.T), h = (int)(id / z.T % z.H), lane = threadIdx.x, first = z.causal ? j : 0;
    position at = position_of(z, id / z.T / z.H, h);
    if (j >= at.T) return;
    const T *base = qkv + at.row * step + h * z.D, *dy0 = dy + at.row * z.C + h * z.D, *y0 = y + at.row * z.C + h * z.D;
    float *p = smem + threadIdx.y * 2 * z.T, *ds = p + z.T;
    for (int t = first + lane; t < at.T; t += 32) {
        const T *g = dy0 + (int64_t)t * z.C;
        p[t] = expf(dot<T, V>(base + t * step, base + z.C + j * step, z.D) * z.scale - lse[at.head + t]);
        ds[t] =
            p[t] * (dot<T, V>(g, base + 2 * z.C + j * step, z.D) - dot<T, V>(g, y0 + (int64_t)t * z.C, z.D)) * z.scale;
    }
    __syncwarp();
    for (int i = lane; i < z.D; i += 32) {
        float dk = 0.0f, dv = 0.0f;
        for (int t = first; t < at.T; t++) {
            dk += ds[t] * to_float(base[t * step + i]);
            dv += p[t] * to_float(dy0[(int64_t)t * z.C + i]);
        }
        T *out = dqkv + (at.row + j) * step + h * z.D + i;
        out[z.C] = from_float<T>(dk);
        out[2 * z.C] = from_float<T>(dv);
    }
}

/* ---- padding ----------------------------------------------------------------------------------- */

/* Zeroes x (rows, bytes of a row) and lse (H, rows) after the last packed sequence. Blocks split the rows. */
static __global__ void __launch_bounds__(256)
    padding_kernel(char *x, int64_t bytes, float *lse, int H, const int32_t *end, int64_t rows)
{
    for (int64_t r = *end + blockIdx.x; r < rows; r += gridDim.x) {
        if (bytes % 4 == 0)
            for (int64_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) ((float *)(x + r * bytes))[i] = 0.0f;
        else
            for (int64_t i = threadIdx.x; i < bytes; i += blockDim.x) x[r * bytes + i] = 0;
        for (int h = threadIdx.x; lse && h < H; h += blockDim.x) lse[h * rows + r] = 0.0f;
    }
}

/* ---- launchers ----------------------------------------------------------------------------------- */

static sizes sizes_of(const op_args *a, const tensor *x, const tensor *start, int64_t C)
{
    int D = (int)(C / a->attr.heads);
    op_sequences s = op_sequences_of(&a->attr, x, start);
    sizes z = { s.N, (int)s.T, (int)C, (int)a->attr.heads, D, a->attr.causal, 1.0f / sqrtf((float)D), s.start, s.rows };
    return z;
}

static cloob_status check_shared_memory(const op_env *env, const char *op, const sizes &z)
{
    if ((size_t)WARPS * 2 * z.T * sizeof(float) <= 48u << 10) return CLOOB_OK;
    return ctx_fail(env->ctx, CLOOB_ERR_UNSUPPORTED, "%s: %d tokens are more than the GPU kernel holds", op, z.T);
}

static unsigned blocks_of(int64_t warps) { return (unsigned)((warps + WARPS - 1) / WARPS); }

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status zero_padding_cuda(const op_env *env, const char *op, const op_sequences *s, const tensor *x,
                                          const tensor *lse)
{
    enum { BLOCKS = 256 };
    padding_kernel<<<BLOCKS, 256, 0, stream_of(env)>>>((char *)x->data, tensor_cols(x) * (int64_t)dtype_size(x->dtype),
                                                       lse ? (float *)lse->data : NULL, lse ? (int)lse->dim[0] : 0,
                                                       s->start + s->N, s->rows);
    return cuda_launched(env->ctx, op);
}

extern "C" cloob_status attention_plain(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    sizes z = sizes_of(a, x, &a->in[1], tensor_cols(y));
    size_t smem = (size_t)WARPS * z.T * sizeof(float);
    CLOOB_TRY(check_shared_memory(env, "attention", z));
    WITH_PACK(x->dtype, z.D,
              forward_kernel<T, V><<<blocks_of(z.N * z.H * z.T), dim3(32, WARPS), smem, stream_of(env)>>>(
                  (T *)y->data, (float *)a->out[1].data, (const T *)x->data, z));
    return cuda_launched(env->ctx, "attention");
}

extern "C" cloob_status attention_bwd_plain(const op_env *env, const op_args *a)
{
    const tensor *y = &a->in[2];
    sizes z = sizes_of(a, &a->in[1], &a->in[4], tensor_cols(y));
    size_t smem = (size_t)WARPS * 2 * z.T * sizeof(float);
    dim3 block(32, WARPS);
    unsigned blocks = blocks_of(z.N * z.H * z.T);
    cudaStream_t s = stream_of(env);
    const float *lse = (const float *)a->in[3].data;
    CLOOB_TRY(check_shared_memory(env, "attention_bwd", z));
    WITH_PACK(y->dtype, z.D,
              query_kernel<T, V><<<blocks, block, smem, s>>>((T *)a->out[0].data, (const T *)a->in[0].data,
                                                             (const T *)a->in[1].data, (const T *)y->data, lse, z));
    CLOOB_TRY(cuda_launched(env->ctx, "attention_bwd"));
    WITH_PACK(y->dtype, z.D,
              key_kernel<T, V><<<blocks, block, smem, s>>>((T *)a->out[0].data, (const T *)a->in[0].data,
                                                           (const T *)a->in[1].data, (const T *)y->data, lse, z));
    return cuda_launched(env->ctx, "attention_bwd");
}
