/* The warps of a GEMM with an activation inside (act_gemm.cu) that finish tiles: they take boxes of bf16 from the
 * multiplying warps, apply the activation or its backward rule, and write to memory. */
#ifndef NN_CUDA_LINEAR_ACT_FINISH_CUH
#define NN_CUDA_LINEAR_ACT_FINISH_CUH

#include "nn/cuda/activations.cuh"
#include "nn/cuda/linear/act_gemm_consumers.cuh"

namespace {

/* ---- activations --------------------------------------------------------------------------------- */

/* s = 1 / (1 + 2^u): the sigmoid of activations.cuh. Two numbers could share a reciprocal, which would leave the
 * special function unit less to do; but a finishing warp issues the instructions that this takes no faster. */
__device__ __forceinline__ float sigmoid_of(float u)
{
    float e, s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(u));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(e + 1.0f));
    return s;
}

/* An activation works on eight numbers at a time. forward: x becomes the activation of x + bias. backward, with the
 * bias as bias_of has prepared it: d is multiplied by the slope, and x becomes the activation. */

/* x s, with s = 1 / (1 + 2^u) and u = factor x. Backward everything is written in u, which takes one instruction less:
 * the slope is s + u s (s - 1) ln 2, the activation u s / factor. */
struct quickgelu_act {
    static constexpr float factor = (float)(-1.702 * 1.4426950408889634), ln2 = 0.69314718f;
    static __device__ __forceinline__ void forward(float (&x)[8], const float (&bias)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            x[e] += bias[e];
            x[e] *= sigmoid_of(factor * x[e]);
        }
    }
    static __device__ __forceinline__ void bias_of(float (&bias)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) bias[e] *= factor;
    }
    static __device__ __forceinline__ void backward(float (&d)[8], float (&x)[8], const float (&bias)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float u = fmaf(x[e], factor, bias[e]), s = sigmoid_of(u), us = u * s;
            d[e] *= fmaf(us, fmaf(s, ln2, -ln2), s);
            x[e] = us * (1.0f / factor);
        }
    }
};

/* x s, with s the sigmoid of v = 1.596 (x + 0.0447 x^3). */
struct gelu_tanh_act {
    static __device__ __forceinline__ float s_of(float x)
    {
        return sigmoid_of((float)(-1.59576912 * 1.4426950408889634) * fmaf(0.044715f * x * x, x, x));
    }
    static __device__ __forceinline__ void forward(float (&x)[8], const float (&bias)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            x[e] += bias[e];
            x[e] *= s_of(x[e]);
        }
    }
    static __device__ __forceinline__ void bias_of(float (&)[8]) {}
    static __device__ __forceinline__ void backward(float (&d)[8], float (&x)[8], const float (&bias)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float z = x[e] + bias[e], s = s_of(z), slope = 1.59576912f * z * fmaf(0.134145f * z, z, 1.0f); /* z v'(z) */
            d[e] *= fmaf(slope, fmaf(-s, s, s), s);
            x[e] = z * s;
        }
    }
};

struct gelu_act {
    static __device__ __forceinline__ void forward(float (&x)[8], const float (&bias)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = gelu_fn()(x[e] + bias[e], 0.0f);
    }
    static __device__ __forceinline__ void bias_of(float (&)[8]) {}
    static __device__ __forceinline__ void backward(float (&d)[8], float (&x)[8], const float (&bias)[8])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float z = x[e] + bias[e];
            d[e] = gelu_bwd_fn()(d[e], z), x[e] = gelu_fn()(z, 0.0f);
        }
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

/* A strip's box. at: a lane's first element; left: how many rows there are from there on. */
struct box_place {
    int column, left;
    int64_t at;
    __device__ __forceinline__ bool there(int k) const { return 4 * k < left; } /* the lane's k-th row */
};

/* Behind the last tile: nothing. */
__device__ __forceinline__ box_place place_of(const walk &w, const act_gemm &g, int team, int strip)
{
    int lane = threadIdx.x % 32, row = w.row + 64 * team + lane / 8, column = w.column + 64 * strip + 8 * (lane % 8);
    if (w.left == 0) return {};
    return { column, (int)g.m - row, (int64_t)row * g.n + column };
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
__device__ __forceinline__ void take_box(uint4 (&v)[LANE_ROWS], const char *box, uint64_t *filled, uint64_t *taken,
                                         int parity)
{
    int lane = threadIdx.x % 32;
    barrier_wait(filled, parity);
#pragma unroll
    for (int k = 0; k < LANE_ROWS; k++)
        v[k] = load_shared(shared_address(box + chunk_offset(4 * k + lane / 8, lane % 8)));
    __syncwarp();
    if (elected()) barrier_arrive(taken);
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

/* A block's row of partial sums, of which a finishing warp has the columns of its strip. */
__device__ __forceinline__ void clear_sums(const act_gemm &g, int strip)
{
    float2 *row = reinterpret_cast<float2 *>(g.partial + blockIdx.x * g.n + 64 * strip) + threadIdx.x % 32;
    for (int64_t i = 0; i < g.n; i += COLUMNS) row[i / 2] = make_float2(0.0f, 0.0f);
}

/* A warp has few scoreboards, and waiting for an older load that shares one with newer loads is waiting for these, too.
 * So loads are issued many at a time, directly behind a row that had to wait for all loads before, and what is needed
 * next (the bias, the sums so far) goes with them. That row is stored first: else ptxas would move its arithmetic
 * behind the loads. Waits that are over at once (`never`) keep the loads where they are. */

/* The life of a finishing warp: of every tile, the first team's box and the second's. */
template <class A>
__device__ void finish_forward(walk w, const act_gemm &g, int strip, const char *box, barriers *s)
{
    bool keeps = g.x;
    int64_t step = 4 * g.n;
    uint4 bias_here = load_bias(g, place_of(w, g, 0, strip)), v[LANE_ROWS];
    for (int parity = 0; w.left; parity ^= 1) {
        box_place p = place_of(w, g, 0, strip);
        float bias[8];
        unpack8(bias, bias_here);
        w.next();
        bias_here = load_bias(g, place_of(w, g, 0, strip));
#pragma unroll 1
        for (int team = 0; team < TEAMS; team++) {
            bf16 *x_at = (bf16 *)g.x + p.at, *y_at = (bf16 *)g.y + p.at;
            take_box(v, box, &s->filled[team][strip], &s->taken[team][strip], parity);
#pragma unroll
            for (int k = 0; k < LANE_ROWS; k++, x_at += step) store_if(x_at, v[k], keeps && p.there(k));
#pragma unroll
            for (int from = 0; from < LANE_ROWS; from += BATCH) {
                uint4 y[BATCH];
#pragma unroll
                for (int k = 0; k < BATCH; k++) {
                    float x[8];
                    unpack8(x, v[from + k]);
                    A::forward(x, bias);
                    y[k] = pack8(x);
                }
#pragma unroll
                for (int k = 0; k < BATCH; k++, y_at += step) store_if(y_at, y[k], p.there(from + k));
            }
            p.at += 64 * g.n, p.left -= 64;
        }
    }
}

/* d becomes the gradient, rounded; x the activation; and the columns' sums. bias: as A wants it. */
template <class A>
__device__ __forceinline__ void finish_row(uint4 &d, uint4 &x, const float (&bias)[8], float (&sum)[8])
{
    float f[8], z[8];
    unpack8(f, d);
    unpack8(z, x);
    A::backward(f, z, bias);
    d = pack8(f);
    x = pack8(z);
    unpack8(f, d); /* sums are of what is written, whichever kernel writes it */
#pragma unroll
    for (int e = 0; e < 8; e++) sum[e] += f[e];
}

/* Backward: x is on its way half a box ahead. Rows that do not exist have a gradient of zero, and so no part in the
 * sums, which are those of both teams' boxes. */
template <class A, bool AGAIN>
__device__ void finish_backward(walk w, const act_gemm &g, int strip, const char *box, barriers *s)
{
    enum { HALF = LANE_ROWS / 2 };
    int lane = threadIdx.x % 32, parity = 0;
    int64_t step = 4 * g.n;
    const bf16 *x_first = (const bf16 *)g.x;
    float *partial = g.partial + blockIdx.x * g.n + lane / 16 * 4 + lane / 8 % 2 * 2, sum[8] = {};
    if (g.partial) clear_sums(g, strip);
    __syncwarp();
    box_place p = place_of(w, g, 0, strip);
    uint4 bias_here = load_bias(g, p), v[LANE_ROWS], x[2][HALF];
#pragma unroll
    for (int k = 0; k < HALF; k++) x[0][k] = load_once(x_first + p.at + k * step, x_first, p.there(k));
#pragma unroll 1
    for (int team = 0; w.left; team ^= 1) {
        float bias[8];
        float2 before = make_float2(0.0f, 0.0f);
        unpack8(bias, bias_here);
        A::bias_of(bias);
        if (team == 1) w.next();
        box_place next = place_of(w, g, team ^ 1, strip);
        take_box(v, box, &s->filled[team][strip], &s->taken[team][strip], parity);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const box_place &then = half ? next : p;
            const bf16 *x_at = x_first + then.at + (1 - half) * HALF * step;
            bf16 *y_at = (bf16 *)g.y + p.at + half * HALF * step,
                 *again_at = (bf16 *)g.recomputed + p.at + half * HALF * step;
            finish_row<A>(v[half * HALF], x[half][0], bias, sum);
            store_if(y_at, v[half * HALF], p.there(half * HALF));
            if constexpr (AGAIN) store_if(again_at, x[half][0], p.there(half * HALF));
            barrier_wait(&s->never, 1);
#pragma unroll
            for (int k = 0; k < HALF; k++, x_at += step)
                x[1 - half][k] = load_once(x_at, x_first, then.there((1 - half) * HALF + k));
            if (half == 0) {
                bias_here = load_bias(g, next);
                if (team == 1 && g.partial) before = *reinterpret_cast<float2 *>(partial + p.column);
            }
            barrier_wait(&s->never, 1);
#pragma unroll
            for (int k = 1; k < HALF; k++) {
                y_at += step, again_at += step;
                finish_row<A>(v[half * HALF + k], x[half][k], bias, sum);
                store_if(y_at, v[half * HALF + k], p.there(half * HALF + k));
                if constexpr (AGAIN) store_if(again_at, x[half][k], p.there(half * HALF + k));
            }
        }
        if (team == 1) {
            float2 total = sum_lanes(sum);
            if (g.partial)
                *reinterpret_cast<float2 *>(partial + p.column) = make_float2(before.x + total.x, before.y + total.y);
#pragma unroll
            for (int e = 0; e < 8; e++) sum[e] = 0.0f;
            parity ^= 1;
        }
        p = next;
    }
}

} // namespace

#endif
