/* The objective of embeddings in files. */
#ifndef TRAIN_OBJECTIVE_FILE_H
#define TRAIN_OBJECTIVE_FILE_H

#include "cloob/objective.h"

/* The loss of a safetensors file with x, y (or image, text, as cloob embed names them) and perhaps U, V
 * (F32, F16, BF16 or F64). gradients: a file to write dx, dy (and dU, dV) to, or NULL. */
cloob_status objective_file(cloob_ctx *ctx, const cloob_objective_options *o, const char *input, const char *gradients,
                            cloob_objective_result *r);

#endif
