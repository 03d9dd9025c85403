/* AdamW with decoupled weight decay over flat blocks of parameters.
 *
 *     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *     p = p (1 - lr wd) - lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
 *     e = e + (1 - d) (p - e)                                    the average of the weights, if there is one
 *
 * Gains and biases do not decay, and layers may have their own rates, by a table of ranges. A compute copy and
 * the average are written in the same pass. */
#ifndef OPTIM_ADAMW_H
#define OPTIM_ADAMW_H

#include "tensor/device.h"

typedef struct adamw_range {
    int64_t offset, count; /* elements of the flat blocks */
    bool decay;
    float rate; /* factor of the learning rate */
} adamw_range;

typedef struct adamw_settings {
    double lr, beta1, beta2, eps, wd;
    double grad_scale; /* gradients are multiplied by it first: clipping, averaging */
    int64_t step;      /* counts from 1 */
    double ema_decay;  /* d; the first step takes the weights as they are */
} adamw_settings;

/* Blocks in device memory, all with the same offsets. */
typedef struct adamw_blocks {
    float *param, *m, *v;
    const float *grad;
    uint16_t *shadow;         /* bf16 copy of param, or NULL */
    float *ema;               /* average of param, or NULL */
    const adamw_range *range; /* host memory; on a GPU, range_device holds a copy made once */
    const void *range_device;
    int ranges;
} adamw_blocks;

/* One update. Overwrites param, m, v, shadow and ema. On a GPU it is queued on the stream (NULL: the device's). */
cloob_status adamw_step(cloob_ctx *ctx, device *dev, void *stream, const adamw_blocks *b, const adamw_settings *s);

/* Sum of squares of n values in a fixed order; +inf or NaN if any value is. Waits for the result. */
cloob_status optim_square_sum(cloob_ctx *ctx, device *dev, void *stream, const float *x, int64_t n, double *sum);

/* The settings for kernels: everything that depends on the step's number, computed in double. */
typedef struct adamw_update {
    float decay, b1, b2, step_size, correction, eps, scale, ema; /* ema: 1 - d */
    float shrink;                                                /* lr wd: decay is 1 - shrink */
} adamw_update;
adamw_update adamw_update_of(const adamw_settings *s);

/* The same for a range: step_size and decay of its own rate. Shared by the host and the GPU. */
static inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        adamw_update
        adamw_update_in(adamw_update u, adamw_range r)
{
    if (r.rate != 1.0f) u.step_size *= r.rate, u.decay = 1.0f - u.shrink * r.rate;
    if (!r.decay) u.decay = 1.0f;
    return u;
}

/* An update on a GPU without the host, so that it can be captured: the norm of the gradient, clipping, skipping a bad
 * update, AdamW. `live` is in device memory; the host fills u and clip before the step and reads the rest after it. */
typedef struct adamw_live {
    adamw_update u;  /* scale is multiplied by that of clipping */
    double clip;     /* global norm of the scaled gradient; 0: none */
    double square;   /* result: sum of squares of the n gradients, before scaling */
    int64_t skipped; /* result: it was not finite, and nothing was changed */
} adamw_live;
cloob_status adamw_step_live(cloob_ctx *ctx, device *dev, void *stream, const adamw_blocks *b, int64_t n,
                             adamw_live *live);

/* GPU versions, chosen by the two above. */
cloob_status adamw_step_cuda(cloob_ctx *ctx, device *dev, void *stream, const adamw_blocks *b, const adamw_settings *s);
cloob_status optim_square_sum_cuda(cloob_ctx *ctx, device *dev, void *stream, const float *x, int64_t n, double *sum);

#endif
