/* Both gradients of the last 1 x 1 convolution of a residual block in one pass over the rows: dx = a b^T as in
 * prologue_gemm.cu, and dw = a^T a2, whose sums stay in registers over all tiles. a is batch norm's backward apply of x
 * and other; a2 is the apply of the batch norm before the convolution to x2, or x2 itself. Both are computed in shared
 * memory and not stored.
 *
 * Persistent blocks with 64 or 80 columns each, tiles of 128 rows. a of a tile has one stage per 64 channels. Each of
 * two consumers multiplies its 64 rows of all stages by b, and the transpose of all 128 rows of every second stage by
 * a2. The partial sums of the blocks are added in order afterwards. */
#include "nn/cuda/fused/prologues.cuh"
#include "nn/cuda/fused/weight_sums.cuh"
#include "tensor/cuda/cuda.h"

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

enum { MOST_SHARED = 226 << 10 };

/* Stages of each ring, for a form with these steps and columns. */
struct ring_stages {
    int steps, columns, x, other, second;
    int bytes() const
    {
        int tail = columns > DEPTH;
        return 1024 + steps * columns * ROW + (x + other + second) * STAGE + tail * second * HEIGHT * TAIL_ROW +
               CONSUMERS * BOX + CHANNEL_COEFFICIENTS * (steps + 1 + tail) * DEPTH * (int)sizeof(float);
    }
};

const ring_stages ring_variants[] = { /* by variant */
                                      { 4, 64, 5, 3, 2 }, { 4, 64, 4, 4, 2 }, { 8, 64, 3, 3, 2 },
                                      { 5, 80, 4, 3, 2 }, { 5, 80, 5, 3, 1 }, { 5, 80, 5, 2, 2 }
};

struct gradient_maps {
    CUtensorMap x, other, b, x2, x2_tail, out;
};

/* full: copied; ready: transformed; empty: released. */
struct gradient_barriers {
    uint64_t x_full[MAX_STAGES], x_ready[MAX_STAGES], x_empty[MAX_STAGES], other_full[MAX_STAGES],
        other_empty[MAX_STAGES], second_full[MAX_STAGES], second_ready[MAX_STAGES], second_empty[MAX_STAGES], b_full;

    /* Arrivals that complete a phase: one copy; the transforming warps; the consumers' warps. */
    __device__ __forceinline__ void make()
    {
        for (int s = 0; s < MAX_STAGES; s++) {
            barrier_init(&x_full[s], 1), barrier_init(&other_full[s], 1), barrier_init(&second_full[s], 1);
            barrier_init(&x_ready[s], 4), barrier_init(&second_ready[s], 4), barrier_init(&other_empty[s], 4);
            barrier_init(&x_empty[s], CONSUMERS * 4), barrier_init(&second_empty[s], CONSUMERS * 4);
        }
        barrier_init(&b_full, 1);
        barrier_publish();
    }
};

/* ---- computing a and a2 --------------------------------------------------------------------------- */

/* Coefficients of a2's channels: (CHANNEL_COEFFICIENTS, count). */
__device__ __forceinline__ void write_second_channels(float *to, int count, const prologue_gemm &j, int first_column)
{
    for (int i = threadIdx.x; i < count && !j.plain; i += blockDim.x) {
        int c = first_column + i;
        bool is = c < j.n;
        to[i] = is ? j.mean2[c] : 0.0f;
        to[count + i] = is ? j.rstd2[c] * j.gain2[c] : 0.0f;
        to[2 * count + i] = is ? j.bias2[c] : 0.0f;
    }
}

/* Transforms COUNT pieces of 16 bytes of x2 to a2 in place, `step` bytes and `rows` rows apart. Rows past the end
 * become 0, because those of a are not. All are read first, as in transform_rows. */
template <int COUNT>
__device__ __forceinline__ void transform_second_at(char *to, int step, int rows, const channel_coefficients &n,
                                                    int left)
{
    uint4 v[COUNT], none = {};
#pragma unroll
    for (int i = 0; i < COUNT; i++) v[i] = *reinterpret_cast<const uint4 *>(to + i * step);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint4 made = transformed<apply_prologue<false>>(n, v[i], none);
        *reinterpret_cast<uint4 *>(to + i * step) = i * rows < left ? made : none;
    }
}

/* left: rows from the first row of the tile to the end. */
template <class F>
__device__ __forceinline__ void transform_second(char *stage, const float *channels, int left)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, first = thread / 8;
    channel_coefficients n;
    n.read(channels + chunk * 8, F::second_channels);
    transform_second_at<HEIGHT / 16>(stage + first * ROW + ((chunk ^ (first % 8)) << 4), 16 * ROW, 16, n, left - first);
    if constexpr (F::tail) {
        int half = thread % 2, row = thread / 2; /* swizzled by the third bit of the row */
        n.read(channels + DEPTH + half * 8, F::second_channels);
        transform_second_at<HEIGHT / 64>(stage + STAGE + row * TAIL_ROW + ((half ^ (row / 4 % 2)) << 4), 64 * TAIL_ROW,
                                         64, n, left - row);
    }
}

/* Called by a warp that has transformed its part of a stage. */
__device__ __forceinline__ void publish_transformed(uint64_t *ready, uint64_t *empty)
{
    shared_publish();
    __syncwarp();
    if (!elected()) return;
    barrier_arrive(ready);
    if (empty) barrier_arrive(empty);
}

/* Main loop of the transforming warpgroup. */
template <class F>
__device__ void transform_operands(ring x, ring other, ring second, gradient_barriers &s, const block_tiles &w,
                                   const float *channels, const float *second_channels, const prologue_gemm &j)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, first = thread / 8;
    int offset = first * ROW + ((chunk ^ (first % 8)) << 4); /* swizzled by the low three bits of the row */
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        if (!j.plain) {
            barrier_wait(&second.full[second.at], second.parity);
            transform_second<F>(second.here(), second_channels, (int)j.m - tile * HEIGHT);
            publish_transformed(&s.second_ready[second.at], nullptr);
            second.next();
        }
        for (int step = 0; step < F::steps; step++) {
            channel_coefficients n;
            n.read(channels + step * DEPTH + chunk * 8, F::steps * DEPTH);
            barrier_wait(&x.full[x.at], x.parity);
            barrier_wait(&other.full[other.at], other.parity);
            transform_rows<dx_prologue, HEIGHT>(x.here() + offset, other.here() + offset, n);
            publish_transformed(&s.x_ready[x.at], &other.empty[other.at]);
            x.next();
            other.next();
        }
    }
}

/* ---- copying ------------------------------------------------------------------------------------- */

/* Registers per thread of each role; their sum is at most what the kernel starts with. */
template <class F>
struct gradient_registers {
    static constexpr int load_registers = F::steps == 4 ? 40 : 24, transform_registers = F::steps == 4 ? 128 : 88,
                         multiply_registers = F::steps == 4 ? 168 : 200;
};

__device__ void copy_all_b(char *to, uint64_t *full, const CUtensorMap *map, const block_tiles &w, int bytes)
{
    barrier_expect(full, w.depth * bytes);
    for (int step = 0; step < w.depth; step++) copy_box(to + step * bytes, map, step * DEPTH, w.first_column, full);
}

/* One stage per tile. */
template <class F>
__device__ void copy_second(ring r, const block_tiles &w, const gradient_maps &t)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        r.begin_fill();
        copy_box(r.here(), &t.x2, w.first_column, tile * HEIGHT, &r.full[r.at]);
        if constexpr (F::tail)
            copy_box(r.here() + STAGE, &t.x2_tail, w.first_column + DEPTH, tile * HEIGHT, &r.full[r.at]);
        r.next();
    }
}

template <class F>
__global__ void __launch_bounds__(THREADS, 1)
    gradients_gemm_kernel(const __grid_constant__ gradient_maps t, const __grid_constant__ prologue_gemm j,
                          const __grid_constant__ ring_stages r)
{
    extern __shared__ char memory[];
    __shared__ gradient_barriers s;
    block_tiles w = block_tiles_of(j.n, F::steps * DEPTH, F::columns, HEIGHT, (j.m + HEIGHT - 1) / HEIGHT);
    char *b = shared_begin(memory), *x_at = b + F::steps * F::b_stage, *other_at = x_at + r.x * STAGE,
         *second_at = other_at + r.other * STAGE, *results = second_at + r.second * F::second;
    float *channels = (float *)(results + CONSUMERS * BOX),
          *second_channels = channels + CHANNEL_COEFFICIENTS * F::steps * DEPTH;
    write_channels<dx_prologue>(channels, F::steps * DEPTH, j);
    write_second_channels(second_channels, F::second_channels, j, w.first_column);
    if (threadIdx.x == 0) s.make();
    __syncthreads();
    ring x = { x_at, s.x_full, s.x_empty, STAGE, r.x, 0, 0 };
    ring other = { other_at, s.other_full, s.other_empty, STAGE, r.other, 0, 0 };
    ring second = { second_at, s.second_full, s.second_empty, F::second, r.second, 0, 0 };
    using R = gradient_registers<F>;
    int warp = warp_number();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::load_registers));
        if (!elected()) return;
        if (warp == 0) copy_rows(x, w, &t.x);
        else if (warp == 1) copy_rows(other, w, &t.other);
        else if (warp == 2) copy_second<F>(second, w, t);
        else copy_all_b(b, &s.b_full, &t.b, w, F::b_stage);
    } else if (warp < 8) {
        if constexpr (R::transform_registers < 128)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::transform_registers));
        transform_operands<F>(x, other, second, s, w, channels, second_channels, j);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiply_registers));
        ring a = { x_at, s.x_ready, s.x_empty, STAGE, r.x, 0, 0 };
        ring a2 = { second_at, j.plain ? s.second_full : s.second_ready, s.second_empty, F::second, r.second, 0, 0 };
        barrier_wait(&s.b_full, 0);
        if (warp < 12) consume<0, F>(a, a2, results, b, w, &t.out, j);
        else consume<1, F>(a, a2, results, b, w, &t.out, j);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

cudaError_t make_maps(gradient_maps *t, const prologue_gemm *p, const ring_stages &r)
{
    cudaError_t e = tensor_map_rows(&t->x, p->x, p->m, p->k, DEPTH, HEIGHT);
    if (e == cudaSuccess) e = tensor_map_rows(&t->other, p->other, p->m, p->k, DEPTH, HEIGHT);
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, r.columns);
    if (e == cudaSuccess) e = tensor_map_rows(&t->x2, p->x2, p->m, p->n, DEPTH, HEIGHT);
    if (e == cudaSuccess && r.columns > DEPTH)
        e = tensor_map_rows(&t->x2_tail, p->x2, p->m, p->n, TAIL, HEIGHT, CU_TENSOR_MAP_SWIZZLE_32B);
    return e == cudaSuccess ? tensor_map_rows(&t->out, p->y, p->m, p->n, 64, ROWS) : e;
}

template <class F>
cudaError_t launch(cudaStream_t stream, const prologue_gemm *p, const ring_stages &r, int blocks)
{
    gradient_maps t = {};
    cudaError_t e = make_maps(&t, p, r);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(gradients_gemm_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_SHARED);
    if (e != cudaSuccess) return e;
    gradients_gemm_kernel<F><<<blocks, THREADS, r.bytes(), stream>>>(t, *p, r);
    return cudaGetLastError();
}

int column_blocks_of(const prologue_gemm *p, const ring_stages &r) { return (int)((p->n + r.columns - 1) / r.columns); }

} // namespace

extern "C" {

int gradients_gemm_parts(const prologue_gemm *p, int sms)
{
    if (p->variant >= (int)(sizeof ring_variants / sizeof *ring_variants)) return 0;
    const ring_stages &r = ring_variants[p->variant];
    int64_t depth = r.steps * DEPTH, spare = r.columns > DEPTH ? DEPTH : 2 * DEPTH; /* a form with fewer steps fits */
    int64_t least = r.columns > DEPTH ? DEPTH + 8 : 32, most = r.columns > DEPTH ? r.columns : 2 * DEPTH;
    bool fits = p->prologue == PROLOGUE_DX && p->k > depth - spare && p->k <= depth && p->k % 8 == 0 && p->n >= least &&
                p->n <= most && p->n % 8 == 0 && p->m > 0;
    int64_t tiles = (p->m + HEIGHT - 1) / HEIGHT, parts = sms / column_blocks_of(p, r);
    return !fits ? 0 : (int)(tiles < parts ? tiles : parts);
}

cudaError_t gradients_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    int parts = gradients_gemm_parts(p, sms);
    if (parts == 0) return cudaErrorInvalidConfiguration;
    const ring_stages &r = ring_variants[p->variant];
    int blocks = parts * column_blocks_of(p, r);
    return r.steps == 4   ? launch<form<4, 64>>(stream, p, r, blocks)
           : r.steps == 5 ? launch<form<5, 80>>(stream, p, r, blocks)
                          : launch<form<8, 64>>(stream, p, r, blocks);
}

} // extern "C"
