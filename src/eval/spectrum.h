/* Eigenvalues of the covariance of embeddings, and how many of them matter: a low effective number means that
 * few features carry all the variance ("explaining away"). */
#ifndef EVAL_SPECTRUM_H
#define EVAL_SPECTRUM_H

#include "eval/rows.h"

typedef struct spectrum {
    double *value; /* (D), largest first, negative rounding cut to 0; owned */
    int64_t D;
    int64_t effective; /* how many of the largest make up `share` of the sum */
    double total;      /* the sum: the variance */
} spectrum;

/* Covariance (divided by N - 1) of the unit rows, formed in double by blocks in two passes, mean first. Needs
 * two rows and D^2 doubles. share: 0.99 in the paper. */
cloob_status spectrum_run(cloob_ctx *ctx, spectrum *out, const unit_rows *x, double share);
void spectrum_release(spectrum *s);

/* 1 + how many leading partial sums stay below share of the whole; 0 when their sum is (1e-12 or less). */
int64_t spectrum_effective(const double *value, int64_t n, double share);

#endif
