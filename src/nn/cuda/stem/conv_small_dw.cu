/* The gradient of w with stride 1: dw[o,u,v,c] = sum over positions of dy[i,j,o] x[i+u-1,j+v-1,c].
 *
 * A warp owns one column v of the kernel, 16 MT channels of dy and 8 NT of x, in R rows of the tile. It loads each row
 * of x once for the three rows u of the kernel and keeps the last three rows of dy. Positions outside an image are
 * copied as 0. conv_small_dw.cuh has the loop over tiles. */
#include "nn/cuda/stem/conv_small_dw.cuh"

namespace {

/* A warp's part of dw. */
typedef struct dw_part {
    int group, v, m, n; /* first chunks of dy (m) and x (n) */
} dw_part;

constexpr int parts_of(int channels, int each) { return (channels + each - 1) / each; }

/* ROWS groups of warps split the rows of a tile. CIN: channels of x per block; x has CIN * CHANNEL_SPLITS. */
template <int CIN_, int COUT_, int MT_, int NT_, int R_, int ROWS_, int STAGES_, int CHANNEL_SPLITS_>
struct dw_shape : dw_sizes<box<CIN_, R_ * ROWS_ + 2, TILE + 2, CHANNEL_SPLITS_ == 1>, box<COUT_, R_ * ROWS_, TILE>,
                           3 * parts_of(COUT_, 16 * MT_) * (CIN_ / (8 * NT_)), ROWS_, R_, 3 * MT_ * NT_ * 4, STAGES_,
                           CHANNEL_SPLITS_> {
    enum {
        CIN = CIN_,
        COUT = COUT_,
        MT = MT_,
        NT = NT_,
        R = R_,
        PER_SM = 1,
        M_PARTS = parts_of(COUT, 16 * MT),
        N_PARTS = CIN / (8 * NT),
        GROUP_WARPS = 3 * M_PARTS * N_PARTS /* that compute one whole dw */
    };
    static_assert(CIN % (8 * NT) == 0, "channels of x");
    typedef box<CIN, R_ * ROWS_ + 2, TILE + 2, CHANNEL_SPLITS_ == 1> x_box;
    typedef box<COUT, R_ * ROWS_, TILE> dy_box;
    struct worker;

    __device__ __forceinline__ static dw_part part_of(int warp)
    {
        int q = warp % GROUP_WARPS;
        dw_part p = { warp / GROUP_WARPS, q / (M_PARTS * N_PARTS), q / N_PARTS % M_PARTS * 2 * MT, q % N_PARTS * NT };
        return p;
    }

    __device__ __forceinline__ static void copy_x(char *to, const CUtensorMap *map, tile_position p, int split,
                                                  uint64_t *barrier)
    {
        x_box::copy(to, map, p, 1, split * CIN, barrier);
    }

    static cudaError_t map_x(CUtensorMap *m, const void *x, const dnn_shape *s)
    {
        return x_box::map(m, x, s->N, s->H, s->W, CHANNEL_SPLITS_ * CIN);
    }

    __device__ __forceinline__ static int element(int warp, int i, int lane, int c)
    {
        dw_part p = part_of(warp);
        int from = warp / GROUP_WARPS * CIN; /* the warp index continues over the channel splits */
        int n = i / 4 % NT, m = i / 4 / NT % MT, u = i / 4 / NT / MT;
        int o = p.m * 8 + m * 16 + (i >> 1 & 1) * 8 + lane / 4, channel = from + (p.n + n) * 8 + lane % 4 * 2 + (i & 1);
        return o < COUT && channel < c ? ((o * 3 + u) * 3 + p.v) * c + channel : -1;
    }
};

/* MT tiles (16 channels, 16 positions) of row `row` of dy. */
template <class S>
__device__ __forceinline__ void load_dy(unsigned a[S::MT][4], unsigned dy, int row, int m)
{
    int lane = threadIdx.x & 31, position = row * TILE + (lane >> 4) * 8 + (lane & 7);
#pragma unroll
    for (int t = 0; t < S::MT; t++) {
        int chunk = m + 2 * t + (lane >> 3 & 1);
        if (S::COUT % 16) chunk = min(chunk, S::COUT / 8 - 1); /* results of channels past the end are dropped */
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

template <int CIN, int COUT, int MT, int NT, int R, int ROWS, int STAGES, int CHANNEL_SPLITS>
struct dw_shape<CIN, COUT, MT, NT, R, ROWS, STAGES, CHANNEL_SPLITS>::worker {
    typedef dw_shape<CIN, COUT, MT, NT, R, ROWS, STAGES, CHANNEL_SPLITS> S;
    dw_part p;
    __device__ __forceinline__ worker(int thread) : p(S::part_of(thread / 32)) {}

    /* acc: [u][m][n][4] */
    __device__ __forceinline__ void multiply(float (&acc)[3 * MT * NT * 4], unsigned x, unsigned dy) const
    {
        unsigned a[R][MT][4];
        int row = p.group * R;
#pragma unroll
        for (int i = 0; i < R + 2; i++) {
            unsigned b[NT][2];
            if (i < R) load_dy<S>(a[i], dy, row + i, p.m);
            load_x<S>(b, x, row + i, p.v, p.n);
#pragma unroll
            for (int u = 0; u < 3; u++) {
                if (i - u < 0 || i - u >= R) continue;
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                    for (int n = 0; n < NT; n++) mma(&acc[((u * MT + m) * NT + n) * 4], a[i - u][m], b[n][0], b[n][1]);
            }
        }
    }
};

/* Channels in and out; per warp: tiles of 16 channels of dy, tiles of 8 of x, rows; groups, stages, splits of the input
 * channels. */
template <int CIN, int COUT, int MT, int NT, int R, int ROWS, int STAGES, int CHANNEL_SPLITS = 1>
constexpr small_kernel row(const char *name)
{
    typedef dw_shape<CIN / CHANNEL_SPLITS, COUT, MT, NT, R, ROWS, STAGES, CHANNEL_SPLITS> S;
    return {
        name, DNN_DW, 0, CIN, COUT, 1, S::HIGH, dw_ready<S>, CHANNEL_SPLITS * S::SLOTS * sizeof(float), dw_run<S>
    };
}

} // namespace

extern "C" const small_kernel small_dw_kernels[] = {
    row<32, 32, 2, 4, 7, 4, 3>("4 x 7 rows"),
    row<32, 32, 2, 4, 4, 4, 3>("4 x 4 rows"),
    row<32, 64, 2, 4, 7, 2, 3>("2 x 7 rows"),
    row<32, 64, 2, 4, 4, 2, 4>("2 x 4 rows"),
    row<40, 40, 1, 5, 8, 2, 3>("2 x 8 rows"),
    row<40, 80, 1, 5, 8, 1, 3>("8 rows"),
    row<80, 80, 1, 5, 8, 1, 3, 2>("8 rows, two shares"),
    { NULL },
};
