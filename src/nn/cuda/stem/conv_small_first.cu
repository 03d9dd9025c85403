/* The first convolution: images of three channels, stored as eight, stride 2. The eight channels of a position are one
 * chunk of 16 bytes, so an mma of depth 16 covers two taps: five for nine taps, the last half zeros. There is no
 * gradient of x.
 *
 * In training the images are bytes: a box of bytes is copied, and the block's warps convert it to chunks in shared
 * memory. */
#include "nn/cuda/stem/conv_small_dw.cuh"

namespace {

enum { PAIRS = 5, COLUMNS = 2 * TILE + 1, CHANNELS = 8 };

constexpr int whole(int bytes) { return (bytes + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN; }

/* The positions that HIGH rows of outputs read, 16 bytes each. STEP: bytes from the corner of an output to the corner
 * of the next. */
template <int HIGH>
struct chunk_box {
    enum {
        WITH = 0,
        ROWS = 2 * HIGH + 1,
        STEP = 32,
        ROW_BYTES = COLUMNS * 16,
        FULL = ROWS * ROW_BYTES,
        BYTES = whole(FULL),
        CONVERTED = 0
    };

    /* Bytes from an output's corner to column v of the kernel. */
    __device__ __forceinline__ static int column(int v) { return v * 16; }

    __device__ __forceinline__ static void copy(char *to, const CUtensorMap *map, tile_position p, uint64_t *barrier)
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

/* The same from bytes. A row of the box has the 16 bytes before the first output's centre, of which the last three are
 * the column left of it, and 32 columns. After conversion, even and odd columns are separate: an instruction reads
 * every other column, and they must be on different banks. */
template <int HIGH>
struct byte_box {
    enum {
        WITH = SMALL_BYTES,
        ROWS = 2 * HIGH + 1,
        FRONT = 16,
        RAW = FRONT + 3 * 2 * TILE, /* bytes of a row */
        FULL = ROWS * RAW,
        BYTES = whole(FULL),
        STEP = 16,
        ODD = 320, /* offset of a row's odd columns: half of all banks after the even ones */
        ROW_BYTES = ODD + TILE * 16,
        CONVERTED = whole(ROWS * ROW_BYTES)
    };
    static_assert(RAW % 16 == 0 && ODD >= (TILE + 1) * 16, "a row");

    __device__ __forceinline__ static int column(int v) { return (v & 1) * ODD + (v >> 1) * 16; }

    __device__ __forceinline__ static void copy(char *to, const CUtensorMap *map, tile_position p, uint64_t *barrier)
    {
        copy_box3(to, map, 6 * p.x - FRONT, 2 * p.y - 1, p.n, barrier);
    }

    /* x (N,H,W,3) bytes, W a multiple of 16. */
    static cudaError_t map(CUtensorMap *m, const void *x, int64_t N, int64_t H, int64_t W)
    {
        cuuint64_t size[3] = { (cuuint64_t)W * 3, (cuuint64_t)H, (cuuint64_t)N };
        cuuint64_t stride[2] = { size[0], size[0] * size[1] };
        cuuint32_t part[3] = { RAW, ROWS, 1 };
        return tensor_map_encode(m, CU_TENSOR_MAP_DATA_TYPE_UINT8, x, 3, size, stride, part,
                                 CU_TENSOR_MAP_SWIZZLE_NONE);
    }

    /* Converts column c of row r. Positions outside the image are 0, not the value of a byte of 0. */
    __device__ __forceinline__ static void convert_one(char *to, const char *from, int r, int c, bool inside,
                                                       const pixels &image)
    {
        const uint8_t *byte = reinterpret_cast<const uint8_t *>(from) + r * RAW + FRONT - 3 + 3 * c;
        float v[3];
#pragma unroll
        for (int i = 0; i < 3; i++) v[i] = inside ? fmaf((float)byte[i], image.slope[i], image.bias[i]) : 0.0f;
        *reinterpret_cast<uint4 *>(to + r * ROW_BYTES + column(c)) =
            make_uint4(pack2(v[0], v[1]), pack2(v[2], 0.0f), 0, 0);
    }

    /* Called by all warps of the block: one row each, one lane per column except the first. */
    template <int WARPS>
    __device__ __forceinline__ static void convert(char *to, const char *from, tile_position p, const pixels &image)
    {
        int lane = threadIdx.x & 31, top = 2 * p.y - 1;
        bool wide = 2 * p.x + lane < image.W;
#pragma unroll 4
        for (int r = threadIdx.x / 32; r < ROWS; r += WARPS)
            convert_one(to, from, r, lane + 1, wide && top + r >= 0 && top + r < image.H, image);
        for (int r = threadIdx.x; r < ROWS; r += 32 * WARPS)
            convert_one(to, from, r, 0, p.x > 0 && top + r >= 0 && top + r < image.H, image);
    }
};

/* Bytes from an output's corner to a tap. */
template <class X>
__device__ __forceinline__ int tap_offset(int tap)
{
    tap = min(tap, TAPS - 1); /* the tenth has weights 0, or its gradient is dropped */
    return tap / 3 * X::ROW_BYTES + X::column(tap % 3);
}

/* ---- forward ------------------------------------------------------------------------------------- */

typedef struct first_job {
    tile_grid tiles;
    bf16 *y;
    const bf16 *w;
    int c;
    pixels image; /* if x is bytes */
    const float *pivot;
    float *partial; /* (blocks, 2, COUT), with statistics */
} first_job;

template <template <int> class X, int NT_, int R_, int ROWS_, int STAGES_, int PER_SM_>
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
    typedef X<HIGH> input;
    typedef row_out<NT, 2> output;
    enum {
        CONVERTED_AT = STAGES * input::BYTES,
        OUT = CONVERTED_AT + input::CONVERTED,
        SMEM = SMEM_ALIGN + OUT + ROWS * output::BYTES
    };
};

/* Weights of two channels of a tap, for output channel o. */
__device__ __forceinline__ unsigned weight_pair(const first_job &j, int o, int tap, int channel)
{
    const bf16 *w = j.w + (o * TAPS + tap) * j.c;
    float low = tap < TAPS && channel < j.c ? to_float(w[channel]) : 0.0f,
          tile_rows = tap < TAPS && channel + 1 < j.c ? to_float(w[channel + 1]) : 0.0f;
    return pack2(low, tile_rows);
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

template <class S, class SUMS>
__device__ __forceinline__ void first_tile(const first_job &j, tile_position p, unsigned x, unsigned out,
                                           const int offset[PAIRS], const unsigned b[PAIRS][S::NT][2], SUMS &sums)
{
    int lane = threadIdx.x & 31, row = threadIdx.x / 32 * S::R;
#pragma unroll
    for (int r = 0; r < S::R; r++) {
        float acc[S::NT][4];
        first_row<S>(acc, x + 2 * (row + r) * S::input::ROW_BYTES + (lane & 15) * S::input::STEP, offset, b);
        int i = p.y + row + r;
        int64_t at = ((int64_t)p.n * j.tiles.H + i) * j.tiles.W + p.x;
        S::output::store(out, r, acc, j.y + at * S::COUT, i < j.tiles.H ? j.tiles.W - p.x : 0, sums);
    }
}

template <class S, class SUMS>
__global__ void __launch_bounds__(S::THREADS, S::PER_SM)
    first_kernel(const __grid_constant__ CUtensorMap map, const first_job j)
{
    extern __shared__ char raw[];
    __shared__ uint64_t full[S::STAGES];
    char *stages = shared_begin(raw);
    auto load_tile = [&](int stage, int tile) {
        if (tile >= j.tiles.count) return;
        barrier_expect(&full[stage], S::input::FULL);
        S::input::copy(stages + stage * S::input::BYTES, &map, position_of(j.tiles, tile, S::HIGH), &full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) barrier_init(&full[s], 1);
        barrier_publish();
        for (int s = 0; s < S::STAGES; s++) load_tile(s, blockIdx.x + s * gridDim.x);
    }
    int lane = threadIdx.x & 31, offset[PAIRS];
    unsigned b[PAIRS][S::NT][2];
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        offset[k] = tap_offset<typename S::input>(2 * k + (lane >> 4));
#pragma unroll
        for (int t = 0; t < S::NT; t++)
#pragma unroll
            for (int i = 0; i < 2; i++) b[k][t][i] = weight_pair(j, t * 8 + (lane >> 2), 2 * k + i, (lane & 3) * 2);
    }
    unsigned out = shared_address(stages + S::OUT) + threadIdx.x / 32 * S::output::BYTES;
    SUMS sums(j.pivot, S::output::chunk_of_lane());
    __syncthreads();
    int stage = 0, parity = 0;
    for (int tile = blockIdx.x; tile < j.tiles.count; tile += gridDim.x) {
        tile_position p = position_of(j.tiles, tile, S::HIGH);
        char *x = stages + stage * S::input::BYTES;
        barrier_wait(&full[stage], parity);
        if constexpr (S::input::CONVERTED != 0) {
            S::input::template convert<S::ROWS>(stages + S::CONVERTED_AT, x, p, j.image);
            __syncthreads(); /* all have read the stage */
            if (threadIdx.x == 0) load_tile(stage, tile + S::STAGES * gridDim.x);
            x = stages + S::CONVERTED_AT;
        }
        first_tile<S>(j, p, shared_address(x), out, offset, b, sums);
        __syncthreads(); /* and the converted box */
        if (S::input::CONVERTED == 0 && threadIdx.x == 0) load_tile(stage, tile + S::STAGES * gridDim.x);
        if (++stage == S::STAGES) stage = 0, parity ^= 1;
    }
    static_assert(S::THREADS * SUMS::LANE_BYTES <= S::OUT, "sums where the stages were");
    S::output::template write_sums<S::ROWS>(j.partial + blockIdx.x * 2 * S::COUT, reinterpret_cast<float *>(stages),
                                            sums);
}

template <class S, class SUMS>
cudaError_t first_ready(int *blocks_per_sm)
{
    return kernel_ready(first_kernel<S, SUMS>, S::THREADS, S::SMEM, blocks_per_sm);
}

template <class S, class SUMS>
cudaError_t first_run(const small_call *c)
{
    const dnn_shape *s = &c->shape;
    const small_data *d = &c->data;
    CUtensorMap map;
    first_job j = { tile_grid_of(s->N, s->Ho, s->Wo, S::HIGH),
                    (bf16 *)d->y,
                    (const bf16 *)d->w,
                    (int)c->c,
                    pixels_of(c),
                    d->pivot,
                    (float *)d->workspace };
    cudaError_t e = S::input::map(&map, d->x, s->N, s->H, s->W);
    if (e != cudaSuccess) return e;
    first_kernel<S, SUMS><<<c->blocks, S::THREADS, S::SMEM, c->stream>>>(map, j);
    return cudaGetLastError();
}

/* ---- the gradient of w --------------------------------------------------------------------------- */

template <template <int> class X, int COUT_, int R_, int ROWS_, int STAGES_, int PER_SM_>
struct first_dw_shape
    : dw_sizes<X<R_ * ROWS_>, box<COUT_, R_ * ROWS_, TILE>, 1, ROWS_, R_, TAPS *((COUT_ + 15) / 16) * 4, STAGES_> {
    enum { COUT = COUT_, MT = (COUT + 15) / 16, R = R_, PER_SM = PER_SM_ };
    typedef X<R_ * ROWS_> x_box;
    typedef box<COUT, R_ * ROWS_, TILE> dy_box;

    __device__ __forceinline__ static void copy_x(char *to, const CUtensorMap *map, tile_position p, int,
                                                  uint64_t *barrier)
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
            for (int k = 0; k < PAIRS; k++) offset[k] = tap_offset<x_box>(2 * k + (lane >> 4));
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
                    ldmatrix_trans(b, x + 2 * (row + r) * x_box::ROW_BYTES + (lane & 15) * x_box::STEP + offset[k]);
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

/* Input as chunks or bytes, with or without sums; NT tiles of 8 output channels, R rows per warp, warps, stages, blocks
 * per multiprocessor. */
template <template <int> class X, class SUMS, int NT, int R, int ROWS, int STAGES, int PER_SM>
constexpr small_kernel row(const char *name)
{
    typedef first_shape<X, NT, R, ROWS, STAGES, PER_SM> S;
    return { name,
             DNN_FORWARD,
             S::input::WITH | SUMS::WITH,
             CHANNELS,
             S::COUT,
             2,
             S::HIGH,
             first_ready<S, SUMS>,
             SUMS::WITH ? 2 * S::COUT * sizeof(float) : 0,
             first_run<S, SUMS> };
}
#define CHUNKS(name, ...) row<chunk_box, no_sums, __VA_ARGS__>(name), row<chunk_box, channel_sums, __VA_ARGS__>(name)
#define BYTES(name, ...)  row<byte_box, channel_sums, __VA_ARGS__>(name)

template <template <int> class X, int COUT, int R, int ROWS, int STAGES, int PER_SM>
constexpr small_kernel dw_row(const char *name)
{
    typedef first_dw_shape<X, COUT, R, ROWS, STAGES, PER_SM> S;
    return {
        name, DNN_DW, S::x_box::WITH, CHANNELS, COUT, 2, S::HIGH, dw_ready<S>, S::SLOTS * sizeof(float), dw_run<S>
    };
}

} // namespace

extern "C" const small_kernel small_first_kernels[] = {
    CHUNKS("first, 4 x 7 rows", 4, 7, 4, 2, 3),
    CHUNKS("first, 4 x 4 rows", 4, 4, 4, 3, 4),
    CHUNKS("first, 4 x 4 rows", 5, 4, 4, 2, 4),
    BYTES("bytes, 4 x 7 rows", 4, 7, 4, 2, 3),
    BYTES("bytes, 4 x 4 rows", 4, 4, 4, 2, 4),
    BYTES("bytes, 4 x 4 rows", 5, 4, 4, 2, 4),
    dw_row<chunk_box, 32, 7, 4, 3, 1>("first, 4 x 7 rows"),
    dw_row<chunk_box, 32, 2, 8, 2, 2>("first, 8 x 2 rows"),
    dw_row<chunk_box, 40, 4, 4, 2, 2>("first, 4 x 4 rows"),
    dw_row<byte_box, 32, 7, 4, 2, 2>("bytes, 4 x 7 rows"),
    dw_row<byte_box, 32, 4, 4, 2, 3>("bytes, 4 x 4 rows"),
    dw_row<byte_box, 40, 4, 4, 2, 2>("bytes, 4 x 4 rows"),
    { NULL },
};
