/* One persistent block per multiprocessor and strip of columns, which walks down the rows tile by tile. Four
 * warpgroups: one drives the copy engine; one makes the left factor out of what the copy engine brought, in place; two
 * teams multiply, 64 rows each (or the same 64 rows and half of the columns each), and end the tile.
 *
 * Three rings of stages in shared memory, each as deep as a step of the GEMM (64): x, which becomes the factor and
 * is also written out from there; other, which is free again as soon as the factor is made; the strip of b, which stays
 * in shared memory instead where the variant says so.
 *
 * TILED: tiles are parts of images, and the factor also leaves behind a 2 x 2 pool (pooled_factor.cuh). */
#include "nn/cuda/fused/pooled_factor.cuh"
#include "nn/cuda/fused/tile_sums.cuh"
#include "tensor/cuda/cuda.h"

namespace {

/* ---- multiplying --------------------------------------------------------------------------------- */

/* One instruction of 256 columns would not fit the registers that the kernel starts with: two of 128, and one of 64 for
 * strips of 320. */
template <int N>
__device__ __forceinline__ void multiply_k16(float (&c)[N], uint64_t a, uint64_t b, int keep)
{
    if constexpr (N >= 128) {
        wgmma_k16(reinterpret_cast<float(&)[64]>(c[0]), a, b, keep);
        wgmma_k16(reinterpret_cast<float(&)[64]>(c[64]), a, b + (128 * ROW >> 4), keep);
        if constexpr (N == 160) wgmma_k16(reinterpret_cast<float(&)[32]>(c[128]), a, b + (256 * ROW >> 4), keep);
    } else wgmma_k16(c, a, b, keep);
}

/* A warp has multiplied these stages. */
__device__ __forceinline__ void give_back(const ring &a, int a_at, const ring &b, int b_at, const layout &l)
{
    barrier_arrive(&a.empty[a_at]);
    if (!l.stays) barrier_arrive(&b.empty[b_at]);
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
            if (elected()) give_back(a, before, b, b_before, l);
        }
        before = a.at, b_before = b.at;
        a.next();
        if (!stays) b.next();
    }
    wgmma_wait<0>();
    settle(c);
    if (elected()) give_back(a, before, b, b_before, l);
}

/* Where a team's rows of a tile lie: the lane's two rows there are, and where they are sent. */
template <bool TILED>
struct team_rows {
    bool counts[2];
    int row; /* the first */
    tile_place at;
    __device__ __forceinline__ team_rows(const prologue_gemm &j, const share &w, const layout &l, int tile, int below)
    {
        int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16 + lane / 4;
        if constexpr (TILED) {
            int64_t lines = j.m / j.line;
            at = place_of(l, tile, w.height), at.line += below / l.tile_width;
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

/* A team's life. pivots: of its columns; results: its places; cells: the block's. */
template <int N, bool STATS, bool TILED>
__device__ void work(ring a, ring b, const share &w, const CUtensorMap *out_map, const prologue_gemm &j,
                     const layout &l, int team, const float *pivots, char *results, float *cells)
{
    float c[N];
    int warp = warp_number() - 8, below = team / l.across * ROWS, place = 0;
    int shift = team % l.across * 2 * N;
    float *cell = cells + warp * 4 * N;
    statistics<N> sums;
    sums.total.clear();
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        team_rows<TILED> rows(j, w, l, tile, below);
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
                    sums.take(f, pivots, 4 * box + k, rows.counts);
                }
            }
            if (STATS) sums.end_box(cell, box);
            if (l.places == 2) wait_sent(); /* so the other place is free behind the barrier */
            shared_publish();
            team_barrier(team);
            if (is_leader()) rows.store(out_map, out, w.strip + shift + 64 * box);
            place = l.places - 1 - place;
        }
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    if (!STATS) return;
    sums.end(cell);
    write_sums<N>(cells, j, w, l.across);
}

/* One of each kind for every stage. full: it was copied; ready: it is the factor; empty: it may be copied to again. */
struct barriers {
    uint64_t x_full[MAX_STAGES], x_empty[MAX_STAGES], ready[MAX_STAGES], other_full[MAX_STAGES],
        other_empty[MAX_STAGES], b_full[B_STAGES], b_empty[B_STAGES];

    /* The numbers of arrivals that end a phase. */
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

/* Registers of a thread that copies, makes the factor, multiplies; together at most what the kernel starts with. */
template <int N>
struct registers {
    static constexpr int copies = N == 160   ? 24
                                  : N == 128 ? 32
                                             : 40,
                         makes = N == 160   ? 72
                                 : N == 128 ? 96
                                            : 128,
                         multiplies = N == 160   ? 208
                                      : N == 128 ? 192
                                                 : 168;
};

/* The makers' life. pooled: room for what is pooled. */
template <class P, int HEIGHT, bool TILED>
__device__ __forceinline__ void make(ring x, ring other, const share &w, const layout &l, const float *channels,
                                     uint64_t *ready, const maps &t, char *pooled, bool writes)
{
    if constexpr (TILED) make_pooled_factor<P, HEIGHT>(x, other, w, l, channels, ready, t, pooled, writes);
    else make_factor<P, HEIGHT>(x, other, w, channels, ready, writes ? &t.side : nullptr);
}

template <int N, class P, bool STATS, bool TILED>
__global__ void __launch_bounds__(THREADS, 1)
    prologue_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ prologue_gemm j,
                         const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ barriers s;
    share w = share_of<N>(j, l);
    int b_bytes = w.width * ROW, x_bytes = w.height * ROW, channels_count = w.depth * DEPTH;
    char *b_at = shared_begin(memory);
    char *x_at = b_at + l.b_stages * b_bytes, *other_at = x_at + l.x_stages * x_bytes;
    char *results = other_at + l.other_stages * x_bytes, *pooled = results + TEAMS * l.places * BOX;
    float *channels = (float *)(pooled + (TILED ? POOLED_PLACES * x_bytes / 4 : 0)),
          *pivots = channels + CHANNEL_NUMBERS * channels_count;
    float *cells = pivots + w.width;
    write_channels<P>(channels, channels_count, j);
    for (int i = threadIdx.x; STATS && i < w.width; i += THREADS)
        pivots[i] = w.strip + i < j.n ? j.pivot[w.strip + i] : 0.0f;
    for (int i = threadIdx.x; STATS && i < TEAMS * 4 * 4 * N; i += THREADS) cells[i] = 0.0f;
    bool writes = j.side && w.strip == 0; /* of several strips the first writes the factor */
    if (threadIdx.x == 0) s.make(TEAMS * 4 + writes, l.stays ? w.depth : 1, TEAMS * 4);
    __syncthreads();
    ring x = { x_at, s.x_full, s.x_empty, x_bytes, l.x_stages, 0, 0 };
    ring other = { other_at, s.other_full, s.other_empty, x_bytes, l.other_stages, 0, 0 };
    ring b = { b_at, s.b_full, s.b_empty, b_bytes, B_STAGES, 0, 0 };
    using R = registers<N>;
    int warp = warp_number();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::copies));
        if (!elected()) return;
        if (warp == 0) TILED ? copy_tiles(x, w, l, &t.x) : copy_rows(x, w, &t.x);
        else if (warp == 1 && P::sources == 2)
            TILED ? copy_tiles(other, w, l, &t.other) : copy_rows(other, w, &t.other);
        else if (warp == 2) copy_b(b, w, &t.b, l.stays);
    } else if (warp < 8) {
        if constexpr (R::makes < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::makes));
        if (l.across == 1) make<P, 2 * ROWS, TILED>(x, other, w, l, channels, s.ready, t, pooled, writes);
        else make<P, ROWS, TILED>(x, other, w, l, channels, s.ready, t, pooled, writes);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiplies));
        int team = warp / 4 - 2, shift = team % l.across * 2 * N;
        ring factor = { x_at, s.ready, s.x_empty, x_bytes, l.x_stages, 0, 0 };
        if (l.stays) barrier_wait(&s.b_full[0], 0);
        work<N, STATS, TILED>(factor, b, w, &t.out, j, l, team, pivots + shift, results + team * l.places * BOX, cells);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

struct choice {
    int N;
    layout l;
    int width() const { return 2 * N * l.across; }
    int height() const { return TEAMS / l.across * ROWS; }
};

/* What a variant is, as bench_prologue lists them. */
struct variant {
    int across;
    bool stays;
    int most;   /* columns of a strip */
    int places; /* for results, at first */
};
const variant variants[PROLOGUE_VARIANTS] = { { 1, true, 256, 2 },  { 1, false, 256, 2 }, { 2, true, 256, 2 },
                                              { 2, false, 256, 2 }, { 1, false, 256, 1 }, { 1, false, 320, 1 } };

/* Whether the variant may be tried: the widest strip where one of them does and one of the others does not. */
bool suits(const prologue_gemm *p, const variant &v)
{
    if (p->prologue == PROLOGUE_DX && p->n > v.most) return false; /* the factor may lie where other does: one strip */
    return v.most == 256 || (p->prologue != PROLOGUE_APPLY && p->n > 256 && p->n <= v.most);
}

/* Lays out tiles for a pool; false: lines of this length have none. */
bool lay_out_tiles(const prologue_gemm *p, layout *l)
{
    enum { WIDEST = 16 };
    if (!p->pools) return true;
    if (p->prologue != PROLOGUE_ADD || p->line < 2) return false;
    for (l->tile_width = WIDEST; l->tile_width > 1 && p->line % l->tile_width; l->tile_width /= 2) {}
    l->beside = l->tile_width > 1 ? (int)p->line / l->tile_width : 0;
    return l->beside > 0;
}

/* Fills shared memory with stages; x_stages 0: does not fit. */
choice choose(const prologue_gemm *p)
{
    choice c = {};
    layout &l = c.l;
    const variant &v = variants[p->variant];
    l.across = v.across;
    l.stays = v.stays;
    int64_t columns = ((p->n < v.most ? p->n : v.most) + l.across - 1) / l.across;
    c.N = columns <= 64 ? 32 : columns <= 128 ? 64 : columns <= 256 ? 128 : 160;
    if (!suits(p, v) || !lay_out_tiles(p, &l) || (p->pools && c.N == 160)) return c;
    if (p->n % 8 || p->k % 8 || p->n < 32 || p->k < 32 || (l.across == 2 && p->n <= 64)) return c;
    int sources = p->prologue == PROLOGUE_APPLY ? 1 : 2, depth = (int)((p->k + DEPTH - 1) / DEPTH);
    int numbers = CHANNEL_NUMBERS * depth * DEPTH + (p->stats ? c.width() + TEAMS * 4 * 4 * c.N : 0);
    int fixed = 1024 + numbers * (int)sizeof(float) + (p->pools ? POOLED_PLACES * c.height() * ROW / 4 : 0);
    l.b_stages = l.stays ? depth : B_STAGES;
    for (l.places = v.places; l.places; l.places--) {
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

/* Rows (m, d) in tiles of so many, parts of images; by 2: those behind the pool. */
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
        <<<prologue_gemm_parts(p, sms) * strips_of(p, c), THREADS, SHARED_BYTES, stream>>>(t, *p, c.l);
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
    int64_t tiles = count_tiles(*p, c.l, c.height()), parts = sms / strips_of(p, c);
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
