/* Forward with stride 1, and the gradient of x, which is the same with flipped weights.
 *
 * A block processes tiles, 32 or 40 input channels at a time: while one box is multiplied, the next one is copied. A
 * warp owns R rows of 16 outputs and all their channels. It loads each input row once per column v of the kernel and
 * uses it for the three outputs that read it with rows u of the kernel. wgmma reads image rows from registers and
 * weights from shared memory. With batch norm before the convolution, a group first rewrites its box in place. */
#include "nn/cuda/bn_common.cuh"
#include "nn/cuda/stem/conv_small.cuh"

namespace {

/* ---- batch norm before the convolution ------------------------------------------------------------
 *
 * In place on a box in shared memory, by the same instructions as bn_apply, so that all passes compute the same ReLU
 * mask. */

typedef struct norm_in {
    const float *mean, *rstd, *gain, *bias; /* (C) */
} norm_in;

static inline norm_in norm_of(const small_call *c)
{
    const float *const *v = c->data.norm;
    norm_in n = { v[0], v[1], v[2], v[3] };
    return n;
}

/* Coefficients per channel, (AFFINE, C) floats in shared memory, which are read for every tile because registers are
 * short: mean, slope, bias. */
enum { AFFINE = 3 };

template <int C>
__device__ __forceinline__ void affine_load(float *affine, const norm_in &n)
{
    int c = threadIdx.x;
    if (c < C) affine[c] = n.mean[c], affine[C + c] = n.rstd[c] * n.gain[c], affine[2 * C + c] = n.bias[c];
}

__device__ __forceinline__ void load_four(float v[4], unsigned address)
{
    uint4 a = load_shared(address);
    v[0] = __uint_as_float(a.x), v[1] = __uint_as_float(a.y), v[2] = __uint_as_float(a.z), v[3] = __uint_as_float(a.w);
}

__device__ __forceinline__ float bf16_low(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ uint4 apply_chunk(uint4 v, const bn_affine<8> &k)
{
    unsigned pair[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = pack2(fmaxf(bn_value(k, bf16_low(pair[i]), 2 * i), 0.0f),
                        fmaxf(bn_value(k, bf16_high(pair[i]), 2 * i + 1), 0.0f));
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/* Applies batch norm and ReLU to the box at x: C channels, one position wider than the tile at p on every side. Called
 * by THREADS threads, each with one chunk of the channels. Positions outside the image stay 0. */
template <class BOX, int C, int THREADS>
__device__ __forceinline__ void apply_box(unsigned x, tile_position p, const tile_grid &image, unsigned affine,
                                          int thread)
{
    const int CHUNKS = C / 8, EACH = THREADS / CHUNKS, BATCH = 4, POSITIONS = BOX::POSITIONS, COLS = TILE + 2;
    int chunk = thread % CHUNKS, first = thread / CHUNKS;
    asm volatile("" : "+r"(chunk), "+r"(first)); /* or the compiler keeps the offsets of all tiles in registers */
    bn_affine<8> k;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        load_four(k.mean + 4 * h, affine + chunk * 32 + h * 16);
        load_four(k.slope + 4 * h, affine + 4 * C + chunk * 32 + h * 16);
        load_four(k.bias + 4 * h, affine + 8 * C + chunk * 32 + h * 16);
    }
#pragma unroll 1
    for (int from = first; from < POSITIONS && first < EACH; from += BATCH * EACH) {
        uint4 v[BATCH];
        bool inside[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int q = from + b * EACH, row = p.y - 1 + q / COLS, column = p.x - 1 + q % COLS;
            inside[b] = q < POSITIONS && row >= 0 && row < image.H && column >= 0 && column < image.W;
            if (inside[b]) v[b] = load_shared(x + BOX::at(q, chunk));
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (inside[b]) store_shared(x + BOX::at(from + b * EACH, chunk), apply_chunk(v[b], k));
    }
    shared_publish(); /* a bulk copy writes here next */
}

/* ---- the convolution ------------------------------------------------------------------------------- */

typedef struct forward_job {
    tile_grid tiles;
    bf16 *y;
    const bf16 *w;
    int c;     /* channels of w */
    bool flip; /* y is dx, x is dy: w'[c][u][v][o] = w[o][2-u][2-v][c] */
    const float *pivot;
    float *partial; /* (blocks, 2, COUT), with statistics */
    norm_in norm;   /* with batch norm first */
} forward_job;

/* A group of four warps processes a tile, R rows per warp. The GROUPS groups of a block share the weights and the
 * stages and process tiles alternately. */
template <int CIN_, int PLANE_, int NT_, int R_, int GROUPS_, int STAGES_, int PER_SM_>
struct forward_shape {
    enum {
        CIN = CIN_,
        PLANE = PLANE_, /* channels of a stage */
        NT = NT_,
        R = R_,
        GROUPS = GROUPS_,
        STAGES = STAGES_,
        PER_SM = PER_SM_,
        COUT = 8 * NT,
        THREADS = 128 * GROUPS,
        HIGH = 4 * R, /* rows of a tile */
        PLANES = CIN / PLANE,
        STEPS = (PLANE + 15) / 16, /* wgmma steps per tap and plane; the last may be half zeros */
        K = PLANES * STEPS * 16,
        CORE = 64 /* elements: 8 rows of 16 bytes */
    };
    static_assert(CIN % PLANE == 0, "planes");
    /* A barrier distinguishes only a phase and the next: no thread may wait two phases ahead. Therefore a stage belongs
     * to one group, which waits for its phases in order. */
    static_assert(STAGES % (GROUPS * PLANES) == 0 || GROUPS == 1, "stages");
    typedef box<PLANE, HIGH + 2, TILE + 2> input;
    typedef row_out<NT, (R > 4 ? 1 : 2)> output;
    enum {
        W = STAGES * input::BYTES,
        OUT = W + TAPS * COUT * K * 2,
        SMEM = SMEM_ALIGN + OUT + THREADS / 32 * output::BYTES
    };

    /* Index of the weight of output n and depth k: per tap and 16 elements of the depth the core matrices that wgmma
     * reads, two for every 8 outputs. */
    __device__ __forceinline__ static int weight_at(int tap, int n, int k)
    {
        return ((tap * (K / 16) + k / 16) * (COUT / 8) + n / 8) * 2 * CORE + (k >> 3 & 1) * CORE + (n & 7) * 8 +
               (k & 7);
    }
};

/* Loads the weights, (9, COUT, K), to shared memory. k is a channel of a plane, or padding. */
template <class S>
__device__ void load_weights(bf16 *to, const forward_job &j)
{
#pragma unroll 8
    for (int i = threadIdx.x; i < TAPS * S::COUT * S::K; i += S::THREADS) {
        int n, k, tap; /* the contiguous dimension varies fastest */
        if (j.flip) n = i % S::COUT, tap = i / S::COUT % TAPS, k = i / S::COUT / TAPS;
        else k = i % S::K, tap = i / S::K % TAPS, n = i / S::K / TAPS;
        int in_plane = k % (S::STEPS * 16), channel = k / (S::STEPS * 16) * S::PLANE + in_plane;
        bool there = in_plane < S::PLANE && (j.flip ? n : channel) < j.c;
        int from = j.flip ? (channel * TAPS + TAPS - 1 - tap) * j.c + n : (n * TAPS + tap) * j.c + channel;
        to[S::weight_at(tap, n, k)] = there ? j.w[from] : bf16(0.0f);
    }
}

/* Applies batch norm to the box of a tile in place, by the group's four warps. */
struct apply_first {
    enum { WITH = SMALL_APPLY };
    template <class S>
    __device__ __forceinline__ static void load(float *affine, const forward_job &j)
    {
        affine_load<S::CIN>(affine, j.norm);
    }
    template <class S>
    __device__ __forceinline__ static void convert(unsigned x, tile_position p, unsigned affine, const forward_job &j)
    {
        apply_box<typename S::input, S::CIN, 128>(x, p, j.tiles, affine, threadIdx.x % 128);
    }
};

struct no_apply {
    enum { WITH = 0 };
    template <class S>
    __device__ __forceinline__ static void load(float *, const forward_job &)
    {
    }
};

/* acc += the convolution of the plane x with the weights of its channels; the first plane overwrites acc. Called by the
 * four warps of a group; rows for the next wgmma are loaded while the last one runs. */
template <class S>
__device__ __forceinline__ void multiply(float (&acc)[S::R][S::NT][4], unsigned x, unsigned w, int plane)
{
    int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * S::R;
    unsigned a[2][S::R + 2][4];
    w += S::weight_at(0, 0, plane * S::STEPS * 16) * 2;
#pragma unroll
    for (int step = 0; step < 3 * S::STEPS; step++) {
        int k = step / 3, v = step % 3, chunk = 2 * k + (lane >> 4);
        if (S::PLANE % 16 && chunk == S::PLANE / 8) chunk--; /* its weights are 0 */
#pragma unroll
        for (int i = 0; i < S::R + 2; i++)
            ldmatrix(a[step & 1][i], x + S::input::at((row + i) * (TILE + 2) + (lane & 15) + v, chunk));
        wgmma_fence();
#pragma unroll
        for (int u = 0; u < 3; u++) {
            uint64_t b = descriptor_plain(w + S::weight_at(u * 3 + v, 0, k * 16) * 2, 2 * S::CORE, 4 * S::CORE);
#pragma unroll
            for (int r = 0; r < S::R; r++) wgmma_rows<S::NT>(acc[r], a[step & 1][r + u], b, plane || step || u);
        }
        wgmma_commit();
        if (step + 1 < 3 * S::STEPS) wgmma_wait<1>(); /* the other half of a may be overwritten */
    }
    wgmma_wait<0>();
}

/* Discards acc: otherwise the compiler keeps its registers live between two tiles. */
template <class S>
__device__ __forceinline__ void discard(float (&acc)[S::R][S::NT][4])
{
#pragma unroll
    for (int i = 0; i < S::R * S::NT * 4; i++) acc[i / (S::NT * 4)][i / 4 % S::NT][i % 4] = 0.0f;
}

template <class S, class SUMS>
__device__ __forceinline__ void store_tile(const forward_job &j, tile_position p, unsigned out,
                                           const float acc[S::R][S::NT][4], SUMS &sums)
{
#pragma unroll
    for (int r = 0; r < S::R; r++) {
        int y = p.y + threadIdx.x / 32 % 4 * S::R + r;
        int64_t at = ((int64_t)p.n * j.tiles.H + y) * j.tiles.W + p.x;
        S::output::store(out, r, acc[r], j.y + at * S::COUT, y < j.tiles.H ? j.tiles.W - p.x : 0, sums);
    }
}

/* Barrier of the four warps of a group. */
__device__ __forceinline__ void group_barrier(int group)
{
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

template <class S, class SUMS, class APPLY>
__global__ void __launch_bounds__(S::THREADS, S::PER_SM)
    forward_kernel(const __grid_constant__ CUtensorMap map, const forward_job j)
{
    extern __shared__ char raw[];
    __shared__ uint64_t full[S::STAGES];
    __shared__ __align__(16) float affine[APPLY::WITH ? AFFINE * S::CIN : 1];
    char *smem = shared_begin(raw);
    unsigned w = shared_address(smem + S::W), out = shared_address(smem + S::OUT) + threadIdx.x / 32 * S::output::BYTES;
    /* item: a plane of one of this block's tiles */
    auto load_tile = [&](int item) {
        int tile = blockIdx.x + item / S::PLANES * gridDim.x, stage = item % S::STAGES;
        if (tile >= j.tiles.count) return;
        barrier_expect(&full[stage], S::input::FULL);
        S::input::copy(smem + stage * S::input::BYTES, &map, position_of(j.tiles, tile, S::HIGH), 1,
                       item % S::PLANES * S::PLANE, &full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) barrier_init(&full[s], 1);
        barrier_publish();
        for (int s = 0; s < S::STAGES; s++) load_tile(s);
    }
    load_weights<S>(reinterpret_cast<bf16 *>(smem + S::W), j);
    APPLY::template load<S>(affine, j);
    shared_publish(); /* wgmma reads them */
    __syncthreads();
    SUMS sums(j.pivot, S::output::chunk_of_lane());
    int group = S::GROUPS > 1 ? warp_number() / 4 : 0;
    for (int turn = group;; turn += S::GROUPS) {
        int tile = blockIdx.x + turn * gridDim.x;
        if (tile >= j.tiles.count) break;
        float acc[S::R][S::NT][4];
#pragma unroll 1
        for (int plane = 0; plane < S::PLANES; plane++) {
            int item = turn * S::PLANES + plane, stage = item % S::STAGES;
            barrier_wait(&full[stage], item / S::STAGES & 1);
            if constexpr (APPLY::WITH != 0) {
                static_assert(S::PLANES == 1, "all channels at once");
                int again = tile; /* recompute its position instead of keeping it in registers */
                asm volatile("" : "+r"(again));
                APPLY::template convert<S>(shared_address(smem + stage * S::input::BYTES),
                                           position_of(j.tiles, again, S::HIGH), shared_address(affine), j);
                group_barrier(group);
                discard<S>(acc);
            }
            multiply<S>(acc, shared_address(smem + stage * S::input::BYTES), w, plane);
            group_barrier(group); /* all have read the stage */
            if (threadIdx.x % 128 == 0) load_tile(item + S::STAGES);
        }
        store_tile<S>(j, position_of(j.tiles, tile, S::HIGH), out, acc, sums);
    }
    static_assert(S::THREADS * SUMS::LANE_BYTES <= S::W, "sums where the stages were");
    S::output::template write_sums<S::THREADS / 32>(j.partial + blockIdx.x * 2 * S::COUT,
                                                    reinterpret_cast<float *>(smem), sums);
}

template <class S, class SUMS, class APPLY>
cudaError_t ready(int *blocks_per_sm)
{
    return kernel_ready(forward_kernel<S, SUMS, APPLY>, S::THREADS, S::SMEM, blocks_per_sm);
}

template <class S, class SUMS, class APPLY>
cudaError_t run(const small_call *c)
{
    const dnn_shape *s = &c->shape;
    const small_data *d = &c->data;
    bool flip = s->kind == DNN_DX; /* stride 1: x and y have one size */
    CUtensorMap map;
    forward_job j = { tile_grid_of(s->N, s->H, s->W, S::HIGH),
                      (bf16 *)(flip ? d->x : d->y),
                      (const bf16 *)d->w,
                      (int)c->c,
                      flip,
                      d->pivot,
                      (float *)d->workspace,
                      norm_of(c) };
    cudaError_t e = S::input::map(&map, flip ? d->y : d->x, s->N, s->H, s->W, S::CIN);
    if (e != cudaSuccess) return e;
    forward_kernel<S, SUMS, APPLY><<<c->blocks, S::THREADS, S::SMEM, c->stream>>>(map, j);
    return cudaGetLastError();
}

/* With or without sums and batch norm; CIN input channels, PLANE per stage, NT tiles of 8 output channels, R rows per
 * warp, groups, stages, blocks per multiprocessor. */
template <class SUMS, class APPLY, int CIN, int PLANE, int NT, int R, int GROUPS, int STAGES, int PER_SM>
constexpr small_kernel row(const char *name, dnn_kind kind)
{
    typedef forward_shape<CIN, PLANE, NT, R, GROUPS, STAGES, PER_SM> S;
    return { name,
             kind,
             SUMS::WITH | APPLY::WITH,
             kind == DNN_DX ? S::COUT : CIN,
             kind == DNN_DX ? CIN : S::COUT,
             1,
             S::HIGH,
             ready<S, SUMS, APPLY>,
             SUMS::WITH ? 2 * S::COUT * sizeof(float) : 0,
             run<S, SUMS, APPLY> };
}
#define DX(name, ...)         row<no_sums, no_apply, __VA_ARGS__>(name, DNN_DX)
#define NORMALIZED(name, ...) row<channel_sums, apply_first, __VA_ARGS__>(name, DNN_FORWARD)
#define FORWARD(name, ...)                                                                                             \
    row<no_sums, no_apply, __VA_ARGS__>(name, DNN_FORWARD), row<channel_sums, no_apply, __VA_ARGS__>(name, DNN_FORWARD)

} // namespace

extern "C" const small_kernel small_forward_kernels[] = {
    FORWARD("4 rows", 32, 32, 4, 4, 1, 2, 3),
    FORWARD("4 rows, 3 groups", 32, 32, 4, 4, 3, 6, 1),
    FORWARD("4 rows, 2 groups", 32, 32, 8, 4, 2, 4, 1),
    FORWARD("4 rows", 40, 40, 5, 4, 1, 2, 3),
    FORWARD("4 rows, 3 groups", 40, 40, 5, 4, 3, 6, 1),
    FORWARD("4 rows, 2 groups", 40, 40, 10, 4, 2, 4, 1),
    FORWARD("2 rows, 2 groups", 80, 80, 10, 2, 2, 2, 1),
    NORMALIZED("4 rows, 3 groups", 32, 32, 4, 4, 3, 6, 1),
    NORMALIZED("4 rows, 2 groups", 32, 32, 8, 4, 2, 4, 1),
    NORMALIZED("4 rows, 2 groups", 40, 40, 5, 4, 2, 4, 1),
    NORMALIZED("4 rows, 2 groups", 40, 40, 10, 4, 2, 4, 1),
    NORMALIZED("2 rows, 3 groups", 64, 64, 8, 2, 3, 3, 1),
    NORMALIZED("2 rows, 2 groups", 80, 80, 10, 2, 2, 2, 1),
    DX("4 rows", 32, 32, 4, 4, 1, 2, 3),
    DX("4 rows, 3 groups", 32, 32, 4, 4, 3, 6, 1),
    DX("7 rows, 2 groups", 64, 64, 4, 7, 2, 2, 1),
    DX("4 rows, 3 groups", 64, 32, 4, 4, 3, 6, 1),
    DX("4 rows", 40, 40, 5, 4, 1, 2, 3),
    DX("4 rows, 3 groups", 40, 40, 5, 4, 3, 6, 1),
    DX("4 rows, 2 groups", 80, 80, 5, 4, 2, 2, 1),
    DX("2 rows, 2 groups", 80, 80, 10, 2, 2, 2, 1),
    { NULL },
};
