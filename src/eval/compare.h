/* Two groups of runs, metric by metric; types and meaning in cloob/eval.h. */
#ifndef EVAL_COMPARE_H
#define EVAL_COMPARE_H

#include "cloob/eval.h"
#include "core/ctx.h"

cloob_status compare_files(cloob_ctx *ctx, cloob_comparison *out, const char *path_a, const char *path_b, int64_t epoch,
                           double alpha);
void comparison_release(cloob_comparison *c);

#endif
