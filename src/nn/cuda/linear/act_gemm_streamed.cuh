/* How the blocks of a GEMM with an activation inside (act_gemm_streamed.cu) share out tiles, and what its warps do:
 * copy factors and multiply. Those that apply the activation: act_finish.cuh. */
#ifndef NN_CUDA_LINEAR_ACT_GEMM_STREAMED_CUH
#define NN_CUDA_LINEAR_ACT_GEMM_STREAMED_CUH

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
 * taken: of a strip's box, per team that writes to it: its four warps have written it; it was read. never: nobody
 * arrives. */
struct barriers {
    uint64_t full[STAGES], empty[STAGES], filled[TEAMS][STRIPS], taken[TEAMS][STRIPS], never;

    __device__ __forceinline__ void make(int blocks)
    {
        for (int s = 0; s < STAGES; s++) barrier_init(&full[s], 1), barrier_init(&empty[s], TEAMS * 4 * blocks);
        for (int i = 0; i < TEAMS * STRIPS; i++) barrier_init(&filled[0][0] + i, 4), barrier_init(&taken[0][0] + i, 1);
        barrier_init(&never, 1);
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

} // namespace

#endif
