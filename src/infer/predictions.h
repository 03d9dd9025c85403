/* Stored predictions: calibration, bootstrap intervals, paired tests.
 *
 *     predictions *a, *b;
 *     paired_result r;
 *     predictions_open(ctx, "a.csv", &a);                 written by cloob zeroshot with predictions
 *     predictions_open(ctx, "b.csv", &b);
 *     predictions_compare(ctx, a, b, NULL, &r);           r.p_exact: McNemar's test on the same images
 *
 * A file has a line per image: CSV with a header that names the columns image, label, predicted, p and correct (any
 * order, others are ignored), or JSON lines with those keys. p and correct may be missing: correct is then
 * label == predicted. */
#ifndef INFER_PREDICTIONS_H
#define INFER_PREDICTIONS_H

#include "eval/metrics.h"

typedef struct predictions predictions; /* read-only once opened */

cloob_status predictions_open(cloob_ctx *ctx, const char *path, predictions **out);
void predictions_close(predictions *p);
int64_t predictions_count(const predictions *p);

/* Refused when the file has no p. */
cloob_status predictions_calibrate(cloob_ctx *ctx, const predictions *p, int bins, calibration *out);

typedef struct paired_options {
    int64_t resamples; /* of the bootstrap; 10,000 */
    uint64_t seed;
    double level; /* of the intervals; 0.95 */
} paired_options;

void paired_options_init(paired_options *o);

/* Images are matched by name. o may be NULL. Files of other labels for the same image, and without a common image, are
 * refused. */
cloob_status predictions_compare(cloob_ctx *ctx, const predictions *a, const predictions *b, const paired_options *o,
                                 paired_result *out);

#endif
