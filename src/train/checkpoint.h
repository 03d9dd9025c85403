/* Checkpoints: a model file in cloob's own format (model/weights.h) that also contains the whole state of a run.
 *
 * Weights have their canonical names, with adapters merged into them. A run with adapters also stores "train.lora.NAME"
 * (the adapters) and "train.base.NAME" (the weights they are added to). Optimizer moments of trained parameters are
 * "train.m.NAME" and "train.v.NAME", averaged weights "train.ema.NAME", a queue of embeddings
 * "train.queue.image" and "train.queue.text"; counters and scalars are metadata. The checksums of
 * model/digest.h cover all of it. Files are written atomically. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "train/step.h"

/* The pending evaluation of an epoch that has ended: the checkpoint is saved first. If the run ends in between, the
 * resumed run evaluates. In the metadata: "train.owed.*". */
typedef struct pending_eval {
    int64_t epoch;                /* 0: none */
    int64_t validation, zeroshot; /* which parts: 0 or 1 */
    int64_t results_bytes; /* size of results.jsonl then: a later line of this epoch means that it was evaluated */
} pending_eval;

/* Position in a run. */
typedef struct run_position {
    int64_t epoch, step_in_epoch; /* next batch to train on */
    int64_t updates, skipped;
    int64_t global_batch; /* pairs per step over all ranks, the unit of step_in_epoch; 0: unknown */
    int64_t seed;
    pending_eval pending;
    int64_t results_bytes; /* size of results.jsonl; later lines are from updates that were lost; -1: unknown */
} run_position;

/* The position in the epoch in pairs, independent of the batch and the number of ranks. */
int64_t run_position_samples(const run_position *at);

typedef struct checkpoint_meta {
    const char *tokenizer; /* the merges as text; NULL: none */
    const char *method, *name, *options;
    double inv_tau, beta;
    bool learns_inv_tau;
} checkpoint_meta;

cloob_status checkpoint_write(cloob_ctx *ctx, const char *path, step *s, const run_position *at,
                              const checkpoint_meta *meta);

/* The same in memory: adds everything to an empty w, and loads it into a step created for w's configuration. */
cloob_status checkpoint_gather(cloob_ctx *ctx, step *s, const run_position *at, const checkpoint_meta *meta,
                               weights *w);
cloob_status checkpoint_apply(cloob_ctx *ctx, const weights *w, const char *path, step *s, run_position *at);

/* Loads weights and state into a step created for the same model. A file of another model, without training state, or
 * with a wrong checksum is refused and changes nothing. */
cloob_status checkpoint_read(cloob_ctx *ctx, const char *path, step *s, run_position *at);

/* *difference: both configurations as text, which the caller frees; NULL: they are equal. */
cloob_status checkpoint_compare(cloob_ctx *ctx, const model_config *stored, const model_config *asked,
                                char **difference);

/* Checks the checksum of the training state, if the file has one; reading checks the rest. */
cloob_status checkpoint_verify(cloob_ctx *ctx, const char *path, const weights *w);

/* ---- the checkpoint that a resumed run starts from ---- */

enum { RESUME_PATH = 1024 };

/* The newest valid checkpoint in a folder: latest.safetensors, or, when that is damaged (logged), the one with the most
 * updates among the others with a valid checksum. An error when there is none. */
cloob_status resume_find(cloob_ctx *ctx, const char *folder, char path[RESUME_PATH]);

/* The other name in the folder of a checkpoint that `latest` links to. Empty when there is none, or when path is not in
 * the folder. */
void resume_real_name(const char *folder, const char *path, char name[RESUME_PATH]);

/* True for a checkpoint directly in the folder: the run continues in place. */
bool resume_is_inside(const char *folder, const char *path);

/* Removes temporary files that killed writers left in a folder of checkpoints. */
void resume_clean(const char *folder);

#endif
