/* The page under construction, and its sections in order. A section without content writes nothing. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <stddef.h>

#include "lab/report/chart.h"
#include "lab/run_files.h"
#include "core/json.h"
#include "core/ctx.h"
#include "core/text.h"
#include "io/image/image.h"
#include "lab/grid.h"

typedef struct page {
    cloob_ctx *ctx;
    arena *memory;
    sbuf html;
    run_files *run; /* (runs) */
    int64_t runs;
    score_files scores;
    int64_t *first_repeat; /* (runs) the first run with the same settings, seed and name apart */
    const json *ablation;  /* ablation.json or sweep.json next to the page, or NULL */
    int64_t charts;
    const char *export_dir; /* a folder for the charts as files, or NULL */
    cloob_status status;    /* of the first file that could not be written */
} page;

void page_summary(page *p);    /* tiles for one run, a table for several */
void page_ablation(page *p);   /* the table of cloob sweep */
void page_training(page *p);   /* loss, learning rate, norm, speed by step */
void page_validation(page *p); /* loss and recall by epoch */
void page_embeddings(page *p); /* spectra, Ajne's statistic, similarity histograms */
void page_zeroshot(page *p);   /* tables, and examples with bars */
void page_settings(page *p);

/* ---- for the sections ---------------------------------------------------------------------------- */

void page_heading(page *p, const char *id, const char *title, const char *lead);
void page_chart(page *p, const chart *c); /* counts the chart, and writes it to export_dir */
void page_grid(page *p, grid *g);         /* puts and releases it */
/* Fills first_repeat: runs that differ in their seed alone are repeats of one. */
void page_find_repeats(page *p);
/* Adds a series of a run, with space for n points: repeats share a colour and become one line with a band. */
chart_series *page_add(page *p, chart *c, int64_t run, int64_t n);
/* One chart per key for several runs; one chart of all keys for one run. */
void page_result_charts(page *p, const char *title, const char *y_label, const char *const *key,
                        const char *const *label, int64_t keys);

/* A page's beginning, with the style that all pages share, its own, and the title as its first heading. */
void html_page_begin(sbuf *s, const char *title, const unsigned char *style, size_t bytes);

/* Zero-shot examples of a run, which the report writes to examples-validation.json in the run's folder and shows with
 * the results of cloob classify: {"checkpoint", "examples": [{"image": a data URL, "truth": its caption, "rank" of
 * that, "top": [{"label": a caption, "p"}]}]}. Up to MAX_SAMPLES captions compete, evenly spread over the set. */

enum { MAX_SAMPLES = 2000 };

/* d: a set with captions; the model has a tokenizer. Appends one JSON object. */
cloob_status samples_json(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, const char *checkpoint, sbuf *out);

#define JPEG_URL "data:image/jpeg;base64,"
/* Appends the centre square of an image, `side` pixels wide, as a data URL of a JPEG. */
cloob_status thumbnail_put(cloob_ctx *ctx, const image *im, int64_t side, sbuf *url);

/* Stylesheets that are compiled in (cmake/embed.cmake): tokens.css, which all pages share, page.css, and sheet.css of
 * the search sheet. Not zero-terminated. */
extern const unsigned char asset_tokens_css[], asset_page_css[], asset_sheet_css[];
extern const size_t asset_tokens_css_bytes, asset_page_css_bytes, asset_sheet_css_bytes;

/* The text under a key; NULL: none. */
static inline const char *json_text(const json *object, const char *key) { return json_string(json_get(object, key)); }

#endif
