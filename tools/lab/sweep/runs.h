/* The runs of an ablation or a sweep: their folders, which of them are done, and training the rest. */
#ifndef ABLATE_RUNS_H
#define ABLATE_RUNS_H

#include "lab/sweep/sweep.h"
#include "core/json.h"
#include "cloob/model.h"

enum { SWEEP_PATH = 1024 };

typedef struct run_setting { /* an option of training and its value, as option_set reads it */
    const char *name, *value;
} run_setting;

typedef struct run_test { /* what a trained run is evaluated on, once */
    const char *const *zeroshot;
    int64_t zeroshots;
    const char *pairs; /* NULL: none */
} run_test;

typedef struct sweep_run {
    const run_setting *setting; /* (settings) in which it differs from the other runs: its method, for one */
    int64_t settings;
    int64_t seed;
    const run_test *test; /* NULL: none; leaves test.json, and a run that has it is not evaluated again */
    bool may_fail;        /* a loss that is not finite is a result, {"failed": REASON}, and the other runs continue */
    char name[192], dir[SWEEP_PATH]; /* NAME-seedN, LOGS/FOLDER/NAME-seedN */
} sweep_run;

/* The value of a setting; NULL: the run does not set it. */
const char *run_setting_value(const sweep_run *r, const char *name);

/* Writes settings.txt in the folder the first time; refuses if it contains other settings. */
cloob_status sweep_check_settings(cloob_ctx *ctx, const sweep_options *o, const char *folder);

/* Trains, resumes or finds the run, evaluates it and leaves summary.json. */
cloob_status sweep_do_run(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *r,
                          sweep_summary *count);

/* All of them, o->jobs at a time; the first that fails, or is stopped, stops the others. */
cloob_status sweep_do_runs(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *run,
                           int64_t runs, sweep_summary *count);

bool run_is_done(const sweep_run *r); /* it has summary.json, and test.json where it is tested */

/* A file of the run's folder, summary.json or test.json, in the arena. */
cloob_status run_read(cloob_ctx *ctx, arena *a, const sweep_run *r, const char *name, json **out);

/* What a trained run scores on class folders and on pairs, as members of a JSON object. */

/* Ends the object of `out` and writes it if so_far is CLOOB_OK; releases it in any case. */
cloob_status run_write_object(cloob_ctx *ctx, cloob_status so_far, json_out *out, const char *path);

/* What a data set is called: "world/classes/object/" -> "object". */
void run_set_name(const char *path, char out[128]);

/* The run's last checkpoint, for inference on the device it was trained on. */
cloob_status run_open_model(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, cloob_model **m);

/* zeroshot/SET for each folder and, of several, zeroshot/average. Leaves PREFIXzeroshot-SET.json in the run's folder,
 * where the report finds it. */
cloob_status run_put_zeroshots(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r, cloob_model *m,
                               const char *prefix, json_out *out);

/* Evaluates the run on r->test and leaves test.json: zero-shot accuracies; retrieval both ways, by all captions of an
 * image; Ajne's statistic, effective eigenvalues and similarities. A run that has the file is not evaluated again. */
cloob_status run_test_once(cloob_ctx *ctx, const sweep_options *o, const sweep_run *r);

#endif
