/* Counting right answers: overall, within the best five, and class by class. */
#ifndef EVAL_TALLY_H
#define EVAL_TALLY_H

#include "core/ctx.h"

typedef struct tally {
    int64_t C;
    int64_t N;                    /* answers counted, strangers included */
    int64_t stranger;             /* rows of classes that the classifier does not know: always wrong */
    int64_t *total, *hit1, *hit5; /* (C) */
    int64_t *confusion;           /* (C, C) true x answered, or NULL */
} tally;

/* with_confusion: C^2 counts, refused above 4096 classes. */
cloob_status tally_init(cloob_ctx *ctx, tally *t, int64_t C, bool with_confusion);
void tally_release(tally *t);

/* score: (n, C). label: (n) positions 0..C-1, or -1 for a stranger. The answer is the largest score, the
 * first of equal ones, as argmax gives it; so equal scores for all do not count as right. */
void tally_add(tally *t, const float *score, const int64_t *label, int64_t n);

typedef struct tally_result {
    double top1, top5;         /* shares of N; with at most five classes top5 is the share of known classes */
    double mean_per_class;     /* mean over classes that have rows; strangers do not enter */
    int64_t n, classes, empty; /* rows; classes; those without rows */
} tally_result;

tally_result tally_finish(const tally *t);

#endif
