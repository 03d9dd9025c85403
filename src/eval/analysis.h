/* The paper's analysis of embeddings in one call; types and meaning in cloob/eval.h. */
#ifndef EVAL_ANALYSIS_H
#define EVAL_ANALYSIS_H

#include "cloob/eval.h"
#include "eval/rows.h"

/* text may be NULL. out is released by analysis_release, also after a failure. */
cloob_status analysis_run(cloob_ctx *ctx, cloob_analysis *out, const rows *image, const rows *text, double share);
void analysis_release(cloob_analysis *a);

/* analysis.json, eigenvalues.tsv, similarities.tsv in a folder. */
cloob_status analysis_write(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                            const char *folder);

#endif
