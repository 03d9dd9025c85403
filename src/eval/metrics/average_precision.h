/* Average precision of a ranking: several labels per image, one ranking of the images per class.
 *
 *     AP = sum over positive rows, sorted by score, of the share of positives down to that row / number of positives
 *
 * A class without a positive row has 0, as CLIP_benchmark counts it. */
#ifndef EVAL_METRICS_AVERAGE_PRECISION_H
#define EVAL_METRICS_AVERAGE_PRECISION_H

#include "core/ctx.h"

/* ap: (C). score, positive: (n, C). Equal scores keep the order of the rows. */
cloob_status average_precision(cloob_ctx *ctx, const float *score, const unsigned char *positive, int64_t n, int64_t C,
                               double *ap);

#endif
