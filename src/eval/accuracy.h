/* Counting right answers: overall, within the best five, and class by class. */
#ifndef EVAL_ACCURACY_H
#define EVAL_ACCURACY_H

#include "core/ctx.h"

typedef struct accuracy_counts {
    int64_t C;
    int64_t N;                    /* answers counted, unknown labels included */
    int64_t unknown;              /* rows of classes that the classifier does not know: always wrong */
    int64_t *total, *hit1, *hit5; /* (C) */
    int64_t *confusion;           /* (C, C) true x answered, or NULL */
} accuracy_counts;

/* with_confusion: C^2 counts, refused above 4096 classes. */
cloob_status accuracy_init(cloob_ctx *ctx, accuracy_counts *t, int64_t C, bool with_confusion);
void accuracy_release(accuracy_counts *t);

/* score: (n, C). label: (n) positions 0..C-1, or -1 for an unknown label. The answer is the largest score, the
 * first of equal ones, as argmax gives it; so equal scores for all do not count as right. */
void accuracy_add(accuracy_counts *t, const float *score, const int64_t *label, int64_t n);

typedef struct accuracy_result {
    double top1, top5;         /* shares of N; with at most five classes top5 is the share of known classes */
    double mean_per_class;     /* mean over classes that have rows; of unknown labels nothing is known here */
    int64_t n, classes, empty; /* rows; classes; those without rows */
} accuracy_result;

accuracy_result accuracy_finish(const accuracy_counts *t);

#endif
