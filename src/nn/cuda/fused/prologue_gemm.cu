/* One persistent block per multiprocessor and strip of columns, which walks down the rows tile by tile. Four
 * warpgroups: one drives the copy engine; one makes the left factor out of what the copy engine brought, in place; two
 * teams multiply, 64 rows each (or the same 64 rows and half of the columns each), and end the tile.
 *
 * Three rings of stages in shared memory, each as deep as a step of the GEMM (64): x, which becomes the factor and
 * is also written out from there; other, which is free again as soon as the factor is made; the strip of b, which stays
 * in shared memory instead where the variant says so. Blocks may also go in pairs (a cluster): each copies half of a
 * stage of b to both, which halves what b costs. */
#include "nn/cuda/fused/prologues.cuh"
#include "nn/cuda/gemm_epilogues.cuh"
#include "tensor/cuda/cuda.h"

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

/* ---- the left factor ----------------------------------------------------------------------------- */

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

/* A warpgroup's life: stages of x become the factor. ready: the factor is there. A stage that is written out as well
 * is given back by the leader when the copy engine has read it. */
template <class P, int HEIGHT>
__device__ void make_factor(ring x, ring other, const share &w, const float *channels, uint64_t *ready,
                            const CUtensorMap *side)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, first = thread / 8, before = -1;
    int offset = first * ROW + ((chunk ^ (first % 8)) << 4); /* swizzled by the row's last three bits */
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            channel_numbers n;
            n.read(channels + s * DEPTH + chunk * 8, w.depth * DEPTH);
            barrier_wait(&x.full[x.at], x.parity);
            if (P::sources == 2) barrier_wait(&other.full[other.at], other.parity);
            char *to = x.here() + offset;
            const char *from = other.here() + offset;
#pragma unroll 4
            for (int row = 0; row < HEIGHT; row += 16) {
                uint4 a = *reinterpret_cast<uint4 *>(to + row * ROW), b = {};
                if (P::sources == 2) b = *reinterpret_cast<const uint4 *>(from + row * ROW);
                *reinterpret_cast<uint4 *>(to + row * ROW) = transformed<P>(n, a, b);
            }
            shared_publish();
            makers_barrier();
            if (thread == 0) {
                barrier_arrive(&ready[x.at]);
                if (P::sources == 2) barrier_arrive(&other.empty[other.at]);
                if (side) {
                    store_box(side, x.here(), s * DEPTH, tile * w.height);
                    if (before >= 0) {
                        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                        barrier_arrive(&x.empty[before]);
                    }
                    before = x.at;
                }
            }
            x.next();
            if (P::sources == 2) other.next();
        }
    if (thread == 0 && side) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- the end of a tile --------------------------------------------------------------------------- */

__device__ __forceinline__ bool is_leader() { return threadIdx.x % 128 == 0; }
__device__ __forceinline__ void wait_sent() /* known to the leader alone, to the others after the next barrier */
{
    if (is_leader()) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Numbers of eight lanes that have other rows, four times eight of them: afterwards a lane has in v[k][0] the sum of
 * number 4 b4 + 2 b3 + b2 of v[k], by the bits of its own number. */
template <int HALF = 4>
__device__ __forceinline__ void scatter_sums(float (&v)[4][8])
{
    bool high = threadIdx.x & (4 * HALF);
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float sent = high ? v[k][i] : v[k][i + HALF], kept = high ? v[k][i + HALF] : v[k][i];
            v[k][i] = kept + __shfl_xor_sync(~0u, sent, 4 * HALF);
        }
    if constexpr (HALF > 1) scatter_sums<HALF / 2>(v);
}

/* Sums of y - pivot and of its square over the rows of a warp: in registers where there is room for them, else added to
 * the warp's cells (2, 2 N) box by box. */
template <int N>
struct statistics {
    static constexpr bool stay = N <= 64;
    column_sums<stay ? N : 2> total;
    float v[stay ? 1 : 4][8];

    /* Four 8 x 8 matrices of the result (gemm_epilogues.cuh), rounded; k: which 16 of the team's columns. */
    __device__ __forceinline__ void take(const float (&f)[8], const float *pivots, int k, const bool (&counts)[2])
    {
        float pivot[8], d[8];
        columns(pivot, pivots, k);
#pragma unroll
        for (int i = 0; i < 8; i++) d[i] = counts[i / 2 % 2] ? f[i] - pivot[i] : 0.0f;
        if constexpr (stay) {
#pragma unroll
            for (int i = 0; i < 8; i++) total.add(k, i, d[i], d[i], d[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) { /* columns 2 (lane % 4) + i % 2, from i = 2 on eight further */
                float a = d[i / 2 * 4 + i % 2], b = d[i / 2 * 4 + i % 2 + 2];
                v[k % 4][i] = a + b, v[k % 4][4 + i] = fmaf(a, a, b * b);
            }
        }
    }

    /* After the four takes of a box. */
    __device__ __forceinline__ void end_box(float *cell, int box)
    {
        if constexpr (!stay) {
            int lane = threadIdx.x % 32;
            float *at = cell + lane / 16 * 2 * N + 64 * box + lane / 8 % 2 * 8 + 2 * (lane % 4) + lane / 4 % 2;
            scatter_sums(v);
#pragma unroll
            for (int k = 0; k < 4; k++) at[16 * k] += v[k][0];
        }
    }

    /* After the last tile. */
    __device__ __forceinline__ void end(float *cell)
    {
        if constexpr (stay) {
            int lane = threadIdx.x % 32;
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                float a = total.s1[i], b = total.s2[i];
#pragma unroll
                for (int k = 4; k < 32; k *= 2) a += __shfl_xor_sync(~0u, a, k), b += __shfl_xor_sync(~0u, b, k);
                int at = 16 * (i / 4) + 8 * (i / 2 % 2) + 2 * (lane % 4) + i % 2;
                if (lane / 4 == 0) cell[at] = a, cell[2 * N + at] = b;
            }
        }
    }
};

/* The warps' sums, added in a fixed order over the teams that have the same columns. cells: (warps, 2, 2 N). */
template <int N>
__device__ void write_sums(const float *cells, const prologue_gemm &j, const share &w, int across)
{
    teams_barrier();
    int thread = threadIdx.x - 256, team = thread / 128, width = 2 * N, column = w.strip + team * width;
    for (int i = thread % 128; i < 2 * width && team < across; i += 128) {
        int which = i / width, at = i % width;
        float sum = 0.0f;
        for (int u = team; u < TEAMS; u += across)
            for (int v = 4 * u; v < 4 * u + 4; v++) sum += cells[(2 * v + which) * width + at];
        if (column + at < j.n) j.partial[((int64_t)w.part * 2 + which) * j.n + column + at] = sum;
    }
}

/* ---- multiplying --------------------------------------------------------------------------------- */

/* One instruction of 256 columns would not fit the registers that the kernel starts with: two of 128. */
template <int N>
__device__ __forceinline__ void multiply_k16(float (&c)[N], uint64_t a, uint64_t b, int keep)
{
    if constexpr (N == 128) {
        wgmma_k16(reinterpret_cast<float(&)[64]>(c[0]), a, b, keep);
        wgmma_k16(reinterpret_cast<float(&)[64]>(c[64]), a, b + (128 * ROW >> 4), keep);
    } else wgmma_k16(c, a, b, keep);
}

/* A warp has multiplied these stages. */
__device__ __forceinline__ void give_back(const ring &a, int a_at, const ring &b, int b_at, const layout &l)
{
    barrier_arrive(&a.empty[a_at]);
    if (!l.stays) barrier_arrive(&b.empty[b_at]);
    if (l.pair) barrier_arrive_there(&b.empty[b_at]);
}

/* c = a b^T over the tile's stages; each is given back once the product after it has begun. */
template <int N>
__device__ __forceinline__ void multiply(float (&c)[N], ring &a, ring &b, const share &w, const layout &l, int below,
                                         int shift)
{
    bool stays = l.stays;
    int before = 0, b_before = 0;
    settle(c);
    for (int s = 0; s < w.depth; s++) {
        barrier_wait(&a.full[a.at], a.parity);
        if (!stays) barrier_wait(&b.full[b.at], b.parity);
        uint64_t da = descriptor(a.here() + below * ROW),
                 db = descriptor((stays ? b.stage + s * b.bytes : b.here()) + shift * ROW);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) multiply_k16(c, da + 2 * k, db + 2 * k, s > 0 || k > 0);
        wgmma_commit();
        if (s > 0) {
            wgmma_wait<1>();
            if (threadIdx.x % 32 == 0) give_back(a, before, b, b_before, l);
        }
        before = a.at, b_before = b.at;
        a.next();
        if (!stays) b.next();
    }
    wgmma_wait<0>();
    settle(c);
    if (threadIdx.x % 32 == 0) give_back(a, before, b, b_before, l);
}

/* A team's life. pivots: of its columns; results: its places; cells: the block's. */
template <int N, bool STATS>
__device__ void work(ring a, ring b, const share &w, const CUtensorMap *out_map, const prologue_gemm &j,
                     const layout &l, int team, const float *pivots, char *results, float *cells)
{
    float c[N];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 8, below = team / l.across * ROWS, place = 0;
    int shift = team % l.across * 2 * N;
    float *cell = cells + warp * 4 * N;
    statistics<N> sums;
    sums.total.clear();
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        int row = tile * w.height + below, first = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
        bool counts[2] = { first < j.m, first + 8 < j.m };
        multiply(c, a, b, w, l, below, shift);
#pragma unroll
        for (int box = 0; box < N / 32; box++) {
            char *out = results + place * BOX;
            if (w.strip + shift + 64 * box >= j.n) break;
            if (l.places == 1) {
                wait_sent();
                team_barrier(team);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float f[8];
                uint32_t v[4];
#pragma unroll
                for (int i = 0; i < 8; i++) f[i] = c[32 * box + 8 * k + i];
                join(v, f);
                stmatrix(shared_address(out + matrix_row(k)), v[0], v[1], v[2], v[3]);
                if (STATS) {
                    split(f, v);
                    sums.take(f, pivots, 4 * box + k, counts);
                }
            }
            if (STATS) sums.end_box(cell, box);
            if (l.places == 2) wait_sent(); /* so the other place is free behind the barrier */
            shared_publish();
            team_barrier(team);
            if (is_leader()) store_box(out_map, out, w.strip + shift + 64 * box, row);
            place = l.places - 1 - place;
        }
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    if (!STATS) return;
    sums.end(cell);
    write_sums<N>(cells, j, w, l.across);
}

/* Registers of a thread that copies, makes the factor, multiplies; together at most what the kernel starts with. */
template <int N>
struct registers {
    static constexpr int copies = N == 128 ? 32 : 40, makes = N == 128 ? 96 : 128, multiplies = N == 128 ? 192 : 168;
};

template <int N, class P, bool STATS>
__global__ void __launch_bounds__(THREADS, 1)
    prologue_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ prologue_gemm j,
                         const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ uint64_t x_full[MAX_STAGES], x_empty[MAX_STAGES], ready[MAX_STAGES], other_full[MAX_STAGES],
        other_empty[MAX_STAGES], b_full[B_STAGES], b_empty[B_STAGES];
    share w = share_of<N>(j, l);
    int b_bytes = w.width * ROW, x_bytes = w.height * ROW, channels_count = w.depth * DEPTH;
    char *b_at = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023);
    char *x_at = b_at + l.b_stages * b_bytes, *other_at = x_at + l.x_stages * x_bytes;
    char *results = other_at + l.other_stages * x_bytes;
    float *channels = (float *)(results + TEAMS * l.places * BOX),
          *pivots = channels + CHANNEL_NUMBERS * channels_count;
    float *cells = pivots + w.width;
    for (int c = threadIdx.x; c < channels_count; c += THREADS) {
        float v[CHANNEL_NUMBERS] = {};
        if (c < j.k) P::numbers(v, j, c);
        for (int i = 0; i < CHANNEL_NUMBERS; i++) channels[i * channels_count + c] = v[i];
    }
    for (int i = threadIdx.x; STATS && i < w.width; i += THREADS)
        pivots[i] = w.strip + i < j.n ? j.pivot[w.strip + i] : 0.0f;
    for (int i = threadIdx.x; STATS && i < TEAMS * 4 * 4 * N; i += THREADS) cells[i] = 0.0f;
    bool writes = j.side && w.strip == 0; /* of several strips the first writes the factor */
    if (threadIdx.x == 0) {
        for (int s = 0; s < MAX_STAGES; s++) {
            barrier_init(&x_full[s], 1), barrier_init(&x_empty[s], TEAMS * 4 + writes), barrier_init(&ready[s], 1);
            barrier_init(&other_full[s], 1), barrier_init(&other_empty[s], 1);
        }
        for (int s = 0; s < B_STAGES; s++)
            barrier_init(&b_full[s], l.stays ? w.depth : 1), barrier_init(&b_empty[s], TEAMS * 4 * (1 + l.pair));
        barrier_publish();
    }
    __syncthreads();
    if (l.pair) meet_pair();
    ring x = { x_at, x_full, x_empty, x_bytes, l.x_stages, 0, 0 };
    ring other = { other_at, other_full, other_empty, x_bytes, l.other_stages, 0, 0 };
    ring b = { b_at, b_full, b_empty, b_bytes, B_STAGES, 0, 0 };
    using R = registers<N>;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::copies));
        if (threadIdx.x == 0) copy_rows(x, w, &t.x);
        else if (threadIdx.x == 32 && P::sources == 2) copy_rows(other, w, &t.other);
        else if (threadIdx.x == 64 && l.pair) copy_b_to_pair(b, w, &t.b);
        else if (threadIdx.x == 64) copy_b(b, w, &t.b, l.stays);
        if (l.pair) meet_pair();
    } else if (threadIdx.x < 256) {
        if constexpr (R::makes < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::makes));
        if (l.across == 1) make_factor<P, 2 * ROWS>(x, other, w, channels, ready, writes ? &t.side : nullptr);
        else make_factor<P, ROWS>(x, other, w, channels, ready, writes ? &t.side : nullptr);
        if (l.pair) meet_pair();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiplies));
        int team = threadIdx.x / 128 - 2, shift = team % l.across * 2 * N;
        ring factor = { x_at, ready, x_empty, x_bytes, l.x_stages, 0, 0 };
        if (l.stays) barrier_wait(&b_full[0], 0);
        work<N, STATS>(factor, b, w, &t.out, j, l, team, pivots + shift, results + team * l.places * BOX, cells);
        if (l.pair) meet_pair();
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

struct choice {
    int N;
    layout l;
    int width() const { return 2 * N * l.across; }
    int height() const { return TEAMS / l.across * ROWS; }
};

/* Fills shared memory with stages; x_stages 0: does not fit. */
choice choose(const prologue_gemm *p)
{
    choice c = {};
    layout &l = c.l;
    l.pair = p->variant == 4;
    l.across = p->variant / 2 == 1 ? 2 : 1;
    l.stays = p->variant % 2 == 0 && !l.pair;
    int64_t columns = ((p->n < 256 ? p->n : 256) + l.across - 1) / l.across;
    c.N = columns <= 64 ? 32 : columns <= 128 ? 64 : 128;
    if (p->prologue == PROLOGUE_DX && p->n > 256) return c; /* the factor may lie where other does: one strip only */
    if (p->n % 8 || p->k % 8 || p->n < 32 || p->k < 32 || (l.across == 2 && p->n <= 64)) return c;
    if (l.pair && (p->n <= 64 || p->n > 256 || p->m <= c.height())) return c;
    int sources = p->prologue == PROLOGUE_APPLY ? 1 : 2, depth = (int)((p->k + DEPTH - 1) / DEPTH);
    int fixed = 1024 + (CHANNEL_NUMBERS * depth * DEPTH + c.width() + TEAMS * 4 * 4 * c.N) * (int)sizeof(float);
    l.b_stages = l.stays ? depth : B_STAGES;
    for (l.places = 2; l.places; l.places--) {
        int left = SHARED_BYTES - fixed - l.b_stages * c.width() * ROW - TEAMS * l.places * BOX,
            boxes = left / (c.height() * ROW);
        if (left < 0) boxes = 0;
        l.other_stages = sources == 2 ? boxes / 2 : 0;
        l.x_stages = boxes - l.other_stages;
        if (l.other_stages > MAX_STAGES) l.other_stages = MAX_STAGES;
        if (l.x_stages > MAX_STAGES) l.x_stages = MAX_STAGES;
        if (l.x_stages >= 3) return c;
    }
    l.places = 1;
    if (l.x_stages < 2 || (sources == 2 && l.other_stages < 1)) l.x_stages = 0;
    return c;
}

int strips_of(const prologue_gemm *p, const choice &c) { return (int)((p->n + c.width() - 1) / c.width()); }

cudaError_t make_maps(maps *t, const prologue_gemm *p, const choice &c)
{
    cudaError_t e = tensor_map_rows(&t->x, p->x, p->m, p->k, DEPTH, c.height());
    if (e == cudaSuccess && p->other) e = tensor_map_rows(&t->other, p->other, p->m, p->k, DEPTH, c.height());
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, c.width() / (1 + c.l.pair));
    if (e == cudaSuccess && p->side) e = tensor_map_rows(&t->side, p->side, p->m, p->k, DEPTH, c.height());
    return e == cudaSuccess ? tensor_map_rows(&t->out, p->y, p->m, p->n, 64, ROWS) : e;
}

template <int N, class P, bool STATS>
cudaError_t launch(cudaStream_t stream, const prologue_gemm *p, const choice &c, int sms)
{
    maps t = {};
    cudaError_t e = make_maps(&t, p, c);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(prologue_gemm_kernel<N, P, STATS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 SHARED_BYTES);
    if (e != cudaSuccess) return e;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(prologue_gemm_parts(p, sms) * strips_of(p, c)));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = SHARED_BYTES;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = c.l.pair ? 1 : 0;
    return cudaLaunchKernelEx(&config, prologue_gemm_kernel<N, P, STATS>, t, *p, c.l);
}

template <class P, bool STATS>
cudaError_t launch_width(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.x_stages == 0) return cudaErrorInvalidConfiguration;
    return c.N == 32   ? launch<32, P, STATS>(stream, p, c, sms)
           : c.N == 64 ? launch<64, P, STATS>(stream, p, c, sms)
                       : launch<128, P, STATS>(stream, p, c, sms);
}

} // namespace

extern "C" {

int prologue_gemm_parts(const prologue_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.x_stages == 0) return 0;
    int64_t tiles = (p->m + c.height() - 1) / c.height(), parts = sms / strips_of(p, c);
    if (parts > tiles) parts = tiles;
    if (c.l.pair) return (int)parts / 2 * 2;
    return parts < 1 ? 1 : (int)parts;
}

cudaError_t prologue_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    if (p->prologue == PROLOGUE_DX) return launch_width<dx_prologue, false>(stream, p, sms);
    if (p->prologue == PROLOGUE_BOTH) return launch_width<both_prologue, true>(stream, p, sms);
    return p->prologue == PROLOGUE_ADD ? launch_width<apply_prologue<true>, true>(stream, p, sms)
                                       : launch_width<apply_prologue<false>, true>(stream, p, sms);
}

} // extern "C"
