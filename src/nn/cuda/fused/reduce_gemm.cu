/* A fused GEMM with the epilogue of batch norm's backward reduction and its weight's gradient (fused_gemm_kernels.cu),
 * whose left factor is itself a backward apply: a block's first 1 x 1 convolution between its own batch norm and the
 * one before. The copy engine brings dy and x1, one more warpgroup makes the factor of them in x1's place, and both
 * GEMMs read it from there.
 *
 * One block per multiprocessor and strip of columns: two teams beside each other, tiles of 64 rows. A tile's factor
 * lies in STEPS stages of 64 channels until the tile is done, so room for the next one's decides (l.stages). */
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

/* The makers' life: stages of x1 become the factor. A thread has four channels of every eighth row. */
template <int STEPS>
__device__ void make_factor(ring x, ring dy, uint64_t *ready, const share &w, const float *numbers)
{
    int thread = threadIdx.x % 128, first = thread / 16, quad = thread % 16;
    int offset = first * ROW + (((quad / 2) ^ first) << 4) + quad % 2 * 8; /* swizzled by the row's last three bits */
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < STEPS; s++) {
            float n[NUMBERS][4];
#pragma unroll
            for (int i = 0; i < NUMBERS; i++) load_floats<4>(n[i], numbers + i * STEPS * DEPTH + s * DEPTH + 4 * quad);
            barrier_wait(&x.full[x.at], x.parity);
            barrier_wait(&dy.full[dy.at], dy.parity);
            char *to = x.here() + offset;
            const char *from = dy.here() + offset;
#pragma unroll 4
            for (int row = 0; row < ROWS; row += 8) {
                uint2 *at = reinterpret_cast<uint2 *>(to + row * ROW);
                *at = applied_four(n, *reinterpret_cast<const uint2 *>(from + row * ROW), *at);
            }
            shared_publish();
            makers_barrier();
            if (thread == 0) barrier_arrive(&ready[x.at]), barrier_arrive(&dy.empty[dy.at]);
            x.next();
            dy.next();
        }
}

__device__ void copy_dy(ring r, const share &w, const CUtensorMap *map)
{
    for (int tile = w.part; tile < w.tiles; tile += w.parts)
        for (int s = 0; s < w.depth; s++) {
            r.begin_fill(w.height * ROW);
            copy_box(r.here(), map, s * DEPTH, tile * w.height, &r.full[r.at]);
            r.next();
        }
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

/* full: it was copied; ready: x1's stage is the factor; empty: it may be copied to again. */
struct reduce_barriers {
    uint64_t x_full[MAX_STAGES], x_ready[MAX_STAGES], x_empty[MAX_STAGES], dy_full[MAX_STAGES], dy_empty[MAX_STAGES],
        in_full[TEAMS][MAX_SLOTS], in_empty[TEAMS][MAX_SLOTS], b_full;

    /* The numbers of arrivals that end a phase: a copy; a thread of the makers; the teams' warps. */
    __device__ __forceinline__ void make()
    {
        for (int s = 0; s < MAX_STAGES; s++) {
            barrier_init(&x_full[s], 1), barrier_init(&x_ready[s], 1), barrier_init(&x_empty[s], TEAMS * 4);
            barrier_init(&dy_full[s], 1), barrier_init(&dy_empty[s], 1);
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

/* t.a: of x1. The first warpgroup copies: warp 0 b and x1, warps 1 and 2 what the teams' endings read, warp 3 dy. */
template <template <int> class E, int N, int STEPS>
__global__ void __launch_bounds__(THREADS, 1)
    reduce_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ CUtensorMap dy_map,
                       const __grid_constant__ fused_gemm j, const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ reduce_barriers s;
    __shared__ __align__(16) float column[TEAMS * 2 * N], numbers[NUMBERS * STEPS * DEPTH];
    __shared__ float cell[TEAMS * 4 * 2 * 2 * N];
    char *b = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023), *slots = b + l.b_bytes;
    char *results = slots + TEAMS * l.slots * l.slot_bytes, *x_at = results + TEAMS * l.places * BOX,
         *dy_at = x_at + l.stages * STAGE;
    share w = share_of<TEAMS, N>(j, l);
    for (int i = threadIdx.x; i < w.width; i += THREADS) column[i] = w.strip + i < j.n ? j.column[w.strip + i] : 0.0f;
    write_numbers(numbers, STEPS * DEPTH, j);
    if (threadIdx.x == 0) s.make();
    if (l.lines.rows < ROWS) clear_places(slots, dy_at + l.dy_stages * STAGE);
    __syncthreads();
    using R = reduce_registers<STEPS>;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::copies));
        int team = threadIdx.x / 32 - 1;
        if (threadIdx.x == 0) copy_factors({ x_at, s.x_full, s.x_empty, STAGE, l.stages, 0, 0 }, w, t, l, b, &s.b_full);
        else if (threadIdx.x == 96) copy_dy({ dy_at, s.dy_full, s.dy_empty, STAGE, l.dy_stages, 0, 0 }, w, &dy_map);
        else if (threadIdx.x % 32 == 0)
            copy_inputs({ slots + team * l.slots * l.slot_bytes, s.in_full[team], s.in_empty[team], l.slot_bytes,
                          l.slots, 0, 0 },
                        w, t, l.lines, 3, w.strip + team * 2 * N, 0, 2 * N);
    } else if (threadIdx.x < 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R::makes));
        make_factor<STEPS>({ x_at, s.x_full, s.x_empty, STAGE, l.stages, 0, 0 },
                           { dy_at, s.dy_full, s.dy_empty, STAGE, l.dy_stages, 0, 0 }, s.x_ready, w, numbers);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R::multiplies));
        int team = threadIdx.x / 128 - 2, shift = team * 2 * N;
        barrier_wait(&s.b_full, 0);
        work<TEAMS, E, N, STEPS>({ x_at, s.x_ready, s.x_empty, STAGE, l.stages, 0, 0 },
                                 { slots + team * l.slots * l.slot_bytes, s.in_full[team], s.in_empty[team],
                                   l.slot_bytes, l.slots, 0, 0 },
                                 w, t, j, l, team, b + shift * ROW, column + shift, results + team * l.places * BOX,
                                 cell);
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

/* Shared memory with two slots for what an ending reads or one, two places for results or one. What is left goes to
 * stages: those of a tile stay with the teams, beside them x1 and dy come in pairs. stages 0: does not fit. */
layout lay_out(const fused_gemm *p)
{
    layout l = {};
    int steps = steps_of(p), columns = columns_of(p);
    l.across = TEAMS, l.stays = true, l.lines = lines_of(p);
    l.b_bytes = steps * TEAMS * columns * ROW;
    l.stage_bytes = STAGE, l.slot_bytes = 3 * BOX;
    l.slots = p->room / 2 ? 1 : MAX_SLOTS, l.places = p->room % 2 ? 1 : 2;
    int left = dynamic_bytes(columns) - 1024 - l.b_bytes - TEAMS * (l.slots * l.slot_bytes + l.places * BOX);
    int stages = left / STAGE;
    l.stages = (stages + steps) / 2;
    if (l.stages > MAX_STAGES) l.stages = MAX_STAGES;
    l.dy_stages = stages - l.stages;
    if (l.dy_stages > MAX_STAGES) l.dy_stages = MAX_STAGES;
    if (left < 0 || l.stages <= steps || l.dy_stages < 1) l.stages = 0;
    return l;
}

cudaError_t make_maps(maps *t, CUtensorMap *dy, const fused_gemm *p, const pooled_lines &lines)
{
    cudaError_t e = tensor_map_rows(&t->a, p->x1, p->m, p->k, DEPTH, lines.rows);
    if (e == cudaSuccess) e = tensor_map_rows(dy, p->dy, p->m, p->k, DEPTH, lines.rows);
    if (e == cudaSuccess) e = tensor_map_rows(&t->b, p->b, p->n, p->k, DEPTH, TEAMS * columns_of(p));
    return e == cudaSuccess ? map_epilogue(t, p, lines) : e;
}

template <template <int> class E, int N, int STEPS>
cudaError_t launch(cudaStream_t stream, const fused_gemm *p, int blocks)
{
    maps t = {};
    CUtensorMap dy;
    layout l = lay_out(p);
    int bytes = dynamic_bytes(2 * N);
    cudaError_t e = make_maps(&t, &dy, p, l.lines);
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
    if (!fits || lay_out(p).stages == 0) return 0;
    int64_t rows = lines_of(p).rows, tiles = (p->m + rows - 1) / rows, parts = sms / strips_of(p);
    if (parts > tiles) parts = tiles;
    return parts < 1 ? 1 : (int)parts;
}

cudaError_t reduce_gemm_run(cudaStream_t stream, const fused_gemm *p, int sms)
{
    int blocks = reduce_gemm_parts(p, sms) * strips_of(p);
    if (blocks == 0) return cudaErrorInvalidConfiguration;
    return p->line ? launch_steps<spread_epilogue>(stream, p, blocks)
                   : launch_steps<reduce_epilogue>(stream, p, blocks);
}

} // extern "C"
