/* A 3 x 3 convolution, or its gradient with respect to its inputs, by Winograd's algorithm
 * (tensor/cpu/winograd/tile.h). Tiles are independent, so an image has the same bytes in any batch. */
#ifndef NN_CPU_CONV_WINOGRAD_H
#define NN_CPU_CONV_WINOGRAD_H

#include "nn/op.h"
#include "tensor/cpu/winograd/tile.h"

/* The tiles for images x to y: 4 x 4 unless they are few. Their weights are four times those of the convolution, and
 * reading them is what takes the time then; of 2 x 2, with weights 16 / 9 times as large, there are more. NULL: too few
 * even of those, channels that are no multiple of 16, or a machine without AVX2. */
const winograd_tile *conv_winograd_tile(const op_env *env, const tensor *x, const tensor *y);

typedef struct conv_winograd conv_winograd;

/* For a convolution of stride 1 and padding 1 without residual, x, w, [bias] -> y, or with `gradient` dy, w -> dx. *out
 * is NULL where there is no tile for it; else a->scratch_bytes is set. Decided by shapes alone, with env->invariant by
 * those of one image. */
cloob_status conv_winograd_create(const op_env *env, op_args *a, bool gradient, conv_winograd **out);
void conv_winograd_destroy(conv_winograd *c);
/* Weights are transformed in every run, or by the first one into memory of the handle when they are frozen. */
cloob_status conv_winograd_run(const op_env *env, const op_args *a, conv_winograd *c);

/* The gradient of weights, dy, x -> dw, for the same convolutions (conv_winograd_dw.c). Prepare sets a->scratch_bytes.
 * Both return false where it does not help. Sums over tiles are taken in one order, whatever the number of threads. */
bool conv_winograd_dw_prepare(const op_env *env, op_args *a);
bool conv_winograd_dw_run(const op_env *env, const op_args *a);

#endif
