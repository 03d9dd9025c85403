/* oneDNN, loaded on first use; for one context an engine and a stream, made on first use and destroyed with it. Where
 * the library is missing, convolutions are GEMMs (nn/cpu/conv_gemm.c). */
#ifndef TENSOR_CPU_ONEDNN_H
#define TENSOR_CPU_ONEDNN_H

#include <dnnl.h>

#include "tensor/tensor.h"

/* clang-format off */
#define DNNL_FUNCTIONS(X) \
    X(dilated_convolution_backward_data_desc_init) X(dilated_convolution_backward_weights_desc_init) \
    X(dilated_convolution_forward_desc_init) X(engine_create) X(engine_destroy) X(memory_create) \
    X(memory_desc_equal) X(memory_desc_get_size) X(memory_desc_init_by_tag) X(memory_destroy) \
    X(memory_get_data_handle) X(memory_get_memory_desc) X(memory_set_data_handle) X(post_ops_append_eltwise) \
    X(post_ops_append_sum) X(post_ops_create) X(post_ops_destroy) X(primitive_attr_create) X(primitive_attr_destroy) \
    X(primitive_attr_set_post_ops) X(primitive_attr_set_scratchpad_mode) X(primitive_create) \
    X(primitive_desc_create) X(primitive_desc_destroy) X(primitive_desc_query) X(primitive_desc_query_md) \
    X(primitive_destroy) X(primitive_execute) X(reorder_primitive_desc_create) X(set_max_cpu_isa) X(stream_create) \
    X(stream_destroy) X(stream_wait) X(version)
/* clang-format on */
#define DNNL_MEMBER(name) __typeof__(&dnnl_##name) name;
typedef struct dnnl_functions {
    DNNL_FUNCTIONS(DNNL_MEMBER)
} dnnl_functions;
#undef DNNL_MEMBER

extern dnnl_functions dnnl;

/* Whether the library could be loaded; looks for it in the first call. */
bool onednn_is_there(void);

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
