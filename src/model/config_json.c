/* Configurations as JSON: open_clip's nested form (and ours), the authors' flat form, Hugging Face's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"

typedef struct reader {
    cloob_ctx *ctx;
    const char *source;
    model_config *c;
} reader;

/* ---- values -------------------------------------------------------------------------------------- */

static cloob_status bad(reader *r, const char *key, const char *wanted)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%.100s\" must be %s", r->source, key, wanted);
}

static cloob_status need_int(reader *r, const json *object, const char *key, int64_t *out)
{
    const json *v = json_get(object, key);
    if (!v) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" is missing", r->source, key);
    return json_int(v, out) ? CLOOB_OK : bad(r, key, "a whole number");
}

/* Leaves *out when the key is absent or null. */
static cloob_status take_int(reader *r, const json *object, const char *key, int64_t *out)
{
    const json *v = json_get(object, key);
    if (!v || v->kind == JSON_NULL) return CLOOB_OK;
    return json_int(v, out) ? CLOOB_OK : bad(r, key, "a whole number");
}

static cloob_status take_channels(reader *r, const json *object, const char *key, double out[3])
{
    const json *v = json_get(object, key);
    if (!v || v->kind == JSON_NULL) return CLOOB_OK;
    if (v->kind != JSON_ARRAY || v->count != 3) return bad(r, key, "three numbers");
    int i = 0;
    for (const json *e = v->child; e; e = e->next) {
        if (e->kind != JSON_NUMBER) return bad(r, key, "three numbers");
        out[i++] = e->number;
    }
    return CLOOB_OK;
}

static cloob_status take_resize(reader *r, const json *object, const char *key)
{
    const json *v = json_get(object, key);
    if (!v || v->kind == JSON_NULL) return CLOOB_OK;
    const char *name = json_string(v);
    return name && model_resize_from_name(name, &r->c->resize) ? CLOOB_OK : bad(r, key, "shortest, longest or squash");
}

/* An edge, or open_clip's [height, width] of a square. */
static cloob_status take_image_size(reader *r, const json *object, const char *key, int64_t *out)
{
    const json *v = json_get(object, key);
    if (!v || v->kind != JSON_ARRAY) return take_int(r, object, key, out);
    int64_t h, w;
    if (v->count != 2 || !json_int(v->child, &h) || !json_int(v->child->next, &w) || h != w)
        return bad(r, key, "one edge length (pictures are square)");
    *out = h;
    return CLOOB_OK;
}

/* One number: a ViT's depth. Four: blocks per stage of a ResNet. */
static cloob_status take_layers(reader *r, const json *object, const char *key)
{
    const json *v = json_get(object, key);
    int64_t n = 0;
    if (!v) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" is missing", r->source, key);
    if (v->kind != JSON_ARRAY) {
        r->c->family = MODEL_VIT;
        return json_int(v, &r->c->layers[0]) ? CLOOB_OK : bad(r, key, "a number, or four for a ResNet");
    }
    r->c->family = MODEL_RESNET;
    if (v->count != 4) return bad(r, key, "a number, or four for a ResNet");
    for (const json *e = v->child; e; e = e->next)
        if (!json_int(e, &r->c->layers[n++])) return bad(r, key, "a number, or four for a ResNet");
    return CLOOB_OK;
}

/* ---- what we do not have must not be passed over ------------------------------------------------- */

/* Keys that are read, and keys whose one value means the architecture we have; NULL ends. */
typedef struct known_key {
    const char *key, *value; /* value NULL: read elsewhere, or without effect on the weights */
} known_key;

static bool harmless(const json *v, const known_key *known)
{
    for (; known->key; known++)
        if (strcmp(known->key, v->key) == 0)
            return !known->value || (v->text && (v->kind == JSON_NUMBER ? strtod(known->value, NULL) == v->number
                                                                        : strcmp(known->value, v->text) == 0));
    /* an unknown feature that is switched off */
    return v->kind == JSON_NULL || (v->kind == JSON_BOOL && !v->boolean) || (v->kind == JSON_NUMBER && v->number == 0);
}

static cloob_status refuse_unknown(reader *r, const json *object, const char *where, const known_key *known)
{
    for (const json *v = object->child; v; v = v->next)
        if (!harmless(v, known))
            return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                            "%s: %s\"%.100s\" is not part of CLIP's ResNets, ViTs and text transformer", r->source,
                            where, v->key);
    return CLOOB_OK;
}

static const known_key top_keys[] = { { "name", NULL },           { "embed_dim", NULL },   { "vision_cfg", NULL },
                                      { "text_cfg", NULL },       { "quick_gelu", NULL },  { "image_mean", NULL },
                                      { "image_std", NULL },      { "custom_text", NULL }, { "init_logit_scale", NULL },
                                      { "preprocess_cfg", NULL }, { "resize_mode", NULL }, { NULL, NULL } };
static const known_key vision_keys[] = { { "image_size", NULL },
                                         { "layers", NULL },
                                         { "width", NULL },
                                         { "patch_size", NULL },
                                         { "head_width", NULL },
                                         { "mlp_ratio", "4.0" },
                                         { "patch_dropout", NULL },
                                         { "pool_type", "tok" },
                                         { "pos_embed_type", "learnable" },
                                         { "timm_model_pretrained", NULL },
                                         { NULL, NULL } };
static const known_key text_keys[] = { { "context_length", NULL }, { "vocab_size", NULL },
                                       { "width", NULL },          { "heads", NULL },
                                       { "layers", NULL },         { "mlp_ratio", "4.0" },
                                       { "pool_type", "argmax" },  { "proj_type", "linear" },
                                       { "pad_id", NULL },         { NULL, NULL } };

/* ---- the forms ----------------------------------------------------------------------------------- */

static cloob_status read_vision(reader *r, const json *v)
{
    model_config *c = r->c;
    int64_t head = 64;
    if (json_get(v, "timm_model_name"))
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED, "%s: image towers from timm are not supported", r->source);
    CLOOB_TRY(refuse_unknown(r, v, "vision_cfg: ", vision_keys));
    c->image_size = 224;
    CLOOB_TRY(take_image_size(r, v, "image_size", &c->image_size));
    CLOOB_TRY(take_layers(r, v, "layers"));
    CLOOB_TRY(need_int(r, v, "width", &c->width));
    CLOOB_TRY(take_int(r, v, "patch_size", &c->patch));
    if (c->family == MODEL_RESNET) c->patch = 0; /* open_clip writes null, or a number it does not use */
    CLOOB_TRY(take_int(r, v, "head_width", &head));
    int64_t w = c->width < INT64_MAX / 32 ? model_config_image_attention_width(c) : 0;
    if (head < 1 || w < head || w % head)
        return ctx_fail(r->ctx, CLOOB_ERR_ARGUMENT,
                        "%s: image attention of width %lld does not divide into heads of %lld", r->source, (long long)w,
                        (long long)head);
    c->image_heads = w / head;
    return CLOOB_OK;
}

static cloob_status read_text(reader *r, const json *t)
{
    model_config *c = r->c;
    if (json_get(t, "hf_model_name"))
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED, "%s: text towers from transformers are not supported",
                        r->source);
    CLOOB_TRY(refuse_unknown(r, t, "text_cfg: ", text_keys));
    c->context = 77, c->vocab = 49408, c->text_width = 512, c->text_heads = 8, c->text_layers = 12;
    CLOOB_TRY(take_int(r, t, "context_length", &c->context));
    CLOOB_TRY(take_int(r, t, "vocab_size", &c->vocab));
    CLOOB_TRY(take_int(r, t, "width", &c->text_width));
    CLOOB_TRY(take_int(r, t, "heads", &c->text_heads));
    return take_int(r, t, "layers", &c->text_layers);
}

static cloob_status read_nested(reader *r, const json *root)
{
    const json *vision = json_get(root, "vision_cfg"), *text = json_get(root, "text_cfg");
    const json *quick = json_get(root, "quick_gelu");
    if (!vision || vision->kind != JSON_OBJECT) return bad(r, "vision_cfg", "an object");
    if (!text || text->kind != JSON_OBJECT) return bad(r, "text_cfg", "an object");
    CLOOB_TRY(refuse_unknown(r, root, "", top_keys));
    if (quick && quick->kind != JSON_BOOL && quick->kind != JSON_NULL) return bad(r, "quick_gelu", "true or false");
    r->c->act = quick && quick->boolean ? ACT_QUICKGELU : ACT_GELU;
    CLOOB_TRY(need_int(r, root, "embed_dim", &r->c->embed));
    CLOOB_TRY(take_channels(r, root, "image_mean", r->c->image_mean));
    CLOOB_TRY(take_channels(r, root, "image_std", r->c->image_std));
    CLOOB_TRY(take_resize(r, root, "resize_mode"));
    CLOOB_TRY(read_vision(r, vision));
    return read_text(r, text);
}

static cloob_status read_flat(reader *r, const json *root)
{
    model_config *c = r->c;
    CLOOB_TRY(need_int(r, root, "embed_dim", &c->embed));
    CLOOB_TRY(need_int(r, root, "image_resolution", &c->image_size));
    CLOOB_TRY(take_layers(r, root, "vision_layers"));
    CLOOB_TRY(need_int(r, root, "vision_width", &c->width));
    if (c->family == MODEL_VIT) CLOOB_TRY(need_int(r, root, "vision_patch_size", &c->patch));
    if (c->width > 0 && c->width < INT64_MAX / 32) c->image_heads = model_config_image_attention_width(c) / 64;
    CLOOB_TRY(need_int(r, root, "context_length", &c->context));
    CLOOB_TRY(need_int(r, root, "vocab_size", &c->vocab));
    CLOOB_TRY(need_int(r, root, "transformer_width", &c->text_width));
    CLOOB_TRY(need_int(r, root, "transformer_heads", &c->text_heads));
    return need_int(r, root, "transformer_layers", &c->text_layers);
}

static cloob_status hf_act(reader *r, const json *part, model_act *act)
{
    const json *v = json_get(part, "hidden_act");
    const char *name = v ? json_string(v) : "quick_gelu";
    if (name && strcmp(name, "quick_gelu") == 0) *act = ACT_QUICKGELU;
    else if (name && strcmp(name, "gelu") == 0) *act = ACT_GELU;
    else return bad(r, "hidden_act", "\"quick_gelu\" or \"gelu\"");
    return CLOOB_OK;
}

static cloob_status hf_mlp(reader *r, const json *part, int64_t width, int64_t fallback)
{
    int64_t inner = fallback;
    CLOOB_TRY(take_int(r, part, "intermediate_size", &inner));
    if (inner == 4 * width) return CLOOB_OK;
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: intermediate_size of %lld beside a width of %lld; CLIP has 4 times", r->source,
                    (long long)inner, (long long)width);
}

/* Defaults are those of transformers' CLIPConfig, which leaves out of the file what equals them. */
static cloob_status read_hf(reader *r, const json *root)
{
    const json *v = json_get(root, "vision_config"), *t = json_get(root, "text_config");
    model_config *c = r->c;
    model_act text_act;
    if (!v || v->kind != JSON_OBJECT) return bad(r, "vision_config", "an object");
    if (!t || t->kind != JSON_OBJECT) return bad(r, "text_config", "an object");
    c->family = MODEL_VIT, c->embed = 512, c->image_size = 224, c->width = 768, c->layers[0] = 12, c->patch = 32;
    c->image_heads = 12, c->context = 77, c->vocab = 49408, c->text_width = 512, c->text_heads = 8, c->text_layers = 12;
    CLOOB_TRY(take_int(r, root, "projection_dim", &c->embed));
    CLOOB_TRY(take_int(r, v, "image_size", &c->image_size));
    CLOOB_TRY(take_int(r, v, "hidden_size", &c->width));
    CLOOB_TRY(take_int(r, v, "num_hidden_layers", &c->layers[0]));
    CLOOB_TRY(take_int(r, v, "patch_size", &c->patch));
    CLOOB_TRY(take_int(r, v, "num_attention_heads", &c->image_heads));
    CLOOB_TRY(take_int(r, t, "max_position_embeddings", &c->context));
    CLOOB_TRY(take_int(r, t, "vocab_size", &c->vocab));
    CLOOB_TRY(take_int(r, t, "hidden_size", &c->text_width));
    CLOOB_TRY(take_int(r, t, "num_attention_heads", &c->text_heads));
    CLOOB_TRY(take_int(r, t, "num_hidden_layers", &c->text_layers));
    CLOOB_TRY(hf_mlp(r, v, c->width, 3072));
    CLOOB_TRY(hf_mlp(r, t, c->text_width, 2048));
    CLOOB_TRY(hf_act(r, v, &c->act));
    CLOOB_TRY(hf_act(r, t, &text_act));
    return text_act == c->act ? CLOOB_OK : bad(r, "hidden_act", "the same in both towers");
}

/* ---- entry points -------------------------------------------------------------------------------- */

/* The file's own word, else the file's name without folder and ending. */
static void take_name(const json *root, const char *source, model_config *c)
{
    const char *name = json_string(json_get(root, "name")), *slash = strrchr(source, '/');
    if (!name) name = slash ? slash + 1 : source;
    snprintf(c->name, sizeof c->name, "%.60s", name);
    char *end = strstr(c->name, ".json");
    if (end) *end = '\0';
}

static cloob_status read_form(reader *r, const json *root)
{
    const json *inner = json_get(root, "model_cfg"), *pre = json_get(root, "preprocess_cfg");
    if (inner) {
        CLOOB_TRY(take_channels(r, pre, "mean", r->c->image_mean));
        CLOOB_TRY(take_channels(r, pre, "std", r->c->image_std));
        CLOOB_TRY(take_resize(r, pre, "resize_mode"));
        return read_nested(r, inner);
    }
    if (json_get(root, "vision_cfg") || json_get(root, "text_cfg")) return read_nested(r, root);
    if (json_get(root, "vision_config") || json_get(root, "text_config")) return read_hf(r, root);
    if (json_get(root, "vision_layers")) return read_flat(r, root);
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT,
                    "%s: not a model configuration (neither vision_cfg, vision_layers nor vision_config is in it)",
                    r->source);
}

cloob_status model_config_from_json(cloob_ctx *ctx, const json *root, const char *source, model_config *c)
{
    reader r = { ctx, source, c };
    model_config_init(c);
    take_name(root, source, c);
    CLOOB_TRY(read_form(&r, root));
    cloob_status status = model_config_check(ctx, c);
    return status == CLOOB_OK ? status : ctx_wrap(ctx, status, "%s", source);
}
