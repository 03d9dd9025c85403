/* Configurations written as JSON: ours, open_clip's, Hugging Face's. */
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

static void put_vision(sbuf *s, const model_config *c)
{
    sbuf_printf(s, "\"vision_cfg\":{\"image_size\":%lld,\"layers\":", (long long)c->image_size);
    if (c->family == MODEL_VIT) sbuf_printf(s, "%lld", (long long)c->layers[0]);
    else
        sbuf_printf(s, "[%lld,%lld,%lld,%lld]", (long long)c->layers[0], (long long)c->layers[1],
                    (long long)c->layers[2], (long long)c->layers[3]);
    put_int(s, "width", c->width);
    put_int(s, "head_width", model_config_image_attention_width(c) / c->image_heads);
    if (c->family == MODEL_VIT) put_int(s, "patch_size", c->patch);
    sbuf_putc(s, '}');
}

/* What our form and open_clip's have in common, without the braces. */
static void put_nested(sbuf *s, const model_config *c)
{
    sbuf_printf(s, "\"embed_dim\":%lld,\"quick_gelu\":%s,", (long long)c->embed,
                c->act == ACT_QUICKGELU ? "true" : "false");
    put_vision(s, c);
    sbuf_printf(s, ",\"text_cfg\":{\"context_length\":%lld", (long long)c->context);
    put_int(s, "vocab_size", c->vocab);
    put_int(s, "width", c->text_width);
    put_int(s, "heads", c->text_heads);
    put_int(s, "layers", c->text_layers);
    sbuf_putc(s, '}');
}

/* Nothing for CLIP's own way, so that a plain model's text stays as every reader knows it. */
static void put_resize(sbuf *s, const model_config *c)
{
    if (c->resize != MODEL_RESIZE_SHORTEST) sbuf_printf(s, ",\"resize_mode\":\"%s\"", model_resize_name(c->resize));
}

/* ---- forms --------------------------------------------------------------------------------------- */

void model_config_to_json(const model_config *c, sbuf *s)
{
    sbuf_puts(s, "{\"name\":");
    json_put_string(s, c->name);
    sbuf_putc(s, ',');
    put_nested(s, c);
    sbuf_putc(s, ',');
    put_channels(s, "image_mean", c->image_mean);
    sbuf_putc(s, ',');
    put_channels(s, "image_std", c->image_std);
    put_resize(s, c);
    sbuf_putc(s, '}');
}

void model_config_to_open_clip(const model_config *c, sbuf *s)
{
    sbuf_puts(s, "{\"model_cfg\":{");
    put_nested(s, c);
    sbuf_puts(s, "},\"preprocess_cfg\":{");
    put_channels(s, "mean", c->image_mean);
    sbuf_putc(s, ',');
    put_channels(s, "std", c->image_std);
    put_resize(s, c);
    sbuf_puts(s, "}}\n");
}

static void put_hf_part(sbuf *s, const char *type, const model_config *c, int64_t width, int64_t heads, int64_t layers)
{
    sbuf_printf(s, "{\"model_type\":\"%s\",\"hidden_act\":\"%s\",\"layer_norm_eps\":1e-05", type,
                c->act == ACT_QUICKGELU ? "quick_gelu" : "gelu");
    put_int(s, "hidden_size", width);
    put_int(s, "intermediate_size", 4 * width);
    put_int(s, "num_attention_heads", heads);
    put_int(s, "num_hidden_layers", layers);
    put_int(s, "projection_dim", c->embed);
}

void model_config_to_hf(const model_config *c, sbuf *s)
{
    sbuf_printf(s,
                "{\"architectures\":[\"CLIPModel\"],\"model_type\":\"clip\",\"projection_dim\":%lld,\"text_config\":",
                (long long)c->embed);
    put_hf_part(s, "clip_text_model", c, c->text_width, c->text_heads, c->text_layers);
    put_int(s, "max_position_embeddings", c->context);
    put_int(s, "vocab_size", c->vocab);
    put_int(s, "bos_token_id", c->vocab - 2);
    put_int(s, "eos_token_id", c->vocab - 1); /* its first place is the end token's: the same as argmax */
    put_int(s, "pad_token_id", 0);
    sbuf_puts(s, "},\"vision_config\":");
    put_hf_part(s, "clip_vision_model", c, c->width, c->image_heads, c->layers[0]);
    put_int(s, "image_size", c->image_size);
    put_int(s, "patch_size", c->patch);
    sbuf_puts(s, "}}\n");
}

/* ---- pictures ------------------------------------------------------------------------------------ */

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
