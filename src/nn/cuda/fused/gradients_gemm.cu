/* Both gradients of a block's last 1 x 1 convolution in one walk down the rows: dx = a b^T as in prologue_gemm.cu,
 * and dw = a^T a2, whose sums stay in registers over a block's whole walk. a is batch norm's backward apply of x and
 * other, a2 the apply of the batch norm before the convolution, of x2, or x2 itself; both are made in shared memory
 * and never leave it.
 *
 * One block per multiprocessor and strip of 64 columns, tiles of 128 rows. A tile's a lies in STEPS (4 or 8) stages
 * of 64 channels. Each of two teams multiplies its 64 rows of all stages by b, and all 128 rows of every second
 * stage, turned, by a2. Blocks leave their sums to be added in order. */
#include "nn/cuda/fused/prologues.cuh"
#include "nn/cuda/fused/weight_sums.cuh"
#include "tensor/cuda/cuda.h"

namespace {

enum { HEIGHT = TEAMS * ROWS, STAGE = HEIGHT * ROW, B_STAGE = 64 * ROW, MOST_SHARED = 226 << 10 };

/* Stages of a tile, and of each ring. */
struct room {
    int steps, x, other, second;
    int bytes() const
    {
        return 1024 + steps * B_STAGE + (x + other + second) * STAGE + TEAMS * BOX +
               CHANNEL_NUMBERS * (steps + 1) * DEPTH * (int)sizeof(float);
    }
};

const room rooms[] = { { 4, 5, 3, 2 }, { 4, 4, 4, 2 }, { 8, 3, 3, 2 } }; /* by variant */

struct gradient_maps {
    CUtensorMap x, other, b, x2, out;
};

/* full: it was copied; ready: it was made of that; empty: it may be copied to again. */
struct gradient_barriers {
    uint64_t x_full[MAX_STAGES], x_ready[MAX_STAGES], x_empty[MAX_STAGES], other_full[MAX_STAGES],
        other_empty[MAX_STAGES], second_full[MAX_STAGES], second_ready[MAX_STAGES], second_empty[MAX_STAGES], b_full;

    /* The numbers of arrivals that end a phase: a copy; a thread of the makers; the teams' warps. */
    __device__ __forceinline__ void make()
    {
        for (int s = 0; s < MAX_STAGES; s++) {
            barrier_init(&x_full[s], 1), barrier_init(&other_full[s], 1), barrier_init(&second_full[s], 1);
            barrier_init(&x_ready[s], 1), barrier_init(&second_ready[s], 1), barrier_init(&other_empty[s], 1);
            barrier_init(&x_empty[s], TEAMS * 4), barrier_init(&second_empty[s], TEAMS * 4);
        }
        barrier_init(&b_full, 1);
        barrier_publish();
    }
};

/* ---- making a and a2 ----------------------------------------------------------------------------- */

/* Of a2's channels. */
__device__ __forceinline__ void write_second_channels(float *to, const prologue_gemm &j, int strip)
{
    for (int i = threadIdx.x; i < DEPTH && !j.plain; i += blockDim.x) {
        int c = strip + i;
        bool is = c < j.n;
        to[i] = is ? j.mean2[c] : 0.0f;
        to[DEPTH + i] = is ? j.rstd2[c] * j.gain2[c] : 0.0f;
        to[2 * DEPTH + i] = is ? j.bias2[c] : 0.0f;
    }
}

/* a2 in x2's place; rows past the last are 0, since a's are not. */
__device__ __forceinline__ void make_second(char *to, const float *channels, int left)
{
    channel_numbers n;
    n.read(channels, DEPTH);
#pragma unroll 4
    for (int row = 0; row < HEIGHT; row += 16) {
        uint4 *at = reinterpret_cast<uint4 *>(to + row * ROW), none = {};
        uint4 made = transformed<apply_prologue<false>>(n, *at, none);
        *at = row < left ? made : none;
    }
}

__device__ __forceinline__ void make_first(char *to, const char *from, const channel_numbers &n)
{
#pragma unroll 4
    for (int row = 0; row < HEIGHT; row += 16) {
        uint4 *at = reinterpret_cast<uint4 *>(to + row * ROW);
        *at = transformed<dx_prologue>(n, *at, *reinterpret_cast<const uint4 *>(from + row * ROW));
    }
}

/* The makers' life. */
template <int STEPS>
__device__ void make_factors(ring x, ring other, ring second, gradient_barriers &s, const share &w,
                             const float *channels, const float *second_channels, const prologue_gemm &j)
{
    int thread = threadIdx.x % 128, chunk = thread % 8, first = thread / 8;
    int offset = first * ROW + ((chunk ^ (first % 8)) << 4); /* swizzled by the row's last three bits */
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        if (!j.plain) {
            barrier_wait(&second.full[second.at], second.parity);
            make_second(second.here() + offset, second_channels + chunk * 8, (int)j.m - tile * HEIGHT - first);
            shared_publish();
            makers_barrier();
            if (thread == 0) barrier_arrive(&s.second_ready[second.at]);
            second.next();
        }
        for (int step = 0; step < STEPS; step++) {
            channel_numbers n;
            n.read(channels + step * DEPTH + chunk * 8, STEPS * DEPTH);
            barrier_wait(&x.full[x.at], x.parity);
            barrier_wait(&other.full[other.at], other.parity);
            make_first(x.here() + offset, other.here() + offset, n);
            shared_publish();
            makers_barrier();
            if (thread == 0) barrier_arrive(&s.x_ready[x.at]), barrier_arrive(&other.empty[other.at]);
            x.next();
            other.next();
        }
    }
}

/* ---- multiplying --------------------------------------------------------------------------------- */

template <int COUNT>
__device__ __forceinline__ void settle_all(float (&c)[32], float (&dw)[COUNT][32])
{
    settle(c);
#pragma unroll
    for (int i = 0; i < COUNT; i++) settle(dw[i]);
}

/* c = the tile's dx, of the team's rows; dw += of the team's stages. A stage is given back once the products after it
 * have begun. */
template <int TEAM, int STEPS>
__device__ __forceinline__ void multiply_tile(float (&c)[32], float (&dw)[STEPS / 2][32], ring &a, const char *b,
                                              const char *second)
{
    int before = 0;
    settle_all(c, dw);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        barrier_wait(&a.full[a.at], a.parity);
        uint64_t da = descriptor(a.here() + TEAM * ROWS * ROW), db = descriptor(b + step * B_STAGE);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) wgmma_k16(c, da + 2 * k, db + 2 * k, step > 0 || k > 0);
        if (step % 2 == TEAM) add_products<HEIGHT>(dw[step / 2], a.here(), second);
        wgmma_commit();
        if (step > 0) {
            wgmma_wait<1>();
            if (threadIdx.x % 32 == 0) barrier_arrive(&a.empty[before]);
        }
        before = a.at;
        a.next();
    }
    wgmma_wait<0>();
    settle_all(c, dw);
    if (threadIdx.x % 32 == 0) barrier_arrive(&a.empty[before]);
}

/* The team's rows of dx leave by the copy engine. */
__device__ __forceinline__ void send_result(const float (&c)[32], char *out, const CUtensorMap *map, int team,
                                            int column, int row)
{
    wait_sent();
    team_barrier(team);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float f[8];
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 8; i++) f[i] = c[8 * k + i];
        join(v, f);
        stmatrix(shared_address(out + matrix_row(k)), v[0], v[1], v[2], v[3]);
    }
    shared_publish();
    team_barrier(team);
    if (is_leader()) store_box(map, out, column, row);
}

/* A team's life. a: full means made. result: its place. */
template <int TEAM, int STEPS>
__device__ void work(ring a, ring second, const char *b, const share &w, const CUtensorMap *out_map,
                     const prologue_gemm &j, char *result)
{
    float c[32], dw[STEPS / 2][32] = {};
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        barrier_wait(&second.full[second.at], second.parity);
        multiply_tile<TEAM, STEPS>(c, dw, a, b, second.here());
        if (threadIdx.x % 32 == 0) barrier_arrive(&second.empty[second.at]);
        second.next();
        send_result(c, result, out_map, TEAM, w.strip, tile * HEIGHT + TEAM * ROWS);
    }
    if (is_leader()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    float *partial = j.partial + (int64_t)w.part * j.k * j.n;
#pragma unroll
    for (int i = 0; i < STEPS / 2; i++) write_products(partial, dw[i], (2 * i + TEAM) * 64, w.strip, j.k, j.n);
}

/* Registers of a thread that copies, makes factors, multiplies; together at most what the kernel starts with. */
template <int STEPS>
struct gradient_registers {
    static constexpr int copies = STEPS == 4 ? 40 : 24, makes = STEPS == 4 ? 128 : 88,
                         multiplies = STEPS == 4 ? 168 : 200;
};

__device__ void copy_all_b(char *to, uint64_t *full, const CUtensorMap *map, const share &w)
{
    barrier_expect(full, w.depth * B_STAGE);
    for (int step = 0; step < w.depth; step++) copy_box(to + step * B_STAGE, map, step * DEPTH, w.strip, full);
}

/* One stage a tile. */
__device__ void copy_second(ring r, const share &w, const CUtensorMap *map)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts) {
        r.begin_fill();
        copy_box(r.here(), map, w.strip, tile * HEIGHT, &r.full[r.at]);
        r.next();
    }
}

__device__ __forceinline__ share gradient_share(const prologue_gemm &j, int steps)
{
    int strips = (int)((j.n + 63) / 64), tiles = (int)((j.m + HEIGHT - 1) / HEIGHT);
    return {
        (int)blockIdx.x % strips * 64, 64, (int)blockIdx.x / strips, (int)gridDim.x / strips, steps, tiles, HEIGHT
    };
}

template <int STEPS>
__global__ void __launch_bounds__(THREADS, 1)
    gradients_gemm_kernel(const __grid_constant__ gradient_maps t, const __grid_constant__ prologue_gemm j,
                          const __grid_constant__ room r)
{
    extern __shared__ char memory[];
    __shared__ gradient_barriers s;
    share w = gradient_share(j, STEPS);
    char *b = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023), *x_at = b + STEPS * B_STAGE,
         *other_at = x_at + r.x * STAGE, *second_at = other_at + r.other * STAGE,
         *results = second_at + r.second * STAGE;
    float *channels = (float *)(results + TEAMS * BOX), *second_channels = channels + CHANNEL_NUMBERS * STEPS * DEPTH;
    write_channels<dx_prologue>(channels, STEPS * DEPTH, j);
    write_second_channels(second_channels, j, w.strip);
    if (threadIdx.x == 0) s.make();
    __syncthreads();
    ring x = { x_at, s.x_full, s.x_empty, STAGE, r.x, 0, 0 };
    ring other = { other_at, s.other_full, s.other_empty, STAGE, r.other, 0, 0 };
    ring second = { second_at, s.second_full, s.second_empty, STAGE, r.second, 0, 0 };
    using R = gradient_registers<STEPS>;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::copies));
        if (threadIdx.x == 0) copy_rows(x, w, &t.x);
        else if (threadIdx.x == 32) copy_rows(other, w, &t.other);
        else if (threadIdx.x == 64) copy_second(second, w, &t.x2);
        else if (threadIdx.x == 96) copy_all_b(b, &s.b_full, &t.b, w);
    } else if (threadIdx.x < 256) {
        if constexpr (R::makes < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::makes));
        make_factors<STEPS>(x, other, second, s, w, channels, second_channels, j);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiplies));
        ring a = { x_at, s.x_ready, s.x_empty, STAGE, r.x, 0, 0 };
        ring a2 = { second_at, j.plain ? s.second_full : s.second_ready, s.second_empty, STAGE, r.second, 0, 0 };
        barrier_wait(&s.b_full, 0);
        if (threadIdx.x < 384) work<0, STEPS>(a, a2, b, w, &t.out, j, results);
        else work<1, STEPS>(a, a2, b, w, &t.out, j, results + BOX);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

cudaError_t make_maps(gradient_maps *t, const prologue_gemm *p)
{
    cudaError_t e = tensor_map_rows(&t->x, p->x, p->m, p->k, DEPTH, HEIGHT);
    if (e == cudaSuccess) e = tensor_map_rows(&t->other, p->other, p->m, p->k, DEPTH, HEIGHT);
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, 64);
    if (e == cudaSuccess) e = tensor_map_rows(&t->x2, p->x2, p->m, p->n, DEPTH, HEIGHT);
    return e == cudaSuccess ? tensor_map_rows(&t->out, p->y, p->m, p->n, 64, ROWS) : e;
}

template <int STEPS>
cudaError_t launch(cudaStream_t stream, const prologue_gemm *p, const room &r, int blocks)
{
    gradient_maps t = {};
    cudaError_t e = make_maps(&t, p);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(gradients_gemm_kernel<STEPS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 MOST_SHARED);
    if (e != cudaSuccess) return e;
    gradients_gemm_kernel<STEPS><<<blocks, THREADS, r.bytes(), stream>>>(t, *p, r);
    return cudaGetLastError();
}

int strips_of(const prologue_gemm *p) { return (int)((p->n + 63) / 64); }

} // namespace

extern "C" {

int gradients_gemm_parts(const prologue_gemm *p, int sms)
{
    if (p->variant >= (int)(sizeof rooms / sizeof *rooms)) return 0;
    int64_t depth = rooms[p->variant].steps * DEPTH;
    bool fits = p->prologue == PROLOGUE_DX && p->k > depth - 2 * DEPTH && p->k <= depth && p->k % 8 == 0 &&
                p->n >= 32 && p->n <= 128 && p->n % 8 == 0 && p->m > 0;
    int64_t tiles = (p->m + HEIGHT - 1) / HEIGHT, parts = sms / strips_of(p);
    return !fits ? 0 : (int)(tiles < parts ? tiles : parts);
}

cudaError_t gradients_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms)
{
    int blocks = gradients_gemm_parts(p, sms) * strips_of(p);
    if (blocks == 0) return cudaErrorInvalidConfiguration;
    const room &r = rooms[p->variant];
    return r.steps == 4 ? launch<4>(stream, p, r, blocks) : launch<8>(stream, p, r, blocks);
}

} // extern "C"
