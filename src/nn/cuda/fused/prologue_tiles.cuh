/* Tile scheduling of a GEMM with a prologue (prologue_gemm.cu), and the bulk copies of its stages to shared memory. */
#ifndef NN_CUDA_FUSED_PROLOGUE_TILES_CUH
#define NN_CUDA_FUSED_PROLOGUE_TILES_CUH

#include "nn/cuda/fused/prologue_gemm.h"
#include "nn/cuda/gemm_epilogues.cuh"

namespace {

enum {
    ROWS = 64, /* per consumer warpgroup */
    CONSUMERS = 2,
    MAX_STAGES = 8,
    B_STAGES = 2,
    THREADS = 256 + CONSUMERS * 128,
    SHARED_BYTES = 224 << 10, /* dynamic, in addition to what the kernel declares */
    ROW = DEPTH * 2           /* bytes of a row in a stage */
};

struct maps {
    CUtensorMap x, other, b, side, out;
};

struct
    layout { /* of dynamic shared memory, in this order: b, stages of x, stages of other, output buffers, coefficients,
                   sums */
    int across;      /* consumers that split the columns; the others split the rows */
    bool b_resident; /* all of b is loaded once, instead of in stages */
    int x_stages, other_stages, b_stages, out_buffers;
};

/* ---- copying ------------------------------------------------------------------------------------- */

__device__ void copy_rows(ring r, const block_tiles &w, const CUtensorMap *map)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            r.begin_fill();
            copy_box(r.here(), map, s * DEPTH, tile * w.height, &r.full[r.at]);
            r.next();
        }
}

/* Rows of b per bulk copy: a box has at most 256. */
__host__ __device__ inline int b_box(int width) { return width > 256 ? width / 2 : width; }

__device__ void copy_b(ring r, const block_tiles &w, const CUtensorMap *map, bool b_resident)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        for (int s = 0; s < w.depth; s++) {
            if (b_resident) barrier_expect(&r.full[0], r.bytes);
            else r.begin_fill();
            char *to = b_resident ? r.stage + s * r.bytes : r.here();
            for (int y = 0; y < w.width; y += b_box(w.width))
                copy_box(to + y * ROW, map, s * DEPTH, w.first_column + y, &r.full[b_resident ? 0 : r.at]);
            if (!b_resident) r.next();
        }
        if (b_resident) return;
    }
}

/* ---- barriers ------------------------------------------------------------------------------------ */

/* Named barriers: 1 and 2 for each consumer, 14 for the transforming warpgroup, 15 for all consumers. */
__device__ __forceinline__ void transform_barrier() { asm volatile("bar.sync 14, 128;" ::: "memory"); }
__device__ __forceinline__ void consumers_barrier() { asm volatile("bar.sync 15, 256;" ::: "memory"); }

} // namespace

#endif
