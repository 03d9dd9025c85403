/* A model's parameters on a device: master copy in F32, gradients in F32, and a copy in compute precision.
 *
 * Each is one block carved by the table of model/shapes.h: trainable parameters first, in table order, then running
 * statistics, every one starting at a multiple of 64 elements. The same offsets hold in all blocks, so an optimizer
 * walks them as flat arrays. Convolution weights are kept (O, kh, kw, C) here and (O, C, kh, kw) in files. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/config.h"
#include "model/weights.h"
#include "tensor/device.h"

typedef struct param {
    const char *name;
    tensor file;    /* shape in files */
    int64_t offset; /* first element in the blocks */
    int64_t count;
    bool buffer; /* running statistics: no gradient */
    bool decay;  /* weight decay applies: neither gain nor bias */
    bool matrix; /* multiplied by matrix units: has a copy in compute precision */
} param;

typedef struct params {
    model_config config;
    device *dev;
    cloob_dtype compute;
    arena names;
    param *row;
    int count;
    int64_t trainable; /* elements before the first buffer */
    int64_t total;
    float *master, *grad;                           /* device memory; grad NULL for inference */
    uint16_t *shadow;                               /* bf16 copies, same offsets; NULL in fp32 */
    tensor *master_view, *grad_view, *compute_view; /* by row, engine shapes */
} params;

typedef enum params_use {
    PARAMS_TRAIN,
    PARAMS_INFER,
    PARAMS_TABLE /* names, shapes and types; no memory, for planning */
} params_use;

cloob_status params_create(cloob_ctx *ctx, const model_config *c, device *dev, cloob_dtype compute, params_use use,
                           params **out);
void params_destroy(params *p);

int params_find(const params *p, const char *name); /* -1 when absent */

/* CLIP's published initialisation, a pure function of the seed. */
cloob_status params_init(cloob_ctx *ctx, params *p, uint64_t seed);

/* From canonical names and file shapes; the weights were checked against the same configuration. */
cloob_status params_load(cloob_ctx *ctx, params *p, const weights *w);
/* For inference: the rows of one tower alone, as views of w's own memory where that has the engine's layout and type
 * (F32 on the host, all but larger convolutions), copies elsewhere. w outlives p. */
cloob_status params_bind(cloob_ctx *ctx, params *p, const weights *w, bool text);
/* Adds copies in host memory, F32, in file order and shape, to w (owned by w's arena). Buffers included. */
cloob_status params_store(cloob_ctx *ctx, const params *p, weights *w);

/* One parameter in file shape, F32, in host memory: its value or its gradient. */
cloob_status params_get(cloob_ctx *ctx, const params *p, int row, bool gradient, float *out);
cloob_status params_set(cloob_ctx *ctx, params *p, int row, const float *from);

/* Makes the compute copies follow the master copy. Called after loading; the optimizer does it itself. */
cloob_status params_refresh(cloob_ctx *ctx, params *p);

#endif
