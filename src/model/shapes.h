/* Every parameter and buffer of a model with its name and shape, in a fixed order.
 *
 * Names are those of OpenAI's CLIP state dict: the canonical ones. Image tower first, then text. What a
 * training run may add (logit_scale, a batch norm's count of batches) is not part of it. */
#ifndef MODEL_SHAPES_H
#define MODEL_SHAPES_H

#include "core/arena.h"
#include "io/safetensors.h"
#include "model/config.h"

/* Rows have dtype F32 and no data; rows and names live in the arena. */
cloob_status model_shapes(cloob_ctx *ctx, arena *a, const model_config *c, st_entry **rows, int64_t *count);

#endif
