/* Batch norm backward in two passes.
 *
 * reduce: g = (dy + dy2) through pool and relu; sums of g and g (x - mean) per channel; g is written if it
 * is an output. apply: dx = gain rstd (g - mean(g) - xhat mean(g xhat)). relu's mask: y > 0 where y is
 * given, else computed from x. Sums are added in a fixed order. */
#include "nn/cuda/bn_common.cuh"

enum { MASK_NONE, MASK_X, MASK_Y, BWD_BLOCKS = 2, BWD_UNROLL = 4 };

typedef struct bwd_in {
    const void *dy, *dy2, *x, *y;
    const float *mean, *rstd, *gain, *bias, *sums;
    pool_map map;
    int64_t R;
    int C;
    float share;      /* 1, or 1/4 with pool */
    float count;      /* rows over all ranks */
    void *recomputed; /* reduce: receives bn_apply of x; NULL: not written */
} bwd_in;

/* The packs of one row that both passes read. */
template <typename T, int V>
struct bwd_row {
    pack<T, V> dy, dy2, x, y;
    bool dropped; /* in no 2 x 2 window */
};

template <typename T, int V, int MASK, bool DY2, bool POOL>
__device__ __forceinline__ void row_load(bwd_row<T, V> &q, const bwd_in &in, int64_t r, int c)
{
    int64_t target = POOL ? pool_target(in.map, r) : r;
    q.dropped = POOL && target < 0;
    int64_t from = (q.dropped ? 0 : target) * in.C + c;
    q.x = load<T, V>((const T *)in.x + r * in.C + c);
    q.dy = load<T, V>((const T *)in.dy + from);
    if (DY2) q.dy2 = load<T, V>((const T *)in.dy2 + from);
    if (MASK == MASK_Y) q.y = load<T, V>((const T *)in.y + r * in.C + c);
}

template <typename T, int V, int MASK, bool DY2, bool POOL>
__device__ __forceinline__ float row_gradient(const bwd_row<T, V> &q, const bwd_in &in, const bn_affine<V> &k, int i)
{
    float g = to_float(q.dy.v[i]);
    if (DY2) g += to_float(q.dy2.v[i]);
    if (POOL) g = q.dropped ? 0.0f : g * in.share;
    if (MASK == MASK_X && !(bn_value<V>(k, to_float(q.x.v[i]), i) > 0.0f)) g = 0.0f;
    if (MASK == MASK_Y && !(to_float(q.y.v[i]) > 0.0f)) g = 0.0f;
    return g;
}

/* dx = slope (g - m1) - (x - mean) m2 */
template <int V>
__device__ __forceinline__ void dx_factors(float m1[V], float m2[V], const bwd_in &in, const bn_affine<V> &k, int c)
{
    float r1[V];
    load_floats<V>(r1, in.rstd + c);
    load_floats<V>(m1, in.sums + c);
    load_floats<V>(m2, in.sums + in.C + c);
#pragma unroll
    for (int i = 0; i < V; i++) m1[i] /= in.count, m2[i] = m2[i] / in.count * r1[i] * k.slope[i];
}

/* partial: (gridDim.x, 2, C): sums of g and of g (x - mean). */
template <typename T, int V, int MASK, bool DY2, bool POOL, int U>
static __global__ void __launch_bounds__(256, BWD_BLOCKS) reduce_kernel(float *partial, T *g_out, bwd_in in)
{
    extern __shared__ float sums[]; /* (block.y, 2 V, block.x) */
    int width = blockDim.x, packs = in.C / V, column = blockIdx.y * width + threadIdx.x, c = column * V;
    float s1[V] = {}, s2[V] = {};
    if (column < packs) {
        bn_affine<V> k;
        bn_affine_load<V>(k, in.mean, in.rstd, in.gain, in.bias, c);
        int64_t step = (int64_t)gridDim.x * blockDim.y;
        for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < in.R; r += U * step) {
            bwd_row<T, V> q[U];
#pragma unroll
            for (int u = 0; u < U; u++)
                row_load<T, V, MASK, DY2, POOL>(q[u], in, r + u * step < in.R ? r + u * step : r, c);
#pragma unroll
            for (int u = 0; u < U; u++) {
                bool counted = r + u * step < in.R;
                pack<T, V> out;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float g = row_gradient<T, V, MASK, DY2, POOL>(q[u], in, k, i);
                    out.v[i] = from_float<T>(g);
                    g = counted ? g : 0.0f;
                    s1[i] += g;
                    s2[i] += g * (to_float(q[u].x.v[i]) - k.mean[i]);
                }
                if (g_out && counted) store<T, V>(g_out + (r + u * step) * in.C + c, out);
                if (MASK == MASK_X && !POOL && in.recomputed && counted) {
#pragma unroll
                    for (int i = 0; i < V; i++)
                        out.v[i] = from_float<T>(fmaxf(bn_value<V>(k, to_float(q[u].x.v[i]), i), 0.0f));
                    store<T, V>((T *)in.recomputed + (r + u * step) * in.C + c, out);
                }
            }
        }
    }
    bn_write_partial<V>(partial, sums, s1, s2, in.C);
}

/* Element of x behind a pooled row: s of four, the first of which is row `first`. */
__device__ __forceinline__ int64_t pooled_place(const bwd_in &in, int64_t first, int s, int c)
{
    return (first + (int64_t)(s / 2) * in.map.W + s % 2) * in.C + c;
}

/* With pool and even sizes: a thread takes a pooled row and the four rows of x behind it, so dy is read and its place
 * computed once. */
template <typename T, int V, bool RELU, bool DY2>
struct pooled_rows {
    pack<T, V> dy, dy2, x[4];

    __device__ __forceinline__ void read(const bwd_in &in, int64_t r, int64_t first, int c)
    {
        dy = load<T, V>((const T *)in.dy + r * in.C + c);
        if (DY2) dy2 = load<T, V>((const T *)in.dy2 + r * in.C + c);
#pragma unroll
        for (int s = 0; s < 4; s++) x[s] = load<T, V>((const T *)in.x + pooled_place(in, first, s, c));
    }

    __device__ __forceinline__ float gradient(const bwd_in &in, const bn_affine<V> &k, int s, int i) const
    {
        float g = to_float(dy.v[i]);
        if (DY2) g += to_float(dy2.v[i]);
        g *= in.share;
        return RELU && !(bn_value<V>(k, to_float(x[s].v[i]), i) > 0.0f) ? 0.0f : g;
    }

    __device__ __forceinline__ pack<T, V> applied(const bn_affine<V> &k) const
    {
        pack<T, V> out;
#pragma unroll
        for (int i = 0; i < V; i++) {
            float sum = 0.0f;
#pragma unroll
            for (int s = 0; s < 4; s++) {
                float v = bn_value<V>(k, to_float(x[s].v[i]), i);
                sum += RELU ? fmaxf(v, 0.0f) : v;
            }
            out.v[i] = from_float<T>(0.25f * sum);
        }
        return out;
    }
};

template <typename T, int V, bool RELU, bool DY2>
static __global__ void __launch_bounds__(256, BWD_BLOCKS) pooled_reduce_kernel(float *partial, T *g_out, bwd_in in)
{
    extern __shared__ float sums[]; /* (block.y, 2 V, block.x) */
    int width = blockDim.x, packs = in.C / V, column = blockIdx.y * width + threadIdx.x, c = column * V;
    float s1[V] = {}, s2[V] = {};
    if (column < packs) {
        bn_affine<V> k;
        bn_affine_load<V>(k, in.mean, in.rstd, in.gain, in.bias, c);
#pragma unroll 2
        for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < in.R / 4;
             r += (int64_t)gridDim.x * blockDim.y) {
            pooled_rows<T, V, RELU, DY2> q;
            int64_t first = pool_first(in.map, r);
            q.read(in, r, first, c);
#pragma unroll
            for (int s = 0; s < 4; s++) {
                pack<T, V> out;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float g = q.gradient(in, k, s, i);
                    out.v[i] = from_float<T>(g);
                    s1[i] += g;
                    s2[i] += g * (to_float(q.x[s].v[i]) - k.mean[i]);
                }
                if (g_out) store<T, V>(g_out + pooled_place(in, first, s, c), out);
            }
            if (in.recomputed) store<T, V>((T *)in.recomputed + r * in.C + c, q.applied(k));
        }
    }
    bn_write_partial<V>(partial, sums, s1, s2, in.C);
}

template <typename T, int V, bool RELU, bool DY2>
static __global__ void __launch_bounds__(256, BWD_BLOCKS) pooled_dx_kernel(T *dx, bwd_in in)
{
    int column = blockIdx.y * blockDim.x + threadIdx.x, c = column * V;
    if (c >= in.C) return;
    bn_affine<V> k;
    float m1[V], m2[V];
    bn_affine_load<V>(k, in.mean, in.rstd, in.gain, in.bias, c);
    dx_factors<V>(m1, m2, in, k, c);
#pragma unroll 2
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < in.R / 4;
         r += (int64_t)gridDim.x * blockDim.y) {
        pooled_rows<T, V, RELU, DY2> q;
        int64_t first = pool_first(in.map, r);
        q.read(in, r, first, c);
#pragma unroll
        for (int s = 0; s < 4; s++) {
            pack<T, V> out;
#pragma unroll
            for (int i = 0; i < V; i++)
                out.v[i] = from_float<T>(k.slope[i] * (q.gradient(in, k, s, i) - m1[i]) -
                                         (to_float(q.x[s].v[i]) - k.mean[i]) * m2[i]);
            store<T, V>(dx + pooled_place(in, first, s, c), out);
        }
    }
}

/* block (32 channels, 32 slices of the partial sums). */
static __global__ void reduce_finish_kernel(float *dgain, float *dbias, float *sums, const float *partial, int parts,
                                            const float *rstd, int C)
{
    int c = blockIdx.x * 32 + threadIdx.x;
    double s1, s2;
    if (!bn_add_partials(s1, s2, partial, parts, c, C)) return;
    float b = (float)s1, w = (float)(s2 * (double)rstd[c]);
    if (dbias) dbias[c] = b;
    if (dgain) dgain[c] = w;
    sums[c] = b;
    sums[C + c] = w;
}

template <typename T, int V, int MASK, bool DY2, bool POOL, int U>
static __global__ void __launch_bounds__(256, BWD_BLOCKS) dx_kernel(T *dx, bwd_in in)
{
    int column = blockIdx.y * blockDim.x + threadIdx.x, c = column * V;
    if (c >= in.C) return;
    bn_affine<V> k;
    float m1[V], m2[V];
    bn_affine_load<V>(k, in.mean, in.rstd, in.gain, in.bias, c);
    dx_factors<V>(m1, m2, in, k, c);
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < in.R; r += U * step) {
        bwd_row<T, V> q[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            row_load<T, V, MASK, DY2, POOL>(q[u], in, r + u * step < in.R ? r + u * step : r, c);
#pragma unroll
        for (int u = 0; u < U; u++) {
            pack<T, V> out;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float g = row_gradient<T, V, MASK, DY2, POOL>(q[u], in, k, i);
                out.v[i] = from_float<T>(k.slope[i] * (g - m1[i]) - (to_float(q[u].x.v[i]) - k.mean[i]) * m2[i]);
            }
            if (r + u * step < in.R) store<T, V>(dx + (r + u * step) * in.C + c, out);
        }
    }
}

/* ---- launchers ----------------------------------------------------------------------------------- */

static row_grid bwd_grid(const device *d, const tensor *x)
{
    return rows_over_grid(d, tensor_rows(x), tensor_cols(x) / pack_width(x->dtype, tensor_cols(x)), BWD_BLOCKS);
}

/* A kernel of the reduction, or without `partial` one of the apply pass. */
template <typename T, int V>
static void launch_either(const op_env *env, row_grid g, const bwd_in &in, void *out, float *partial,
                          void (*reduce)(float *, T *, bwd_in), void (*apply)(T *, bwd_in))
{
    size_t smem = (size_t)g.block.x * g.block.y * 2 * V * sizeof(float);
    if (partial) reduce<<<g.grid, g.block, smem, stream_of(env)>>>(partial, (T *)out, in);
    else apply<<<g.grid, g.block, 0, stream_of(env)>>>((T *)out, in);
}

template <typename T, int V, int MASK, bool DY2, bool POOL>
static void launch_one(const op_env *env, row_grid g, const bwd_in &in, void *out, float *partial)
{
    enum { U = BWD_UNROLL };
    launch_either<T, V>(env, g, in, out, partial, reduce_kernel<T, V, MASK, DY2, POOL, U>,
                        dx_kernel<T, V, MASK, DY2, POOL, U>);
}

template <typename T, int V, bool RELU, bool DY2>
static void launch_pooled(const op_env *env, row_grid g, const bwd_in &in, void *out, float *partial)
{
    launch_either<T, V>(env, g, in, out, partial, pooled_reduce_kernel<T, V, RELU, DY2>,
                        pooled_dx_kernel<T, V, RELU, DY2>);
}

static bool is_even(const pool_map &m) { return m.H % 2 == 0 && m.W % 2 == 0; }

/* With pool there is no residual, so the mask computed from x is y's mask. */
template <typename T, int V, bool DY2>
static void launch_masked(const op_env *env, row_grid g, const bwd_in &in, const op_attr *at, void *out, float *partial)
{
    bool even = at->pool && is_even(in.map);
    if (even && at->relu) launch_pooled<T, V, true, DY2>(env, g, in, out, partial);
    else if (even) launch_pooled<T, V, false, DY2>(env, g, in, out, partial);
    else if (!at->relu && at->pool) launch_one<T, V, MASK_NONE, DY2, true>(env, g, in, out, partial);
    else if (!at->relu) launch_one<T, V, MASK_NONE, DY2, false>(env, g, in, out, partial);
    else if (at->pool) launch_one<T, V, MASK_X, DY2, true>(env, g, in, out, partial);
    else if (in.y) launch_one<T, V, MASK_Y, DY2, false>(env, g, in, out, partial);
    else launch_one<T, V, MASK_X, DY2, false>(env, g, in, out, partial);
}

/* Whether the reduction writes `recomputed` along the way; else bn_apply does. */
static bool writes_recomputed(const op_args *a, const pool_map &m)
{
    return a->attr.pool ? is_even(m) : a->attr.relu && !a->in[7].data;
}

/* partial NULL: the apply pass. */
static void launch_bwd(const op_env *env, const op_attr *at, const tensor *x, const bwd_in &in, void *out,
                       float *partial)
{
    row_grid g = bwd_grid(env->dev, x);
    WITH_PACK(x->dtype, in.C,
              in.dy2 ? launch_masked<T, V, true>(env, g, in, at, out, partial)
                     : launch_masked<T, V, false>(env, g, in, at, out, partial));
}

/* ---- entry points -------------------------------------------------------------------------------- */

extern "C" cloob_status bn_bwd_reduce_prepare_cuda(const op_env *env, op_args *a)
{
    const tensor *x = &a->in[2];
    a->scratch_bytes = (size_t)bwd_grid(env->dev, x).grid.x * 2 * (size_t)tensor_cols(x) * sizeof(float);
    return CLOOB_OK;
}

extern "C" cloob_status bn_reduce_finish(const op_env *env, const op_args *a, const float *partial, int parts)
{
    int C = (int)tensor_cols(&a->in[2]);
    float *sums = (float *)a->out[2].data;
    reduce_finish_kernel<<<(C + 31) / 32, dim3(32, 32), 0, stream_of(env)>>>((float *)a->out[0].data,
                                                                             (float *)a->out[1].data, sums, partial,
                                                                             parts, (const float *)a->in[4].data, C);
    CLOOB_TRY(cuda_launched(env->ctx, "bn_bwd_reduce"));
    return env->sum_ranks ? env->sum_ranks(env->sum_user, sums, 2 * (int64_t)C) : CLOOB_OK;
}

/* norm: mean, rstd, gain, bias. */
static bwd_in in_of(const tensor *x, const tensor *norm, const op_attr *attr)
{
    bwd_in in = {};
    in.x = x->data, in.map = pool_map_of(x), in.R = tensor_rows(x), in.C = (int)tensor_cols(x);
    in.mean = data_of<float>(&norm[0]), in.rstd = data_of<float>(&norm[1]);
    in.gain = data_of<float>(&norm[2]), in.bias = data_of<float>(&norm[3]);
    in.share = attr->pool ? 0.25f : 1.0f;
    return in;
}

extern "C" cloob_status bn_bwd_reduce_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[2];
    bwd_in in = in_of(x, &a->in[3], &a->attr);
    in.dy = a->in[0].data, in.dy2 = a->in[1].data, in.y = a->in[7].data;
    op_args recomputed = bn_recompute(a);
    bool along = writes_recomputed(a, in.map);
    if (along) in.recomputed = recomputed.out[0].data;
    float *partial = (float *)a->scratch;
    launch_bwd(env, &a->attr, x, in, a->out[3].data, partial);
    CLOOB_TRY(cuda_launched(env->ctx, "bn_bwd_reduce"));
    CLOOB_TRY(bn_reduce_finish(env, a, partial, (int)bwd_grid(env->dev, x).grid.x));
    return recomputed.out[0].data && !along ? bn_apply_cuda(env, &recomputed) : CLOOB_OK;
}

extern "C" cloob_status bn_bwd_apply_cuda(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[1];
    bwd_in in = in_of(x, &a->in[2], &a->attr);
    in.dy = a->in[0].data, in.dy2 = a->in[7].data, in.sums = data_of<float>(&a->in[6]);
    in.count = (float)tensor_rows(x) * (float)(env->sum_ranks ? env->ranks : 1);
    launch_bwd(env, &a->attr, x, in, a->out[0].data, NULL);
    return cuda_launched(env->ctx, "bn_bwd_apply");
}
