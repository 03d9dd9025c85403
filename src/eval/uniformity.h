/* How evenly unit rows cover the sphere: Ajne's statistic as the paper extends it, and the logarithm of the
 * mean Gaussian potential (Wang and Isola's uniformity).
 *
 *     ajne       = N/4 - 1/(pi N) sum_{i<j} arccos(x_i.x_j) = 1/4 + 1/(pi N) sum_{i<j} arcsin(x_i.x_j)
 *     uniformity = ln mean_{i<j} exp(-2 |x_i - x_j|^2)
 *
 * Small means even. The second form of Ajne's statistic is the one summed: the first is a difference of two
 * numbers of size N/4. */
#ifndef EVAL_UNIFORMITY_H
#define EVAL_UNIFORMITY_H

#include "eval/rows.h"

typedef struct uniformity {
    double ajne, potential; /* potential: Wang and Isola's logarithm */
} uniformity;

/* Streams the upper half of x x^T. Needs two rows. */
cloob_status uniformity_run(cloob_ctx *ctx, uniformity *out, const unit_rows *x);

#endif
