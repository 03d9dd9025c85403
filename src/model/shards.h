/* Weights in several files with an index: transformers' model.safetensors.index.json and
 * pytorch_model.bin.index.json. */
#ifndef MODEL_SHARDS_H
#define MODEL_SHARDS_H

#include "model/weights.h"

/* True for the name of an index. */
bool shards_looks_like(const char *path);

/* Maps every file that the index names, beside it, into w->shard. Every tensor must be in the file the index says,
 * once, and no file may hold others. On failure what was opened belongs to w all the same. */
cloob_status shards_open(cloob_ctx *ctx, const char *index, weights *w);

#endif
