/* Class labels, accuracies and metrics beyond them: by group and class, average precision, neighbours. */
#ifndef EVAL_METRICS_H
#define EVAL_METRICS_H

#include "core/ctx.h"
#include "eval/evaluate.h"
#include "tensor/tensor.h"

/* ---- labels ----------------------------------------------------------------------------------------- */

/* Labels may be any non-negative integers, with gaps; training numbers the labels that occur 0..C-1 in ascending order.
 * A label without rows is not a class, because its bias would diverge to minus infinity. */

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
    int64_t unknown;              /* rows of classes that the classifier was not trained on: always wrong */
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

/* ---- beyond accuracy: by group (region, income, hospital) and means over classes as WILDS defines them ---- */

/* The share of right rows of each group: accuracy and count, (groups). group: (n) from 0 to groups - 1. An empty group
 * has NaN. Returns the smallest share of the groups that have rows, NaN when none has. */
double accuracy_by_group(const unsigned char *right, const int64_t *group, int64_t n, int64_t groups, double *accuracy,
                         int64_t *count);

typedef struct class_means {
    double recall, f1; /* means over the classes that occur among the labels */
} class_means;

/* label, predicted: (n) from 0 to C - 1. A class that is never predicted has an F1 of 0. */
cloob_status means_over_classes(cloob_ctx *ctx, const int64_t *label, const int64_t *predicted, int64_t n, int64_t C,
                                class_means *out);

/* Average precision of a ranking: several labels per image, one ranking of the images per class.
 *
 *     AP = sum over positive rows, sorted by score, of the share of positives down to that row / number of positives
 *
 * A class without a positive row has 0, as CLIP_benchmark counts it. */

/* ap: (C). score, positive: (n, C). Equal scores keep the order of the rows. */
cloob_status average_precision(cloob_ctx *ctx, const float *score, const unsigned char *positive, int64_t n, int64_t C,
                               double *ap);

/* k nearest neighbours by cosine: the class most of them have, and of classes with equal votes the one whose neighbours
 * are more similar in sum. */

struct rows; /* eval/rows.h */

enum { KNN_MAX = 1024 };

/* predicted: (test rows) labels. k is limited to the number of training rows. Memory: k pairs per test row. */
cloob_status knn_predict(cloob_ctx *ctx, const struct rows *train, const int64_t *label, const struct rows *test,
                         int64_t k, int64_t *predicted);

/* Results of evaluations as JSON texts, which the caller frees with free(). NULL: no memory. */

char *retrieval_json(const cloob_retrieval *r);
char *probe_json(const cloob_probe_result *r);

/* reference: an earlier analysis, for example of the first epoch, to compare with; or NULL. */
char *analysis_json(const embedding_analysis *a, const embedding_analysis *reference);
/* analysis.json, eigenvalues.tsv and (paired) similarities.tsv in a folder that is made when absent. */
cloob_status analysis_write(cloob_ctx *ctx, const embedding_analysis *a, const embedding_analysis *reference,
                            const char *folder);

#endif
