/* Exact nearest neighbours by tiles of products: |a - b|^2 = |a|^2 + |b|^2 - 2 a.b. */
#include "eval/map/map.h"

#include <math.h>
#include <stdlib.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/gemm.h"

enum { TILE = 512, STRIPE = 16 * TILE }; /* progress is reported after a stripe of rows */

typedef struct search {
    const float *y, *norm; /* (N, K), (N) squared lengths */
    int64_t N, K, k, first;
    int32_t *index;
    float *distance, *scratch; /* (N, k); (threads, TILE * TILE) */
} search;

/* Row's list is sorted; equal distances keep the earlier index first. */
static void insert(const search *s, int64_t row, float d, int64_t j)
{
    float *distance = s->distance + row * s->k;
    int32_t *index = s->index + row * s->k;
    int64_t at = s->k - 1;
    for (; at > 0 && distance[at - 1] > d; at--) {
        distance[at] = distance[at - 1];
        index[at] = index[at - 1];
    }
    distance[at] = d;
    index[at] = (int32_t)j;
}

static void tile_scan(const search *s, const float *products, int64_t i0, int64_t ni, int64_t j0, int64_t nj)
{
    for (int64_t i = 0; i < ni; i++) {
        const float *p = products + i * nj, *norm = s->norm + j0;
        float own = s->norm[i0 + i], *worst = s->distance + (i0 + i + 1) * s->k - 1;
        for (int64_t j = 0; j < nj; j++) {
            float d = own + norm[j] - 2 * p[j];
            if (d < *worst && j0 + j != i0 + i) insert(s, i0 + i, d, j0 + j);
        }
    }
}

static void search_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const search *s = arg;
    float *products = s->scratch + (int64_t)thread * TILE * TILE;
    for (int64_t b = begin; b < end; b++) {
        int64_t i0 = s->first + b * TILE, ni = min64(TILE, s->N - i0);
        for (int64_t i = i0 * s->k; i < (i0 + ni) * s->k; i++) s->distance[i] = INFINITY;
        for (int64_t j0 = 0; j0 < s->N; j0 += TILE) {
            int64_t nj = min64(TILE, s->N - j0);
            gemm_tile(false, true, ni, nj, s->K, 1, s->y + i0 * s->K, s->K, s->y + j0 * s->K, s->K, 0, products, nj);
            tile_scan(s, products, i0, ni, j0, nj);
        }
        for (int64_t i = i0 * s->k; i < (i0 + ni) * s->k; i++) s->distance[i] = sqrtf(fmaxf(s->distance[i], 0));
    }
}

static void squared_lengths(float *norm, const float *y, int64_t N, int64_t K)
{
    for (int64_t i = 0; i < N; i++) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++) sum += (double)y[i * K + k] * y[i * K + k];
        norm[i] = (float)sum;
    }
}

cloob_status map_neighbors(cloob_ctx *ctx, int32_t *index, float *distance, const float *y, int64_t N, int64_t K,
                           int64_t k, const map_progress *p)
{
    size_t bytes = (size_t)N * sizeof(float) + (size_t)ctx->threads * TILE * TILE * sizeof(float);
    float *norm = malloc(bytes);
    cloob_status status = CLOOB_OK;
    if (!norm) return ctx_no_memory(ctx, bytes, "nearest neighbours");
    squared_lengths(norm, y, N, K);
    search s = { y, norm, N, K, k, 0, index, distance, norm + N };
    for (; s.first < N && status == CLOOB_OK; s.first += STRIPE) {
        int64_t n = min64(STRIPE, N - s.first);
        pool_for(ctx, (n + TILE - 1) / TILE, 1, search_rows, &s);
        status = map_report(ctx, p, (double)(s.first + n) / (double)N);
    }
    free(norm);
    return status;
}
