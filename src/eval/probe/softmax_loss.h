/* Softmax cross entropy over a block of rows, on the context's threads, in float or double.
 *
 * z: (n, C) logits on entry, gradient p - onehot(y) on return. y: (n) in 0..C-1. uncertain: (n) 1 - sum p^2
 * of each row, or NULL. Return the sum of -ln p_y; the order of summation depends on n and the threads only.
 */
#ifndef EVAL_PROBE_SOFTMAX_LOSS_H
#define EVAL_PROBE_SOFTMAX_LOSS_H

#include "core/ctx.h"

double softmax_loss_f(cloob_ctx *ctx, float *z, float *uncertain, const int32_t *y, int64_t n, int64_t C);
double softmax_loss_d(cloob_ctx *ctx, double *z, float *uncertain, const int32_t *y, int64_t n, int64_t C);

#endif
