/* Evaluation during training: loss and retrieval on the validation pairs, zero-shot accuracy on class folders. */
#ifndef TRAIN_RUN_EVAL_H
#define TRAIN_RUN_EVAL_H

#include "train/run_setup.h"

/* Which parts of the evaluation are due at the end of an epoch. */
pending_eval run_due_eval(const run *r, int64_t epoch);
/* Runs the evaluation r->at.pending and clears it. Writes results.jsonl and the log. */
cloob_status run_evaluate(cloob_ctx *ctx, run *r);
/* The same for a pending evaluation from a checkpoint, unless results.jsonl already has its result. */
cloob_status run_finish_pending_eval(cloob_ctx *ctx, run *r);

/* Rows embedded at a time; 0: this run never evaluates. */
int64_t run_eval_batch(const run *r);

/* Checks the zero-shot data and prompts, so that an error is reported before the first epoch. */
cloob_status run_check_zeroshot(cloob_ctx *ctx, const run *r);

#endif
