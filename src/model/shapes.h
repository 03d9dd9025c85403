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

/* ---- groups -------------------------------------------------------------------------------------- */

/* The layers of a tower in groups, from the input to the embedding: locking and layer-wise rate decay count these.
 *
 * As in open_clip: a transformer's embeddings are group 0 (with ln_pre); each block is a group, the last one with the
 * layer norm behind it; the projection is the last, where there is one. SigLIP's pooling is in the group of its
 * projection. A ResNet's are the stem, its four stages and the attention pool. */

/* The parameter belongs to the image tower. */
bool model_is_image(const char *name);

/* The group of a parameter by its canonical name, or a longer name that begins with one; *count: groups of its
 * tower. */
int model_group(const model_config *c, const char *name, int *count);

#endif
