/* Backward of layer norm for the widths of transformers: bf16 rows of W times 256 elements, W warps to a row; or of a
 * few less, then the last threads of a row have no columns (PART).
 *
 * A thread owns eight columns of all rows it processes, so that the gain stays in registers with the gradients of gain
 * and bias; the next row is loaded while this one is summed. The W warps of a row synchronise once, at their own
 * barrier. */
#include "nn/cuda/layernorm.cuh"

enum { V = 8 };

/* Eight bf16 stay two to a register until they are used. */
typedef struct wide_row {
    uint4 dy, x, extra;
    float mean, rstd;
} wide_row;

__device__ __forceinline__ unsigned word_of(const uint4 &q, int i)
{
    return i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w;
}
__device__ __forceinline__ float element(const uint4 &q, int i)
{
    unsigned word = word_of(q, i / 2);
    return __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
}
__device__ __forceinline__ unsigned pair_of(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<unsigned *>(&v);
}
__device__ __forceinline__ uint4 packed_row(const float v[V])
{
    return make_uint4(pair_of(v[0], v[1]), pair_of(v[2], v[3]), pair_of(v[4], v[5]), pair_of(v[6], v[7]));
}
__device__ __forceinline__ void store_row(bf16 *to, const uint4 &row) { *reinterpret_cast<uint4 *>(to) = row; }

__device__ __forceinline__ wide_row read_row(const bf16 *dy, const bf16 *x, const bf16 *extra, const bwd_in &in,
                                             int64_t r, int c)
{
    wide_row q;
    int64_t at = r * in.C + c;
    q.dy = *reinterpret_cast<const uint4 *>(dy + at);
    q.x = *reinterpret_cast<const uint4 *>(x + at);
    q.extra = extra ? *reinterpret_cast<const uint4 *>(extra + at) : make_uint4(0, 0, 0, 0);
    q.mean = in.mean[r];
    q.rstd = in.rstd[r];
    return q;
}

/* Sums over the W warps of group `group`; `place` alternates from row to row, so one barrier a row is enough. */
template <int W>
__device__ __forceinline__ float2 row_sum(float2 m, float2 *place, int group)
{
    m.x = warp_sum(m.x), m.y = warp_sum(m.y);
    if (W == 1) return m;
    if (threadIdx.x % 32 == 0) place[threadIdx.x / 32 % W] = m;
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(32 * W) : "memory");
    m = place[0];
#pragma unroll
    for (int w = 1; w < W; w++) m.x += place[w].x, m.y += place[w].y;
    return m;
}

/* SUMS: adds what is written to total. */
template <bool SUMS>
__device__ __forceinline__ void write_row(bf16 *dx, float total[V], const wide_row &q, const bwd_in &in,
                                          const float w[V], float2 m, int64_t at, int c)
{
    float out[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        float xhat = (element(q.x, i) - q.mean) * q.rstd;
        out[i] = q.rstd * (element(q.dy, i) * w[i] - m.x - xhat * m.y) + element(q.extra, i);
    }
    uint4 row = packed_row(out);
    store_row(dx + at, row);
    if (SUMS) {
#pragma unroll
        for (int i = 0; i < V; i++) total[i] += element(row, i);
    }
    if (!in.recomputed) return;
    load_floats<V>(out, in.bias + c);
#pragma unroll
    for (int i = 0; i < V; i++) out[i] += (element(q.x, i) - q.mean) * q.rstd * w[i];
    store_row((bf16 *)in.recomputed + at, packed_row(out));
}

/* G rows at a time. partial: (gridDim.x, 2 or with sums 3, C): sums for gain and bias, and of dx. dx may be NULL. */
template <int W, int G, int B, bool SUMS, bool PART>
static __global__ void __launch_bounds__(32 * W * G, B)
    wide_kernel(bf16 *dx, float *partial, const bf16 *dy, const bf16 *x, const bf16 *extra, bwd_in in)
{
    __shared__ float2 place[G][2][W];
    __shared__ float sums[G][32 * W * V];
    int group = threadIdx.x / (32 * W), c = threadIdx.x % (32 * W) * V, turn = 0;
    int64_t r = (int64_t)blockIdx.x * G + group, step = (int64_t)gridDim.x * G;
    bool has = !PART || c < in.C;
    float w[V] = {}, dg[V] = {}, db[V] = {}, total[V] = {}, width = 1.0f / (float)(PART ? in.C : 32 * W * V);
    wide_row next = {};
    if (has) load_floats<V>(w, in.gain + c);
    if (r < in.R && has) next = read_row(dy, x, extra, in, r, c);
    for (; r < in.R; r += step, turn ^= 1) {
        wide_row q = next;
        float2 m = make_float2(0.0f, 0.0f);
        if (r + step < in.R && has) next = read_row(dy, x, extra, in, r + step, c);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float d = element(q.dy, i), xhat = (element(q.x, i) - q.mean) * q.rstd;
            dg[i] += d * xhat;
            db[i] += d;
            m.x += d * w[i];
            m.y += d * w[i] * xhat;
        }
        if (!dx) continue; /* `recomputed` is not written then either */
        m = row_sum<W>(m, place[group][turn], group);
        m.x *= width, m.y *= width;
        if (has) write_row<SUMS>(dx, total, q, in, w, m, r * in.C + c, c);
    }
    enum { KINDS = SUMS ? 3 : 2 };
    for (int which = 0; which < KINDS; which++) {
#pragma unroll
        for (int i = 0; i < V; i++) sums[group][c + i] = which == 0 ? dg[i] : which == 1 ? db[i] : total[i];
        __syncthreads();
        for (int k = threadIdx.x; k < 32 * W * V; k += 32 * W * G) {
            float sum = 0.0f;
#pragma unroll
            for (int g = 0; g < G; g++) sum += sums[g][k];
            if (!PART || k < in.C) partial[((int64_t)blockIdx.x * KINDS + which) * in.C + k] = sum;
        }
        __syncthreads();
    }
}

typedef struct wide_shape {
    int rows, blocks; /* of a block at a time; blocks of a multiprocessor */
} wide_shape;

static int warps_of(int64_t C) { return (int)((C + 32 * V - 1) / (32 * V)); }

/* The sums of dx take registers: one block less. */
static wide_shape shape_of(int64_t C, bool sums)
{
    static const wide_shape shapes[] = { { 8, 3 }, { 4, 3 }, { 2, 4 }, { 2, 3 } };
    wide_shape s = shapes[warps_of(C) - 1];
    s.blocks -= sums;
    return s;
}

bool layernorm_wide_takes(const tensor *x)
{
    int64_t C = tensor_cols(x);
    int warps = warps_of(C);
    bool filled = C % (32 * V) == 0 || (warps == 3 && C % V == 0 && C > 5 * 32 * V / 2 - V); /* 640 and more */
    return x->dtype == CLOOB_BF16 && filled && warps <= 4;
}

unsigned layernorm_wide_blocks(const device *d, const tensor *x, bool sums)
{
    wide_shape s = shape_of(tensor_cols(x), sums);
    int64_t want = (tensor_rows(x) + s.rows - 1) / s.rows,
            limit = (int64_t)((const cuda_state *)d->state)->sms * s.blocks;
    return (unsigned)(want < limit ? want : limit);
}

template <int W, int G, int B, bool PART = false>
static void launch(const op_env *env, const op_args *a, const bwd_in &in)
{
    auto kernel = in.kinds == 3 ? wide_kernel<W, G, B - 1, true, PART> : wide_kernel<W, G, B, false, PART>;
    kernel<<<layernorm_wide_blocks(env->dev, &a->in[1], in.kinds == 3), 32 * W * G, 0, stream_of(env)>>>(
        (bf16 *)a->out[0].data, (float *)a->scratch, (const bf16 *)a->in[0].data, (const bf16 *)a->in[1].data,
        (const bf16 *)a->in[5].data, in);
}

void layernorm_wide_launch(const op_env *env, const op_args *a, const bwd_in &in)
{
    if (in.C % (32 * V)) {
        launch<3, 2, 4, true>(env, a, in);
        return;
    }
    switch (in.C / (32 * V)) {
    case 1: launch<1, 8, 3>(env, a, in); break;
    case 2: launch<2, 4, 3>(env, a, in); break;
    case 3: launch<3, 2, 4>(env, a, in); break;
    default: launch<4, 2, 3>(env, a, in); break;
    }
}
