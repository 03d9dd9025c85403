/* Persistent blocks, one per multiprocessor; each has a range of columns and processes tiles of rows. Consumer
 * warpgroups multiply 64 rows by 64 or 128 columns each; a producer warpgroup issues bulk copies. Consumers split the
 * columns, or the rows if there are few columns. The block's columns of b are resident in shared memory if they fit;
 * otherwise each stage holds a part of a and of b.
 *
 * Epilogue inputs and outputs are bulk copies as well, in boxes of 64 x 64: inputs have slots, outputs alternate
 * between two buffers (one if memory is short). 8 x 8 matrices in the layout of wgmma move between boxes and registers.
 * Sums over rows stay in registers until the block's last tile. */
#include "nn/cuda/fused/weight_sums.cuh"
#include "nn/cuda/gemm_epilogues.cuh"
#include "tensor/cuda/cuda.h"

namespace {

enum {
    ROWS = 64, /* per consumer warpgroup */
    MAX_STAGES = 8,
    MAX_SLOTS = 2,
    SHARED_BYTES = 216 << 10, /* dynamic, in addition to what kernels declare */
    POOLED_BOX = BOX / 4
};

struct maps {
    CUtensorMap a, b, in[3], out, pooled;
};

/* Of dynamic shared memory, in this order: b if it is resident, slots for epilogue inputs, output buffers, stages. */
struct layout {
    int across; /* consumers that split the columns; the others split the rows */
    bool b_resident;
    int stages, stage_bytes, b_bytes, slots, slot_bytes, out_buffers;
    image_tiles tiles;
    int count;            /* number of tiles */
    int out_buffer_bytes; /* one box of the result, and its pooled rows */
};

/* Zeroes buffers whose boxes have fewer rows than the buffer; copies never write the rest. Called by the whole block,
 * before the first copy. */
__device__ void clear_shared(char *from, const char *end)
{
    for (char *at = from + 16 * threadIdx.x; at < end; at += 16 * blockDim.x)
        *reinterpret_cast<uint4 *>(at) = make_uint4(0, 0, 0, 0);
    shared_publish();
}

/* ---- the GEMM ------------------------------------------------------------------------------------- */

/* Rows of a in a stage, including rows that stay zero. */
__device__ __forceinline__ int stage_rows(const block_tiles &w) { return w.height < ROWS ? ROWS : w.height; }

/* Copies a tile: rows from `row` on, or TILED: image positions. */
template <bool TILED>
__device__ __forceinline__ void copy_tile(char *to, const CUtensorMap *map, int column, const image_tiles &l, int tile,
                                          int row, uint64_t *full)
{
    if constexpr (TILED)
        copy_box3(to, map, column, tile % l.tiles_per_line * l.width, tile / l.tiles_per_line * l.height, full);
    else copy_box(to, map, column, row, full);
}

template <bool TILED>
__device__ void copy_operands(ring r, const block_tiles &w, const maps &t, const layout &l, char *b, uint64_t *b_full)
{
    if (l.b_resident) {
        barrier_expect(b_full, l.b_bytes);
        for (int s = 0; s < w.depth; s++)
            copy_box(b + s * w.width * DEPTH * 2, &t.b, s * DEPTH, w.first_column, b_full);
    }
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            r.begin_fill((w.height + (l.b_resident ? 0 : w.width)) * DEPTH * 2);
            for (int y = 0; y < w.height; y += ROWS)
                copy_tile<TILED>(r.here() + y * DEPTH * 2, &t.a, s * DEPTH, l.tiles, tile, tile * w.height + y,
                                 &r.full[r.at]);
            if (!l.b_resident)
                copy_box(r.here() + stage_rows(w) * DEPTH * 2, &t.b, s * DEPTH, w.first_column, &r.full[r.at]);
            r.next();
        }
}

/* Copies the epilogue inputs of one consumer in boxes of 64 columns, tile by tile. TILED: the second input is the
 * pooled one. */
template <bool TILED>
__device__ void copy_inputs(ring r, const block_tiles &w, const maps &t, const image_tiles &l, int inputs, int column,
                            int row, int width)
{
    image_tiles small = { l.rows / 4, l.width / 2, l.height / 2, l.tiles_per_line };
    int rows = TILED ? (inputs - 1) * l.rows + small.rows : inputs * ROWS;
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int x = 0; x < width; x += 64) {
            r.begin_fill(rows * DEPTH * 2);
            for (int i = 0; i < inputs; i++)
                copy_tile<TILED>(r.here() + i * BOX, &t.in[i], column + x, i == 1 ? small : l, tile,
                                 tile * w.height + row, &r.full[r.at]);
            r.next();
        }
}

/* Stores one box of results, and its pooled rows. */
template <bool TILED>
__device__ __forceinline__ void send_results(const maps &t, const layout &l, bool pools, const char *out, int column,
                                             int tile, int row)
{
    if constexpr (TILED) {
        int x = tile % l.tiles.tiles_per_line * l.tiles.width, line = tile / l.tiles.tiles_per_line * l.tiles.height;
        store_tile(&t.out, out, column, x, line);
        if (pools) store_tile(&t.pooled, out + BOX, column, x / 2, line / 2);
    } else store_box(&t.out, out, column, row);
}

/* Main loop of a consumer. b: its columns of the resident b, or of b in the first stage; vector: one value per column;
 * results: its output buffers. DW > 0: the tile has DW stages, and their transposes times the third input are summed as
 * well: the gradient of the weight. */
template <int CONSUMERS, template <int> class E, int N, int DW>
__device__ void consume(ring factors, ring inputs, const block_tiles &w, const maps &t, const fused_gemm &j,
                        const layout &l, int consumer, const char *b, const float *vector, char *results, float *cell)
{
    float c[N], dw[N / 32][DW ? DW : 1][32] = {};
    const char *resident[DW ? DW : 1];
    E<N> epilogue;
    int lane = threadIdx.x % 32, below = consumer / l.across * ROWS, place = 0,
        column = w.first_column + consumer % l.across * 2 * N;
    epilogue.begin(l.tiles);
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        int row = tile * w.height + below, first = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
        bool counts[2] = { first < j.m, first + 8 < j.m };
        if constexpr (DW > 0) multiply_resident(c, factors, b, w.width * DEPTH * 2, resident);
        else
            multiply_stages(c, factors, w.depth, false, [&](int s) -> stage_operands {
                return { factors.here() + below * DEPTH * 2,
                         b + (l.b_resident ? s * w.width * DEPTH * 2 : factors.at * factors.bytes) };
            });
#pragma unroll
        for (int box = 0; box < N / 32; box++) {
            char *out = results + place * l.out_buffer_bytes;
            if (l.out_buffers == 1) {
                wait_stores();
                consumer_barrier(consumer);
            }
            if (E<N>::inputs) barrier_wait(&inputs.full[inputs.at], inputs.parity);
            if constexpr (DW > 0) begin_products<ROWS>(dw[box], resident, inputs.here() + 2 * BOX);
            if (E<N>::tiled && j.pools) pool_box(out + BOX, inputs.here() + 2 * BOX, l.tiles);
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
                if (elected()) barrier_arrive(&inputs.empty[inputs.at]);
                inputs.next();
            }
            if (l.out_buffers == 2) wait_stores(); /* after the barrier the other buffer is free */
            shared_publish();
            consumer_barrier(consumer);
            if (is_leader()) send_results<E<N>::tiled>(t, l, j.pools, out, column + 64 * box, tile, row);
            place = l.out_buffers - 1 - place;
        }
        for (int s = 0; s < DW; s++) {
            if (elected()) barrier_arrive(&factors.empty[factors.at]);
            factors.next();
        }
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < DW * (N / 32); i++) {
        int s = i / (N / 32), box = i % (N / 32);
        write_products(j.dw_partial + w.part * j.k * j.n, dw[box][s], 64 * s, column + 64 * box, j.k, j.n);
    }
    write_warp_sums(epilogue.total, cell + (threadIdx.x / 32 + CONSUMERS * 4 - blockDim.x / 32) * 4 * N);
    asm volatile("bar.sync 15, %0;" ::"n"(CONSUMERS * 128) : "memory");
    add_warp_sums<CONSUMERS, N>(j.partial, cell, w, j.n, l.across);
}

/* ---- launching ----------------------------------------------------------------------------------- */

int inputs_of(gemm_epilogue e) { return e == EPILOGUE_REDUCE ? 3 : 0; }

/* Tiles for a pooled input: the largest number of rows that fits, in long pieces of lines. */
image_tiles tiles_of(const fused_gemm *p)
{
    enum { SHORT = 12 };
    int line = (int)p->line;
    image_tiles best = { line ? 0 : ROWS, 0, 0, 0 };
    for (int width = 2; width <= line; width += 2) {
        int height = ROWS / width / 2 * 2;
        if (line % width == 0 && (width >= SHORT || width == line) && width * height >= best.rows)
            best = { width * height, width, height, line / width };
    }
    return best;
}

/* Number of tiles of `height` rows, or of image positions. */
int count_tiles(const fused_gemm *p, const image_tiles &l, int height)
{
    if (!l.tiles_per_line) return (int)((p->m + height - 1) / height);
    int64_t lines = p->m / p->line;
    return (int)((lines + l.height - 1) / l.height) * l.tiles_per_line;
}

/* Tensor map of rows (m, d) in boxes of one tile and DEPTH columns; small: of the pooled rows. */
cudaError_t map_tiles(CUtensorMap *map, const void *rows, const fused_gemm *p, int64_t d, const image_tiles &l,
                      bool small)
{
    if (!l.tiles_per_line) return tensor_map_rows(map, rows, p->m, d, DEPTH, ROWS);
    cuuint64_t by = small ? 2 : 1, line = (cuuint64_t)p->line / by, lines = (cuuint64_t)(p->m / p->line) / by;
    cuuint64_t size[3] = { (cuuint64_t)d, line, lines }, stride[2] = { (cuuint64_t)d * 2, line * (cuuint64_t)d * 2 };
    cuuint32_t part[3] = { DEPTH, (cuuint32_t)l.width / (cuuint32_t)by, (cuuint32_t)l.height / (cuuint32_t)by };
    return tensor_map_encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rows, 3, size, stride, part,
                             CU_TENSOR_MAP_SWIZZLE_128B);
}

/* Tensor maps of the epilogue's inputs and outputs. */
cudaError_t map_epilogue(maps *t, const fused_gemm *p, const image_tiles &l)
{
    const void *in[] = { p->x, p->other, p->mask };
    cudaError_t e = map_tiles(&t->out, p->y, p, p->n, l, false);
    for (int i = 0; i < inputs_of(p->epilogue) && e == cudaSuccess; i++)
        e = map_tiles(&t->in[i], in[i], p, p->n, l, i == 1);
    return e == cudaSuccess && p->pools ? map_tiles(&t->pooled, p->pooled, p, p->n, l, true) : e;
}

/* N accumulators per thread: a consumer has 2 N columns. The first warpgroup copies: warp 0 the operands, warp
 * 1 + i % 3 the epilogue inputs of consumer i. */
template <int CONSUMERS, template <int> class E, int N, int DW>
__global__ void __launch_bounds__(128 + CONSUMERS * 128, 1)
    fused_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ fused_gemm j,
                      const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES], in_full[CONSUMERS][MAX_SLOTS],
        in_empty[CONSUMERS][MAX_SLOTS], b_full;
    __shared__ __align__(16) float column[CONSUMERS * 2 * N];
    __shared__ float cell[CONSUMERS * 4 * 2 * 2 * N];
    char *b = shared_begin(memory), *slots = b + l.b_bytes;
    char *results = slots + CONSUMERS * l.slots * l.slot_bytes,
         *stages = results + CONSUMERS * l.out_buffers * l.out_buffer_bytes;
    block_tiles w = block_tiles_of(j.n, j.k, l.across * 2 * N, CONSUMERS / l.across * l.tiles.rows, l.count);
    for (int i = threadIdx.x; i < w.width; i += blockDim.x)
        column[i] = j.column && w.first_column + i < j.n ? j.column[w.first_column + i] : 0.0f;
    if (threadIdx.x == 0) {
        for (int s = 0; s < l.stages; s++)
            barrier_init(&full[s], 1), barrier_init(&empty[s], CONSUMERS * 4); /* one per multiplying warp */
        for (int s = 0; s < CONSUMERS * MAX_SLOTS; s++)
            barrier_init(&in_full[0][0] + s, 1), barrier_init(&in_empty[0][0] + s, 4);
        barrier_init(&b_full, 1);
        barrier_publish();
    }
    if (E<N>::tiled && l.tiles.rows < ROWS) clear_shared(slots, stages + l.stages * l.stage_bytes);
    __syncthreads();
    ring factors = { stages, full, empty, l.stage_bytes, l.stages, 0, 0 };
    auto inputs_of_consumer = [&](int consumer) -> ring {
        return { slots + consumer * l.slots * l.slot_bytes,
                 in_full[consumer],
                 in_empty[consumer],
                 l.slot_bytes,
                 l.slots,
                 0,
                 0 };
    };
    int warp = warp_number();
    if (warp < 4) {
        if constexpr (CONSUMERS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        int consumer = threadIdx.x % 32; /* lane i of warp 1 + i % 3 serves consumer i */
        if (warp == 0) {
            if (elected()) copy_operands<E<N>::tiled>(factors, w, t, l, b, &b_full);
        } else if (E<N>::inputs && consumer < CONSUMERS && warp == 1 + consumer % 3)
            copy_inputs<E<N>::tiled>(inputs_of_consumer(consumer), w, t, l.tiles, E<N>::inputs,
                                     w.first_column + consumer % l.across * 2 * N, consumer / l.across * ROWS, 2 * N);
    } else {
        if constexpr (CONSUMERS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        else asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
        if (l.b_resident) barrier_wait(&b_full, 0);
        int consumer = warp / 4 - 1, shift = consumer % l.across * 2 * N;
        const char *b_mine = (l.b_resident ? b : stages + stage_rows(w) * DEPTH * 2) + shift * DEPTH * 2;
        consume<CONSUMERS, E, N, DW>(factors, inputs_of_consumer(consumer), w, t, j, l, consumer, b_mine,
                                     column + shift, results + consumer * l.out_buffers * l.out_buffer_bytes, cell);
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

struct choice {
    int consumers, columns; /* columns per consumer */
    layout l;
    int width() const { return columns * l.across; }
    int height() const { return consumers / l.across * l.tiles.rows; }
    int stage_rows() const { return consumers / l.across * ROWS; }
};

/* With a pooled input all consumers must split the columns. */
bool is_flat(const fused_gemm *p, const choice &c) { return p->line == 0 || c.l.across == c.consumers; }

bool narrow(const fused_gemm *p) { return p->consumers == FUSED_GEMM_NARROW; }

/* Dynamic shared memory: two narrow consumers declare half as much for their sums. */
int shared_bytes(const choice &c) { return SHARED_BYTES + (c.consumers * c.columns <= 128 ? 4 << 10 : 0); }

/* Lays out shared memory; stages is 0 if it does not fit. */
void lay_out(choice &c, const fused_gemm *p, bool b_resident)
{
    layout &l = c.l;
    l.tiles = tiles_of(p), l.count = count_tiles(p, l.tiles, c.height());
    l.out_buffer_bytes = BOX + (p->pools ? POOLED_BOX : 0);
    int depth = (int)((p->k + DEPTH - 1) / DEPTH), b_step = c.width() * DEPTH * 2;
    l.b_resident = b_resident;
    l.b_bytes = b_resident ? depth * b_step : 0;
    l.stage_bytes = c.stage_rows() * DEPTH * 2 + (b_resident ? 0 : b_step);
    l.slot_bytes = inputs_of(p->epilogue) * BOX;
    int enough = narrow(p) && p->dw ? 2 * depth : 3; /* all stages of the next tile */
    for (int level = 2; level >= 0;
         level--) { /* two slots and buffers, then one slot (narrow: buffer), then one of each */
        l.slots = l.slot_bytes ? (level == 2 || (level == 1 && narrow(p)) ? MAX_SLOTS : 1) : 0;
        l.out_buffers = level == 2 || (level == 1 && !narrow(p)) ? 2 : 1;
        int left = shared_bytes(c) - 1024 - l.b_bytes -
                   c.consumers * (l.slots * l.slot_bytes + l.out_buffers * l.out_buffer_bytes);
        l.stages = left < 2 * l.stage_bytes ? 0 : left / l.stage_bytes;
        if (l.stages > MAX_STAGES) l.stages = MAX_STAGES;
        if (l.stages >= enough || (level == 1 && narrow(p) && l.stages > depth)) break;
    }
}

int column_blocks_of(const fused_gemm *p, const choice &c) { return (int)((p->n + c.width() - 1) / c.width()); }

/* Elements of a and b that all blocks read. */
double traffic(const fused_gemm *p, const choice &c)
{
    double a = (double)p->m * (double)p->k * column_blocks_of(p, c);
    return a + (c.l.b_resident ? 0.0 : a * c.width() / c.height());
}

/* With dw: two consumers that split the columns, all stages of a tile at once, and at most 128 sums per thread: one
 * stage and 128 columns per consumer, or up to four stages and 64 columns. */
choice choose_dw(const fused_gemm *p)
{
    choice c = {};
    c.consumers = 2, c.columns = p->k <= DEPTH ? 128 : 64, c.l.across = 2;
    if (narrow(p) && c.columns == 128) return c;
    if (p->epilogue == EPILOGUE_REDUCE && p->consumers != 4 && p->k <= 4 * DEPTH && p->n > c.columns)
        lay_out(c, p, true);
    if (c.l.stages * DEPTH <= p->k) c.l.stages = 0;
    return c;
}

/* The arrangement of the consumers that reads the fewest elements. */
choice choose(const fused_gemm *p)
{
    if (p->dw) return choose_dw(p);
    choice best = {};
    double min = 1e300;
    for (int i = 0; i < 6; i++) {
        choice c = {};
        c.consumers = narrow(p) ? 2 : p->consumers;
        c.columns = c.consumers == 4 || narrow(p) ? 64 : 128;
        c.l.across = i % 3 == 0 ? 4 : i % 3 == 1 ? 2 : 1;
        if (c.l.across > c.consumers || !is_flat(p, c) || (c.columns == 128 && p->n <= 64) ||
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
    cudaError_t e = map_tiles(&t->a, p->a, p, p->k, c.l.tiles, false);
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, c.width());
    return e == cudaSuccess ? map_epilogue(t, p, c.l.tiles) : e;
}

template <int CONSUMERS, template <int> class E, int N, int DW = 0>
cudaError_t launch(cudaStream_t stream, const fused_gemm *p, const choice &c, int sms)
{
    maps t = {};
    cudaError_t e = make_maps(&t, p, c);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(fused_gemm_kernel<CONSUMERS, E, N, DW>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 shared_bytes(c));
    if (e != cudaSuccess) return e;
    fused_gemm_kernel<CONSUMERS, E, N, DW>
        <<<fused_gemm_parts(p, sms) * column_blocks_of(p, c), 128 + CONSUMERS * 128, shared_bytes(c), stream>>>(t, *p,
                                                                                                                c.l);
    return cudaGetLastError();
}

template <template <int> class E>
cudaError_t launch_epilogue(cudaStream_t stream, const fused_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.stages < 1) return cudaErrorInvalidConfiguration;
    return c.consumers == 4 ? launch<4, E, 32>(stream, p, c, sms)
           : narrow(p)      ? launch<2, E, 32>(stream, p, c, sms)
                            : launch<2, E, 64>(stream, p, c, sms);
}

template <template <int> class E>
cudaError_t launch_dw(cudaStream_t stream, const fused_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.stages < 1) return cudaErrorInvalidConfiguration;
    return p->k <= DEPTH       ? launch<2, E, 64, 1>(stream, p, c, sms)
           : p->k <= 2 * DEPTH ? launch<2, E, 32, 2>(stream, p, c, sms)
           : p->k <= 3 * DEPTH ? launch<2, E, 32, 3>(stream, p, c, sms)
                               : launch<2, E, 32, 4>(stream, p, c, sms);
}

} // namespace

extern "C" {

bool fused_gemm_takes(int64_t n, int64_t k) { return n % 8 == 0 && k % 8 == 0 && n >= 32; }

int fused_gemm_parts(const fused_gemm *p, int sms)
{
    if (tiles_of(p).rows == 0) return 0;
    choice c = choose(p);
    if (c.l.stages == 0) return 0;
    int parts = sms / column_blocks_of(p, c);
    if (parts > c.l.count) parts = c.l.count;
    return parts < 1 ? 1 : parts;
}

cudaError_t fused_gemm_run(cudaStream_t stream, const fused_gemm *p, int sms)
{
    if (p->dw) return p->line ? launch_dw<spread_epilogue>(stream, p, sms) : launch_dw<reduce_epilogue>(stream, p, sms);
    if (p->epilogue == EPILOGUE_STATS) return launch_epilogue<stats_epilogue>(stream, p, sms);
    return p->line ? launch_epilogue<spread_epilogue>(stream, p, sms)
                   : launch_epilogue<reduce_epilogue>(stream, p, sms);
}

cudaError_t transpose_bf16(cudaStream_t stream, void *to, const void *from, int64_t rows, int64_t cols)
{
    dim3 grid((unsigned)((cols + 31) / 32), (unsigned)((rows + 31) / 32));
    transpose_kernel<<<grid, dim3(32, 8), 0, stream>>>((uint16_t *)to, (const uint16_t *)from, (int)rows, (int)cols);
    return cudaGetLastError();
}

} // extern "C"
