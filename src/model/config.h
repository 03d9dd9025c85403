/* What a model is: sizes and choices, from a name, from JSON (open_clip's nested form, the authors' flat form,
 * Hugging Face's, ours), or from the shapes of a state dict (model/interchange.h).
 *
 *     model_config c;
 *     CLOOB_TRY(model_config_load(ctx, "RN50", &c));          or "ViT-B/32", or "my-model.json"
 *
 * Ours is open_clip's nested form plus the name, the image mean and standard deviation, and resize_mode where it
 * is not "shortest". A configuration that came from any function here has passed model_config_check. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "core/ctx.h"
#include "core/json.h"

typedef enum model_family { MODEL_RESNET, MODEL_VIT } model_family;
typedef enum model_act { ACT_QUICKGELU, ACT_GELU } model_act;
/* How an image that is not square becomes one; in the order of data/view/transform.h. */
typedef enum model_resize { MODEL_RESIZE_SHORTEST, MODEL_RESIZE_LONGEST, MODEL_RESIZE_SQUASH } model_resize;

typedef struct model_config {
    char name[64];
    int64_t embed; /* D: joint embedding */
    model_family family;
    int64_t image_size;
    int64_t layers[4];   /* ResNet: blocks per stage; ViT: layers[0] */
    int64_t width;       /* ResNet: stem width; ViT: token width */
    int64_t patch;       /* ViT */
    int64_t image_heads; /* ResNet: width * 32 / head; ViT: width / head */
    int64_t context;     /* tokens per text */
    int64_t vocab;
    int64_t text_width, text_heads, text_layers;
    model_act act;
    double image_mean[3], image_std[3];
    model_resize resize; /* of images to be embedded; shortest (and the centre) in CLIP */
} model_config;

/* RN50, RN101, RN50x4, RN50x16, ViT-B-32, ViT-B-16, tiny, tiny-rn, tiny-vit; spelling of "-", "/" and case is
 * forgiven, and open_clip's "-quickgelu" ending is accepted (these models all use QuickGELU). An unknown name
 * is an error that lists the known ones. `tiny` has a vocabulary that training replaces by its tokenizer's. */
cloob_status model_config_by_name(cloob_ctx *ctx, const char *name, model_config *c);
/* A name, or the path of a .json file. */
cloob_status model_config_load(cloob_ctx *ctx, const char *name_or_path, model_config *c);
/* Any of the four forms, told apart by their keys; open_clip_config.json's outer object is looked through.
 * Without a word on the activation: QuickGELU in the flat form and Hugging Face's, GELU in open_clip's, as
 * those programs have it. Keys that would change the architecture to one we do not have are refused. */
cloob_status model_config_from_json(cloob_ctx *ctx, const json *root, const char *source, model_config *c);
/* Ours: the nested form, one line. */
void model_config_to_json(const model_config *c, sbuf *out);
/* Refuses sizes that cannot work together, naming them. Called by the loaders above. */
cloob_status model_config_check(cloob_ctx *ctx, const model_config *c);
/* Open_clip's own form of a model directory's open_clip_config.json: model_cfg and preprocess_cfg. */
void model_config_to_open_clip(const model_config *c, sbuf *out);
/* Hugging Face's config.json; ViT only. */
void model_config_to_hf(const model_config *c, sbuf *out);
/* What is done to an image: as our metadata has it, and as Hugging Face's preprocessor_config.json. */
void model_config_to_preprocess(const model_config *c, sbuf *out);
void model_config_to_hf_preprocessor(const model_config *c, sbuf *out);
/* When every size that shapes can tell (all but heads) is that of a built-in model: takes its name and heads. */
bool model_config_match(model_config *c);
/* "shortest", "longest", "squash"; false: none of them, *out is left alone. */
bool model_resize_from_name(const char *name, model_resize *out);
const char *model_resize_name(model_resize r);
/* Name "", QuickGELU, CLIP's image mean and standard deviation; sizes 0. */
void model_config_init(model_config *c);
/* Width the image attention works on: 32 * width for a ResNet's pool, width for a ViT. */
int64_t model_config_image_attention_width(const model_config *c);

#endif
