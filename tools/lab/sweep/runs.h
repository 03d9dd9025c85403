/* The runs of an ablation or a sweep: their folders, which of them are done, and training the rest. */
#ifndef ABLATE_RUNS_H
#define ABLATE_RUNS_H

#include "lab/sweep/sweep.h"
#include "core/arena.h"
#include "core/json.h"
#include "cloob/model.h"

enum { SWEEP_PATH = 1024 };

typedef struct run_setting { /* an option of training and its value, as option_set reads it */
    const char *name, *value;
} run_setting;

typedef struct sweep_run {
    const run_setting *setting; /* (settings) in which it differs from the other runs: its method, for one */
    int64_t settings;
    int64_t seed;
    bool tested;   /* evaluated on the test data, once: leaves test.json */
    bool may_fail; /* a loss that is not finite is a result, {"failed": REASON}, and the other runs continue */
    char name[192], dir[SWEEP_PATH]; /* NAME-seedN, LOGS/FOLDER/NAME-seedN */
} sweep_run;

/* Writes settings.txt in the folder the first time; refuses if it contains other settings. */
cloob_status sweep_check_settings(cloob_ctx *ctx, const sweep_options *o, const char *folder);

/* Trains, resumes or finds the run, evaluates it and leaves summary.json. */
cloob_status sweep_do_run(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *r,
                          sweep_summary *count);

/* Does all runs, o->jobs at a time; the first that fails, or is stopped, stops the others. */
cloob_status sweep_do_runs(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *run,
                           int64_t runs, sweep_summary *count);

bool run_is_done(const sweep_run *r); /* it has summary.json, and test.json where it is tested */

/* A file of the run's folder, summary.json or test.json, in the arena. */
cloob_status run_read(cloob_ctx *ctx, arena *a, const sweep_run *r, const char *name, json **out);

/* The scores of a trained run on class folders and on pairs, as members of a JSON object. */

/* Ends the object of `out`, writes it if so_far is CLOOB_OK, and always releases it. */
cloob_status run_write_object(cloob_ctx *ctx, cloob_status so_far, json_out *out, const char *path);

/* The name of a data set: "world/classes/object/" -> "object". */
void run_set_name(const char *path, char out[128]);

/* The run's last checkpoint, for inference on the device it was trained on. */
cloob_status run_open_model(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, cloob_model **m);

/* zeroshot/SET for each folder and, of several, zeroshot/average. Leaves PREFIXzeroshot-SET.json in the run's folder,
 * where the report finds it. */
cloob_status run_put_zeroshots(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, cloob_model *m,
                               const char *prefix, json_out *out);

/* Evaluates the run on the test data and leaves test.json: zero-shot accuracies; retrieval both ways, by all captions
 * of an image; Ajne's statistic, effective eigenvalues and similarities. A run that has the file is not evaluated
 * again. */
cloob_status run_test_once(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r);

/* ---- the settings that a sweep tries: combinations of its axes' values, and the runs that they make --- */

typedef struct point {
    const run_setting *setting; /* (axes) */
    const char *group;          /* value of `by`; "" without */
    double score;               /* mean of the number to choose by over its seeds; NaN: none */
    bool chosen;
} point;

typedef struct points {
    const sweep_options *o;
    point *item;
    int64_t count;
    int64_t by; /* index of an axis; -1: none */
} points;

/* All combinations, or o->random of them. Refuses unknown options and values, an axis that is listed twice, and more
 * than a million combinations. Memory is in the arena. */
cloob_status points_make(cloob_ctx *ctx, arena *a, const sweep_options *o, points *p);

/* The run of a point with a seed, in a folder below `folder`. */
cloob_status point_run(cloob_ctx *ctx, const points *p, const point *at, int64_t seed, const char *folder,
                       sweep_run *r);

typedef struct sweep_stage { /* runs that are trained together */
    sweep_run *run;          /* (runs) */
    int64_t *point;          /* (runs) index of each run's point */
    int64_t runs;
} sweep_stage;

typedef struct sweep {
    const sweep_options *o;
    arena *memory;
    points points;
    sweep_stage search, final;
    sweep_summary summary;
} sweep;

/* Write the results: results.jsonl, sweep.md and sweep.json; of a comparison ablation.md and ablation.json. Every run
 * must have its summary. */
cloob_status sweep_write_tables(cloob_ctx *ctx, sweep *s);
cloob_status comparison_write_tables(cloob_ctx *ctx, sweep *s);

#endif
