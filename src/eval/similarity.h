/* Similarities of matched pairs, and of the most similar unmatched ones: for each image, its K most similar
 * texts other than its own. An objective that overfits pushes matched pairs up and drags the top-10 unmatched
 * along. */
#ifndef EVAL_SIMILARITY_H
#define EVAL_SIMILARITY_H

#include "cloob/eval.h"
#include "eval/rows.h"

/* x, y: the same N and D, N at least 2. Streams x y^T; memory is 2 x 1000 values per row of a tile and
 * thread. */
cloob_status similarity_run(cloob_ctx *ctx, cloob_similarity *out, const unit_rows *x, const unit_rows *y);

/* Leaves the k largest of value (n) in front, in no order. */
void select_largest(float *value, int64_t n, int64_t k);

#endif
