/* Configurations written as JSON: ours, open_clip's, Hugging Face's. */
#include <math.h>
#include <string.h>

#include "model/config.h"

/* ---- parts --------------------------------------------------------------------------------------- */

static void put_channels(sbuf *s, const char *key, const double v[3])
{
    sbuf_printf(s, "\"%s\":[", key);
    for (int i = 0; i < 3; i++) {
        if (i) sbuf_putc(s, ',');
        json_put_number(s, v[i]);
    }
    sbuf_putc(s, ']');
}

static void put_int(sbuf *s, const char *key, int64_t v) { sbuf_printf(s, ",\"%s\":%lld", key, (long long)v); }

static void put_number(sbuf *s, const char *key, double v)
{
    sbuf_printf(s, ",\"%s\":", key);
    json_put_number(s, v);
}

/* The smallest ratio of four decimals whose product with the width, cut down to a whole number, is the hidden
 * layer's. */
static double mlp_ratio(int64_t width, int64_t inner) { return ceil((double)inner / (double)width * 1e4) / 1e4; }

static bool mixed_quick(const model_config *c)
{
    return c->family == MODEL_VIT && (c->image.act == ACT_QUICKGELU) != (c->text.act == ACT_QUICKGELU);
}

/* Nothing for CLIP's own way, so that a plain model's text stays as every reader knows it. */
static void put_blocks(sbuf *s, const model_config *c, const model_blocks *b, int64_t width)
{
    if (b->inner && (int64_t)((double)width * mlp_ratio(width, b->inner)) == b->inner)
        put_number(s, "mlp_ratio", mlp_ratio(width, b->inner));
    else if (b->inner) put_int(s, "intermediate_size", b->inner);
    if (b->layer_scale) put_number(s, "ls_init_value", b->layer_scale);
    if (mixed_quick(c)) sbuf_printf(s, ",\"activation\":\"%s\"", model_act_name(b->act));
    else if (b->act == ACT_GELU_TANH) sbuf_puts(s, ",\"act_kwargs\":{\"approximate\":\"tanh\"}");
    if (b->eps != 1e-5) {
        sbuf_puts(s, ",\"norm_kwargs\":{\"eps\":");
        json_put_number(s, b->eps);
        sbuf_putc(s, '}');
    }
}

static void put_flag(sbuf *s, const char *key, bool v)
{
    if (v) sbuf_printf(s, ",\"%s\":true", key);
}

static void put_pool(sbuf *s, const model_config *c)
{
    static const char *const pools[] = { "tok", "avg", "map" };
    if (c->image_pool != IMAGE_POOL_CLASS) sbuf_printf(s, ",\"pool_type\":\"%s\"", pools[c->image_pool]);
    if (c->no_class_token) sbuf_puts(s, ",\"class_token\":false");
    if (c->no_image_projection) sbuf_puts(s, ",\"proj_type\":\"none\"");
    put_flag(s, "no_ln_pre", c->no_ln_pre);
    put_flag(s, "final_ln_after_pool", c->norm_after_pool);
    if (c->patch_dropout) put_number(s, "patch_dropout", c->patch_dropout);
}

static void put_vision(sbuf *s, const model_config *c)
{
    sbuf_printf(s, "\"vision_cfg\":{\"image_size\":%lld,\"layers\":", (long long)c->image_size);
    if (c->family == MODEL_VIT) sbuf_printf(s, "%lld", (long long)c->layers[0]);
    else
        sbuf_printf(s, "[%lld,%lld,%lld,%lld]", (long long)c->layers[0], (long long)c->layers[1],
                    (long long)c->layers[2], (long long)c->layers[3]);
    put_int(s, "width", c->width);
    put_int(s, "head_width", model_config_image_attention_width(c) / c->image_heads);
    if (c->family == MODEL_VIT) {
        put_int(s, "patch_size", c->patch);
        put_blocks(s, c, &c->image, c->width);
        put_pool(s, c);
    }
    sbuf_putc(s, '}');
}

static void put_timm_vision(sbuf *s, const model_config *c, const char *name)
{
    sbuf_printf(s,
                "\"vision_cfg\":{\"image_size\":%lld,\"timm_model_name\":\"%s\",\"timm_model_pretrained\":false,"
                "\"timm_pool\":\"map\",\"timm_proj\":\"none\"}",
                (long long)c->image_size, name);
}

static void put_text(sbuf *s, const model_config *c)
{
    static const char *const pools[] = { "argmax", "eos", "last", "first" };
    sbuf_printf(s, ",\"text_cfg\":{\"context_length\":%lld", (long long)c->context);
    put_int(s, "vocab_size", c->vocab);
    put_int(s, "width", c->text_width);
    put_int(s, "heads", c->text_heads);
    put_int(s, "layers", c->text_layers);
    put_blocks(s, c, &c->text, c->text_width);
    put_flag(s, "no_causal_mask", c->no_causal_mask);
    put_flag(s, "proj_bias", c->text_projection_bias);
    if (c->no_text_projection) sbuf_puts(s, ",\"proj_type\":\"none\"");
    if (c->text_pool != TEXT_POOL_ARGMAX) sbuf_printf(s, ",\"pool_type\":\"%s\"", pools[c->text_pool]);
    if (c->text_pool == TEXT_POOL_EOS) put_int(s, "eos_id", c->eos);
    sbuf_putc(s, '}');
}

/* What our form and open_clip's have in common, without the braces. */
static void put_nested(sbuf *s, const model_config *c, const char *timm)
{
    bool quick = c->text.act == ACT_QUICKGELU && !mixed_quick(c);
    sbuf_printf(s, "\"embed_dim\":%lld,\"quick_gelu\":%s,", (long long)c->embed, quick ? "true" : "false");
    if (c->has_logit_bias) sbuf_puts(s, "\"init_logit_bias\":-10,");
    if (timm) sbuf_puts(s, "\"custom_text\":true,");
    if (timm) put_timm_vision(s, c, timm);
    else put_vision(s, c);
    put_text(s, c);
}

/* ---- forms --------------------------------------------------------------------------------------- */

/* Nothing where it is what a reader assumes: CLIP's way. Of SigLIP readers assume another. */
static void put_resize(sbuf *s, const model_config *c)
{
    if (c->resize != MODEL_RESIZE_SHORTEST || c->no_class_token)
        sbuf_printf(s, ",\"resize_mode\":\"%s\"", model_resize_name(c->resize));
}

void model_config_to_json(const model_config *c, sbuf *s)
{
    sbuf_puts(s, "{\"name\":");
    json_put_string(s, c->name);
    sbuf_putc(s, ',');
    put_nested(s, c, NULL);
    sbuf_putc(s, ',');
    put_channels(s, "image_mean", c->image_mean);
    sbuf_putc(s, ',');
    put_channels(s, "image_std", c->image_std);
    put_resize(s, c);
    sbuf_putc(s, '}');
}

cloob_status model_config_to_open_clip(cloob_ctx *ctx, const model_config *c, const char *path, sbuf *s)
{
    char timm[64];
    bool siglip = c->no_class_token;
    if (siglip && (c->image_pool != IMAGE_POOL_MAP || !model_config_timm_name(c, timm, sizeof timm)))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip takes SigLIP's image tower from timm, which has none of these sizes (%s)", path,
                        c->name);
    if (mixed_quick(c))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: open_clip has one quick_gelu for both towers; %s has it in one", path, c->name);
    sbuf_puts(s, "{\"model_cfg\":{");
    put_nested(s, c, siglip ? timm : NULL);
    sbuf_puts(s, "},\"preprocess_cfg\":{");
    put_channels(s, "mean", c->image_mean);
    sbuf_putc(s, ',');
    put_channels(s, "std", c->image_std);
    put_resize(s, c);
    sbuf_puts(s, "}}\n");
    return CLOOB_OK;
}

/* ---- Hugging Face -------------------------------------------------------------------------------- */

static void put_hf_part(sbuf *s, const char *type, const model_blocks *b, int64_t width, int64_t heads, int64_t layers)
{
    static const char *const acts[] = { "quick_gelu", "gelu", "gelu_pytorch_tanh" };
    sbuf_printf(s, "{\"model_type\":\"%s\",\"hidden_act\":\"%s\",\"layer_norm_eps\":", type, acts[b->act]);
    json_put_number(s, b->eps);
    put_int(s, "hidden_size", width);
    put_int(s, "intermediate_size", model_blocks_inner(b, width));
    put_int(s, "num_attention_heads", heads);
    put_int(s, "num_hidden_layers", layers);
}

static void put_hf_siglip(const model_config *c, sbuf *s)
{
    sbuf_puts(s, "{\"architectures\":[\"SiglipModel\"],\"model_type\":\"siglip\",\"text_config\":");
    put_hf_part(s, "siglip_text_model", &c->text, c->text_width, c->text_heads, c->text_layers);
    put_int(s, "max_position_embeddings", c->context);
    put_int(s, "vocab_size", c->vocab);
    put_int(s, "projection_size", c->embed);
    sbuf_puts(s, "},\"vision_config\":");
    put_hf_part(s, "siglip_vision_model", &c->image, c->width, c->image_heads, c->layers[0]);
    put_int(s, "image_size", c->image_size);
    put_int(s, "patch_size", c->patch);
    sbuf_puts(s, "}}\n");
}

static void put_hf_clip(const model_config *c, sbuf *s)
{
    int64_t end = c->text_pool == TEXT_POOL_EOS ? c->eos : c->vocab - 1;
    bool metaclip = end == 2; /* CLIPModel takes 2 for "the largest id" */
    sbuf_printf(s, "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",\"projection_dim\":%lld,\"text_config\":",
                metaclip ? "MetaClip2Model" : "CLIPModel", metaclip ? "metaclip_2" : "clip", (long long)c->embed);
    put_hf_part(s, metaclip ? "metaclip_2_text_model" : "clip_text_model", &c->text, c->text_width, c->text_heads,
                c->text_layers);
    put_int(s, "projection_dim", c->embed);
    put_int(s, "max_position_embeddings", c->context);
    put_int(s, "vocab_size", c->vocab);
    if (c->text_pool == TEXT_POOL_ARGMAX) put_int(s, "bos_token_id", c->vocab - 2);
    put_int(s, "eos_token_id", end); /* its first place is the end token's: the same as argmax */
    if (c->text_pool == TEXT_POOL_ARGMAX) put_int(s, "pad_token_id", 0);
    sbuf_puts(s, "},\"vision_config\":");
    put_hf_part(s, metaclip ? "metaclip_2_vision_model" : "clip_vision_model", &c->image, c->width, c->image_heads,
                c->layers[0]);
    put_int(s, "projection_dim", c->embed);
    put_int(s, "image_size", c->image_size);
    put_int(s, "patch_size", c->patch);
    sbuf_puts(s, "}}\n");
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
    if (model_config_is_siglip(c)) put_hf_siglip(c, s);
    else if (beyond)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: Hugging Face's CLIPModel has no place for %s; %s can be written as openai or open_clip%s",
                        path, beyond, c->name, c->family == MODEL_RESNET ? ", or as jku" : "");
    else put_hf_clip(c, s);
    return CLOOB_OK;
}

/* ---- images -------------------------------------------------------------------------------------- */

void model_config_to_preprocess(const model_config *c, sbuf *s)
{
    sbuf_printf(s, "{\"size\":%lld,", (long long)c->image_size);
    put_channels(s, "mean", c->image_mean);
    sbuf_putc(s, ',');
    put_channels(s, "std", c->image_std);
    sbuf_printf(s, ",\"resize\":\"%s\",\"interpolation\":\"bicubic\"}", model_resize_name(c->resize));
}

void model_config_to_hf_preprocessor(const model_config *c, sbuf *s)
{
    long long n = (long long)c->image_size;
    if (model_config_is_siglip(c))
        sbuf_printf(
            s,
            "{\"image_processor_type\":\"SiglipImageProcessor\",\"processor_class\":\"SiglipProcessor\","
            "\"do_convert_rgb\":true,\"do_resize\":true,\"size\":{\"height\":%lld,\"width\":%lld},\"resample\":3,"
            "\"do_rescale\":true,\"do_normalize\":true,",
            n, n);
    else
        sbuf_printf(s,
                    "{\"image_processor_type\":\"CLIPImageProcessor\",\"do_convert_rgb\":true,\"do_resize\":true,"
                    "\"size\":{\"shortest_edge\":%lld},\"resample\":3,\"do_center_crop\":true,"
                    "\"crop_size\":{\"height\":%lld,\"width\":%lld},\"do_rescale\":true,\"do_normalize\":true,",
                    n, n, n);
    put_channels(s, "image_mean", c->image_mean);
    sbuf_putc(s, ',');
    put_channels(s, "image_std", c->image_std);
    sbuf_puts(s, "}\n");
}
