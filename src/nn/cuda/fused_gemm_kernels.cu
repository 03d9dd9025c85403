/* One persistent block per multiprocessor. A block keeps one strip of columns and walks down the rows. Teams
 * (warpgroups) multiply 64 rows by 64 or 128 columns each; one more warpgroup drives the copy engine. Teams share out
 * the strip's columns, or, where it is narrow, rows. The strip of b stays in shared memory where it fits; else stages
 * hold it, too.
 *
 * What an epilogue reads and writes beside the GEMM travels by the copy engine as well, in boxes of 64 x 64: reads
 * wait in slots of their own, results leave from two places in turns (or one, where memory is short). Between boxes
 * and registers go 8 x 8 matrices, whose layout over lanes is the one of wgmma. Sums over rows stay in registers until
 * the block's last tile. */
#include <math.h>

#include "nn/cuda/gemm_epilogues.cuh"
#include "nn/cuda/fused/weight_sums.cuh"
#include "tensor/cuda/cuda.h"

namespace {

enum {
    ROWS = 64, /* of a team's GEMM */
    MAX_STAGES = 8,
    MAX_SLOTS = 2,
    SHARED_BYTES = 216 << 10 /* beside what kernels declare */
};

struct maps {
    CUtensorMap a, b, in[3], out;
};

struct layout { /* of dynamic shared memory, from its start: b's strip if it stays, slots, places for results,
                   stages */
    int across; /* teams beside each other; the others are below */
    bool stays;
    int stages, stage_bytes, b_bytes, slots, slot_bytes, places;
};

/* ---- the GEMM ------------------------------------------------------------------------------------- */

/* What a block works on: columns from `strip` on; tiles of `height` rows, every parts-th from `part` on. */
struct share {
    int strip, width, part, parts, depth, tiles, height;
};

template <int TEAMS, int N>
__device__ __forceinline__ share share_of(const fused_gemm &j, const layout &l)
{
    int width = l.across * 2 * N, strips = (int)((j.n + width - 1) / width), height = TEAMS / l.across * ROWS;
    return { (int)blockIdx.x % strips * width,
             width,
             (int)blockIdx.x / strips,
             (int)gridDim.x / strips,
             (int)(j.k + DEPTH - 1) / DEPTH,
             (int)((j.m + height - 1) / height),
             height };
}

__device__ void copy_factors(ring r, const share &w, const maps &t, const layout &l, char *b, uint64_t *b_full)
{
    if (l.stays) {
        barrier_expect(b_full, l.b_bytes);
        for (int s = 0; s < w.depth; s++) copy_box(b + s * w.width * DEPTH * 2, &t.b, s * DEPTH, w.strip, b_full);
    }
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            r.begin_fill();
            for (int y = 0; y < w.height; y += ROWS)
                copy_box(r.here() + y * DEPTH * 2, &t.a, s * DEPTH, tile * w.height + y, &r.full[r.at]);
            if (!l.stays) copy_box(r.here() + w.height * DEPTH * 2, &t.b, s * DEPTH, w.strip, &r.full[r.at]);
            r.next();
        }
}

/* What a team's epilogue reads: boxes of 64 columns, tile by tile. */
__device__ void copy_inputs(ring r, const share &w, const maps &t, int inputs, int column, int row, int width)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int x = 0; x < width; x += 64) {
            r.begin_fill();
            for (int i = 0; i < inputs; i++)
                copy_box(r.here() + i * BOX, &t.in[i], column + x, tile * w.height + row, &r.full[r.at]);
            r.next();
        }
}

/* The warps' sums, added in a fixed order over the teams that have the same columns. cell: (warps, 2, 2 N) of
 * shared memory. */
template <int TEAMS, int N>
__device__ void write_sums(column_sums<N> &total, float *cell, const fused_gemm &j, const share &w, int across)
{
    int thread = threadIdx.x - 128, warp = thread / 32, lane = thread % 32, width = 2 * N;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        float a = total.s1[i], b = total.s2[i];
#pragma unroll
        for (int k = 4; k < 32; k *= 2) a += __shfl_xor_sync(~0u, a, k), b += __shfl_xor_sync(~0u, b, k);
        int at = 16 * (i / 4) + 8 * (i / 2 % 2) + 2 * (lane % 4) + i % 2;
        if (lane / 4 == 0) cell[(2 * warp) * width + at] = a, cell[(2 * warp + 1) * width + at] = b;
    }
    asm volatile("bar.sync 15, %0;" ::"n"(TEAMS * 128) : "memory");
    int team = thread / 128, column = w.strip + team * width;
    for (int i = thread % 128; i < 2 * width && team < across; i += 128) {
        int which = i / width, at = i % width;
        float sum = 0.0f;
        for (int u = team; u < TEAMS; u += across)
            for (int v = 4 * u; v < 4 * u + 4; v++) sum += cell[(2 * v + which) * width + at];
        if (column + at < j.n) j.partial[((int64_t)w.part * 2 + which) * j.n + column + at] = sum;
    }
}

__device__ __forceinline__ void team_barrier(int team) { asm volatile("bar.sync %0, 128;" ::"r"(team + 1) : "memory"); }
__device__ __forceinline__ bool is_leader() { return threadIdx.x % 128 == 0; }

/* Until the copy engine has read all results handed to it; known to the leader alone, to the others after the
 * next barrier. */
__device__ __forceinline__ void wait_sent()
{
    if (is_leader()) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Results of one box: handed to the copy engine once the whole team has written them. */
__device__ __forceinline__ void send(const CUtensorMap *map, const char *from, int column, int row)
{
    if (!is_leader()) return;
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(row)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* A team's life. b: its columns in the strip if that stays, else in the first stage; vector: its column numbers;
 * results: its places. DW: the products of the tile's stages, so many, and of the third input are summed as well. */
template <int TEAMS, template <int> class E, int N, int DW>
__device__ void work(ring factors, ring inputs, const share &w, const maps &t, const fused_gemm &j, const layout &l,
                     int team, const char *b, const float *vector, char *results, float *cell)
{
    float c[N], dw[N / 32][DW ? DW : 1][32] = {};
    const char *held[DW ? DW : 1];
    E<N> epilogue;
    int lane = threadIdx.x % 32, below = team / l.across * ROWS, place = 0, column = w.strip + team % l.across * 2 * N;
    epilogue.total.clear();
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        int row = tile * w.height + below, first = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
        bool counts[2] = { first < j.m, first + 8 < j.m };
        if constexpr (DW > 0) multiply_held(c, factors, b, w.width * DEPTH * 2, held);
        else
            multiply_stages(c, factors, w.depth, false, [&](int s) -> stage_factors {
                return { factors.here() + below * DEPTH * 2,
                         b + (l.stays ? s * w.width * DEPTH * 2 : factors.at * factors.bytes) };
            });
#pragma unroll
        for (int box = 0; box < N / 32; box++) {
            char *out = results + place * BOX;
            if (l.places == 1) {
                wait_sent();
                team_barrier(team);
            }
            if (E<N>::inputs) barrier_wait(&inputs.full[inputs.at], inputs.parity);
            if constexpr (DW > 0) begin_products<ROWS>(dw[box], held, inputs.here() + 2 * BOX);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float f[8];
#pragma unroll
                for (int i = 0; i < 8; i++) f[i] = c[32 * box + 8 * k + i];
                epilogue.take(f, inputs.here(), out, matrix_row(k), vector, 4 * box + k, counts);
            }
            if constexpr (DW > 0) end_products(dw[box]);
            if (E<N>::inputs) {
                __syncwarp();
                if (lane == 0) barrier_arrive(&inputs.empty[inputs.at]);
                inputs.next();
            }
            if (l.places == 2) wait_sent(); /* so the other place is free behind the barrier */
            shared_publish();
            team_barrier(team);
            send(&t.out, out, column + 64 * box, row);
            place = l.places - 1 - place;
        }
        for (int s = 0; s < DW; s++) {
            if (lane == 0) barrier_arrive(&factors.empty[factors.at]);
            factors.next();
        }
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < DW * (N / 32); i++) {
        int s = i / (N / 32), box = i % (N / 32);
        write_products(j.dw_partial + w.part * j.k * j.n, dw[box][s], 64 * s, column + 64 * box, j.k, j.n);
    }
    write_sums<TEAMS, N>(epilogue.total, cell, j, w, l.across);
}

/* N accumulators a thread: a team has 2 N columns. The first warpgroup copies: its warp 0 factors, warp 1 + i
 * % 3 what team i's ending reads. */
template <int TEAMS, template <int> class E, int N, int DW>
__global__ void __launch_bounds__(128 + TEAMS * 128, 1)
    fused_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ fused_gemm j,
                      const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES], in_full[TEAMS][MAX_SLOTS], in_empty[TEAMS][MAX_SLOTS],
        b_full;
    __shared__ __align__(16) float column[TEAMS * 2 * N];
    __shared__ float cell[TEAMS * 4 * 2 * 2 * N];
    char *b = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023), *slots = b + l.b_bytes;
    char *results = slots + TEAMS * l.slots * l.slot_bytes, *stages = results + TEAMS * l.places * BOX;
    share w = share_of<TEAMS, N>(j, l);
    for (int i = threadIdx.x; i < w.width; i += blockDim.x)
        column[i] = j.column && w.strip + i < j.n ? j.column[w.strip + i] : 0.0f;
    if (threadIdx.x == 0) {
        for (int s = 0; s < l.stages; s++)
            barrier_init(&full[s], 1), barrier_init(&empty[s], TEAMS * 4); /* one per multiplying warp */
        for (int s = 0; s < TEAMS * MAX_SLOTS; s++)
            barrier_init(&in_full[0][0] + s, 1), barrier_init(&in_empty[0][0] + s, 4);
        barrier_init(&b_full, 1);
        barrier_publish();
    }
    __syncthreads();
    ring factors = { stages, full, empty, l.stage_bytes, l.stages, 0, 0 };
    bool copies = threadIdx.x < 128;
    int team = copies ? threadIdx.x % 32 : threadIdx.x / 128 - 1; /* lane i of copying warp 1 + i % 3 serves team i */
    int mine = team < TEAMS ? team : 0;
    ring inputs = { slots + mine * l.slots * l.slot_bytes, in_full[mine], in_empty[mine], l.slot_bytes, l.slots, 0, 0 };
    if (copies) {
        if constexpr (TEAMS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (threadIdx.x == 0) copy_factors(factors, w, t, l, b, &b_full);
        else if (E<N>::inputs && team < TEAMS && threadIdx.x / 32 == 1 + team % 3)
            copy_inputs(inputs, w, t, E<N>::inputs, w.strip + team % l.across * 2 * N, team / l.across * ROWS, 2 * N);
    } else {
        if constexpr (TEAMS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        else asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
        if (l.stays) barrier_wait(&b_full, 0);
        int shift = team % l.across * 2 * N;
        const char *b_mine = (l.stays ? b : stages + w.height * DEPTH * 2) + shift * DEPTH * 2;
        work<TEAMS, E, N, DW>(factors, inputs, w, t, j, l, team, b_mine, column + shift,
                              results + team * l.places * BOX, cell);
    }
}

/* 32 x 32 tiles through shared memory. */
__global__ void transpose_kernel(uint16_t *to, const uint16_t *from, int rows, int cols)
{
    __shared__ uint16_t tile[32][34];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32;
    for (int y = threadIdx.y; y < 32 && c < cols; y += 8)
        if (r + y < rows) tile[y][threadIdx.x] = from[(int64_t)(r + y) * cols + c];
    __syncthreads();
    for (int y = threadIdx.y; y < 32 && r + (int)threadIdx.x < rows; y += 8)
        if (blockIdx.x * 32 + y < cols)
            to[(int64_t)(blockIdx.x * 32 + y) * rows + r + threadIdx.x] = tile[threadIdx.x][y];
}

/* ---- launching ----------------------------------------------------------------------------------- */

int inputs_of(gemm_epilogue e) { return e == EPILOGUE_REDUCE ? 3 : 0; }

struct choice {
    int teams, columns; /* columns of a team */
    layout l;
    int width() const { return columns * l.across; }
    int height() const { return teams / l.across * ROWS; }
};

bool narrow(const fused_gemm *p) { return p->teams == FUSED_GEMM_NARROW; }

/* Dynamic shared memory: two narrow teams declare half as much for their sums. */
int shared_bytes(const choice &c) { return SHARED_BYTES + (c.teams * c.columns <= 128 ? 4 << 10 : 0); }

/* Lays out shared memory; stages 0: does not fit. */
void lay_out(choice &c, const fused_gemm *p, bool stays)
{
    layout &l = c.l;
    int depth = (int)((p->k + DEPTH - 1) / DEPTH), b_step = c.width() * DEPTH * 2;
    l.stays = stays;
    l.b_bytes = stays ? depth * b_step : 0;
    l.stage_bytes = c.height() * DEPTH * 2 + (stays ? 0 : b_step);
    l.slot_bytes = inputs_of(p->epilogue) * BOX;
    int enough = narrow(p) && p->dw ? 2 * depth : 3; /* all of the next tile's */
    for (int roomy = 2; roomy >= 0; roomy--) { /* two slots and places, then one slot (narrow: place), then one place */
        l.slots = l.slot_bytes ? (roomy == 2 || (roomy == 1 && narrow(p)) ? MAX_SLOTS : 1) : 0;
        l.places = roomy == 2 || (roomy == 1 && !narrow(p)) ? 2 : 1;
        int left = shared_bytes(c) - 1024 - l.b_bytes - c.teams * (l.slots * l.slot_bytes + l.places * BOX);
        l.stages = left < 2 * l.stage_bytes ? 0 : left / l.stage_bytes;
        if (l.stages > MAX_STAGES) l.stages = MAX_STAGES;
        if (l.stages >= enough || (roomy == 1 && narrow(p) && l.stages > depth)) break;
    }
}

int strips_of(const fused_gemm *p, const choice &c) { return (int)((p->n + c.width() - 1) / c.width()); }

/* What the strips read of a and b together, in elements. */
double traffic(const fused_gemm *p, const choice &c)
{
    double a = (double)p->m * (double)p->k * strips_of(p, c);
    return a + (c.l.stays ? 0.0 : a * c.width() / c.height());
}

/* With dw: two teams beside each other, all stages of a tile at once, and at most 128 sums a thread: one stage and 128
 * columns a team, or up to four and 64. */
choice choose_dw(const fused_gemm *p)
{
    choice c = {};
    c.teams = 2, c.columns = p->k <= DEPTH ? 128 : 64, c.l.across = 2;
    if (narrow(p) && c.columns == 128) return c;
    if (p->epilogue == EPILOGUE_REDUCE && p->teams != 4 && p->k <= 4 * DEPTH && p->n > c.columns) lay_out(c, p, true);
    if (c.l.stages * DEPTH <= p->k) c.l.stages = 0;
    return c;
}

/* The arrangement of its teams that reads least. */
choice choose(const fused_gemm *p)
{
    if (p->dw) return choose_dw(p);
    choice best = {};
    double min = 1e300;
    for (int i = 0; i < 6; i++) {
        choice c = {};
        c.teams = narrow(p) ? 2 : p->teams;
        c.columns = c.teams == 4 || narrow(p) ? 64 : 128;
        c.l.across = i % 3 == 0 ? 4 : i % 3 == 1 ? 2 : 1;
        if (c.l.across > c.teams || (c.columns == 128 && p->n <= 64) ||
            (c.l.across > 1 && p->n <= c.columns * (c.l.across - 1)))
            continue;
        lay_out(c, p, i < 3);
        if (c.l.stages == 0 || traffic(p, c) >= min) continue;
        min = traffic(p, c);
        best = c;
    }
    return best;
}

cudaError_t make_maps(maps *t, const fused_gemm *p, const choice &c)
{
    int inputs = inputs_of(p->epilogue);
    const void *in[] = { p->x, p->other, p->mask };
    cudaError_t e = tensor_map_rows(&t->a, p->a, p->m, p->k, DEPTH, ROWS);
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, c.width());
    for (int i = 0; i < inputs && e == cudaSuccess; i++) e = tensor_map_rows(&t->in[i], in[i], p->m, p->n, 64, ROWS);
    return e == cudaSuccess ? tensor_map_rows(&t->out, p->y, p->m, p->n, 64, ROWS) : e;
}

template <int TEAMS, template <int> class E, int N, int DW = 0>
cudaError_t launch(cudaStream_t stream, const fused_gemm *p, const choice &c, int sms)
{
    maps t = {};
    cudaError_t e = make_maps(&t, p, c);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(fused_gemm_kernel<TEAMS, E, N, DW>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 shared_bytes(c));
    if (e != cudaSuccess) return e;
    fused_gemm_kernel<TEAMS, E, N, DW>
        <<<fused_gemm_parts(p, sms) * strips_of(p, c), 128 + TEAMS * 128, shared_bytes(c), stream>>>(t, *p, c.l);
    return cudaGetLastError();
}

template <template <int> class E>
cudaError_t launch_epilogue(cudaStream_t stream, const fused_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.stages < 1) return cudaErrorInvalidConfiguration;
    return c.teams == 4 ? launch<4, E, 32>(stream, p, c, sms)
           : narrow(p)  ? launch<2, E, 32>(stream, p, c, sms)
                        : launch<2, E, 64>(stream, p, c, sms);
}

cudaError_t launch_dw(cudaStream_t stream, const fused_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.stages < 1) return cudaErrorInvalidConfiguration;
    return p->k <= DEPTH       ? launch<2, reduce_epilogue, 64, 1>(stream, p, c, sms)
           : p->k <= 2 * DEPTH ? launch<2, reduce_epilogue, 32, 2>(stream, p, c, sms)
           : p->k <= 3 * DEPTH ? launch<2, reduce_epilogue, 32, 3>(stream, p, c, sms)
                               : launch<2, reduce_epilogue, 32, 4>(stream, p, c, sms);
}

} // namespace

extern "C" {

bool fused_gemm_takes(int64_t n, int64_t k) { return n % 8 == 0 && k % 8 == 0 && n >= 32; }

int fused_gemm_parts(const fused_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.stages == 0) return 0;
    int64_t tiles = (p->m + c.height() - 1) / c.height(), parts = sms / strips_of(p, c);
    if (parts > tiles) parts = tiles;
    return parts < 1 ? 1 : (int)parts;
}

cudaError_t fused_gemm_run(cudaStream_t stream, const fused_gemm *p, int sms)
{
    if (p->dw) return launch_dw(stream, p, sms);
    return p->epilogue == EPILOGUE_STATS ? launch_epilogue<stats_epilogue>(stream, p, sms)
                                         : launch_epilogue<reduce_epilogue>(stream, p, sms);
}

cudaError_t transpose_bf16(cudaStream_t stream, void *to, const void *from, int64_t rows, int64_t cols)
{
    dim3 grid((unsigned)((cols + 31) / 32), (unsigned)((rows + 31) / 32));
    transpose_kernel<<<grid, dim3(32, 8), 0, stream>>>((uint16_t *)to, (const uint16_t *)from, (int)rows, (int)cols);
    return cudaGetLastError();
}

} // extern "C"
