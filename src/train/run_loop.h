/* The training loop: epochs, steps, lines in the log, checkpoints. */
#ifndef TRAIN_RUN_LOOP_H
#define TRAIN_RUN_LOOP_H

#include "train/run_setup.h"

/* Trains until the epochs, the steps or the caller end it. */
cloob_status run_loop(cloob_ctx *ctx, run *r);

/* True when the last epoch has no step left but was never closed: its checkpoint was written with another batch. */
bool run_ends_unfinished(const run *r);

/* Metadata for a checkpoint of the run; points into r. */
checkpoint_meta run_meta(const run *r);
/* Writes a checkpoint and moves `latest` to it. */
cloob_status run_save(cloob_ctx *ctx, run *r, const char *name);

/* Makes `name` another name of a checkpoint: a hard link or a symbolic one, replaced atomically. */
cloob_status run_link(cloob_ctx *ctx, const char *path, const char *name);

/* Counts the unreadable samples that the loader found, into r->sum. Collective. */
cloob_status run_count_bad(cloob_ctx *ctx, run *r);

/* ---- stages of `image_size_schedule`, image_sizes.c ---- */

/* Refuses a schedule with a size that the model cannot have. */
cloob_status run_check_stages(cloob_ctx *ctx, const run *r);
/* At the start of an epoch with another image size: creates step and loader for it and moves the state of the run over.
 * Positional embeddings and their optimizer state are resampled. */
cloob_status run_enter_stage(cloob_ctx *ctx, run *r);

/* ---- a run that learns nothing, collapse.c ---- */

/* Detects a run that learns nothing, early enough to stop it.
 *
 * At the start all similarities are equal and the loss is near 2 ln(N - 1) / inv_tau (InfoNCE: ln N). A run
 * whose loss stays there while all rows of a modality have moved to one point (mean similarity near 1) has
 * collapsed. */

/* Mean of x_i . x_j over i != j of n unit rows: (|sum x|^2 - n) / (n (n - 1)); O(n d). 0 for fewer than two
 * rows. */
double collapse_similarity(const float *x, int64_t n, int64_t d);

/* The initial loss of N pairs. */
double collapse_start(cloob_method method, int64_t N, double inv_tau);

/* The steps at which a run is checked: 50, 100, 200, 400, ... */
bool collapse_is_due(int64_t updates);

typedef struct collapse_signs {
    double image, text; /* mean similarity within each modality */
    double loss, start;
} collapse_signs;

/* True when the loss is within a twentieth of its initial value. */
bool collapse_is_plateau(const collapse_signs *s);

/* True when a modality has collapsed to one point and the loss is on its plateau. */
bool collapse_seen(const collapse_signs *s);

/* At the steps of collapse_is_due: logs a collapse, or a plateau, of the embeddings of the last step. Rank 0 only. */
cloob_status run_check_collapse(cloob_ctx *ctx, run *r, const step_result *s);

/* Evaluation during training: loss and retrieval on the validation pairs, zero-shot accuracy on class folders. */

/* Which parts of the evaluation are due at the end of an epoch. */
pending_eval run_due_eval(const run *r, int64_t epoch);
/* Runs the evaluation r->at.pending and clears it. Writes results.jsonl and the log. */
cloob_status run_evaluate(cloob_ctx *ctx, run *r);
/* The same for a pending evaluation from a checkpoint, unless results.jsonl already has its result. */
cloob_status run_finish_pending_eval(cloob_ctx *ctx, run *r);

/* ---- the best evaluation, best.c ---- */

/* The metric in the first line of results that ends a cycle of the learning rate; false: there is none. */
bool first_cycle_end(cloob_ctx *ctx, const run *r, const char *metric, double *out);

/* `keep_best`: keeps the checkpoint of this epoch if its evaluation is the best. Collective. */
cloob_status run_keep_best(cloob_ctx *ctx, run *r, int64_t epoch);
/* `early_stop`: sets r->stopped_early when the metric has stopped improving. Collective. */
cloob_status run_check_early_stop(cloob_ctx *ctx, run *r);

/* Rows embedded at a time; 0: this run never evaluates. */
int64_t run_eval_batch(const run *r);

/* Checks the zero-shot data and prompts, so that an error is reported before the first epoch. */
cloob_status run_check_zeroshot(cloob_ctx *ctx, run *r);

#endif
