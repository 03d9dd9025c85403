/* A model's parameters on a device: master copy in F32, gradients in F32, and a copy in compute precision.
 *
 * Each is one block carved by the table of model/shapes.h: parameters that are trained first, in table order, then
 * frozen ones, then running statistics, every one starting at a multiple of 64 elements. The same offsets hold in all
 * blocks, so an optimizer walks them as flat arrays; gradients and the optimizer's state end with what is trained.
 * Convolution weights are kept (O, kh, kw, C) here and (O, C, kh, kw) in files. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/config.h"
#include "model/weights.h"
#include "tensor/device.h"

/* What of a model is trained; zeroed: all of it. */
typedef struct params_training {
    bool lock_image, lock_text;            /* leave the tower as it is, */
    int64_t unlocked_image, unlocked_text; /* but for so many groups at its end (model/shapes.h) */
    int64_t lora;                          /* rank of adapters, which alone are trained (model/lora.h); 0: none */
    double lora_scale;                     /* what their product is multiplied by */
} params_training;

typedef struct param {
    const char *name;
    tensor file;    /* shape in files */
    int64_t offset; /* first element in the blocks */
    int64_t count;
    bool buffer;    /* running statistics: no gradient */
    bool frozen;    /* left as it is: neither gradient nor moments */
    int adapter;    /* the row of its lora_A, with lora_B behind it; -1: none */
    bool decay;     /* weight decay applies: neither gain nor bias */
    bool matrix;    /* multiplied by matrix units: has a copy in compute precision */
    bool gemm_bias; /* added by a GEMM: a GPU's library wants it in compute precision, too */
} param;

typedef struct params {
    model_config config;
    params_training training;
    device *dev;
    cloob_dtype compute;
    arena names;
    param *row;
    int count;
    int64_t trainable; /* elements before the first row that is not trained */
    int64_t learned;   /* elements before the first buffer */
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
/* The same for training a part of it, `t`; NULL: all. */
cloob_status params_create_training(cloob_ctx *ctx, const model_config *c, device *dev, cloob_dtype compute,
                                    params_use use, const params_training *t, params **out);
void params_destroy(params *p);

int params_find(const params *p, const char *name); /* -1 when absent */

/* t locks the parameter of this name. */
bool params_locks(const params_training *t, const model_config *c, const char *name);
/* Something of the tower is trained. */
bool params_trains(const params *p, bool text);

/* CLIP's published initialisation, a pure function of the seed. */
cloob_status params_init(cloob_ctx *ctx, params *p, uint64_t seed);
/* Of adapters alone, for a model whose weights were loaded; nothing where there are none. */
cloob_status params_init_adapters(cloob_ctx *ctx, params *p, uint64_t seed);

/* The bytes of params_init, drawn into host memory by a thread of its own while the caller prepares a device. create
 * starts the thread, which cannot fail; fill waits for it and fills p, made for the same configuration and training. */
typedef struct params_draft params_draft;
cloob_status params_draft_create(cloob_ctx *ctx, const model_config *c, const params_training *t, uint64_t seed,
                                 params_draft **out);
cloob_status params_draft_fill(cloob_ctx *ctx, params_draft *d, params *p);
void params_draft_destroy(params_draft *d); /* waits for the thread; NULL is fine */

/* From canonical names and file shapes; the weights were checked against the same configuration. Adapters stay as they
 * are. */
cloob_status params_load(cloob_ctx *ctx, params *p, const weights *w);
/* For inference on the host: the rows of one tower alone, as views of w's own memory where that has the engine's layout
 * and type (all but larger convolutions and what is stored in another precision), copies elsewhere. In bf16 a matrix
 * has no F32 copy, its master_view is NULL: params_get and params_store are not for it. w outlives p. */
cloob_status params_bind(cloob_ctx *ctx, params *p, const weights *w, bool text);
/* Adds copies in host memory, F32, in file order and shape, to w (owned by w's arena). Buffers included; adapters are
 * merged into what they adapt. */
cloob_status params_store(cloob_ctx *ctx, const params *p, weights *w);

/* One parameter in file shape, F32, in host memory: its value or its gradient. */
cloob_status params_get(cloob_ctx *ctx, const params *p, int row, bool gradient, float *out);
cloob_status params_set(cloob_ctx *ctx, params *p, int row, const float *from);

/* Makes the compute copies follow the master copy. Called after loading; the optimizer does it itself. */
cloob_status params_refresh(cloob_ctx *ctx, params *p);

#endif
