/* A model's parameters on a device: master copy in F32, gradients in F32, and a copy in compute precision.
 *
 * Each is one block carved by the table of model/shapes.c: parameters that are trained first, in table order, then
 * frozen ones, then running statistics, every one starting at a multiple of 64 elements. The same offsets hold in all
 * blocks, so an optimizer walks them as flat arrays; gradients and the optimizer's state end with what is trained.
 * Convolution weights are kept (O, kh, kw, C) here and (O, C, kh, kw) in files. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "core/arena.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/weights.h"
#include "tensor/device.h"

/* What of a model is trained; zeroed: all of it. */
typedef struct params_training {
    bool lock_image, lock_text;            /* leave the tower as it is, */
    int64_t unlocked_image, unlocked_text; /* but for so many groups at its end (model/shapes.c) */
    int64_t lora;                          /* rank of adapters, which alone are trained (model/lora.c); 0: none */
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

/* Low-rank adapters (LoRA): W x becomes W x + scale B (A x), with W as it was given, A (r, in) and B (out, r) trained.
 *
 * Every matrix of a transformer's blocks that is not locked has a pair: attn.in_proj (one pair for queries, keys and
 * values), attn.out_proj, mlp.c_fc, mlp.c_proj. A begins as normal numbers of variance 1 / in, B as 0, so that the
 * model begins as it was given. Adapters are rows of the parameter table (model/params.h) named NAME.lora_A and
 * NAME.lora_B; files hold W + scale B A under W's own name. */

/* The name of the row that holds the scale r times, as a vector; it is there where the scale is not 1. */
#define LORA_SCALE "lora.scale"

typedef enum lora_part { LORA_NONE, LORA_A, LORA_B, LORA_SCALES } lora_part;
lora_part lora_part_of(const char *name);

/* A row of model/shapes.c that gets a pair of adapters when `t` asks for them. */
bool lora_adapts(const params_training *t, const model_config *c, const st_entry *row);

/* rows with the adapters behind them, in the arena; without adapters they stay as they are. Refused when t asks for
 * adapters and there is nothing to adapt, or the rank is above a matrix's own. */
cloob_status lora_append(cloob_ctx *ctx, arena *a, const model_config *c, const params_training *t, st_entry **rows,
                         int64_t *count);

/* Adds scale B A to `row`'s value in host memory, file shape; does nothing to a row without adapters. Sums in
 * double. */
cloob_status lora_merge(cloob_ctx *ctx, const params *p, int row, float *value);

/* Every parameter and buffer of a model with its name and shape, in a fixed order.
 *
 * Names are those of OpenAI's CLIP state dict: the canonical ones. Image tower first, then text. What a
 * training run may add (logit_scale, a batch norm's count of batches) is not part of it. */

/* Rows have dtype F32 and no data; rows and names live in the arena. */
cloob_status model_shapes(cloob_ctx *ctx, arena *a, const model_config *c, st_entry **rows, int64_t *count);

/* ---- groups -------------------------------------------------------------------------------------- */

/* The layers of a tower in groups, from the input to the embedding: locking and layer-wise rate decay count these.
 *
 * As in open_clip: a transformer's embeddings are group 0 (with ln_pre); each block is a group, the last one with the
 * layer norm behind it; the projection is the last, where there is one. SigLIP's pooling is in the group of its
 * projection. A ResNet's are the stem, its four stages and the attention pool; a ConvNeXt's alike. */

/* The parameter belongs to the image tower. */
bool model_is_image(const char *name);

/* The group of a parameter by its canonical name, or a longer name that begins with one; *count: groups of its
 * tower. */
int model_group(const model_config *c, const char *name, int *count);

#endif
