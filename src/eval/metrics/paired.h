/* Two models on the same images: which is right where, and whether the difference could be chance. */
#ifndef EVAL_METRICS_PAIRED_H
#define EVAL_METRICS_PAIRED_H

#include "cloob/predictions.h"
#include "core/ctx.h"

/* McNemar's exact two-sided p: of a_only + b_only images that only one model gets right, each is a fair coin's throw.
 * 1 when there are none. */
double mcnemar_exact(int64_t a_only, int64_t b_only);
/* The usual approximation with continuity correction, chi-squared with one degree of freedom. */
double mcnemar_chi2(int64_t a_only, int64_t b_only);

/* right_a, right_b: (n). Intervals are percentiles of `resamples` bootstrap samples of the images, drawn by the seed;
 * both models are resampled together. */
cloob_status paired_compare(cloob_ctx *ctx, const unsigned char *right_a, const unsigned char *right_b, int64_t n,
                            int64_t resamples, uint64_t seed, double level, cloob_paired *out);

#endif
