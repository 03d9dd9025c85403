/* The unpaired Wilcoxon rank-sum test; types and meaning in cloob/eval.h. */
#ifndef EVAL_RANKSUM_H
#define EVAL_RANKSUM_H

#include "cloob/eval.h"
#include "core/ctx.h"

/* EXACT with ties is refused. Values must be finite, both samples non-empty. */
cloob_status ranksum_test(cloob_ctx *ctx, cloob_rank_sum *out, const double *a, int64_t na, const double *b, int64_t nb,
                          cloob_rank_sum_method method);

/* Two groups of runs, metric by metric; types and meaning in cloob/eval.h. */

cloob_status compare_files(cloob_ctx *ctx, cloob_comparison *out, const char *path_a, const char *path_b, int64_t epoch,
                           double alpha);
void comparison_release(cloob_comparison *c);

#endif
