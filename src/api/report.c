/* cloob/report.h */
#include "cloob/report.h"

#include "report/report.h"

cloob_status cloob_report(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                          const cloob_report_options *o, cloob_report_summary *summary)
{
    return report_write(ctx, run, runs, out, o, summary);
}
