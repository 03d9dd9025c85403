/* A whole linear probe: plan, search, final training, accuracies; types and meaning in cloob/eval.h. */
#ifndef EVAL_PROBE_PROBE_RUN_H
#define EVAL_PROBE_PROBE_RUN_H

#include "cloob/eval.h"
#include "eval/probe/probe.h"

/* val may be NULL. out is released by cloob_probe_release, also after a failure. */
cloob_status probe_run(cloob_ctx *ctx, cloob_probe_result *out, const cloob_probe_options *o, const probe_data *train,
                       const probe_data *val, const probe_data *test);

#endif
