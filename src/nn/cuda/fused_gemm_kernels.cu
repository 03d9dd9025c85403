/* One persistent block per multiprocessor. A block keeps one strip of columns and walks down the rows. Teams
 * (warpgroups) multiply 64 rows by 64 or 128 columns each; one more warpgroup drives the copy engine. Teams share out
 * the strip's columns, or, where it is narrow, rows. The strip of b stays in shared memory where it fits; else stages
 * hold it, too.
 *
 * What an epilogue reads and writes beside the GEMM travels by the copy engine as well, in boxes of 64 x 64: reads
 * wait in slots of their own, results leave from two places in turns (or one, where memory is short). Between boxes
 * and registers go 8 x 8 matrices, whose layout over lanes is the one of wgmma. Sums over rows stay in registers until
 * the block's last tile. */
#include "nn/cuda/fused/team_work.cuh"
#include "tensor/cuda/cuda.h"

namespace {

/* N accumulators a thread: a team has 2 N columns. The first warpgroup copies: its warp 0 factors, warp 1 + i
 * % 3 what team i's ending reads. */
template <int TEAMS, template <int> class E, int N, int DW>
__global__ void __launch_bounds__(128 + TEAMS * 128, 1)
    fused_gemm_kernel(const __grid_constant__ maps t, const __grid_constant__ fused_gemm j,
                      const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES], in_full[TEAMS][MAX_SLOTS], in_empty[TEAMS][MAX_SLOTS],
        b_full;
    __shared__ __align__(16) float column[TEAMS * 2 * N];
    __shared__ float cell[TEAMS * 4 * 2 * 2 * N];
    char *b = shared_begin(memory), *slots = b + l.b_bytes;
    char *results = slots + TEAMS * l.slots * l.slot_bytes, *stages = results + TEAMS * l.places * l.place_bytes;
    share w = share_of<TEAMS, N>(j, l);
    for (int i = threadIdx.x; i < w.width; i += blockDim.x)
        column[i] = j.column && w.strip + i < j.n ? j.column[w.strip + i] : 0.0f;
    if (threadIdx.x == 0) {
        for (int s = 0; s < l.stages; s++)
            barrier_init(&full[s], 1), barrier_init(&empty[s], TEAMS * 4); /* one per multiplying warp */
        for (int s = 0; s < TEAMS * MAX_SLOTS; s++)
            barrier_init(&in_full[0][0] + s, 1), barrier_init(&in_empty[0][0] + s, 4);
        barrier_init(&b_full, 1);
        barrier_publish();
    }
    if (E<N>::tiled && l.tiles.rows < ROWS) clear_places(slots, stages + l.stages * l.stage_bytes);
    __syncthreads();
    ring factors = { stages, full, empty, l.stage_bytes, l.stages, 0, 0 };
    auto inputs_of_team = [&](int team) -> ring {
        return { slots + team * l.slots * l.slot_bytes, in_full[team], in_empty[team], l.slot_bytes, l.slots, 0, 0 };
    };
    int warp = warp_number();
    if (warp < 4) {
        if constexpr (TEAMS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        int team = threadIdx.x % 32; /* lane i of copying warp 1 + i % 3 serves team i */
        if (warp == 0) {
            if (elected()) copy_factors<E<N>::tiled>(factors, w, t, l, b, &b_full);
        } else if (E<N>::inputs && team < TEAMS && warp == 1 + team % 3)
            copy_inputs<E<N>::tiled>(inputs_of_team(team), w, t, l.tiles, E<N>::inputs,
                                     w.strip + team % l.across * 2 * N, team / l.across * ROWS, 2 * N);
    } else {
        if constexpr (TEAMS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        else asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
        if (l.stays) barrier_wait(&b_full, 0);
        int team = warp / 4 - 1, shift = team % l.across * 2 * N;
        const char *b_mine = (l.stays ? b : stages + stage_rows(w) * DEPTH * 2) + shift * DEPTH * 2;
        work<TEAMS, E, N, DW>(factors, inputs_of_team(team), w, t, j, l, team, b_mine, column + shift,
                              results + team * l.places * l.place_bytes, cell);
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
    int teams, columns; /* columns of a team */
    layout l;
    int width() const { return columns * l.across; }
    int height() const { return teams / l.across * l.tiles.rows; }
    int stage_rows() const { return teams / l.across * ROWS; }
};

/* Whether strips are as these teams need them: with a small input they do not stand below each other. */
bool is_flat(const fused_gemm *p, const choice &c) { return p->line == 0 || c.l.across == c.teams; }

bool narrow(const fused_gemm *p) { return p->teams == FUSED_GEMM_NARROW; }

/* Dynamic shared memory: two narrow teams declare half as much for their sums. */
int shared_bytes(const choice &c) { return SHARED_BYTES + (c.teams * c.columns <= 128 ? 4 << 10 : 0); }

/* Lays out shared memory; stages 0: does not fit. */
void lay_out(choice &c, const fused_gemm *p, bool stays)
{
    layout &l = c.l;
    l.tiles = tiles_of(p), l.count = count_tiles(p, l.tiles, c.height());
    l.place_bytes = BOX + (p->pools ? POOLED_BOX : 0);
    int depth = (int)((p->k + DEPTH - 1) / DEPTH), b_step = c.width() * DEPTH * 2;
    l.stays = stays;
    l.b_bytes = stays ? depth * b_step : 0;
    l.stage_bytes = c.stage_rows() * DEPTH * 2 + (stays ? 0 : b_step);
    l.slot_bytes = inputs_of(p->epilogue) * BOX;
    int enough = narrow(p) && p->dw ? 2 * depth : 3; /* all of the next tile's */
    for (int roomy = 2; roomy >= 0; roomy--) { /* two slots and places, then one slot (narrow: place), then one place */
        l.slots = l.slot_bytes ? (roomy == 2 || (roomy == 1 && narrow(p)) ? MAX_SLOTS : 1) : 0;
        l.places = roomy == 2 || (roomy == 1 && !narrow(p)) ? 2 : 1;
        int left = shared_bytes(c) - 1024 - l.b_bytes - c.teams * (l.slots * l.slot_bytes + l.places * l.place_bytes);
        l.stages = left < 2 * l.stage_bytes ? 0 : left / l.stage_bytes;
        if (l.stages > MAX_STAGES) l.stages = MAX_STAGES;
        if (l.stages >= enough || (roomy == 1 && narrow(p) && l.stages > depth)) break;
    }
}

int strips_of(const fused_gemm *p, const choice &c) { return (int)((p->n + c.width() - 1) / c.width()); }

/* What the strips read of a and b together, in elements. */
double traffic(const fused_gemm *p, const choice &c)
{
    double a = (double)p->m * (double)p->k * strips_of(p, c);
    return a + (c.l.stays ? 0.0 : a * c.width() / c.height());
}

/* With dw: two teams beside each other, all stages of a tile at once, and at most 128 sums a thread: one stage and 128
 * columns a team, or up to four and 64. */
choice choose_dw(const fused_gemm *p)
{
    choice c = {};
    c.teams = 2, c.columns = p->k <= DEPTH ? 128 : 64, c.l.across = 2;
    if (narrow(p) && c.columns == 128) return c;
    if (p->epilogue == EPILOGUE_REDUCE && p->teams != 4 && p->k <= 4 * DEPTH && p->n > c.columns) lay_out(c, p, true);
    if (c.l.stages * DEPTH <= p->k) c.l.stages = 0;
    return c;
}

/* The arrangement of its teams that reads least. */
choice choose(const fused_gemm *p)
{
    if (p->dw) return choose_dw(p);
    choice best = {};
    double min = 1e300;
    for (int i = 0; i < 6; i++) {
        choice c = {};
        c.teams = narrow(p) ? 2 : p->teams;
        c.columns = c.teams == 4 || narrow(p) ? 64 : 128;
        c.l.across = i % 3 == 0 ? 4 : i % 3 == 1 ? 2 : 1;
        if (c.l.across > c.teams || !is_flat(p, c) || (c.columns == 128 && p->n <= 64) ||
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

template <int TEAMS, template <int> class E, int N, int DW = 0>
cudaError_t launch(cudaStream_t stream, const fused_gemm *p, const choice &c, int sms)
{
    maps t = {};
    cudaError_t e = make_maps(&t, p, c);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(fused_gemm_kernel<TEAMS, E, N, DW>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 shared_bytes(c));
    if (e != cudaSuccess) return e;
    fused_gemm_kernel<TEAMS, E, N, DW>
        <<<fused_gemm_parts(p, sms) * strips_of(p, c), 128 + TEAMS * 128, shared_bytes(c), stream>>>(t, *p, c.l);
    return cudaGetLastError();
}

template <template <int> class E>
cudaError_t launch_epilogue(cudaStream_t stream, const fused_gemm *p, int sms)
{
    choice c = choose(p);
    if (c.l.stages < 1) return cudaErrorInvalidConfiguration;
    return c.teams == 4 ? launch<4, E, 32>(stream, p, c, sms)
           : narrow(p)  ? launch<2, E, 32>(stream, p, c, sms)
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
    int parts = sms / strips_of(p, c);
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
