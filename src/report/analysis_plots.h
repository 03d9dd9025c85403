/* The figures of an embedding analysis; types in cloob/eval.h. */
#ifndef REPORT_ANALYSIS_PLOTS_H
#define REPORT_ANALYSIS_PLOTS_H

#include "cloob/eval.h"
#include "core/ctx.h"

/* spectrum.svg, and similarities.svg where the rows are paired, in a folder that exists. reference may be
 * NULL. CLOOB_ERR_UNSUPPORTED, with nothing written, in a build without cairo. */
cloob_status analysis_plots_write(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                                  const char *folder);

#endif
