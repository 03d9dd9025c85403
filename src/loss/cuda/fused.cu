/* One persistent block per multiprocessor. A block makes 128 x 256 tiles of scores: one warpgroup drives the
 * copy engine, two multiply 64 x 256 each, four stages of 64 columns of both factors in flight between them.
 * What differs between the kernels is the epilogue: how a thread turns its 128 scores into what is stored.
 *
 * A gradient tile computes three matrix multiplications with the same stages: a b^T, which becomes E in half the
 * registers, then dra b^T + a drb^T over it. */
#include "loss/cuda/fused.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/ring.cuh"
#include "tensor/cuda/vendor.cuh"

namespace {

enum {
    ROWS = 128,    /* of a per tile */
    COLUMNS = 256, /* of b per tile */
    STAGES = 4,
    THREADS = 384,
    A_BYTES = ROWS * DEPTH * 2,
    B_BYTES = COLUMNS * DEPTH * 2,
    STAGE_BYTES = A_BYTES + B_BYTES,
    SHARED_BYTES = STAGES * STAGE_BYTES + 1024 + 256
};

typedef __nv_bfloat16 bf16;

struct maps {
    CUtensorMap a, b, da, db;
};

const float LOG2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

struct place { /* of a thread's numbers in the matrix: rows row and row + 8, columns column + 8 k + {0, 1} */
    int row, column;
};

/* A packed pair of columns each from four groups of eight: 16-byte stores, 64 bytes a quad. g: which four
 * groups. */
__device__ __forceinline__ void store(void *to, uint32_t (&v)[4], const fused_call &j, place at, int half, int g)
{
    int lane = threadIdx.x % 4, row = at.row + 8 * half, column = at.column - 2 * lane + 8 * (4 * g + lane);
    transpose_quad(v);
    if (row < j.m && column < j.n)
        *reinterpret_cast<uint4 *>((bf16 *)to + (int64_t)row * j.n + column) = make_uint4(v[0], v[1], v[2], v[3]);
}

/* exp(scale (s - 1)), packed: w[i] of c[2 i], c[2 i + 1] */
__device__ __forceinline__ void exponentials(uint32_t (&w)[64], const float (&c)[128], float scale)
{
    float k = scale * LOG2E;
#pragma unroll
    for (int i = 0; i < 64; i++)
        w[i] = pack_pair(exp2_fast(fmaf(c[2 * i], k, -k)), exp2_fast(fmaf(c[2 * i + 1], k, -k)));
}

__device__ __forceinline__ void store_exponentials(const uint32_t (&w)[64], const fused_call &j, place at)
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        uint32_t v[4];
#pragma unroll
        for (int q = 0; q < 4; q++) v[q] = w[2 * (4 * (i / 2) + q) + i % 2];
        store(j.e, v, j, at, i % 2, i / 2);
    }
}

/* factor E o T */
__device__ __forceinline__ void store_dscores(const uint32_t (&w)[64], const float (&c)[128], const fused_call &j,
                                              place at)
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        uint32_t v[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            int at_w = 2 * (4 * (i / 2) + q) + i % 2;
            float2 e = unpack_pair(w[at_w]);
            v[q] = pack_pair(j.factor * e.x * c[2 * at_w], j.factor * e.y * c[2 * at_w + 1]);
        }
        store(j.ds, v, j, at, i % 2, i / 2);
    }
}

__device__ __forceinline__ float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}

__device__ __forceinline__ float quad_sum(float v)
{
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

/* The column of a row's positive in this call; -1: not in this call. */
__device__ __forceinline__ int own_column(const fused_call &j, int row)
{
    int64_t at = j.own + row;
    return at >= 0 && at < j.n ? (int)at : -1;
}

/* Maximum and sum of the scores of one row, without the positive and columns past the end. */
__device__ __forceinline__ void row_lse(const float (&c)[128], int half, const fused_call &j, place at, int column_tile)
{
    int row = at.row + 8 * half, own = own_column(j, row);
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        int column = at.column + 8 * (i / 2) + i % 2;
        float s = c[4 * (i / 2) + 2 * half + i % 2];
        if (column == own && row < j.m) j.pos[row] = j.scale * s;
        if (column != own && column < j.n) top = fmaxf(top, s);
    }
    top = quad_max(top);
    float k = j.scale * LOG2E, shift = isinf(top) ? 0.0f : top * k;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        int column = at.column + 8 * (i / 2) + i % 2;
        float s = c[4 * (i / 2) + 2 * half + i % 2];
        if (column != own && column < j.n) sum += exp2_fast(fmaf(s, k, -shift));
    }
    sum = quad_sum(sum);
    if (threadIdx.x % 4 == 0 && row < j.m)
        ((float2 *)j.partial)[(int64_t)column_tile * j.m + row] = make_float2(j.scale * top, sum);
}

/* weight / N (exp(scale s - lse), or -1 at the positive) */
__device__ __forceinline__ void store_dk(const float (&c)[128], int half, const fused_call &j, place at)
{
    int row = at.row + 8 * half, safe = row < j.m ? row : j.m - 1;
    double lse = j.lse[safe], weight = j.weight[safe] / j.N;
    bool finite = isfinite(lse);
    float shift = finite ? (float)(lse * 1.4426950408889634) : 0.0f, k = j.scale * LOG2E;
    float factor = finite ? (float)weight : 0.0f, at_own = (float)-weight;
    int own = own_column(j, row);
#pragma unroll
    for (int g = 0; g < 8; g++) {
        uint32_t v[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const float *s = &c[4 * (4 * g + q) + 2 * half];
            int column = at.column + 8 * (4 * g + q);
            v[q] = pack_pair(column == own ? at_own : factor * exp2_fast(fmaf(s[0], k, -shift)),
                             column + 1 == own ? at_own : factor * exp2_fast(fmaf(s[1], k, -shift)));
        }
        store(j.e, v, j, at, half, g);
    }
}

template <fused_kind K>
__device__ __forceinline__ int products()
{
    return K == FUSED_DSCORE ? 3 : 1;
}

template <fused_kind K>
__device__ void produce(ring r, const maps &t, const fused_call &j, int tiles, int row_tiles)
{
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int row = tile % row_tiles * ROWS, column = tile / row_tiles * COLUMNS;
        for (int p = 0; p < products<K>(); p++)
            for (int x = 0; x < j.d; x += DEPTH) {
                r.begin_fill();
                copy_box(r.here(), p == 1 ? &t.da : &t.a, x, row, &r.full[r.at]);
                copy_box(r.here() + A_BYTES, p == 2 ? &t.db : &t.b, x, column, &r.full[r.at]);
                r.next();
            }
    }
}

/* c = or += the product of the group's rows and the tile's columns. */
__device__ __forceinline__ void multiply(float (&c)[128], ring &r, const fused_call &j, int group, bool keep)
{
    multiply_stages(c, r, j.d / DEPTH, keep, [&](int) -> stage_operands {
        return { r.here() + group * (A_BYTES / 2), r.here() + A_BYTES };
    });
}

template <fused_kind K>
__device__ __forceinline__ void finish(float (&c)[128], ring &r, const fused_call &j, place at, int column_tile,
                                       int group)
{
    if (K == FUSED_LSE) {
        row_lse(c, 0, j, at, column_tile);
        row_lse(c, 1, j, at, column_tile);
        return;
    }
    if (K == FUSED_DK) {
        store_dk(c, 0, j, at);
        store_dk(c, 1, j, at);
        return;
    }
    uint32_t w[64];
    exponentials(w, c, j.scale);
    if (K == FUSED_DSCORE) {
        multiply(c, r, j, group, false);
        multiply(c, r, j, group, true);
    }
    store_exponentials(w, j, at);
    if (K == FUSED_DSCORE) store_dscores(w, c, j, at);
}

template <fused_kind K>
__device__ void consume(ring r, const fused_call &j, int tiles, int row_tiles, int group)
{
    float c[128];
    int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int row = tile % row_tiles * ROWS + group * 64, column_tile = tile / row_tiles;
        place at = { row + warp * 16 + lane / 4, column_tile * COLUMNS + lane % 4 * 2 };
        multiply(c, r, j, group, false);
        finish<K>(c, r, j, at, column_tile, group);
    }
}

template <fused_kind K>
__global__ void __launch_bounds__(THREADS, 1)
    scores(const __grid_constant__ maps t, const __grid_constant__ fused_call j)
{
    extern __shared__ char memory[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    ring r = { shared_begin(memory), full, empty, STAGE_BYTES, STAGES, 0, 0 };
    int row_tiles = (j.m + ROWS - 1) / ROWS, tiles = row_tiles * ((j.n + COLUMNS - 1) / COLUMNS);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 8); /* one per multiplying warp */
        }
        barrier_publish();
    }
    __syncthreads();
    int warp = warp_number();
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == 0 && elected()) produce<K>(r, t, j, tiles, row_tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume<K>(r, j, tiles, row_tiles, warp / 4 - 1);
    }
}

/* The partial maxima and sums of a call into the rows' running ones; a thread per row. */
__global__ void lse_combine(float *top, double *sum, const float2 *partial, int m, int column_tiles)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m) return;
    float best = top[row];
    for (int t = 0; t < column_tiles; t++) best = fmaxf(best, partial[(int64_t)t * m + row].x);
    if (isinf(best)) return;
    double total = isinf(top[row]) ? 0 : sum[row] * exp((double)top[row] - best);
    for (int t = 0; t < column_tiles; t++) {
        float2 p = partial[(int64_t)t * m + row];
        if (!isinf(p.x)) total += p.y * exp((double)p.x - best);
    }
    top[row] = best;
    sum[row] = total;
}

/* ---- launching ---- */

cudaError_t processors(int *count)
{
    int device;
    cudaError_t e = cudaGetDevice(&device);
    return e != cudaSuccess ? e : cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

template <fused_kind K>
cudaError_t launch(cudaStream_t stream, const fused_call &j)
{
    maps t;
    int sms;
    cudaError_t e = processors(&sms);
    if (e == cudaSuccess) e = tensor_map_rows(&t.a, j.a, j.m, j.d, DEPTH, ROWS);
    if (e == cudaSuccess) e = tensor_map_rows(&t.b, j.b, j.n, j.d, DEPTH, COLUMNS);
    if (e == cudaSuccess) e = tensor_map_rows(&t.da, j.da ? j.da : j.a, j.m, j.d, DEPTH, ROWS);
    if (e == cudaSuccess) e = tensor_map_rows(&t.db, j.db ? j.db : j.b, j.n, j.d, DEPTH, COLUMNS);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(scores<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (e != cudaSuccess) return e;
    int tiles = (j.m + ROWS - 1) / ROWS * ((j.n + COLUMNS - 1) / COLUMNS), blocks = tiles > sms ? sms : tiles;
    scores<K><<<blocks, THREADS, SHARED_BYTES, stream>>>(t, j);
    if (K == FUSED_LSE)
        lse_combine<<<(unsigned)((j.m + 127) / 128), 128, 0, stream>>>(j.top, j.sum, (const float2 *)j.partial, j.m,
                                                                       (j.n + COLUMNS - 1) / COLUMNS);
    return cudaGetLastError();
}

} // namespace

extern "C" {

bool fused_takes(int64_t d) { return d % DEPTH == 0; }

size_t fused_partial_bytes(int64_t tile) { return (size_t)((tile + COLUMNS - 1) / COLUMNS * tile) * sizeof(float2); }

cudaError_t fused_scores(cudaStream_t stream, fused_kind kind, const fused_call *c)
{
    if (c->m == 0 || c->n == 0) return cudaSuccess;
    switch (kind) {
    case FUSED_EXP: return launch<FUSED_EXP>(stream, *c);
    case FUSED_DSCORE: return launch<FUSED_DSCORE>(stream, *c);
    case FUSED_LSE: return launch<FUSED_LSE>(stream, *c);
    default: return launch<FUSED_DK>(stream, *c);
    }
}

} // extern "C"
