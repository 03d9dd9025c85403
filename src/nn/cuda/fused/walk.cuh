/* How the blocks of a GEMM with a prologue (prologue_gemm.cu) share out rows and columns, and what brings stages to
 * shared memory and takes results from there. */
#ifndef NN_CUDA_FUSED_WALK_CUH
#define NN_CUDA_FUSED_WALK_CUH

#include "nn/cuda/fused/prologue_gemm.h"
#include "nn/cuda/gemm_epilogues.cuh"

namespace {

enum {
    ROWS = 64, /* of a team's GEMM */
    TEAMS = 2,
    MAX_STAGES = 8,
    B_STAGES = 2,
    THREADS = 256 + TEAMS * 128,
    SHARED_BYTES = 224 << 10, /* beside what the kernel declares */
    ROW = DEPTH * 2           /* bytes of a row in a stage */
};

struct maps {
    CUtensorMap x, other, b, side, out, pooled;
};

struct layout { /* of dynamic shared memory: b, stages of x, stages of other, places for results, channels, sums */
    int across; /* teams beside each other */
    bool stays; /* b */
    int x_stages, other_stages, b_stages, places;
    int tile_width, beside; /* tiles that are parts of images: positions of a line in one, a power of two, and how many
                               lie beside each other; 0: tiles of rows */
};

/* How many tiles of `height` rows there are. */
__host__ __device__ inline int64_t count_tiles(const prologue_gemm &j, const layout &l, int height)
{
    if (!l.beside) return (j.m + height - 1) / height;
    int64_t lines = j.m / j.line, each = height / l.tile_width;
    return (lines + each - 1) / each * l.beside;
}

template <int N>
__device__ __forceinline__ share share_of(const prologue_gemm &j, const layout &l)
{
    int width = l.across * 2 * N, strips = (int)((j.n + width - 1) / width), height = TEAMS / l.across * ROWS;
    return { (int)blockIdx.x % strips * width,
             width,
             (int)blockIdx.x / strips,
             (int)gridDim.x / strips,
             (int)(j.k + DEPTH - 1) / DEPTH,
             (int)count_tiles(j, l, height),
             height };
}

/* ---- copying ------------------------------------------------------------------------------------- */

__device__ void copy_rows(ring r, const share &w, const CUtensorMap *map)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            r.begin_fill();
            copy_box(r.here(), map, s * DEPTH, tile * w.height, &r.full[r.at]);
            r.next();
        }
}

/* Where a tile that is a part of images begins. */
struct tile_place {
    int x, line;
};
__device__ __forceinline__ tile_place place_of(const layout &l, int tile, int height)
{
    return { tile % l.beside * l.tile_width, tile / l.beside * (height / l.tile_width) };
}

__device__ void copy_tiles(ring r, const share &w, const layout &l, const CUtensorMap *map)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            tile_place at = place_of(l, tile, w.height);
            r.begin_fill();
            copy_box3(r.here(), map, s * DEPTH, at.x, at.line, &r.full[r.at]);
            r.next();
        }
}

/* Rows of b that one copy brings: 256 at most. */
__host__ __device__ inline int b_box(int width) { return width > 256 ? width / 2 : width; }

__device__ void copy_b(ring r, const share &w, const CUtensorMap *map, bool stays)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        for (int s = 0; s < w.depth; s++) {
            if (stays) barrier_expect(&r.full[0], r.bytes);
            else r.begin_fill();
            char *to = stays ? r.stage + s * r.bytes : r.here();
            for (int y = 0; y < w.width; y += b_box(w.width))
                copy_box(to + y * ROW, map, s * DEPTH, w.strip + y, &r.full[stays ? 0 : r.at]);
            if (!stays) r.next();
        }
        if (stays) return;
    }
}

/* ---- waiting ------------------------------------------------------------------------------------- */

/* Named barriers: teams 1 and 2, makers of the factor 14, all teams 15. */
__device__ __forceinline__ void makers_barrier() { asm volatile("bar.sync 14, 128;" ::: "memory"); }
__device__ __forceinline__ void teams_barrier() { asm volatile("bar.sync 15, 256;" ::: "memory"); }

} // namespace

#endif
