/* Patch dropout (FLIP): a ViT in training sees some patches of each image alone.
 *
 * Which ones is a function of the seed, the step and the row of the whole batch over all ranks: the same for any number
 * of threads, ranks or micro-batches, and after a resume. Evaluation sees all patches. */
#ifndef TRAIN_PATCH_DROPOUT_H
#define TRAIN_PATCH_DROPOUT_H

#include "model/config.h"

/* Tokens of an image that stay: the kept patches, and the class token where there is one; 0: no dropout. */
int64_t patch_dropout_tokens(const model_config *c);

/* kept (rows, patch_dropout_tokens): which tokens stay, rising, of rows first_row, first_row + 1, ... of a step. */
void patch_dropout_draw(cloob_ctx *ctx, const model_config *c, uint64_t seed, int64_t step, int64_t first_row,
                        int64_t rows, int32_t *kept);

#endif
