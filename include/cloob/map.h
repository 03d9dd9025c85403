/* A map of embeddings: every row becomes a point in the plane, and rows that are similar come to lie together.
 *
 *     cloob_map_options o;
 *     cloob_map_options_init(&o);
 *     float *xy = malloc(2 * (size_t)m.rows * sizeof *xy);
 *     cloob_map(ctx, xy, &m, &o);
 *
 * Principal components first, then a neighbour embedding in the manner of UMAP: a graph of exact nearest neighbours
 * whose edges attract and random pairs that repel. The same rows, options and build give the same points, with any
 * number of threads. */
#ifndef CLOOB_MAP_H
#define CLOOB_MAP_H

#include "cloob/eval.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called between pieces of work from the thread that made the call; share grows from 0 to 1. False cancels. */
typedef bool cloob_map_progress_fn(void *user, double share);

typedef struct cloob_map_options {
    int64_t components; /* kept of the principal components; 48 */
    int64_t neighbors;  /* of each row in the graph; 15 */
    int64_t epochs;     /* of the layout; 0: 500 for up to 10,000 rows, 200 beyond */
    int64_t negatives;  /* random pairs for each edge; 5 */
    uint64_t seed;
    cloob_map_progress_fn *progress; /* NULL: none */
    void *user;
} cloob_map_options;

CLOOB_API void cloob_map_options_init(cloob_map_options *o);

/* xy: (rows, 2), written: centred, the largest coordinate is 1. Rows are taken at unit length. Memory: about
 * 4 (components + 3 neighbors) bytes a row, twice. Fails with CLOOB_ERR_NUMERIC for a value that is not finite or a row
 * of zeros (named), CLOOB_ERR_ARGUMENT for options outside their range, CLOOB_ERR_STOPPED when progress said so: xy
 * is then undefined. */
CLOOB_API cloob_status cloob_map(cloob_ctx *ctx, float *xy, const cloob_matrix *m, const cloob_map_options *o);

#ifdef __cplusplus
}
#endif
#endif
