/* The layers of a tower in groups, from the input to the embedding: what can be locked from the front, and what
 * layer-wise rate decay counts.
 *
 * As open_clip has them: a transformer's embeddings are group 0 (with ln_pre); each block is a group, the last one with
 * the layer norm behind it; the projection is the last, where there is one. SigLIP's pooling goes with its projection.
 * A ResNet's are the stem, its four stages and the attention pool. */
#ifndef MODEL_GROUPS_H
#define MODEL_GROUPS_H

#include "model/config.h"

/* The parameter belongs to the image tower. */
bool model_is_image(const char *name);

/* The group of a parameter by its canonical name, or a longer name that begins with one; *count: groups of its
 * tower. */
int model_group(const model_config *c, const char *name, int *count);

#endif
