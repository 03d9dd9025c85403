/* Tables of an ablation: metrics by method, each with a value per seed; mean, spread, and who wins
 * significantly. */
#ifndef EVAL_ABLATION_H
#define EVAL_ABLATION_H

#include "core/arena.h"
#include "core/json.h"
#include "core/sbuf.h"

enum { ABLATION_METHODS = 8 };

typedef enum ablation_aim { AIM_HIGH, AIM_LOW, AIM_NONE } ablation_aim; /* NONE: methods are not comparable by it */

typedef struct ablation_metric {
    const char *name;
    ablation_aim aim;
    double *value[ABLATION_METHODS]; /* (n) of each method */
    int64_t n[ABLATION_METHODS];
    /* filled by ablation_test */
    double mean[ABLATION_METHODS], deviation[ABLATION_METHODS]; /* sample standard deviation, 0 of one value */
    double p[ABLATION_METHODS][ABLATION_METHODS]; /* two-sided rank-sum p-values; NaN where a side has no values */
    int best;                                     /* by mean; -1: none */
    double p_best;                                /* the largest of its p-values against the others; NaN: no others */
    bool significant;                             /* p_best < alpha: better than each of the others */
} ablation_metric;

typedef struct ablation {
    const char *method[ABLATION_METHODS];
    int methods;
    int64_t seeds; /* capacity of every value array */
    double alpha;
    ablation_metric *metric;
    int64_t count, room;
} ablation;

/* Counts, times and seeds are none. */
bool ablation_is_metric(const char *key);

/* How many decimals of a mean are worth printing: two digits of the spread decide, five of the mean at most. */
int ablation_decimals(double deviation, double mean);
/* The same, but where the spread is 0 as many as `of_row`, the most of the other cells of a row; -1: there are none. */
int ablation_decimals_in_row(double deviation, double mean, int of_row);

/* Which way a metric of that name is better. */
ablation_aim ablation_aim_of(const char *name);

/* Every number in object, nested ones by "outer/inner", as one run's value of `method`. Counts and times
 * (epoch, n, ...) are no metrics. All memory is in the arena. */
cloob_status ablation_add(cloob_ctx *ctx, arena *a, ablation *t, int method, const json *object);

cloob_status ablation_test(cloob_ctx *ctx, ablation *t);

void ablation_markdown(const ablation *t, sbuf *out);
void ablation_json(const ablation *t, sbuf *out);

#endif
