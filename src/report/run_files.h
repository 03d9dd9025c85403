/* A run's folder, read: settings, training metrics, validations, analyses. Everything is in the arena. */
#ifndef REPORT_RUN_FILES_H
#define REPORT_RUN_FILES_H

#include "core/json.h"
#include "report/samples_file.h"
#include "report/table.h"

typedef struct run_param {
    const char *key, *value;
} run_param;

typedef struct run_analysis {
    int64_t epoch;
    table eigenvalues;  /* index, x, y */
    table similarities; /* from, to, matched, top10_unmatched, ... counts; 0 rows when there was one modality
                           alone */
} run_analysis;

typedef struct run_files {
    const char *dir, *name, *method;
    run_param *param;
    int64_t params;
    table metrics;       /* step, epoch, loss, ...; rows in order of step, repeated steps of a resumed run once */
    const json **result; /* one object per validation */
    int64_t results;
    run_analysis *analysis; /* in order of epoch */
    int64_t analyses;
    samples_file samples;
    int64_t damaged; /* lines left out of all files */
} run_files;

/* A folder that is absent or holds nothing of a run is an error. What is damaged is left out, counted and
 * logged. */
cloob_status run_files_read(cloob_ctx *ctx, arena *a, const char *dir, run_files *out);

const char *run_param_get(const run_files *r, const char *key); /* "" when absent */
/* The number under a key of the last validation that has it; false: none has. */
bool run_last_result(const run_files *r, const char *key, double *out);

#endif
