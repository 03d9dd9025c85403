/* Metrics beyond accuracy: by group and class, average precision, neighbours.
 *
 * By group (region, income, hospital) and means over classes are as WILDS defines them. */
#ifndef EVAL_METRICS_H
#define EVAL_METRICS_H

#include "core/ctx.h"
#include "eval/evaluate.h"

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
