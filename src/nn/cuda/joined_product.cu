/* One persistent block per multiprocessor. A block keeps one strip of columns and walks down the rows. Two warpgroups multiply,
 * 64 rows each; warps of a third drive the copy engine.
 *
 * Where the strip of b fits into shared memory it stays there, and each multiplying warpgroup has tiles and stages of its own, so
 * that one works on its ending while the other multiplies. Else both share tiles of 128 rows, and stages hold b, too.
 *
 * Results leave registers eight columns at a time (transpose_quad): lane q of four has columns 8 q to 8 q + 7 of a group of
 * 32. Sums over rows stay in registers until the block's last tile. What an ending reads beside the product is asked for
 * two groups ahead, across tiles. */
#include <cudaTypedefs.h>

#include "nn/cuda/act.cuh"
#include "nn/cuda/joined_product.h"
#include "tensor/cuda/hopper.cuh"

namespace {

enum {
    ROWS = 64,  /* of a warpgroup's product */
    DEPTH = 64, /* bf16 per stage: the width of a swizzled row */
    THREADS = 384,
    MOST_STAGES = 16,
    A_BYTES = ROWS * DEPTH * 2,
    RESIDENT_BYTES = 128 << 10, /* b stays in shared memory up to this size */
    SHARED_BYTES = 212 << 10
};

struct maps {
    CUtensorMap a, b;
};

struct layout { /* of dynamic shared memory: b's strip, if it stays, then the stages of each ring */
    int stages, stage_bytes, b_bytes, rings;
};

struct place { /* of a thread: rows row and row + 8; columns column + 32 g + 0..7 of group g; lane: column within the strip */
    int row, column, lane;
};

struct ring { /* stages between one copying thread and the warpgroups it serves */
    char *stage;
    uint64_t *full, *empty;
    int bytes, count, at, parity;
    __device__ __forceinline__ void next()
    {
        if (++at == count) at = 0, parity ^= 1;
    }
};

/* ---- endings ------------------------------------------------------------------------------------- */

/* Columns 8 q .. 8 q + 7 of group g, of row or row + 8, rounded. */
template <int N>
__device__ __forceinline__ void rounded(uint32_t (&v)[4], const float (&c)[N], int g, int half)
{
#pragma unroll
    for (int p = 0; p < 4; p++) {
        int at = 4 * (4 * g + p) + 2 * half;
        v[p] = pack_pair(c[at], c[at + 1]);
    }
    transpose_quad(v);
}

__device__ __forceinline__ bool inside(const joined_product &j, place at, int g, int half)
{
    return at.row + 8 * half < j.m && at.column + 32 * g < j.n;
}
__device__ __forceinline__ int64_t element(const joined_product &j, place at, int g, int half)
{
    return (int64_t)(at.row + 8 * half) * j.n + at.column + 32 * g;
}

__device__ __forceinline__ void write8(void *to, int64_t at, const uint32_t (&v)[4])
{
    *reinterpret_cast<uint4 *>((uint16_t *)to + at) = make_uint4(v[0], v[1], v[2], v[3]);
}
__device__ __forceinline__ uint4 read8(const void *from, int64_t at)
{
    return *reinterpret_cast<const uint4 *>((const uint16_t *)from + at);
}

__device__ __forceinline__ void split8(float (&out)[8], const uint4 &v)
{
    float2 f[4] = { unpack_pair(v.x), unpack_pair(v.y), unpack_pair(v.z), unpack_pair(v.w) };
#pragma unroll
    for (int i = 0; i < 4; i++) out[2 * i] = f[i].x, out[2 * i + 1] = f[i].y;
}
__device__ __forceinline__ void split8(float (&out)[8], const uint32_t (&v)[4]) { split8(out, make_uint4(v[0], v[1], v[2], v[3])); }

__device__ __forceinline__ void join8(uint32_t (&v)[4], const float (&f)[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = pack_pair(f[2 * i], f[2 * i + 1]);
}

/* Eight numbers of the strip's column vector in shared memory. */
__device__ __forceinline__ void column8(float (&out)[8], const float *column, place at, int g)
{
    float4 low = *reinterpret_cast<const float4 *>(column + at.lane + 32 * g),
           high = *reinterpret_cast<const float4 *>(column + at.lane + 32 * g + 4);
    out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
    out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
}

/* Two sums per column over the rows a thread has seen. */
template <int N>
struct column_sums {
    float s1[N / 2], s2[N / 2]; /* N accumulators are two rows */
    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < N / 2; i++) s1[i] = s2[i] = 0.0f;
    }
};

template <int N>
struct stats_ending {
    static constexpr bool sums = true;
    column_sums<N> total;
    __device__ __forceinline__ void ahead(const joined_product &, place, int) {}
    __device__ __forceinline__ void finish(const float (&c)[N], int g, const joined_product &j, place at, const float *column)
    {
        float pivot[8], y[8];
        column8(pivot, column, at, g);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t v[4];
            rounded(v, c, g, half);
            if (!inside(j, at, g, half)) continue;
            write8(j.y, element(j, at, g, half), v);
            split8(y, v);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float d = y[i] - pivot[i];
                total.s1[8 * g + i] += d;
                total.s2[8 * g + i] = fmaf(d, d, total.s2[8 * g + i]);
            }
        }
    }
};

template <int N>
struct reduce_ending {
    static constexpr bool sums = true;
    column_sums<N> total;
    uint4 x[2][2], other[2][2], mask[2][2]; /* by group (of the next two) and half */
    __device__ __forceinline__ void ahead(const joined_product &j, place at, int g)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (!inside(j, at, g, half)) continue;
            int64_t e = element(j, at, g, half);
            x[g % 2][half] = read8(j.x, e);
            other[g % 2][half] = read8(j.other, e);
            mask[g % 2][half] = read8(j.mask, e);
        }
    }
    __device__ __forceinline__ void finish(const float (&c)[N], int g, const joined_product &j, place at, const float *column)
    {
        float mean[8], d[8], o[8], m[8], in[8];
        column8(mean, column, at, g);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t v[4];
            rounded(v, c, g, half);
            if (!inside(j, at, g, half)) continue;
            split8(d, v);
            split8(o, other[g % 2][half]);
            split8(m, mask[g % 2][half]);
            split8(in, x[g % 2][half]);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                d[i] = m[i] > 0.0f ? d[i] + o[i] : 0.0f;
                total.s1[8 * g + i] += d[i];
                total.s2[8 * g + i] = fmaf(d[i], in[i] - mean[i], total.s2[8 * g + i]);
            }
            join8(v, d);
            write8(j.y, element(j, at, g, half), v);
        }
    }
};

template <int N>
struct act_ending {
    static constexpr bool sums = false;
    __device__ __forceinline__ void ahead(const joined_product &, place, int) {}
    __device__ __forceinline__ void finish(float (&c)[N], int g, const joined_product &j, place at, const float *column)
    {
        int lane = threadIdx.x % 4;
#pragma unroll
        for (int p = 0; p < 4; p++) { /* still two columns of eight a lane */
            float2 bias = *reinterpret_cast<const float2 *>(column + 8 * (4 * g + p) + 2 * lane);
            float *q = &c[4 * (4 * g + p)];
            q[0] += bias.x, q[1] += bias.y, q[2] += bias.x, q[3] += bias.y;
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t v[4];
            float y[8];
            rounded(v, c, g, half);
            if (!inside(j, at, g, half)) continue;
            write8(j.y, element(j, at, g, half), v);
            split8(y, v);
#pragma unroll
            for (int i = 0; i < 8; i++) y[i] = quickgelu_fn()(y[i], 0.0f);
            join8(v, y);
            write8(j.y2, element(j, at, g, half), v);
        }
    }
};

template <int N>
struct dact_ending {
    static constexpr bool sums = false;
    uint4 x[2][2];
    __device__ __forceinline__ void ahead(const joined_product &j, place at, int g)
    {
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (inside(j, at, g, half)) x[g % 2][half] = read8(j.x, element(j, at, g, half));
    }
    __device__ __forceinline__ void finish(const float (&c)[N], int g, const joined_product &j, place at, const float *)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t v[4];
            float d[8], in[8];
            rounded(v, c, g, half);
            if (!inside(j, at, g, half)) continue;
            int64_t e = element(j, at, g, half);
            split8(d, v);
            split8(in, x[g % 2][half]);
#pragma unroll
            for (int i = 0; i < 8; i++) d[i] = quickgelu_bwd_fn()(d[i], in[i]);
            join8(v, d);
            write8(j.y, e, v);
            if (!j.y2) continue;
#pragma unroll
            for (int i = 0; i < 8; i++) in[i] = quickgelu_fn()(in[i], 0.0f);
            join8(v, in);
            write8(j.y2, e, v);
        }
    }
};

/* The warps' sums of a strip, added in a fixed order. cell: (8 warps, 2, 2 N) of shared memory. */
template <int N>
__device__ void write_sums(column_sums<N> &total, float *cell, const joined_product &j, int strip, int part)
{
    int thread = threadIdx.x - 128, warp = thread / 32, lane = thread % 32, width = 2 * N;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        float a = total.s1[i], b = total.s2[i];
#pragma unroll
        for (int k = 4; k < 32; k *= 2) a += __shfl_xor_sync(~0u, a, k), b += __shfl_xor_sync(~0u, b, k);
        int at = 32 * (i / 8) + 8 * (lane % 4) + i % 8;
        if (lane / 4 == 0) cell[(2 * warp) * width + at] = a, cell[(2 * warp + 1) * width + at] = b;
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    for (int i = thread; i < 2 * width; i += 256) {
        int which = i / width, at = i % width;
        float sum = 0.0f;
        for (int w = 0; w < 8; w++) sum += cell[(2 * w + which) * width + at];
        if (strip + at < j.n) j.partial[((int64_t)part * 2 + which) * j.n + strip + at] = sum;
    }
}

/* ---- the product --------------------------------------------------------------------------------- */

/* Tiles of a ring: `height` rows from tile * height on, tile = first, first + step, ... */
struct walk {
    int first, step, height;
    __device__ __forceinline__ int tiles(const joined_product &j) const { return (int)((j.m + height - 1) / height); }
};

__device__ __forceinline__ int depth_of(const joined_product &j) { return (int)(j.k + DEPTH - 1) / DEPTH; }

template <int N>
__device__ void produce(ring r, walk w, const maps &t, const joined_product &j, bool with_b, int strip)
{
    for (int tile = w.first, tiles = w.tiles(j); tile < tiles; tile += w.step)
        for (int s = 0; s < depth_of(j); s++) {
            char *to = r.stage + r.at * r.bytes;
            barrier_wait(&r.empty[r.at], r.parity ^ 1);
            barrier_expect(&r.full[r.at], r.bytes);
            for (int y = 0; y < w.height; y += ROWS) copy_box(to + y * DEPTH * 2, &t.a, s * DEPTH, tile * w.height + y, &r.full[r.at]);
            if (with_b) copy_box(to + w.height * DEPTH * 2, &t.b, s * DEPTH, strip, &r.full[r.at]);
            r.next();
        }
}

/* c = a b^T over `depth` stages; each stage is given back once the product after it has begun. */
template <int N>
__device__ __forceinline__ void multiply(float (&c)[N], ring &r, int depth, int half, const char *b, int b_offset)
{
    int before = 0;
    settle(c);
    for (int s = 0; s < depth; s++) {
        char *from = r.stage + r.at * r.bytes;
        barrier_wait(&r.full[r.at], r.parity);
        uint64_t da = descriptor(from + half * A_BYTES),
                 db = descriptor(b ? b + s * (2 * N * DEPTH * 2) : from + b_offset);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) wgmma_k16(c, da + 2 * k, db + 2 * k, s > 0 || k > 0);
        wgmma_commit();
        if (s > 0) {
            wgmma_wait<1>();
            if (threadIdx.x % 32 == 0) barrier_arrive(&r.empty[before]);
        }
        before = r.at;
        r.next();
    }
    wgmma_wait<0>();
    settle(c);
    if (threadIdx.x % 32 == 0) barrier_arrive(&r.empty[before]);
}

/* half: which 64 rows of a shared tile; 0 where the warpgroup has tiles of its own. b: the strip where it stays, else NULL. */
template <template <int> class E, int N>
__device__ void consume(ring r, walk w, const joined_product &j, const char *b, const float *column, float *cell, int strip, int half, int part)
{
    enum { GROUPS = N / 16 };
    float c[N];
    E<N> ending;
    int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, tiles = w.tiles(j), shift = w.step * w.height;
    place at = { w.first * w.height + half * ROWS + warp * 16 + lane / 4, strip + 8 * (lane % 4), 8 * (lane % 4) };
    if constexpr (E<N>::sums) ending.total.clear();
    for (int g = 0; g < 2; g++) ending.ahead(j, at, g); /* past the last row nothing is read */
    for (int tile = w.first; tile < tiles; tile += w.step) {
        place next = { at.row + shift, at.column, at.lane };
        multiply(c, r, depth_of(j), half, b, w.height * DEPTH * 2);
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            ending.finish(c, g, j, at, column);
            ending.ahead(j, g + 2 < GROUPS ? at : next, (g + 2) % GROUPS);
        }
        at = next;
    }
    if constexpr (E<N>::sums) write_sums<N>(ending.total, cell, j, strip, part);
}

/* N accumulators a thread: strips of 2 N columns. */
template <template <int> class E, int N>
__global__ void __launch_bounds__(THREADS, 1)
    product_kernel(const __grid_constant__ maps t, const __grid_constant__ joined_product j, const __grid_constant__ layout l)
{
    extern __shared__ char memory[];
    __shared__ uint64_t full[MOST_STAGES], empty[MOST_STAGES], b_full;
    __shared__ __align__(16) float column[2 * N];
    __shared__ float cell[8 * 2 * 2 * N];
    char *b = (char *)(((uintptr_t)memory + 1023) & ~(uintptr_t)1023);
    int strips = (int)((j.n + 2 * N - 1) / (2 * N)), strip = blockIdx.x % strips * (2 * N), part = blockIdx.x / strips,
        parts = gridDim.x / strips;
    for (int i = threadIdx.x; i < 2 * N; i += THREADS) column[i] = j.column && strip + i < j.n ? j.column[strip + i] : 0.0f;
    if (threadIdx.x == 0) {
        for (int s = 0; s < l.rings * l.stages; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 8 / l.rings); /* one per multiplying warp */
        }
        barrier_init(&b_full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    bool own = l.rings == 2;
    int team = threadIdx.x < 128 ? threadIdx.x / 32 : threadIdx.x / 128 - 1, mine = own ? team : 0;
    ring r = { b + l.b_bytes + mine * l.stages * l.stage_bytes, full + mine * l.stages, empty + mine * l.stages, l.stage_bytes, l.stages, 0, 0 };
    walk w = { own ? 2 * part + team : part, own ? 2 * parts : parts, own ? ROWS : 2 * ROWS };
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (own && threadIdx.x == 0) {
            barrier_expect(&b_full, l.b_bytes);
            for (int s = 0; s < depth_of(j); s++) copy_box(b + s * (2 * N * DEPTH * 2), &t.b, s * DEPTH, strip, &b_full);
        }
        if (team < l.rings && threadIdx.x % 32 == 0) produce<N>(r, w, t, j, !own, strip);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        if (own) barrier_wait(&b_full, 0);
        consume<E, N>(r, w, j, own ? b : nullptr, column, cell, strip, own ? 0 : team, part);
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
        if (blockIdx.x * 32 + y < cols) to[(int64_t)(blockIdx.x * 32 + y) * rows + r + threadIdx.x] = tile[threadIdx.x][y];
}

/* ---- launching ----------------------------------------------------------------------------------- */

int strip_of(int64_t n) { return n <= 64 ? 64 : 128; }

layout layout_of(int64_t n, int64_t k)
{
    int depth = (int)((k + DEPTH - 1) / DEPTH), b_stage = strip_of(n) * DEPTH * 2;
    layout l;
    bool stays = depth * b_stage <= RESIDENT_BYTES;
    l.rings = stays ? 2 : 1;
    l.b_bytes = stays ? depth * b_stage : 0;
    l.stage_bytes = stays ? A_BYTES : 2 * A_BYTES + b_stage;
    l.stages = (SHARED_BYTES - 1024 - l.b_bytes) / (l.rings * l.stage_bytes);
    if (l.rings * l.stages > MOST_STAGES) l.stages = MOST_STAGES / l.rings;
    return l;
}

template <template <int> class E, int N>
cudaError_t launch(cudaStream_t stream, const joined_product *p, int sms)
{
    maps t;
    layout l = layout_of(p->n, p->k);
    int strips = (int)((p->n + 2 * N - 1) / (2 * N)), blocks = joined_parts(p, sms) * strips;
    cudaError_t e = tensor_map_rows(&t.a, p->a, p->m, p->k, DEPTH, ROWS);
    if (e == cudaSuccess) e = tensor_map_rows(&t.b, p->b, p->n, p->k, DEPTH, 2 * N);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(product_kernel<E, N>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (e != cudaSuccess) return e;
    product_kernel<E, N><<<blocks, THREADS, SHARED_BYTES, stream>>>(t, *p, l);
    return cudaGetLastError();
}

template <template <int> class E>
cudaError_t launch_width(cudaStream_t stream, const joined_product *p, int sms)
{
    return strip_of(p->n) == 64 ? launch<E, 32>(stream, p, sms) : launch<E, 64>(stream, p, sms);
}

} // namespace

extern "C" {

bool joined_takes(int64_t n, int64_t k) { return n % 8 == 0 && k % 8 == 0 && n >= 32 && hopper_is_here(); }

int joined_parts(const joined_product *p, int sms)
{
    int64_t strips = (p->n + strip_of(p->n) - 1) / strip_of(p->n), tiles = (p->m + 2 * ROWS - 1) / (2 * ROWS), parts = sms / strips;
    if (parts > tiles) parts = tiles;
    return parts < 1 ? 1 : (int)parts;
}

cudaError_t joined_run(cudaStream_t stream, const joined_product *p, int sms)
{
    switch (p->ending) {
    case PRODUCT_STATS: return launch_width<stats_ending>(stream, p, sms);
    case PRODUCT_REDUCE: return launch_width<reduce_ending>(stream, p, sms);
    case PRODUCT_ACT: return launch_width<act_ending>(stream, p, sms);
    default: return launch_width<dact_ending>(stream, p, sms);
    }
}

cudaError_t transpose_bf16(cudaStream_t stream, void *to, const void *from, int64_t rows, int64_t cols)
{
    dim3 grid((unsigned)((cols + 31) / 32), (unsigned)((rows + 31) / 32));
    transpose_kernel<<<grid, dim3(32, 8), 0, stream>>>((uint16_t *)to, (const uint16_t *)from, (int)rows, (int)cols);
    return cudaGetLastError();
}

} // extern "C"
