/* Persistent blocks, one per multiprocessor; each has a range of columns and processes tiles of rows. Four warpgroups:
 * a producer issues bulk copies; a transformer computes operand a in place; two consumers multiply 64 rows each (or the
 * same 64 rows and half of the columns each) and store the tile.
 *
 * Three rings of stages in shared memory, 64 deep: x, which becomes a and may be stored from there; other, which is
 * released when a is computed; b, unless the variant keeps all of b resident. */
#include "nn/cuda/fused/prologues.cuh"
#include "tensor/cuda/cuda.h"

namespace {

/* ---- statistics of the result ---------------------------------------------------------------------- */

/* Sums v[k][i] over the eight lanes that hold different rows: afterwards v[k][0] of a lane is the sum of element
 * 4 b4 + 2 b3 + b2 of v[k], where b4, b3, b2 are bits of the lane's index. */
template <int HALF = 4, int COUNT>
__device__ __forceinline__ void scatter_sums(float (&v)[COUNT][8])
{
    bool high = threadIdx.x & (4 * HALF);
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float sent = high ? v[k][i] : v[k][i + HALF], kept = high ? v[k][i + HALF] : v[k][i];
            v[k][i] = kept + __shfl_xor_sync(~0u, sent, 4 * HALF);
        }
    if constexpr (HALF > 1) scatter_sums<HALF / 2>(v);
}

/* Sums of y - pivot and of its square over the rows of a warp: in registers if N is small enough, else added to the
 * warp's cells (2, 2 N) box by box. */
template <int N>
struct statistics {
    static constexpr bool stay = N <= 64;
    column_sums<stay ? N : 2> total;
    float v[stay ? 1 : 4][8];

    /* Four 8 x 8 matrices of the result (gemm_epilogues.cuh), rounded; k: which 16 of the consumer's columns. */
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
            for (int i = 0; i < 4; i++) { /* columns 2 (lane % 4) + i % 2; i >= 2: plus eight */
                float a = d[i / 2 * 4 + i % 2], b = d[i / 2 * 4 + i % 2 + 2];
                v[k % 4][i] = a + b, v[k % 4][4 + i] = fmaf(a, a, b * b);
            }
        }
    }

    /* Called after the four calls of take for a box. */
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

    /* Called after the last tile. */
    __device__ __forceinline__ void end(float *cell)
    {
        if constexpr (stay) write_warp_sums(total, cell);
    }
};

/* ---- multiplying --------------------------------------------------------------------------------- */

/* One instruction with 256 columns needs more registers than the kernel starts with: two of 128 columns, and one of 64
 * more for 320 columns. */
template <int N>
__device__ __forceinline__ void multiply_k16(float (&c)[N], uint64_t a, uint64_t b, int keep)
{
    if constexpr (N >= 128) {
        wgmma_k16(reinterpret_cast<float(&)[64]>(c[0]), a, b, keep);
        wgmma_k16(reinterpret_cast<float(&)[64]>(c[64]), a, b + (128 * ROW >> 4), keep);
        if constexpr (N == 160) wgmma_k16(reinterpret_cast<float(&)[32]>(c[128]), a, b + (256 * ROW >> 4), keep);
    } else wgmma_k16(c, a, b, keep);
}

/* Called by a warp that has multiplied these stages. */
__device__ __forceinline__ void release_stages(const ring &a, int a_at, const ring &b, int b_at, const layout &l)
{
    barrier_arrive(&a.empty[a_at]);
    if (!l.b_resident) barrier_arrive(&b.empty[b_at]);
}

/* c = a b^T over the tile's stages; a stage is released when the next multiplication has been issued. */
template <int N>
__device__ __forceinline__ void multiply(float (&c)[N], ring &a, ring &b, const block_tiles &w, const layout &l,
                                         int below, int shift)
{
    bool b_resident = l.b_resident;
    int before = 0, b_before = 0;
    fence_registers(c);
    for (int s = 0; s < w.depth; s++) {
        barrier_wait(&a.full[a.at], a.parity);
        if (!b_resident) barrier_wait(&b.full[b.at], b.parity);
        uint64_t da = descriptor(a.here() + below * ROW),
                 db = descriptor((b_resident ? b.stage + s * b.bytes : b.here()) + shift * ROW);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) multiply_k16(c, da + 2 * k, db + 2 * k, s > 0 || k > 0);
        wgmma_commit();
        if (s > 0) {
            wgmma_wait<1>();
            if (elected()) release_stages(a, before, b, b_before, l);
        }
        before = a.at, b_before = b.at;
        a.next();
        if (!b_resident) b.next();
    }
    wgmma_wait<0>();
    fence_registers(c);
    if (elected()) release_stages(a, before, b, b_before, l);
}

/* Main loop of a consumer. pivots: of its columns; results: its output buffers; cells: the block's sums. */
template <int N, bool STATS>
__device__ void consume(ring a, ring b, const block_tiles &w, const CUtensorMap *out_map, const prologue_gemm &j,
                        const layout &l, int consumer, const float *pivots, char *results, float *cells)
{
    float c[N];
    int warp = warp_number() - 8, below = consumer / l.across * ROWS, place = 0;
    int shift = consumer % l.across * 2 * N;
    float *cell = cells + warp * 4 * N;
    statistics<N> sums;
    sums.total.clear();
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        int row = tile * w.height + below, first = row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        bool counts[2] = { first < j.m, first + 8 < j.m };
        multiply(c, a, b, w, l, below, shift);
#pragma unroll
        for (int box = 0; box < N / 32; box++) {
            char *out = results + place * BOX;
            if (w.first_column + shift + 64 * box >= j.n) break;
            if (l.out_buffers == 1) {
                wait_stores();
                consumer_barrier(consumer);
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
            if (l.out_buffers == 2) wait_stores(); /* after the barrier the other buffer is free */
            shared_publish();
            consumer_barrier(consumer);
            if (is_leader()) store_box(out_map, out, w.first_column + shift + 64 * box, row);
            place = l.out_buffers - 1 - place;
        }
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    if (!STATS) return;
    sums.end(cell);
    consumers_barrier();
    add_warp_sums<CONSUMERS, N>(j.partial, cells, w, j.n, l.across);
}

/* Barriers per stage. full: copied; ready: transformed; empty: released. */
struct barriers {
    uint64_t x_full[MAX_STAGES], x_empty[MAX_STAGES], ready[MAX_STAGES], other_full[MAX_STAGES],
        other_empty[MAX_STAGES], b_full[B_STAGES], b_empty[B_STAGES];

    /* Arguments: arrivals that complete a phase. */
    __device__ __forceinline__ void make(int x_readers, int b_copies, int b_readers)
    {
        for (int s = 0; s < MAX_STAGES; s++) {
            barrier_init(&x_full[s], 1), barrier_init(&x_empty[s], x_readers), barrier_init(&ready[s], 1);
            barrier_init(&other_full[s], 1), barrier_init(&other_empty[s], 1);
        }
        for (int s = 0; s < B_STAGES; s++) barrier_init(&b_full[s], b_copies), barrier_init(&b_empty[s], b_readers);
        barrier_publish();
    }
};

/* Registers per thread of each role; their sum is at most what the kernel starts with. */
template <int N>
struct registers {
    static constexpr int load_registers = N == 160   ? 24
                                          : N == 128 ? 32
                                                     : 40,
                         transform_registers = N == 160   ? 72
                                               : N == 128 ? 96
                                                          : 128,
                         multiply_registers = N == 160   ? 208
                                              : N == 128 ? 192
                                                         : 168;
};

template <int N, class P, bool STATS>
__global__ void __launch_bounds__(THREADS, 1)
    prologue_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ prologue_gemm j,
                         const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ barriers s;
    int rows = CONSUMERS / l.across * ROWS;
    block_tiles w = block_tiles_of(j.n, j.k, l.across * 2 * N, rows, (j.m + rows - 1) / rows);
    int b_bytes = w.width * ROW, x_bytes = w.height * ROW, channels_count = w.depth * DEPTH;
    char *b_at = shared_begin(memory);
    char *x_at = b_at + l.b_stages * b_bytes, *other_at = x_at + l.x_stages * x_bytes;
    char *results = other_at + l.other_stages * x_bytes;
    float *channels = (float *)(results + CONSUMERS * l.out_buffers * BOX),
          *pivots = channels + CHANNEL_COEFFICIENTS * channels_count;
    float *cells = pivots + w.width;
    write_channels<P>(channels, channels_count, j);
    for (int i = threadIdx.x; STATS && i < w.width; i += THREADS)
        pivots[i] = w.first_column + i < j.n ? j.pivot[w.first_column + i] : 0.0f;
    for (int i = threadIdx.x; STATS && i < CONSUMERS * 4 * 4 * N; i += THREADS) cells[i] = 0.0f;
    bool writes = j.side && w.first_column == 0; /* of several column ranges the first stores a */
    if (threadIdx.x == 0) s.make(CONSUMERS * 4 + writes, l.b_resident ? w.depth : 1, CONSUMERS * 4);
    __syncthreads();
    ring x = { x_at, s.x_full, s.x_empty, x_bytes, l.x_stages, 0, 0 };
    ring other = { other_at, s.other_full, s.other_empty, x_bytes, l.other_stages, 0, 0 };
    ring b = { b_at, s.b_full, s.b_empty, b_bytes, B_STAGES, 0, 0 };
    using R = registers<N>;
    int warp = warp_number();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::load_registers));
        if (!elected()) return;
        if (warp == 0) copy_rows(x, w, &t.x);
        else if (warp == 1 && P::sources == 2) copy_rows(other, w, &t.other);
        else if (warp == 2) copy_b(b, w, &t.b, l.b_resident);
    } else if (warp < 8) {
        if constexpr (R::transform_registers < 128)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::transform_registers));
        const CUtensorMap *side = writes ? &t.side : nullptr;
        if (l.across == 1) transform_stages<P, 2 * ROWS>(x, other, w, channels, s.ready, side);
        else transform_stages<P, ROWS>(x, other, w, channels, s.ready, side);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiply_registers));
        int consumer = warp / 4 - 2, shift = consumer % l.across * 2 * N;
        ring factor = { x_at, s.ready, s.x_empty, x_bytes, l.x_stages, 0, 0 };
        if (l.b_resident) barrier_wait(&s.b_full[0], 0);
        consume<N, STATS>(factor, b, w, &t.out, j, l, consumer, pivots + shift,
                          results + consumer * l.out_buffers * BOX, cells);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

struct choice {
    int N;
    layout l;
    int width() const { return 2 * N * l.across; }
    int height() const { return CONSUMERS / l.across * ROWS; }
};

struct variant {
    int across;
    bool b_resident;
    int most;        /* largest number of columns per block */
    int out_buffers; /* output buffers per consumer, if they fit */
};
const variant variants[PROLOGUE_VARIANTS] = { { 1, true, 256, 2 },  { 1, false, 256, 2 }, { 2, true, 256, 2 },
                                              { 2, false, 256, 2 }, { 1, false, 256, 1 }, { 1, false, 320, 1 } };

/* Whether to try the variant: the widest one only if its columns are enough and 256 are not. */
bool suits(const prologue_gemm *p, const variant &v)
{
    if (p->prologue == PROLOGUE_DX && p->n > v.most)
        return false; /* side may be the memory of other: one column range */
    return v.most == 256 || (p->prologue != PROLOGUE_APPLY && p->n > 256 && p->n <= v.most);
}

/* Fills shared memory with stages; x_stages is 0 if it does not fit. */
choice choose(const prologue_gemm *p)
{
    choice c = {};
    layout &l = c.l;
    const variant &v = variants[p->variant];
    l.across = v.across;
    l.b_resident = v.b_resident;
    int64_t columns = ((p->n < v.most ? p->n : v.most) + l.across - 1) / l.across;
    c.N = columns <= 64 ? 32 : columns <= 128 ? 64 : columns <= 256 ? 128 : 160;
    if (!suits(p, v)) return c;
    if (p->n % 8 || p->k % 8 || p->n < 32 || p->k < 32 || (l.across == 2 && p->n <= 64)) return c;
    int sources = p->prologue == PROLOGUE_APPLY ? 1 : 2, depth = (int)((p->k + DEPTH - 1) / DEPTH);
    int coefficients = CHANNEL_COEFFICIENTS * depth * DEPTH + (p->stats ? c.width() + CONSUMERS * 4 * 4 * c.N : 0);
    int fixed = 1024 + coefficients * (int)sizeof(float);
    l.b_stages = l.b_resident ? depth : B_STAGES;
    for (l.out_buffers = v.out_buffers; l.out_buffers; l.out_buffers--) {
        int left = SHARED_BYTES - fixed - l.b_stages * c.width() * ROW - CONSUMERS * l.out_buffers * BOX,
            boxes = left / (c.height() * ROW);
        if (left < 0) boxes = 0;
        l.other_stages = sources == 2 ? boxes / 2 : 0;
        l.x_stages = boxes - l.other_stages;
        if (l.other_stages > MAX_STAGES) l.other_stages = MAX_STAGES;
        if (l.x_stages > MAX_STAGES) l.x_stages = MAX_STAGES;
        if (l.x_stages >= 3) return c;
    }
    l.out_buffers = 1;
    if (l.x_stages < 2 || (sources == 2 && l.other_stages < 1)) l.x_stages = 0;
    return c;
}

int column_blocks_of(const prologue_gemm *p, const choice &c) { return (int)((p->n + c.width() - 1) / c.width()); }

cudaError_t make_maps(maps *t, const prologue_gemm *p, const choice &c)
{
    cudaError_t e = tensor_map_rows(&t->x, p->x, p->m, p->k, DEPTH, c.height());
    if (e == cudaSuccess && p->other) e = tensor_map_rows(&t->other, p->other, p->m, p->k, DEPTH, c.height());
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, b_box(c.width()));
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
    prologue_gemm_kernel<N, P, STATS>
        <<<prologue_gemm_parts(p, sms) * column_blocks_of(p, c), THREADS, SHARED_BYTES, stream>>>(t, *p, c.l);
    return cudaGetLastError();
}

template <class P, bool STATS>
cudaError_t launch_width(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.x_stages == 0) return cudaErrorInvalidConfiguration;
    if constexpr (P::sources == 2)
        if (c.N == 160) return launch<160, P, STATS>(stream, p, c, sms);
    return c.N == 32   ? launch<32, P, STATS>(stream, p, c, sms)
           : c.N == 64 ? launch<64, P, STATS>(stream, p, c, sms)
                       : launch<128, P, STATS>(stream, p, c, sms);
}

} // namespace

extern "C" {

int prologue_gemm_parts(const prologue_gemm *p, int sms)
{
    if (p->dw) return gradients_gemm_parts(p, sms);
    choice c = choose(p);
    if (c.l.x_stages == 0) return 0;
    int64_t tiles = (p->m + c.height() - 1) / c.height(), parts = sms / column_blocks_of(p, c);
    if (parts > tiles) parts = tiles;
    return parts < 1 ? 1 : (int)parts;
}

cudaError_t prologue_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    if (p->dw) return gradients_gemm_run(stream, p, sms);
    if (p->prologue == PROLOGUE_DX) return launch_width<dx_prologue, false>(stream, p, sms);
    if (p->prologue == PROLOGUE_BOTH) return launch_width<both_prologue, true>(stream, p, sms);
    return p->prologue == PROLOGUE_ADD ? launch_width<apply_prologue<true>, true>(stream, p, sms)
                                       : launch_width<apply_prologue<false>, true>(stream, p, sms);
}

} // extern "C"
