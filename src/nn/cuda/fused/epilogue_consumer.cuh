/* The warps of a GEMM with an epilogue (fused_gemm_kernels.cu): producers copy the operands and the epilogue's inputs;
 * consumers, the block's last warpgroups, multiply and run the epilogue. */
#ifndef NN_CUDA_FUSED_EPILOGUE_CONSUMER_CUH
#define NN_CUDA_FUSED_EPILOGUE_CONSUMER_CUH

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

struct layout { /* of dynamic shared memory, in this order: b if it is resident, slots for epilogue inputs, output
                   buffers, stages */
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

} // namespace

#endif
