/* A map of embeddings: every row becomes a point in the plane, and similar rows are placed close together.
 *
 *     map_options o;
 *     map_options_init(&o);
 *     float *xy = malloc(2 * (size_t)m.rows * sizeof *xy);
 *     map_make(ctx, xy, &m, &o);
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

enum { MAP_NEIGHBORS = 64 }; /* of a row, at most */

typedef struct map_options {
    int64_t neighbors; /* of each row in the graph; 15, at most MAP_NEIGHBORS */
    int64_t epochs;    /* of the layout; 0: 500 for up to 10,000 rows, 200 beyond */
    int64_t negatives; /* random pairs for each edge; 5 */
    uint64_t seed;
    map_progress_fn *progress; /* NULL: none */
    void *user;
} map_options;

void map_options_init(map_options *o);

/* xy: (rows, 2), written: centred, the largest coordinate is 1. Rows are taken at unit length. Memory: about
 * 48 neighbors bytes a row. Fails with CLOOB_ERR_NUMERIC for a value that is not finite or a row
 * of zeros (named), CLOOB_ERR_ARGUMENT for options outside their range, CLOOB_ERR_STOPPED when progress said so: xy
 * is then undefined. */
cloob_status map_make(cloob_ctx *ctx, float *xy, const cloob_matrix *m, const map_options *o);

#endif
