/* Accuracy by group (region, income, hospital), and means over classes, as WILDS defines them. */
#ifndef EVAL_METRICS_BY_GROUP_H
#define EVAL_METRICS_BY_GROUP_H

#include "core/ctx.h"

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

#endif
