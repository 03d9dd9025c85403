/* Principal components, nearest neighbours, weighted graph, layout. */
#include "eval/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/needs.h"
#include "core/pool.h"
#include "core/rng.h"
#include "tensor/cpu/gemm.h"

/* done in 0..1 of this step. CLOOB_ERR_STOPPED when the caller cancels. */
static cloob_status map_report(cloob_ctx *ctx, const map_progress *p, double done)
{
    if (!p->fn || p->fn(p->user, p->from + (p->to - p->from) * done)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_STOPPED, "the map was cancelled");
}

/* ---- principal components: the covariance by blocks, leading eigenvectors by orthogonal iteration  */

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

/* ---- exact nearest neighbours by tiles: |a - b|^2 = |a|^2 + |b|^2 - 2 a.b -------------------- */

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

/* ---- a symmetric weighted graph from lists of neighbours ------------------------------------- */

/* A symmetric graph: edges of vertex i are [start[i], start[i + 1]). */
typedef struct map_graph {
    int64_t N;
    int64_t *start; /* (N + 1) */
    int32_t *other; /* (edges) */
    float *weight;  /* (edges) above 0, at most 1 */
} map_graph;

/* sigma with sum_j exp(-max(0, d_j - d_0) / sigma) = log2 k, by bisection; the sum grows with sigma. */
static double find_sigma(const float *d, int64_t k)
{
    double target = log2((double)k), low = 0, high = INFINITY, sigma = 1, mean = 0;
    for (int64_t j = 0; j < k; j++) mean += d[j] / (double)k;
    for (int step = 0; step < 64 && k > 1; step++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++) sum += exp(-(d[j] - d[0]) / sigma);
        if (fabs(sum - target) < 1e-5) break;
        if (sum > target) high = sigma;
        else low = sigma;
        sigma = isinf(high) ? sigma * 2 : (low + high) / 2;
    }
    return fmax(sigma, fmax(1e-3 * mean, 1e-12)); /* equal distances: all weights near 1 */
}

static void directed_weights(float *weight, const float *distance, int64_t N, int64_t k)
{
    for (int64_t i = 0; i < N; i++) {
        const float *d = distance + i * k;
        double sigma = find_sigma(d, k);
        for (int64_t j = 0; j < k; j++) weight[i * k + j] = (float)exp(-(d[j] - d[0]) / sigma);
    }
}

static float weight_to(const int32_t *index, const float *weight, int64_t k, int64_t from, int64_t to)
{
    for (int64_t j = 0; j < k; j++)
        if (index[from * k + j] == to) return weight[from * k + j];
    return 0;
}

/* Calls for every edge i -> j of the lists, and for j -> i where j's list does not have i. */
static void count_edges(int64_t *start, const int32_t *index, const float *weight, int64_t N, int64_t k)
{
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < k; j++) {
            int64_t other = index[i * k + j];
            start[i + 1]++;
            if (weight_to(index, weight, k, other, i) == 0) start[other + 1]++;
        }
    for (int64_t i = 0; i < N; i++) start[i + 1] += start[i];
}

static void put_edge(map_graph *g, int64_t *fill, int64_t from, int64_t to, float weight)
{
    g->other[fill[from]] = (int32_t)to;
    g->weight[fill[from]++] = weight;
}

static void fill_edges(map_graph *g, int64_t *fill, const int32_t *index, const float *weight, int64_t k)
{
    for (int64_t i = 0; i < g->N; i++)
        for (int64_t j = 0; j < k; j++) {
            int64_t other = index[i * k + j];
            float a = weight[i * k + j], b = weight_to(index, weight, k, other, i), both = a + b - a * b;
            put_edge(g, fill, i, other, both);
            if (b == 0) put_edge(g, fill, other, i, both);
        }
}

/* Weights as in UMAP: exp(-(d - d_nearest) / sigma) with sigma such that each row's weights sum to log2 k, then
 * a + b - ab over the two directions. Release the graph, also after a failure. */
static cloob_status map_graph_build(cloob_ctx *ctx, map_graph *g, const int32_t *index, const float *distance,
                                    int64_t N, int64_t k)
{
    size_t n = (size_t)N, edges = 2 * n * (size_t)k;
    *g = (map_graph){ N, calloc(n + 1, sizeof *g->start), malloc(edges * sizeof *g->other),
                      malloc(edges * sizeof *g->weight) };
    float *weight = malloc(n * (size_t)k * sizeof *weight);
    int64_t *fill = malloc((n + 1) * sizeof *fill);
    bool room = g->start && g->other && g->weight && weight && fill;
    if (room) {
        directed_weights(weight, distance, N, k);
        count_edges(g->start, index, weight, N, k);
        memcpy(fill, g->start, (n + 1) * sizeof *fill);
        fill_edges(g, fill, index, weight, k);
    }
    free(weight), free(fill);
    return room ? CLOOB_OK : ctx_no_memory(ctx, edges * 8, "a graph of neighbours");
}

static void map_graph_release(map_graph *g)
{
    free(g->start), free(g->other), free(g->weight);
    *g = (map_graph){ 0 };
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* Every vertex moves along its own edges; the other vertices keep their positions of the last epoch. So vertices
 * are independent within an epoch and any number of threads gives the same points. Similarity in the plane is
 * 1 / (1 + A d^2); steps follow the gradient of UMAP's cross entropy. */
static const float A = 1.6f, NEAR = 0.001f, STEP_LIMIT = 4;

typedef struct layout {
    const map_graph *g;
    const float *old; /* (N, 2) of the last epoch */
    float *now, rate;
    int64_t epoch, negatives;
    uint64_t key; /* of the epoch */
} layout;

static float limit(float v) { return fminf(fmaxf(v, -STEP_LIMIT), STEP_LIMIT); }

static void attract(float *p, const float *q, float rate)
{
    float dx = p[0] - q[0], dy = p[1] - q[1], c = -2 * A / (1 + A * (dx * dx + dy * dy));
    p[0] += rate * limit(c * dx);
    p[1] += rate * limit(c * dy);
}

static void repel(float *p, const float *q, float rate)
{
    float dx = p[0] - q[0], dy = p[1] - q[1], d2 = dx * dx + dy * dy;
    float c = 2 / ((NEAR + d2) * (1 + A * d2));
    p[0] += rate * limit(c * dx);
    p[1] += rate * limit(c * dy);
}

/* An edge of weight 1 is walked in every epoch, one of weight w in a share w of them, evenly spread. */
static bool due(float weight, int64_t epoch)
{
    return floor((double)(epoch + 1) * weight) > floor((double)epoch * weight);
}

static void move_vertices(void *arg, int64_t begin, int64_t end, int thread)
{
    const layout *l = arg;
    const map_graph *g = l->g;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float p[2] = { l->old[2 * i], l->old[2 * i + 1] };
        uint64_t draw = (uint64_t)g->start[i] * (uint64_t)l->negatives;
        for (int64_t e = g->start[i]; e < g->start[i + 1]; e++) {
            if (!due(g->weight[e], l->epoch)) continue;
            attract(p, l->old + 2 * (int64_t)g->other[e], l->rate);
            for (int64_t n = 0; n < l->negatives; n++) {
                int64_t j = (int64_t)rng_below(l->key, draw++, (uint64_t)g->N);
                if (j != i) repel(p, l->old + 2 * j, l->rate);
            }
        }
        l->now[2 * i] = p[0], l->now[2 * i + 1] = p[1];
    }
}

/* Moves the points xy (N, 2): edges attract, `negatives` random pairs an edge repel. */
static cloob_status map_layout(cloob_ctx *ctx, float *xy, const map_graph *g, int64_t epochs, int64_t negatives,
                               uint64_t seed, const map_progress *p)
{
    size_t bytes = 2 * (size_t)g->N * sizeof(float);
    float *old = malloc(bytes);
    uint64_t key = rng_key(seed, "map/layout");
    cloob_status status = CLOOB_OK;
    if (!old) return ctx_no_memory(ctx, bytes, "a map");
    for (int64_t t = 0; t < epochs && status == CLOOB_OK; t++) {
        memcpy(old, xy, bytes);
        layout l = { g, old, xy, 1 - (float)t / (float)epochs, t, negatives, rng_subkey(key, (uint64_t)t) };
        pool_for(ctx, g->N, 256, move_vertices, &l);
        status = map_report(ctx, p, (double)(t + 1) / (double)epochs);
    }
    free(old);
    return status;
}

/* ---- all steps ------------------------------------------------------------------------------- */

/* The first two components, spread over about 20 units as the layout likes it; a little noise parts duplicates. */
static void first_layout(float *xy, const float *y, int64_t N, int64_t K, uint64_t seed)
{
    uint64_t key = rng_key(seed, "map/start");
    float max = 0;
    for (int64_t i = 0; i < N; i++)
        for (int64_t k = 0; k < 2 && k < K; k++) max = fmaxf(max, fabsf(y[i * K + k]));
    for (int64_t i = 0; i < N; i++)
        for (int64_t k = 0; k < 2; k++) {
            float at = k < K && max > 1e-6f ? 10 * y[i * K + k] / max : 0;
            xy[2 * i + k] = at + 0.01f * (float)rng_normal(key, (uint64_t)(2 * i + k));
        }
}

static void centre_and_scale(float *xy, int64_t N)
{
    double mean[2] = { 0, 0 };
    float max = 0;
    for (int64_t i = 0; i < N; i++) mean[0] += xy[2 * i] / (double)N, mean[1] += xy[2 * i + 1] / (double)N;
    for (int64_t i = 0; i < 2 * N; i++) {
        xy[i] -= (float)mean[i % 2];
        max = fmaxf(max, fabsf(xy[i]));
    }
    for (int64_t i = 0; i < 2 * N && max > 0; i++) xy[i] /= max;
}

typedef struct buffers {
    float *y, *distance; /* (N, K), (N, k) */
    int32_t *index;      /* (N, k) */
    map_graph graph;
} buffers;

static map_progress part(const map_options *o, double from, double to)
{
    return (map_progress){ o->progress, o->user, from, to };
}

static cloob_status run_steps(cloob_ctx *ctx, float *xy, buffers *b, const unit_rows *x, int64_t K, int64_t k,
                              const map_options *o)
{
    int64_t N = x->src.N, epochs = o->epochs ? o->epochs : N <= 10000 ? 500 : 200;
    map_progress reduce = part(o, 0, 0.1), nearest = part(o, 0.1, 0.5), lay = part(o, 0.5, 1);
    CLOOB_TRY(map_components(ctx, b->y, x, K, o->seed, &reduce));
    first_layout(xy, b->y, N, K, o->seed);
    if (k < 1) return CLOOB_OK;
    CLOOB_TRY(map_neighbors(ctx, b->index, b->distance, b->y, N, K, k, &nearest));
    CLOOB_TRY(map_graph_build(ctx, &b->graph, b->index, b->distance, N, k));
    return map_layout(ctx, xy, &b->graph, epochs, o->negatives, o->seed, &lay);
}

static cloob_status check_options(cloob_ctx *ctx, const rows *x, const map_options *o)
{
    if (o->components < 1 || o->neighbors < 1 || o->negatives < 0 || o->epochs < 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a map needs 1 component, 1 neighbour and no negative counts");
    if (x->N > INT32_MAX)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %lld rows; a map takes at most %d", x->name, (long long)x->N,
                        INT32_MAX);
    return CLOOB_OK;
}

static cloob_status map_rows(cloob_ctx *ctx, float *xy, const rows *x, const map_options *o)
{
    unit_rows u;
    CLOOB_TRY(check_options(ctx, x, o));
    CLOOB_TRY(unit_rows_init(ctx, &u, x));
    int64_t K = min64(o->components, x->D), k = min64(o->neighbors, x->N - 1);
    size_t n = (size_t)x->N, each = (size_t)max64(k, 1);
    buffers b = { malloc(n * (size_t)K * sizeof(float)),
                  malloc(n * each * sizeof(float)),
                  malloc(n * each * sizeof(int32_t)),
                  { 0 } };
    cloob_status status = b.y && b.distance && b.index ? run_steps(ctx, xy, &b, &u, K, k, o)
                                                       : ctx_no_memory(ctx, n * (size_t)K * sizeof(float), "a map");
    map_graph_release(&b.graph);
    free(b.y), free(b.distance), free(b.index);
    unit_rows_release(&u);
    if (status == CLOOB_OK) centre_and_scale(xy, x->N);
    return status;
}

void map_options_init(map_options *o)
{
    if (!o) return;
    *o = (map_options){ .components = 48, .neighbors = 15, .negatives = 5 };
}

cloob_status map_make(cloob_ctx *ctx, float *xy, const cloob_matrix *m, const map_options *o)
{
    API_NEEDS(ctx, xy && m);
    map_options defaults;
    rows r;
    tensor t = TENSOR(m->dtype, (void *)(uintptr_t)m->data, m->rows, m->columns);
    map_options_init(&defaults);
    CLOOB_TRY(rows_of(ctx, &r, &t, m->name ? m->name : "matrix"));
    return map_rows(ctx, xy, &r, o ? o : &defaults);
}
