/* Figures and tables as files next to the page, for papers: every chart as SVG, PDF and CSV, every table as CSV, LaTeX
 * and Markdown. */
#ifndef REPORT_EXPORT_H
#define REPORT_EXPORT_H

#include "lab/grid.h"
#include "lab/report/chart.h"

typedef struct export_files {
    cloob_ctx *ctx;
    const char *dir; /* NULL: nothing is written */
    char *href;      /* its path from the page, or NULL; owned */
    int64_t files;
    cloob_status status; /* of the first failure; later calls do nothing */
} export_files;

/* Makes the folder. page: where the page will be, for links from there. */
void export_begin(export_files *e, cloob_ctx *ctx, const char *dir, const char *page);
void export_end(export_files *e);

/* NAME.svg and NAME.pdf (where the build has cairo) and NAME.csv, NAME made from the title; links gets an element for
 * each. */
void export_chart(export_files *e, const chart *c, sbuf *links);

/* NAME.csv, NAME.tex and NAME.md of a table that has rows. */
void export_grid(export_files *e, const char *name, const grid *g);

#endif
