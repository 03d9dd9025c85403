/* Convolutions by cuDNN's graph interface, the engine chosen by timing (tune.h). Deterministic engines only;
 * F32 never by tf32, Winograd or FFT. */
#ifndef TENSOR_CUDA_DNN_H
#define TENSOR_CUDA_DNN_H

#include "tensor/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dnn_kind { DNN_FORWARD, DNN_DX, DNN_DW } dnn_kind;

/* x (N,H,W,C), w (O,K,K,C), y (N,Ho,Wo,O), all dense in that order. */
typedef struct dnn_shape {
    dnn_kind kind;
    int64_t N, H, W, C, O, K, Ho, Wo, stride, pad;
    cloob_dtype dtype;   /* of x, y and w */
    cloob_dtype w_dtype; /* of w: DNN_DW can write F32 from BF16 */
} dnn_shape;

typedef struct dnn_plan dnn_plan;

/* *out is NULL with CLOOB_OK when no engine takes the shape. A shape that has a plan already shares it. Of a shape
 * timed in an earlier run only the time is known at first; the plan itself is made by dnn_plan_ready. */
cloob_status dnn_plan_create(cloob_ctx *ctx, device *d, const dnn_shape *shape, dnn_plan **out);
void dnn_plan_destroy(dnn_plan *p); /* NULL is fine; before its device is closed */

float dnn_plan_ms(const dnn_plan *p);

/* Before a plan's workspace is asked for and before it runs. False: cuDNN no longer has an engine for it. */
bool dnn_plan_ready(cloob_ctx *ctx, device *d, dnn_plan *p);
size_t dnn_plan_workspace(const dnn_plan *p);

/* Overwrites y, x or w, by the kind. */
cloob_status dnn_run(cloob_ctx *ctx, device *d, const dnn_plan *p, void *stream, void *x, void *w, void *y,
                     void *workspace);

#ifdef __cplusplus
}
#endif
#endif
