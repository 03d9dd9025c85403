/* Class labels: checked integers, and the classes that occur.
 *
 * Labels may be any non-negative integers, with gaps; training numbers the labels that occur 0..C-1 in ascending order.
 * A label without rows is not a class, because its bias would diverge to minus infinity. */
#ifndef EVAL_LABELS_H
#define EVAL_LABELS_H

#include "cloob/eval.h"
#include "tensor/tensor.h"

/* Converts a tensor (N) of any integer type, or of floats that are whole numbers, into out (N). Fails, naming
 * the first bad row, on negative values and fractions, and when there are not N of them. */
cloob_status labels_read(cloob_ctx *ctx, int64_t *out, const tensor *t, int64_t N, const char *name);

typedef struct label_set {
    int64_t *value; /* (C), ascending; owned */
    int64_t C;
    int64_t gaps; /* integers below the largest that do not occur */
} label_set;

cloob_status label_set_init(cloob_ctx *ctx, label_set *s, const int64_t *label, int64_t N);
void label_set_release(label_set *s);
int64_t label_set_find(const label_set *s, int64_t label); /* position, or -1 */

/* ---- accuracy ------------------------------------------------------------------------------------ */

/* Counting right answers: overall, within the best five, and class by class. */

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

/* score: (n, C). label: (n) positions 0..C-1, or -1 for an unknown label. The answer is the largest score, and of equal
 * scores the first, as in argmax. */
void accuracy_add(accuracy_counts *t, const float *score, const int64_t *label, int64_t n);

typedef struct accuracy_result {
    double top1, top5;         /* shares of N; with at most five classes top5 is the share of known classes */
    double mean_per_class;     /* mean over classes that have rows; unknown labels are not included */
    int64_t n, classes, empty; /* rows; classes; those without rows */
    int64_t unknown;           /* rows of unknown labels */
} accuracy_result;

accuracy_result accuracy_finish(const accuracy_counts *t);

#endif
