/* AdamW with decoupled weight decay over flat blocks of parameters.
 *
 *     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *     p = p (1 - lr wd) - lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
 *
 * Gains and biases do not decay: a table of ranges says which elements do. Where a compute copy exists it is written in
 * the same pass. */
#ifndef OPTIM_ADAMW_H
#define OPTIM_ADAMW_H

#include "tensor/device.h"

typedef struct adamw_range {
    int64_t offset, count; /* elements of the flat blocks */
    bool decay;
    bool frozen; /* left as it is (a locked tower) */
} adamw_range;

typedef struct adamw_settings {
    double lr, beta1, beta2, eps, wd;
    double grad_scale; /* gradients are multiplied by it first: clipping, averaging */
    int64_t step;      /* counts from 1 */
} adamw_settings;

/* Blocks in device memory, all with the same offsets. */
typedef struct adamw_blocks {
    float *param, *m, *v;
    const float *grad;
    uint16_t *shadow; /* bf16 copy of param, or NULL */
    const adamw_range *range; /* host memory; on a GPU, range_device holds a copy made once */
    const void *range_device;
    int ranges;
} adamw_blocks;

/* One update. Overwrites param, m, v and shadow. On a GPU it is queued on the stream (NULL: the device's). */
cloob_status adamw_step(cloob_ctx *ctx, device *dev, void *stream, const adamw_blocks *b, const adamw_settings *s);

/* Sum of squares of n values in a fixed order; +inf or NaN if any value is. Waits for the result. */
cloob_status optim_square_sum(cloob_ctx *ctx, device *dev, void *stream, const float *x, int64_t n, double *sum);

/* GPU versions, chosen by the two above. */
cloob_status adamw_step_cuda(cloob_ctx *ctx, device *dev, void *stream, const adamw_blocks *b, const adamw_settings *s);
cloob_status optim_square_sum_cuda(cloob_ctx *ctx, device *dev, void *stream, const float *x, int64_t n, double *sum);

#endif
