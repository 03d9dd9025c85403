/* Both gradients of a block's last 1 x 1 convolution in one walk down the rows: dx = a b^T as in prologue_gemm.cu,
 * and dw = a^T a2, whose sums stay in registers over a block's whole walk. a is batch norm's backward apply of x and
 * other, a2 the apply of the batch norm before the convolution, of x2, or x2 itself; both are made in shared memory
 * and never leave it.
 *
 * One block per multiprocessor and strip of 64 or 80 columns, tiles of 128 rows. A tile's a lies in so many stages of
 * 64 channels. Each of two teams multiplies its 64 rows of all stages by b, and all 128 rows of every second stage,
 * turned, by a2. Blocks leave their sums to be added in order.
 *
 * With reduce the backward reduction of a2's batch norm, of dx, is done as dx leaves: x2 is copied again to where a
 * team's dx leaves from, and dx takes its place. */
#include "nn/cuda/fused/gradient_teams.cuh"
#include "tensor/cuda/cuda.h"

namespace {

enum { MOST_SHARED = 226 << 10 };

/* Stages of each ring; the form by its numbers. */
struct room {
    int steps, columns, x, other, second;
    int bytes() const
    {
        int tail = columns > DEPTH;
        return 1024 + steps * columns * ROW + (x + other + second) * STAGE + tail * second * HEIGHT * TAIL_ROW +
               TEAMS * BOX + CHANNEL_NUMBERS * (steps + 1 + tail) * DEPTH * (int)sizeof(float);
    }
};

const room rooms[] = { /* by variant */
                       { 4, 64, 5, 3, 2 }, { 4, 64, 4, 4, 2 }, { 8, 64, 3, 3, 2 },
                       { 5, 80, 4, 3, 2 }, { 5, 80, 5, 3, 1 }, { 5, 80, 5, 2, 2 }
};

struct gradient_maps {
    CUtensorMap x, other, b, x2, x2_tail, out;
};

/* full: it was copied; ready: it was made of that; empty: it may be copied to again. */
struct gradient_barriers {
    uint64_t x_full[MAX_STAGES], x_ready[MAX_STAGES], x_empty[MAX_STAGES], other_full[MAX_STAGES],
        other_empty[MAX_STAGES], second_full[MAX_STAGES], second_ready[MAX_STAGES], second_empty[MAX_STAGES], b_full,
        place_full, place_empty; /* where dx leaves from: x2 lies there; it was read */

    /* The numbers of arrivals that end a phase: a copy; the makers' warps; the teams' warps. */
    __device__ __forceinline__ void make()
    {
        for (int s = 0; s < MAX_STAGES; s++) {
            barrier_init(&x_full[s], 1), barrier_init(&other_full[s], 1), barrier_init(&second_full[s], 1);
            barrier_init(&x_ready[s], 4), barrier_init(&second_ready[s], 4), barrier_init(&other_empty[s], 4);
            barrier_init(&x_empty[s], TEAMS * 4), barrier_init(&second_empty[s], TEAMS * 4);
        }
        barrier_init(&b_full, 1), barrier_init(&place_full, 1), barrier_init(&place_empty, TEAMS);
        barrier_publish();
    }
};

/* ---- making a and a2 ----------------------------------------------------------------------------- */

/* Of a2's channels, (CHANNEL_NUMBERS, count). */
__device__ __forceinline__ void write_second_channels(float *to, int count, const prologue_gemm &j, int strip)
{
    for (int i = threadIdx.x; i < count && !j.plain; i += blockDim.x) {
        int c = strip + i;
        bool is = c < j.n;
        to[i] = is ? j.mean2[c] : 0.0f;
        to[count + i] = is ? j.rstd2[c] * j.gain2[c] : 0.0f;
        to[2 * count + i] = is ? j.bias2[c] : 0.0f;
    }
}

/* COUNT times 16 bytes of a2 in x2's place, `step` bytes and `rows` rows apart; 0 where there is no row, since a's are
 * not. All are read first, as in make_rows. */
template <int COUNT>
__device__ __forceinline__ void make_second_at(char *to, int step, int rows, const channel_numbers &n, int left)
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

/* left: rows from the tile's first on. */
template <class F>
__device__ __forceinline__ void make_second(char *stage, const float *channels, int left)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, first = thread / 8;
    channel_numbers n;
    n.read(channels + chunk * 8, F::second_channels);
    make_second_at<HEIGHT / 16>(stage + first * ROW + ((chunk ^ (first % 8)) << 4), 16 * ROW, 16, n, left - first);
    if constexpr (F::tail) {
        int half = thread % 2, row = thread / 2; /* swizzled by the row's third bit */
        n.read(channels + DEPTH + half * 8, F::second_channels);
        make_second_at<HEIGHT / 64>(stage + STAGE + row * TAIL_ROW + ((half ^ (row / 4 % 2)) << 4), 64 * TAIL_ROW, 64,
                                    n, left - row);
    }
}

/* A warp has made its part of a stage. */
__device__ __forceinline__ void publish_made(uint64_t *ready, uint64_t *empty)
{
    shared_publish();
    __syncwarp();
    if (!elected()) return;
    barrier_arrive(ready);
    if (empty) barrier_arrive(empty);
}

/* The makers' life. */
template <class F>
__device__ void make_factors(ring x, ring other, ring second, gradient_barriers &s, const share &w,
                             const float *channels, const float *second_channels, const prologue_gemm &j)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, first = thread / 8;
    int offset = first * ROW + ((chunk ^ (first % 8)) << 4); /* swizzled by the row's last three bits */
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        if (!j.plain) {
            barrier_wait(&second.full[second.at], second.parity);
            make_second<F>(second.here(), second_channels, (int)j.m - tile * HEIGHT);
            publish_made(&s.second_ready[second.at], nullptr);
            second.next();
        }
        for (int step = 0; step < F::steps; step++) {
            channel_numbers n;
            n.read(channels + step * DEPTH + chunk * 8, F::steps * DEPTH);
            barrier_wait(&x.full[x.at], x.parity);
            barrier_wait(&other.full[other.at], other.parity);
            make_rows<dx_prologue, HEIGHT>(x.here() + offset, other.here() + offset, n);
            publish_made(&s.x_ready[x.at], &other.empty[other.at]);
            x.next();
            other.next();
        }
    }
}

/* ---- copying ------------------------------------------------------------------------------------- */

/* Registers of a thread that copies, makes factors, multiplies; together at most what the kernel starts with. */
template <class F>
struct gradient_registers {
    static constexpr int copies = F::steps == 4 ? 40 : 24, makes = F::steps == 4 ? 128 : 88,
                         multiplies = F::steps == 4 ? 168 : 200;
};

__device__ void copy_all_b(char *to, uint64_t *full, const CUtensorMap *map, const share &w, int bytes)
{
    barrier_expect(full, w.depth * bytes);
    for (int step = 0; step < w.depth; step++) copy_box(to + step * bytes, map, step * DEPTH, w.strip, full);
}

/* x2 once more, where dx leaves from. */
__device__ void copy_place(ring r, const share &w, const CUtensorMap *map)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        r.begin_fill();
        copy_box(r.here(), map, w.strip, tile * HEIGHT, &r.full[0]);
        r.next();
    }
}

/* One stage a tile. */
template <class F>
__device__ void copy_second(ring r, const share &w, const gradient_maps &t)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        r.begin_fill();
        copy_box(r.here(), &t.x2, w.strip, tile * HEIGHT, &r.full[r.at]);
        if constexpr (F::tail) copy_box(r.here() + STAGE, &t.x2_tail, w.strip + DEPTH, tile * HEIGHT, &r.full[r.at]);
        r.next();
    }
}

template <class F>
__device__ __forceinline__ share gradient_share(const prologue_gemm &j)
{
    int strips = (int)((j.n + F::columns - 1) / F::columns), tiles = (int)((j.m + HEIGHT - 1) / HEIGHT);
    return { (int)blockIdx.x % strips * F::columns,
             F::columns,
             (int)blockIdx.x / strips,
             (int)gridDim.x / strips,
             F::steps,
             tiles,
             HEIGHT };
}

template <class F>
__global__ void __launch_bounds__(THREADS, 1)
    gradients_gemm_kernel(const __grid_constant__ gradient_maps t, const __grid_constant__ prologue_gemm j,
                          const __grid_constant__ room r)
{
    extern __shared__ char memory[];
    __shared__ gradient_barriers s;
    share w = gradient_share<F>(j);
    char *b = shared_begin(memory), *x_at = b + F::steps * F::b_stage, *other_at = x_at + r.x * STAGE,
         *second_at = other_at + r.other * STAGE, *results = second_at + r.second * F::second;
    float *channels = (float *)(results + TEAMS * BOX),
          *second_channels = channels + CHANNEL_NUMBERS * F::steps * DEPTH;
    write_channels<dx_prologue>(channels, F::steps * DEPTH, j);
    write_second_channels(second_channels, F::second_channels, j, w.strip);
    if (threadIdx.x == 0) s.make();
    __syncthreads();
    ring x = { x_at, s.x_full, s.x_empty, STAGE, r.x, 0, 0 };
    ring other = { other_at, s.other_full, s.other_empty, STAGE, r.other, 0, 0 };
    ring second = { second_at, s.second_full, s.second_empty, F::second, r.second, 0, 0 };
    ring place = { results, &s.place_full, &s.place_empty, STAGE, 1, 0, 0 };
    using R = gradient_registers<F>;
    int warp = warp_number();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::copies));
        if (!elected()) return;
        if (warp == 0) copy_rows(x, w, &t.x);
        else if (warp == 1) copy_rows(other, w, &t.other);
        else if (warp == 2) copy_second<F>(second, w, t);
        else {
            copy_all_b(b, &s.b_full, &t.b, w, F::b_stage);
            if (F::reduces) copy_place(place, w, &t.x2);
        }
    } else if (warp < 8) {
        if constexpr (R::makes < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::makes));
        make_factors<F>(x, other, second, s, w, channels, second_channels, j);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiplies));
        ring a = { x_at, s.x_ready, s.x_empty, STAGE, r.x, 0, 0 };
        ring a2 = { second_at, j.plain ? s.second_full : s.second_ready, s.second_empty, F::second, r.second, 0, 0 };
        barrier_wait(&s.b_full, 0);
        if (warp < 12) work<0, F>(a, a2, place, b, w, &t.out, j, second_channels);
        else work<1, F>(a, a2, place, b, w, &t.out, j, second_channels);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

cudaError_t make_maps(gradient_maps *t, const prologue_gemm *p, const room &r)
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
cudaError_t launch(cudaStream_t stream, const prologue_gemm *p, const room &r, int blocks)
{
    gradient_maps t = {};
    cudaError_t e = make_maps(&t, p, r);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(gradients_gemm_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_SHARED);
    if (e != cudaSuccess) return e;
    gradients_gemm_kernel<F><<<blocks, THREADS, r.bytes(), stream>>>(t, *p, r);
    return cudaGetLastError();
}

template <bool REDUCE>
cudaError_t launch_form(cudaStream_t stream, const prologue_gemm *p, const room &r, int blocks)
{
    return r.steps == 4   ? launch<form<4, 64, REDUCE>>(stream, p, r, blocks)
           : r.steps == 5 ? launch<form<5, 80, REDUCE>>(stream, p, r, blocks)
                          : launch<form<8, 64, REDUCE>>(stream, p, r, blocks);
}

int strips_of(const prologue_gemm *p, const room &r) { return (int)((p->n + r.columns - 1) / r.columns); }

} // namespace

extern "C" {

int gradients_gemm_parts(const prologue_gemm *p, int sms)
{
    if (p->variant >= (int)(sizeof rooms / sizeof *rooms)) return 0;
    const room &r = rooms[p->variant];
    int64_t depth = r.steps * DEPTH, spare = r.columns > DEPTH ? DEPTH : 2 * DEPTH; /* fewer steps would do */
    int64_t least = r.columns > DEPTH ? DEPTH + 8 : 32, most = r.columns > DEPTH ? r.columns : 2 * DEPTH;
    bool fits = p->prologue == PROLOGUE_DX && p->k > depth - spare && p->k <= depth && p->k % 8 == 0 && p->n >= least &&
                p->n <= most && p->n % 8 == 0 && p->m > 0;
    int64_t tiles = (p->m + HEIGHT - 1) / HEIGHT, parts = sms / strips_of(p, r);
    return !fits ? 0 : (int)(tiles < parts ? tiles : parts);
}

cudaError_t gradients_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    int parts = gradients_gemm_parts(p, sms);
    if (parts == 0) return cudaErrorInvalidConfiguration;
    const room &r = rooms[p->variant];
    int blocks = parts * strips_of(p, r);
    return p->reduce ? launch_form<true>(stream, p, r, blocks) : launch_form<false>(stream, p, r, blocks);
}

} // extern "C"
