/* Counting in a tile of similarities, as retrieval.c does it on the CPU: what is clearly above the
 * partner's is counted, what is too near is recomputed in double, in the same order of additions, so that
 * ranks are the same. */
#include "eval/cuda/kernels.h"
#include "eval/retrieval.h"

enum { WARPS = 8 };

/* rank_dot of retrieval.c by the lanes of a warp. */
static __device__ double warp_dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 32) sum += (double)a[i] * b[i];
    for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, k);
    return sum;
}

typedef struct verdict {
    int above, tied;
} verdict;

/* Candidates of one query in n places of a tile, `stride` apart, the first of them candidate `first`; by a
 * whole warp. partner: the candidate that belongs to the query; own: its similarity. base + k * ld: candidate
 * k's row. */
static __device__ verdict settle_near(const float *s, int64_t stride, int64_t first, int n, int near, int64_t partner,
                                      double own, const float *query, const float *base, int64_t ld, int64_t D)
{
    verdict v = { 0, 0 };
    bool crowded = near > n / 8 + 1;
    for (int k0 = 0; k0 < n; k0 += 32) {
        int k = k0 + threadIdx.x;
        bool close = k < n && first + k != partner && fabsf(s[k * stride] - (float)own) <= RANK_NEAR;
        unsigned mask = __ballot_sync(0xffffffffu, close);
        for (; mask; mask &= mask - 1) {
            int at = k0 + __ffs((int)mask) - 1;
            double exact = crowded ? own : warp_dot(query, base + at * ld, D);
            if (exact == own) v.tied = 1;
            if (exact > own || (exact == own && first + at < partner)) v.above++;
        }
    }
    return v;
}

static __device__ void add(const rank_tile &t, int side, int64_t query, int above, int tied)
{
    if (above) atomicAdd(&t.above[side][query], (unsigned long long)above);
    if (tied) t.tied[side][query] = 1;
}

/* ---- rows ask: a warp per row and stretch of candidates ------------------------------------------ */

static __global__ void rows_kernel(rank_tile t)
{
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.y, c0 = (int64_t)blockIdx.y * RANK_STRETCH;
    if (i >= t.ni) return;
    int n = (int)(t.nj - c0 < RANK_STRETCH ? t.nj - c0 : RANK_STRETCH), above = 0, reach = 0;
    int64_t query = t.i0 + i, partner = query * t.step, first = t.j0 + c0;
    const float *s = t.s + i * t.ld + c0;
    double own = t.matched[query];
    float high = (float)own + RANK_NEAR, low = (float)own - RANK_NEAR;
    for (int j = threadIdx.x; j < n; j += 32) above += s[j] > high, reach += s[j] >= low;
    above = __reduce_add_sync(0xffffffffu, above), reach = __reduce_add_sync(0xffffffffu, reach);
    int near = reach - above - (partner >= first && partner < first + n);
    verdict v = { 0, 0 };
    if (near > 0) v = settle_near(s, 1, first, n, near, partner, own, t.a + i * t.ldx, t.b + c0 * t.ldx, t.ldx, t.D);
    if (threadIdx.x == 0) add(t, 0, query, above + v.above, v.tied);
}

cloob_status eval_rank_rows(cloob_ctx *ctx, cudaStream_t stream, const rank_tile *t)
{
    dim3 grid((unsigned)((t->ni + WARPS - 1) / WARPS), (unsigned)((t->nj + RANK_STRETCH - 1) / RANK_STRETCH));
    rows_kernel<<<grid, dim3(32, WARPS), 0, stream>>>(*t);
    return cuda_launched(ctx, "retrieval: ranks");
}

/* ---- columns ask: a lane per column and stretch of rows ------------------------------------------ */

static __global__ void columns_kernel(rank_tile t)
{
    int64_t group = ((int64_t)blockIdx.x * WARPS + threadIdx.y) * 32, j = group + threadIdx.x;
    int64_t r0 = (int64_t)blockIdx.y * RANK_STRETCH, query = t.j0 + j, first = t.i0 + r0;
    if (group >= t.nj) return;
    int n = (int)(t.ni - r0 < RANK_STRETCH ? t.ni - r0 : RANK_STRETCH), above = 0, reach = 0;
    const float *s = t.s + r0 * t.ld + group;
    double own = j < t.nj ? t.matched[query] : 0;
    float high = (float)own + RANK_NEAR, low = (float)own - RANK_NEAR;
    for (int i = 0; i < n; i++) {
        float v = j < t.nj ? s[i * t.ld + threadIdx.x] : -INFINITY;
        above += v > high, reach += v >= low;
    }
    int near = reach - above - (query >= first && query < first + n), mine = above, tied = 0;
    unsigned mask = __ballot_sync(0xffffffffu, j < t.nj && near > 0);
    for (; mask; mask &= mask - 1) {
        int lane = __ffs((int)mask) - 1;
        int its_near = __shfl_sync(0xffffffffu, near, lane);
        double its_own = __shfl_sync(0xffffffffu, own, lane);
        verdict v = settle_near(s + lane, t.ld, first, n, its_near, t.j0 + group + lane, its_own,
                                t.b + (group + lane) * t.ldx, t.a + r0 * t.ldx, t.ldx, t.D);
        if ((int)threadIdx.x == lane) mine += v.above, tied = v.tied;
    }
    if (j < t.nj) add(t, 1, query, mine, tied);
}

cloob_status eval_rank_columns(cloob_ctx *ctx, cudaStream_t stream, const rank_tile *t)
{
    dim3 grid((unsigned)((t->nj + 32 * WARPS - 1) / (32 * WARPS)),
              (unsigned)((t->ni + RANK_STRETCH - 1) / RANK_STRETCH));
    columns_kernel<<<grid, dim3(32, WARPS), 0, stream>>>(*t);
    return cuda_launched(ctx, "retrieval: ranks");
}
