/* Similarities of matched pairs, and of the most similar unmatched ones: for each image, its K most similar
 * texts other than its own. An objective that overfits pushes matched pairs up and drags the top-10 unmatched
 * along. */
#ifndef EVAL_SIMILARITY_H
#define EVAL_SIMILARITY_H

#include "eval/rows.h"

enum { SIMILARITY_BINS = 200, SIMILARITY_SETS = 3 }; /* bins of 0.01 over [-1, 1] */

typedef struct similarity_set {
    int64_t asked, k;             /* top-`asked`; k of them exist: min(asked, N - 1) */
    int64_t count;                /* values: N (matched) or N * k */
    double mean, deviation;       /* of all values; population */
    int64_t bin[SIMILARITY_BINS]; /* bin b holds [b/100 - 1, (b+1)/100 - 1); 1 belongs to the last */
} similarity_set;

typedef struct similarity {
    int64_t N;
    double alignment; /* mean |x_i - y_i|^2 = mean 2 - 2 x_i.y_i */
    similarity_set matched;
    similarity_set unmatched[SIMILARITY_SETS]; /* top 10, 100, 1000 */
} similarity;

/* x, y: the same N and D, N at least 2. Streams x y^T; memory is 2 x 1000 values per row of a tile and
 * thread. */
cloob_status similarity_run(cloob_ctx *ctx, similarity *out, const unit_rows *x, const unit_rows *y);

/* Leaves the k largest of value (n) in front, in no order. */
void select_largest(float *value, int64_t n, int64_t k);

#endif
