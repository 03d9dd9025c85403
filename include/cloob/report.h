/* One self-contained HTML page about runs.
 *
 *     const char *runs[] = { "logs/first" };
 *     if (cloob_report(ctx, runs, 1, "report.html", NULL, NULL) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Reads what cloob_train left in the runs' folders: params.txt, metrics.tsv (or out.log),
 * checkpoints/results.jsonl, analysis/epoch_N; and zero-shot results, zeroshot*.json, examples*.json and
 * classify*.json, inside the run's folder, beside it, and beside the page. The page needs no network. */
#ifndef CLOOB_REPORT_H
#define CLOOB_REPORT_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_report_options {
    const char *title;               /* NULL: the runs' names */
    const char *const *score_folder; /* further folders with zero-shot results; may be NULL */
    int64_t score_folders;
} cloob_report_options;

typedef struct cloob_report_summary {
    int64_t runs, charts;
    int64_t damaged; /* lines or files that could not be read and were left out; each is named in the log */
    int64_t bytes;
} cloob_report_summary;

/* run: folders. Writes out beside and renames, so that a page is whole or the old one. o and summary may be
 * NULL. A run without validation results makes a page without them; a folder that is no run fails. */
CLOOB_API cloob_status cloob_report(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                                    const cloob_report_options *o, cloob_report_summary *summary);

#ifdef __cplusplus
}
#endif
#endif
