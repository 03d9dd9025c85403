/* Configurations written as JSON: cloob's, open_clip's, Hugging Face's. */
#include <math.h>
#include <string.h>

#include "model/config.h"

/* ---- parts --------------------------------------------------------------------------------------- */

static void put_channels(json_out *w, const char *key, const double v[3])
{
    json_begin(w, key, '[');
    for (int i = 0; i < 3; i++) json_put_number(w, NULL, v[i]);
    json_end(w);
}

/* The smallest ratio of four decimals whose product with the width, cut down to a whole number, is the hidden
 * layer's. */
static double mlp_ratio(int64_t width, int64_t inner) { return ceil((double)inner / (double)width * 1e4) / 1e4; }

static bool mixed_quick(const model_config *c)
{
    return c->family == MODEL_VIT && (c->image.act == ACT_QUICKGELU) != (c->text.act == ACT_QUICKGELU);
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

static void put_vision(json_out *w, const model_config *c)
{
    if (c->family == MODEL_VIT) json_put_int(w, "layers", c->layers[0]);
    else {
        json_begin(w, "layers", '[');
        for (int i = 0; i < 4; i++) json_put_int(w, NULL, c->layers[i]);
        json_end(w);
    }
    json_put_int(w, "width", c->width);
    json_put_int(w, "head_width", model_config_image_attention_width(c) / c->image_heads);
    if (c->family == MODEL_VIT) {
        json_put_int(w, "patch_size", c->patch);
        put_blocks(w, c, &c->image, c->width);
        put_pool(w, c);
    }
}

static void put_timm_vision(json_out *w, const char *name)
{
    json_put_text(w, "timm_model_name", name);
    json_put_bool(w, "timm_model_pretrained", false);
    json_put_text(w, "timm_pool", "map");
    json_put_text(w, "timm_proj", "none");
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
    put_flag(w, "proj_bias", c->text_projection_bias);
    if (c->no_text_projection) json_put_text(w, "proj_type", "none");
    if (c->text_pool != TEXT_POOL_ARGMAX) json_put_text(w, "pool_type", pools[c->text_pool]);
    if (c->text_pool == TEXT_POOL_EOS) json_put_int(w, "eos_id", c->eos);
}

/* The common part of cloob's and open_clip's forms, without the braces. */
static void put_nested(json_out *w, const model_config *c, const char *timm)
{
    json_put_int(w, "embed_dim", c->embed);
    json_put_bool(w, "quick_gelu", c->text.act == ACT_QUICKGELU && !mixed_quick(c));
    if (c->has_logit_bias) json_put_int(w, "init_logit_bias", -10);
    put_flag(w, "custom_text", timm);
    json_begin(w, "vision_cfg", '{');
    json_put_int(w, "image_size", c->image_size);
    if (timm) put_timm_vision(w, timm);
    else put_vision(w, c);
    json_end(w);
    json_begin(w, "text_cfg", '{');
    put_text(w, c);
    json_end(w);
}

/* ---- forms --------------------------------------------------------------------------------------- */

/* Nothing where it is what a reader assumes: CLIP's way. Of SigLIP readers assume another. */
static void put_resize(json_out *w, const model_config *c)
{
    if (c->resize != MODEL_RESIZE_SHORTEST || c->no_class_token)
        json_put_text(w, "resize_mode", model_resize_name(c->resize));
}

void model_config_to_json(const model_config *c, sbuf *s)
{
    json_out w = json_out_on(s);
    json_begin(&w, NULL, '{');
    json_put_text(&w, "name", c->name);
    put_nested(&w, c, NULL);
    put_channels(&w, "image_mean", c->image_mean);
    put_channels(&w, "image_std", c->image_std);
    put_resize(&w, c);
    json_end(&w);
    json_out_back(&w, s);
}

cloob_status model_config_to_open_clip(cloob_ctx *ctx, const model_config *c, const char *path, sbuf *s)
{
    json_out w = { 0 };
    char timm[64];
    bool siglip = c->no_class_token;
    if (siglip && (c->image_pool != IMAGE_POOL_MAP || !model_config_timm_name(c, timm, sizeof timm)))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip takes SigLIP's image tower from timm, which has none of these sizes (%s)", path,
                        c->name);
    if (mixed_quick(c))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip has one quick_gelu for both towers; %s has it in one", path, c->name);
    json_begin(&w, NULL, '{');
    json_begin(&w, "model_cfg", '{');
    put_nested(&w, c, siglip ? timm : NULL);
    json_end(&w);
    json_begin(&w, "preprocess_cfg", '{');
    put_channels(&w, "mean", c->image_mean);
    put_channels(&w, "std", c->image_std);
    put_resize(&w, c);
    json_end(&w);
    json_end(&w);
    json_out_append(&w, s);
    return CLOOB_OK;
}

/* ---- Hugging Face -------------------------------------------------------------------------------- */

/* Left open. */
static void begin_hf_part(json_out *w, const char *key, const char *type, const model_blocks *b, int64_t width,
                          int64_t heads, int64_t layers)
{
    static const char *const acts[] = { "quick_gelu", "gelu", "gelu_pytorch_tanh" };
    json_begin(w, key, '{');
    json_put_text(w, "model_type", type);
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

static void put_hf_siglip(json_out *w, const model_config *c)
{
    begin_hf(w, "SiglipModel", "siglip");
    begin_hf_part(w, "text_config", "siglip_text_model", &c->text, c->text_width, c->text_heads, c->text_layers);
    json_put_int(w, "max_position_embeddings", c->context);
    json_put_int(w, "vocab_size", c->vocab);
    json_put_int(w, "projection_size", c->embed);
    json_end(w);
    begin_hf_part(w, "vision_config", "siglip_vision_model", &c->image, c->width, c->image_heads, c->layers[0]);
    json_put_int(w, "image_size", c->image_size);
    json_put_int(w, "patch_size", c->patch);
    json_end(w);
    json_end(w);
}

static void put_hf_clip(json_out *w, const model_config *c)
{
    int64_t end = c->text_pool == TEXT_POOL_EOS ? c->eos : c->vocab - 1;
    bool metaclip = end == 2; /* CLIPModel takes 2 for "the largest id" */
    begin_hf(w, metaclip ? "MetaClip2Model" : "CLIPModel", metaclip ? "metaclip_2" : "clip");
    json_put_int(w, "projection_dim", c->embed);
    begin_hf_part(w, "text_config", metaclip ? "metaclip_2_text_model" : "clip_text_model", &c->text, c->text_width,
                  c->text_heads, c->text_layers);
    json_put_int(w, "projection_dim", c->embed);
    json_put_int(w, "max_position_embeddings", c->context);
    json_put_int(w, "vocab_size", c->vocab);
    if (c->text_pool == TEXT_POOL_ARGMAX) json_put_int(w, "bos_token_id", c->vocab - 2);
    json_put_int(w, "eos_token_id", end); /* its first place is the end token's: the same as argmax */
    if (c->text_pool == TEXT_POOL_ARGMAX) json_put_int(w, "pad_token_id", 0);
    json_end(w);
    begin_hf_part(w, "vision_config", metaclip ? "metaclip_2_vision_model" : "clip_vision_model", &c->image, c->width,
                  c->image_heads, c->layers[0]);
    json_put_int(w, "projection_dim", c->embed);
    json_put_int(w, "image_size", c->image_size);
    json_put_int(w, "patch_size", c->patch);
    json_end(w);
    json_end(w);
}

bool model_config_is_siglip(const model_config *c)
{
    return c->no_class_token && c->image_pool == IMAGE_POOL_MAP && c->no_ln_pre && c->no_image_projection &&
           c->no_causal_mask && c->text_projection_bias && c->text_pool == TEXT_POOL_LAST && !c->image.layer_scale &&
           !c->text.layer_scale;
}

/* What a CLIPModel cannot be; NULL: nothing. */
static const char *beyond_clip(const model_config *c)
{
    if (c->family == MODEL_RESNET) return "a ResNet";
    if (c->no_ln_pre || c->no_class_token) return "a ViT without ln_pre or class token";
    if (c->image_pool != IMAGE_POOL_CLASS || c->norm_after_pool) return "a pooling other than the class token";
    if (c->image.layer_scale || c->text.layer_scale) return "layer scale";
    if (c->no_causal_mask) return "a text tower without a causal mask";
    if (c->text_pool == TEXT_POOL_LAST || c->text_pool == TEXT_POOL_FIRST)
        return "a text read at its last or first token";
    return c->text_projection_bias || c->no_text_projection ? "another text projection" : NULL;
}

cloob_status model_config_to_hf(cloob_ctx *ctx, const model_config *c, const char *path, sbuf *s)
{
    const char *beyond = beyond_clip(c);
    json_out w = { 0 };
    if (model_config_is_siglip(c)) put_hf_siglip(&w, c);
    else if (beyond)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: Hugging Face's CLIPModel has no place for %s; %s can be written as openai or open_clip%s",
                        path, beyond, c->name, c->family == MODEL_RESNET ? ", or as jku" : "");
    else put_hf_clip(&w, c);
    json_out_append(&w, s);
    return CLOOB_OK;
}

/* ---- images -------------------------------------------------------------------------------------- */

void model_config_to_preprocess(const model_config *c, sbuf *s)
{
    json_out w = json_out_on(s);
    json_begin(&w, NULL, '{');
    json_put_int(&w, "size", c->image_size);
    put_channels(&w, "mean", c->image_mean);
    put_channels(&w, "std", c->image_std);
    json_put_text(&w, "resize", model_resize_name(c->resize));
    json_put_text(&w, "interpolation", "bicubic");
    json_end(&w);
    json_out_back(&w, s);
}

/* {"height": n, "width": n}, or {"shortest_edge": n}. */
static void put_hf_size(json_out *w, const char *key, bool shortest, int64_t n)
{
    json_begin(w, key, '{');
    json_put_int(w, shortest ? "shortest_edge" : "height", n);
    if (!shortest) json_put_int(w, "width", n);
    json_end(w);
}

void model_config_to_hf_preprocessor(const model_config *c, sbuf *s)
{
    json_out w = { 0 };
    bool siglip = model_config_is_siglip(c);
    json_begin(&w, NULL, '{');
    json_put_text(&w, "image_processor_type", siglip ? "SiglipImageProcessor" : "CLIPImageProcessor");
    if (siglip) json_put_text(&w, "processor_class", "SiglipProcessor");
    json_put_bool(&w, "do_convert_rgb", true);
    json_put_bool(&w, "do_resize", true);
    put_hf_size(&w, "size", !siglip, c->image_size);
    json_put_int(&w, "resample", 3);
    if (!siglip) {
        json_put_bool(&w, "do_center_crop", true);
        put_hf_size(&w, "crop_size", false, c->image_size);
    }
    json_put_bool(&w, "do_rescale", true);
    json_put_bool(&w, "do_normalize", true);
    put_channels(&w, "image_mean", c->image_mean);
    put_channels(&w, "image_std", c->image_std);
    json_end(&w);
    json_out_append(&w, s);
}
