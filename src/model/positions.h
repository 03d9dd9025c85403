/* Positional embeddings of another grid: weights for images of another size. */
#ifndef MODEL_POSITIONS_H
#define MODEL_POSITIONS_H

#include "model/weights.h"

/* Resizes the image tower's positional embeddings (grid x grid rows, after that of a class token) of w to the grid of
 * `image_size` and notes that size in w->config. Bicubic with antialiasing, as open_clip resizes them; that of the
 * class token stays. Refuses sizes that the model cannot have. */
cloob_status weights_resize_images(cloob_ctx *ctx, weights *w, int64_t image_size);

#endif
