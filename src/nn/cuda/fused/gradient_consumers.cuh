/* The consumers of gradients_gemm.cu: multiply the operands in shared memory and store dx. */
#ifndef NN_CUDA_FUSED_GRADIENT_CONSUMERS_CUH
#define NN_CUDA_FUSED_GRADIENT_CONSUMERS_CUH

#include "nn/cuda/fused/prologues.cuh"
#include "nn/cuda/fused/weight_sums.cuh"

namespace {

enum { HEIGHT = CONSUMERS * ROWS, STAGE = HEIGHT * ROW };
enum { TAIL = 16, TAIL_ROW = TAIL * 2 }; /* columns beyond 64, and bytes of their rows */

/* Sizes of a kernel: stages of a tile, columns of a block. */
template <int STEPS, int COLUMNS>
struct form {
    static constexpr int steps = STEPS, columns = COLUMNS;
    static constexpr bool tail = COLUMNS > DEPTH;
    static constexpr int b_stage = COLUMNS * ROW, second = STAGE + (tail ? HEIGHT * TAIL_ROW : 0);
    static constexpr int second_channels = tail ? 2 * DEPTH : DEPTH;
    static constexpr int resident = (STEPS + 1) / 2; /* stages whose sums a consumer has, at most */
    static constexpr int sums = COLUMNS / 2;         /* accumulators of a thread */
    static_assert(COLUMNS == DEPTH || COLUMNS == DEPTH + TAIL, "unsupported form");
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

/* Main loop of a consumer. a: full means transformed; results: the output buffers. */
template <int CONSUMER, class F>
__device__ void consume(ring a, ring second, char *results, const char *b, const block_tiles &w,
                        const CUtensorMap *out_map, const prologue_gemm &j)
{
    float c[F::sums];
    consumer_sums<CONSUMER, F> dw = {};
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        barrier_wait(&second.full[second.at], second.parity);
        multiply_tile<CONSUMER, F>(c, dw, a, b, second.here());
        if (elected()) barrier_arrive(&second.empty[second.at]);
        second.next();
        send_result<CONSUMER, F>(c, results, out_map, j, w.first_column, tile * HEIGHT);
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    dw.write(j.partial + (int64_t)w.part * j.k * j.n, w.first_column, j);
}

} // namespace

#endif
