/* The gradient of w with stride 1: dw[o,u,v,c] = sum over positions of dy[i,j,o] x[i+u-1,j+v-1,c].
 *
 * A block keeps all of dw in the registers of its warps over a long walk of tiles and writes it once; a
 * second launch adds the blocks in order. A warp owns one column v of the kernel, 16 MT channels of dy and 8
 * NT of x, in R rows of the tile; it loads each row of x once for the three rows u of the kernel and keeps
 * the last three rows of dy. What lies outside an image comes as zeros from the copy engine. */
#include "nn/cuda/conv_small.cuh"

namespace {

typedef struct dw_job {
    tile_walk tiles;
    float *partial; /* (blocks, SLOTS) */
} dw_job;

/* ROWS groups of warps share the rows of a tile. */
template <int CIN_, int COUT_, int MT_, int NT_, int R_, int ROWS_, int STAGES_>
struct dw_shape {
    enum {
        CIN = CIN_,
        COUT = COUT_,
        MT = MT_,
        NT = NT_,
        R = R_,
        ROWS = ROWS_,
        STAGES = STAGES_,
        M_PARTS = (COUT + 16 * MT - 1) / (16 * MT),
        N_PARTS = CIN / (8 * NT),
        GROUP = 3 * M_PARTS * N_PARTS, /* warps that make one whole dw */
        THREADS = 32 * GROUP * ROWS,
        HIGH = R * ROWS,
        ACC = 3 * MT * NT * 4,
        SLOTS = GROUP * ACC * 32
    };
    static_assert(CIN % (8 * NT) == 0, "channels of x");
    typedef box<CIN, HIGH + 2, TILE + 2> x_box;
    typedef box<COUT, HIGH, TILE> dy_box;
    enum {
        STAGE = x_box::BYTES + dy_box::BYTES,
        FULL = x_box::FULL + dy_box::FULL,
        MEET = (ROWS - 1) * SLOTS * 4, /* the groups' sums at the end */
        SMEM = SMEM_ALIGN + (STAGES * STAGE > MEET ? STAGES * STAGE : MEET)
    };
};

/* A warp's part of dw. */
typedef struct dw_part {
    int group, v, m, n; /* first chunks of dy (m) and x (n) */
} dw_part;

template <class S>
__device__ __forceinline__ dw_part part_of(int warp)
{
    int q = warp % S::GROUP;
    dw_part p = { warp / S::GROUP, q / (S::M_PARTS * S::N_PARTS), q / S::N_PARTS % S::M_PARTS * 2 * S::MT,
                  q % S::N_PARTS * S::NT };
    return p;
}

/* MT tiles (16 channels, 16 positions) of row `row` of dy. */
template <class S>
__device__ __forceinline__ void load_dy(unsigned a[S::MT][4], unsigned dy, int row, int m)
{
    int lane = threadIdx.x & 31, position = row * TILE + (lane >> 4) * 8 + (lane & 7);
#pragma unroll
    for (int t = 0; t < S::MT; t++) {
        int chunk = m + 2 * t + (lane >> 3 & 1);
        if (S::COUT % 16) chunk = min(chunk, S::COUT / 8 - 1); /* channels past the end are not kept */
        ldmatrix_trans(a[t], dy + S::dy_box::at(position, chunk));
    }
}

/* NT tiles (16 positions, 8 channels) of row `row` of x, from column v on. */
template <class S>
__device__ __forceinline__ void load_x(unsigned b[S::NT][2], unsigned x, int row, int v, int n)
{
    int lane = threadIdx.x & 31, position = row * (TILE + 2) + (lane & 15) + v;
#pragma unroll
    for (int t = 0; t < S::NT; t += 2) {
        unsigned r[4];
        bool last = t + 1 == S::NT;
        ldmatrix_trans(r, x + S::x_box::at(position, n + t + (last ? 0 : lane >> 4)));
        b[t][0] = r[0], b[t][1] = r[1];
        if (!last) b[t + 1][0] = r[2], b[t + 1][1] = r[3];
    }
}

template <class S>
__device__ __forceinline__ void multiply(float acc[3][S::MT][S::NT][4], unsigned x, unsigned dy, const dw_part &p)
{
    unsigned a[S::R][S::MT][4];
    int row = p.group * S::R;
#pragma unroll
    for (int i = 0; i < S::R + 2; i++) {
        unsigned b[S::NT][2];
        if (i < S::R) load_dy<S>(a[i], dy, row + i, p.m);
        load_x<S>(b, x, row + i, p.v, p.n);
#pragma unroll
        for (int u = 0; u < 3; u++) {
            if (i - u < 0 || i - u >= S::R) continue;
#pragma unroll
            for (int m = 0; m < S::MT; m++)
#pragma unroll
                for (int n = 0; n < S::NT; n++) mma(acc[u][m][n], a[i - u][m], b[n][0], b[n][1]);
        }
    }
}

/* The sums of all groups, by the warps of the first, in order; slots: [warp of the group][accumulator][lane].
 */
template <class S>
__device__ __forceinline__ void meet(float *partial, float *smem, const float acc[S::ACC])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, at = warp % S::GROUP * S::ACC * 32 + lane;
    if (warp >= S::GROUP)
#pragma unroll
        for (int i = 0; i < S::ACC; i++) smem[(warp / S::GROUP - 1) * S::SLOTS + at + i * 32] = acc[i];
    __syncthreads();
    if (warp >= S::GROUP) return;
#pragma unroll
    for (int i = 0; i < S::ACC; i++) {
        float sum = acc[i];
#pragma unroll
        for (int g = 0; g < S::ROWS - 1; g++) sum += smem[g * S::SLOTS + at + i * 32];
        partial[at + i * 32] = sum;
    }
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    dw_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap dy_map, const dw_job j)
{
    extern __shared__ char raw[];
    __shared__ uint64_t full[S::STAGES];
    char *stages = smem_begin(raw);
    auto bring = [&](int stage, int tile) {
        if (tile >= j.tiles.count) return;
        char *to = stages + stage * S::STAGE;
        tile_place p = place_of(j.tiles, tile, S::HIGH);
        barrier_expect(&full[stage], S::FULL);
        S::x_box::copy(to, &x_map, p, 1, 0, &full[stage]);
        S::dy_box::copy(to + S::x_box::BYTES, &dy_map, p, 0, 0, &full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) barrier_init(&full[s], 1);
        barrier_publish();
        for (int s = 0; s < S::STAGES; s++) bring(s, blockIdx.x + s * gridDim.x);
    }
    __syncthreads();
    dw_part part = part_of<S>(threadIdx.x / 32);
    float acc[3][S::MT][S::NT][4];
#pragma unroll
    for (int i = 0; i < S::ACC; i++) (&acc[0][0][0][0])[i] = 0.0f;
    int stage = 0, parity = 0;
    for (int tile = blockIdx.x; tile < j.tiles.count; tile += gridDim.x) {
        unsigned x = shared_address(stages + stage * S::STAGE);
        barrier_wait(&full[stage], parity);
        multiply<S>(acc, x, x + S::x_box::BYTES, part);
        __syncthreads(); /* all have read the stage */
        if (threadIdx.x == 0) bring(stage, tile + S::STAGES * gridDim.x);
        if (++stage == S::STAGES) stage = 0, parity ^= 1;
    }
    meet<S>(j.partial + (int64_t)blockIdx.x * S::SLOTS, reinterpret_cast<float *>(stages), &acc[0][0][0][0]);
}

/* dw (COUT,3,3,c) = the sums of all blocks. */
template <class S>
__global__ void __launch_bounds__(256) add_kernel(float *dw, const float *partial, int blocks, int c)
{
    int slot = blockIdx.x * 32 + threadIdx.x;
    float sum;
    if (!add_blocks(sum, partial, blocks, slot, S::SLOTS)) return;
    int lane = slot % 32, i = slot / 32 % S::ACC;
    dw_part p = part_of<S>(slot / 32 / S::ACC);
    int n = i / 4 % S::NT, m = i / 4 / S::NT % S::MT, u = i / 4 / S::NT / S::MT;
    int o = p.m * 8 + m * 16 + (i >> 1 & 1) * 8 + lane / 4, ch = (p.n + n) * 8 + lane % 4 * 2 + (i & 1);
    if (o < S::COUT && ch < c) dw[((o * 3 + u) * 3 + p.v) * c + ch] = sum;
}

template <class S>
cudaError_t ready(int *blocks_per_sm)
{
    return kernel_ready(dw_kernel<S>, S::THREADS, S::SMEM, blocks_per_sm);
}

template <class S>
cudaError_t run(const small_call *c)
{
    const dnn_shape *s = &c->shape;
    CUtensorMap x_map, dy_map;
    dw_job j = { walk_of(s->N, s->H, s->W, S::HIGH), (float *)c->workspace };
    cudaError_t e = S::x_box::map(&x_map, c->x, s->N, s->H, s->W, S::CIN);
    if (e == cudaSuccess) e = S::dy_box::map(&dy_map, c->y, s->N, s->H, s->W, S::COUT);
    if (e != cudaSuccess) return e;
    int blocks = j.tiles.count < c->blocks ? j.tiles.count : c->blocks;
    dw_kernel<S><<<blocks, S::THREADS, S::SMEM, c->stream>>>(x_map, dy_map, j);
    add_kernel<S><<<S::SLOTS / 32, dim3(32, 8), 0, c->stream>>>((float *)c->w, j.partial, blocks, (int)c->c);
    return cudaGetLastError();
}

/* Channels in, out, tiles of 16 dy and of 8 x of a warp, its rows, groups, stages. */
template <int CIN, int COUT, int MT, int NT, int R, int ROWS, int STAGES>
constexpr small_kernel row(const char *name)
{
    typedef dw_shape<CIN, COUT, MT, NT, R, ROWS, STAGES> S;
    return { name, DNN_DW, CIN, COUT, 1, ready<S>, S::SLOTS * sizeof(float), run<S> };
}

} // namespace

extern "C" const small_kernel small_dw_kernels[] = {
    row<32, 32, 2, 4, 7, 4, 3>("4 x 7 rows"),
    row<32, 32, 2, 4, 4, 4, 3>("4 x 4 rows"),
    row<32, 64, 2, 4, 7, 2, 3>("2 x 7 rows"),
    row<32, 64, 2, 4, 4, 2, 4>("2 x 4 rows"),
    row<40, 40, 1, 5, 8, 2, 3>("2 x 8 rows"),
    row<40, 80, 1, 5, 8, 1, 3>("8 rows"),
    { NULL },
};
