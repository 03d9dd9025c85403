/* How the blocks of a GEMM with an activation inside (act_gemm.cu) share out tiles, and what their multiplying warps
 * do: multiply, and have the copy engine bring what comes next. Those that apply the activation: act_finish.cuh. */
#ifndef NN_CUDA_LINEAR_ACT_GEMM_CONSUMERS_CUH
#define NN_CUDA_LINEAR_ACT_GEMM_CONSUMERS_CUH

#include "nn/cuda/gemm_epilogues.cuh"
#include "nn/cuda/linear/act_gemm.h"

namespace {

enum {
    TEAMS = 2, /* warpgroups that multiply, 64 rows each */
    ROWS = TEAMS * 64,
    COLUMNS = 256,
    STRIPS = COLUMNS / 64, /* of a tile, a box and a finishing warp each */
    STAGES = 4,
    ROW = DEPTH * 2, /* bytes of a row in a stage */
    A_BYTES = ROWS * ROW,
    B_BYTES = COLUMNS * ROW,
    STAGE_BYTES = A_BYTES + B_BYTES,
    THREADS = TEAMS * 128 + STRIPS * 32,
    SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + STRIPS * BOX,
    LANE_ROWS = 16, /* of a finishing lane in a box: every fourth */
    BATCH = 4       /* of these that are finished before the first is written, forward */
};

struct maps {
    CUtensorMap a, b;
};

/* Barriers. full, empty: of a stage, for the copies to it and for the multiplying warps. filled, taken: of a strip's
 * box, per team that writes to it: its four warps have written it; it was read. never: nobody arrives. */
struct barriers {
    uint64_t full[STAGES], empty[STAGES], filled[TEAMS][STRIPS], taken[TEAMS][STRIPS], never;

    __device__ __forceinline__ void make()
    {
        for (int s = 0; s < STAGES; s++) barrier_init(&full[s], 1), barrier_init(&empty[s], TEAMS * 4);
        for (int i = 0; i < TEAMS * STRIPS; i++) barrier_init(&filled[0][0] + i, 4), barrier_init(&taken[0][0] + i, 1);
        barrier_init(&never, 1);
        barrier_publish();
    }
};

/* A block's tiles: every gridDim.x-th, along the columns first, so that a few rows of a and all of b are read by all
 * blocks at about the same time and come from the L2 cache. row, column: of the tile it stands at. */
struct walk {
    int row, column, left; /* left: tiles from here on, this one included */
    int rows, columns, n;  /* from a tile to the next; columns in all */

    __device__ __forceinline__ void next()
    {
        left--, row += rows, column += columns;
        if (column >= n) column -= n, row += ROWS;
    }
};

__device__ __forceinline__ walk walk_of(const act_gemm &g)
{
    int across = (int)g.n / COLUMNS, tiles = (int)((g.m + ROWS - 1) / ROWS) * across;
    int at = (int)blockIdx.x, step = (int)gridDim.x;
    return { at / across * ROWS,   at % across * COLUMNS,   at < tiles ? (tiles - 1 - at) / step + 1 : 0,
             step / across * ROWS, step % across * COLUMNS, (int)g.n };
}

/* ---- copying ------------------------------------------------------------------------------------- */

/* What is copied next: stages in the order in which they are multiplied. By one thread of the second team, which is the
 * last to have multiplied a stage: a warp for it alone would wait for the same. */
template <bool BACKWARD>
struct feeder {
    walk w;
    int depth, s;

    __device__ __forceinline__ void fill(const ring &r, int at, const maps *t)
    {
        char *a = r.stage + at * STAGE_BYTES, *b = a + A_BYTES;
        uint64_t *full = &r.full[at];
        barrier_expect(full, STAGE_BYTES);
        copy_box(a, &t->a, s * DEPTH, w.row, full);
        if constexpr (BACKWARD) {
#pragma unroll
            for (int k = 0; k < STRIPS; k++) copy_box(b + k * BOX, &t->b, w.column + 64 * k, s * DEPTH, full);
        } else copy_box(b, &t->b, s * DEPTH, w.column, full);
        if (++s == depth) s = 0, w.next();
    }
    /* A stage that is free when the phase `parity` of its barrier is over. */
    __device__ __forceinline__ void refill(const ring &r, int at, int parity, const maps *t)
    {
        if (w.left == 0) return;
        barrier_wait(&r.empty[at], parity);
        fill(r, at, t);
    }
};

/* ---- multiplying --------------------------------------------------------------------------------- */

/* The second team begins once the first is a stage ahead, so that they come to the end of a tile one after the other.
 */
__device__ __forceinline__ void wait_for_start() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
__device__ __forceinline__ void allow_start() { asm volatile("bar.arrive 1, 256;" ::: "memory"); }

/* A stage that this warp has multiplied. */
template <bool BACKWARD>
__device__ __forceinline__ void give_back(const ring &r, int at, int parity, bool feeds, feeder<BACKWARD> &f,
                                          const maps *t)
{
    if (elected()) {
        barrier_arrive(&r.empty[at]);
        if (feeds) f.refill(r, at, parity, t);
    }
    __syncwarp();
}

/* c = a tile's 64 rows and 256 columns; each stage is given back once the GEMM of the next has begun. */
template <bool BACKWARD>
__device__ __forceinline__ void multiply(float (&c)[128], ring &r, int depth, int team, bool first, bool feeds,
                                         feeder<BACKWARD> &f, const maps *t)
{
    int before = 0, parity = 0;
    fence_registers(c);
    for (int s = 0; s < depth; s++) {
        barrier_wait(&r.full[r.at], r.parity);
        const char *b_at = r.here() + A_BYTES;
        uint64_t a = descriptor(r.here() + team * 64 * ROW),
                 b = BACKWARD ? descriptor_transposed(b_at, BOX) : descriptor(b_at);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
            if constexpr (BACKWARD) wgmma_b_transposed_k16(c, a + 2 * k, b + (16 * ROW >> 4) * k, s > 0 || k > 0);
            else wgmma_k16(c, a + 2 * k, b + 2 * k, s > 0 || k > 0);
        wgmma_commit();
        if (s > 0) {
            wgmma_wait<1>();
            give_back(r, before, parity, feeds, f, t);
        }
        if (first && team == 0 && s == (depth > 1)) allow_start();
        before = r.at, parity = r.parity;
        r.next();
    }
    wgmma_wait<0>();
    fence_registers(c);
    give_back(r, before, parity, feeds, f, t);
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
        if (elected()) barrier_arrive(&filled[strip]);
    }
}

/* A team's life. */
template <bool BACKWARD>
__device__ void work(ring r, walk w, const maps *t, int depth, int warp, char *boxes, barriers *s)
{
    float c[128];
    feeder<BACKWARD> f = { w, depth, 0 };
    int team = warp / 4;
    bool feeds = warp == 4;
    if (feeds && elected())
        for (int at = 0; at < STAGES && f.w.left; at++) f.fill(r, at, t);
    __syncwarp();
    if (team == 1) wait_for_start();
    for (int i = 0; i < w.left; i++) {
        multiply<BACKWARD>(c, r, depth, team, i == 0, feeds, f, t);
        hand_over(c, boxes, s->taken[1 - team], (team == 0) ^ i % 2, s->filled[team]);
    }
}

} // namespace

#endif
