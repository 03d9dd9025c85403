/* The epilogue warps of a GEMM with an activation (act_gemm.cu): they read boxes of bf16 that the consumers wrote,
 * apply the activation or its backward rule, and write to global memory. */
#ifndef NN_CUDA_LINEAR_ACT_EPILOGUE_CUH
#define NN_CUDA_LINEAR_ACT_EPILOGUE_CUH

#include "nn/cuda/activations.cuh"
#include "nn/cuda/linear/act_gemm_consumers.cuh"

namespace {

/* ---- activations --------------------------------------------------------------------------------- */

/* s = 1 / (1 + 2^u): the sigmoid of activations.cuh. Sharing one reciprocal between two values would relieve the
 * special function unit, but the extra instructions cost an epilogue warp as much. */
__device__ __forceinline__ float sigmoid_of(float u)
{
    float e, s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(u));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(e + 1.0f));
    return s;
}

/* An activation processes eight values at a time. forward: x becomes act(x + bias). backward, with the bias prepared by
 * bias_of: d is multiplied by the slope, and x becomes the activation. */

/* x s, with s = 1 / (1 + 2^u) and u = factor x. Backward is expressed in u, which saves one instruction: the slope is
 * s + u s (s - 1) ln 2, the activation u s / factor. */
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

/* Position of a strip's box. at: index of the lane's first element; left: rows from there to the end. */
struct box_position {
    int column, left;
    int64_t at;
    __device__ __forceinline__ bool exists(int k) const { return 4 * k < left; } /* the lane's k-th row */
};

/* After the last tile: no rows. */
__device__ __forceinline__ box_position position_of(const tile_iterator &w, const act_gemm &g, int consumer, int strip)
{
    int lane = threadIdx.x % 32, row = w.row + 64 * consumer + lane / 8,
        column = w.column + 64 * strip + 8 * (lane % 8);
    if (w.left == 0) return {};
    return { column, (int)g.m - row, (int64_t)row * g.n + column };
}

/* Loads 16 bytes of x. A row that does not exist is multiplied by a gradient of 0, so any other row can be loaded; a
 * predicate would make ptxas wait for the load at once. */
__device__ __forceinline__ uint4 load_once(const bf16 *p, const bf16 *other, bool exists)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(exists ? p : other));
    return v;
}

/* Stores 16 bytes if the row exists. A predicate instead of a branch, so that the arithmetic of several rows
 * overlaps. */
__device__ __forceinline__ void store_if(bf16 *p, const uint4 &v, bool exists)
{
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "setp.ne.b32 there, %5, 0;\n"
                 "@there st.global.v4.b32 [%0], {%1, %2, %3, %4};\n"
                 "}\n" ::"l"(p),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"((int)exists)
                 : "memory");
}

__device__ __forceinline__ uint4 load_bias(const act_gemm &g, const box_position &p)
{
    return g.bias ? *reinterpret_cast<const uint4 *>((const bf16 *)g.bias + p.column) : make_uint4(0, 0, 0, 0);
}

/* Reads a lane's rows of a filled box to registers, then releases the box. */
__device__ __forceinline__ void take_box(uint4 (&v)[LANE_ROWS], const char *box, uint64_t *filled, uint64_t *read_done,
                                         int parity)
{
    int lane = threadIdx.x % 32;
    barrier_wait(filled, parity);
#pragma unroll
    for (int k = 0; k < LANE_ROWS; k++)
        v[k] = load_shared(shared_address(box + chunk_offset(4 * k + lane / 8, lane % 8)));
    __syncwarp();
    if (elected()) barrier_arrive(read_done);
}

/* Sums eight columns over the lanes with other rows: afterwards a lane has the sums of columns 4 b4 + 2 b3 and the
 * next, where b are bits of the lane's index. */
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

/* Zeroes the columns of the strip in the block's row of partial sums. */
__device__ __forceinline__ void clear_sums(const act_gemm &g, int strip)
{
    float2 *row = reinterpret_cast<float2 *>(g.partial + blockIdx.x * g.n + 64 * strip) + threadIdx.x % 32;
    for (int64_t i = 0; i < g.n; i += COLUMNS) row[i / 2] = make_float2(0.0f, 0.0f);
}

/* A warp has few scoreboards; waiting for an older load that shares one with newer loads waits for those as well.
 * Therefore loads are issued in groups, directly after a row that has waited for all earlier loads, together with the
 * bias and the sums that are needed next. That row is stored first, or ptxas would move its arithmetic after the loads.
 * Waits that return at once (`never`) keep the loads in place. */

/* Main loop of an epilogue warp, forward: for each tile, the box of the first consumer, then of the second. */
template <class A>
__device__ void apply_forward(tile_iterator w, const act_gemm &g, int strip, const char *box, barriers *s)
{
    bool keeps = g.x;
    int64_t step = 4 * g.n;
    uint4 bias_here = load_bias(g, position_of(w, g, 0, strip)), v[LANE_ROWS];
    for (int parity = 0; w.left; parity ^= 1) {
        box_position p = position_of(w, g, 0, strip);
        float bias[8];
        unpack8(bias, bias_here);
        w.next();
        bias_here = load_bias(g, position_of(w, g, 0, strip));
#pragma unroll 1
        for (int consumer = 0; consumer < CONSUMERS; consumer++) {
            bf16 *x_at = (bf16 *)g.x + p.at, *y_at = (bf16 *)g.y + p.at;
            take_box(v, box, &s->filled[consumer][strip], &s->read_done[consumer][strip], parity);
#pragma unroll
            for (int k = 0; k < LANE_ROWS; k++, x_at += step) store_if(x_at, v[k], keeps && p.exists(k));
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
                for (int k = 0; k < BATCH; k++, y_at += step) store_if(y_at, y[k], p.exists(from + k));
            }
            p.at += 64 * g.n, p.left -= 64;
        }
    }
}

/* d becomes the rounded gradient, x the activation; adds the gradient to the column sums. bias: from A::bias_of. */
template <class A>
__device__ __forceinline__ void apply_row(uint4 &d, uint4 &x, const float (&bias)[8], float (&sum)[8])
{
    float f[8], z[8];
    unpack8(f, d);
    unpack8(z, x);
    A::backward(f, z, bias);
    d = pack8(f);
    x = pack8(z);
    unpack8(f, d); /* sum the rounded values, as every kernel does */
#pragma unroll
    for (int e = 0; e < 8; e++) sum[e] += f[e];
}

/* Main loop of an epilogue warp, backward: x is loaded half a box ahead. Rows that do not exist have a gradient of 0
 * and do not change the sums, which are over the boxes of both consumers. */
template <class A, bool RECOMPUTE>
__device__ void apply_backward(tile_iterator w, const act_gemm &g, int strip, const char *box, barriers *s)
{
    enum { HALF = LANE_ROWS / 2 };
    int lane = threadIdx.x % 32, parity = 0;
    int64_t step = 4 * g.n;
    const bf16 *x_first = (const bf16 *)g.x;
    float *partial = g.partial + blockIdx.x * g.n + lane / 16 * 4 + lane / 8 % 2 * 2, sum[8] = {};
    if (g.partial) clear_sums(g, strip);
    __syncwarp();
    box_position p = position_of(w, g, 0, strip);
    uint4 bias_here = load_bias(g, p), v[LANE_ROWS], x[2][HALF];
#pragma unroll
    for (int k = 0; k < HALF; k++) x[0][k] = load_once(x_first + p.at + k * step, x_first, p.exists(k));
#pragma unroll 1
    for (int consumer = 0; w.left; consumer ^= 1) {
        float bias[8];
        float2 before = make_float2(0.0f, 0.0f);
        unpack8(bias, bias_here);
        A::bias_of(bias);
        if (consumer == 1) w.next();
        box_position next = position_of(w, g, consumer ^ 1, strip);
        take_box(v, box, &s->filled[consumer][strip], &s->read_done[consumer][strip], parity);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const box_position &then = half ? next : p;
            const bf16 *x_at = x_first + then.at + (1 - half) * HALF * step;
            bf16 *y_at = (bf16 *)g.y + p.at + half * HALF * step,
                 *recomputed_at = (bf16 *)g.recomputed + p.at + half * HALF * step;
            apply_row<A>(v[half * HALF], x[half][0], bias, sum);
            store_if(y_at, v[half * HALF], p.exists(half * HALF));
            if constexpr (RECOMPUTE) store_if(recomputed_at, x[half][0], p.exists(half * HALF));
            barrier_wait(&s->never, 1);
#pragma unroll
            for (int k = 0; k < HALF; k++, x_at += step)
                x[1 - half][k] = load_once(x_at, x_first, then.exists((1 - half) * HALF + k));
            if (half == 0) {
                bias_here = load_bias(g, next);
                if (consumer == 1 && g.partial) before = *reinterpret_cast<float2 *>(partial + p.column);
            }
            barrier_wait(&s->never, 1);
#pragma unroll
            for (int k = 1; k < HALF; k++) {
                y_at += step, recomputed_at += step;
                apply_row<A>(v[half * HALF + k], x[half][k], bias, sum);
                store_if(y_at, v[half * HALF + k], p.exists(half * HALF + k));
                if constexpr (RECOMPUTE) store_if(recomputed_at, x[half][k], p.exists(half * HALF + k));
            }
        }
        if (consumer == 1) {
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
