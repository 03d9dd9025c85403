/* One page out of runs' folders; meaning and types in cloob/report.h. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "cloob/report.h"
#include "core/ctx.h"

cloob_status report_write(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                          const cloob_report_options *o, cloob_report_summary *summary);

#endif
