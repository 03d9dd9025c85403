/* Reads the files of runs: settings, training metrics, validations, analyses, zero-shot results.
 * Everything is in the arena. */
#ifndef LAB_RUN_FILES_H
#define LAB_RUN_FILES_H

#include "core/json.h"
#include "core/arena.h"
#include "cloob/data.h"
#include "cloob/model.h"
#include "core/ctx.h"

/* Numbers in columns, from the tab-separated files a run leaves behind (metrics.tsv, eigenvalues.tsv,
 * similarities.tsv). */
typedef struct tsv {
    int64_t columns, rows;
    char **name;     /* (columns), of the header */
    double *value;   /* (rows, columns) */
    int64_t damaged; /* lines left out: too few columns, or not numbers */
} tsv;

int64_t tsv_find(const tsv *t, const char *name); /* the column, or -1 */

static inline double tsv_at(const tsv *t, int64_t row, int64_t column) { return t->value[row * t->columns + column]; }

/* A file with a JSON object on each line: a run's results.jsonl, or a sweep's. */
typedef struct json_lines {
    const json **line; /* (count) */
    int64_t count, room;
} json_lines;

/* damaged NULL: a line that cannot be read fails; else it is left out, logged and counted. */
cloob_status json_lines_read(cloob_ctx *ctx, arena *a, const char *path, int64_t *damaged, json_lines *out);
/* The last line of a run's checkpoints/results.jsonl; *out NULL: the run was never validated. */
cloob_status last_result_read(cloob_ctx *ctx, arena *a, const char *dir, const json **out);

typedef struct run_param {
    const char *key, *value;
} run_param;

/* The lines "key: value" of params.txt in a run's folder; *out NULL: it has none. */
cloob_status run_params_read(cloob_ctx *ctx, arena *a, const char *dir, run_param **out, int64_t *count);

typedef struct run_analysis {
    int64_t epoch;
    tsv eigenvalues;  /* index, x, y */
    tsv similarities; /* from, to, matched, top10_unmatched, ... counts; 0 rows for a single modality */
} run_analysis;

typedef struct run_files {
    const char *dir, *name, *method;
    run_param *param;
    int64_t params;
    tsv metrics;         /* step, epoch, loss, ...; rows in order of step, repeated steps of a resumed run once */
    const json **result; /* one object per validation */
    int64_t results;
    run_analysis *analysis; /* in order of epoch */
    int64_t analyses;
    int64_t damaged; /* lines left out of all files */
} run_files;

/* eigenvalues.tsv and similarities.tsv of a folder that analysis_write filled; those that are absent are empty. */
cloob_status run_analysis_read(cloob_ctx *ctx, arena *a, const char *folder, run_analysis *out);

/* A folder that is missing or is not a run is an error. Damaged lines and files are left out, counted and logged. */
cloob_status run_files_read(cloob_ctx *ctx, arena *a, const char *dir, run_files *out);

const char *run_param_get(const run_files *r, const char *key); /* "" when absent */
/* The number under a key of the last validation that has it; false: none has. */
bool run_last_result(const run_files *r, const char *key, double *out);

/* Zero-shot results next to a run: zeroshot*.json as `cloob zeroshot --json` writes them, and examples*.json
 * or classify*.json as `cloob classify --json` does. Everything is in the arena. */

typedef struct score_file {
    const char *path, *set; /* set: the part of the file's name after "zeroshot-" */
    const char *run;        /* of which run, "" if the file does not name one */
    const json *root;
} score_file;

typedef struct score_files {
    score_file *file;
    int64_t count, room, damaged;
} score_files;

/* Reads the results in a folder, if it exists. run NULL: taken from the file's
 * "checkpoint", or the only run there is. Files that were read before are not read again. */
void score_files_scan(cloob_ctx *ctx, arena *a, const char *folder, const run_files *run, const run_files *runs,
                      int64_t n, score_files *out);

#endif
