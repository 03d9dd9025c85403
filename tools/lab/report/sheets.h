/* Plots of an analysis, and a page of search results. */
#ifndef LAB_REPORT_SHEETS_H
#define LAB_REPORT_SHEETS_H

#include "cloob/eval.h"
#include "cloob/search.h"

/* spectrum and (paired) similarities in a folder, each as .svg and .pdf. Unsupported in a build without cairo. */
cloob_status analysis_plots(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                            const char *folder);

/* A self-contained HTML page with thumbnails of the hits. Written atomically. */
cloob_status search_sheet(cloob_ctx *ctx, const char *path, const char *title, const cloob_search_hit *hit, int64_t n);

#endif
