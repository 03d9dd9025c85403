/* Evaluates a model on CLIP_benchmark's webdatasets and DataComp's evaluation sets.
 *
 *     benchmark_options o;
 *     benchmark_result r;
 *     benchmark_options_init(&o);
 *     benchmark_run(ctx, m, "wds/wds_vtab-cifar100_test", &o, &r);
 *     printf("%s\n", benchmark_metric(&r, "acc1") ...);
 *     benchmark_release(&r);
 *
 * A data set is a folder with SPLIT/0.tar, SPLIT/1.tar, ... (SPLIT/nshards.txt says how many), classnames.txt,
 * zeroshot_classification_templates.txt, and dataset_type.txt (retrieval or multilabel; otherwise classification).
 * Metrics have CLIP_benchmark's names and definitions. Sets of DataComp are recognised by the name of their folder
 * (docs/reference/benchmarks.md has the table); WILDS, Dollar Street and GeoDE get their further metrics, and their
 * `npy` members are read for it. */
#ifndef LAB_SUITE_BENCHMARK_H
#define LAB_SUITE_BENCHMARK_H

#include "cloob/data.h"
#include "cloob/model.h"

/* ---- one data set ---------------------------------------------------------------------------------- */

typedef enum benchmark_task { BENCHMARK_AUTO, BENCHMARK_LINEAR_PROBE } benchmark_task;

typedef struct benchmark_options {
    benchmark_task task;                 /* AUTO: zero-shot classification or retrieval, depending on the data set */
    const char *split;                   /* "test" */
    const char *train_split, *val_split; /* of a linear probe: "train", and NULL: lambda is chosen on training rows */
    int64_t shots;                       /* of a linear probe: rows of each class; -1: all */
    uint64_t seed;                       /* draws the shots */
    int workers;                         /* threads that decode; 2 */
    const cloob_data_options *data;      /* such as limits of images; NULL: defaults */
} benchmark_options;

void benchmark_options_init(benchmark_options *o);

typedef struct benchmark_score {
    char *name;
    double value; /* NaN: not defined, such as acc5 of four classes */
} benchmark_score;

typedef struct benchmark_result {
    char *dataset;            /* the folder's name */
    char *model, *pretrained; /* the model's name, and the file it came from */
    char *task, *language;    /* "zeroshot_classification", "zeroshot_retrieval", "linear_probe"; "en" */
    const char *key, *title;  /* in the table of DataComp; NULL: not one of its sets */
    const char *main_metric;  /* the metric that is usually quoted; NULL: none */
    benchmark_score *score;   /* (scores) */
    int64_t scores, n, bad;   /* n: images; bad: left out because they cannot be read */
    int64_t shots;            /* of a linear probe on a few rows; -1: all */
    char *stamp;              /* size and time of the weights' file; "" for a folder */
} benchmark_result;

cloob_status benchmark_run(cloob_ctx *ctx, cloob_model *m, const char *folder, const benchmark_options *o,
                           benchmark_result *out);
void benchmark_release(benchmark_result *r);
double benchmark_metric(const benchmark_result *r, const char *name); /* NaN: not there */

/* ---- results in files -------------------------------------------------------------------------------- */

/* CLIP_benchmark's object: dataset, model, pretrained, task, metrics, language; and n, bad, main_metric; one line.
 * Free it. */
char *benchmark_json(const benchmark_result *r);
/* The name that CLIP_benchmark gives the file of that object: DATASET_PRETRAINED_MODEL_LANGUAGE_TASK.json. Free it. */
char *benchmark_file_name(const benchmark_result *r);
/* Fills the names of the result without metrics, to check whether it already exists. */
cloob_status benchmark_name(cloob_ctx *ctx, const cloob_model *m, const char *folder, const benchmark_options *o,
                            benchmark_result *out);
cloob_status benchmark_read(cloob_ctx *ctx, const char *path, benchmark_result *out);
/* `clip_benchmark build`'s table: a row per result, a column per metric. Free it. */
char *benchmark_csv(const benchmark_result *r, int64_t n);
/* Main metrics as text, data sets down, models across. datacomp: all of DataComp's sets are listed, with those that are
 * not there. Free it. */
char *benchmark_table(const benchmark_result *r, int64_t n, bool datacomp);

/* ---- DataComp ---------------------------------------------------------------------------------------- */

/* eval_results.jsonl: {"key", "dataset", "metrics"} a line, of the results of one model that belong to DataComp. */
char *datacomp_lines(const benchmark_result *r, int64_t n, const char *pretrained);

#endif
