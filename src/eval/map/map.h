/* Rows to points in the plane, in three steps; options and promises in cloob/map.h. Work is cut into pieces whose
 * size does not depend on the number of threads, so that the result does not either. */
#ifndef EVAL_MAP_MAP_H
#define EVAL_MAP_MAP_H

#include "cloob/map.h"
#include "eval/rows.h"

/* Which part of the whole a step is, for its caller's progress. */
typedef struct map_progress {
    cloob_map_progress_fn *fn; /* may be NULL */
    void *user;
    double from, to;
} map_progress;

/* done in 0..1 of this step. CLOOB_ERR_STOPPED when the caller cancels. */
cloob_status map_report(cloob_ctx *ctx, const map_progress *p, double done);

/* The first K principal components of the rows, largest first: y (N, K), K <= D, is written. */
cloob_status map_components(cloob_ctx *ctx, float *y, const unit_rows *x, int64_t K, uint64_t seed,
                            const map_progress *p);

/* The k nearest rows by Euclidean distance, without the row itself, nearest first, ties by index:
 * index and distance (N, k), 1 <= k < N. */
cloob_status map_neighbors(cloob_ctx *ctx, int32_t *index, float *distance, const float *y, int64_t N, int64_t K,
                           int64_t k, const map_progress *p);

/* A symmetric graph: edges of vertex i are [start[i], start[i + 1]). */
typedef struct map_graph {
    int64_t N;
    int64_t *start; /* (N + 1) */
    int32_t *other; /* (edges) */
    float *weight;  /* (edges) above 0, at most 1 */
} map_graph;

/* Weights as in UMAP: exp(-(d - d_nearest) / sigma) with sigma such that each row's weights sum to log2 k, then
 * a + b - ab over the two directions. Release the graph, also after a failure. */
cloob_status map_graph_build(cloob_ctx *ctx, map_graph *g, const int32_t *index, const float *distance, int64_t N,
                             int64_t k);
void map_graph_release(map_graph *g);

/* Moves the points xy (N, 2): edges attract, `negatives` random pairs an edge repel. */
cloob_status map_layout(cloob_ctx *ctx, float *xy, const map_graph *g, int64_t epochs, int64_t negatives, uint64_t seed,
                        const map_progress *p);

#endif
