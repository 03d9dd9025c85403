/* One self-contained HTML page about runs.
 *
 *     const char *runs[] = { "logs/first" };
 *     if (cloob_report(ctx, runs, 1, "report.html", NULL, NULL) != CLOOB_OK) puts(cloob_error(ctx));
 *
 * Reads what cloob_train left in the runs' folders: params.txt, metrics.tsv (or out.log),
 * checkpoints/results.jsonl, analysis/epoch_N; and zero-shot results, zeroshot*.json, examples*.json and
 * classify*.json, inside the run's folder, beside it, and beside the page. Images and what the model says of them come
 * from samples.json in the run's folder, which is written first, with the run's last checkpoint and validation data.
 * The page needs no network. */
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
    bool samples;              /* bring samples.json up to date; false: show what is there */
    const char *const *search; /* sentences to search the validation images for; none: some of their captions */
    int64_t searches;
    const char *device; /* for the samples, as cloob_model_open takes it */
    const char
        *export_dir; /* a folder for every chart as SVG, PDF and CSV, every table as CSV, LaTeX and Markdown; or NULL */
} cloob_report_options;

CLOOB_API void cloob_report_options_init(cloob_report_options *o); /* samples, nothing else */

enum { CLOOB_REPORT_SAMPLED = 4 }; /* samples are brought up to date for so many runs */

typedef struct cloob_report_summary {
    int64_t runs, charts;
    int64_t damaged; /* lines or files that could not be read and were left out; each is named in the log */
    int64_t bytes;
    int64_t exported; /* files below export_dir */
} cloob_report_summary;

/* run: folders. Writes out beside and renames, so that a page is whole or the old one. o and summary may be
 * NULL. A run without validation results makes a page without them; a folder that is no run fails. */
CLOOB_API cloob_status cloob_report(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                                    const cloob_report_options *o, cloob_report_summary *summary);

/* Draws a figure of one's own numbers, as SVG and PDF with its numbers as CSV, NAME.* in the folder dir, which is made.
 * path: a JSON file, {"name": NAME, "title", "x_label", "y_label", "series": [{"name", "x": [...], "y": [...]}]};
 * a series may have "low" and "high" (a band, or the whiskers of bars) and "color" (0 to 7), the figure "categories"
 * (texts that x counts from 0), "bars", "from_zero" and "log_y". Fails in a build without cairo. */
CLOOB_API cloob_status cloob_figure(cloob_ctx *ctx, const char *path, const char *dir);

#ifdef __cplusplus
}
#endif
#endif
