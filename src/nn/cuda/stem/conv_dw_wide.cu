/* The gradient of w with stride 1 by warpgroups: dw[o,u,v,c] = sum over positions of dy[i,j,o] x[i+u-1,j+v-1,c].
 *
 * Positions are the depth of the products. A block has 32 channels of x and a strip of dy's, and keeps its sums of all
 * nine taps in the registers of two teams over a long walk of tiles; a second launch adds the blocks in order. x comes
 * three times, once for each column v, so that a tap is where its column's box lies and u rows of the tile further on.
 * Two taps of 32 channels fill a product's 64 rows: four such pairs, and the first tap, whose columns the teams share.
 * Its other 32 rows are empty, but of 320 channels the last 32 have no block of their own: each of the nine blocks
 * before has one of their taps there. What lies outside an image comes as zeros from the copy engine. */
#include "nn/cuda/stem/conv_small.cuh"
#include "tensor/cuda/ring.cuh"

namespace {

enum {
    STEP = 16, /* positions of a product */
    MAX_STAGES = 8,
    WORKERS = 256,
    ALL_THREADS = 128 + WORKERS,
    MOST_SHARED = 226 << 10,
    BEHIND = 2048 /* bytes after the last stage: memcheck counts a product's two taps as if they lay together */
};

/* Tiles, and how one lies in a stage: dy's chunks of `lines` lines, then x's boxes of `x_lines`. */
struct dw_tiles {
    int high, wide, across, down, count;
    int lines, x_lines, stage_bytes, copied, stages;
};

struct dw_wide_job {
    dw_tiles t;
    int C, O, groups, shares; /* groups: blocks that x's channels are for; shares: those of all strips of dy */
    float *partial;           /* (parts, O, 3, 3, C) */
};

/* What a block works on: channels of x and of dy from these on, a tap of x's last channels, every parts-th tile. */
struct dw_place {
    int chunk, strip, extra, part, parts;
};

__device__ __forceinline__ dw_place place_of_block(const dw_wide_job &j, int columns)
{
    int share = blockIdx.x % j.shares, group = share % j.groups;
    return { group * CHUNK, share / j.groups * columns, group, (int)blockIdx.x / j.shares, (int)gridDim.x / j.shares };
}

enum { NEXT_STEP = STEP * LINE >> 4 }; /* 16 lines further, in a descriptor */

/* ---- a team's products --------------------------------------------------------------------------- */

/* Of the first tap's columns team 0 has half, rounded up to whole chunks, team 1 the rest. */
template <int WIDE>
constexpr int first_half = (WIDE / 2 + CHUNK - 1) / CHUNK *CHUNK;

template <int TEAM, int WIDE, bool EXTRA>
struct tap_sums {
    enum { BEGIN = TEAM ? first_half<WIDE> : 0, COUNT = TEAM ? WIDE - first_half<WIDE> : first_half<WIDE> };
    float first[COUNT / 2], pair[2][WIDE / 2];

    __device__ __forceinline__ void settle_all() { settle(first), settle(pair[0]), settle(pair[1]); }

    /* Bytes from x's first box to tap t = 3 v + u. */
    static __device__ __forceinline__ int tap(const dw_tiles &t, int i)
    {
        return (i / 3 * t.x_lines + i % 3 * t.wide) * LINE;
    }

    /* Begins the products of a tile. */
    template <int STEPS>
    __device__ __forceinline__ void add(const dw_tiles &t, uint32_t stage)
    {
        const int from = 1 + 4 * TEAM;
        uint32_t x = stage + WIDE / CHUNK * t.lines * LINE;
        uint64_t dy = descriptor_32(stage, t.lines * LINE), part = dy + (BEGIN / CHUNK * t.lines * LINE >> 4);
        uint64_t a0 = descriptor_32(x + tap(t, from), tap(t, from + 1) - tap(t, from)),
                 a1 = descriptor_32(x + tap(t, from + 2), tap(t, from + 3) - tap(t, from + 2)),
                 a2 = descriptor_32(x, (EXTRA ? 3 * t.x_lines : t.wide) * LINE);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            wgmma_turned_k16(pair[0], a0 + k * NEXT_STEP, dy + k * NEXT_STEP);
            wgmma_turned_k16(pair[1], a1 + k * NEXT_STEP, dy + k * NEXT_STEP);
            wgmma_turned_k16(first, a2 + k * NEXT_STEP, part + k * NEXT_STEP);
        }
        wgmma_commit();
    }

    /* dw's element of tap i in the first channel of dy, for this thread's rows. */
    static __device__ __forceinline__ int place_of_tap(const dw_wide_job &j, int i)
    {
        return (i % 3 * 3 + i / 3) * j.C + threadIdx.x % 64 / 32 * 16 + threadIdx.x % 32 / 4;
    }

    /* dy's channels from o on. */
    template <int N>
    static __device__ __forceinline__ void write(float *to, const float (&sums)[N], const dw_wide_job &j, int o)
    {
        o += threadIdx.x % 4 * 2;
#pragma unroll
        for (int k = 0; k < N; k++) to[(int64_t)(o + k / 4 * 8 + k % 2) * TAPS * j.C + k / 2 % 2 * 8] = sums[k];
    }

    /* half: 64 rows are two taps. */
    __device__ __forceinline__ void write_all(float *to, const dw_wide_job &j, const dw_place &p)
    {
        int half = threadIdx.x % 128 / 64, from = 1 + 4 * TEAM + half;
        write(to + p.chunk + place_of_tap(j, from), pair[0], j, p.strip);
        write(to + p.chunk + place_of_tap(j, from + 2), pair[1], j, p.strip);
        if (half == 0) write(to + p.chunk + place_of_tap(j, 0), first, j, p.strip + BEGIN);
        else if (EXTRA) write(to + j.C - CHUNK + place_of_tap(j, p.extra), first, j, p.strip + BEGIN);
    }
};

/* A team's life. A stage is given back once the products after it have begun. */
template <int TEAM, int WIDE, int STEPS, bool EXTRA>
__device__ void add_tiles(ring r, const dw_wide_job &j, const dw_place &p)
{
    tap_sums<TEAM, WIDE, EXTRA> sums = {};
    int before = -1;
    sums.settle_all();
    for (int tile = p.part; tile < j.t.count; tile += p.parts) {
        barrier_wait(&r.full[r.at], r.parity);
        sums.template add<STEPS>(j.t, shared_address(r.here()));
        if (before >= 0) {
            wgmma_wait<1>();
            if (elected()) barrier_arrive(&r.empty[before]);
        }
        before = r.at;
        r.next();
    }
    wgmma_wait<0>();
    sums.settle_all();
    sums.write_all(j.partial + (int64_t)p.part * j.O * TAPS * j.C, j, p);
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

template <int WIDE, bool EXTRA>
__device__ void copy_tiles(ring r, const dw_wide_job &j, const CUtensorMap *x, const CUtensorMap *dy, const dw_place &p)
{
    const dw_tiles &t = j.t;
    for (int tile = p.part; tile < t.count; tile += p.parts) {
        int q = tile / t.across, column = tile % t.across * t.wide, row = q % t.down * t.high, n = q / t.down;
        char *to = r.here();
        r.begin_fill(t.copied);
        for (int i = 0; i < WIDE / CHUNK; i++, to += t.lines * LINE)
            copy_box4(to, dy, p.strip + i * CHUNK, column, row, n, &r.full[r.at]);
        for (int v = 0; v < 3; v++, to += t.x_lines * LINE)
            copy_box4(to, x, p.chunk, column + v - 1, row - 1, n, &r.full[r.at]);
        if (EXTRA) copy_box4(to, x, j.C - CHUNK, column + p.extra / 3 - 1, row + p.extra % 3 - 1, n, &r.full[r.at]);
        r.next();
    }
}

/* Where a tile does not fill its last step, the lines after it must be 0 in dy and numbers in x; the copies leave them
 * alone. */
__device__ __forceinline__ void clear_stages(char *stages, const dw_tiles &t)
{
    if (t.lines != t.high * t.wide)
        for (int i = threadIdx.x; i < t.stages * t.stage_bytes / 16; i += ALL_THREADS)
            reinterpret_cast<uint4 *>(stages)[i] = uint4{};
    shared_publish();
}

template <int WIDE, int STEPS, bool EXTRA>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    dw_wide_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap dy_map,
                   const __grid_constant__ dw_wide_job j)
{
    extern __shared__ char raw[];
    __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES];
    char *stages = shared_begin(raw);
    dw_place p = place_of_block(j, WIDE);
    if (threadIdx.x == 0) {
        for (int s = 0; s < j.t.stages; s++) barrier_init(&full[s], 1), barrier_init(&empty[s], WORKERS / 32);
        barrier_publish();
    }
    clear_stages(stages, j.t);
    __syncthreads();
    ring r = { stages, full, empty, j.t.stage_bytes, j.t.stages, 0, 0 };
    int warp = warp_number();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp == 0 && elected()) copy_tiles<WIDE, EXTRA>(r, j, &x_map, &dy_map, p);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        if (warp < 8) add_tiles<0, WIDE, STEPS, EXTRA>(r, j, p);
        else add_tiles<1, WIDE, STEPS, EXTRA>(r, j, p);
    }
}

__global__ void __launch_bounds__(256) dw_wide_add(float *dw, const float *partial, int parts, int count)
{
    int slot = blockIdx.x * 32 + threadIdx.x;
    float sum;
    if (add_blocks(sum, partial, parts, slot, count)) dw[slot] = sum;
}

/* ---- launching ----------------------------------------------------------------------------------- */

/* Tiles of these sizes. */
dw_tiles tiles_of(const dnn_shape *s, int columns, int boxes, int steps, int high, int wide)
{
    dw_tiles t = { high, wide, (int)((s->Wo + wide - 1) / wide), (int)((s->Ho + high - 1) / high) };
    int positions = high * wide;
    t.count = (int)s->N * t.across * t.down;
    t.lines = steps * STEP;
    t.x_lines = (t.lines + 2 * wide + 7) / 8 * 8;
    t.stage_bytes = (columns / CHUNK * t.lines + boxes * t.x_lines) * LINE;
    t.stage_bytes = (t.stage_bytes + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN;
    t.copied = (columns / CHUNK * positions + boxes * (high + 2) * wide) * LINE;
    t.stages = (MOST_SHARED - SMEM_ALIGN - BEHIND) / t.stage_bytes;
    if (t.stages > MAX_STAGES) t.stages = MAX_STAGES;
    return t;
}

/* The fewest tiles that leave room for two stages, since one is given back when the next is at work; of those the
 * fewest bytes to copy. */
dw_tiles best_tiles(const dnn_shape *s, int columns, int boxes, int steps)
{
    dw_tiles best = {};
    for (int wide = 1; wide <= s->Wo && wide <= steps * STEP; wide++) {
        int most = steps * STEP / wide;
        dw_tiles t = tiles_of(s, columns, boxes, steps, most < s->Ho ? most : (int)s->Ho, wide);
        if (t.stages < 2) continue;
        if (best.stages == 0 || t.count < best.count || (t.count == best.count && t.copied < best.copied)) best = t;
    }
    return best;
}

template <int WIDE, int STEPS, bool EXTRA>
cudaError_t dw_wide_ready(int *blocks_per_sm)
{
    return kernel_ready(dw_wide_kernel<WIDE, STEPS, EXTRA>, ALL_THREADS, MOST_SHARED, blocks_per_sm);
}

template <int WIDE, int STEPS, bool EXTRA>
cudaError_t dw_wide_run(const small_call *c)
{
    const dnn_shape *s = &c->shape;
    dw_tiles t = best_tiles(s, WIDE, 3 + EXTRA, STEPS);
    int groups = (int)s->C / CHUNK - EXTRA, shares = groups * (int)s->O / WIDE, parts = c->blocks / shares;
    int count = (int)(s->O * TAPS * s->C);
    dw_wide_job j = { t, (int)s->C, (int)s->O, groups, shares, (float *)c->data.workspace };
    CUtensorMap x, dy;
    if (t.stages == 0 || parts == 0) return cudaErrorInvalidConfiguration;
    cudaError_t e = chunk_map(&x, c->data.x, s->N, s->H, s->W, s->C, t.high + 2, t.wide);
    if (e == cudaSuccess) e = chunk_map(&dy, c->data.y, s->N, s->Ho, s->Wo, s->O, t.high, t.wide);
    if (e != cudaSuccess) return e;
    dw_wide_kernel<WIDE, STEPS, EXTRA>
        <<<parts * shares, ALL_THREADS, SMEM_ALIGN + BEHIND + t.stages * t.stage_bytes, c->stream>>>(x, dy, j);
    dw_wide_add<<<(count + 31) / 32, dim3(32, 8), 0, c->stream>>>((float *)c->data.w, j.partial, parts, count);
    return cudaGetLastError();
}

/* Channels in and out, columns of dy in a block, steps in a tile; EXTRA: with a tap of the last channels. */
template <int C, int O, int WIDE, int STEPS, bool EXTRA = false>
constexpr small_kernel row(const char *name)
{
    constexpr int groups = C / CHUNK - EXTRA, shares = groups * (O / WIDE);
    static_assert(C % CHUNK == 0 && O % WIDE == 0 && WIDE % CHUNK == 0, "whole shares");
    static_assert(!EXTRA || groups == TAPS, "one tap more in each block");
    return { name,
             DNN_DW,
             0,
             C,
             O,
             1,
             1,
             dw_wide_ready<WIDE, STEPS, EXTRA>,
             (size_t)C * TAPS * O / shares * sizeof(float),
             dw_wide_run<WIDE, STEPS, EXTRA>,
             shares };
}

} // namespace

extern "C" const small_kernel small_dw_wide_kernels[] = {
    row<160, 160, 160, 9>("warpgroups"),
    row<320, 320, 160, 7, true>("warpgroups"),
    { NULL },
};
