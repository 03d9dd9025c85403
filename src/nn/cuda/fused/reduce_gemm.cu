/* A fused GEMM with the epilogue of batch norm's backward reduction and its weight's gradient (fused_gemm_kernels.cu),
 * whose left factor is itself a backward apply: a block's first 1 x 1 convolution between its own batch norm and the
 * one before. The copy engine brings dy and x1 in pairs of stages, one more warpgroup makes the factor of them, and both
 * GEMMs read it where it lies.
 *
 * One block per multiprocessor and strip of columns: two teams beside each other, tiles of 64 rows. A tile's factor
 * lies in STEPS stages of 64 channels until the tile is done; a pair is free again as soon as the factor is made. */
#include "nn/cuda/fused/team_work.cuh"

namespace {

enum {
    TEAMS = 2,
    THREADS = 256 + TEAMS * 128,
    NUMBERS = 5, /* for each channel: mean, slope, bias; factor of x1 and what is left */
    ROW = DEPTH * 2,
    STAGE = ROWS * ROW
};

/* ---- making the factor --------------------------------------------------------------------------- */

/* The numbers of all channels, by the whole block: (NUMBERS, count); 0 past the last. */
__device__ void write_numbers(float *to, int count, const fused_gemm &j)
{
    for (int c = threadIdx.x; c < count; c += THREADS) {
        float v[NUMBERS] = {};
        if (c < j.k) {
            float slope = j.rstd1[c] * j.gain1[c], m1 = j.sums1[c] / j.count,
                  m2 = j.sums1[j.k + c] / j.count * j.rstd1[c] * slope;
            v[0] = j.mean1[c], v[1] = slope, v[2] = j.bias1[c], v[3] = -m2, v[4] = j.mean1[c] * m2 - slope * m1;
        }
        for (int i = 0; i < NUMBERS; i++) to[i * count + c] = v[i];
    }
}

/* As bn_value of bn_common.cuh: relu's mask comes from the same instructions everywhere. */
__device__ __forceinline__ float applied(const float (&n)[NUMBERS][4], int i, float dy, float x)
{
    float g = fmaf(x - n[0][i], n[1][i], n[2][i]) > 0.0f ? dy : 0.0f;
    return fmaf(n[1][i], g, fmaf(n[3][i], x, n[4][i]));
}

/* Four neighbours of a row, as 8 bytes. */
__device__ __forceinline__ uint2 applied_four(const float (&n)[NUMBERS][4], uint2 dy, uint2 x)
{
    float2 d0 = unpack_pair(dy.x), d1 = unpack_pair(dy.y), x0 = unpack_pair(x.x), x1 = unpack_pair(x.y);
    return make_uint2(pack_pair(applied(n, 0, d0.x, x0.x), applied(n, 1, d0.y, x0.y)),
                      pack_pair(applied(n, 2, d1.x, x1.x), applied(n, 3, d1.y, x1.y)));
}

__device__ __forceinline__ void makers_barrier() { asm volatile("bar.sync 14, 128;" ::: "memory"); }

/* The makers' life. A thread has four channels of every eighth row. ready: the factor's stage is there. */
template <int STEPS>
__device__ void make_factor(ring pairs, ring factor, const share &w, const float *numbers)
{
    int thread = threadIdx.x % 128, first = thread / 16, quad = thread % 16;
    int offset = first * ROW + (((quad / 2) ^ first) << 4) + quad % 2 * 8; /* swizzled by the row's last three bits */
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < STEPS; s++) {
            float n[NUMBERS][4];
#pragma unroll
            for (int i = 0; i < NUMBERS; i++) load_floats<4>(n[i], numbers + i * STEPS * DEPTH + s * DEPTH + 4 * quad);
            barrier_wait(&factor.empty[factor.at], factor.parity ^ 1);
            barrier_wait(&pairs.full[pairs.at], pairs.parity);
            const char *from = pairs.here() + offset;
            char *to = factor.here() + offset;
#pragma unroll 2
            for (int row = 0; row < ROWS; row += 8) {
                uint2 x = *reinterpret_cast<const uint2 *>(from + row * ROW),
                      dy = *reinterpret_cast<const uint2 *>(from + STAGE + row * ROW);
                *reinterpret_cast<uint2 *>(to + row * ROW) = applied_four(n, dy, x);
            }
            shared_publish();
            makers_barrier();
            if (thread == 0) barrier_arrive(&factor.full[factor.at]), barrier_arrive(&pairs.empty[pairs.at]);
            pairs.next();
            factor.next();
        }
}

/* b, which stays, and pairs of x1 and dy. */
template <bool TILED>
__device__ void copy_pairs(ring r, const share &w, const maps &t, const CUtensorMap *dy, const layout &l, char *b,
                           uint64_t *b_full)
{
    barrier_expect(b_full, l.b_bytes);
    for (int s = 0; s < w.depth; s++) copy_box(b + s * w.width * ROW, &t.b, s * DEPTH, w.strip, b_full);
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            r.begin_fill(2 * w.height * ROW);
            copy_tile<TILED>(r.here(), &t.a, s * DEPTH, l.tiles, tile, tile * w.height, &r.full[r.at]);
            copy_tile<TILED>(r.here() + STAGE, dy, s * DEPTH, l.tiles, tile, tile * w.height, &r.full[r.at]);
            r.next();
        }
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

/* full: it was copied or made; empty: that may happen again. */
struct reduce_barriers {
    uint64_t pair_full[MAX_STAGES], pair_empty[MAX_STAGES], factor_full[MAX_STAGES], factor_empty[MAX_STAGES],
        in_full[TEAMS][MAX_SLOTS], in_empty[TEAMS][MAX_SLOTS], b_full;

    /* The numbers of arrivals that end a phase: a copy; a thread of the makers; the teams' warps. */
    __device__ __forceinline__ void make()
    {
        for (int s = 0; s < MAX_STAGES; s++) {
            barrier_init(&pair_full[s], 1), barrier_init(&pair_empty[s], 1);
            barrier_init(&factor_full[s], 1), barrier_init(&factor_empty[s], TEAMS * 4);
        }
        for (int s = 0; s < TEAMS * MAX_SLOTS; s++)
            barrier_init(&in_full[0][0] + s, 1), barrier_init(&in_empty[0][0] + s, 4);
        barrier_init(&b_full, 1);
        barrier_publish();
    }
};

/* Registers of a thread that copies, makes the factor, multiplies; together at most what the kernel starts with. */
template <int STEPS>
struct reduce_registers {
    static constexpr bool many = STEPS == 1 || STEPS == 4; /* sums of 128 columns, or of four stages */
    static constexpr int copies = 32, makes = many ? 48 : 64, multiplies = many ? 216 : 208;
};

/* t.a: of x1. The first warpgroup copies: warp 0 b, x1 and dy, warps 1 and 2 what the teams' endings read. */
template <template <int> class E, int N, int STEPS>
__global__ void __launch_bounds__(THREADS, 1)
    reduce_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ CUtensorMap dy_map,
                       const __grid_constant__ fused_gemm j, const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ reduce_barriers s;
    __shared__ __align__(16) float column[TEAMS * 2 * N], numbers[NUMBERS * STEPS * DEPTH];
    __shared__ float cell[TEAMS * 4 * 2 * 2 * N];
    constexpr bool TILED = E<N>::tiled;
    char *b = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023), *slots = b + l.b_bytes;
    char *results = slots + TEAMS * l.slots * l.slot_bytes, *factor_at = results + TEAMS * l.places * l.place_bytes,
         *pairs_at = factor_at + l.stages * STAGE;
    share w = share_of<TEAMS, N>(j, l);
    for (int i = threadIdx.x; i < w.width; i += THREADS) column[i] = w.strip + i < j.n ? j.column[w.strip + i] : 0.0f;
    write_numbers(numbers, STEPS * DEPTH, j);
    if (threadIdx.x == 0) s.make();
    if (TILED && l.tiles.rows < ROWS) clear_places(slots, pairs_at + l.pairs * 2 * STAGE);
    __syncthreads();
    using R = reduce_registers<STEPS>;
    auto pairs = [&]() -> ring { return { pairs_at, s.pair_full, s.pair_empty, 2 * STAGE, l.pairs, 0, 0 }; };
    auto factor = [&]() -> ring { return { factor_at, s.factor_full, s.factor_empty, STAGE, l.stages, 0, 0 }; };
    auto inputs = [&](int i) -> ring {
        return { slots + i * l.slots * l.slot_bytes, s.in_full[i], s.in_empty[i], l.slot_bytes, l.slots, 0, 0 };
    };
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::copies));
        int team = threadIdx.x / 32 - 1;
        if (threadIdx.x == 0) copy_pairs<TILED>(pairs(), w, t, &dy_map, l, b, &s.b_full);
        else if (threadIdx.x % 32 == 0 && team < TEAMS)
            copy_inputs<TILED>(inputs(team), w, t, l.tiles, 3, w.strip + team * 2 * N, 0, 2 * N);
    } else if (threadIdx.x < 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::makes));
        make_factor<STEPS>(pairs(), factor(), w, numbers);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiplies));
        int team = threadIdx.x / 128 - 2, shift = team * 2 * N;
        barrier_wait(&s.b_full, 0);
        work<TEAMS, E, N, STEPS>(factor(), inputs(team), w, t, j, l, team, b + shift * ROW, column + shift,
                                 results + team * l.places * l.place_bytes, cell);
    }
}

/* ---- launching ----------------------------------------------------------------------------------- */

int steps_of(const fused_gemm *p) { return (int)((p->k + DEPTH - 1) / DEPTH); }
int columns_of(const fused_gemm *p) { return p->k <= DEPTH ? 128 : 64; } /* of a team, as without the prologue */
int strips_of(const fused_gemm *p)
{
    int width = TEAMS * columns_of(p);
    return (int)((p->n + width - 1) / width);
}

/* What a kernel of N columns declares leaves so much for the rest. */
int dynamic_bytes(int columns) { return (columns == 128 ? 216 : 217) << 10; }

/* Shares out room for so many stages: those of a tile stay with the teams, so what counts is for how much of the next
 * one there is room, as a factor and in pairs. */
void share_out(layout &l, int stages, int steps)
{
    int best = 0;
    for (int pairs = 1; pairs <= MAX_STAGES && 2 * pairs + steps < stages; pairs++) {
        int factors = stages - 2 * pairs > MAX_STAGES ? MAX_STAGES : stages - 2 * pairs,
            ahead = factors - steps < pairs ? factors - steps : pairs;
        if (ahead >= best) best = ahead, l.pairs = pairs, l.stages = factors;
    }
}

/* Shared memory with two slots for what an ending reads or one, two places for results or one; what is left goes to
 * stages. None: does not fit. */
layout lay_out(const fused_gemm *p)
{
    layout l = {};
    int steps = steps_of(p), columns = columns_of(p);
    l.across = TEAMS, l.stays = true;
    l.tiles = tiles_of(p), l.count = count_tiles(p, l.tiles, ROWS);
    l.place_bytes = BOX + (p->pools ? POOLED_BOX : 0);
    l.b_bytes = steps * TEAMS * columns * ROW;
    l.stage_bytes = STAGE, l.slot_bytes = 3 * BOX;
    l.slots = p->room / 2 ? 1 : MAX_SLOTS, l.places = p->room % 2 ? 1 : 2;
    int left = dynamic_bytes(columns) - 1024 - l.b_bytes - TEAMS * (l.slots * l.slot_bytes + l.places * l.place_bytes);
    share_out(l, left / STAGE, steps);
    return l;
}

cudaError_t make_maps(maps *t, CUtensorMap *dy, const fused_gemm *p, const image_tiles &l)
{
    cudaError_t e = map_tiles(&t->a, p->x1, p, p->k, l, false);
    if (e == cudaSuccess) e = map_tiles(dy, p->dy, p, p->k, l, false);
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, TEAMS * columns_of(p));
    return e == cudaSuccess ? map_epilogue(t, p, l) : e;
}

template <template <int> class E, int N, int STEPS>
cudaError_t launch(cudaStream_t stream, const fused_gemm *p, int blocks)
{
    maps t = {};
    CUtensorMap dy;
    layout l = lay_out(p);
    int bytes = dynamic_bytes(2 * N);
    cudaError_t e = make_maps(&t, &dy, p, l.tiles);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(reduce_gemm_kernel<E, N, STEPS>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e != cudaSuccess) return e;
    reduce_gemm_kernel<E, N, STEPS><<<blocks, THREADS, bytes, stream>>>(t, dy, *p, l);
    return cudaGetLastError();
}

template <template <int> class E>
cudaError_t launch_steps(cudaStream_t stream, const fused_gemm *p, int blocks)
{
    int steps = steps_of(p);
    return steps == 1   ? launch<E, 64, 1>(stream, p, blocks)
           : steps == 2 ? launch<E, 32, 2>(stream, p, blocks)
           : steps == 3 ? launch<E, 32, 3>(stream, p, blocks)
                        : launch<E, 32, 4>(stream, p, blocks);
}

} // namespace

extern "C" {

int reduce_gemm_parts(const fused_gemm *p, int sms)
{
    bool fits = p->epilogue == EPILOGUE_REDUCE && p->dw && p->room < REDUCE_ROOMS && p->k <= 4 * DEPTH &&
                p->n > columns_of(p) && p->m > 0;
    layout l = fits ? lay_out(p) : layout{};
    if (l.stages == 0) return 0;
    int parts = sms / strips_of(p);
    if (parts > l.count) parts = l.count;
    return parts < 1 ? 1 : parts;
}

cudaError_t reduce_gemm_run(cudaStream_t stream, const fused_gemm *p, int sms)
{
    int blocks = reduce_gemm_parts(p, sms) * strips_of(p);
    if (blocks == 0) return cudaErrorInvalidConfiguration;
    return p->line ? launch_steps<spread_epilogue>(stream, p, blocks)
                   : launch_steps<reduce_epilogue>(stream, p, blocks);
}

} // extern "C"
