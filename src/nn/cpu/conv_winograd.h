/* A 3 x 3 convolution, or its gradient with respect to its inputs, by Winograd's algorithm (tensor/cpu/winograd_tile.h), where oneDNN has none:
 * images in blocks of 8 channels. Every tile is computed by itself, so an image has the same bytes in any batch. */
#ifndef NN_CPU_CONV_WINOGRAD_H
#define NN_CPU_CONV_WINOGRAD_H

#include "nn/op.h"

typedef struct conv_winograd conv_winograd;

/* For a convolution of stride 1 and padding 1 without residual, x, w, [bias] -> y, or with `gradient` dy, w -> dx. *out
 * is NULL where the algorithm does not help (a few
 * tiles and much larger weights) or does not fit; else a->scratch_bytes is set. Decided by shapes alone, with
 * env->invariant by those of one image. */
cloob_status conv_winograd_create(const op_env *env, op_args *a, bool gradient, conv_winograd **out);
void conv_winograd_destroy(conv_winograd *c);
/* Weights are transformed in every run, or by the first one into memory of the handle when they are frozen. */
cloob_status conv_winograd_run(const op_env *env, const op_args *a, conv_winograd *c);

#endif
