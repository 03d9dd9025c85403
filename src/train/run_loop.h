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

/* Counts the unreadable samples that the loader found, into r->sum. Collective. */
cloob_status run_count_bad(cloob_ctx *ctx, run *r);

/* ---- stages of `image_size_schedule`, image_sizes.c ---- */

/* Refuses a schedule with a size that the model cannot have. */
cloob_status run_check_stages(cloob_ctx *ctx, const run *r);
/* At the start of an epoch with another image size: creates step and loader for it and moves the state of the run over.
 * Positional embeddings and their optimizer state are resampled. */
cloob_status run_enter_stage(cloob_ctx *ctx, run *r);

#endif
