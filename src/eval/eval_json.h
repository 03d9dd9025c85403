/* Results of evaluations as JSON texts, which the caller frees with free(). NULL: no memory. */
#ifndef EVAL_EVAL_JSON_H
#define EVAL_EVAL_JSON_H

#include "cloob/eval.h"

char *retrieval_json(const cloob_retrieval *r);
char *probe_json(const cloob_probe_result *r);

/* reference: an earlier analysis, for example of the first epoch, to compare with; or NULL. */
char *analysis_json(const cloob_analysis *a, const cloob_analysis *reference);
/* analysis.json, eigenvalues.tsv and (paired) similarities.tsv in a folder that is made when absent. */
cloob_status analysis_write(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                            const char *folder);

#endif
