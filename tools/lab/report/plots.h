/* Figures of an analysis and of calibration. */
#ifndef LAB_REPORT_PLOTS_H
#define LAB_REPORT_PLOTS_H

#include "cloob/eval.h"
#include "eval/metrics/metrics.h"

/* spectrum and (paired) similarities beside them, each as .svg and .pdf. Unsupported in a build without cairo. */
cloob_status analysis_plots(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                            const char *folder);

/* The reliability plot as SVG: accuracy over confidence, a line per model, and the diagonal. Unsupported in a build
 * without cairo. */
cloob_status calibration_plot(cloob_ctx *ctx, const calibration *c, const char *const *name, int64_t n,
                              const char *path);

#endif
