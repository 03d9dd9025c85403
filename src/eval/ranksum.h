/* The unpaired Wilcoxon rank-sum test; types and meaning in cloob/eval.h. */
#ifndef EVAL_RANKSUM_H
#define EVAL_RANKSUM_H

#include "cloob/eval.h"
#include "core/ctx.h"

/* EXACT with ties is refused. Values must be finite, both samples non-empty. */
cloob_status ranksum_test(cloob_ctx *ctx, cloob_rank_sum *out, const double *a, int64_t na, const double *b, int64_t nb,
                          cloob_rank_sum_method method);

#endif
