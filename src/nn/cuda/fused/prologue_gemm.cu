/* Persistent blocks, one per multiprocessor; each has a range of columns and processes tiles of rows. Four warpgroups:
 * a producer issues bulk copies; a transformer computes operand a in place; two consumers multiply 64 rows each (or the
 * same 64 rows and half of the columns each) and store the tile.
 *
 * Three rings of stages in shared memory, 64 deep: x, which becomes a and may be stored from there; other, which is
 * released when a is computed; b, unless the variant keeps all of b resident.
 *
 * TILED: tiles are image positions, and the 2 x 2 pool of a is stored as well (pooled_operand.cuh). */
#include "nn/cuda/fused/pooled_operand.cuh"
#include "nn/cuda/fused/tile_sums.cuh"
#include "tensor/cuda/cuda.h"

namespace {

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

/* The rows of a tile that belong to a consumer: which of the lane's two rows exist, and where they are stored. */
template <bool TILED>
struct consumer_rows {
    bool counts[2];
    int row; /* the first */
    tile_position at;
    __device__ __forceinline__ consumer_rows(const prologue_gemm &j, const block_tiles &w, const layout &l, int tile,
                                             int below)
    {
        int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16 + lane / 4;
        if constexpr (TILED) {
            int64_t lines = j.m / j.line;
            at = position_of(l, tile, w.height), at.line += below / l.tile_width;
            for (int i = 0; i < 2; i++) counts[i] = at.line + (first + 8 * i) / l.tile_width < lines;
        } else {
            row = tile * w.height + below, first += row;
            for (int i = 0; i < 2; i++) counts[i] = first + 8 * i < j.m;
        }
    }
    __device__ __forceinline__ void store(const CUtensorMap *map, const char *box, int column) const
    {
        if constexpr (TILED) store_tile(map, box, column, at.x, at.line);
        else store_box(map, box, column, row);
    }
};

/* Main loop of a consumer. pivots: of its columns; results: its output buffers; cells: the block's sums. */
template <int N, bool STATS, bool TILED>
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
        consumer_rows<TILED> rows(j, w, l, tile, below);
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
                    sums.take(f, pivots, 4 * box + k, rows.counts);
                }
            }
            if (STATS) sums.end_box(cell, box);
            if (l.out_buffers == 2) wait_stores(); /* after the barrier the other buffer is free */
            shared_publish();
            consumer_barrier(consumer);
            if (is_leader()) rows.store(out_map, out, w.first_column + shift + 64 * box);
            place = l.out_buffers - 1 - place;
        }
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    if (!STATS) return;
    sums.end(cell);
    write_sums<N>(cells, j, w, l.across);
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

/* Main loop of the transforming warpgroup. pooled: buffers of pooled rows. */
template <class P, int HEIGHT, bool TILED>
__device__ __forceinline__ void make(ring x, ring other, const block_tiles &w, const layout &l, const float *channels,
                                     uint64_t *ready, const maps &t, char *pooled, bool writes)
{
    if constexpr (TILED) transform_pooled_stages<P, HEIGHT>(x, other, w, l, channels, ready, t, pooled, writes);
    else transform_stages<P, HEIGHT>(x, other, w, channels, ready, writes ? &t.side : nullptr);
}

template <int N, class P, bool STATS, bool TILED>
__global__ void __launch_bounds__(THREADS, 1)
    prologue_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ prologue_gemm j,
                         const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ barriers s;
    block_tiles w = block_tiles_of<N>(j, l);
    int b_bytes = w.width * ROW, x_bytes = w.height * ROW, channels_count = w.depth * DEPTH;
    char *b_at = shared_begin(memory);
    char *x_at = b_at + l.b_stages * b_bytes, *other_at = x_at + l.x_stages * x_bytes;
    char *results = other_at + l.other_stages * x_bytes, *pooled = results + CONSUMERS * l.out_buffers * BOX;
    float *channels = (float *)(pooled + (TILED ? POOLED_BUFFERS * x_bytes / 4 : 0)),
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
        if (warp == 0) TILED ? copy_tiles(x, w, l, &t.x) : copy_rows(x, w, &t.x);
        else if (warp == 1 && P::sources == 2)
            TILED ? copy_tiles(other, w, l, &t.other) : copy_rows(other, w, &t.other);
        else if (warp == 2) copy_b(b, w, &t.b, l.b_resident);
    } else if (warp < 8) {
        if constexpr (R::transform_registers < 128)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::transform_registers));
        if (l.across == 1) make<P, 2 * ROWS, TILED>(x, other, w, l, channels, s.ready, t, pooled, writes);
        else make<P, ROWS, TILED>(x, other, w, l, channels, s.ready, t, pooled, writes);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiply_registers));
        int consumer = warp / 4 - 2, shift = consumer % l.across * 2 * N;
        ring factor = { x_at, s.ready, s.x_empty, x_bytes, l.x_stages, 0, 0 };
        if (l.b_resident) barrier_wait(&s.b_full[0], 0);
        consume<N, STATS, TILED>(factor, b, w, &t.out, j, l, consumer, pivots + shift,
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

/* The variants that bench_prologue lists. */
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

/* Chooses tiles of image positions; false: no tile fits this line length. */
bool lay_out_tiles(const prologue_gemm *p, layout *l)
{
    enum { WIDEST = 16 };
    if (!p->pools) return true;
    if (p->prologue != PROLOGUE_ADD || p->line < 2) return false;
    for (l->tile_width = WIDEST; l->tile_width > 1 && p->line % l->tile_width; l->tile_width /= 2) {}
    l->tiles_per_line = l->tile_width > 1 ? (int)p->line / l->tile_width : 0;
    return l->tiles_per_line > 0;
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
    if (!suits(p, v) || !lay_out_tiles(p, &l) || (p->pools && c.N == 160)) return c;
    if (p->n % 8 || p->k % 8 || p->n < 32 || p->k < 32 || (l.across == 2 && p->n <= 64)) return c;
    int sources = p->prologue == PROLOGUE_APPLY ? 1 : 2, depth = (int)((p->k + DEPTH - 1) / DEPTH);
    int coefficients = CHANNEL_COEFFICIENTS * depth * DEPTH + (p->stats ? c.width() + CONSUMERS * 4 * 4 * c.N : 0);
    int fixed = 1024 + coefficients * (int)sizeof(float) + (p->pools ? POOLED_BUFFERS * c.height() * ROW / 4 : 0);
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

/* Tensor map of rows (m, d) in tiles of image positions of `height` rows; by 2: of the pooled rows. */
cudaError_t map_tiles(CUtensorMap *map, const void *rows, const prologue_gemm *p, int64_t d, const layout &l,
                      int height, int by)
{
    cuuint64_t line = (cuuint64_t)(p->line / by), lines = (cuuint64_t)(p->m / p->line / by);
    cuuint64_t size[3] = { (cuuint64_t)d, line, lines }, stride[2] = { (cuuint64_t)d * 2, line * (cuuint64_t)d * 2 };
    cuuint32_t part[3] = { DEPTH, (cuuint32_t)(l.tile_width / by), (cuuint32_t)(height / l.tile_width / by) };
    return tensor_map_encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rows, 3, size, stride, part,
                             CU_TENSOR_MAP_SWIZZLE_128B);
}

cudaError_t make_tiled_maps(maps *t, const prologue_gemm *p, const choice &c)
{
    cudaError_t e = map_tiles(&t->x, p->x, p, p->k, c.l, c.height(), 1);
    if (e == cudaSuccess) e = map_tiles(&t->other, p->other, p, p->k, c.l, c.height(), 1);
    if (e == cudaSuccess) e = map_tiles(&t->side, p->side, p, p->k, c.l, c.height(), 1);
    if (e == cudaSuccess) e = map_tiles(&t->pooled, p->pooled, p, p->k, c.l, c.height(), 2);
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, b_box(c.width()));
    return e == cudaSuccess ? map_tiles(&t->out, p->y, p, p->n, c.l, ROWS, 1) : e;
}

cudaError_t make_maps(maps *t, const prologue_gemm *p, const choice &c)
{
    if (p->pools) return make_tiled_maps(t, p, c);
    cudaError_t e = tensor_map_rows(&t->x, p->x, p->m, p->k, DEPTH, c.height());
    if (e == cudaSuccess && p->other) e = tensor_map_rows(&t->other, p->other, p->m, p->k, DEPTH, c.height());
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, b_box(c.width()));
    if (e == cudaSuccess && p->side) e = tensor_map_rows(&t->side, p->side, p->m, p->k, DEPTH, c.height());
    return e == cudaSuccess ? tensor_map_rows(&t->out, p->y, p->m, p->n, 64, ROWS) : e;
}

template <int N, class P, bool STATS, bool TILED = false>
cudaError_t launch(cudaStream_t stream, const prologue_gemm *p, const choice &c, int sms)
{
    maps t = {};
    cudaError_t e = make_maps(&t, p, c);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(prologue_gemm_kernel<N, P, STATS, TILED>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 SHARED_BYTES);
    if (e != cudaSuccess) return e;
    prologue_gemm_kernel<N, P, STATS, TILED>
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

cudaError_t launch_pooled(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    using add = apply_prologue<true>;
    choice c = choose(p);
    if (c.l.x_stages == 0) return cudaErrorInvalidConfiguration;
    return c.N == 32   ? launch<32, add, true, true>(stream, p, c, sms)
           : c.N == 64 ? launch<64, add, true, true>(stream, p, c, sms)
                       : launch<128, add, true, true>(stream, p, c, sms);
}

} // namespace

extern "C" {

int prologue_gemm_parts(const prologue_gemm *p, int sms)
{
    if (p->dw) return gradients_gemm_parts(p, sms);
    choice c = choose(p);
    if (c.l.x_stages == 0) return 0;
    int64_t tiles = count_tiles(*p, c.l, c.height()), parts = sms / column_blocks_of(p, c);
    if (parts > tiles) parts = tiles;
    return parts < 1 ? 1 : (int)parts;
}

cudaError_t prologue_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    if (p->dw) return gradients_gemm_run(stream, p, sms);
    if (p->pools) return launch_pooled(stream, p, sms);
    if (p->prologue == PROLOGUE_DX) return launch_width<dx_prologue, false>(stream, p, sms);
    if (p->prologue == PROLOGUE_BOTH) return launch_width<both_prologue, true>(stream, p, sms);
    return p->prologue == PROLOGUE_ADD ? launch_width<apply_prologue<true>, true>(stream, p, sms)
                                       : launch_width<apply_prologue<false>, true>(stream, p, sms);
}

} // extern "C"
