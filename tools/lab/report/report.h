/* One self-contained HTML page about runs.
 *
 *     const char *runs[] = { "logs/first" };
 *     if (report_write(ctx, runs, 1, "report.html", NULL, NULL) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Reads the files of cloob_train in the runs' folders: params.txt, metrics.tsv, checkpoints/results.jsonl,
 * analysis/epoch_N; and zero-shot results, zeroshot*.json, examples*.json and classify*.json, inside the run's folder,
 * next to it, and next to the page. Zero-shot examples of the validation data, examples-validation.json in the run's
 * folder, are written first, with the run's last checkpoint. The page needs no network. */
#ifndef LAB_REPORT_REPORT_H
#define LAB_REPORT_REPORT_H

#include "cloob/search.h"
#include "core/ctx.h"

typedef struct report_options {
    const char *title;               /* NULL: the runs' names */
    const char *const *score_folder; /* further folders with zero-shot results; may be NULL */
    int64_t score_folders;
    bool samples;           /* bring examples-validation.json up to date; false: show what is there */
    const char *device;     /* for the samples, as cloob_model_open takes it */
    const char *export_dir; /* a folder for every chart as SVG and CSV, or NULL */
} report_options;

void report_options_init(report_options *o); /* samples, nothing else */

enum { REPORT_SAMPLED = 1 }; /* examples are brought up to date for so many runs */

typedef struct report_summary {
    int64_t runs, charts;
    int64_t damaged; /* lines or files that could not be read and were left out; each is named in the log */
    int64_t bytes;
} report_summary;

/* run: folders. The page is written atomically. o and summary may be NULL. A run without validation results gives a
 * page without them. Fails for a folder that is not a run. */
cloob_status report_write(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                          const report_options *o, report_summary *summary);

/* spectrum.svg and, of pairs, similarities.svg, from eigenvalues.tsv and similarities.tsv in the folder, which
 * analysis_write left there. */
cloob_status analysis_plots(cloob_ctx *ctx, const char *folder);

/* A self-contained HTML page with thumbnails of the hits. Written atomically. */
cloob_status search_sheet(cloob_ctx *ctx, const char *path, const char *title, const cloob_search_hit *hit, int64_t n);

#endif
