/* The consumers of gradients_gemm.cu: multiply the operands in shared memory and store dx, optionally with the backward
 * reduction of the batch norm before the convolution. */
#ifndef NN_CUDA_FUSED_GRADIENT_CONSUMERS_CUH
#define NN_CUDA_FUSED_GRADIENT_CONSUMERS_CUH

#include "nn/cuda/fused/prologues.cuh"
#include "nn/cuda/fused/tile_sums.cuh"
#include "nn/cuda/fused/weight_sums.cuh"

namespace {

enum { HEIGHT = CONSUMERS * ROWS, STAGE = HEIGHT * ROW };
enum { TAIL = 16, TAIL_ROW = TAIL * 2 }; /* columns beyond 64, and bytes of their rows */

/* Sizes of a kernel: stages of a tile, columns of a block; whether it reduces. */
template <int STEPS, int COLUMNS, bool REDUCE>
struct form {
    static constexpr int steps = STEPS, columns = COLUMNS;
    static constexpr bool reduces = REDUCE;
    static constexpr bool tail = COLUMNS > DEPTH;
    static constexpr int b_stage = COLUMNS * ROW, second = STAGE + (tail ? HEIGHT * TAIL_ROW : 0);
    static constexpr int second_channels = tail ? 2 * DEPTH : DEPTH;
    static constexpr int resident = (STEPS + 1) / 2; /* stages whose sums a consumer has, at most */
    static constexpr int sums = COLUMNS / 2;         /* accumulators of a thread */
    static_assert(COLUMNS == DEPTH || COLUMNS == DEPTH + TAIL, "unsupported form");
    static_assert((int)STAGE == CONSUMERS * (int)BOX && (int)CONSUMERS == (int)REDUCED_PARTS,
                  "x2 shares the output buffers of dx");
};

/* ---- multiplying --------------------------------------------------------------------------------- */

/* A consumer's sums of the weight's gradient: 64 x 64 of every second stage, and 64 x 16 if there is a tail. If the
 * number of stages is odd, the other consumer has the last tail. */
template <int CONSUMER, class F>
struct consumer_sums {
    float main[F::resident][32], tail[F::tail ? F::resident : 1][8];
    static __device__ __forceinline__ constexpr bool has_main(int step) { return step % 2 == CONSUMER; }
    static __device__ __forceinline__ constexpr bool has_tail(int step)
    {
        return F::tail && (step % 2 == CONSUMER) != (F::steps % 2 == 1 && step == F::steps - 1);
    }
    __device__ __forceinline__ void fence_all()
    {
#pragma unroll
        for (int step = 0; step < F::steps; step++) {
            if (has_main(step)) fence_registers(main[step / 2]);
            if (has_tail(step)) fence_registers(tail[step / 2]);
        }
    }
    __device__ __forceinline__ void add(int step, const char *a, const char *second)
    {
        if (has_main(step)) add_products<HEIGHT>(main[step / 2], a, second);
        if (has_tail(step)) add_products<HEIGHT>(tail[step / 2], a, second + STAGE);
    }
    __device__ __forceinline__ void write(float *to, int first_column, const prologue_gemm &j)
    {
#pragma unroll
        for (int step = 0; step < F::steps; step++) {
            if (has_main(step)) write_products(to, main[step / 2], step * 64, first_column, j.k, j.n);
            if (has_tail(step)) write_products(to, tail[step / 2], step * 64, first_column + DEPTH, j.k, j.n);
        }
    }
};

/* c = dx of the consumer's rows; dw += the products of its stages. A stage is released when the next multiplication has
 * been issued. */
template <int CONSUMER, class F>
__device__ __forceinline__ void multiply_tile(float (&c)[F::sums], consumer_sums<CONSUMER, F> &dw, ring &a,
                                              const char *b, const char *second)
{
    int before = 0;
    fence_registers(c);
    dw.fence_all();
#pragma unroll
    for (int step = 0; step < F::steps; step++) {
        barrier_wait(&a.full[a.at], a.parity);
        uint64_t da = descriptor(a.here() + CONSUMER * ROWS * ROW), db = descriptor(b + step * F::b_stage);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) wgmma_k16(c, da + 2 * k, db + 2 * k, step > 0 || k > 0);
        dw.add(step, a.here(), second);
        wgmma_commit();
        if (step > 0) {
            wgmma_wait<1>();
            if (elected()) barrier_arrive(&a.empty[before]);
        }
        before = a.at;
        a.next();
    }
    wgmma_wait<0>();
    fence_registers(c);
    dw.fence_all();
    if (elected()) barrier_arrive(&a.empty[before]);
}

/* Writes sixteen columns of dx, accumulators from[0..7], to columns 16 k of a box. */
__device__ __forceinline__ void put_matrices(const float *from, char *box, int k)
{
    float f[8];
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = from[i];
    join(v, f);
    stmatrix(shared_address(box + matrix_row(k)), v[0], v[1], v[2], v[3]);
}

/* Stores the consumer's rows of dx by bulk copy from its output buffer; the tail from registers. */
template <int CONSUMER, class F>
__device__ __forceinline__ void send_result(const float (&c)[F::sums], char *results, const CUtensorMap *map,
                                            const prologue_gemm &j, int column, int row)
{
    char *out = results + CONSUMER * BOX;
    row += CONSUMER * ROWS;
    wait_stores();
    consumer_barrier(CONSUMER);
#pragma unroll
    for (int k = 0; k < 4; k++) put_matrices(c + 8 * k, out, k);
    shared_publish();
    consumer_barrier(CONSUMER);
    if (is_leader()) store_box(map, out, column, row);
    if constexpr (F::tail) {
        int lane = threadIdx.x % 32, first = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
        column += DEPTH + 2 * (lane % 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = first + i % 2 * 8, at = column + i / 2 * 8;
            if (r < j.m && at < j.n)
                reinterpret_cast<uint32_t *>(j.y)[(r * j.n + at) / 2] = pack_pair(c[32 + 2 * i], c[33 + 2 * i]);
        }
    }
}

/* ---- reducing ------------------------------------------------------------------------------------ */

/* A consumer's sums of g, the masked dx, and of g (x2 - mean2) over the 16 rows of a warp. A lane's total[k] belongs to
 * column 16 k + 8 b3 + 2 b1b0 + b2 and to the first (b4 = 0) or second sum, where b are bits of the lane's index. */
template <int CONSUMER, class F>
struct reduction {
    float total[F::columns / 16];

    /* 16 columns: f of dx, rounded; x of x2. channels: coefficients of a2. */
    __device__ __forceinline__ void take(const float (&f)[8], const float (&x)[8], const float *channels, int k,
                                         const bool (&counts)[2])
    {
        float mean[8], slope[8], bias[8], d[8], g[8], v[1][8];
        columns(mean, channels, k);
        columns(slope, channels + F::second_channels, k);
        columns(bias, channels + 2 * F::second_channels, k);
#pragma unroll
        for (int i = 0; i < 8; i++) { /* the mask as in bn_common.cuh */
            d[i] = x[i] - mean[i];
            g[i] = counts[i / 2 % 2] && fmaf(d[i], slope[i], bias[i]) > 0.0f ? f[i] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) { /* both rows of a column */
            int one = i / 2 * 4 + i % 2, other = one + 2;
            v[0][i] = g[one] + g[other], v[0][4 + i] = fmaf(g[one], d[one], g[other] * d[other]);
        }
        scatter_sums(v);
        total[k] += v[0][0];
    }

    /* Adds the warps' sums in order. cells: (4, 2, second_channels), owned by the consumer. */
    __device__ __forceinline__ void write(float *cells, const block_tiles &w, const prologue_gemm &j)
    {
        int thread = threadIdx.x % 128, lane = thread % 32, width = F::second_channels;
        float *cell = cells + (thread / 32 * 2 + lane / 16) * width + lane / 8 % 2 * 8 + 2 * (lane % 4) + lane / 4 % 2;
#pragma unroll
        for (int k = 0; k < F::columns / 16; k++) cell[16 * k] = total[k];
        consumer_barrier(CONSUMER);
        for (int i = thread; i < 2 * F::columns; i += 128) {
            int which = i / F::columns, at = i % F::columns;
            float sum = 0.0f;
            for (int warp = 0; warp < 4; warp++) sum += cells[(2 * warp + which) * width + at];
            if (w.first_column + at < j.n)
                j.reduced[((int64_t)(w.part * CONSUMERS + CONSUMER) * 2 + which) * j.n + w.first_column + at] = sum;
        }
    }
};

/* The tail: stores 16 columns of dx from registers and reads x2 from global memory. first: the lane's first row. */
template <int CONSUMER, class F>
__device__ __forceinline__ void reduce_tail(const float (&c)[F::sums], reduction<CONSUMER, F> &sums,
                                            const prologue_gemm &j, const float *channels, int column, int first,
                                            const bool (&counts)[2])
{
    column += DEPTH + 2 * (threadIdx.x % 4);
    int64_t at = (first * j.n + column) / 2; /* pairs */
    uint32_t v[4], q[4] = {};
    float f[8], x[8];
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (counts[i % 2] && column + i / 2 * 8 < j.n)
            q[i] = reinterpret_cast<const uint32_t *>(j.x2)[at + i % 2 * 4 * j.n + i / 2 * 4];
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = c[32 + i];
    join(v, f);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (counts[i % 2] && column + i / 2 * 8 < j.n)
            reinterpret_cast<uint32_t *>(j.y)[at + i % 2 * 4 * j.n + i / 2 * 4] = v[i];
    split(f, v);
    split(x, q);
    sums.take(f, x, channels, DEPTH / 16, counts);
}

/* As send_result, with the reduction; the output buffer holds x2 before dx. */
template <int CONSUMER, class F>
__device__ __forceinline__ void reduce_result(const float (&c)[F::sums], reduction<CONSUMER, F> &sums, char *results,
                                              const CUtensorMap *map, const prologue_gemm &j, const float *channels,
                                              int column, int row)
{
    char *out = results + CONSUMER * BOX;
    row += CONSUMER * ROWS;
    int first = row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    bool counts[2] = { first < j.m, first + 8 < j.m };
    if constexpr (F::tail) reduce_tail<CONSUMER, F>(c, sums, j, channels, column, first, counts);
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        uint32_t place = shared_address(out + matrix_row(k)), v[4], q[4];
        float f[8], x[8];
        ldmatrix(q, place);
#pragma unroll
        for (int i = 0; i < 8; i++) f[i] = c[8 * k + i];
        join(v, f);
        stmatrix(place, v[0], v[1], v[2], v[3]);
        split(f, v); /* rounded */
        split(x, q);
        sums.take(f, x, channels, k, counts);
    }
    shared_publish();
    consumer_barrier(CONSUMER);
    if (is_leader()) store_box(map, out, column, row);
}

/* Main loop of a consumer. a: full means transformed; place: ring of the output buffer. channels: coefficients of
 * a2. */
template <int CONSUMER, class F>
__device__ void consume(ring a, ring second, ring place, const char *b, const block_tiles &w,
                        const CUtensorMap *out_map, const prologue_gemm &j, const float *channels)
{
    float c[F::sums];
    consumer_sums<CONSUMER, F> dw = {};
    reduction<CONSUMER, F> sums = {};
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        barrier_wait(&second.full[second.at], second.parity);
        if (F::reduces && is_leader() && tile != w.part) { /* the last store has read its data: x2 may be copied */
            wait_stores();
            barrier_arrive(&place.empty[0]);
        }
        multiply_tile<CONSUMER, F>(c, dw, a, b, second.here());
        if (elected()) barrier_arrive(&second.empty[second.at]);
        second.next();
        if constexpr (F::reduces) {
            barrier_wait(&place.full[0], place.parity);
            place.next();
            reduce_result<CONSUMER, F>(c, sums, place.stage, out_map, j, channels, w.first_column, tile * HEIGHT);
        } else send_result<CONSUMER, F>(c, place.stage, out_map, j, w.first_column, tile * HEIGHT);
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    dw.write(j.partial + (int64_t)w.part * j.k * j.n, w.first_column, j);
    if constexpr (F::reduces) {
        consumer_barrier(CONSUMER); /* after the leader's wait */
        sums.write(reinterpret_cast<float *>(place.stage + CONSUMER * BOX), w, j);
    }
}

} // namespace

#endif
