/* A model on data sets that the field compares on: CLIP_benchmark's webdatasets and DataComp's evaluation sets.
 *
 *     cloob_benchmark_options o;
 *     cloob_benchmark_result r;
 *     cloob_benchmark_options_init(&o);
 *     cloob_benchmark(ctx, m, "wds/wds_vtab-cifar100_test", &o, &r);
 *     printf("%s\n", cloob_benchmark_metric(&r, "acc1") ...);
 *     cloob_benchmark_release(&r);
 *
 * A data set is a folder with SPLIT/0.tar, SPLIT/1.tar, ... (SPLIT/nshards.txt says how many), classnames.txt,
 * zeroshot_classification_templates.txt, and dataset_type.txt (retrieval or multilabel; otherwise classification).
 * Metrics have CLIP_benchmark's names and definitions. Sets of DataComp are known by the name of their folder
 * (docs/reference/benchmarks.md has the table); WILDS, Dollar Street, GeoDE, FairFace and UTKFace get their further
 * metrics, and their `npy` members are read for it. */
#ifndef CLOOB_BENCHMARK_H
#define CLOOB_BENCHMARK_H

#include "cloob/data.h"
#include "cloob/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one data set ---------------------------------------------------------------------------------- */

typedef enum cloob_benchmark_task { CLOOB_BENCHMARK_AUTO, CLOOB_BENCHMARK_LINEAR_PROBE } cloob_benchmark_task;

typedef struct cloob_benchmark_options {
    cloob_benchmark_task task;           /* AUTO: zero-shot classification or retrieval, as the data set is */
    const char *split;                   /* "test" */
    const char *train_split, *val_split; /* of a linear probe: "train", and NULL: lambda is chosen on training rows */
    int64_t shots;                       /* of a linear probe: rows of each class; -1: all */
    uint64_t seed;                       /* draws the shots */
    int workers;                         /* threads that decode; 2 */
    const cloob_data_options *data;      /* limits of images and the like; NULL: defaults */
    const char *device;                  /* of probe and ranks; NULL: the CPU */
} cloob_benchmark_options;

CLOOB_API void cloob_benchmark_options_init(cloob_benchmark_options *o);

typedef struct cloob_benchmark_score {
    char *name;
    double value; /* NaN: not defined, such as acc5 of four classes */
} cloob_benchmark_score;

typedef struct cloob_benchmark_result {
    char *dataset;                /* the folder's name */
    char *model, *pretrained;     /* the model's name, and the file it came from */
    char *task, *language;        /* "zeroshot_classification", "zeroshot_retrieval", "linear_probe"; "en" */
    const char *key, *title;      /* of the table of DataComp; NULL: not one of its sets */
    const char *main_metric;      /* the one that is quoted; NULL: none */
    cloob_benchmark_score *score; /* (scores) */
    int64_t scores, n, bad;       /* n: images; bad: left out because they cannot be read */
    int64_t shots;                /* of a linear probe on a few rows; -1: all */
    char *stamp;                  /* size and time of the weights' file; "" for a folder */
} cloob_benchmark_result;

CLOOB_API cloob_status cloob_benchmark(cloob_ctx *ctx, cloob_model *m, const char *folder,
                                       const cloob_benchmark_options *o, cloob_benchmark_result *out);
CLOOB_API void cloob_benchmark_release(cloob_benchmark_result *r);
CLOOB_API double cloob_benchmark_metric(const cloob_benchmark_result *r, const char *name); /* NaN: not there */

/* ---- results in files -------------------------------------------------------------------------------- */

/* CLIP_benchmark's object: dataset, model, pretrained, task, metrics, language; and n, bad. Free it. */
CLOOB_API char *cloob_benchmark_json(const cloob_benchmark_result *r);
/* The name that CLIP_benchmark gives the file of that object: DATASET_PRETRAINED_MODEL_LANGUAGE_TASK.json. Free it. */
CLOOB_API char *cloob_benchmark_file_name(const cloob_benchmark_result *r);
/* What the result would be called before there are metrics: for asking whether it is finished. */
CLOOB_API cloob_status cloob_benchmark_name(cloob_ctx *ctx, const cloob_model *m, const char *folder,
                                            const cloob_benchmark_options *o, cloob_benchmark_result *out);
CLOOB_API cloob_status cloob_benchmark_read(cloob_ctx *ctx, const char *path, cloob_benchmark_result *out);
/* `clip_benchmark build`'s table: a row per result, a column per metric. Free it. */
CLOOB_API char *cloob_benchmark_csv(const cloob_benchmark_result *r, int64_t n);
/* One page: main metrics, data sets down, models across; then every metric. datacomp: all of DataComp's sets are
 * listed, with those that are not there. */
CLOOB_API cloob_status cloob_benchmark_page(cloob_ctx *ctx, const cloob_benchmark_result *r, int64_t n, bool datacomp,
                                            const char *path);
/* The same as text: main metrics, data sets down, models across. Free it. */
CLOOB_API char *cloob_benchmark_table(const cloob_benchmark_result *r, int64_t n, bool datacomp);

/* ---- DataComp ---------------------------------------------------------------------------------------- */

/* eval_results.jsonl: {"key", "dataset", "metrics"} a line, of the results of one model that belong to DataComp. */
CLOOB_API char *cloob_datacomp_lines(const cloob_benchmark_result *r, int64_t n, const char *pretrained);

#ifdef __cplusplus
}
#endif
#endif
