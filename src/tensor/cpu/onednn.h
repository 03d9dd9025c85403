/* oneDNN for one context: engine and stream, made on first use and destroyed with the context. */
#ifndef TENSOR_CPU_ONEDNN_H
#define TENSOR_CPU_ONEDNN_H

#include <dnnl.h>

#include "tensor/tensor.h"

typedef struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} onednn;

/* From here on the calling thread's primitives, made or executed, work on as many threads as the context has. */
cloob_status onednn_get(cloob_ctx *ctx, onednn **out);

/* A status with a message from a oneDNN status; `what` names the call. */
cloob_status onednn_status(cloob_ctx *ctx, dnnl_status_t s, const char *what);

/* The memory descriptor of a (N, H, W, C) tensor, plain or in blocks of 8 or 16 channels, as oneDNN counts
 * dimensions. */
dnnl_status_t onednn_image(const tensor *t, dnnl_memory_desc_t *md);
/* The same shape with the layout left to oneDNN. */
dnnl_status_t onednn_image_any(const tensor *t, dnnl_memory_desc_t *md);

#endif
