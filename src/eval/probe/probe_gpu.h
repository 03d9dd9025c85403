/* The probe's value and gradient on a GPU. Products are F32, never rounded to tf32. Minimiser, preconditioner, labels and
 * parameters stay on the host, where they are in double.
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

/* At w (C, D+1), the last column the bias: the sum of cross entropies, and its gradient (C, D+1), overwritten. */
cloob_status probe_gpu_evaluate(probe_gpu *g, double *loss, double *gradient, const double *w);

/* out (N): 1 - sum p^2 of every row at the last evaluation. */
cloob_status probe_gpu_uncertain(probe_gpu *g, float *out);

#endif
