/* Zero-shot results beside a run: zeroshot*.json as `cloob zeroshot --json` writes them, and examples*.json
 * or classify*.json as `cloob classify --json` does. Everything is in the arena. */
#ifndef REPORT_SCORE_FILES_H
#define REPORT_SCORE_FILES_H

#include "core/json.h"
#include "report/run_files.h"

typedef struct score_file {
    const char *path, *set; /* set: what the file's name says after "zeroshot-" */
    const char *run;        /* of which run, "" when the file does not tell */
    const json *root;
} score_file;

typedef struct score_files {
    score_file *file;
    int64_t count, room, damaged;
} score_files;

/* Reads what is there in a folder; a folder that is absent holds nothing. run NULL: told by the file's
 * "checkpoint", or the only run there is. Files that were read before are not read again. */
cloob_status score_files_scan(cloob_ctx *ctx, arena *a, const char *folder, const run_files *run, const run_files *runs,
                              int64_t n, score_files *out);

#endif
