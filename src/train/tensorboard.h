/* TensorBoard event files: records of length, masked CRC-32C and a small protocol buffer with one number each.
 *
 * The three messages that carry a number (Event, Summary, Summary.Value) have nine fields between them, so they are
 * written here directly; a generated encoder would be longer than this file. */
#ifndef TRAIN_TENSORBOARD_H
#define TRAIN_TENSORBOARD_H

#include "core/ctx.h"

typedef struct tensorboard tensorboard;

/* Starts a new event file in the folder. */
cloob_status tensorboard_open(cloob_ctx *ctx, const char *dir, tensorboard **out);
void tensorboard_close(tensorboard *t); /* NULL is fine */
void tensorboard_scalar(tensorboard *t, const char *tag, int64_t step, double value);

#endif
