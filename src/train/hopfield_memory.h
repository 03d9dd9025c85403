/* What the Hopfield networks store during training (the option `memory`).
 *
 *     batch      the batch itself: images for U, texts for V, with gradients through them
 *     queue:N    the last N pairs of earlier steps, of all ranks, without gradients; while there are none, the batch
 *     file:F     rows of a safetensors file, "U" or "image" for U, "V" or "text" for V, without gradients; a set
 *                that the file lacks is the batch
 *
 * A queue appends a step's embeddings in rank order after the update, so every rank has the same rows; a skipped step
 * does not change it. Checkpoints contain it unchanged. */
#ifndef TRAIN_HOPFIELD_MEMORY_H
#define TRAIN_HOPFIELD_MEMORY_H

#include "dist/comm.h"
#include "loss/loss.h"
#include "model/weights.h"
#include "tensor/device.h"

typedef struct hopfield_memory hopfield_memory;

/* Checks the form of the text; hopfield_memory_create checks the content of a file. */
cloob_status hopfield_memory_check(cloob_ctx *ctx, const char *text);

/* rows: pairs of a step on this rank, the same on every rank. For the batch *out is NULL, which every function below
 * accepts. dev and c (NULL: alone) outlive it. */
cloob_status hopfield_memory_create(cloob_ctx *ctx, const char *text, device *dev, comm *c, int64_t rows, int64_t dim,
                                    hopfield_memory **out);
void hopfield_memory_destroy(hopfield_memory *s);

/* Rows that U and V may have, for the plan; 0: the batch. */
int64_t hopfield_memory_max_rows(const hopfield_memory *s, bool text);
/* Sets in->u and in->v, and returns their current numbers of rows. */
void hopfield_memory_bind(const hopfield_memory *s, loss_inputs *in, int64_t *u, int64_t *v);

/* After an update: unit rows of this step on this rank, device memory. Collective. */
cloob_status hopfield_memory_push(cloob_ctx *ctx, hopfield_memory *s, const float *x, const float *y);

size_t hopfield_memory_bytes(const hopfield_memory *s); /* device memory */
/* Rows that U and V may have with this text (0: the batch) and hopfield_memory_bytes, without allocating. */
cloob_status hopfield_memory_measure(cloob_ctx *ctx, const char *text, int ranks, int64_t rows, int64_t dim,
                                     int64_t max_rows[2], size_t *bytes);

/* A queue to and from a checkpoint: "train.queue.image", "train.queue.text" and numbers in the metadata. A file without
 * one, or with one of another length, leaves the queue empty, which is logged. */
cloob_status hopfield_memory_save(cloob_ctx *ctx, const hopfield_memory *s, weights *w);
cloob_status hopfield_memory_load(cloob_ctx *ctx, hopfield_memory *s, const weights *w, const char *path);

#endif
