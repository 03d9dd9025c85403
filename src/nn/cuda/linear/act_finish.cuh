/* The warps of a GEMM with an activation inside (act_gemm_streamed.cu) that finish tiles: they take boxes of bf16 from
 * the multiplying warps, apply the activation or its backward rule, and write to memory. */
#ifndef NN_CUDA_LINEAR_ACT_FINISH_CUH
#define NN_CUDA_LINEAR_ACT_FINISH_CUH

#include "nn/cuda/activations.cuh"
#include "nn/cuda/linear/act_gemm_streamed.cuh"

namespace {

/* ---- activations --------------------------------------------------------------------------------- */

/* s = 1 / (1 + 2^u) of eight numbers: the sigmoid of activations.cuh, but one reciprocal for two of them. 2^60 is large
 * enough, and a product of two such powers is still a number. */
__device__ __forceinline__ void sigmoid8(float (&s)[8], const float (&u)[8])
{
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
        float a, b, r;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(a) : "f"(fminf(u[e], 60.0f)));
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(b) : "f"(fminf(u[e + 1], 60.0f)));
        a += 1.0f, b += 1.0f;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a * b));
        s[e] = r * b, s[e + 1] = r * a;
    }
}

/* x / (1 + 2^u(x)). forward: x becomes the activation; backward: d is multiplied by its slope, and x becomes it, too.
 */
template <class U>
struct sigmoid_act {
    static __device__ __forceinline__ void forward(float (&x)[8])
    {
        float u[8], s[8];
#pragma unroll
        for (int e = 0; e < 8; e++) u[e] = U::u(x[e]);
        sigmoid8(s, u);
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] *= s[e];
    }
    static __device__ __forceinline__ void backward(float (&d)[8], float (&x)[8])
    {
        float u[8], s[8];
#pragma unroll
        for (int e = 0; e < 8; e++) u[e] = U::u(x[e]);
        sigmoid8(s, u);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            d[e] *= fmaf(U::x_slope(x[e]), fmaf(-s[e], s[e], s[e]), s[e]);
            x[e] *= s[e];
        }
    }
};

/* u = -v / ln 2 for the sigmoid of v; x_slope: x v'(x). */
struct quickgelu_u {
    static __device__ __forceinline__ float u(float x) { return (float)(-1.702 * 1.4426950408889634) * x; }
    static __device__ __forceinline__ float x_slope(float x) { return 1.702f * x; }
};
struct gelu_tanh_u {
    static __device__ __forceinline__ float u(float x)
    {
        return (float)(-1.59576912 * 1.4426950408889634) * fmaf(0.044715f * x * x, x, x);
    }
    static __device__ __forceinline__ float x_slope(float x) { return 1.59576912f * x * fmaf(0.134145f * x, x, 1.0f); }
};

struct gelu_act {
    static __device__ __forceinline__ void forward(float (&x)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = gelu_fn()(x[e], 0.0f);
    }
    static __device__ __forceinline__ void backward(float (&d)[8], float (&x)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) d[e] = gelu_bwd_fn()(d[e], x[e]), x[e] = gelu_fn()(x[e], 0.0f);
    }
};

/* ---- boxes --------------------------------------------------------------------------------------- */

/* Eight columns of a row. */
__device__ __forceinline__ void unpack8(float (&f)[8], const uint4 &v)
{
    float2 a = unpack_pair(v.x), b = unpack_pair(v.y), c = unpack_pair(v.z), d = unpack_pair(v.w);
    f[0] = a.x, f[1] = a.y, f[2] = b.x, f[3] = b.y, f[4] = c.x, f[5] = c.y, f[6] = d.x, f[7] = d.y;
}
__device__ __forceinline__ uint4 pack8(const float (&f)[8])
{
    return make_uint4(pack2(f[0], f[1]), pack2(f[2], f[3]), pack2(f[4], f[5]), pack2(f[6], f[7]));
}

/* A box of a block's walk, in the order in which teams fill them: eight to a tile. at: a lane's first element; left:
 * how many rows there are from there on. */
struct box_place {
    int team, strip, parity, column;
    int64_t at;
    int left;
    __device__ __forceinline__ bool there(int half, int k) const { return 32 * half + 4 * k < left; }
};

__device__ __forceinline__ box_place place_of(const walk &w, const act_gemm &g, int q)
{
    int lane = threadIdx.x % 32, tile = q / (TEAMS * STRIPS), i = w.first + tile * w.step;
    box_place p = { q / STRIPS % TEAMS, q % STRIPS, tile % 2, 0, 0, 0 };
    if (i >= w.count) return p;
    int row = w.row(i) + 64 * p.team + lane / 8;
    p.column = w.column(i) + 64 * p.strip + 8 * (lane % 8);
    p.at = (int64_t)row * g.n + p.column;
    p.left = (int)g.m - row;
    return p;
}

/* 16 bytes of x. A row that does not exist is multiplied by a gradient of zero: any other will do, and the load needs
 * no predicate, which would make ptxas wait for it at once. */
__device__ __forceinline__ uint4 load_once(const bf16 *p, const bf16 *other, bool there)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(there ? p : other));
    return v;
}

/* 16 bytes to memory where there is a row. A predicate, not a branch, so that elements of several rows are worked on at
 * the same time. */
__device__ __forceinline__ void store_if(bf16 *p, const uint4 &v, bool there)
{
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "setp.ne.b32 there, %5, 0;\n"
                 "@there st.global.v4.b32 [%0], {%1, %2, %3, %4};\n"
                 "}\n" ::"l"(p),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"((int)there)
                 : "memory");
}

__device__ __forceinline__ uint4 load_bias(const act_gemm &g, const box_place &p)
{
    return g.bias ? *reinterpret_cast<const uint4 *>((const bf16 *)g.bias + p.column) : make_uint4(0, 0, 0, 0);
}

/* A lane's rows of a filled box to registers; then the box is free. */
__device__ __forceinline__ void take_box(uint4 (&v)[2 * LANE_ROWS], const char *boxes, const box_place &p, barriers *s)
{
    int lane = threadIdx.x % 32;
    const char *box = boxes + p.strip * BOX;
    barrier_wait(&s->filled[p.team][p.strip], p.parity);
#pragma unroll
    for (int k = 0; k < 2 * LANE_ROWS; k++)
        v[k] = load_shared(shared_address(box + chunk_place(4 * k + lane / 8, lane % 8)));
    __syncwarp();
    if (lane == 0) barrier_arrive(&s->taken[p.team][p.strip]);
}

/* Sums of eight columns over the lanes of other rows: afterwards a lane has those of two columns, 4 b4 + 2 b3 by the
 * bits of its number. */
__device__ __forceinline__ float2 sum_lanes(float (&s)[8])
{
    bool high = threadIdx.x & 16, odd = threadIdx.x & 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sent = high ? s[i] : s[i + 4], kept = high ? s[i + 4] : s[i];
        s[i] = kept + __shfl_xor_sync(~0u, sent, 16);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sent = odd ? s[i] : s[i + 2], kept = odd ? s[i + 2] : s[i];
        s[i] = kept + __shfl_xor_sync(~0u, sent, 8);
    }
    return make_float2(s[0], s[1]);
}

/* A finishing warp's own row of partial sums, and those of blocks that were not launched. */
__device__ __forceinline__ void clear_sums(const act_gemm &g, int warp, int parts)
{
    int lane = threadIdx.x % 32;
    for (int row = blockIdx.x * FINISHERS + warp; row < parts; row += gridDim.x * FINISHERS)
        for (int64_t i = 2 * lane; i < g.n; i += 64)
            *reinterpret_cast<float2 *>(g.partial + row * g.n + i) = make_float2(0.0f, 0.0f);
}

/* Memory is read and written in batches of half a box, the arithmetic lies between them. A warp has few scoreboards: if
 * loads and stores were spread over the rows, an exponential would wait for a load that shares its own. A wait that is
 * over at once (`never`) keeps ptxas from moving the loads behind the arithmetic. */

/* The life of a finishing warp: every third box. */
template <class A>
__device__ void finish_forward(const walk &w, const act_gemm &g, int warp, int count, const char *boxes, barriers *s)
{
    box_place next = place_of(w, g, warp);
    uint4 next_bias = load_bias(g, next), v[2 * LANE_ROWS];
    bool keeps = g.x;
    int64_t step = 4 * g.n;
    for (int q = warp; q < count; q += FINISHERS) {
        box_place p = next;
        float bias[8];
        unpack8(bias, next_bias);
        next = place_of(w, g, q + FINISHERS);
        next_bias = load_bias(g, next);
        bf16 *x_at = (bf16 *)g.x + p.at, *y_at = (bf16 *)g.y + p.at;
        take_box(v, boxes, p, s);
#pragma unroll
        for (int k = 0; k < 2 * LANE_ROWS; k++, x_at += step) store_if(x_at, v[k], keeps && p.there(0, k));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 y[LANE_ROWS];
#pragma unroll
            for (int k = 0; k < LANE_ROWS; k++) {
                float x[8];
                unpack8(x, v[LANE_ROWS * half + k]);
#pragma unroll
                for (int e = 0; e < 8; e++) x[e] += bias[e];
                A::forward(x);
                y[k] = pack8(x);
            }
#pragma unroll
            for (int k = 0; k < LANE_ROWS; k++, y_at += step) store_if(y_at, y[k], p.there(half, k));
        }
    }
}

/* d becomes the gradient, rounded; x the activation; and the columns' sums. */
template <class A>
__device__ __forceinline__ void finish_half(uint4 (&d)[2 * LANE_ROWS], int from, uint4 (&x)[LANE_ROWS],
                                            const float (&bias)[8], float (&sum)[8])
{
#pragma unroll
    for (int k = 0; k < LANE_ROWS; k++) {
        float f[8], z[8];
        unpack8(f, d[from + k]);
        unpack8(z, x[k]);
#pragma unroll
        for (int e = 0; e < 8; e++) z[e] += bias[e];
        A::backward(f, z);
        d[from + k] = pack8(f);
        x[k] = pack8(z);
        unpack8(f, d[from + k]);
#pragma unroll
        for (int e = 0; e < 8; e++) sum[e] += f[e];
    }
}

/* Backward: x of the next half of a box is on its way while this one is finished. Sums go to the warp's own row of
 * partial; a column's are always added by the same lane. */
template <class A, bool AGAIN>
__device__ void finish_backward(const walk &w, const act_gemm &g, int parts, int warp, int count, const char *boxes,
                                barriers *s)
{
    int lane = threadIdx.x % 32;
    int64_t step = 4 * g.n;
    const bf16 *x_first = (const bf16 *)g.x;
    float *partial = g.partial + (blockIdx.x * FINISHERS + warp) * g.n;
    if (g.partial) clear_sums(g, warp, parts);
    __syncwarp();
    box_place next = place_of(w, g, warp);
    uint4 next_bias = load_bias(g, next), v[2 * LANE_ROWS], x[2][LANE_ROWS];
#pragma unroll
    for (int k = 0; k < LANE_ROWS; k++) x[0][k] = load_once(x_first + next.at + k * step, x_first, next.there(0, k));
    for (int q = warp; q < count; q += FINISHERS) {
        box_place p = next;
        float bias[8], sum[8] = {};
        float *total_at = partial + p.column + lane / 16 * 4 + lane / 8 % 2 * 2;
        float2 before = make_float2(0.0f, 0.0f);
        unpack8(bias, next_bias);
        next = place_of(w, g, q + FINISHERS);
        const bf16 *x_at = x_first + p.at + LANE_ROWS * step;
        bf16 *y_at = (bf16 *)g.y + p.at, *again_at = (bf16 *)g.recomputed + p.at;
        take_box(v, boxes, p, s);
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int k = 0; k < LANE_ROWS; k++, x_at += step)
                x[1 - half][k] = load_once(x_at, x_first, half ? next.there(0, k) : p.there(1, k));
            x_at = x_first + next.at;
            if (half == 1) next_bias = load_bias(g, next);
            if (half == 1 && g.partial) before = *reinterpret_cast<float2 *>(total_at);
            barrier_wait(&s->never, 1);
            finish_half<A>(v, LANE_ROWS * half, x[half], bias, sum);
#pragma unroll
            for (int k = 0; k < LANE_ROWS; k++, y_at += step, again_at += step) {
                store_if(y_at, v[LANE_ROWS * half + k], p.there(half, k));
                if constexpr (AGAIN) store_if(again_at, x[half][k], p.there(half, k));
            }
        }
        float2 total = sum_lanes(sum);
        if (g.partial) *reinterpret_cast<float2 *>(total_at) = make_float2(before.x + total.x, before.y + total.y);
    }
}

} // namespace

#endif
