/* Several groups of runs, metric by metric; types and meaning in cloob/eval.h.
 *
 *     groups g = { .memory = a };
 *     for each run: groups_add(ctx, &g, "clip", object);
 *     CLOOB_TRY(groups_finish(ctx, &g, &options, &out));
 */
#ifndef EVAL_GROUPS_H
#define EVAL_GROUPS_H

#include "cloob/eval.h"
#include "core/arena.h"
#include "core/json.h"

typedef struct group_values {
    double *value;
    int64_t n, room;
} group_values;

typedef struct group_metric {
    const char *name;
    group_values *of; /* (groups, as far as they have come) */
    int64_t groups;
} group_metric;

typedef struct groups {
    arena *memory; /* all of it */
    const char **name;
    int64_t *runs; /* of each group */
    int64_t count, room;
    group_metric *metric;
    int64_t metrics, metric_room;
} groups;

/* Every number of the object, nested ones by "outer/inner", as one run's values. Counts and times are no metrics. */
cloob_status groups_add(cloob_ctx *ctx, groups *g, const char *group, const json *object);

/* Means with bootstrap intervals, and a test of every pair of groups. out points into g's memory. */
cloob_status groups_finish(cloob_ctx *ctx, const groups *g, const cloob_compare_options *o, cloob_groups *out);

/* Holm's step-down correction of n p-values, in place; NaN stays and does not count. */
void holm_correct(double *p, int64_t n);
/* Cliff's delta: P(a > b) - P(a < b). */
double cliffs_delta(const double *a, int64_t na, const double *b, int64_t nb);
/* The interval of the mean of x (n) from resamples drawn by a seed: percentiles (1 - level) / 2 and (1 + level) / 2. */
cloob_status bootstrap_mean(cloob_ctx *ctx, const double *x, int64_t n, int64_t resamples, uint64_t seed, double level,
                            double *low, double *high);

/* Tables. */
char *groups_text(const cloob_groups *g, const char *format);

/* The unpaired Wilcoxon rank-sum test; types and meaning in cloob/eval.h. */

/* EXACT with ties is refused. Values must be finite, both samples non-empty. */
cloob_status ranksum_test(cloob_ctx *ctx, cloob_rank_sum *out, const double *a, int64_t na, const double *b, int64_t nb,
                          cloob_rank_sum_method method);

#endif
