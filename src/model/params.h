/* A model's parameters on a device: master copy in F32, gradients in F32, and a copy in compute precision.
 *
 * Each of these is one block of memory, divided by the table of model/shapes.c: first the trained parameters in table
 * order, then frozen ones, then running statistics. Every parameter starts at a multiple of 64 elements and has the
 * same offset in all blocks, so an optimizer processes them as flat arrays. Gradients and the optimizer's state cover
 * only trained parameters. Convolution weights are (O, kh, kw, C) in memory and (O, C, kh, kw) in files. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "core/arena.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/weights.h"
#include "tensor/device.h"

/* Which parameters are trained; zeroed: all. */
typedef struct params_training {
    bool lock_image, lock_text;            /* do not train the tower, */
    int64_t unlocked_image, unlocked_text; /* except this number of groups at its end (model_group) */
    int64_t lora;      /* rank of LoRA adapters; if above 0, only adapters are trained; 0: no adapters */
    double lora_scale; /* factor of the adapters' product */
} params_training;

typedef struct param {
    const char *name;
    tensor file;    /* shape in files */
    int64_t offset; /* index of the first element in the blocks */
    int64_t count;
    bool buffer;    /* running statistics, which have no gradient */
    bool frozen;    /* not trained: no gradient, no optimizer state */
    int adapter;    /* index of the row lora_A, which lora_B follows; -1: none */
    bool decay;     /* weight decay applies (not to gains and biases) */
    bool matrix;    /* operand of a GEMM or convolution: has a copy in compute precision */
    bool gemm_bias; /* bias of a GEMM: also has a copy in compute precision, which GPU libraries require */
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
    float *master, *grad;                           /* device memory; grad is NULL for inference */
    uint16_t *shadow;                               /* bf16 copies at the same offsets; NULL in fp32 */
    tensor *master_view, *grad_view, *compute_view; /* per row, with shapes in memory order */
} params;

typedef enum params_use {
    PARAMS_TRAIN,
    PARAMS_INFER,
    PARAMS_TABLE /* names, shapes and types without memory, for planning */
} params_use;

cloob_status params_create(cloob_ctx *ctx, const model_config *c, device *dev, cloob_dtype compute, params_use use,
                           params **out);
/* As params_create, training the part `t` of the parameters; NULL: all. */
cloob_status params_create_training(cloob_ctx *ctx, const model_config *c, device *dev, cloob_dtype compute,
                                    params_use use, const params_training *t, params **out);
void params_destroy(params *p);

int params_find(const params *p, const char *name); /* -1 if absent */

/* Whether t excludes the parameter of this name from training. */
bool params_locks(const params_training *t, const model_config *c, const char *name);
/* Whether any parameter of the tower is trained. */
bool params_trains(const params *p, bool text);

/* Initialises all parameters as published for CLIP; the values depend only on the seed. */
cloob_status params_init(cloob_ctx *ctx, params *p, uint64_t seed);
/* Initialises the adapters of a model whose weights were loaded; does nothing without adapters. */
cloob_status params_init_adapters(cloob_ctx *ctx, params *p, uint64_t seed);

/* Copies weights, with canonical names and file shapes, into the parameters. The weights must have been checked against
 * the same configuration. Adapters are not changed. */
cloob_status params_load(cloob_ctx *ctx, params *p, const weights *w);
/* For inference on the host: binds the parameters of one tower. A row is a view of w's memory if layout and type are
 * the same (all but larger convolutions and weights stored in another precision), else a copy. In bf16, matrices have
 * no F32 copy: their master_view is NULL, so params_get and params_store must not be called. w must outlive p. */
cloob_status params_bind(cloob_ctx *ctx, params *p, const weights *w, bool text);
/* Adds F32 copies of all parameters and buffers, in host memory, file order and file shape, to w (memory in w's arena).
 * Adapters are merged into the weights they adapt. */
cloob_status params_store(cloob_ctx *ctx, const params *p, weights *w);

/* Copies the value or the gradient of one parameter to host memory: F32, in file order. */
cloob_status params_get(cloob_ctx *ctx, const params *p, int row, bool gradient, float *out);
cloob_status params_set(cloob_ctx *ctx, params *p, int row, const float *from);

/* Updates the compute copies from the master copy. Call it after loading; the optimizer does it itself. */
cloob_status params_refresh(cloob_ctx *ctx, params *p);

/* Low-rank adapters (LoRA): W x becomes W x + scale B (A x); W is not changed, A (r, in) and B (out, r) are trained.
 *
 * Every matrix of a transformer's blocks that is not locked has a pair: attn.in_proj (one pair for queries, keys and
 * values), attn.out_proj, mlp.c_fc, mlp.c_proj. A starts as normal numbers of variance 1 / in and B as 0, so training
 * starts from the given model. Adapters are rows of the parameter table (model/params.h) named NAME.lora_A and
 * NAME.lora_B; files hold W + scale B A under W's own name. */

/* Name of the row with `scale` repeated r times, a vector; it exists if the scale is not 1. */
#define LORA_SCALE "lora.scale"

typedef enum lora_part { LORA_NONE, LORA_A, LORA_B, LORA_SCALES } lora_part;
lora_part lora_part_of(const char *name);

/* Whether a row of model/shapes.c gets adapters under `t`. */
bool lora_adapts(const params_training *t, const model_config *c, const st_entry *row);

/* Appends the rows of the adapters that `t` asks for to *rows, in the arena. Fails if there is no weight to adapt, or
 * if the rank is larger than a matrix allows. */
cloob_status lora_append(cloob_ctx *ctx, arena *a, const model_config *c, const params_training *t, st_entry **rows,
                         int64_t *count);

/* Adds scale B A to the value of `row` (host memory, file shape); does nothing for a row without adapters. Sums in
 * double. */
cloob_status lora_merge(cloob_ctx *ctx, const params *p, int row, float *value);

/* Every parameter and buffer of a model with its name and shape, in a fixed order.
 *
 * Names are those of OpenAI's CLIP state dict, called canonical names. The image tower is first, then the text tower.
 * Tensors that a training run may add (logit_scale, a batch norm's count of batches) are not included. */

/* Lists the rows: dtype F32, no data. Rows and names are allocated in the arena. */
cloob_status model_shapes(cloob_ctx *ctx, arena *a, const model_config *c, st_entry **rows, int64_t *count);

/* ---- groups -------------------------------------------------------------------------------------- */

/* Groups of a tower's layers, from the input to the embedding, for locking and layer-wise learning rate decay.
 *
 * As in open_clip: a transformer's embeddings (with ln_pre) are group 0; each block is a group, the last one together
 * with the final layer norm; the projection, if there is one, is the last group, together with SigLIP's pooling. The
 * groups of a ResNet or a ConvNeXt are the stem, the four stages, and the attention pool or head. */

/* Whether the parameter belongs to the image tower. */
bool model_is_image(const char *name);

/* The group of a parameter, by its canonical name or a name that starts with it; *count: number of groups of its
 * tower. */
int model_group(const model_config *c, const char *name, int *count);

#endif
