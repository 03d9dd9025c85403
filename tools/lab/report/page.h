/* The page as it grows, and its sections in order. A section that has nothing to show puts nothing. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <stddef.h>

#include "lab/report/chart.h"
#include "lab/report/export.h"
#include "lab/report/run_files.h"
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
    const json *search;    /* search.json of a sweep next to the page, or NULL */
    int64_t charts;
    export_files files;
} page;

void page_summary(page *p);    /* tiles for one run, a table for several */
void page_compare(page *p);    /* several runs: differences, and whether they are significant */
void page_ablation(page *p);   /* the table of cloob ablate */
void page_search(page *p);     /* a sweep's response curves and importance */
void page_training(page *p);   /* loss, learning rate, norm, speed by step */
void page_validation(page *p); /* loss and recall by epoch */
void page_embeddings(page *p); /* spectra, Ajne's statistic, similarity histograms */
void page_zeroshot(page *p);   /* tables, and examples with bars */
void page_settings(page *p);

/* ---- for the sections ---------------------------------------------------------------------------- */

void page_heading(page *p, const char *id, const char *title, const char *lead);
void page_chart(page *p, const chart *c); /* counts what was put, and exports it */
void page_grid(page *p, grid *g);         /* puts and releases it */
/* Settings that change no result, and the seed: runs that differ in these alone are repeats of one. */
bool page_is_incidental(const char *key);
void page_find_repeats(page *p);
int64_t page_first_repeat(const page *p, int64_t run);   /* the first run with its settings */
const char *page_group_name(const page *p, int64_t run); /* what those runs are called together: the method, mostly */
/* Runs that differ in their seed share a color; of others up to eight each have one, more that of their method. */
int page_color(const page *p, int64_t run);
/* Puts the series into the run's group: repeats become one line with a band; where there are many runs, the legend has
 * one entry for all of a method. */
void page_join(const page *p, int64_t run, chart_series *s);
/* One chart per key for several runs; one chart of all keys for one run. */
void page_result_charts(page *p, const char *title, const char *y_label, const char *const *key,
                        const char *const *label, int64_t keys);

/* A page's beginning, with the style that all pages share and the title as its first heading; and its end. */
void html_page_begin(sbuf *s, const char *title);
void html_page_end(sbuf *s);

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
