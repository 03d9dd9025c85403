/* Settings that the caller left open, chosen from the data and the machine. What is chosen differently from open_clip's
 * defaults (RN50, 64 pairs, 32 epochs, a warm-up of 10,000 steps) gets a line in r->notes that says why. */
#ifndef TRAIN_AUTO_OPTIONS_H
#define TRAIN_AUTO_OPTIONS_H

#include "train/run.h"

/* Where a run is resumed, what is open comes from its params.txt, if there is one. r->from: the checkpoint. */
cloob_status auto_options_resume(cloob_ctx *ctx, run *r);

/* The model, from r->given, or from the number and size of the images and the device. Call after the data is open. */
cloob_status auto_options_model(cloob_ctx *ctx, run *r);

/* Batch, epochs, warm-up, learning rate, temperature and the onset of retrieval. Call when the model is known. */
void auto_options_rest(cloob_ctx *ctx, run *r);

/* A batch that was left open and does not fit into memory becomes the largest that does; what depends on it is chosen
 * anew. One rank alone: several would have to agree. */
cloob_status auto_options_fit(cloob_ctx *ctx, run *r, const memory_case *c);

#endif
