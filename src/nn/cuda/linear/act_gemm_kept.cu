/* The MLP's GEMM whose strip of the weight stays in shared memory (act_gemm.h). One persistent block per
 * multiprocessor keeps 128 columns of the weight, as deep as it is, and walks down the rows of a: every parts-th tile
 * of 64. One warp has the copy engine fill a ring with them; teams (warpgroups) take tiles in turns, so that one
 * multiplies while the others are busy with their epilogues (act_epilogue.cuh). */
#include "nn/cuda/linear/act_epilogue.cuh"
#include "tensor/cuda/ring.cuh"

namespace {

enum {
    STAGE = ACT_ROWS * DEPTH * 2,
    SLAB = ACT_COLUMNS * DEPTH * 2, /* of the weight, as deep as a stage */
    MAX_STAGES = 16,
    MAX_DEPTH = 10,                   /* slabs; deeper weights leave too few stages */
    SHARED_BYTES = (227 << 10) - 2048 /* beside what the kernel declares */
};

struct job {
    int64_t m, n;
    int depth, tiles, parts, stages;
    const bf16 *bias;
    bf16 *x, *y, *recomputed;
    float *partial;
};

struct maps {
    CUtensorMap a, b;
};

/* The copying thread: slabs of the weight between the first tile's stages, then stages alone. */
template <bool BACKWARD>
__device__ void copy_all(ring r, const job &j, const maps &t, char *weight, uint64_t *slab_full, int strip, int part)
{
    for (int tile = part; tile < j.tiles; tile += j.parts)
        for (int s = 0; s < j.depth; s++) {
            if (tile == part) {
                char *to = weight + s * SLAB;
                barrier_expect(&slab_full[s], SLAB);
                if (!BACKWARD) copy_box(to, &t.b, s * DEPTH, strip, &slab_full[s]);
                for (int x = 0; BACKWARD && x < 2; x++)
                    copy_box(to + x * SLAB / 2, &t.b, strip + 64 * x, s * DEPTH, &slab_full[s]);
            }
            r.begin_fill();
            copy_box(r.here(), &t.a, s * DEPTH, tile * ACT_ROWS, &r.full[r.at]);
            r.next();
        }
}

__device__ __forceinline__ void give_back(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

__device__ __forceinline__ void skip(ring &r, int stages)
{
    for (r.at += stages; r.at >= r.count; r.parity ^= 1) r.at -= r.count;
}

/* Whose turn it is to multiply. A team begins when the one before it has seen all its stages full: a barrier has one
 * bit for its phase, so nobody may look at a stage that is still to be filled for another team. */
__device__ __forceinline__ void wait_turn(int team) { asm volatile("bar.sync %0, 256;" ::"r"(team + 2) : "memory"); }
__device__ __forceinline__ void pass_turn(int team) { asm volatile("bar.arrive %0, 256;" ::"r"(team + 2) : "memory"); }

/* c = a tile's rows by the kept strip. next: the team whose turn it is then; -1: none. */
template <bool BACKWARD>
__device__ __forceinline__ void multiply(float (&c)[64], ring &r, int depth, const char *weight, uint64_t *slab_full,
                                         int next)
{
    int before = 0;
    settle(c);
    for (int s = 0; s < depth; s++) {
        barrier_wait(&slab_full[s], 0);
        barrier_wait(&r.full[r.at], r.parity);
        if (s == depth - 1 && next >= 0) pass_turn(next);
        uint64_t a = descriptor(r.here());
        uint64_t b = BACKWARD ? descriptor_turned(weight + s * SLAB, SLAB / 2) : descriptor(weight + s * SLAB);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            if (BACKWARD) wgmma_right_turned_k16(c, a + 2 * k, b + 128 * k, s > 0 || k > 0);
            else wgmma_k16(c, a + 2 * k, b + 2 * k, s > 0 || k > 0);
        }
        wgmma_commit();
        if (s > 0) {
            wgmma_wait<1>();
            give_back(&r.empty[before]);
        }
        before = r.at;
        r.next();
    }
    wgmma_wait<0>();
    settle(c);
    give_back(&r.empty[before]);
}

/* The block's sums, warp by warp in order. cell: (4 TEAMS, 128). */
template <int TEAMS>
__device__ void write_sums(const float (&sum)[32], float *cell, float *partial)
{
    int thread = threadIdx.x - 128;
    asm volatile("bar.sync 1, %0;" ::"n"(TEAMS * 128)
                 : "memory"); /* the last product has read what the cells replace */
    act_sums_of_warp(cell + thread / 32 * ACT_COLUMNS, sum);
    asm volatile("bar.sync 1, %0;" ::"n"(TEAMS * 128) : "memory");
    if (thread >= ACT_COLUMNS) return;
    float total = 0.0f;
    for (int w = 0; w < 4 * TEAMS; w++) total += cell[w * ACT_COLUMNS + thread];
    partial[thread] = total;
}

/* A team's life: every TEAMS-th of the block's tiles. With two teams there are registers to load all of x ahead. */
template <bool BACKWARD, int TEAMS, class F, class H>
__device__ void work(ring r, const job &j, const char *weight, uint64_t *slab_full, const float *bias, int strip,
                     int part)
{
    constexpr int LATE = TEAMS == 2 ? ACT_GROUPS : ACT_GROUPS / 2;
    int team = threadIdx.x / 128 - 1;
    float c[64], sum[32] = {};
    char *cells = r.stage;
    skip(r, team * j.depth);
    for (int tile = part + team * j.parts; tile < j.tiles; tile += TEAMS * j.parts) {
        act_place p = act_place_of(j.m, j.n, (int64_t)tile * ACT_ROWS, strip);
        act_ahead ahead;
        if (BACKWARD) ahead.load(j.x, p, 0, 2 * LATE);
        if (tile != part) wait_turn(team);
        multiply<BACKWARD>(c, r, j.depth, weight, slab_full, tile + j.parts < j.tiles ? (team + 1) % TEAMS : -1);
        if constexpr (BACKWARD) act_backward<F, H, LATE>(c, ahead, sum, j.x, j.y, j.recomputed, bias, p);
        else act_forward<F>(c, j.x, j.y, bias, p);
        skip(r, (TEAMS - 1) * j.depth);
    }
    if (BACKWARD && j.partial) write_sums<TEAMS>(sum, (float *)cells, j.partial + part * j.n + strip);
}

template <bool BACKWARD, int TEAMS, class F, class H>
__global__ void __launch_bounds__(128 + TEAMS * 128, 1)
    act_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ job j)
{
    extern __shared__ char memory[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES], slab_full[MAX_DEPTH];
    __shared__ __align__(16) float bias[ACT_COLUMNS];
    char *weight = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023);
    int strips = (int)(j.n / ACT_COLUMNS), strip = (int)blockIdx.x % strips * ACT_COLUMNS, part = blockIdx.x / strips;
    if (threadIdx.x < ACT_COLUMNS) bias[threadIdx.x] = j.bias ? to_float(j.bias[strip + threadIdx.x]) : 0.0f;
    if (threadIdx.x == 0) {
        for (int s = 0; s < j.stages; s++) barrier_init(&full[s], 1), barrier_init(&empty[s], 4);
        for (int s = 0; s < j.depth; s++) barrier_init(&slab_full[s], 1);
        barrier_publish();
    }
    __syncthreads();
    ring r = { weight + j.depth * SLAB, full, empty, STAGE, j.stages, 0, 0 };
    if (threadIdx.x < 128) {
        if constexpr (TEAMS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (threadIdx.x == 0) copy_all<BACKWARD>(r, j, t, weight, slab_full, strip, part);
        __syncwarp();
    } else {
        if constexpr (TEAMS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        else asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        work<BACKWARD, TEAMS, F, H>(r, j, weight, slab_full, bias, strip, part);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

const int teams_of[ACT_GEMM_VARIANTS] = { 3, 2 }; /* by variant */

int stages_of(const act_gemm *g)
{
    int64_t left = (SHARED_BYTES - 1024 - g->k / DEPTH * SLAB) / STAGE;
    return (int)(left > MAX_STAGES ? MAX_STAGES : left);
}

cudaError_t make_maps(maps *t, const act_gemm *g)
{
    cudaError_t e = tensor_map_rows(&t->a, g->a, g->m, g->k, DEPTH, ACT_ROWS);
    if (e != cudaSuccess) return e;
    return g->backward ? tensor_map_rows(&t->b, g->b, g->k, g->n, 64, DEPTH)
                       : tensor_map_rows(&t->b, g->b, g->n, g->k, DEPTH, ACT_COLUMNS);
}

template <bool BACKWARD, int TEAMS, class F, class H>
cudaError_t launch(cudaStream_t stream, const act_gemm *g, int parts)
{
    auto kernel = act_gemm_kernel<BACKWARD, TEAMS, F, H>;
    maps t = {};
    job j = { g->m,
              g->n,
              (int)(g->k / DEPTH),
              (int)((g->m + ACT_ROWS - 1) / ACT_ROWS),
              parts,
              stages_of(g),
              (bf16 *)g->bias,
              (bf16 *)g->x,
              (bf16 *)g->y,
              (bf16 *)g->recomputed,
              g->partial };
    cudaError_t e = make_maps(&t, g);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (e != cudaSuccess) return e;
    unsigned blocks = (unsigned)(parts * (g->n / ACT_COLUMNS));
    kernel<<<blocks, 128 + TEAMS * 128, SHARED_BYTES, stream>>>(t, j);
    return cudaGetLastError();
}

template <bool BACKWARD, class F, class H>
cudaError_t launch_variant(cudaStream_t stream, const act_gemm *g, int v, int parts)
{
    return teams_of[v] == 3 ? launch<BACKWARD, 3, F, H>(stream, g, parts) : launch<BACKWARD, 2, F, H>(stream, g, parts);
}

template <class F, class B>
cudaError_t launch_act(cudaStream_t stream, const act_gemm *g, int v, int parts)
{
    return g->backward ? launch_variant<true, B, F>(stream, g, v, parts)
                       : launch_variant<false, F, F>(stream, g, v, parts);
}

} // namespace

extern "C" {

int act_gemm_kept_parts(const act_gemm *g, int v, int sms)
{
    if (v < 0 || v >= ACT_GEMM_VARIANTS || g->k % DEPTH || g->k > MAX_DEPTH * DEPTH || g->m < 1 ||
        g->m >= INT32_MAX / 2)
        return 0;
    if (g->n < 1 || g->n % ACT_COLUMNS || stages_of(g) < 3) return 0;
    int64_t parts = sms / (g->n / ACT_COLUMNS), tiles = (g->m + ACT_ROWS - 1) / ACT_ROWS;
    if (parts > tiles) parts = tiles;
    return parts < 1 ? 1 : (int)parts;
}

int act_gemm_kept_run(void *to, const act_gemm *g, int v, int sms)
{
    int parts = act_gemm_kept_parts(g, v, sms);
    cudaStream_t stream = (cudaStream_t)to;
    if (!parts) return cudaErrorInvalidConfiguration;
    switch (g->act) {
    case OP_ACT_GELU: return launch_act<gelu_fn, gelu_bwd_fn>(stream, g, v, parts);
    case OP_ACT_GELU_TANH: return launch_act<gelu_tanh_fn, gelu_tanh_bwd_fn>(stream, g, v, parts);
    default: return launch_act<quickgelu_fn, quickgelu_bwd_fn>(stream, g, v, parts);
    }
}

} // extern "C"
