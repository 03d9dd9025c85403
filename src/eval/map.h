/* A map of embeddings: every row becomes a point in the plane, and similar rows are placed close together.
 *
 *     float *xy = malloc(2 * (size_t)m.rows * sizeof *xy);
 *     map_make(ctx, xy, &m, &(map_options){ .progress = show });
 *
 * A neighbour embedding in the manner of UMAP: it starts at the two principal components, edges of a graph of exact
 * nearest neighbours attract, and random pairs repel. The same rows, options and build give the same points, with any
 * number of threads. */
#ifndef EVAL_MAP_H
#define EVAL_MAP_H

#include "cloob/eval.h"
#include "eval/rows.h"

/* Called between pieces of work from the thread that made the call; share grows from 0 to 1. False cancels. */
typedef bool map_progress_fn(void *user, double share);

typedef struct map_options { /* zeros are the defaults */
    int64_t epochs;          /* of the layout; 0: 500 for up to 10,000 rows, 200 beyond */
    uint64_t seed;
    map_progress_fn *progress; /* NULL: none */
    void *user;
} map_options;

/* xy: (rows, 2), written: centred, the largest coordinate is 1. Rows are taken at unit length. Memory: about 720 bytes
 * a row. Fails with CLOOB_ERR_NUMERIC for a value that is not finite or a row of zeros (named), CLOOB_ERR_STOPPED when
 * progress returned false: xy is then undefined. */
cloob_status map_make(cloob_ctx *ctx, float *xy, const cloob_matrix *m, const map_options *o);

#endif
