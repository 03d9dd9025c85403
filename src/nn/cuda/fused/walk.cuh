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
    CUtensorMap x, other, b, side, out;
};

struct layout { /* of dynamic shared memory: b, stages of x, stages of other, places for results, channels, sums */
    int across; /* teams beside each other */
    bool stays; /* b */
    bool pair;  /* two blocks share the copying of b, and go through equally many tiles */
    int x_stages, other_stages, b_stages, places;
};

/* What a block works on: columns from `strip` on; tiles of `height` rows, every parts-th from `part` on. */
struct share {
    int strip, width, part, parts, depth, tiles, height;
};

template <int N>
__device__ __forceinline__ share share_of(const prologue_gemm &j, const layout &l)
{
    int width = l.across * 2 * N, strips = (int)((j.n + width - 1) / width), height = TEAMS / l.across * ROWS;
    int parts = (int)gridDim.x / strips, tiles = (int)((j.m + height - 1) / height);
    if (l.pair) tiles = (tiles + parts - 1) / parts * parts; /* those past the end read zeros and write nothing */
    return { (int)blockIdx.x % strips * width,
             width,
             (int)blockIdx.x / strips,
             parts,
             (int)(j.k + DEPTH - 1) / DEPTH,
             tiles,
             height };
}

/* ---- pairs of blocks ----------------------------------------------------------------------------- */

__device__ __forceinline__ int rank_in_pair() { return (int)blockIdx.x & 1; }

/* Arrives at the same barrier of the other block. */
__device__ __forceinline__ void barrier_arrive_there(uint64_t *b)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}\n" ::"r"(shared_address(b)),
                 "r"(rank_in_pair() ^ 1)
                 : "memory");
}

/* A box to the same place of both blocks, and told to the same barrier of each. */
__device__ __forceinline__ void copy_box_to_pair(void *to, const CUtensorMap *map, int x, int y, uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(b)), "r"(x), "r"(y), "h"((uint16_t)3)
                 : "memory");
}

/* Until both blocks are here: at the start their barriers are made, at the end neither is reached any more. */
__device__ __forceinline__ void meet_pair()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
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

/* Half of every stage, to both blocks of a pair; the other block brings the other half. */
__device__ void copy_b_to_pair(ring r, const share &w, const CUtensorMap *map)
{
    int half = rank_in_pair();
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            r.begin_fill();
            copy_box_to_pair(r.here() + half * r.bytes / 2, map, s * DEPTH, w.strip + half * w.width / 2,
                             &r.full[r.at]);
            r.next();
        }
}

__device__ void copy_b(ring r, const share &w, const CUtensorMap *map, bool stays)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        for (int s = 0; s < w.depth; s++) {
            if (stays) barrier_expect(&r.full[0], r.bytes);
            else r.begin_fill();
            copy_box(stays ? r.stage + s * r.bytes : r.here(), map, s * DEPTH, w.strip, &r.full[stays ? 0 : r.at]);
            if (!stays) r.next();
        }
        if (stays) return;
    }
}

/* ---- writing and waiting ------------------------------------------------------------------------- */

/* Named barriers: teams 1 and 2, makers of the factor 14, all teams 15. */
__device__ __forceinline__ void makers_barrier() { asm volatile("bar.sync 14, 128;" ::: "memory"); }
__device__ __forceinline__ void teams_barrier() { asm volatile("bar.sync 15, 256;" ::: "memory"); }
__device__ __forceinline__ void team_barrier(int team) { asm volatile("bar.sync %0, 128;" ::"r"(team + 1) : "memory"); }

__device__ __forceinline__ void store_box(const CUtensorMap *map, const char *from, int column, int row)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(row)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ bool is_leader() { return threadIdx.x % 128 == 0; }
__device__ __forceinline__ void wait_sent() /* known to the leader alone, to the others after the next barrier */
{
    if (is_leader()) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

} // namespace

#endif
