/* Defaults, names of choices, derived sizes, and the checks that every configuration must pass. */
#include "model/config.h"

#include <string.h>

#include "core/text.h"
#include "nn/op.h"

void model_config_init(model_config *c)
{
    static const double mean[3] = { .48145466, .4578275, .40821073 }, std[3] = { .26862954, .26130258, .27577711 };
    model_blocks blocks = { .act = ACT_QUICKGELU, .eps = 1e-5 };
    *c = (model_config){ .image = blocks, .text = blocks };
    memcpy(c->image_mean, mean, sizeof mean);
    memcpy(c->image_std, std, sizeof std);
}

static const char *const act_names[] = { "quickgelu", "gelu", "gelu_tanh" }; /* indexed by model_act */

const char *model_act_name(model_act a) { return act_names[a]; }

bool model_act_from_name(const char *name, model_act *out)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(name, act_names[i]) == 0) {
            *out = (model_act)i;
            return true;
        }
    return false;
}

void model_config_set_act(model_config *c, model_act act) { c->image.act = c->text.act = act; }

void model_config_set_siglip(model_config *c, model_act act)
{
    model_config_set_act(c, act);
    c->image.eps = c->text.eps = 1e-6;
    c->no_class_token = c->no_ln_pre = c->no_image_projection = c->patch_bias = true;
    c->image_pool = IMAGE_POOL_MAP;
    c->no_causal_mask = c->text_projection_bias = c->has_logit_bias = true;
    c->text_pool = TEXT_POOL_LAST;
    for (int i = 0; i < 3; i++) c->image_mean[i] = c->image_std[i] = 0.5;
    c->view.mode = RESIZE_SQUASH;
}

/* The side of the smallest square image, in whole patches, with enough bytes for view.patches patches and the header
 * that stores their grid; 0 if the patch size is out of range. */
static int64_t record_side(const model_config *c)
{
    int64_t side = 1;
    if (c->patch < 1 || c->patch > 1 << 14) return 0;
    while (side * side <= c->view.patches && side < 1 << 14) side++;
    return side * c->patch;
}

void model_config_set_naflex(model_config *c, int64_t side, int64_t patches)
{
    c->position_side = side;
    c->view.mode = RESIZE_PATCHES;
    c->view.patch = c->patch, c->view.patches = patches;
    c->view.height = c->view.width = 0;
    c->image_size = record_side(c);
}

void model_config_set_crowson(model_config *c)
{
    c->family = MODEL_VIT;
    model_config_set_act(c, ACT_GELU_TANH);
    c->no_ln_pre = c->no_ln_post = c->no_ln_final = c->no_causal_mask = c->mask_queries = true;
    c->image_projection_bias = c->text_projection_bias = true;
    c->text_pool = TEXT_POOL_FIRST;
}

void model_config_set_bert(model_config *c)
{
    c->text = (model_blocks){ .act = ACT_GELU, .eps = 1e-12, .norm = NORM_AFTER };
    c->no_causal_mask = true;
    c->text_pool = TEXT_POOL_FIRST;
}

bool model_config_text_ends(const model_config *c)
{
    if (c->bert.positions) return true;
    return !c->no_causal_mask && (c->text_pool == TEXT_POOL_ARGMAX || c->text_pool == TEXT_POOL_EOS);
}

cloob_status model_config_need(cloob_ctx *ctx, const model_config *c, bool text)
{
    if (!(text ? c->no_text_tower : c->no_image_tower)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s has no %s tower: it is %s; open a model with both towers for %s",
                    c->name, text ? "text" : "image", text ? "an image tower alone" : "a text tower alone",
                    text ? "texts" : "images");
}

int64_t model_config_image_tokens(const model_config *c)
{
    if (c->position_side) return c->view.patches;
    int64_t grid = c->family == MODEL_VIT ? c->image_size / c->patch : c->image_size / 32;
    return grid * grid + !c->no_class_token;
}

int64_t model_config_patches_kept(const model_config *c)
{
    int64_t patches = model_config_image_tokens(c) - !c->no_class_token;
    if (c->family != MODEL_VIT || !(c->patch_dropout > 0)) return 0;
    int64_t kept = (int64_t)((double)patches * (1 - c->patch_dropout));
    return kept > 1 ? kept : 1;
}

const char *model_family_name(model_family f)
{
    static const char *const names[] = { "ResNet", "ViT", "ConvNeXt", "FastViT" };
    return names[f];
}

int fastvit_stages(const model_config *c) { return c->layers[4] ? 5 : 4; }

bool fastvit_attends(int stage) { return stage >= 3; }

bool fastvit_layer_norms(const model_config *c) { return fastvit_stages(c) == 5; }

bool model_config_is_folded(const model_config *c) { return c->family == MODEL_FASTVIT || c->patch_stem; }

int64_t model_config_image_features(const model_config *c)
{
    switch (c->family) {
    case MODEL_RESNET: return 32 * c->width;
    case MODEL_CONVNEXT: return 8 * c->width;
    case MODEL_FASTVIT: return c->width << fastvit_stages(c);
    default: return c->width;
    }
}

int64_t model_blocks_inner(const model_blocks *b, int64_t width) { return b->inner ? b->inner : 4 * width; }

int64_t model_config_image_attention_width(const model_config *c)
{
    return c->family == MODEL_RESNET ? 32 * c->width : c->width;
}

cloob_status model_config_load(cloob_ctx *ctx, const char *name_or_path, model_config *c)
{
    arena a = { 0 };
    json *root;
    if (!text_ends_with(name_or_path, ".json")) return model_config_by_name(ctx, name_or_path, c);
    cloob_status status = json_read_file(ctx, &a, name_or_path, &root);
    if (status == CLOOB_OK) status = model_config_from_json(ctx, root, name_or_path, c);
    arena_release(&a);
    return status;
}

/* ---- rules --------------------------------------------------------------------------------------- */

typedef struct bound {
    const char *what;
    int64_t value, low, high;
} bound;

/* The upper bounds keep products of sizes below 2^63. They are far above the sizes of any published model. */
static cloob_status check_bounds(cloob_ctx *ctx, const model_config *c)
{
    const bound bounds[] = {
        { "embed_dim", c->embed, 1, 1 << 16 },
        { "image size", c->image_size, 1, 1 << 14 },
        { "image layers", c->layers[0], 1, 1 << 10 },
        { "image width", c->width, 1, 1 << 16 },
        { "image heads", c->image_heads, 1, 1 << 16 },
        { "context length", c->context, 2, 1 << 16 },
        { "vocabulary size", c->vocab, 3, 1 << 24 },
        { "text width", c->text_width, 1, 1 << 16 },
        { "text heads", c->text_heads, 1, 1 << 16 },
        { "text layers", c->text_layers, 1, 1 << 10 },
        { "MLP width", c->image.inner, 0, 1 << 18 },
        { "text MLP width", c->text.inner, 0, 1 << 18 },
        { "hidden width of the text projection", c->text_projection_hidden, 0, 1 << 18 },
        { "hidden width of the image projection", c->image_projection_hidden, 0, 1 << 18 },
        { "pool heads", c->pool_heads, 0, 1 << 16 },
        { "pool MLP width", c->pool_inner, 0, 1 << 18 },
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (bounds[i].value < bounds[i].low || bounds[i].value > bounds[i].high)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s of %lld is out of range; it must be %lld to %lld",
                            bounds[i].what, (long long)bounds[i].value, (long long)bounds[i].low,
                            (long long)bounds[i].high);
    return CLOOB_OK;
}

static cloob_status check_divides(cloob_ctx *ctx, const char *whole, int64_t n, const char *part, int64_t by)
{
    if (by > 0 && n % by == 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s of %lld is not a multiple of %s, %lld", whole, (long long)n, part,
                    (long long)by);
}

/* The first convolution halves the image and rounds up, and four pools round down, so the grid has (size + 1) / 32
 * cells a side. open_clip and cloob have positional embeddings for size / 32 cells; the two differ if size + 1 is a
 * multiple of 32. */
static cloob_status check_resnet_size(cloob_ctx *ctx, int64_t size)
{
    if (size >= 32 && (size + 1) / 32 == size / 32) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "image size of %lld is not supported by a ResNet (at least 32, and not one less than a multiple of "
                    "32); use %lld",
                    (long long)size, (long long)(size < 32 ? 32 : size + 1));
}

static cloob_status check_stages(cloob_ctx *ctx, const model_config *c)
{
    for (int i = 1; i < 4; i++)
        if (c->layers[i] < 1 || c->layers[i] > 1 << 10)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "stage %d has %lld blocks; it must have 1 to 1024", i + 1,
                            (long long)c->layers[i]);
    if (c->family == MODEL_CONVNEXT) return check_divides(ctx, "image size", c->image_size, "ConvNeXt's cells", 32);
    if (c->family == MODEL_FASTVIT) {
        if (c->layers[4] < 0 || c->layers[4] > 1 << 10)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "stage 5 has %lld blocks; it must have 0 to 1024",
                            (long long)c->layers[4]);
        CLOOB_TRY(check_divides(ctx, "stem width", c->width, "FastViT's unit", fastvit_layer_norms(c) ? 4 : 8));
        return check_divides(ctx, "image size", c->image_size, "FastViT's cells", (int64_t)2 << fastvit_stages(c));
    }
    CLOOB_TRY(check_divides(ctx, "ResNet stem width", c->width, "the two halves of the stem", 2));
    return check_resnet_size(ctx, c->image_size);
}

/* The image size need not be a multiple of the patch size if there is no class token: SigLIP uses 384 px with patches
 * of 14, and pixels of the incomplete patches at the right and bottom edges are not used. */
static cloob_status check_vit(cloob_ctx *ctx, const model_config *c)
{
    const model_blocks *b = &c->image;
    int64_t heads = c->pool_heads ? c->pool_heads : c->image_heads;
    if (c->image_pool == IMAGE_POOL_MAP) CLOOB_TRY(check_divides(ctx, "image width", c->width, "pool heads", heads));
    if (b->rope_grid) CLOOB_TRY(check_divides(ctx, "image width", c->width, "heads of pairs", 4 * c->image_heads));
    if (c->patch_stem) CLOOB_TRY(check_divides(ctx, "image width", c->width, "the stem's share", 4));
    if (c->patch_stem) CLOOB_TRY(check_divides(ctx, "patch size", c->patch, "the stem's steps", 4));
    if (!(b->rope_grid >= 0 && b->rope_grid < 1e4 && b->rope_offset > -1e4 && b->rope_offset < 1e4) ||
        (b->rope_grid && c->patch_dropout > 0))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "rotary positions on a grid of %g, offset %g, patch dropout %g",
                        b->rope_grid, b->rope_offset, c->patch_dropout);
    if (c->no_class_token && c->patch > 0 && c->patch <= c->image_size) return CLOOB_OK;
    return check_divides(ctx, "image size", c->image_size, "a patch size", c->patch);
}

static cloob_status check_naflex(cloob_ctx *ctx, const model_config *c)
{
    const image_view *v = &c->view;
    if (!c->position_side && v->mode != RESIZE_PATCHES) return CLOOB_OK;
    bool sizes = c->position_side >= 1 && c->position_side <= OP_GRID_SIDE && v->patches >= 1 &&
                 v->patches <= 1 << 14 && v->patch == c->patch && c->image_size == record_side(c);
    bool parts = c->family == MODEL_VIT && c->no_class_token && c->patch_bias && c->image_pool == IMAGE_POOL_MAP &&
                 !c->image.rope_grid && c->patch_dropout == 0;
    if (sizes && parts && v->mode == RESIZE_PATCHES) return CLOOB_OK;
    return ctx_fail(
        ctx, CLOOB_ERR_ARGUMENT,
        "resize mode %s, at most %lld patches of %lld, positions of %lld x %lld: patches belong to SigLIP 2 "
        "NaFlex, which pools by attention and has one size of record",
        resize_mode_name(v->mode), (long long)v->patches, (long long)v->patch, (long long)c->position_side,
        (long long)c->position_side);
}

static cloob_status check_blocks(cloob_ctx *ctx, const char *which, const model_blocks *b)
{
    if (b->eps > 0 && b->eps < 1 && b->layer_scale >= 0 && b->layer_scale < 1e6) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "layer norm eps %g or layer scale %g of the %s tower is out of range",
                    b->eps, b->layer_scale, which);
}

/* Without a projection, the width of a tower must be the embedding's. */
static cloob_status check_projections(cloob_ctx *ctx, const model_config *c)
{
    int64_t image = c->no_image_projection ? model_config_image_features(c) : c->embed,
            text = c->no_text_projection ? c->text_width : c->embed;
    if (image == c->embed && text == c->embed) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "without a projection image and text are %lld and %lld wide, embed_dim is %lld", (long long)image,
                    (long long)text, (long long)c->embed);
}

/* A BERT needs a position for every token of the context, starting at row `first`. */
static cloob_status check_bert(cloob_ctx *ctx, const model_config *c)
{
    const model_bert *b = &c->bert;
    bool norm = (c->text.norm == NORM_AFTER) == (b->positions > 0);
    if (!b->positions && norm && c->text_pool != TEXT_POOL_MEAN) return CLOOB_OK;
    bool fits = norm && b->positions <= 1 << 16 && b->first >= 0 && b->first <= b->positions - c->context &&
                b->types >= 1 && b->types <= 1 << 10 && b->pad >= 0 && b->pad < c->vocab && c->no_causal_mask &&
                (c->text_pool == TEXT_POOL_FIRST || c->text_pool == TEXT_POOL_MEAN);
    if (fits && !(b->pooler && c->text_pool != TEXT_POOL_FIRST)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "a BERT of %lld positions from %lld, %lld token types, padding %lld and %lld tokens is impossible",
                    (long long)b->positions, (long long)b->first, (long long)b->types, (long long)b->pad,
                    (long long)c->context);
}

cloob_status model_config_check(cloob_ctx *ctx, const model_config *c)
{
    CLOOB_TRY(check_bounds(ctx, c));
    if (c->family != MODEL_VIT) CLOOB_TRY(check_stages(ctx, c));
    else CLOOB_TRY(check_vit(ctx, c));
    if (!(c->patch_dropout >= 0 && c->patch_dropout < 1))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "patch dropout %g is not between 0 and 1", c->patch_dropout);
    if (!c->no_image_tower) CLOOB_TRY(check_naflex(ctx, c));
    CLOOB_TRY(check_blocks(ctx, "image", &c->image));
    CLOOB_TRY(check_blocks(ctx, "text", &c->text));
    CLOOB_TRY(check_projections(ctx, c));
    CLOOB_TRY(check_bert(ctx, c));
    if (c->text_pool == TEXT_POOL_EOS && (c->eos < 1 || c->eos >= c->vocab))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "end-of-text id %lld of a vocabulary of %lld", (long long)c->eos,
                        (long long)c->vocab);
    if (c->family == MODEL_RESNET || c->family == MODEL_VIT)
        CLOOB_TRY(check_divides(ctx, "image attention width", model_config_image_attention_width(c), "image heads",
                                c->image_heads));
    CLOOB_TRY(check_divides(ctx, "text width", c->text_width, "text heads", c->text_heads));
    for (int i = 0; i < 3; i++)
        if (!(c->image_std[i] > 0 && c->image_std[i] < 1e6 && c->image_mean[i] > -1e6 && c->image_mean[i] < 1e6))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "image mean %g and standard deviation %g of channel %d cannot be used", c->image_mean[i],
                            c->image_std[i], i);
    return CLOOB_OK;
}
