/* Checkpoints: a model file of ours (model/weights.h) that also holds the whole state of a run.
 *
 * Weights stand under their canonical names, with adapters merged into them; what a run with adapters goes on with
 * under "train.lora.NAME" (the adapters) and "train.base.NAME" (what they are added to); optimizer moments of what is
 * trained under "train.m.NAME" and "train.v.NAME", averaged weights under "train.ema.NAME", what 8-bit GEMMs remember
 * under "train.history", a queue of embeddings under "train.queue.image" and "train.queue.text"; counters and scales in
 * the metadata. The checksums of model/digest.h cover all of it. Files are written atomically: a reader finds the old
 * one or the new one. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "train/step.h"

/* What an epoch that ended still owes when its checkpoint is written: the evaluation comes after the save. A kill
 * between the two leaves the debt in the file, and the resumed run pays it once. */
typedef struct epoch_debt {
    int64_t epoch;             /* 0: nothing is owed */
    bool validation, zeroshot; /* which parts */
    int64_t results_bytes;     /* size of results.jsonl at the time: a line of this epoch behind it is the payment */
} epoch_debt;

/* Where in a run a checkpoint stands. */
typedef struct run_position {
    int64_t epoch, step_in_epoch; /* next batch to train on */
    int64_t updates, skipped;
    int64_t global_batch; /* pairs of a step over all ranks, in which step_in_epoch counts; 0: unknown */
    uint64_t seed;
    epoch_debt owed;
    int64_t results_bytes; /* size of results.jsonl; later lines were lost with a kill; -1: unknown */
} run_position;

/* The place inside the epoch in pairs, which holds for any batch and any number of ranks. */
int64_t run_position_samples(const run_position *at);

typedef struct checkpoint_meta {
    const char *tokenizer; /* text of the merges; NULL: none */
    const char *method, *name, *options;
    double inv_tau, beta;
    bool learns_inv_tau;
} checkpoint_meta;

cloob_status checkpoint_write(cloob_ctx *ctx, const char *path, step *s, const run_position *at,
                              const checkpoint_meta *meta);

/* The same in memory: adds everything to an empty w; and puts it back into a step made for w's configuration. */
cloob_status checkpoint_gather(cloob_ctx *ctx, step *s, const run_position *at, const checkpoint_meta *meta,
                               weights *w);
cloob_status checkpoint_apply(cloob_ctx *ctx, const weights *w, const char *path, step *s, run_position *at);

/* Puts weights and state back into a step made for the same model. A file of another model, without training state, or
 * with a wrong checksum is refused and changes nothing. */
cloob_status checkpoint_read(cloob_ctx *ctx, const char *path, step *s, run_position *at);

/* Checks the checksum over the training state of a file that has one; reading checked the rest. */
cloob_status checkpoint_verify(cloob_ctx *ctx, const char *path, const weights *w);

#endif
