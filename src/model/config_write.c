/* Configurations written as JSON: cloob's, open_clip's, Hugging Face's. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_reader.h"

/* ---- parts --------------------------------------------------------------------------------------- */

/* The smallest ratio of four decimals whose product with the width, cut down to a whole number, is the hidden
 * layer's. */
static double mlp_ratio(int64_t width, int64_t inner) { return ceil((double)inner / (double)width * 1e4) / 1e4; }

static bool mixed_quick(const model_config *c)
{
    return c->family == MODEL_VIT && !c->bert.positions &&
           (c->image.act == ACT_QUICKGELU) != (c->text.act == ACT_QUICKGELU);
}

/* Nothing for CLIP's own way, so that a plain model's text stays as every reader knows it. */
static void put_blocks(json_out *w, const model_config *c, const model_blocks *b, int64_t width)
{
    if (b->inner && (int64_t)((double)width * mlp_ratio(width, b->inner)) == b->inner)
        json_put_number(w, "mlp_ratio", mlp_ratio(width, b->inner));
    else if (b->inner) json_put_int(w, "intermediate_size", b->inner);
    if (b->layer_scale) json_put_number(w, "ls_init_value", b->layer_scale);
    if (mixed_quick(c)) json_put_text(w, "activation", model_act_name(b->act));
    else if (b->act == ACT_GELU_TANH) {
        json_begin(w, "act_kwargs", '{');
        json_put_text(w, "approximate", "tanh");
        json_end(w);
    }
    if (b->eps != 1e-5) {
        json_begin(w, "norm_kwargs", '{');
        json_put_number(w, "eps", b->eps);
        json_end(w);
    }
}

static void put_flag(json_out *w, const char *key, bool v)
{
    if (v) json_put_bool(w, key, true);
}

static void put_pool(json_out *w, const model_config *c)
{
    static const char *const pools[] = { "tok", "avg", "map" };
    if (c->image_pool != IMAGE_POOL_CLASS) json_put_text(w, "pool_type", pools[c->image_pool]);
    if (c->no_class_token) json_put_bool(w, "class_token", false);
    if (c->no_image_projection) json_put_text(w, "proj_type", "none");
    put_flag(w, "no_ln_pre", c->no_ln_pre);
    put_flag(w, "final_ln_after_pool", c->norm_after_pool);
    if (c->patch_dropout) json_put_number(w, "patch_dropout", c->patch_dropout);
}

static void put_extras(json_out *w, const model_config *c);

static void put_vision(json_out *w, const model_config *c)
{
    if (c->family == MODEL_VIT) json_put_int(w, "layers", c->layers[0]);
    else {
        json_begin(w, "layers", '[');
        for (int i = 0; i < 4 + (c->layers[4] > 0); i++) json_put_int(w, NULL, c->layers[i]);
        json_end(w);
    }
    json_put_int(w, "width", c->width);
    if (c->family == MODEL_RESNET || c->family == MODEL_VIT)
        json_put_int(w, "head_width", model_config_image_attention_width(c) / c->image_heads);
    if (c->family != MODEL_RESNET) {
        if (c->patch) json_put_int(w, "patch_size", c->patch);
        if (c->position_side) {
            json_put_int(w, "position_side", c->position_side);
            json_put_int(w, "max_patches", c->view.patches);
        }
        put_blocks(w, c, &c->image, c->width);
        put_extras(w, c);
    }
    if (c->family == MODEL_VIT) put_pool(w, c);
}

static void put_timm_vision(json_out *w, const model_config *c, const char *name)
{
    static const char *const pools[] = { "token", "avg", "map" };
    json_put_text(w, "timm_model_name", name);
    json_put_bool(w, "timm_model_pretrained", false);
    json_put_text(w, "timm_pool",
                  c->family == MODEL_CONVNEXT  ? ""
                  : c->family == MODEL_FASTVIT ? "avg"
                                               : pools[c->image_pool]);
    if (c->image_projection_bias) json_put_null(w, "timm_proj");
    else json_put_text(w, "timm_proj", c->no_image_projection ? "none" : c->image_projection_hidden ? "mlp" : "linear");
}

/* What only towers of timm have, under cloob's own keys. */
static void put_extras(json_out *w, const model_config *c)
{
    const model_blocks *b = &c->image;
    if (c->timm[0]) json_put_text(w, "timm", c->timm);
    put_flag(w, "convnext", c->family == MODEL_CONVNEXT);
    put_flag(w, "fastvit", c->family == MODEL_FASTVIT);
    put_flag(w, "patch_stem", c->patch_stem);
    put_flag(w, "proj_bias", c->image_projection_bias);
    if (c->image_projection_hidden) json_put_int(w, "proj_hidden", c->image_projection_hidden);
    if (c->family != MODEL_VIT) return;
    if (c->patch_bias != c->no_class_token) json_put_bool(w, "patch_bias", c->patch_bias);
    if (b->norm == NORM_BRANCH) json_put_text(w, "block_norm", "branch");
    put_flag(w, "no_ln_post", c->no_ln_post);
    put_flag(w, "swiglu", b->swiglu);
    put_flag(w, "inner_norms", b->inner_norms);
    put_flag(w, "no_key_bias", b->no_key_bias);
    if (b->rope_grid) json_put_number(w, "rope_grid", b->rope_grid);
    if (b->rope_offset) json_put_number(w, "rope_offset", b->rope_offset);
    put_flag(w, "rope_swapped", b->rope_swapped);
    if (c->pool_heads) json_put_int(w, "pool_heads", c->pool_heads);
    if (c->pool_inner) json_put_int(w, "pool_intermediate_size", c->pool_inner);
}

/* own: cloob's form, which has the sizes; open_clip's has the name alone. */
static void put_bert(json_out *w, const model_config *c, bool own)
{
    json_put_text(w, "hf_model_name", c->bert.name);
    json_put_text(w, "hf_tokenizer_name", c->bert.name);
    json_put_text(w, "hf_pooler_type",
                  c->text_pool == TEXT_POOL_MEAN ? "mean_pooler"
                  : c->bert.pooler               ? "cls_pooler"
                                                 : "cls_last_hidden_state_pooler");
    if (c->no_text_projection) json_put_null(w, "hf_proj_type");
    else json_put_text(w, "hf_proj_type", c->text_projection_hidden ? "mlp" : "linear");
    json_put_int(w, "context_length", c->context);
    if (!own) return;
    json_put_int(w, "vocab_size", c->vocab);
    json_put_int(w, "width", c->text_width);
    json_put_int(w, "heads", c->text_heads);
    json_put_int(w, "layers", c->text_layers);
    put_blocks(w, c, &c->text, c->text_width);
    put_flag(w, "proj_bias", c->text_projection_bias);
    json_begin(w, "bert", '{');
    json_put_int(w, "positions", c->bert.positions);
    json_put_int(w, "first_position", c->bert.first);
    json_put_int(w, "token_types", c->bert.types);
    json_put_int(w, "pad_id", c->bert.pad);
    json_end(w);
}

static void put_text(json_out *w, const model_config *c)
{
    static const char *const pools[] = { "argmax", "eos", "last", "first" };
    json_put_int(w, "context_length", c->context);
    json_put_int(w, "vocab_size", c->vocab);
    json_put_int(w, "width", c->text_width);
    json_put_int(w, "heads", c->text_heads);
    json_put_int(w, "layers", c->text_layers);
    put_blocks(w, c, &c->text, c->text_width);
    put_flag(w, "no_causal_mask", c->no_causal_mask);
    put_flag(w, "no_ln_final", c->no_ln_final);
    put_flag(w, "mask_queries", c->mask_queries);
    put_flag(w, "proj_bias", c->text_projection_bias);
    if (c->no_text_projection) json_put_text(w, "proj_type", "none");
    if (c->text_pool != TEXT_POOL_ARGMAX) json_put_text(w, "pool_type", pools[c->text_pool]);
    if (c->text_pool == TEXT_POOL_EOS) json_put_int(w, "eos_id", c->eos);
}

/* The common part of cloob's and open_clip's forms, without the braces. */
static void put_nested(json_out *w, const model_config *c, const char *timm, bool own, const char *clean)
{
    const model_blocks *blocks = c->bert.positions ? &c->image : &c->text; /* a BERT's activation is not open_clip's */
    json_put_int(w, "embed_dim", c->embed);
    json_put_bool(w, "quick_gelu", blocks->act == ACT_QUICKGELU && !mixed_quick(c));
    if (c->has_logit_bias) json_put_int(w, "init_logit_bias", -10);
    put_flag(w, "custom_text", timm && c->family != MODEL_CONVNEXT && !c->bert.positions);
    if (c->no_image_tower) json_put_null(w, "vision_cfg");
    else {
        json_begin(w, "vision_cfg", '{');
        json_put_int(w, "image_size", c->image_size);
        if (timm) put_timm_vision(w, c, timm);
        else put_vision(w, c);
        json_end(w);
    }
    if (c->no_text_tower) {
        json_put_null(w, "text_cfg");
        return;
    }
    json_begin(w, "text_cfg", '{');
    if (c->bert.positions) put_bert(w, c, own);
    else put_text(w, c);
    if (clean) {
        if (!c->bert.positions) json_put_text(w, "hf_tokenizer_name", c->name); /* open_clip reads the folder's files */
        json_begin(w, "tokenizer_kwargs", '{');
        json_put_text(w, "clean", clean);
        json_end(w);
    }
    json_end(w);
}

/* ---- forms --------------------------------------------------------------------------------------- */

void model_config_to_json(const model_config *c, sbuf *s)
{
    json_out w = json_out_on(s);
    json_begin(&w, NULL, '{');
    json_put_text(&w, "name", c->name);
    put_nested(&w, c, NULL, true, NULL);
    preprocess_put_own(&w, c);
    json_end(&w);
    json_out_back(&w, s);
}

/* A ViT's positions are those of timm's size; names that are not in the table are not checked. */
static bool timm_has(const model_config *c)
{
    model_config known;
    model_config_init(&known);
    return c->family != MODEL_VIT || !model_config_from_timm(c->timm, &known) || known.image_size == c->image_size;
}

cloob_status model_config_to_open_clip(cloob_ctx *ctx, const model_config *c, const char *path, const char *clean,
                                       sbuf *s)
{
    json_out w = { 0 };
    char timm[64];
    bool siglip = c->no_class_token && !c->timm[0];
    snprintf(timm, sizeof timm, "%s", c->timm);
    if (c->timm[0] && !timm_has(c))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip takes the image tower %s from timm, which has it for images of another size",
                        path, c->timm);
    if (c->position_side)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: a SigLIP 2 NaFlex model can be written as hf, not as open_clip", path);
    if (siglip && (c->image_pool != IMAGE_POOL_MAP || !model_config_timm_name(c, timm, sizeof timm)))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip takes SigLIP's image tower from timm, which has none of these sizes (%s)", path,
                        c->name);
    if (c->no_ln_post || c->no_ln_final)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip has no towers without norms at their ends, and no mask of queries", path);
    if (c->bert.positions && !c->bert.name[0])
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip finds the sizes of a BERT by its name, which %s does not have", path, c->name);
    if (mixed_quick(c))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip has one quick_gelu for both towers; %s has it in one", path, c->name);
    json_begin(&w, NULL, '{');
    json_begin(&w, "model_cfg", '{');
    put_nested(&w, c, timm[0] ? timm : NULL, false, clean);
    json_end(&w);
    cloob_status status = preprocess_put_open_clip(ctx, &w, c, path);
    json_end(&w);
    json_out_append(&w, s);
    return status;
}

/* ---- Hugging Face -------------------------------------------------------------------------------- */

static void put_hf_blocks(json_out *w, const model_blocks *b, int64_t width, int64_t heads, int64_t layers)
{
    static const char *const acts[] = { "quick_gelu", "gelu", "gelu_pytorch_tanh" };
    json_put_text(w, "hidden_act", acts[b->act]);
    json_put_number(w, "layer_norm_eps", b->eps);
    json_put_int(w, "hidden_size", width);
    json_put_int(w, "intermediate_size", model_blocks_inner(b, width));
    json_put_int(w, "num_attention_heads", heads);
    json_put_int(w, "num_hidden_layers", layers);
}

/* Left open. */
static void begin_hf(json_out *w, const char *class, const char *type)
{
    json_begin(w, NULL, '{');
    json_begin(w, "architectures", '[');
    json_put_text(w, NULL, class);
    json_end(w);
    json_put_text(w, "model_type", type);
}

static void put_hf_vision(json_out *w, const model_config *c)
{
    put_hf_blocks(w, &c->image, c->width, c->image_heads, c->layers[0]);
    if (!c->no_image_projection) json_put_int(w, "projection_dim", c->embed);
    if (c->position_side) json_put_int(w, "num_patches", c->position_side * c->position_side);
    else json_put_int(w, "image_size", c->image_size);
    json_put_int(w, "patch_size", c->patch);
}

static void put_hf_text(json_out *w, const model_config *c)
{
    put_hf_blocks(w, &c->text, c->text_width, c->text_heads, c->text_layers);
    json_put_int(w, "max_position_embeddings", c->context);
    json_put_int(w, "vocab_size", c->vocab);
    if (c->bert.positions) {
        json_put_int(w, "type_vocab_size", c->bert.types);
        json_put_int(w, "pad_token_id", c->bert.pad);
        return;
    }
    if (c->text_projection_bias) { /* SigLIP */
        json_put_int(w, "projection_size", c->embed);
        return;
    }
    if (!c->no_text_projection) json_put_int(w, "projection_dim", c->embed);
    if (c->text_pool == TEXT_POOL_ARGMAX) json_put_int(w, "bos_token_id", c->vocab - 2);
    /* its first place is the end token's: the same as argmax */
    json_put_int(w, "eos_token_id", c->text_pool == TEXT_POOL_EOS ? c->eos : c->vocab - 1);
    if (c->text_pool == TEXT_POOL_ARGMAX) json_put_int(w, "pad_token_id", 0);
}

/* A kind of transformers' models: how its classes and its types begin. */
typedef struct hf_kind {
    const char *class, *type;
} hf_kind;

static hf_kind hf_kind_of(const model_config *c)
{
    bool metaclip = c->text_pool == TEXT_POOL_EOS && c->eos == 2; /* CLIPModel takes 2 for "the largest id" */
    if (c->position_side) return (hf_kind){ "Siglip2", "siglip2" };
    if (model_config_is_siglip(c)) return (hf_kind){ "Siglip", "siglip" };
    if (c->bert.positions) return (hf_kind){ "ChineseCLIP", "chinese_clip" };
    return metaclip ? (hf_kind){ "MetaClip2", "metaclip_2" } : (hf_kind){ "CLIP", "clip" };
}

static void put_hf_part(json_out *w, const model_config *c, const char *kind, bool text)
{
    char type[64];
    snprintf(type, sizeof type, "%s_%s_model", kind, text ? "text" : "vision");
    json_begin(w, text ? "text_config" : "vision_config", '{');
    json_put_text(w, "model_type", type);
    if (text) put_hf_text(w, c);
    else put_hf_vision(w, c);
    json_end(w);
}

static void put_hf_both(json_out *w, const model_config *c)
{
    hf_kind kind = hf_kind_of(c);
    char class[64];
    snprintf(class, sizeof class, "%sModel", kind.class);
    begin_hf(w, class, kind.type);
    if (!model_config_is_siglip(c)) json_put_int(w, "projection_dim", c->embed);
    put_hf_part(w, c, kind.type, true);
    put_hf_part(w, c, kind.type, false);
    json_end(w);
}

/* The values of a tower alone are in the root. */
static void put_hf_tower(json_out *w, const model_config *c)
{
    hf_kind kind = hf_kind_of(c);
    bool text = c->no_image_tower, projects = text ? !c->no_text_projection : !c->no_image_projection;
    char class[64], type[64];
    snprintf(class, sizeof class, "%s%sModel%s", kind.class, text ? "Text" : "Vision",
             projects && !model_config_is_siglip(c) ? "WithProjection" : "");
    snprintf(type, sizeof type, "%s_%s_model", kind.type, text ? "text" : "vision");
    begin_hf(w, class, type);
    if (text) put_hf_text(w, c);
    else put_hf_vision(w, c);
    json_end(w);
}

bool model_config_is_siglip(const model_config *c)
{
    bool image = c->no_class_token && !c->timm[0] && c->image_pool == IMAGE_POOL_MAP && c->no_ln_pre &&
                 c->no_image_projection && !c->image.layer_scale,
         text = c->no_causal_mask && c->text_projection_bias && c->text_pool == TEXT_POOL_LAST && !c->text.layer_scale;
    return (image || c->no_image_tower) && (text || c->no_text_tower);
}

/* What a CLIPModel, or with a BERT a ChineseCLIPModel, cannot be; NULL: nothing. */
static const char *beyond_clip(const model_config *c)
{
    if (c->family != MODEL_VIT) return "a ResNet or ConvNeXt";
    if (c->timm[0]) return "an image tower of timm";
    if (c->no_ln_post || c->no_ln_final || c->mask_queries) return "crowsonkb's CLOOB";
    if (c->no_ln_pre || c->no_class_token) return "a ViT without ln_pre or class token";
    if (c->image_pool != IMAGE_POOL_CLASS || c->norm_after_pool) return "a pooling other than the class token";
    if (c->image.layer_scale || c->text.layer_scale) return "layer scale";
    if (c->bert.positions) {
        bool chinese = c->text_pool == TEXT_POOL_FIRST && !c->bert.pooler && !c->text_projection_hidden &&
                       !c->text_projection_bias && !c->no_text_projection && c->bert.first == 0 &&
                       c->bert.positions == c->context;
        return chinese ? NULL : "a BERT other than Chinese-CLIP's";
    }
    if (c->no_causal_mask) return "a text tower without a causal mask";
    if (c->text_pool == TEXT_POOL_LAST || c->text_pool == TEXT_POOL_FIRST)
        return "a text read at its last or first token";
    bool alone = c->no_image_tower || c->no_text_tower;
    if (c->no_image_projection && !alone) return "a ViT without a projection";
    return c->text_projection_bias || (c->no_text_projection && !alone) ? "another text projection" : NULL;
}

cloob_status model_config_to_hf(cloob_ctx *ctx, const model_config *c, const char *path, sbuf *s)
{
    const char *beyond = beyond_clip(c);
    json_out w = { 0 };
    if (beyond && !model_config_is_siglip(c))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: Hugging Face's CLIPModel has no place for %s; %s can be written as openai or open_clip%s",
                        path, beyond, c->name, c->family == MODEL_RESNET ? ", or as jku" : "");
    if (c->no_image_tower || c->no_text_tower) put_hf_tower(&w, c);
    else put_hf_both(&w, c);
    json_out_append(&w, s);
    return CLOOB_OK;
}
