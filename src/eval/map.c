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

/* Neighbours of each row in the graph, and random pairs for each of its edges. */
enum { NEIGHBORS = 15, NEGATIVES = 5 };

/* CLOOB_ERR_STOPPED when the caller cancels. */
static cloob_status report(cloob_ctx *ctx, const map_options *o, double share)
{
    if (!o->progress || o->progress(o->user, share)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_STOPPED, "the map was cancelled");
}

/* ---- the start: two principal components, by orthogonal iteration over blocks of rows ------------------- */

enum { BLOCK_ROWS = 1024, ITERATIONS = 20 };

typedef struct components {
    float *block, *axes, *mean; /* (BLOCK_ROWS, D), (2, D), (D) */
    double *next;               /* (3, D): the axes times the covariance; the sum of the rows */
} components;

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Makes the axes orthonormal; an axis that vanishes (all rows equal, or on a line) becomes 0. */
static void orthonormalise(components *c, int64_t D)
{
    for (int k = 0; k < 2; k++) {
        double *q = c->next + k * D, before = dot(q, q, D), along = k ? dot(q, c->next, D) : 0;
        for (int64_t d = 0; d < D; d++) q[d] -= along * c->next[d];
        double length = dot(q, q, D), scale = length > 1e-20 * before && length > 1e-200 ? 1 / sqrt(length) : 0;
        for (int64_t d = 0; d < D; d++) q[d] *= scale, c->axes[k * D + d] = (float)q[d];
    }
}

/* One pass: xy = (X - mean) axes', next = axes (X - mean)' (X - mean), and the sum of the rows. */
static void pass(const unit_rows *x, components *c, float *xy)
{
    int64_t D = x->src.D, N = x->src.N;
    memset(c->next, 0, 3 * (size_t)D * sizeof *c->next);
    for (int64_t at = 0, n; at < N; at += n) {
        n = min64(BLOCK_ROWS, N - at);
        unit_rows_read(x, at, n, c->block);
        for (int64_t i = 0; i < n * D; i++) c->next[2 * D + i % D] += c->block[i], c->block[i] -= c->mean[i % D];
        gemm_tile(false, true, n, 2, D, 1, c->block, D, c->axes, D, 0, xy + 2 * at, 2);
        for (int64_t i = 0; i < 2 * n; i++)
            for (int64_t d = 0; d < D; d++) c->next[i % 2 * D + d] += (double)xy[2 * at + i] * c->block[i / 2 * D + d];
    }
}

static void find_components(const unit_rows *x, components *c, float *xy, uint64_t seed)
{
    int64_t D = x->src.D;
    uint64_t key = rng_key(seed, "map/components");
    for (int64_t i = 0; i < 2 * D; i++) c->axes[i] = (float)rng_normal(key, (uint64_t)i);
    for (int step = 0; step <= ITERATIONS; step++) {
        pass(x, c, xy);
        for (int64_t d = 0; d < D && step == 0; d++) c->mean[d] = (float)(c->next[2 * D + d] / (double)x->src.N);
        if (step < ITERATIONS) orthonormalise(c, D);
    }
}

/* The components, scaled to about 20 units as the layout requires; a little noise separates duplicates. */
static cloob_status first_layout(cloob_ctx *ctx, float *xy, const unit_rows *x, uint64_t seed)
{
    size_t D = (size_t)x->src.D;
    uint64_t key = rng_key(seed, "map/start");
    float max = 0;
    components c = { malloc(BLOCK_ROWS * D * sizeof *c.block), malloc(2 * D * sizeof *c.axes),
                     calloc(D, sizeof *c.mean), malloc(3 * D * sizeof *c.next) };
    bool room = c.block && c.axes && c.mean && c.next;
    if (room) find_components(x, &c, xy, seed);
    free(c.block), free(c.axes), free(c.mean), free(c.next);
    if (!room) return ctx_no_memory(ctx, BLOCK_ROWS * D * sizeof *c.block, "principal components");
    for (int64_t i = 0; i < 2 * x->src.N; i++) max = fmaxf(max, fabsf(xy[i]));
    for (int64_t i = 0; i < 2 * x->src.N; i++)
        xy[i] = (max > 1e-6f ? 10 * xy[i] / max : 0) + 0.01f * (float)rng_normal(key, (uint64_t)i);
    return CLOOB_OK;
}

/* ---- a symmetric weighted graph from lists of neighbours ------------------------------------- */

/* A symmetric graph: edges of vertex i are [start[i], start[i + 1]). */
typedef struct map_graph {
    int64_t N;
    int64_t *start; /* (N + 1) */
    int32_t *other; /* (edges) */
    float *weight;  /* (edges) above 0, at most 1 */
} map_graph;

/* Distances of unit rows, from 0 for the nearest: d_j - d_0. */
static void distances(const near_row *near, int64_t k, double *d)
{
    for (int64_t j = 0; j < k; j++) d[j] = sqrt(fmax(2 - 2 * (double)near[j].score, 0));
    for (int64_t j = k - 1; j >= 0; j--) d[j] -= d[0];
}

/* sigma with sum_j exp(-d_j / sigma) = log2 k, by bisection; the sum grows with sigma. */
static double find_sigma(const double *d, int64_t k)
{
    double target = log2((double)k), low = 0, high = INFINITY, sigma = 1, mean = 0;
    for (int64_t j = 0; j < k; j++) mean += d[j] / (double)k;
    for (int step = 0; step < 64 && k > 1; step++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++) sum += exp(-d[j] / sigma);
        if (fabs(sum - target) < 1e-5) break;
        if (sum > target) high = sigma;
        else low = sigma;
        sigma = isinf(high) ? sigma * 2 : (low + high) / 2;
    }
    return fmax(sigma, fmax(1e-3 * mean, 1e-12)); /* equal distances: all weights near 1 */
}

/* Replaces the similarity of each neighbour by the weight of its edge. */
static void directed_weights(near_row *near, int64_t N, int64_t k)
{
    double d[NEIGHBORS];
    for (int64_t i = 0; i < N; i++, near += k) {
        distances(near, k, d);
        double sigma = find_sigma(d, k);
        for (int64_t j = 0; j < k; j++) near[j].score = (float)exp(-d[j] / sigma);
    }
}

static float weight_to(const near_row *near, int64_t k, int64_t from, int64_t to)
{
    for (int64_t j = from * k; j < (from + 1) * k; j++)
        if (near[j].entry == to) return near[j].score;
    return 0;
}

/* For every edge i -> j of the lists, and for j -> i where j's list does not have i: a + b - ab over both directions.
 * count: only counts the edges of each vertex in fill. */
static void put_edges(map_graph *g, int64_t *fill, const near_row *near, int64_t k, bool count)
{
    for (int64_t e = 0; e < g->N * k; e++) {
        int64_t end[2] = { e / k, near[e].entry };
        float a = near[e].score, b = weight_to(near, k, end[1], end[0]);
        for (int side = 0; side < (b == 0 ? 2 : 1); side++) {
            int64_t at = fill[end[side]]++;
            if (count) continue;
            g->other[at] = (int32_t)end[!side];
            g->weight[at] = a + b - a * b;
        }
    }
}

/* Weights as in UMAP: exp(-(d - d_nearest) / sigma) with sigma such that each row's weights sum to log2 k. The caller
 * frees the arrays of the graph, also after a failure. */
static cloob_status map_graph_build(cloob_ctx *ctx, map_graph *g, near_row *near, int64_t N, int64_t k)
{
    size_t n = (size_t)N, edges = 2 * n * (size_t)k;
    *g = (map_graph){ N, calloc(n + 1, sizeof *g->start), malloc(edges * sizeof *g->other),
                      malloc(edges * sizeof *g->weight) };
    int64_t *fill = malloc((n + 1) * sizeof *fill);
    bool room = g->start && g->other && g->weight && fill;
    if (room) {
        directed_weights(near, N, k);
        put_edges(g, g->start + 1, near, k, true);
        for (int64_t i = 0; i < N; i++) g->start[i + 1] += g->start[i];
        memcpy(fill, g->start, (n + 1) * sizeof *fill);
        put_edges(g, fill, near, k, false);
    }
    free(fill);
    return room ? CLOOB_OK : ctx_no_memory(ctx, edges * 8, "a graph of neighbours");
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
    int64_t epoch;
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

/* An edge of weight 1 is applied in every epoch, an edge of weight w in a share w of them, evenly spread. */
static bool edge_is_due(float weight, int64_t epoch)
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
        uint64_t draw = (uint64_t)g->start[i] * NEGATIVES;
        for (int64_t e = g->start[i]; e < g->start[i + 1]; e++) {
            if (!edge_is_due(g->weight[e], l->epoch)) continue;
            attract(p, l->old + 2 * (int64_t)g->other[e], l->rate);
            for (int n = 0; n < NEGATIVES; n++) {
                int64_t j = (int64_t)rng_below(l->key, draw++, (uint64_t)g->N);
                if (j != i) repel(p, l->old + 2 * j, l->rate);
            }
        }
        l->now[2 * i] = p[0], l->now[2 * i + 1] = p[1];
    }
}

/* Moves the points xy (N, 2): edges attract, random pairs repel. */
static cloob_status map_layout(cloob_ctx *ctx, float *xy, const map_graph *g, const map_options *o)
{
    size_t bytes = 2 * (size_t)g->N * sizeof(float);
    int64_t epochs = o->epochs ? o->epochs : g->N <= 10000 ? 500 : 200;
    float *old = malloc(bytes);
    uint64_t key = rng_key(o->seed, "map/layout");
    cloob_status status = CLOOB_OK;
    if (!old) return ctx_no_memory(ctx, bytes, "a map");
    for (int64_t t = 0; t < epochs && status == CLOOB_OK; t++) {
        memcpy(old, xy, bytes);
        layout l = { g, old, xy, 1 - (float)t / (float)epochs, t, rng_subkey(key, (uint64_t)t) };
        pool_for(ctx, g->N, 256, move_vertices, &l);
        status = report(ctx, o, 0.5 + 0.5 * (double)(t + 1) / (double)epochs);
    }
    free(old);
    return status;
}

/* ---- all steps ------------------------------------------------------------------------------- */

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

static cloob_status run_steps(cloob_ctx *ctx, float *xy, near_row *near, map_graph *g, const unit_rows *x, int64_t k,
                              const map_options *o)
{
    CLOOB_TRY(first_layout(ctx, xy, x, o->seed));
    if (k < 1) return report(ctx, o, 1);
    CLOOB_TRY(report(ctx, o, 0.1));
    CLOOB_TRY(nearest_rows(ctx, x, x, k, near));
    CLOOB_TRY(map_graph_build(ctx, g, near, x->src.N, k));
    CLOOB_TRY(report(ctx, o, 0.5));
    return map_layout(ctx, xy, g, o);
}

cloob_status map_make(cloob_ctx *ctx, float *xy, const cloob_matrix *m, const map_options *o)
{
    API_NEEDS(ctx, xy && m && o);
    rows r;
    unit_rows x;
    map_graph g = { 0 };
    tensor t = TENSOR(m->dtype, (void *)(uintptr_t)m->data, m->rows, m->columns);
    CLOOB_TRY(rows_of(ctx, &r, &t, m->name ? m->name : "matrix"));
    if (r.N > INT32_MAX)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %lld rows; the limit of a map is %d", r.name, (long long)r.N,
                        INT32_MAX);
    CLOOB_TRY(unit_rows_init(ctx, &x, &r));
    int64_t k = min64(NEIGHBORS, r.N - 1);
    size_t bytes = (size_t)(r.N * max64(k, 1)) * sizeof(near_row);
    near_row *near = malloc(bytes);
    cloob_status status = near ? run_steps(ctx, xy, near, &g, &x, k, o) : ctx_no_memory(ctx, bytes, "a map");
    free(g.start), free(g.other), free(g.weight);
    free(near);
    unit_rows_release(&x);
    if (status == CLOOB_OK) centre_and_scale(xy, r.N);
    return status;
}
