/* The strength of the probe's regularisation by CLIP's parametric binary search: lambda = 1e-6, 1e-4, ...,
 * 1e6 on the validation rows, then a step to both sides of the best, halved from one decade to an eighth.
 * Among equal accuracies the strongest lambda wins. */
#ifndef EVAL_PROBE_PROBE_SEARCH_H
#define EVAL_PROBE_PROBE_SEARCH_H

#include "cloob/eval.h"
#include "eval/probe/probe.h"

typedef struct probe_search {
    cloob_probe_trial trial[CLOOB_PROBE_TRIALS]; /* in the order tried */
    int trials;
    int best;          /* index of the winner */
    probe_model model; /* the winner's, trained on `train` only; owned */
} probe_search;

/* Each training starts from the parameters of the last one, so that fifteen cost little more than a few. */
cloob_status probe_search_run(cloob_ctx *ctx, probe_search *s, const probe_data *train, int parts,
                              const probe_data *val, const probe_options *o);
void probe_search_release(probe_search *s);

#endif
