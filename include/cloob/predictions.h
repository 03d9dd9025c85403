/* What can be learnt from stored predictions: calibration, bootstrap intervals, paired tests.
 *
 *     cloob_predictions *a, *b;
 *     cloob_paired r;
 *     cloob_predictions_open(ctx, "a.csv", &a);                 written by cloob eval zeroshot with predictions
 *     cloob_predictions_open(ctx, "b.csv", &b);
 *     cloob_predictions_compare(ctx, a, b, NULL, &r);           r.p_exact: McNemar's test on the same images
 *
 * A file has a line per image: CSV with a header that names the columns image, label, predicted, p and correct (any
 * order, others are ignored), or JSON lines with those keys. p and correct may be missing: correct is then
 * label == predicted. */
#ifndef CLOOB_PREDICTIONS_H
#define CLOOB_PREDICTIONS_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_predictions cloob_predictions; /* read-only once opened */

CLOOB_API cloob_status cloob_predictions_open(cloob_ctx *ctx, const char *path, cloob_predictions **out);
CLOOB_API void cloob_predictions_close(cloob_predictions *p);
CLOOB_API int64_t cloob_predictions_count(const cloob_predictions *p);

/* ---- calibration --------------------------------------------------------------------------------- */

enum { CLOOB_CALIBRATION_BINS = 100 };

typedef struct cloob_calibration_bin {
    int64_t n;
    double confidence, accuracy; /* means; 0 in an empty bin */
} cloob_calibration_bin;

typedef struct cloob_calibration {
    int64_t n;
    int bins;                    /* of equal width over (0, 1] */
    double ece, mce;             /* gap between confidence and accuracy: mean over images, largest of a bin */
    double brier;                /* mean (p - correct)^2 of the predicted class */
    double confidence, accuracy; /* means over all images */
    cloob_calibration_bin bin[CLOOB_CALIBRATION_BINS];
} cloob_calibration;

/* bins 15 is usual. p: (n) probabilities of what was predicted; correct: (n) 0 or 1. */
CLOOB_API cloob_status cloob_calibrate(cloob_ctx *ctx, const double *p, const unsigned char *correct, int64_t n,
                                       int bins, cloob_calibration *out);
/* Refused when the file has no p. */
CLOOB_API cloob_status cloob_predictions_calibrate(cloob_ctx *ctx, const cloob_predictions *p, int bins,
                                                   cloob_calibration *out);
/* The reliability plot as SVG: accuracy over confidence, a line per model, and the diagonal. Unsupported in a build
 * without cairo. */
CLOOB_API cloob_status cloob_calibration_plot(cloob_ctx *ctx, const cloob_calibration *c, const char *const *name,
                                              int64_t n, const char *path);

/* ---- two models on the same images ---------------------------------------------------------------- */

typedef struct cloob_paired_options {
    int64_t resamples; /* of the bootstrap; 10,000 */
    uint64_t seed;
    double level; /* of the intervals; 0.95 */
} cloob_paired_options;

CLOOB_API void cloob_paired_options_init(cloob_paired_options *o);

typedef struct cloob_paired {
    int64_t n;                             /* images that both have */
    int64_t left_out;                      /* images that only one of the files has */
    int64_t both, a_only, b_only, neither; /* images that are right in both, in one, in none */
    double accuracy_a, accuracy_b, difference;
    double interval_a[2], interval_b[2], interval_difference[2]; /* bootstrap, images resampled in pairs */
    double p_exact, p_chi2;                                      /* McNemar's test */
} cloob_paired;

/* Images are matched by name. o may be NULL. Files of other labels for the same image, and without a common image, are
 * refused. */
CLOOB_API cloob_status cloob_predictions_compare(cloob_ctx *ctx, const cloob_predictions *a, const cloob_predictions *b,
                                                 const cloob_paired_options *o, cloob_paired *out);

#ifdef __cplusplus
}
#endif
#endif
