/* A model without weights: sizes, parameters, and the memory that a step would take. */
#ifndef TRAIN_OUTLINE_H
#define TRAIN_OUTLINE_H

#include "cloob/types.h"

/* What a known model is, and what a training step or embedding of it would take. Nothing is allocated for it. */
typedef struct model_outline {
    char name[64];
    const char *family;                             /* "ResNet" or "ViT" */
    const char *image_activation, *text_activation; /* "quickgelu", "gelu" or "gelu_tanh" */
    int64_t embed, image_size, image_width, image_layers, image_heads, image_tokens, patch; /* patch 0: a ResNet */
    int64_t context, vocab, text_width, text_layers, text_heads;
    int64_t tensors, parameters, image_parameters, text_parameters;
    int64_t batch; /* of the numbers that follow, in bytes, on the CPU */
    int64_t step_bytes, step_params, step_optimizer, step_image, step_text, step_objective;
    int64_t embed_bytes; /* weights and activations of embedding such a batch */
    char *config;        /* JSON; free it with model_outline_release */
} model_outline;

/* model: a name or the path of a .json file; precision "fp32" (NULL), "bf16". */
cloob_status model_describe(cloob_ctx *ctx, const char *model, int64_t batch, const char *precision,
                            model_outline *out);
void model_outline_release(model_outline *o);

#endif
