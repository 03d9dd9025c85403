/* Batch statistics, running statistics and folding.
 *
 * Statistics take one pass: every block sums x - s and (x - s)^2 over its rows (s: the first row, so that a
 * large mean costs no digits), writes its partial sums, and a second small launch adds them in a fixed order,
 * in double, and updates the running values. */
#include "nn/cuda/bn_common.cuh"

enum { STATS_BLOCKS = 4, STATS_UNROLL = 4 };

/* partial: (gridDim.x, 2, C). */
template <typename T, int V>
static __global__ void __launch_bounds__(256, STATS_BLOCKS) stats_kernel(float *partial, const T *x, int64_t R, int C)
{
    extern __shared__ float sums[]; /* (block.y, 2 V, block.x) */
    int width = blockDim.x, packs = C / V, column = blockIdx.y * width + threadIdx.x;
    float s1[V] = {}, s2[V] = {}, shift[V];
    if (column < packs) {
        const T *from = x + (int64_t)column * V;
        pack<T, V> first = load<T, V>(from);
        int64_t step = (int64_t)gridDim.x * blockDim.y;
#pragma unroll
        for (int i = 0; i < V; i++) shift[i] = to_float(first.v[i]);
        for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < R; r += STATS_UNROLL * step) {
            pack<T, V> k[STATS_UNROLL];
#pragma unroll
            for (int u = 0; u < STATS_UNROLL; u++)
                k[u] = load<T, V>(from + (r + u * step < R ? r + u * step : r) *
                                             C); /* rows past the end: any row, not counted */
#pragma unroll
            for (int u = 0; u < STATS_UNROLL; u++) {
                float counted = r + u * step < R ? 1.0f : 0.0f;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float d = (to_float(k[u].v[i]) - shift[i]) * counted;
                    s1[i] += d;
                    s2[i] += d * d;
                }
            }
        }
    }
    bn_write_partial<V>(partial, sums, s1, s2, C);
}

typedef struct stats_out {
    float *mean, *rstd, *run_mean, *run_var,
        *ranks; /* run_*: NULL to leave alone; ranks: (3, C) when there are several */
    float eps, momentum;
} stats_out;

__device__ static void finish_channel(const stats_out &o, int c, double mu, double var, double count)
{
    o.mean[c] = (float)mu;
    o.rstd[c] = (float)(1.0 / sqrt(fmax(var, 0.0) + (double)o.eps));
    if (!o.run_mean) return;
    double m = o.momentum;
    o.run_mean[c] = (float)((1.0 - m) * o.run_mean[c] + m * mu);
    o.run_var[c] = (float)((1.0 - m) * o.run_var[c] + m * var * count / (count - 1.0));
}

/* block (32 channels, 32 slices of the partial sums). */
template <typename T>
static __global__ void stats_finish_kernel(stats_out o, const float *partial, int parts, const float *pivot, const T *x,
                                           int64_t R, int C)
{
    int c = blockIdx.x * 32 + threadIdx.x;
    double s1, s2;
    if (!bn_add_partials(s1, s2, partial, parts, c, C)) return;
    double d = s1 / (double)R, mu = (double)(pivot ? pivot[c] : to_float(x[c])) + d, var = s2 / (double)R - d * d;
    if (!o.ranks) {
        finish_channel(o, c, mu, var, (double)R);
        return;
    }
    o.ranks[c] = (float)mu;
    o.ranks[C + c] = (float)(var + mu * mu);
    o.ranks[2 * C + c] = (float)R;
}

/* ---- launchers ----------------------------------------------------------------------------------- */

static row_grid stats_grid(const device *d, const tensor *x)
{
    return rows_over_grid(d, tensor_rows(x), tensor_cols(x) / pack_width(x->dtype, tensor_cols(x)), STATS_BLOCKS);
}

template <typename T, int V>
static void launch_stats(const op_env *env, float *partial, const tensor *x, row_grid g)
{
    size_t smem = (size_t)g.block.x * g.block.y * 2 * V * sizeof(float);
    stats_kernel<T, V>
        <<<g.grid, g.block, smem, stream_of(env)>>>(partial, (const T *)x->data, tensor_rows(x), (int)tensor_cols(x));
}

template <typename T>
static void launch_finish(const op_env *env, const stats_out &o, const float *partial, int parts, const float *pivot,
                          const tensor *x)
{
    int C = (int)tensor_cols(x);
    stats_finish_kernel<T><<<(C + 31) / 32, dim3(32, 32), 0, stream_of(env)>>>(o, partial, parts, pivot,
                                                                               (const T *)x->data, tensor_rows(x), C);
}

/* ---- entry points -------------------------------------------------------------------------------- */

/* Scratch: three numbers a channel for ranks, then partial sums. */
static size_t ranks_bytes(const tensor *x) { return cuda_align(3 * (size_t)tensor_cols(x) * sizeof(float)); }

extern "C" cloob_status bn_stats_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *x = &a->in[0];
    a->scratch_bytes =
        ranks_bytes(x) + (size_t)stats_grid(env->dev, x).grid.x * 2 * (size_t)tensor_cols(x) * sizeof(float);
    return CLOOB_OK;
}

extern "C" cloob_status bn_stats_finish(const op_env *env, const op_args *a, const float *partial, int parts,
                                        const float *pivot)
{
    const tensor *x = &a->in[0];
    int C = (int)tensor_cols(x);
    float *ranks = (float *)a->scratch;
    bool keep = a->attr.keep_stats || env->keep_stats;
    stats_out o = { (float *)a->out[0].data,
                    (float *)a->out[1].data,
                    keep ? NULL : (float *)a->in[1].data,
                    keep ? NULL : (float *)a->in[2].data,
                    env->sum_ranks ? ranks : NULL,
                    a->attr.eps,
                    a->attr.momentum };
    WITH_TYPE(x->dtype, launch_finish<T>(env, o, partial, parts, pivot, x));
    CLOOB_TRY(cuda_launched(env->ctx, "bn_stats"));
    if (!env->sum_ranks) return CLOOB_OK;
    CLOOB_TRY(env->sum_ranks(env->sum_user, ranks, 3 * (int64_t)C));
    int count = env->ranks;
    return for_each(env, "bn_stats", C, [=] __device__(int64_t c) {
        double mu = (double)ranks[c] / count;
        finish_channel(o, (int)c, mu, (double)ranks[C + c] / count - mu * mu, (double)ranks[2 * C + c]);
    });
}

extern "C" cloob_status bn_stats_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0];
    row_grid g = stats_grid(env->dev, x);
    float *partial = (float *)((char *)a->scratch + ranks_bytes(x));
    WITH_PACK(x->dtype, tensor_cols(x), launch_stats<T, V>(env, partial, x, g));
    CLOOB_TRY(cuda_launched(env->ctx, "bn_stats"));
    return bn_stats_finish(env, a, partial, (int)g.grid.x, NULL);
}

extern "C" cloob_status bn_running_cuda(const op_env *env, const op_args *a)
{
    float *mean = data_of<float>(&a->out[0]), *rstd = data_of<float>(&a->out[1]), eps = a->attr.eps;
    const float *run_mean = data_of<float>(&a->in[0]), *run_var = data_of<float>(&a->in[1]);
    return for_each(env, "bn_running", tensor_count(&a->in[0]), [=] __device__(int64_t c) {
        mean[c] = run_mean[c];
        rstd[c] = 1.0f / sqrtf(run_var[c] + eps);
    });
}

extern "C" cloob_status fold_bn_cuda(const op_env *env, const op_args *a)
{
    const tensor *weight = &a->in[0];
    int64_t K = tensor_count(weight) / weight->dim[0];
    float *b2 = data_of<float>(&a->out[1]), eps = a->attr.eps;
    const float *gain = data_of<float>(&a->in[1]), *bias = data_of<float>(&a->in[2]), *mean = data_of<float>(&a->in[3]),
                *var = data_of<float>(&a->in[4]);
    WITH_TYPE(weight->dtype, {
        T *w2 = data_of<T>(&a->out[0]);
        const T *w = data_of<T>(weight);
        return for_each(env, "fold_bn", tensor_count(weight), [=] __device__(int64_t i) {
            int64_t o = i / K;
            float s = gain[o] / sqrtf(var[o] + eps);
            w2[i] = from_float<T>(s * to_float(w[i]));
            if (i % K == 0) b2[o] = bias[o] - s * mean[o];
        });
    });
}
