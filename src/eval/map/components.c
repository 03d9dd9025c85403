/* Principal components: the covariance by blocks of rows, its leading eigenvectors by orthogonal iteration. */
#include "eval/map/map.h"

#include <math.h>
#include <stdlib.h>

#include "core/arith.h"
#include "core/pool.h"
#include "core/rng.h"
#include "tensor/cpu/gemm.h"

enum { BLOCK_ROWS = 2048, BLOCK_COLUMNS = 64, ITERATIONS = 40 };

typedef struct pca {
    const unit_rows *x;
    int64_t D, K;
    float *block;        /* (BLOCK_ROWS, D) */
    float *C;            /* (D, D) covariance, not scaled */
    double *mean;        /* (D) */
    double *wide;        /* (D, D): C for the iteration */
    double *Q, *Z;       /* (K, D) rows are the vectors; (K, D) */
    float *axes, *shift; /* (K, D), (K): the projection is axes x - shift */
    float *y;            /* (N, K) */
    int64_t rows, at;    /* of the block */
} pca;

static bool pca_init(pca *p)
{
    size_t D = (size_t)p->D, K = (size_t)p->K;
    p->block = malloc(BLOCK_ROWS * D * sizeof *p->block);
    p->C = calloc(D * D, sizeof *p->C);
    p->mean = calloc(D, sizeof *p->mean);
    p->wide = malloc(D * D * sizeof *p->wide);
    p->Q = malloc(K * D * sizeof *p->Q);
    p->Z = malloc(K * D * sizeof *p->Z);
    p->axes = malloc(K * D * sizeof *p->axes);
    p->shift = malloc(K * sizeof *p->shift);
    return p->block && p->C && p->mean && p->wide && p->Q && p->Z && p->axes && p->shift;
}

static void pca_release(pca *p)
{
    free(p->block), free(p->C), free(p->mean), free(p->wide), free(p->Q), free(p->Z), free(p->axes), free(p->shift);
}

static void read_block(pca *p, int64_t at)
{
    p->at = at;
    p->rows = min64(BLOCK_ROWS, p->x->src.N - at);
    unit_rows_read(p->x, at, p->rows, p->block);
}

static void add_to_mean(pca *p)
{
    for (int64_t at = 0; at < p->x->src.N; at += BLOCK_ROWS) {
        read_block(p, at);
        for (int64_t i = 0; i < p->rows; i++)
            for (int64_t d = 0; d < p->D; d++) p->mean[d] += p->block[i * p->D + d];
    }
    for (int64_t d = 0; d < p->D; d++) p->mean[d] /= (double)p->x->src.N;
}

/* Columns of C in strips: a strip is one product, whichever thread computes it. */
static void covariance_strips(void *arg, int64_t begin, int64_t end, int thread)
{
    pca *p = arg;
    (void)thread;
    for (int64_t s = begin; s < end; s++) {
        int64_t c = s * BLOCK_COLUMNS, n = min64(BLOCK_COLUMNS, p->D - c);
        gemm_tile(true, false, p->D, n, p->rows, 1, p->block, p->D, p->block + c, p->D, 1, p->C + c, p->D);
    }
}

static cloob_status covariance(cloob_ctx *ctx, pca *p, const map_progress *progress)
{
    int64_t N = p->x->src.N, strips = (p->D + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    for (int64_t at = 0; at < N; at += BLOCK_ROWS) {
        read_block(p, at);
        for (int64_t i = 0; i < p->rows; i++)
            for (int64_t d = 0; d < p->D; d++) p->block[i * p->D + d] -= (float)p->mean[d];
        pool_for(ctx, strips, 1, covariance_strips, p);
        CLOOB_TRY(map_report(ctx, progress, 0.6 * (double)at / (double)N));
    }
    for (int64_t i = 0; i < p->D * p->D; i++) p->wide[i] = p->C[i];
    return CLOOB_OK;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Gram-Schmidt, twice for accuracy. A vector that vanishes (fewer directions than K) becomes 0 and stays so. */
static void orthonormalise(double *Q, int64_t K, int64_t D)
{
    for (int64_t k = 0; k < K; k++) {
        double *q = Q + k * D, before = dot(q, q, D);
        for (int twice = 0; twice < 2; twice++)
            for (int64_t j = 0; j < k; j++) {
                double along = dot(q, Q + j * D, D);
                for (int64_t d = 0; d < D; d++) q[d] -= along * Q[j * D + d];
            }
        double length = dot(q, q, D), scale = length > 1e-20 * before && length > 1e-200 ? 1 / sqrt(length) : 0;
        for (int64_t d = 0; d < D; d++) q[d] *= scale;
    }
}

static void multiply_vectors(void *arg, int64_t begin, int64_t end, int thread)
{
    pca *p = arg;
    (void)thread;
    for (int64_t k = begin; k < end; k++)
        for (int64_t d = 0; d < p->D; d++) p->Z[k * p->D + d] = dot(p->wide + d * p->D, p->Q + k * p->D, p->D);
}

static void iterate(cloob_ctx *ctx, pca *p, uint64_t seed)
{
    uint64_t key = rng_key(seed, "map/components");
    for (int64_t i = 0; i < p->K * p->D; i++) p->Q[i] = rng_normal(key, (uint64_t)i);
    orthonormalise(p->Q, p->K, p->D);
    for (int step = 0; step < ITERATIONS; step++) {
        pool_for(ctx, p->K, 4, multiply_vectors, p);
        double *swap = p->Q;
        p->Q = p->Z, p->Z = swap;
        orthonormalise(p->Q, p->K, p->D);
    }
    for (int64_t i = 0; i < p->K * p->D; i++) p->axes[i] = (float)p->Q[i];
    for (int64_t k = 0; k < p->K; k++) p->shift[k] = (float)dot(p->Q + k * p->D, p->mean, p->D);
}

static cloob_status project(cloob_ctx *ctx, pca *p, const map_progress *progress)
{
    int64_t N = p->x->src.N;
    for (int64_t at = 0; at < N; at += BLOCK_ROWS) {
        read_block(p, at);
        float *y = p->y + at * p->K;
        gemm_tile(false, true, p->rows, p->K, p->D, 1, p->block, p->D, p->axes, p->D, 0, y, p->K);
        for (int64_t i = 0; i < p->rows; i++)
            for (int64_t k = 0; k < p->K; k++) y[i * p->K + k] -= p->shift[k];
        CLOOB_TRY(map_report(ctx, progress, 0.7 + 0.3 * (double)at / (double)N));
    }
    return CLOOB_OK;
}

cloob_status map_components(cloob_ctx *ctx, float *y, const unit_rows *x, int64_t K, uint64_t seed,
                            const map_progress *progress)
{
    pca p = { .x = x, .D = x->src.D, .K = K, .y = y };
    cloob_status status = ctx_no_memory(ctx, (size_t)(p.D * p.D) * sizeof(double), "principal components");
    if (pca_init(&p)) {
        add_to_mean(&p);
        status = covariance(ctx, &p, progress);
        if (status == CLOOB_OK) {
            iterate(ctx, &p, seed);
            status = project(ctx, &p, progress);
        }
    }
    pca_release(&p);
    return status;
}
