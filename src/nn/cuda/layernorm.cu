/* Layer norm and unit length: a warp per row, the row kept in registers.
 *
 * Backward, a warp processes many rows, so that the gain's and bias's gradients add up in registers; blocks
 * write partial sums and a second launch adds them in a fixed order. */
#include "nn/cuda/layernorm.cuh"

enum { WARPS = 8, BWD_BLOCKS = 2, MAX_PACKS = 8 };

/* P packs a lane: pack p of lane l is pack p * 32 + l of the row. */
template <typename T, int V, int P>
struct row_regs {
    float v[P][V];
};

template <typename T, int V, int P>
__device__ __forceinline__ void row_read(row_regs<T, V, P> &q, const T *row, int packs, int lane)
{
#pragma unroll
    for (int p = 0; p < P; p++) {
        pack<T, V> k = {};
        if (p * 32 + lane < packs) k = load<T, V>(row + (p * 32 + lane) * V);
#pragma unroll
        for (int i = 0; i < V; i++) q.v[p][i] = to_float(k.v[i]);
    }
}

typedef struct fwd_in {
    const float *gain, *bias;
    float eps;
    int64_t R;
    int C;
} fwd_in;

/* A warp per row, a block for every WARPS rows: fewer registers than with a loop. */
template <typename T, int V, int P>
static __global__ void __launch_bounds__(32 * WARPS)
    forward_kernel(T *y, float *mean, float *rstd, const T *x, fwd_in in)
{
    int lane = threadIdx.x, C = in.C, packs = C / V;
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (r >= in.R) return;
    row_regs<T, V, P> q;
    row_read(q, x + r * C, packs, lane);
    float sum = 0.0f, square = 0.0f;
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int i = 0; i < V; i++) sum += q.v[p][i];
    float mu = warp_sum(sum) / (float)C;
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int i = 0; i < V; i++) {
            float d = p * 32 + lane < packs ? q.v[p][i] - mu : 0.0f;
            square += d * d;
        }
    float s = rsqrtf(warp_sum(square) / (float)C + in.eps);
    if (lane == 0 && mean) mean[r] = mu;
    if (lane == 0 && rstd) rstd[r] = s;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int c = (p * 32 + lane) * V;
        if (c >= C) continue;
        float g[V], b[V];
        pack<T, V> out;
        load_floats<V>(g, in.gain + c);
        load_floats<V>(b, in.bias + c);
#pragma unroll
        for (int i = 0; i < V; i++) out.v[i] = from_float<T>((q.v[p][i] - mu) * s * g[i] + b[i]);
        store<T, V>(y + r * C + c, out);
    }
}

/* What a lane reads of a row. */
template <typename T, int V, int P>
struct bwd_row {
    pack<T, V> dy[P], x[P], extra[P];
    float mean, rstd;
};

template <typename T, int V, int P>
__device__ __forceinline__ void bwd_read(bwd_row<T, V, P> &q, const T *dy, const T *x, const T *extra, const bwd_in &in,
                                         int64_t r, int lane)
{
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t c = (p * 32 + lane) * V;
        q.dy[p] = q.x[p] = q.extra[p] = pack<T, V>{};
        if (c >= in.C) continue;
        q.dy[p] = load<T, V>(dy + r * in.C + c);
        q.x[p] = load<T, V>(x + r * in.C + c);
        if (extra) q.extra[p] = load<T, V>(extra + r * in.C + c);
    }
    q.mean = in.mean[r];
    q.rstd = in.rstd[r];
}

/* partial: (gridDim.x, 2, C): gain's sums, bias's sums. dx may be NULL. */
template <typename T, int V, int P>
static __global__ void __launch_bounds__(32 * WARPS, P <= 3 ? BWD_BLOCKS : 1)
    backward_kernel(T *dx, float *partial, const T *dy, const T *x, const T *extra, bwd_in in)
{
    extern __shared__ float sums[]; /* (WARPS, C), used twice */
    int lane = threadIdx.x, C = in.C;
    int64_t step = (int64_t)gridDim.x * WARPS, r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    float dg[P][V] = {}, db[P][V] = {};
    for (; r < in.R; r += step) {
        bwd_row<T, V, P> q;
        bwd_read(q, dy, x, extra, in, r, lane);
        float m1 = 0.0f, m2 = 0.0f;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * 32 + lane) * V;
            if (c >= C) continue;
            float w[V];
            load_floats<V>(w, in.gain + c);
#pragma unroll
            for (int i = 0; i < V; i++) {
                float d = to_float(q.dy[p].v[i]), xhat = (to_float(q.x[p].v[i]) - q.mean) * q.rstd;
                dg[p][i] += d * xhat;
                db[p][i] += d;
                m1 += d * w[i];
                m2 += d * w[i] * xhat;
            }
        }
        m1 = warp_sum(m1) / (float)C;
        m2 = warp_sum(m2) / (float)C;
        if (!dx) continue; /* `recomputed` is not written then either */
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * 32 + lane) * V;
            if (c >= C) continue;
            float w[V];
            pack<T, V> out;
            load_floats<V>(w, in.gain + c);
#pragma unroll
            for (int i = 0; i < V; i++) {
                float xhat = (to_float(q.x[p].v[i]) - q.mean) * q.rstd;
                out.v[i] = from_float<T>(q.rstd * (to_float(q.dy[p].v[i]) * w[i] - m1 - xhat * m2) +
                                         to_float(q.extra[p].v[i]));
            }
            store<T, V>(dx + r * C + c, out);
            if (!in.recomputed) continue;
            float b[V];
            load_floats<V>(b, in.bias + c);
#pragma unroll
            for (int i = 0; i < V; i++)
                out.v[i] = from_float<T>((to_float(q.x[p].v[i]) - q.mean) * q.rstd * w[i] + b[i]);
            store<T, V>((T *)in.recomputed + r * C + c, out);
        }
    }
    for (int which = 0; which < 2; which++) {
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int i = 0; i < V; i++) {
                int c = (p * 32 + lane) * V + i;
                if (c < C) sums[threadIdx.y * C + c] = which ? db[p][i] : dg[p][i];
            }
        __syncthreads();
        for (int c = threadIdx.y * 32 + lane; c < C; c += 32 * WARPS) {
            float sum = 0.0f;
            for (int w = 0; w < WARPS; w++) sum += sums[w * C + c];
            partial[((int64_t)blockIdx.x * 2 + which) * C + c] = sum;
        }
        __syncthreads();
    }
}

/* block (32 columns, 16 slices); columns run over gain, bias and, with three kinds, the sums of dx. */
static __global__ void backward_finish_kernel(float *dgain, float *dbias, float *sums, const float *partial, int parts,
                                              int C, int kinds)
{
    __shared__ float part[16][33];
    int c = blockIdx.x * 32 + threadIdx.x;
    float s = 0.0f;
#pragma unroll 4
    for (int g = threadIdx.y; g < parts && c < kinds * C; g += 16) s += partial[(int64_t)g * kinds * C + c];
    part[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y || c >= kinds * C) return;
    for (int y = 1; y < 16; y++) s += part[y][threadIdx.x];
    if (c < C && dgain) dgain[c] = s;
    if (c >= C && c < 2 * C && dbias) dbias[c - C] = s;
    if (c >= 2 * C) sums[c - 2 * C] = s;
}

/* ---- unit length: rows are few ------------------------------------------------------------------- */

template <typename T>
static __global__ void l2norm_kernel(float *y, float *rnorm, const T *x, int64_t N, int D)
{
    int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (n >= N) return;
    float square = 0.0f;
    for (int i = threadIdx.x; i < D; i += 32) square += to_float(x[n * D + i]) * to_float(x[n * D + i]);
    float s = 1.0f / sqrtf(warp_sum(square));
    if (threadIdx.x == 0 && rnorm) rnorm[n] = s;
    for (int i = threadIdx.x; i < D; i += 32) y[n * D + i] = to_float(x[n * D + i]) * s;
}

template <typename T>
static __global__ void l2norm_bwd_kernel(T *dx, const float *dy, const float *y, const float *rnorm, int64_t N, int D)
{
    int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (n >= N) return;
    float along = 0.0f; /* the part of dy along x, which changes only its length */
    for (int i = threadIdx.x; i < D; i += 32) along += dy[n * D + i] * y[n * D + i];
    along = warp_sum(along);
    for (int i = threadIdx.x; i < D; i += 32)
        dx[n * D + i] = from_float<T>(rnorm[n] * (dy[n * D + i] - along * y[n * D + i]));
}

/* ---- launchers ----------------------------------------------------------------------------------- */

/* Packs a lane holds; widths beyond MAX_PACKS are refused in prepare. */
static int packs_per_lane(const tensor *x)
{
    int64_t packs = tensor_cols(x) / pack_width(x->dtype, tensor_cols(x));
    return (int)((packs + 31) / 32);
}

static cloob_status check_width(const op_env *env, const char *op, const tensor *x)
{
    if (packs_per_lane(x) <= MAX_PACKS) return CLOOB_OK;
    return ctx_fail(env->ctx, CLOOB_ERR_UNSUPPORTED, "%s: width %lld is more than the GPU kernel holds", op,
                    (long long)tensor_cols(x));
}

#define WITH_PACKS(per_lane, ...)                                                                                      \
    do {                                                                                                               \
        if ((per_lane) <= 1) {                                                                                         \
            constexpr int P = 1;                                                                                       \
            __VA_ARGS__;                                                                                               \
        } else if ((per_lane) == 2) {                                                                                  \
            constexpr int P = 2;                                                                                       \
            __VA_ARGS__;                                                                                               \
        } else if ((per_lane) == 3) {                                                                                  \
            constexpr int P = 3;                                                                                       \
            __VA_ARGS__;                                                                                               \
        } else if ((per_lane) == 4) {                                                                                  \
            constexpr int P = 4;                                                                                       \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            constexpr int P = MAX_PACKS;                                                                               \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

template <typename T, int V, int P>
static void launch_forward(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    fwd_in in = { (const float *)a->in[1].data, (const float *)a->in[2].data, a->attr.eps, tensor_rows(x),
                  (int)tensor_cols(x) };
    forward_kernel<T, V, P><<<(unsigned)((in.R + WARPS - 1) / WARPS), dim3(32, WARPS), 0, stream_of(env)>>>(
        data_of<T>(&a->out[0]), data_of<float>(&a->out[1]), data_of<float>(&a->out[2]), data_of<T>(x), in);
}

static unsigned bwd_blocks(const device *d, const op_args *a)
{
    const tensor *x = &a->in[1];
    const cuda_state *s = (const cuda_state *)d->state;
    if (layernorm_wide_takes(x)) return layernorm_wide_blocks(d, x, a->attr.sums);
    int64_t want = (tensor_rows(x) + WARPS - 1) / WARPS, limit = (int64_t)s->sms * BWD_BLOCKS;
    return (unsigned)(want < limit ? want : limit);
}

static bwd_in bwd_in_of(const op_args *a)
{
    const tensor *x = &a->in[1];
    return { (const float *)a->in[2].data,
             (const float *)a->in[3].data,
             (const float *)a->in[4].data,
             (const float *)a->in[6].data,
             a->out[3].data,
             a->attr.sums && layernorm_wide_takes(x) ? 3 : 2,
             tensor_rows(x),
             (int)tensor_cols(x) };
}

template <typename T, int V, int P>
static cudaError_t launch_backward(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[1];
    bwd_in in = bwd_in_of(a);
    size_t smem = (size_t)WARPS * in.C * sizeof(float);
    cudaError_t e = allow_shared_memory(backward_kernel<T, V, P>);
    if (e != cudaSuccess) return e;
    backward_kernel<T, V, P>
        <<<bwd_blocks(env->dev, a), dim3(32, WARPS), smem, stream_of(env)>>>((T *)a->out[0].data, (float *)a->scratch,
                                                                             (const T *)a->in[0].data,
                                                                             (const T *)x->data,
                                                                             (const T *)a->in[5].data, in);
    return cudaSuccess;
}

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status layernorm_prepare_cuda(const op_env *env, op_args *a)
{
    return check_width(env, "layernorm", &a->in[0]);
}

extern "C" cloob_status layernorm_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    WITH_PACK(x->dtype, tensor_cols(x), WITH_PACKS(packs_per_lane(x), launch_forward<T, V, P>(env, a)));
    return cuda_launched(env->ctx, "layernorm");
}

extern "C" cloob_status layernorm_bwd_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *x = &a->in[1];
    size_t own = (size_t)bwd_blocks(env->dev, a) * 3 * (size_t)tensor_cols(x) * sizeof(float);
    size_t pass = a->attr.sums ? colsum_scratch(env->dev, tensor_rows(x), tensor_cols(x), x->dtype) : 0;
    a->scratch_bytes = own > pass ? own : pass;
    return check_width(env, "layernorm_bwd", x);
}

extern "C" cloob_status layernorm_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[1];
    int C = (int)tensor_cols(x);
    cudaError_t e = cudaSuccess;
    if (layernorm_wide_takes(x)) layernorm_wide_launch(env, a, bwd_in_of(a));
    else WITH_PACK(x->dtype, C, WITH_PACKS(packs_per_lane(x), e = launch_backward<T, V, P>(env, a)));
    CLOOB_TRY(cuda_check(env->ctx, e, "layernorm_bwd"));
    CLOOB_TRY(cuda_launched(env->ctx, "layernorm_bwd"));
    int kinds = bwd_in_of(a).kinds;
    float *sums = (float *)a->out[4].data;
    if (a->out[1].data || a->out[2].data || kinds == 3)
        backward_finish_kernel<<<(unsigned)((kinds * C + 31) / 32), dim3(32, 16), 0, stream_of(env)>>>(
            (float *)a->out[1].data, (float *)a->out[2].data, sums, (const float *)a->scratch,
            (int)bwd_blocks(env->dev, a), C, kinds);
    CLOOB_TRY(cuda_launched(env->ctx, "layernorm_bwd"));
    if (!sums || kinds == 3) return CLOOB_OK;
    return colsum(env, "layernorm_bwd", sums, a->out[0].data, x->dtype, tensor_rows(x), C, 0, a->scratch);
}

extern "C" cloob_status l2norm_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    unsigned blocks = (unsigned)((x->dim[0] + WARPS - 1) / WARPS);
    WITH_TYPE(x->dtype, l2norm_kernel<T>
              <<<blocks, dim3(32, WARPS), 0, stream_of(env)>>>((float *)a->out[0].data, (float *)a->out[1].data,
                                                               (const T *)x->data, x->dim[0], (int)x->dim[1]));
    return cuda_launched(env->ctx, "l2norm");
}

extern "C" cloob_status l2norm_bwd_cuda(const op_env *env, const op_args *a)
{
    const tensor *y = &a->in[1];
    unsigned blocks = (unsigned)((y->dim[0] + WARPS - 1) / WARPS);
    WITH_TYPE(a->out[0].dtype, l2norm_bwd_kernel<T>
              <<<blocks, dim3(32, WARPS), 0, stream_of(env)>>>((T *)a->out[0].data, (const float *)a->in[0].data,
                                                               (const float *)y->data, (const float *)a->in[2].data,
                                                               y->dim[0], (int)y->dim[1]));
    return cuda_launched(env->ctx, "l2norm_bwd");
}
