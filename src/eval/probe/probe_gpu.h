/* The probe's work on a GPU: loss and gradient, the averaged Hessian and its inverse, logits for scoring.
 * Products are F32, never rounded to tf32. Minimiser, labels and parameters stay on the host, where they are
 * in double.
 *
 *     probe_gpu *g;
 *     CLOOB_TRY(probe_gpu_create(ctx, dev, 0, &g));
 *     CLOOB_TRY(probe_gpu_load(g, part, parts, y, C));       features stay there where they fit
 *     CLOOB_TRY(probe_gpu_evaluate(g, &loss, gradient, w));
 *     probe_gpu_destroy(g);
 *
 * In a build without CUDA create returns CLOOB_ERR_UNSUPPORTED. */
#ifndef EVAL_PROBE_PROBE_GPU_H
#define EVAL_PROBE_PROBE_GPU_H

#include "eval/probe/probe.h"
#include "tensor/device.h"

/* limit: bytes it may take on the device, 0: three quarters of what is free; features that do not fit are
 * sent at every evaluation. The device outlives it. NULL is fine to destroy. */
cloob_status probe_gpu_create(cloob_ctx *ctx, device *d, size_t limit, probe_gpu **out);
void probe_gpu_destroy(probe_gpu *g);

/* Rows of all parts in a row, y (N): class positions 0..C-1; part and y are borrowed until the next load.
 * Nothing is uploaded when the features are those of the last load. Logs the memory it takes. */
cloob_status probe_gpu_load(probe_gpu *g, const probe_data *part, int parts, const int32_t *y, int64_t C);

/* At w (C, D+1), the last column the bias: the sum of cross entropies, and its gradient (C, D+1),
 * overwritten. */
cloob_status probe_gpu_evaluate(probe_gpu *g, double *loss, double *gradient, const double *w);

/* sum (D+1, D+1) = sum over every stride-th row of u x x', x with a 1 behind it, u = 1 - sum p^2 at the last
 * evaluation. *used: how many rows that were. */
cloob_status probe_gpu_hessian(probe_gpu *g, float *sum, int64_t stride, int64_t *used);
/* Keeps the inverse of M (D+1, D+1) on the device, for probe_gpu_precondition: out (C, D+1) = v M^-1. */
cloob_status probe_gpu_invert(probe_gpu *g, const double *M);
cloob_status probe_gpu_precondition(probe_gpu *g, double *out, const double *v);

device *probe_gpu_device(probe_gpu *g);

/* ---- scoring ------------------------------------------------------------------------------------- */

typedef struct score_gpu score_gpu;

/* A classifier w (C, D+1) on the device, for blocks of at most `block` rows. */
cloob_status score_gpu_create(cloob_ctx *ctx, device *d, score_gpu **out, const double *w, int64_t C, int64_t D,
                              int64_t block);
void score_gpu_destroy(score_gpu *s); /* NULL is fine */
/* z (n, C) = x w' + b for rows x (n, D), both on the host. */
cloob_status score_gpu_logits(score_gpu *s, float *z, const float *x, int64_t n);

#endif
