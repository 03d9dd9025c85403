/* Several groups of runs, metric by metric, and two groups by a rank-sum test.
 *
 *     groups g = { .memory = a };
 *     for each run: groups_add(&g, "clip", object);
 *     groups_finish(&g, &options, &out);
 */
#ifndef LAB_COMPARE_GROUPS_H
#define LAB_COMPARE_GROUPS_H

#include "core/arena.h"
#include "core/ctx.h"
#include "core/json.h"
#include "core/sbuf.h"

/* ---- significance -------------------------------------------------------------------------------- */

/* Unpaired Wilcoxon rank-sum (Mann-Whitney) test of a against b. Exact when there are no ties and the smaller
 * sample has at most 8 values (and the larger at most 2000), otherwise normal with tie and continuity
 * correction. */
typedef struct rank_sum {
    double U;                        /* of a: pairs in which a is larger, ties half */
    double two_sided, less, greater; /* p-values; less: a tends to be smaller */
    bool exact;
} rank_sum;

/* ---- several groups of runs ---------------------------------------------------------------------- */

typedef struct compare_options {
    const char *by;           /* the setting to group by, by its name in params.txt; "method" */
    const char *const *where; /* (wheres) "key=value": only runs with it */
    int64_t wheres;
    const char *metrics; /* "A,B": only these groups, in this order; NULL: all */
    double alpha;        /* 0.05 */
    int64_t resamples;   /* of the bootstrap; 10,000; groups_finish: 0: no intervals */
    uint64_t seed;       /* of the bootstrap */
} compare_options;

void compare_options_init(compare_options *o);

typedef struct group_stats {
    int64_t n;
    const double *value;    /* (n) */
    double mean, deviation; /* sample standard deviation, 0 of one value; the mean of none is NaN */
    double low, high;       /* 95 % bootstrap interval of the mean; NaN with fewer than two values, or no resamples */
} group_stats;

typedef struct pair_test {
    int64_t a, b;      /* groups */
    double difference; /* of the means, a - b */
    double p, p_holm;  /* two-sided rank-sum test; corrected by Holm over all pairs of the metric. NaN: no values */
    double delta;      /* Cliff's delta: 1 when all of a are above all of b, -1 when all are below */
    bool significant;  /* p_holm below alpha */
    rank_sum test;     /* where p is not NaN */
} pair_test;

/* The better direction of a metric; NONE: it does not compare methods. */
typedef enum group_aim { AIM_HIGH, AIM_LOW, AIM_NONE } group_aim;
group_aim group_aim_of(const char *metric);

typedef struct group_row {
    const char *metric;
    group_aim aim;
    group_stats *group; /* (groups) */
    pair_test *pair;    /* (pairs) */
    int64_t best;       /* by mean; -1: none */
    double p_best;      /* the largest of its p-values against the others, not corrected; NaN: no others */
    bool won;           /* p_best below alpha: better than each of the others */
} group_row;

typedef struct groups_result {
    const char **name; /* (groups) in order of first appearance */
    int64_t *runs;     /* (groups) */
    int64_t groups, pairs, metrics;
    int64_t skipped; /* values that were not finite numbers and were left out */
    double alpha;
    group_row *metric;
    void *memory; /* of all the above; owned */
} groups_result;

/* path: folders of runs, folders of such folders (an ablation's, a sweep's), and files with a JSON object per run (a
 * sweep's results.jsonl). A run's numbers are those of its summary.json, else of the last validation. Left out, with a
 * warning that names them: runs that are not finished or failed. Of a sweep with final runs only those are compared,
 * unless `where` names a stage. Release the result. */
cloob_status compare_runs(cloob_ctx *ctx, groups_result *out, const char *const *path, int64_t paths,
                          const compare_options *o);
/* Two JSONL files, one object per run, as the groups "a" and "b"; every number in it is a metric. epoch: take only
 * lines with that "epoch"; -1: all lines. Release the result. */
cloob_status compare_files(cloob_ctx *ctx, groups_result *out, const char *path_a, const char *path_b, int64_t epoch,
                           double alpha);
void groups_release(groups_result *g);
/* The test of two groups; either order. */
const pair_test *groups_pair(const groups_result *g, const group_row *m, int64_t a, int64_t b);

/* format: "text" (NULL), "markdown", "latex", "csv", "json". */
char *groups_text(const groups_result *g, const char *format);
/* The result of compare_files as JSON: means and the test of each metric. */
char *groups_two_json(const groups_result *g);
/* The table of an ablation, whose groups are methods: metrics down, methods across, the winner in bold; and the same
 * with every value as JSON, which the report reads. */
void ablation_markdown(const groups_result *g, int64_t seeds, sbuf *out);
void ablation_json(const groups_result *g, int64_t seeds, sbuf *out);
/* The decimals to print of a mean: two digits of the spread, at most five of the mean. */
int mean_decimals(double deviation, double mean);

/* ---- published results ----------------------------------------------------------------------------- */

/* A row of data_sets.def. */
typedef struct data_set {
    const char *name, *other, *title; /* name: letters and digits; other: further names, separated by spaces */
    int64_t classes, train, test;     /* images; 0: not known */
    const char *metric;               /* "accuracy", "mean_per_class", "roc_auc" */
    bool same;                        /* every copy has these test images */
    bool in_paper;                    /* named in a table of the paper */
} data_set;

/* Finds a set by name ("Stanford-Cars"), or by folder or file ("sets/wds_cars_test", "cars/test"). NULL: unknown. */
const data_set *data_set_find(const char *name);

/* The tables of the paper with the means of cloob's results on the same data sets. path: folders and files of eval
 * suite, files of eval zeroshot --json, training runs with ImageNet; none: only the published tables. format: "text",
 * "markdown" or "json". The caller frees *text. */
cloob_status compare_paper(cloob_ctx *ctx, const char *const *path, int64_t paths, const char *format, char **text);

/* ---- the steps ------------------------------------------------------------------------------------- */

typedef struct group_values {
    double *value;
    int64_t n, room;
} group_values;

typedef struct group_metric {
    const char *name;
    group_values *of; /* (groups seen so far) */
    int64_t groups;
} group_metric;

typedef struct groups {
    arena *memory; /* all of it */
    const char **name;
    int64_t *runs; /* of each group */
    int64_t count, room;
    group_metric *metric;
    int64_t metrics, metric_room;
    bool all;        /* every number is a metric; false: except counts, times and seeds */
    int64_t skipped; /* numbers that are not finite, which are null in JSON */
} groups;

int64_t groups_at(groups *g, const char *name); /* the group of this name, added if new */

void group_values_add(arena *memory, group_values *v, double x);

group_stats group_describe(const group_values *v); /* without an interval */

/* Every number of the object, nested ones by "outer/inner", as one run's values. */
void groups_add(groups *g, const char *group, const json *object);

/* Computes means with bootstrap intervals, and a test of every pair of groups. out points into g's memory. */
void groups_finish(const groups *g, const compare_options *o, groups_result *out);

/* Holm's step-down correction of n p-values, in place; NaN stays and does not count. */
void holm_correct(double *p, int64_t n);
/* Cliff's delta: P(a > b) - P(a < b). */
double cliffs_delta(const double *a, int64_t na, const double *b, int64_t nb);
/* The interval of the mean of x (n) from resamples drawn by a seed: percentiles (1 - level) / 2 and (1 + level) / 2. */
void bootstrap_mean(const double *x, int64_t n, int64_t resamples, uint64_t seed, double level, double *low,
                    double *high);

/* Values are finite, both samples non-empty. always_normal: the normal limit in any case. */
rank_sum ranksum_test(const double *a, int64_t na, const double *b, int64_t nb, bool always_normal);

#endif
