/* Forward with stride 1, and the gradient of x, which is the same with the weights turned around.
 *
 * A block walks over tiles, 32 or 40 input channels at a time: while one box is multiplied, the copy engine
 * brings the next. A warp owns R rows of 16
 * outputs and 8 NT channels. It loads each input row once per column v of the kernel and uses it for the three
 * outputs that see it in rows u of the kernel. */
#include "nn/cuda/conv_small.cuh"

namespace {

typedef struct forward_job {
    tile_walk tiles;
    bf16 *y;
    const bf16 *w;
    int c;     /* channels of w */
    bool flip; /* y is dx, x is dy: w'[c][u][v][o] = w[o][2-u][2-v][c] */
} forward_job;

/* ROWS warps share the rows of a tile, SPLIT the channels. */
template <int CIN_, int NT_, int SPLIT_, int R_, int ROWS_, int STAGES_, int PER_SM_, bool GROUP_>
struct forward_shape {
    enum {
        CIN = CIN_,
        NT = NT_,
        SPLIT = SPLIT_,
        R = R_,
        ROWS = ROWS_,
        STAGES = STAGES_,
        PER_SM = PER_SM_,
        GROUP = GROUP_, /* products by warpgroups */
        COUT = 8 * NT * SPLIT,
        THREADS = 32 * ROWS * SPLIT,
        HIGH = R * ROWS, /* rows of a tile */
        PLANE = CIN % 32 ? 40 : 32,
        PLANES = CIN / PLANE,
        STEPS = (PLANE + 15) / 16, /* products per tap and plane; the last may be half zeros */
        K = PLANES * STEPS * 16,
        W_LD = K + (GROUP ? 0 : 8), /* an odd number of chunks */
        W_BYTES = TAPS * COUT * W_LD * 2,
        CORE = 64 /* elements: 8 rows of 16 bytes */
    };
    static_assert(CIN % PLANE == 0 && (!GROUP || ROWS == 4), "planes; the four warps of a group own the rows");
    typedef box<PLANE, HIGH + 2, TILE + 2> input;
    enum { SMEM = SMEM_ALIGN + STAGES * input::BYTES + W_BYTES };

    /* Where the weight of output n and place k lies: rows for ldmatrix, or per tap and 16 places the cores
     * that a warpgroup's product reads, two for every 8 outputs. */
    __device__ __forceinline__ static int weight_at(int tap, int n, int k)
    {
        if (!GROUP) return (tap * COUT + n) * W_LD + k;
        return ((tap * (K / 16) + k / 16) * (COUT / 8) + n / 8) * 2 * CORE + (k >> 3 & 1) * CORE + (n & 7) * 8 +
               (k & 7);
    }
};

/* (9, COUT, K) in shared memory. Place k stands for a channel of a plane, or for none. */
template <class S>
__device__ void load_weights(bf16 *to, const forward_job &j)
{
#pragma unroll 8
    for (int i = threadIdx.x; i < TAPS * S::COUT * S::K; i += S::THREADS) {
        int n, k, tap; /* what lies together in global memory runs fastest */
        if (j.flip) n = i % S::COUT, tap = i / S::COUT % TAPS, k = i / S::COUT / TAPS;
        else k = i % S::K, tap = i / S::K % TAPS, n = i / S::K / TAPS;
        int in_plane = k % (S::STEPS * 16), channel = k / (S::STEPS * 16) * S::PLANE + in_plane;
        bool there = in_plane < S::PLANE && (j.flip ? n : channel) < j.c;
        int from = j.flip ? (channel * TAPS + TAPS - 1 - tap) * j.c + n : (n * TAPS + tap) * j.c + channel;
        to[S::weight_at(tap, n, k)] = there ? j.w[from] : bf16(0.0f);
    }
}

/* b: NT column tiles of the weights of a tap, places 16 k .. + 15. */
template <class S>
__device__ __forceinline__ void weights_of(unsigned b[S::NT][2], unsigned w, int tap, int k)
{
    int lane = threadIdx.x & 31, split = threadIdx.x / 32 / S::ROWS;
#pragma unroll
    for (int t = 0; t < S::NT; t += 2) {
        unsigned r[4];
        int last = t + 1 == S::NT, n = (split * S::NT + t) * 8 + (lane & 7) + (last ? 0 : (lane >> 4) * 8);
        ldmatrix(r, w + S::weight_at(tap, n, k * 16 + (lane >> 3 & 1) * 8) * 2);
        b[t][0] = r[0], b[t][1] = r[1];
        if (!last) b[t + 1][0] = r[2], b[t + 1][1] = r[3];
    }
}

template <class S>
__device__ __forceinline__ void clear(float acc[S::R][S::NT][4])
{
#pragma unroll
    for (int r = 0; r < S::R; r++)
#pragma unroll
        for (int t = 0; t < S::NT; t++) acc[r][t][0] = acc[r][t][1] = acc[r][t][2] = acc[r][t][3] = 0.0f;
}

/* acc += the plane in x, seen through the weights of its channels. */
template <class S>
__device__ __forceinline__ void multiply(float acc[S::R][S::NT][4], unsigned x, unsigned w, int plane)
{
    int lane = threadIdx.x & 31, row = threadIdx.x / 32 % S::ROWS * S::R;
#pragma unroll 1
    for (int k = 0; k < S::STEPS; k++) {
        int chunk = 2 * k + (lane >> 4);
        if (S::PLANE % 16 && chunk == S::PLANE / 8) chunk--; /* its weights are 0 */
#pragma unroll
        for (int v = 0; v < 3; v++) {
            unsigned a[S::R + 2][4];
#pragma unroll
            for (int i = 0; i < S::R + 2; i++)
                ldmatrix(a[i], x + S::input::at((row + i) * (TILE + 2) + (lane & 15) + v, chunk));
#pragma unroll
            for (int u = 0; u < 3; u++) {
                unsigned b[S::NT][2];
                weights_of<S>(b, w, u * 3 + v, plane * S::STEPS + k);
#pragma unroll
                for (int r = 0; r < S::R; r++)
#pragma unroll
                    for (int t = 0; t < S::NT; t++) mma(acc[r][t], a[r + u], b[t][0], b[t][1]);
            }
        }
    }
}

/* The same by the four warps of a group together, weights straight from shared memory; the first plane
 * overwrites acc. Rows for the next products are loaded while these run. */
template <class S>
__device__ __forceinline__ void multiply_group(float (&acc)[S::R][S::NT][4], unsigned x, unsigned w, int plane)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, row = warp % S::ROWS * S::R;
    unsigned a[2][S::R + 2][4];
    w += S::weight_at(0, S::SPLIT > 1 ? warp / S::ROWS * 8 * S::NT : 0, plane * S::STEPS * 16) * 2;
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
            for (int r = 0; r < S::R; r++) 
                wgmma_rows<S::NT>(acc[r], a[step & 1][r + u], b, plane || step || u);
        }
        wgmma_commit();
        if (step + 1 < 3 * S::STEPS) wgmma_wait<1>(); /* the other half of a is free */
    }
    wgmma_wait<0>();
}

template <class S>
__device__ __forceinline__ void store_tile(const forward_job &j, tile_place p, const float acc[S::R][S::NT][4])
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < S::R; r++)
#pragma unroll
        for (int high = 0; high < 2; high++) {
            int y = p.y + warp % S::ROWS * S::R + r, x = p.x + (lane >> 2) + high * 8;
            bool inside = y < j.tiles.H && x < j.tiles.W;
            int64_t at = ((int64_t)p.n * j.tiles.H + y) * j.tiles.W + x;
            store_channels<S::NT>(j.y + at * S::COUT + warp / S::ROWS * (8 * S::NT), acc[r], high, inside);
        }
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::PER_SM)
    forward_kernel(const __grid_constant__ CUtensorMap map, const forward_job j)
{
    extern __shared__ char raw[];
    __shared__ uint64_t full[S::STAGES];
    char *stages = smem_begin(raw);
    bf16 *w = reinterpret_cast<bf16 *>(stages + S::STAGES * S::input::BYTES);
    auto bring = [&](int stage, int item) { /* item: a plane of one of this block's tiles */
        int tile = blockIdx.x + item / S::PLANES * gridDim.x;
        if (tile >= j.tiles.count) return;
        barrier_expect(&full[stage], S::input::FULL);
        S::input::copy(stages + stage * S::input::BYTES, &map, place_of(j.tiles, tile, S::HIGH), 1,
                       item % S::PLANES * S::PLANE, &full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) barrier_init(&full[s], 1);
        barrier_publish();
        for (int s = 0; s < S::STAGES; s++) bring(s, s);
    }
    load_weights<S>(w, j);
    if (S::GROUP) asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* products read them */
    __syncthreads();
    int stage = 0, parity = 0, item = 0;
    for (int tile = blockIdx.x; tile < j.tiles.count; tile += gridDim.x) {
        float acc[S::R][S::NT][4];
        if constexpr (!S::GROUP) clear<S>(acc);
#pragma unroll 1
        for (int plane = 0; plane < S::PLANES; plane++, item++) {
            barrier_wait(&full[stage], parity);
            unsigned x = shared_address(stages + stage * S::input::BYTES);
            if constexpr (S::GROUP) multiply_group<S>(acc, x, shared_address(w), plane);
            else multiply<S>(acc, x, shared_address(w), plane);
            __syncthreads(); /* all have read the stage */
            if (threadIdx.x == 0) bring(stage, item + S::STAGES);
            if (++stage == S::STAGES) stage = 0, parity ^= 1;
        }
        store_tile<S>(j, place_of(j.tiles, tile, S::HIGH), acc);
    }
}

template <class S>
cudaError_t ready(int *blocks_per_sm)
{
    return kernel_ready(forward_kernel<S>, S::THREADS, S::SMEM, blocks_per_sm);
}

template <class S>
cudaError_t run(const small_call *c)
{
    const dnn_shape *s = &c->shape;
    bool flip = s->kind == DNN_DX; /* stride 1: x and y have one size */
    CUtensorMap map;
    forward_job j = { walk_of(s->N, s->H, s->W, S::HIGH), (bf16 *)(flip ? c->x : c->y), (const bf16 *)c->w,
                      (int)c->c, flip };
    cudaError_t e = S::input::map(&map, flip ? c->y : c->x, s->N, s->H, s->W, S::CIN);
    if (e != cudaSuccess) return e;
    int blocks = j.tiles.count < c->blocks ? j.tiles.count : c->blocks;
    forward_kernel<S><<<blocks, S::THREADS, S::SMEM, c->stream>>>(map, j);
    return cudaGetLastError();
}

#define FORWARD(...)                                                                                         \
    { #__VA_ARGS__,                                                                                          \
      DNN_FORWARD,                                                                                           \
      forward_shape<__VA_ARGS__>::CIN,                                                                       \
      forward_shape<__VA_ARGS__>::COUT,                                                                      \
      1,                                                                                                     \
      ready<forward_shape<__VA_ARGS__>>,                                                                     \
      0,                                                                                                     \
      run<forward_shape<__VA_ARGS__>> }
#define DX(...)                                                                                              \
    { #__VA_ARGS__,                                                                                          \
      DNN_DX,                                                                                                \
      forward_shape<__VA_ARGS__>::COUT,                                                                      \
      forward_shape<__VA_ARGS__>::CIN,                                                                       \
      1,                                                                                                     \
      ready<forward_shape<__VA_ARGS__>>,                                                                     \
      0,                                                                                                     \
      run<forward_shape<__VA_ARGS__>> }

} // namespace

extern "C" const small_kernel small_forward_kernels[] = {
    /* channels in, tiles of 8 out, splits, rows of a warp, warps, stages, blocks per multiprocessor, warpgroups */
    FORWARD(32, 4, 1, 4, 4, 2, 3, false),
    FORWARD(32, 4, 1, 7, 4, 2, 2, false),
    FORWARD(32, 4, 1, 4, 7, 2, 2, false),
    FORWARD(32, 4, 1, 4, 4, 2, 3, true),
    FORWARD(32, 4, 1, 7, 4, 2, 2, true),
    FORWARD(32, 4, 2, 4, 4, 2, 2, false),
    FORWARD(32, 4, 2, 7, 4, 2, 1, false),
    FORWARD(32, 8, 1, 4, 4, 2, 2, false),
    FORWARD(32, 8, 1, 4, 4, 2, 2, true),
    FORWARD(32, 4, 2, 7, 4, 2, 1, true),
    DX(32, 4, 1, 4, 4, 2, 3, false),
    DX(32, 4, 1, 7, 4, 2, 2, false),
    DX(32, 4, 1, 4, 7, 2, 2, false),
    DX(32, 4, 1, 4, 4, 2, 3, true),
    DX(32, 4, 1, 7, 4, 2, 2, true),
    DX(64, 4, 1, 4, 4, 2, 2, false),
    DX(64, 4, 1, 7, 4, 2, 2, false),
    DX(64, 4, 1, 4, 7, 2, 2, false),
    DX(64, 4, 1, 4, 4, 2, 3, true),
    DX(64, 4, 1, 7, 4, 2, 2, true),
    FORWARD(40, 5, 1, 4, 4, 2, 2, false),
    FORWARD(40, 5, 1, 4, 4, 2, 2, true),
    FORWARD(40, 5, 2, 4, 4, 2, 1, false),
    FORWARD(40, 5, 2, 4, 4, 2, 1, true),
    FORWARD(40, 10, 1, 4, 4, 2, 2, true),
    DX(40, 5, 1, 4, 4, 2, 2, false),
    DX(40, 5, 1, 4, 4, 2, 2, true),
    DX(80, 5, 1, 4, 4, 2, 2, false),
    DX(80, 5, 1, 4, 4, 2, 2, true),
    { NULL },
};
