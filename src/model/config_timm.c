/* Image towers that open_clip takes from timm: SigLIP, ConvNeXt, EVA, PE-Core, MobileCLIP and plain ViTs. */
#include <stdio.h>
#include <string.h>

#include "model/config.h"

/* ---- SigLIP's ------------------------------------------------------------------------------------ */

typedef struct siglip_size {
    const char *name;
    int64_t width, layers, heads, inner;
} siglip_size;

static const siglip_size siglip_sizes[] = { { "base", 768, 12, 12, 0 },
                                            { "large", 1024, 24, 16, 0 },
                                            { "so400m", 1152, 27, 16, 4304 },
                                            { "giantopt", 1536, 40, 16, 0 } };

/* Whether timm's tower has the tanh GELU; those added with SigLIP 2 do. */
static bool timm_tanh(const char *size, int patch, int image)
{
    bool base = strcmp(size, "base") == 0 && patch == 32, large = strcmp(size, "large") == 0 && image == 512;
    return base || large || strcmp(size, "giantopt") == 0 || (strcmp(size, "so400m") == 0 && patch == 16);
}

static bool siglip_from_timm(const char *name, model_config *c)
{
    char size[16];
    int patch, image, end = 0;
    if (sscanf(name, "vit_%15[a-z0-9]_patch%d_siglip_%d%n", size, &patch, &image, &end) != 3 || name[end]) return false;
    for (size_t i = 0; i < sizeof siglip_sizes / sizeof *siglip_sizes; i++) {
        const siglip_size *s = &siglip_sizes[i];
        if (strcmp(s->name, size) != 0) continue;
        model_config_set_siglip(c, timm_tanh(size, patch, image) ? ACT_GELU_TANH : ACT_GELU);
        c->family = MODEL_VIT;
        c->width = s->width, c->layers[0] = s->layers, c->image_heads = s->heads, c->image.inner = s->inner;
        c->patch = patch, c->image_size = image;
        return true;
    }
    return false;
}

bool model_config_timm_name(const model_config *c, char *name, size_t size)
{
    for (size_t i = 0; i < sizeof siglip_sizes / sizeof *siglip_sizes; i++) {
        model_config known;
        model_config_init(&known);
        snprintf(name, size, "vit_%s_patch%d_siglip_%d", siglip_sizes[i].name, (int)c->patch, (int)c->image_size);
        if (siglip_from_timm(name, &known) && known.width == c->width && known.layers[0] == c->layers[0] &&
            known.image_heads == c->image_heads && known.image.inner == c->image.inner &&
            known.image.act == c->image.act && known.image.eps == c->image.eps)
            return true;
    }
    return false;
}

/* ---- other towers -------------------------------------------------------------------------------- */

/* Differences from a ViT with class token, GELU, a bias in the patch embedding and no layer norm before the blocks. */
enum {
    CONVNEXT = 1,
    EVA = 2,       /* no key bias */
    ROTARY = 4,    /* EVA-02: rotary positions on a grid of 16, SwiGLU, inner norms */
    BRANCH = 8,    /* EVA-02 E: layer norms on the output of attention and MLP before it is added */
    PRE_NORM = 16, /* a layer norm before the blocks, and no bias in the patch embedding */
    PE = 32,       /* PRE_NORM, rotary positions on the tower's own grid, attention pooling with 8 heads */
    NO_CLASS = 64, /* no class token; PE's patch coordinates then start at 0 */
    EPS_5 = 128,   /* layer norm epsilon 1e-5 instead of 1e-6 */
    FASTVIT = 256,
    STEM = 512 /* convolutions before the patch embedding */
};

typedef struct timm_row {
    const char *name;
    unsigned kind;
    int64_t layers[5], width, heads, inner, patch, image_size; /* inner 0: four times the width */
} timm_row;

/* clang-format off */
static const timm_row rows[] = {
    { "convnext_tiny", CONVNEXT, { 3, 3, 9, 3 }, 96, 1, 0, 4, 224 },
    { "convnext_small", CONVNEXT, { 3, 3, 27, 3 }, 96, 1, 0, 4, 224 },
    { "convnext_base", CONVNEXT, { 3, 3, 27, 3 }, 128, 1, 0, 4, 224 },
    { "convnext_large", CONVNEXT, { 3, 3, 27, 3 }, 192, 1, 0, 4, 224 },
    { "convnext_xlarge", CONVNEXT, { 3, 3, 27, 3 }, 256, 1, 0, 4, 224 },
    { "convnext_xxlarge", CONVNEXT | EPS_5, { 3, 4, 30, 3 }, 384, 1, 0, 4, 224 },
    { "eva_giant_patch14_224", EVA, { 40 }, 1408, 16, 6144, 14, 224 },
    { "eva02_base_patch16_clip_224", EVA | ROTARY, { 12 }, 768, 12, 2048, 16, 224 },
    { "eva02_large_patch14_clip_224", EVA | ROTARY, { 24 }, 1024, 16, 2730, 14, 224 },
    { "eva02_large_patch14_clip_336", EVA | ROTARY, { 24 }, 1024, 16, 2730, 14, 336 },
    { "eva02_enormous_patch14_clip_224", EVA | BRANCH, { 64 }, 1792, 16, 15360, 14, 224 },
    { "vit_pe_core_tiny_patch16_384", PE, { 12 }, 192, 3, 0, 16, 384 },
    { "vit_pe_core_small_patch16_384", PE, { 12 }, 384, 6, 0, 16, 384 },
    { "vit_pe_core_base_patch16_224", PE, { 12 }, 768, 12, 0, 16, 224 },
    { "vit_pe_core_large_patch14_336", PE, { 24 }, 1024, 16, 0, 14, 336 },
    { "vit_pe_core_gigantic_patch14_448", PE | NO_CLASS, { 50 }, 1536, 16, 8960, 14, 448 },
    { "fastvit_mci0", FASTVIT | EPS_5, { 2, 6, 10, 2 }, 64, 1, 192, 0, 256 },
    { "fastvit_mci1", FASTVIT | EPS_5, { 4, 12, 20, 4 }, 64, 1, 192, 0, 256 },
    { "fastvit_mci2", FASTVIT | EPS_5, { 4, 12, 24, 4 }, 80, 1, 240, 0, 256 },
    { "fastvit_mci3", FASTVIT | EPS_5, { 2, 12, 24, 4, 2 }, 96, 1, 0, 0, 256 },
    { "fastvit_mci4", FASTVIT | EPS_5, { 2, 12, 24, 4, 4 }, 128, 1, 0, 0, 256 },
    { "vit_base_mci_224", STEM, { 12 }, 768, 12, 0, 16, 224 },
    { "vit_small_patch16_224", 0, { 12 }, 384, 6, 0, 16, 224 },
    { "vit_base_patch16_224", 0, { 12 }, 768, 12, 0, 16, 224 },
    { "vit_base_patch32_224", 0, { 12 }, 768, 12, 0, 32, 224 },
    { "vit_large_patch16_224", 0, { 24 }, 1024, 16, 0, 16, 224 },
    { "vit_base_patch16_clip_224", PRE_NORM | EPS_5, { 12 }, 768, 12, 0, 16, 224 },
    { "vit_base_patch32_clip_224", PRE_NORM | EPS_5, { 12 }, 768, 12, 0, 32, 224 },
    { "vit_large_patch14_clip_224", PRE_NORM | EPS_5, { 24 }, 1024, 16, 0, 14, 224 },
    { "vit_large_patch14_clip_336", PRE_NORM | EPS_5, { 24 }, 1024, 16, 0, 14, 336 },
};
/* clang-format on */

static void set_kind(model_config *c, unsigned kind)
{
    bool pe = kind & PE, pre_norm = kind & (PRE_NORM | PE);
    c->image = (model_blocks){ .act = ACT_GELU, .eps = kind & (EPS_5 | PE) ? 1e-5 : 1e-6, .inner = c->image.inner };
    c->no_ln_pre = !pre_norm, c->patch_bias = !pre_norm;
    c->image.no_key_bias = kind & EVA;
    c->image.norm = kind & BRANCH ? NORM_BRANCH : NORM_BEFORE;
    if (kind & ROTARY) c->image.rope_grid = 16, c->image.swiglu = c->image.inner_norms = true;
    c->patch_stem = kind & STEM;
    if (kind & FASTVIT) c->family = MODEL_FASTVIT, c->no_ln_pre = c->patch_bias = false;
    if (kind & CONVNEXT) c->family = MODEL_CONVNEXT, c->image.layer_scale = 1e-6, c->no_ln_pre = c->patch_bias = false;
    c->no_class_token = kind & NO_CLASS;
    if (!pe) return;
    c->image.rope_grid = (double)(c->image_size / c->patch), c->image.rope_swapped = true;
    c->image.rope_offset = kind & NO_CLASS ? 0 : 1;
    c->image_pool = IMAGE_POOL_MAP;
    c->pool_heads = 8, c->pool_inner = c->image.inner ? 4 * c->width : 0;
}

bool model_config_from_timm(const char *name, model_config *c)
{
    if (siglip_from_timm(name, c)) return true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const timm_row *t = &rows[i];
        if (strcmp(t->name, name) != 0) continue;
        c->family = MODEL_VIT;
        memcpy(c->layers, t->layers, sizeof c->layers);
        c->width = t->width, c->image_heads = t->heads, c->image.inner = t->inner;
        c->patch = t->patch, c->image_size = t->image_size;
        set_kind(c, t->kind);
        snprintf(c->timm, sizeof c->timm, "%s", name);
        return true;
    }
    return false;
}

bool model_config_set_timm_projection(model_config *c, const char *kind)
{
    bool mlp = kind && strcmp(kind, "mlp") == 0, none = kind && strcmp(kind, "none") == 0;
    if (kind && kind[0] && !mlp && !none && strcmp(kind, "linear") != 0) return false;
    c->no_image_projection = none;
    c->image_projection_bias = !kind || !kind[0];
    c->image_projection_hidden = mlp ? 2 * c->embed : 0;
    return true;
}

/* ---- models -------------------------------------------------------------------------------------- */

typedef struct timm_model {
    const char *name, *timm, *projection;
    int64_t embed, image_size, context, text_width, text_heads, text_layers;
} timm_model;

/* clang-format off */
static const timm_model models[] = {
    { "EVA01-g-14-plus", "eva_giant_patch14_224", NULL, 1024, 224, 77, 1024, 16, 24 },
    { "EVA01-g-14", "eva_giant_patch14_224", NULL, 1024, 224, 77, 768, 12, 12 },
    { "EVA02-B-16", "eva02_base_patch16_clip_224", NULL, 512, 224, 77, 512, 8, 12 },
    { "EVA02-E-14-plus", "eva02_enormous_patch14_clip_224", NULL, 1024, 224, 77, 1280, 20, 32 },
    { "EVA02-E-14", "eva02_enormous_patch14_clip_224", NULL, 1024, 224, 77, 1024, 16, 24 },
    { "EVA02-L-14-336", "eva02_large_patch14_clip_336", NULL, 768, 336, 77, 768, 12, 12 },
    { "EVA02-L-14", "eva02_large_patch14_clip_224", NULL, 768, 224, 77, 768, 12, 12 },
    { "PE-Core-B-16", "vit_pe_core_base_patch16_224", NULL, 1024, 224, 32, 1024, 16, 24 },
    { "PE-Core-L-14-336", "vit_pe_core_large_patch14_336", NULL, 1024, 336, 32, 1024, 16, 24 },
    { "PE-Core-S-16-384", "vit_pe_core_small_patch16_384", NULL, 512, 384, 32, 512, 8, 12 },
    { "PE-Core-T-16-384", "vit_pe_core_tiny_patch16_384", NULL, 512, 384, 32, 512, 8, 12 },
    { "PE-Core-bigG-14-448", "vit_pe_core_gigantic_patch14_448", NULL, 1280, 448, 72, 1280, 20, 24 },
    { "convnext_base", "convnext_base", "linear", 512, 224, 77, 512, 8, 12 },
    { "convnext_base_w", "convnext_base", "linear", 640, 256, 77, 640, 10, 12 },
    { "convnext_base_w_320", "convnext_base", "linear", 640, 320, 77, 640, 10, 12 },
    { "convnext_large", "convnext_large", "linear", 768, 224, 77, 768, 12, 12 },
    { "convnext_large_d", "convnext_large", "mlp", 768, 256, 77, 768, 12, 16 },
    { "convnext_large_d_320", "convnext_large", "mlp", 768, 320, 77, 768, 12, 16 },
    { "convnext_small", "convnext_small", "linear", 512, 224, 77, 512, 8, 12 },
    { "convnext_tiny", "convnext_tiny", "linear", 1024, 224, 77, 512, 8, 12 },
    { "convnext_xlarge", "convnext_xlarge", "linear", 1024, 256, 77, 1024, 16, 20 },
    { "convnext_xxlarge", "convnext_xxlarge", "linear", 1024, 256, 77, 1024, 16, 24 },
    { "convnext_xxlarge_320", "convnext_xxlarge", "linear", 1024, 320, 77, 1024, 16, 24 },
    { "MobileCLIP-B", "vit_base_mci_224", NULL, 512, 224, 77, 512, 8, 12 },
    { "MobileCLIP-S1", "fastvit_mci1", NULL, 512, 256, 77, 512, 8, 12 },
    { "MobileCLIP-S2", "fastvit_mci2", NULL, 512, 256, 77, 512, 8, 12 },
    { "MobileCLIP2-B", "vit_base_mci_224", NULL, 512, 224, 77, 512, 8, 12 },
    { "MobileCLIP2-L-14", "vit_large_patch14_clip_224", NULL, 768, 224, 77, 768, 12, 12 },
    { "MobileCLIP2-S0", "fastvit_mci0", NULL, 512, 256, 77, 512, 8, 12 },
    { "MobileCLIP2-S2", "fastvit_mci2", NULL, 512, 256, 77, 512, 8, 12 },
    { "MobileCLIP2-S3", "fastvit_mci3", NULL, 768, 256, 77, 768, 12, 12 },
    { "MobileCLIP2-S4", "fastvit_mci4", NULL, 768, 256, 77, 768, 12, 12 },
};
/* clang-format on */

bool model_config_timm_model(int i, const char **name, model_config *c)
{
    if (i < 0 || (size_t)i >= sizeof models / sizeof *models) return false;
    const timm_model *m = &models[i];
    *name = m->name;
    if (!c) return true;
    model_config_init(c);
    snprintf(c->name, sizeof c->name, "%s", m->name);
    model_config_set_act(c, ACT_GELU);
    c->embed = m->embed, c->context = m->context, c->vocab = 49408;
    c->text_width = m->text_width, c->text_heads = m->text_heads, c->text_layers = m->text_layers;
    c->no_causal_mask = strncmp(m->name, "MobileCLIP", 10) == 0 && strcmp(m->timm, "vit_base_mci_224") != 0;
    model_config_from_timm(m->timm, c);
    model_config_set_timm_projection(c, m->projection);
    c->image_size = m->image_size;
    return true;
}
