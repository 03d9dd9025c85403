/* Results as one JSON object each, ending in a newline; NULL when memory is out. The caller frees. */
#ifndef EVAL_EVAL_JSON_H
#define EVAL_EVAL_JSON_H

#include "cloob/eval.h"

char *retrieval_json(const cloob_retrieval *r);
char *analysis_json(const cloob_analysis *a, const cloob_analysis *reference);
char *probe_json(const cloob_probe_result *r);
char *comparison_json(const cloob_comparison *c);

#endif
