/* Tile scheduling and consumer warps of a GEMM with an activation (act_gemm.cu): they multiply and issue the copies of
 * the next stages. act_epilogue.cuh has the warps that apply the activation. */
#ifndef NN_CUDA_LINEAR_ACT_GEMM_CONSUMERS_CUH
#define NN_CUDA_LINEAR_ACT_GEMM_CONSUMERS_CUH

#include "nn/cuda/gemm_epilogues.cuh"
#include "nn/cuda/linear/act_gemm.h"

namespace {

enum {
    CONSUMERS = 2, /* consumer warpgroups, 64 rows each */
    ROWS = CONSUMERS * 64,
    COLUMNS = 256,
    STRIPS = COLUMNS / 64, /* of 64 columns: one box and one epilogue warp each */
    STAGES = 4,
    ROW = DEPTH * 2, /* bytes of a row in a stage */
    A_BYTES = ROWS * ROW,
    B_BYTES = COLUMNS * ROW,
    STAGE_BYTES = A_BYTES + B_BYTES,
    THREADS = CONSUMERS * 128 + STRIPS * 32,
    SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + STRIPS * BOX,
    LANE_ROWS = 16, /* rows of a box per epilogue lane: every fourth */
    BATCH = 4       /* rows computed before the first is written, forward */
};

struct maps {
    CUtensorMap a, b;
};

/* full, empty: of a stage: copied; released by the consumer warps. filled, read_done: of a strip's box, per consumer:
 * its four warps have written it; the epilogue has read it. never: no thread arrives. */
struct barriers {
    uint64_t full[STAGES], empty[STAGES], filled[CONSUMERS][STRIPS], read_done[CONSUMERS][STRIPS], never;

    __device__ __forceinline__ void make()
    {
        for (int s = 0; s < STAGES; s++) barrier_init(&full[s], 1), barrier_init(&empty[s], CONSUMERS * 4);
        for (int i = 0; i < CONSUMERS * STRIPS; i++)
            barrier_init(&filled[0][0] + i, 4), barrier_init(&read_done[0][0] + i, 1);
        barrier_init(&never, 1);
        barrier_publish();
    }
};

/* The tiles of a block: every gridDim.x-th, along the columns first, so that all blocks read a few rows of a and all of
 * b at about the same time, from the L2 cache. row, column: of the current tile. */
struct tile_iterator {
    int row, column, left; /* left: remaining tiles, including this one */
    int rows, columns, n;  /* step from a tile to the next; number of columns */

    __device__ __forceinline__ void next()
    {
        left--, row += rows, column += columns;
        if (column >= n) column -= n, row += ROWS;
    }
};

__device__ __forceinline__ tile_iterator tile_iterator_of(const act_gemm &g)
{
    int across = (int)g.n / COLUMNS, tiles = (int)((g.m + ROWS - 1) / ROWS) * across;
    int at = (int)blockIdx.x, step = (int)gridDim.x;
    return { at / across * ROWS,   at % across * COLUMNS,   at < tiles ? (tiles - 1 - at) / step + 1 : 0,
             step / across * ROWS, step % across * COLUMNS, (int)g.n };
}

/* ---- copying ------------------------------------------------------------------------------------- */

/* The next copies: stages in the order of use. Issued by one thread of the second consumer, which is the last to
 * multiply a stage; a separate producer warp would wait for the same event. */
template <bool BACKWARD>
struct producer {
    tile_iterator w;
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
    /* Fills a stage when the phase `parity` of its empty barrier is complete. */
    __device__ __forceinline__ void refill(const ring &r, int at, int parity, const maps *t)
    {
        if (w.left == 0) return;
        barrier_wait(&r.empty[at], parity);
        fill(r, at, t);
    }
};

/* ---- multiplying --------------------------------------------------------------------------------- */

/* The second consumer starts when the first is one stage ahead, so that they finish a tile one after the other. */
__device__ __forceinline__ void wait_for_start() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
__device__ __forceinline__ void allow_start() { asm volatile("bar.arrive 1, 256;" ::: "memory"); }

/* Called when this warp has multiplied a stage. */
template <bool BACKWARD>
__device__ __forceinline__ void release_stage(const ring &r, int at, int parity, bool produces, producer<BACKWARD> &f,
                                              const maps *t)
{
    if (elected()) {
        barrier_arrive(&r.empty[at]);
        if (produces) f.refill(r, at, parity, t);
    }
    __syncwarp();
}

/* c = 64 rows and 256 columns of a tile; a stage is released when the next multiplication has been issued. */
template <bool BACKWARD>
__device__ __forceinline__ void multiply(float (&c)[128], ring &r, int depth, int consumer, bool first, bool produces,
                                         producer<BACKWARD> &f, const maps *t)
{
    int before = 0, parity = 0;
    fence_registers(c);
    for (int s = 0; s < depth; s++) {
        barrier_wait(&r.full[r.at], r.parity);
        const char *b_at = r.here() + A_BYTES;
        uint64_t a = descriptor(r.here() + consumer * 64 * ROW),
                 b = BACKWARD ? descriptor_transposed(b_at, BOX) : descriptor(b_at);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
            if constexpr (BACKWARD) wgmma_b_transposed_k16(c, a + 2 * k, b + (16 * ROW >> 4) * k, s > 0 || k > 0);
            else wgmma_k16(c, a + 2 * k, b + 2 * k, s > 0 || k > 0);
        wgmma_commit();
        if (s > 0) {
            wgmma_wait<1>();
            release_stage(r, before, parity, produces, f, t);
        }
        if (first && consumer == 0 && s == (depth > 1)) allow_start();
        before = r.at, parity = r.parity;
        r.next();
    }
    wgmma_wait<0>();
    fence_registers(c);
    release_stage(r, before, parity, produces, f, t);
}

/* Writes the rounded tile to the strips' boxes, after the other consumer's data has been read from them. */
__device__ __forceinline__ void write_boxes(const float (&c)[128], char *boxes, uint64_t *read_done, int parity,
                                            uint64_t *filled)
{
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        barrier_wait(&read_done[strip], parity);
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

/* Main loop of a consumer. */
template <bool BACKWARD>
__device__ void multiply_tiles(ring r, tile_iterator w, const maps *t, int depth, int warp, char *boxes, barriers *s)
{
    float c[128];
    producer<BACKWARD> f = { w, depth, 0 };
    int consumer = warp / 4;
    bool produces = warp == 4;
    if (produces && elected())
        for (int at = 0; at < STAGES && f.w.left; at++) f.fill(r, at, t);
    __syncwarp();
    if (consumer == 1) wait_for_start();
    for (int i = 0; i < w.left; i++) {
        multiply<BACKWARD>(c, r, depth, consumer, i == 0, produces, f, t);
        write_boxes(c, boxes, s->read_done[1 - consumer], (consumer == 0) ^ i % 2, s->filled[consumer]);
    }
}

} // namespace

#endif
