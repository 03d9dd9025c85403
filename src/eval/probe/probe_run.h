/* A whole linear probe: plan, search, final training, accuracies; types and meaning in cloob/eval.h. */
#ifndef EVAL_PROBE_PROBE_RUN_H
#define EVAL_PROBE_PROBE_RUN_H

#include "cloob/eval.h"
#include "eval/probe/probe.h"

/* val may be NULL. out is released by cloob_probe_release, also after a failure. */
cloob_status probe_run(cloob_ctx *ctx, cloob_probe_result *out, const cloob_probe_options *o, const probe_data *train,
                       const probe_data *val, const probe_data *test);

/* Probes trained on a few rows of each class, drawn several times. */

/* Rows of the training split: `shots` of each class, the first of a permutation that the seed draws for the class.
 * chosen: room for shots times the number of classes; *n of them, in the order of the classes. A class with fewer rows
 * is refused. */
cloob_status few_shot_choose(cloob_ctx *ctx, const probe_data *train, int64_t shots, uint64_t seed, int64_t *chosen,
                             int64_t *n);

cloob_status few_shot_run(cloob_ctx *ctx, cloob_few_shot_result *out, const cloob_few_shot_options *o,
                          const probe_data *train, const probe_data *val, const probe_data *test);

#endif
