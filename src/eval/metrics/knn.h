/* k nearest neighbours by cosine: the class most of them have, and of classes with equal votes the one whose neighbours
 * are more similar in sum. */
#ifndef EVAL_METRICS_KNN_H
#define EVAL_METRICS_KNN_H

#include "eval/rows.h"

enum { KNN_MOST = 1024 };

/* predicted: (test rows) labels. k is cut to the number of training rows. Memory: k pairs per test row. */
cloob_status knn_predict(cloob_ctx *ctx, const rows *train, const int64_t *label, const rows *test, int64_t k,
                         int64_t *predicted);

#endif
