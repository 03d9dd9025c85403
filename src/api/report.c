/* cloob/report.h */
#include "cloob/report.h"

#include "report/report.h"
#include "core/needs.h"

cloob_status cloob_report(cloob_ctx *ctx, const char *const *run, int64_t runs, const char *out,
                          const cloob_report_options *o, cloob_report_summary *summary)
{
    API_NEEDS(ctx, run && out && runs >= 0);
    return report_write(ctx, run, runs, out, o, summary);
}
