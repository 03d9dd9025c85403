/* Rows to points in the plane, in three steps; options and promises in cloob/map.h. Work is cut into pieces whose
 * size does not depend on the number of threads, so that the result does not either. */
#ifndef EVAL_MAP_H
#define EVAL_MAP_H

#include "cloob/map.h"
#include "eval/rows.h"

/* Which part of the whole a step is, for its caller's progress. */
typedef struct map_progress {
    cloob_map_progress_fn *fn; /* may be NULL */
    void *user;
    double from, to;
} map_progress;

/* The first K principal components of the rows, largest first: y (N, K), K <= D, is written. */
cloob_status map_components(cloob_ctx *ctx, float *y, const unit_rows *x, int64_t K, uint64_t seed,
                            const map_progress *p);

/* The k nearest rows by Euclidean distance, without the row itself, nearest first, ties by index:
 * index and distance (N, k), 1 <= k < N. */
cloob_status map_neighbors(cloob_ctx *ctx, int32_t *index, float *distance, const float *y, int64_t N, int64_t K,
                           int64_t k, const map_progress *p);

#endif
