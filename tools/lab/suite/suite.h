/* Internals of the evaluation suite: one data set of one model, from images to scores.
 *
 *     bench b;                                     what is evaluated
 *     bench_features f;
 *     CLOOB_TRY(features_make(ctx, &b, b.o.split, &f));
 *     CLOOB_TRY(task_classes(ctx, &b, &f));        adds scores to b.out
 *     features_release(&f);
 */
#ifndef LAB_SUITE_SUITE_H
#define LAB_SUITE_SUITE_H

#include "core/arena.h"
#include "lab/suite/benchmark.h"
#include "infer/embed_job.h"
#include "data/text/prompts.h"
#include "eval/zeroshot.h"
#include "infer/model_file.h"
#include "core/ctx.h"

/* ---- DataComp's evaluation sets ------------------------------------------------------------------ */

typedef enum datacomp_protocol {
    DATACOMP_PLAIN,         /* classification, or retrieval */
    DATACOMP_IWILDCAM,      /* means over classes */
    DATACOMP_CAMELYON17,    /* accuracy by slide */
    DATACOMP_FMOW,          /* accuracy by year and region */
    DATACOMP_DOLLAR_STREET, /* top-5 accuracy by income */
    DATACOMP_GEODE,         /* accuracy by region */
    DATACOMP_WINOGAVIL
} datacomp_protocol;

/* Groups whose means DataComp quotes in addition to the average of all. */
enum { DATACOMP_SHIFT = 1, DATACOMP_VTAB = 2, DATACOMP_RETRIEVAL = 4 };

typedef struct datacomp_set {
    const char *key, *title, *main_metric;
    datacomp_protocol protocol;
    int groups;
} datacomp_set;

const datacomp_set *datacomp_at(int i); /* NULL behind the last */

/* ---- one data set -------------------------------------------------------------------------------- */

typedef struct bench {
    model *m;
    const char *folder;
    benchmark_options o;
    const datacomp_set *set; /* NULL: not one of DataComp's */
    benchmark_result *out;
} bench;

/* The images of a split at unit length with their labels, captions and numbers. */
typedef struct bench_features {
    embed_result e;
    double *target; /* (e.rows, targets) the numbers of their npy members; NULL: not requested, or none */
    int64_t targets;
} bench_features;

cloob_status features_make(cloob_ctx *ctx, const bench *b, const char *split, bench_features *f);
/* Adds the numbers of npy members to features of classes: refused where some image has none. */
cloob_status features_add_targets(cloob_ctx *ctx, const bench *b, bench_features *f);
void features_release(bench_features *f);

/* Adds a score, unless the result already has it. */
void bench_score(bench *b, const char *name, double value);
void bench_score_of(bench *b, double value, const char *format, ...) __attribute__((format(printf, 3, 4)));

void result_score(benchmark_result *r, const char *name, double value);
void result_know(benchmark_result *r); /* key, title and main metric, from the name of the data set and the task */

/* Accuracy and, where the data has several labels per image, mean average precision. */
cloob_status task_classes(cloob_ctx *ctx, bench *b);
cloob_status task_retrieval(cloob_ctx *ctx, bench *b);
cloob_status task_probe(cloob_ctx *ctx, bench *b);
cloob_status task_winogavil(cloob_ctx *ctx, bench *b);
/* SPLIT/winogavil.csv is there. */
bool winogavil_is(const char *folder, const char *split);

/* The answers of a classifier by image. */
typedef struct bench_answers {
    int64_t n;
    int64_t *label, *predicted;    /* (n) */
    unsigned char *right, *right5; /* (n) */
} bench_answers;

/* Further metrics of WILDS, Dollar Street and GeoDE. */
cloob_status task_groups(cloob_ctx *ctx, bench *b, bench_features *f, const bench_answers *a);

/* The published table of WinoGAViL: a CSV file with the columns cue, candidates and associations; the last two hold
 * JSON lists of image names.
 *
 *     winogavil_table t = { 0 };
 *     cloob_status status = winogavil_read(ctx, path, e.name, e.rows, &t);
 *     ...
 *     winogavil_release(&t);
 */

enum { WINOGAVIL_CANDIDATES = 64 }; /* the most of one row */

typedef struct winogavil_row {
    char *text;             /* "A cue" */
    int candidates, belong; /* 0 < belong <= candidates */
    int64_t image[WINOGAVIL_CANDIDATES];
    bool right[WINOGAVIL_CANDIDATES];
} winogavil_row;

typedef struct winogavil_table {
    winogavil_row *row;
    int64_t n, capacity;
    arena memory;
} winogavil_table;

/* `image` names the readable images; a row's image[k] is an index into them. Refuses a table without rows, a row that
 * is incomplete, and one with an image that is not there. Release t in any case. */
cloob_status winogavil_read(cloob_ctx *ctx, const char *path, const char *const *image, int64_t images,
                            winogavil_table *t);
void winogavil_release(winogavil_table *t);

#endif
