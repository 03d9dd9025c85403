/* The first convolution: images of three channels, stored as eight, stride 2. The eight channels of a
 * position are one chunk of 16 bytes, so a product of depth 16 takes two taps at a time: five for nine, the
 * last half zeros. There is no gradient of x. */
#include "nn/cuda/conv_small_dw.cuh"

namespace {

enum { PAIRS = 5, COLUMNS = 2 * TILE + 1, ROW_BYTES = COLUMNS * 16, CHANNELS = 8 };

/* The positions that `rows` rows of outputs see, 16 bytes each. */
template <int HIGH>
struct first_box {
    enum { ROWS = 2 * HIGH + 1, FULL = ROWS * ROW_BYTES, BYTES = (FULL + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN };

    __device__ __forceinline__ static void copy(char *to, const CUtensorMap *map, tile_place p, uint64_t *barrier)
    {
        copy_box3(to, map, (2 * p.x - 1) * 4, 2 * p.y - 1, p.n, barrier);
    }

    /* x (N,H,W,8), rows as 4-byte words: a row of the box is then one run of bytes. */
    static cudaError_t map(CUtensorMap *m, const void *x, int64_t N, int64_t H, int64_t W)
    {
        cuuint64_t size[3] = { (cuuint64_t)W * 4, (cuuint64_t)H, (cuuint64_t)N };
        cuuint64_t stride[2] = { size[0] * 4, size[0] * size[1] * 4 };
        cuuint32_t part[3] = { COLUMNS * 4, ROWS, 1 };
        return tensor_map_encode(m, CU_TENSOR_MAP_DATA_TYPE_UINT32, x, 3, size, stride, part,
                                 CU_TENSOR_MAP_SWIZZLE_NONE);
    }
};

/* Bytes from an output's corner to a tap. */
__device__ __forceinline__ int tap_offset(int tap)
{
    tap = min(tap, TAPS - 1); /* a tenth has weights 0, or its gradient is not kept */
    return tap / 3 * ROW_BYTES + tap % 3 * 16;
}

/* ---- forward ------------------------------------------------------------------------------------- */

typedef struct first_job {
    tile_walk tiles;
    bf16 *y;
    const bf16 *w;
    int c;
} first_job;

template <int NT_, int R_, int ROWS_, int STAGES_, int PER_SM_>
struct first_shape {
    enum {
        NT = NT_,
        R = R_,
        ROWS = ROWS_,
        STAGES = STAGES_,
        PER_SM = PER_SM_,
        COUT = 8 * NT,
        THREADS = 32 * ROWS,
        HIGH = R * ROWS
    };
    typedef first_box<HIGH> input;
    typedef row_out<NT, 2> output;
    enum { OUT = STAGES * input::BYTES, SMEM = SMEM_ALIGN + OUT + ROWS * output::BYTES };
};

/* Two channels of a tap's weights, for output channel o. */
__device__ __forceinline__ unsigned weight_pair(const first_job &j, int o, int tap, int channel)
{
    const bf16 *w = j.w + (o * TAPS + tap) * j.c;
    float low = tap < TAPS && channel < j.c ? to_float(w[channel]) : 0.0f,
          high = tap < TAPS && channel + 1 < j.c ? to_float(w[channel + 1]) : 0.0f;
    return pack2(low, high);
}

template <class S>
__device__ __forceinline__ void first_row(float acc[S::NT][4], unsigned corner, const int offset[PAIRS],
                                          const unsigned b[PAIRS][S::NT][2])
{
#pragma unroll
    for (int t = 0; t < S::NT; t++) acc[t][0] = acc[t][1] = acc[t][2] = acc[t][3] = 0.0f;
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        unsigned a[4];
        ldmatrix(a, corner + offset[k]);
#pragma unroll
        for (int t = 0; t < S::NT; t++) mma(acc[t], a, b[k][t][0], b[k][t][1]);
    }
}

template <class S>
__device__ __forceinline__ void first_tile(const first_job &j, tile_place p, unsigned x, unsigned out,
                                           const int offset[PAIRS], const unsigned b[PAIRS][S::NT][2])
{
    int lane = threadIdx.x & 31, row = threadIdx.x / 32 * S::R;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
        float acc[S::NT][4];
        first_row<S>(acc, x + 2 * (row + r) * ROW_BYTES + (lane & 15) * 32, offset, b);
        int i = p.y + row + r;
        int64_t at = ((int64_t)p.n * j.tiles.H + i) * j.tiles.W + p.x;
        S::output::store(out, r, acc, j.y + at * S::COUT, i < j.tiles.H ? j.tiles.W - p.x : 0);
    }
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::PER_SM)
    first_kernel(const __grid_constant__ CUtensorMap map, const first_job j)
{
    extern __shared__ char raw[];
    __shared__ uint64_t full[S::STAGES];
    char *stages = smem_begin(raw);
    auto bring = [&](int stage, int tile) {
        if (tile >= j.tiles.count) return;
        barrier_expect(&full[stage], S::input::FULL);
        S::input::copy(stages + stage * S::input::BYTES, &map, place_of(j.tiles, tile, S::HIGH), &full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) barrier_init(&full[s], 1);
        barrier_publish();
        for (int s = 0; s < S::STAGES; s++) bring(s, blockIdx.x + s * gridDim.x);
    }
    int lane = threadIdx.x & 31, offset[PAIRS];
    unsigned b[PAIRS][S::NT][2];
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        offset[k] = tap_offset(2 * k + (lane >> 4));
#pragma unroll
        for (int t = 0; t < S::NT; t++)
#pragma unroll
            for (int i = 0; i < 2; i++) b[k][t][i] = weight_pair(j, t * 8 + (lane >> 2), 2 * k + i, (lane & 3) * 2);
    }
    unsigned out = shared_address(stages + S::OUT) + threadIdx.x / 32 * S::output::BYTES;
    __syncthreads();
    int stage = 0, parity = 0;
    for (int tile = blockIdx.x; tile < j.tiles.count; tile += gridDim.x) {
        barrier_wait(&full[stage], parity);
        unsigned x = shared_address(stages + stage * S::input::BYTES);
        first_tile<S>(j, place_of(j.tiles, tile, S::HIGH), x, out, offset, b);
        __syncthreads(); /* all have read the stage */
        if (threadIdx.x == 0) bring(stage, tile + S::STAGES * gridDim.x);
        if (++stage == S::STAGES) stage = 0, parity ^= 1;
    }
}

template <class S>
cudaError_t first_ready(int *blocks_per_sm)
{
    return kernel_ready(first_kernel<S>, S::THREADS, S::SMEM, blocks_per_sm);
}

template <class S>
cudaError_t first_run(const small_call *c)
{
    const dnn_shape *s = &c->shape;
    CUtensorMap map;
    first_job j = { walk_of(s->N, s->Ho, s->Wo, S::HIGH), (bf16 *)c->y, (const bf16 *)c->w, (int)c->c };
    cudaError_t e = S::input::map(&map, c->x, s->N, s->H, s->W);
    if (e != cudaSuccess) return e;
    int blocks = j.tiles.count < c->blocks ? j.tiles.count : c->blocks;
    first_kernel<S><<<blocks, S::THREADS, S::SMEM, c->stream>>>(map, j);
    return cudaGetLastError();
}

/* ---- the gradient of w --------------------------------------------------------------------------- */

template <int COUT_, int R_, int ROWS_, int STAGES_, int PER_SM_>
struct first_dw_shape : dw_sizes<first_box<R_ * ROWS_>, box<COUT_, R_ * ROWS_, TILE>, 1, ROWS_, R_,
                                 TAPS *((COUT_ + 15) / 16) * 4, STAGES_> {
    enum { COUT = COUT_, MT = (COUT + 15) / 16, R = R_, PER_SM = PER_SM_ };
    typedef first_box<R_ * ROWS_> x_box;
    typedef box<COUT, R_ * ROWS_, TILE> dy_box;

    __device__ __forceinline__ static void bring_x(char *to, const CUtensorMap *map, tile_place p, uint64_t *barrier)
    {
        x_box::copy(to, map, p, barrier);
    }

    static cudaError_t map_x(CUtensorMap *m, const void *x, const dnn_shape *s)
    {
        return x_box::map(m, x, s->N, s->H, s->W);
    }

    __device__ __forceinline__ static int element(int warp, int i, int lane, int c)
    {
        int m = i / 4 % MT, tap = i / 4 / MT, o = m * 16 + (i >> 1 & 1) * 8 + lane / 4,
            channel = lane % 4 * 2 + (i & 1);
        return o < COUT && channel < c ? (o * TAPS + tap) * c + channel : -1;
    }

    /* acc: 16 channels of dy by 8 of x per tap, [tap][m][4]. */
    struct worker {
        int lane, row, offset[PAIRS];
        __device__ __forceinline__ worker(int thread) : lane(thread & 31), row(thread / 32 * R)
        {
#pragma unroll
            for (int k = 0; k < PAIRS; k++) offset[k] = tap_offset(2 * k + (lane >> 4));
        }

        __device__ __forceinline__ void multiply(float (&acc)[TAPS * MT * 4], unsigned x, unsigned dy) const
        {
#pragma unroll
            for (int r = 0; r < R; r++) {
                unsigned a[MT][4];
                int position = (row + r) * TILE + (lane >> 4) * 8 + (lane & 7);
#pragma unroll
                for (int m = 0; m < MT; m++)
                    ldmatrix_trans(a[m], dy + dy_box::at(position, min(2 * m + (lane >> 3 & 1), COUT / 8 - 1)));
#pragma unroll
                for (int k = 0; k < PAIRS; k++) {
                    unsigned b[4];
                    ldmatrix_trans(b, x + 2 * (row + r) * ROW_BYTES + (lane & 15) * 32 + offset[k]);
#pragma unroll
                    for (int m = 0; m < MT; m++) {
                        mma(&acc[(2 * k * MT + m) * 4], a[m], b[0], b[1]);
                        if (2 * k + 1 < TAPS) mma(&acc[((2 * k + 1) * MT + m) * 4], a[m], b[2], b[3]);
                    }
                }
            }
        }
    };
};

/* NT tiles of 8 channels out, R rows of a warp, warps, stages, blocks per multiprocessor. */
template <int NT, int R, int ROWS, int STAGES, int PER_SM>
constexpr small_kernel row(const char *name)
{
    typedef first_shape<NT, R, ROWS, STAGES, PER_SM> S;
    return { name, DNN_FORWARD, CHANNELS, S::COUT, 2, first_ready<S>, 0, first_run<S> };
}

template <int COUT, int R, int ROWS, int STAGES, int PER_SM>
constexpr small_kernel dw_row(const char *name)
{
    typedef first_dw_shape<COUT, R, ROWS, STAGES, PER_SM> S;
    return { name, DNN_DW, CHANNELS, COUT, 2, dw_ready<S>, S::SLOTS * sizeof(float), dw_run<S> };
}

} // namespace

extern "C" const small_kernel small_first_kernels[] = {
    row<4, 7, 4, 2, 3>("first, 4 x 7 rows"),
    row<4, 4, 4, 3, 4>("first, 4 x 4 rows"),
    row<5, 4, 4, 2, 4>("first, 4 x 4 rows"),
    dw_row<32, 7, 4, 3, 1>("first, 4 x 7 rows"),
    dw_row<32, 2, 8, 2, 2>("first, 8 x 2 rows"),
    dw_row<40, 4, 4, 2, 2>("first, 4 x 4 rows"),
    { NULL },
};
