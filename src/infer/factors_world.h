/* The factors of a world on disk, measured in a model's embeddings; meaning and types in cloob/factors.h. */
#ifndef INFER_FACTORS_WORLD_H
#define INFER_FACTORS_WORLD_H

#include "cloob/factors.h"
#include "data/text/tokenizer.h"
#include "model/encoder.h"

cloob_status factors_world(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const char *world, double lambda,
                           cloob_factors *out);

#endif
