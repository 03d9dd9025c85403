/* What a model is: sizes and choices, from a name, from JSON (open_clip's nested form, the authors' flat form,
 * Hugging Face's, cloob's), or from the shapes of a state dict (model/interchange.h).
 *
 *     model_config c;
 *     CLOOB_TRY(model_config_load(ctx, "RN50", &c));          or "ViT-B/32", or "my-model.json"
 *
 * cloob's is open_clip's nested form plus the name, the image mean and standard deviation, and resize_mode where it
 * is not "shortest". A configuration that came from any function here has passed model_config_check. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "core/ctx.h"
#include "core/json.h"
#include "io/image/image_view.h"

typedef enum model_family { MODEL_RESNET, MODEL_VIT, MODEL_CONVNEXT, MODEL_FASTVIT } model_family;
typedef enum model_act { ACT_QUICKGELU, ACT_GELU, ACT_GELU_TANH } model_act;
/* What becomes of a ViT's tokens: the class token, the mean of the patches, or SigLIP's pooling by attention. */
typedef enum model_image_pool { IMAGE_POOL_CLASS, IMAGE_POOL_MEAN, IMAGE_POOL_MAP } model_image_pool;
/* Which token of a text is read: the first largest id, the first `eos` id, the last, or the first token; or the mean
 * of all tokens (BERT). */
typedef enum model_text_pool {
    TEXT_POOL_ARGMAX,
    TEXT_POOL_EOS,
    TEXT_POOL_LAST,
    TEXT_POOL_FIRST,
    TEXT_POOL_MEAN
} model_text_pool;
/* Where a block normalises: before attention and MLP; after the residual sum (BERT); what is added to it (EVA-02 E). */
typedef enum model_norm { NORM_BEFORE, NORM_AFTER, NORM_BRANCH } model_norm;

/* The blocks of one transformer. */
typedef struct model_blocks {
    int64_t inner; /* width of the MLP's hidden layer; 0: four times the width */
    model_act act;
    double eps;         /* of layer norms */
    double layer_scale; /* first value of the gains behind attention and MLP; 0: no such gains */
    model_norm norm;
    bool swiglu;      /* the MLP is gated, and `inner` wide behind the gate */
    bool inner_norms; /* layer norms behind attention and inside the MLP: EVA-02 */
    bool no_key_bias; /* EVA */
    double rope_grid; /* rotary positions: the side of the grid that places are scaled to; 0: none */
    double rope_offset;
    bool rope_swapped; /* columns before rows: PE-Core */
} model_blocks;

/* A text tower as transformers' BERT, RoBERTa and XLM-RoBERTa: post-norm blocks, a layer norm behind the embeddings,
 * token types (all texts are of type 0), and no attention to padding. */
typedef struct model_bert {
    int64_t positions; /* rows of the table of positions; 0: the text tower is not of this kind */
    int64_t first;     /* the row of the first token's position: RoBERTa's is pad + 1 */
    int64_t types;     /* rows of the table of token types */
    int64_t pad;       /* the id behind a text's end */
    bool pooler;       /* a dense layer with tanh behind the token that is read */
    char name[96];     /* of the text model in open_clip's configurations; "" where the tower is Chinese-CLIP's */
} model_bert;

typedef struct model_config {
    char name[64];
    int64_t embed; /* D: joint embedding */
    model_family family;
    int64_t image_size;
    int64_t layers[5];   /* ViT: layers[0]; others: blocks per stage, of which FastViT alone may have five */
    int64_t width;       /* ViT: token width; others: stem width */
    int64_t patch;       /* ViT, ConvNeXt */
    int64_t image_heads; /* ResNet: width * 32 / head; ViT: width / head */
    int64_t context;     /* tokens per text */
    int64_t vocab;
    int64_t text_width, text_heads, text_layers;
    model_blocks image, text; /* image: not ResNet; FastViT: `inner` is that of the first stage */
    int64_t position_side; /* SigLIP 2 NaFlex: side of the grid of positions, which are resampled for every image; the
                            * most patches of an image are view.patches, and image_size is the side of the record of
                            * RESIZE_PATCHES; 0: a square of image_size */
    bool no_class_token;   /* ViT: patches alone; SigLIP */
    bool patch_bias;       /* ViT: of the patches' embedding */
    bool patch_stem;       /* ViT: two convolutions with GELU in front of it (MobileCLIP-B) */
    bool no_ln_post;       /* ViT: no layer norm behind the blocks */
    bool no_ln_pre;        /* ViT: no layer norm before the blocks */
    model_image_pool image_pool;
    bool norm_after_pool;     /* ViT: the last layer norm sees the pooled row instead of every token */
    int64_t pool_heads;       /* ViT, pooling by attention: 0: those of the blocks */
    int64_t pool_inner;       /* its MLP: 0: that of the blocks */
    bool no_image_projection; /* ViT: the pooled row is the embedding */
    bool image_projection_bias;
    int64_t image_projection_hidden; /* as text_projection_hidden */
    double patch_dropout;            /* ViT: share of the patches that training leaves out; no effect on embeddings */
    model_text_pool text_pool;
    int64_t eos; /* TEXT_POOL_EOS */
    bool no_causal_mask;
    bool no_ln_final;  /* texts: no layer norm behind the blocks */
    bool mask_queries; /* texts: tokens behind the end see all tokens alike, and are seen (crowsonkb's CLOOB) */
    bool text_projection_bias, no_text_projection;
    int64_t text_projection_hidden; /* the projection is an MLP with a hidden layer this wide; 0: it is one matrix */
    model_bert bert;
    char timm[64];       /* the image tower's name in timm, for open_clip's configurations; "": OpenAI's, or SigLIP's */
    bool has_logit_bias; /* SigLIP */
    bool no_image_tower, no_text_tower; /* one tower alone; the sizes of the other have no meaning */
    double image_mean[3], image_std[3];
    image_view view; /* of images to be embedded; the shortest edge (and the centre) in CLIP */
} model_config;

/* A model of the table in config_table.c: open_clip's plain ResNets and ViTs, CLIPA, SigLIP and SigLIP 2 under
 * open_clip's names, and tiny, tiny-rn, tiny-vit. Spelling of "-", "/" and case is forgiven. "-quickgelu" asks for
 * QuickGELU; OpenAI's own sizes (RN50 to RN50x64, ViT-B-32, B-16, L-14, L-14-336) have it anyway. An unknown name is an
 * error that lists the nearest ones. `tiny` has a vocabulary that training replaces by its tokenizer's. */
cloob_status model_config_by_name(cloob_ctx *ctx, const char *name, model_config *c);
bool model_config_known(const char *name);
/* The names of the table in order; NULL behind the last. */
const char *model_config_name(int i);
/* A name, or the path of a .json file. */
cloob_status model_config_load(cloob_ctx *ctx, const char *name_or_path, model_config *c);
/* Any of the four forms, recognised by their keys; open_clip_config.json's outer object is unwrapped.
 * Without an activation: QuickGELU in the flat form and Hugging Face's, GELU in open_clip's, as in
 * those programs. Keys of architectures that cloob does not have are refused. */
cloob_status model_config_from_json(cloob_ctx *ctx, const json *root, const char *source, model_config *c);
cloob_status model_config_from_text(cloob_ctx *ctx, const char *text, const char *source, model_config *c);
/* cloob's form: nested, one line. */
void model_config_to_json(const model_config *c, sbuf *out);
/* Refuses sizes that cannot work together, naming them. Called by the loaders above. */
cloob_status model_config_check(cloob_ctx *ctx, const model_config *c);
/* Fails, naming the tower, where the model lacks it. */
cloob_status model_config_need(cloob_ctx *ctx, const model_config *c, bool text);
/* open_clip's form of a model directory's open_clip_config.json: model_cfg and preprocess_cfg. clean: how texts are
 * cleaned for a tokenizer in that directory; NULL: CLIP's tokenizer. */
cloob_status model_config_to_open_clip(cloob_ctx *ctx, const model_config *c, const char *path, const char *clean,
                                       sbuf *out);
/* Hugging Face's config.json: CLIPModel, MetaClip2Model or SiglipModel. Both refuse, naming path, what the other
 * program cannot express. */
cloob_status model_config_to_hf(cloob_ctx *ctx, const model_config *c, const char *path, sbuf *out);
/* A model as transformers' SiglipModel. */
bool model_config_is_siglip(const model_config *c);
/* timm's name of SigLIP's image tower; false: timm has none of these sizes. */
bool model_config_timm_name(const model_config *c, char *name, size_t size);
/* The image tower of a name in timm: SigLIP's, ConvNeXt, EVA, PE-Core, plain ViTs; false: unknown. */
bool model_config_from_timm(const char *name, model_config *c);
/* Its projection as open_clip's timm_proj: "none", "linear", "mlp", or NULL for the tower's own head; false: unknown
 * kind. */
bool model_config_set_timm_projection(model_config *c, const char *kind);
/* The models of open_clip's configurations with such a tower, one after the other; false: there are no more. */
bool model_config_timm_model(int i, const char **name, model_config *c);
/* Image preprocessing: as in cloob's metadata, and as Hugging Face's preprocessor_config.json. */
void model_config_to_preprocess(const model_config *c, sbuf *out);
cloob_status model_config_to_hf_preprocessor(cloob_ctx *ctx, const model_config *c, const char *path, sbuf *out);
/* The built-in model with the sizes and parts that follow from shapes and names of tensors (all but heads and
 * activation). */
bool model_config_match(const model_config *c, model_config *known);
/* "quickgelu", "gelu", "gelu_tanh". */
const char *model_act_name(model_act a);
bool model_act_from_name(const char *name, model_act *out);
int64_t model_blocks_inner(const model_blocks *b, int64_t width);
/* The sizes of one of transformers' BERTs by its name in open_clip's configurations; false: unknown. */
bool model_config_bert_by_name(const char *name, model_config *c);
/* The choices of every BERT, whatever its sizes. */
void model_config_set_bert(model_config *c);
/* crowsonkb's CLOOB (cloob-training): pre-norm towers without norms at their ends, tanh GELU, both projections with a
 * bias, texts read at their first token. Its padding mask is applied to queries instead of keys. */
void model_config_set_crowson(model_config *c);
/* The same activation in both towers. */
void model_config_set_act(model_config *c, model_act act);
/* Nothing behind a text's end changes its embedding: a causal mask and a token found by its id, or no attention to
 * padding. */
bool model_config_text_ends(const model_config *c);
/* Tokens of an image: patches, and the class token where there is one. */
int64_t model_config_image_tokens(const model_config *c);
/* Patches of an image that a step with patch dropout sees, as open_clip counts them; 0: all of them. */
int64_t model_config_patches_kept(const model_config *c);
/* SigLIP's choices: map pooling, no class token, eps 1e-6, texts without a mask read at the last token, a logit
 * bias. */
void model_config_set_siglip(model_config *c, model_act act);
/* NaFlex with c->patch, positions of a grid of `side`, images of at most `patches` patches. */
void model_config_set_naflex(model_config *c, int64_t side, int64_t patches);
/* Name "", CLIP's choices with QuickGELU, its image mean and standard deviation; sizes 0. */
void model_config_init(model_config *c);
/* FastViT: stages; whether one has attention, in heads of FASTVIT_HEAD, with a table of positions in front; whether
 * those blocks have layer norms, and the steps between stages no squeeze and excitation (MCi3, MCi4). */
enum { FASTVIT_HEAD = 32 };
int fastvit_stages(const model_config *c);
bool fastvit_attends(int stage);
bool fastvit_layer_norms(const model_config *c);
/* The image tower is folded from what timm trains (model/fold.c): no way leads back, and there is no initialisation. */
bool model_config_is_folded(const model_config *c);
/* Columns of what the image tower's projection reads. */
int64_t model_config_image_features(const model_config *c);
/* What reports call the image tower: "ViT", "ResNet", "ConvNeXt", "FastViT". */
const char *model_family_name(model_family f);
/* Width the image attention works on: 32 * width for a ResNet's pool, width for a ViT. */
int64_t model_config_image_attention_width(const model_config *c);

#endif
