/* Whether a model's probabilities mean what they say: of the images it is 80 % sure of, 80 % should be right. */
#ifndef EVAL_METRICS_CALIBRATION_H
#define EVAL_METRICS_CALIBRATION_H

#include "cloob/predictions.h"
#include "core/ctx.h"

/* Bin b holds (b/bins, (b+1)/bins], the first one also 0. p: (n) the probability of what was predicted, 0 to 1. */
cloob_status calibration_measure(cloob_ctx *ctx, const double *p, const unsigned char *right, int64_t n, int bins,
                                 cloob_calibration *out);

#endif
