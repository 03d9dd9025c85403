/* A model's configuration: its sizes and architectural choices. It is read from a built-in name, from JSON (open_clip's
 * nested form, the flat form of the CLOOB authors, Hugging Face's form, or cloob's), or from the shapes of a state dict
 * (model/interchange.h).
 *
 *     model_config c;
 *     CLOOB_TRY(model_config_load(ctx, "RN50", &c));          or "ViT-B/32", or "my-model.json"
 *
 * cloob's is open_clip's nested form plus the name, the image mean and standard deviation, and resize_mode where it is
 * not "shortest". A configuration that came from any function here has passed model_config_check. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "core/ctx.h"
#include "core/json.h"
#include "io/image/image_view.h"

typedef enum model_family { MODEL_RESNET, MODEL_VIT, MODEL_CONVNEXT, MODEL_FASTVIT } model_family;
typedef enum model_act { ACT_QUICKGELU, ACT_GELU, ACT_GELU_TANH } model_act;
/* How a ViT's tokens are pooled: the class token, the mean of the patches, or SigLIP's attention pooling. */
typedef enum model_image_pool { IMAGE_POOL_CLASS, IMAGE_POOL_MEAN, IMAGE_POOL_MAP } model_image_pool;
/* Which token of a text is used: the first one with the largest id, the first one with the id `eos`, the last, or the
 * first token; or the mean of all tokens (BERT). */
typedef enum model_text_pool {
    TEXT_POOL_ARGMAX,
    TEXT_POOL_EOS,
    TEXT_POOL_LAST,
    TEXT_POOL_FIRST,
    TEXT_POOL_MEAN
} model_text_pool;
/* Position of the layer norms in a block: before attention and MLP; after each residual sum (BERT); or on the output of
 * attention and MLP before it is added (EVA-02 E). */
typedef enum model_norm { NORM_BEFORE, NORM_AFTER, NORM_BRANCH } model_norm;

/* Structure of a transformer's blocks. */
typedef struct model_blocks {
    int64_t inner; /* width of the MLP's hidden layer; 0: four times the block's width */
    model_act act;
    double eps;         /* epsilon of the layer norms */
    double layer_scale; /* initial value of the gains after attention and MLP; 0: no layer scale */
    model_norm norm;
    bool swiglu;      /* the MLP is gated: its first layer is 2 `inner` wide, the gated product `inner` */
    bool inner_norms; /* additional layer norms after attention and in the MLP (EVA-02) */
    bool no_key_bias; /* keys have no bias (EVA) */
    double rope_grid; /* rotary positions: side of the grid to which patch coordinates are scaled; 0: no rotary
                       * positions */
    double rope_offset;
    bool rope_swapped; /* rotary positions: columns before rows (PE-Core) */
} model_blocks;

/* A text tower like transformers' BERT, RoBERTa and XLM-RoBERTa: post-norm blocks, a layer norm after the embeddings,
 * token types (all texts have type 0), and no attention to padding. */
typedef struct model_bert {
    int64_t positions; /* rows of the position table; 0: the text tower is not a BERT */
    int64_t first;     /* row of the first token's position; for RoBERTa pad + 1 */
    int64_t types;     /* rows of the token type table */
    int64_t pad;       /* id of the padding after a text's end */
    bool pooler;       /* a dense layer with tanh is applied to the pooled token */
    char name[96];     /* the text model's name in open_clip's configurations; "" for Chinese-CLIP */
} model_bert;

typedef struct model_config {
    char name[64];
    int64_t embed; /* D, the width of the joint embedding */
    model_family family;
    int64_t image_size;
    int64_t layers[5];   /* ViT: layers[0]; others: blocks per stage (only FastViT may have five stages) */
    int64_t width;       /* ViT: token width; others: stem width */
    int64_t patch;       /* ViT, ConvNeXt: side of a patch in pixels */
    int64_t image_heads; /* ResNet: 32 width / head width; ViT: width / head width */
    int64_t context;     /* tokens per text */
    int64_t vocab;
    int64_t text_width, text_heads, text_layers;
    model_blocks image, text; /* `image` does not apply to ResNets; in FastViT its `inner` is the first stage's */
    /* SigLIP 2 NaFlex: side of the grid of positions, which are resampled for every image. Images have at most
     * view.patches patches, and image_size is the side of the record made by RESIZE_PATCHES. 0: all images are squares
     * of image_size. */
    int64_t position_side;
    bool no_class_token; /* ViT: no class token (SigLIP) */
    bool patch_bias;     /* ViT: the patch embedding has a bias */
    bool patch_stem;     /* ViT: two convolutions with GELU before the patch embedding (MobileCLIP-B) */
    bool no_ln_post;     /* ViT: no layer norm after the blocks */
    bool no_ln_pre;      /* ViT: no layer norm before the blocks */
    model_image_pool image_pool;
    bool norm_after_pool;     /* ViT: the last layer norm is applied to the pooled row instead of every token */
    int64_t pool_heads;       /* ViT with attention pooling: heads of the pooling; 0: as in the blocks */
    int64_t pool_inner;       /* ViT with attention pooling: hidden width of its MLP; 0: as in the blocks */
    bool no_image_projection; /* ViT: the pooled row is the embedding */
    bool image_projection_bias;
    int64_t image_projection_hidden; /* see text_projection_hidden */
    double patch_dropout;            /* ViT: fraction of the patches that training drops; no effect on embeddings */
    model_text_pool text_pool;
    int64_t eos; /* token id for TEXT_POOL_EOS */
    bool no_causal_mask;
    bool no_ln_final; /* text: no layer norm after the blocks */
    /* text: tokens after the end attend to all tokens equally, and other tokens attend to them (crowsonkb's CLOOB) */
    bool mask_queries;
    bool text_projection_bias, no_text_projection;
    int64_t text_projection_hidden; /* hidden width of a projection that is an MLP; 0: the projection is one matrix */
    model_bert bert;
    char timm[64]; /* timm's name of the image tower, for open_clip's configurations; "": OpenAI's or SigLIP's tower */
    bool has_logit_bias;                /* the model has a logit_bias (SigLIP) */
    bool no_image_tower, no_text_tower; /* a model of a single tower; the sizes of the missing tower are unused */
    double image_mean[3], image_std[3];
    image_view view; /* how an image is resized and cropped for evaluation; CLIP: shortest edge, centre crop */
} model_config;

/* A model of the table in config_table.c: open_clip's plain ResNets and ViTs, CLIPA, SigLIP and SigLIP 2 under
 * open_clip's names, and tiny, tiny-rn, tiny-vit. Case, "-", "_" and "/" are ignored. The suffix "-quickgelu" selects
 * QuickGELU; OpenAI's models (RN50 to RN50x64, ViT-B-32, B-16, L-14, L-14-336) use it in any case. For an unknown name,
 * the error lists the nearest names. Training replaces the vocabulary size of `tiny` by that of its tokenizer. */
cloob_status model_config_by_name(cloob_ctx *ctx, const char *name, model_config *c);
bool model_config_known(const char *name);
/* Name i of the table; NULL after the last. */
const char *model_config_name(int i);
/* Loads a configuration by built-in name, or from a .json file. */
cloob_status model_config_load(cloob_ctx *ctx, const char *name_or_path, model_config *c);
/* Reads any of the four JSON forms, recognised by their keys; the outer object of open_clip_config.json is unwrapped.
 * The default activation is that of the form's program: QuickGELU in the flat form and in Hugging Face's, GELU in
 * open_clip's. A key of an architecture that cloob does not support is an error. */
cloob_status model_config_from_json(cloob_ctx *ctx, const json *root, const char *source, model_config *c);
cloob_status model_config_from_text(cloob_ctx *ctx, const char *text, const char *source, model_config *c);
/* Appends the configuration in cloob's form, as one line. */
void model_config_to_json(const model_config *c, sbuf *out);
/* Fails if sizes or choices are out of range or contradict each other, and names them. The loaders above call it. */
cloob_status model_config_check(cloob_ctx *ctx, const model_config *c);
/* Fails if the model lacks the text tower (`text`) or the image tower, and names the tower. */
cloob_status model_config_need(cloob_ctx *ctx, const model_config *c, bool text);
/* Appends the content of open_clip_config.json: model_cfg and preprocess_cfg. clean: text cleaning of a tokenizer in
 * the same folder; NULL: CLIP's tokenizer. */
cloob_status model_config_to_open_clip(cloob_ctx *ctx, const model_config *c, const char *path, const char *clean,
                                       sbuf *out);
/* The model of Hugging Face that expresses a configuration: CLIPModel or MetaClip2Model, SiglipModel, ChineseCLIPModel,
 * rinna's CLOOBModel, M-CLIP's MultilingualCLIP. */
typedef enum hf_kind { HF_CLIP, HF_SIGLIP, HF_BERT, HF_RINNA, HF_MCLIP } hf_kind;
hf_kind model_config_hf_kind(const model_config *c);
/* Scales of the objective that are in the config.json of a CLOOBModel. 0: unknown. */
typedef struct hf_scales {
    double inv_tau, hopfield;
} hf_scales;
/* Appends config.json for the model of model_config_hf_kind. Like model_config_to_open_clip, fails for a model that the
 * other program cannot express; `path` is named in the error. */
cloob_status model_config_to_hf(cloob_ctx *ctx, const model_config *c, const hf_scales *scales, const char *path,
                                sbuf *out);
/* Whether transformers' SiglipModel expresses the model. */
bool model_config_is_siglip(const model_config *c);
/* Writes timm's name of a SigLIP image tower; false if timm has no tower with these sizes. */
bool model_config_timm_name(const model_config *c, char *name, size_t size);
/* Sets the image tower from a timm name (SigLIP, ConvNeXt, EVA, PE-Core, MobileCLIP, plain ViTs); false: unknown. */
bool model_config_from_timm(const char *name, model_config *c);
/* Sets the image projection from open_clip's timm_proj: "none", "linear", "mlp", or NULL for the tower's own head;
 * false: unknown. */
bool model_config_set_timm_projection(model_config *c, const char *kind);
/* Enumerates open_clip's models with a timm image tower: the i-th name and configuration; false after the last. */
bool model_config_timm_model(int i, const char **name, model_config *c);
/* Append the image preprocessing: in the form of cloob's metadata, and as Hugging Face's preprocessor_config.json. */
void model_config_to_preprocess(const model_config *c, sbuf *out);
cloob_status model_config_to_hf_preprocessor(cloob_ctx *ctx, const model_config *c, const char *path, sbuf *out);
/* Finds the built-in model that agrees in everything that tensor names and shapes determine (all but heads and
 * activation). */
bool model_config_match(const model_config *c, model_config *known);
/* "quickgelu", "gelu", "gelu_tanh". */
const char *model_act_name(model_act a);
bool model_act_from_name(const char *name, model_act *out);
int64_t model_blocks_inner(const model_blocks *b, int64_t width);
/* Sets the sizes of a transformers BERT from its name in open_clip's configurations; false: unknown. */
bool model_config_bert_by_name(const char *name, model_config *c);
/* Sets the choices that all BERTs share; sizes are not changed. */
void model_config_set_bert(model_config *c);
/* Sets the choices of crowsonkb's CLOOB (cloob-training): pre-norm towers without a final norm, tanh GELU, both
 * projections with a bias, texts pooled at their first token. Its padding mask is applied to queries instead of
 * keys. */
void model_config_set_crowson(model_config *c);
/* Sets the activation of both towers. */
void model_config_set_act(model_config *c, model_act act);
/* Whether tokens after a text's end have no effect on its embedding: the mask is causal and the pooled token is found
 * by its id, or padding is not attended to. */
bool model_config_text_ends(const model_config *c);
/* Tokens of an image: patches, plus the class token if there is one. */
int64_t model_config_image_tokens(const model_config *c);
/* Patches that remain after patch dropout in a training step, with open_clip's rounding; 0: all. */
int64_t model_config_patches_kept(const model_config *c);
/* Sets SigLIP's choices: attention pooling, no class token, eps 1e-6, texts without a causal mask pooled at the last
 * token, a logit bias. */
void model_config_set_siglip(model_config *c, model_act act);
/* Sets NaFlex for patches of c->patch pixels: positions on a grid of `side`, images of at most `patches` patches. */
void model_config_set_naflex(model_config *c, int64_t side, int64_t patches);
/* Sets the name "", CLIP's choices with QuickGELU, CLIP's image mean and standard deviation; all sizes 0. */
void model_config_init(model_config *c);
/* FastViT: the number of stages; whether a stage has attention (heads of FASTVIT_HEAD, preceded by positional
 * embeddings); whether these blocks have layer norms and the downsampling layers no squeeze and excitation (MCi3,
 * MCi4). */
enum { FASTVIT_HEAD = 32 };
int fastvit_stages(const model_config *c);
bool fastvit_attends(int stage);
bool fastvit_layer_norms(const model_config *c);
/* Whether the image tower is stored folded (model/fold.c): without batch norms, so that it is not trained from random
 * weights. */
bool model_config_is_folded(const model_config *c);
/* Width of the input of the image projection. */
int64_t model_config_image_features(const model_config *c);
/* Name of the image tower's family in reports: "ViT", "ResNet", "ConvNeXt", "FastViT". */
const char *model_family_name(model_family f);
/* Width of the image tower's attention: 32 width for a ResNet's pooling, width for a ViT. */
int64_t model_config_image_attention_width(const model_config *c);

#endif
