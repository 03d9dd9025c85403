/* The runs of an ablation: where they lie, what of them is done, and doing the rest. */
#ifndef ABLATE_RUNS_H
#define ABLATE_RUNS_H

#include "cloob/ablate.h"
#include "core/json.h"

enum { ABLATE_PATH = 1024 };

typedef struct ablate_run {
    const char *method;
    int64_t seed;
    char name[96], dir[ABLATE_PATH]; /* METHOD-seedN, LOGS/NAME/METHOD-seedN */
} ablate_run;

/* Writes settings.txt in the folder the first time; refuses when it tells of others. */
cloob_status ablate_check_settings(cloob_ctx *ctx, const cloob_ablate_options *o, const char *folder);

/* Trains, resumes or finds the run, evaluates it and leaves summary.json. */
cloob_status ablate_do_run(cloob_ctx *ctx, const cloob_ablate_options *o, const char *folder, const ablate_run *r,
                           cloob_ablate_summary *count);

/* All of them, o->jobs at a time; the first that fails, or is stopped, stops the others. */
cloob_status ablate_do_runs(cloob_ctx *ctx, const cloob_ablate_options *o, const char *folder, const ablate_run *run,
                            int64_t runs, cloob_ablate_summary *count);

/* What summary.json holds, in the arena. */
cloob_status ablate_read_summary(cloob_ctx *ctx, arena *a, const ablate_run *r, json **summary);

#endif
