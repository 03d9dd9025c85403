/* The paper's analysis of embeddings in one call; types and meaning in eval/evaluate.h. */
#ifndef EVAL_ANALYSIS_H
#define EVAL_ANALYSIS_H

#include "eval/evaluate.h"
#include "eval/rows.h"

/* text may be NULL. out is released by analysis_release, also after a failure. */
cloob_status analysis_run(cloob_ctx *ctx, embedding_analysis *out, const rows *image, const rows *text, double share);

/* How evenly unit rows cover the sphere: Ajne's statistic as the paper extends it, and the logarithm of the
 * mean Gaussian potential (Wang and Isola's uniformity).
 *
 *     ajne       = N/4 - 1/(pi N) sum_{i<j} arccos(x_i.x_j) = 1/4 + 1/(pi N) sum_{i<j} arcsin(x_i.x_j)
 *     uniformity = ln mean_{i<j} exp(-2 |x_i - x_j|^2)
 *
 * Small means even. The second form of Ajne's statistic is the one summed: the first is a difference of two
 * numbers of size N/4. */

/* Writes `ajne` and `uniformity`. Streams the upper half of x x^T. Needs two rows. */
cloob_status uniformity_run(cloob_ctx *ctx, coverage *out, const unit_rows *x);

/* How many rows a Hopfield network of all N rows stores with scale beta: those whose distance to the most similar other
 * row, in inner products, is at least 2 / (beta N) + ln(2 (N - 1) N beta) / beta (well separated, for unit rows). */

typedef struct separation {
    double needed;         /* the bound; no row can reach a bound above 2 */
    int64_t rows;          /* that reach it */
    double smallest, mean; /* of 1 - max_{j != i} x_i.x_j */
} separation;

cloob_status separation_run(cloob_ctx *ctx, separation *out, const unit_rows *x, double beta);
cloob_status separation_of(cloob_ctx *ctx, separation *out, const cloob_matrix *m, double beta);

/* 1 + how many leading partial sums stay below share of the whole; 0 when their sum is (1e-12 or less). */
int64_t spectrum_effective(const double *value, int64_t n, double share);

#endif
