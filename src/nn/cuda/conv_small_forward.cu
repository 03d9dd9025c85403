/* Forward with stride 1, and the gradient of x, which is the same with the weights turned around.
 *
 * A block walks over tiles, 32 or 40 input channels at a time: while one box is multiplied, the copy engine
 * brings the next. A warp owns R rows of 16 outputs and all their channels. It loads each input row once per
 * column v of the kernel and uses it for the three outputs that see it in rows u of the kernel. Products are
 * those of a warpgroup, rows from registers, weights from shared memory. */
#include "nn/cuda/conv_small.cuh"

namespace {

typedef struct forward_job {
    tile_walk tiles;
    bf16 *y;
    const bf16 *w;
    int c;     /* channels of w */
    bool flip; /* y is dx, x is dy: w'[c][u][v][o] = w[o][2-u][2-v][c] */
} forward_job;

/* R rows for each of the four warps of a group. */
template <int CIN_, int NT_, int R_, int STAGES_, int PER_SM_>
struct forward_shape {
    enum {
        CIN = CIN_,
        NT = NT_,
        R = R_,
        STAGES = STAGES_,
        PER_SM = PER_SM_,
        COUT = 8 * NT,
        THREADS = 128,
        HIGH = 4 * R, /* rows of a tile */
        PLANE = CIN % 32 ? 40 : 32,
        PLANES = CIN / PLANE,
        STEPS = (PLANE + 15) / 16, /* products per tap and plane; the last may be half zeros */
        K = PLANES * STEPS * 16,
        W_BYTES = TAPS * COUT * K * 2,
        CORE = 64 /* elements: 8 rows of 16 bytes */
    };
    static_assert(CIN % PLANE == 0, "planes");
    typedef box<PLANE, HIGH + 2, TILE + 2> input;
    enum { SMEM = SMEM_ALIGN + STAGES * input::BYTES + W_BYTES };

    /* Where the weight of output n and place k lies: per tap and 16 places the cores that a product reads,
     * two for every 8 outputs. */
    __device__ __forceinline__ static int weight_at(int tap, int n, int k)
    {
        return ((tap * (K / 16) + k / 16) * (COUT / 8) + n / 8) * 2 * CORE + (k >> 3 & 1) * CORE +
               (n & 7) * 8 + (k & 7);
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

/* acc += the plane in x, seen through the weights of its channels; the first plane overwrites acc. By the
 * four warps of a group together; rows for the next products are loaded while these run. */
template <class S>
__device__ __forceinline__ void multiply(float (&acc)[S::R][S::NT][4], unsigned x, unsigned w, int plane)
{
    int lane = threadIdx.x & 31, row = threadIdx.x / 32 * S::R;
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
            uint64_t b =
                descriptor_plain(w + S::weight_at(u * 3 + v, 0, k * 16) * 2, 2 * S::CORE, 4 * S::CORE);
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
__device__ __forceinline__ void store_tile(const forward_job &j, tile_place p,
                                           const float acc[S::R][S::NT][4])
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < S::R; r++)
#pragma unroll
        for (int high = 0; high < 2; high++) {
            int y = p.y + warp * S::R + r, x = p.x + (lane >> 2) + high * 8;
            bool inside = y < j.tiles.H && x < j.tiles.W;
            int64_t at = ((int64_t)p.n * j.tiles.H + y) * j.tiles.W + x;
            store_channels<S::NT>(j.y + at * S::COUT, acc[r], high, inside);
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
    /* item: a plane of one of this block's tiles */
    auto bring = [&](int stage, int item) {
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
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* the products read them */
    __syncthreads();
    int stage = 0, parity = 0, item = 0;
    for (int tile = blockIdx.x; tile < j.tiles.count; tile += gridDim.x) {
        float acc[S::R][S::NT][4];
#pragma unroll 1
        for (int plane = 0; plane < S::PLANES; plane++, item++) {
            barrier_wait(&full[stage], parity);
            unsigned x = shared_address(stages + stage * S::input::BYTES);
            multiply<S>(acc, x, shared_address(w), plane);
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

/* CIN channels in, NT tiles of 8 out, R rows of a warp, stages, blocks per multiprocessor. */
template <int CIN, int NT, int R, int STAGES, int PER_SM>
constexpr small_kernel row(const char *name, dnn_kind kind)
{
    typedef forward_shape<CIN, NT, R, STAGES, PER_SM> S;
    return { name, kind,  kind == DNN_DX ? S::COUT : CIN, kind == DNN_DX ? CIN : S::COUT, 1, ready<S>,
             0,    run<S> };
}

} // namespace

extern "C" const small_kernel small_forward_kernels[] = {
    row<32, 4, 4, 2, 3>("4 rows", DNN_FORWARD),  row<32, 4, 7, 2, 2>("7 rows", DNN_FORWARD),
    row<32, 8, 4, 2, 2>("4 rows", DNN_FORWARD),  row<40, 5, 4, 2, 2>("4 rows", DNN_FORWARD),
    row<40, 10, 4, 2, 2>("4 rows", DNN_FORWARD), row<32, 4, 4, 2, 3>("4 rows", DNN_DX),
    row<32, 4, 7, 2, 2>("7 rows", DNN_DX),       row<64, 4, 4, 2, 3>("4 rows", DNN_DX),
    row<64, 4, 7, 2, 2>("7 rows", DNN_DX),       row<40, 5, 4, 2, 2>("4 rows", DNN_DX),
    row<80, 5, 4, 2, 2>("4 rows", DNN_DX),       { NULL },
};
