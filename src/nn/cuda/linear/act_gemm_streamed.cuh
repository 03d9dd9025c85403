/* How the blocks of a GEMM with an activation inside (act_gemm_streamed.cu) share out tiles, and what its warps do:
 * copy factors, multiply, and finish results with the activation. */
#ifndef NN_CUDA_LINEAR_ACT_GEMM_STREAMED_CUH
#define NN_CUDA_LINEAR_ACT_GEMM_STREAMED_CUH

#include "nn/cuda/activations.cuh"
#include "nn/cuda/gemm_epilogues.cuh"
#include "nn/cuda/linear/act_gemm.h"
#include "tensor/cuda/cluster.cuh"

namespace {

enum {
    TEAMS = 2, /* warpgroups that multiply, 64 rows each */
    ROWS = TEAMS * 64,
    COLUMNS = 256,
    STRIPS = COLUMNS / 64, /* of a tile, a box each */
    FINISHERS = 3,         /* warps */
    STAGES = 4,
    ROW = DEPTH * 2, /* bytes of a row in a stage */
    A_BYTES = ROWS * ROW,
    B_BYTES = COLUMNS * ROW,
    STAGE_BYTES = A_BYTES + B_BYTES,
    THREADS = TEAMS * 128 + FINISHERS * 32 + 32,
    SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + STRIPS * BOX,
    LANE_ROWS = 8 /* of a finishing lane in half a box: every fourth */
};

struct maps {
    CUtensorMap a, b;
};

/* Barriers. full, empty: of a stage, for the copies to it and for the multiplying warps of the whole cluster. filled,
 * taken: of a strip's box, per team that writes to it: its four warps have written it; it was read. */
struct barriers {
    uint64_t full[STAGES], empty[STAGES], filled[TEAMS][STRIPS], taken[TEAMS][STRIPS];

    __device__ __forceinline__ void make(int blocks)
    {
        for (int s = 0; s < STAGES; s++) barrier_init(&full[s], 1), barrier_init(&empty[s], TEAMS * 4 * blocks);
        for (int i = 0; i < TEAMS * STRIPS; i++) barrier_init(&filled[0][0] + i, 4), barrier_init(&taken[0][0] + i, 1);
        barrier_publish();
    }
};

/* The shape of a cluster: blocks that share columns (and b), blocks that share rows (and a); and by how many stages the
 * second team begins later. */
struct cluster_shape {
    int below, beside, lag;
    __host__ __device__ int blocks() const { return below * beside; }
};

/* A block's tiles. Clusters take turns, and go along the columns first: a few rows of a and all of b are read by all
 * of them at about the same time, and come from the L2 cache. */
struct walk {
    int first, step, count; /* of the cluster's tiles */
    int across;             /* a cluster's tiles beside each other */
    int below, beside;      /* the block's place in the cluster */
    cluster_shape shape;
    __device__ __forceinline__ int row(int i) const { return (i / across * shape.below + below) * ROWS; }
    __device__ __forceinline__ int column(int i) const { return (i % across * shape.beside + beside) * COLUMNS; }
};

__device__ __forceinline__ walk walk_of(const act_gemm &g, cluster_shape shape)
{
    int rank = cluster_rank(), blocks = shape.blocks();
    int across = (int)g.n / (shape.beside * COLUMNS), height = shape.below * ROWS;
    return { (int)blockIdx.x / blocks,
             (int)gridDim.x / blocks,
             (int)((g.m + height - 1) / height) * across,
             across,
             rank % shape.below,
             rank / shape.below,
             shape };
}

/* ---- copying ------------------------------------------------------------------------------------- */

/* A box for the blocks of the cluster whose bits are set. */
__device__ __forceinline__ void copy_shared(char *to, const CUtensorMap *map, int x, int y, uint64_t *full, int blocks)
{
    if (blocks & (blocks - 1)) copy_box_to(to, map, x, y, full, (uint16_t)blocks);
    else copy_box(to, map, x, y, full);
}

/* Every block copies its share of a for those beside it and its share of b for those below it. */
template <bool BACKWARD>
__device__ void copy_factors(ring r, const walk &w, const maps &t, int depth)
{
    int a_rows = ROWS / w.shape.beside, b_rows = COLUMNS / w.shape.below, boxes = STRIPS / w.shape.below;
    int a_blocks = 0, b_blocks = 0;
    for (int i = 0; i < w.shape.beside; i++) a_blocks |= 1 << (w.below + i * w.shape.below);
    for (int i = 0; i < w.shape.below; i++) b_blocks |= 1 << (i + w.beside * w.shape.below);
    for (int i = w.first; i < w.count; i += w.step)
        for (int s = 0; s < depth; s++) {
            int row = w.row(i) + w.beside * a_rows, column = w.column(i);
            r.begin_fill();
            uint64_t *full = &r.full[r.at];
            char *b = r.here() + A_BYTES;
            copy_shared(r.here() + w.beside * a_rows * ROW, &t.a, s * DEPTH, row, full, a_blocks);
            if constexpr (BACKWARD) {
                for (int k = w.below * boxes; k < (w.below + 1) * boxes; k++)
                    copy_shared(b + k * BOX, &t.b, column + 64 * k, s * DEPTH, full, b_blocks);
            } else {
                int part = w.below * b_rows;
                copy_shared(b + part * ROW, &t.b, s * DEPTH, column + part, full, b_blocks);
            }
            r.next();
        }
}

/* ---- multiplying --------------------------------------------------------------------------------- */

/* A warp has multiplied a stage: every block of the cluster that copies to it is told. */
__device__ __forceinline__ void give_back(uint64_t *empty, int blocks)
{
    int lane = threadIdx.x % 32;
    if (lane < blocks) barrier_arrive_at(empty, lane);
}

/* The second team begins once the first is ahead, so that they come to the end of a tile one after the other. */
__device__ __forceinline__ void wait_for_start() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
__device__ __forceinline__ void allow_start() { asm volatile("bar.arrive 1, 256;" ::: "memory"); }

/* c = a tile's 64 rows and 256 columns; each stage is given back once the GEMM of the next has begun. */
template <bool BACKWARD>
__device__ __forceinline__ void multiply(float (&c)[128], ring &r, int depth, int team, int blocks, int starts)
{
    int before = 0;
    settle(c);
    for (int s = 0; s < depth; s++) {
        barrier_wait(&r.full[r.at], r.parity);
        const char *b_at = r.here() + A_BYTES;
        uint64_t a = descriptor(r.here() + team * 64 * ROW),
                 b = BACKWARD ? descriptor_turned(b_at, BOX) : descriptor(b_at);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
            if constexpr (BACKWARD) wgmma_right_turned_k16(c, a + 2 * k, b + (16 * ROW >> 4) * k, s > 0 || k > 0);
            else wgmma_k16(c, a + 2 * k, b + 2 * k, s > 0 || k > 0);
        wgmma_commit();
        if (s > 0) {
            wgmma_wait<1>();
            give_back(&r.empty[before], blocks);
            if (s == starts) allow_start();
        }
        before = r.at;
        r.next();
    }
    wgmma_wait<0>();
    settle(c);
    give_back(&r.empty[before], blocks);
}

/* The tile, rounded, to the strips' boxes. The other team's boxes must have been read. */
__device__ __forceinline__ void hand_over(const float (&c)[128], char *boxes, uint64_t *taken, int parity,
                                          uint64_t *filled)
{
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        barrier_wait(&taken[strip], parity);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float f[8];
            uint32_t v[4];
#pragma unroll
            for (int i = 0; i < 8; i++) f[i] = c[32 * strip + 8 * k + i];
            join(v, f);
            stmatrix(shared_address(boxes + strip * BOX + matrix_row(k)), v[0], v[1], v[2], v[3]);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(&filled[strip]);
    }
}

/* A team's life. */
template <bool BACKWARD>
__device__ void work(ring r, const walk &w, int depth, int team, char *boxes, barriers *s)
{
    float c[128];
    int parity = 0;
    if (team == 1 && w.shape.lag) wait_for_start();
    for (int i = w.first; i < w.count; i += w.step) {
        multiply<BACKWARD>(c, r, depth, team, w.shape.blocks(), team == 0 && i == w.first ? w.shape.lag : 0);
        hand_over(c, boxes, s->taken[1 - team], team == 0 ? parity ^ 1 : parity, s->filled[team]);
        parity ^= 1;
    }
}

/* ---- finishing ----------------------------------------------------------------------------------- */

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

/* 16 bytes, where there is a row; else zeros, or nothing. Predicates, not branches: so that the elements of several rows
 * are worked on at the same time. */
__device__ __forceinline__ uint4 load_once(const bf16 *p, bool there)
{
    uint4 v;
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "setp.ne.b32 there, %5, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "mov.b32 %2, 0;\n"
                 "mov.b32 %3, 0;\n"
                 "@there ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 "}\n"
                 : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
                 : "l"(p), "r"((int)there));
    return v;
}
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
        for (int k = 0; k < 2 * LANE_ROWS; k++, x_at += step, y_at += step) {
            float x[8];
            store_if(x_at, v[k], keeps && p.there(0, k));
            unpack8(x, v[k]);
#pragma unroll
            for (int e = 0; e < 8; e++) x[e] += bias[e];
            A::forward(x);
            store_if(y_at, pack8(x), p.there(0, k));
        }
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
    float *partial = g.partial + (blockIdx.x * FINISHERS + warp) * g.n;
    if (g.partial) clear_sums(g, warp, parts);
    __syncwarp();
    box_place next = place_of(w, g, warp);
    uint4 next_bias = load_bias(g, next), v[2 * LANE_ROWS], x[LANE_ROWS];
#pragma unroll
    for (int k = 0; k < LANE_ROWS; k++) x[k] = load_once((const bf16 *)g.x + next.at + k * step, next.there(0, k));
    for (int q = warp; q < count; q += FINISHERS) {
        box_place p = next;
        float bias[8], sum[8] = {};
        float *total_at = partial + p.column + lane / 16 * 4 + lane / 8 % 2 * 2;
        float2 before = g.partial ? *reinterpret_cast<float2 *>(total_at) : make_float2(0.0f, 0.0f);
        unpack8(bias, next_bias);
        next = place_of(w, g, q + FINISHERS);
        next_bias = load_bias(g, next);
        const bf16 *x_at = (const bf16 *)g.x + p.at + LANE_ROWS * step;
        bf16 *y_at = (bf16 *)g.y + p.at, *again_at = (bf16 *)g.recomputed + p.at;
        take_box(v, boxes, p, s);
#pragma unroll
        for (int k = 0; k < 2 * LANE_ROWS; k++, x_at += step, y_at += step, again_at += step) {
            float d[8], z[8];
            if (k == LANE_ROWS) x_at = (const bf16 *)g.x + next.at;
            uint4 &x_here = x[k % LANE_ROWS];
            unpack8(d, v[k]);
            unpack8(z, x_here);
            x_here = load_once(x_at, k < LANE_ROWS ? p.there(1, k) : next.there(0, k - LANE_ROWS));
#pragma unroll
            for (int e = 0; e < 8; e++) z[e] += bias[e];
            A::backward(d, z); /* z: the activation */
            v[k] = pack8(d);
            store_if(y_at, v[k], p.there(0, k));
            unpack8(d, v[k]);
#pragma unroll
            for (int e = 0; e < 8; e++) sum[e] += d[e];
            if constexpr (AGAIN) store_if(again_at, pack8(z), p.there(0, k));
        }
        float2 total = sum_lanes(sum);
        if (g.partial) *reinterpret_cast<float2 *>(total_at) = make_float2(before.x + total.x, before.y + total.y);
    }
}

} // namespace

#endif
