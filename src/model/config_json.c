/* Reads configurations from JSON: nested as in open_clip and cloob, flat as in CLOOB's original code, or Hugging
 * Face's. */
#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values of a configuration's JSON -------------------------------------------------------- */

/* The readers leave *out when the key is absent or null, except need_int; all fail with one line that names source
 * and key. */
typedef struct config_reader {
    cloob_ctx *ctx;
    const char *source;
    model_config *c;
} config_reader;

static cloob_status reader_bad(const config_reader *r, const char *key, const char *wanted)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%.100s\" must be %s", r->source, key, wanted);
}

static const json *value_of(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->kind != JSON_NULL ? v : NULL;
}

static cloob_status reader_need_int(const config_reader *r, const json *object, const char *key, int64_t *out)
{
    const json *v = json_get(object, key);
    if (!v) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" is missing", r->source, key);
    return json_int(v, out) ? CLOOB_OK : reader_bad(r, key, "a whole number");
}

static cloob_status reader_int(const config_reader *r, const json *object, const char *key, int64_t *out)
{
    const json *v = value_of(object, key);
    return !v || json_int(v, out) ? CLOOB_OK : reader_bad(r, key, "a whole number");
}

static cloob_status reader_number(const config_reader *r, const json *object, const char *key, double *out)
{
    const json *v = value_of(object, key);
    if (!v) return CLOOB_OK;
    if (v->kind != JSON_NUMBER) return reader_bad(r, key, "a number");
    *out = v->number;
    return CLOOB_OK;
}

static cloob_status reader_bool(const config_reader *r, const json *object, const char *key, bool *out)
{
    const json *v = value_of(object, key);
    if (!v) return CLOOB_OK;
    if (v->kind != JSON_BOOL) return reader_bad(r, key, "true or false");
    *out = v->boolean;
    return CLOOB_OK;
}

static cloob_status reader_channels(const config_reader *r, const json *object, const char *key, double out[3])
{
    const json *v = value_of(object, key);
    if (!v) return CLOOB_OK;
    if (v->kind != JSON_ARRAY || v->count != 3) return reader_bad(r, key, "three numbers");
    int i = 0;
    for (const json *e = v->child; e; e = e->next) {
        if (e->kind != JSON_NUMBER) return reader_bad(r, key, "three numbers");
        out[i++] = e->number;
    }
    return CLOOB_OK;
}

static cloob_status reader_resize(const config_reader *r, const json *object, const char *key)
{
    const json *v = value_of(object, key);
    const char *name = json_string(v);
    if (!v || (name && model_resize_from_name(name, &r->c->resize))) return CLOOB_OK;
    return reader_bad(r, key, "shortest, longest or squash");
}

static cloob_status reader_choice(const config_reader *r, const json *object, const char *key, const char *const *names,
                                  int *out)
{
    const json *v = value_of(object, key);
    const char *name = json_string(v);
    char wanted[160] = "one of";
    if (!v) return CLOOB_OK;
    for (int i = 0; names[i]; i++) {
        if (name && strcmp(name, names[i]) == 0) {
            *out = i;
            return CLOOB_OK;
        }
        size_t n = strlen(wanted);
        snprintf(wanted + n, sizeof wanted - n, "%s \"%s\"", i ? "," : "", names[i]);
    }
    return reader_bad(r, key, wanted);
}

/* ---- Hugging Face's config.json of CLIP, MetaCLIP 2 and SigLIP ------------------------------- */

/* "clip" where the file has none. */
static const char *model_type(const json *root)
{
    const char *type = json_string(json_get(root, "model_type"));
    return type ? type : "clip";
}

static cloob_status refuse_type(const config_reader *r, const char *type)
{
    if (strcmp(type, "siglip2") == 0)
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: a SigLIP 2 NaFlex model (images of any shape); those of one fixed size are built in "
                        "(model_type siglip)",
                        r->source);
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: a model of type %.60s; of transformers' models CLIP, MetaCLIP 2 and SigLIP are built in",
                    r->source, type);
}

static cloob_status hf_read_act(const config_reader *r, const json *part, model_act *act)
{
    static const char *const names[] = { "quick_gelu", "gelu", "gelu_pytorch_tanh", "gelu_new", NULL };
    int i = *act;
    CLOOB_TRY(reader_choice(r, part, "hidden_act", names, &i));
    *act = i > ACT_GELU_TANH ? ACT_GELU_TANH : (model_act)i;
    return CLOOB_OK;
}

/* inner: the default of intermediate_size. */
static cloob_status hf_read_blocks(const config_reader *r, const json *part, int64_t width, int64_t inner,
                                   model_blocks *b)
{
    double dropout = 0;
    CLOOB_TRY(reader_int(r, part, "intermediate_size", &inner));
    if (inner < 1) return reader_bad(r, "intermediate_size", "above 0");
    b->inner = inner == 4 * width ? 0 : inner;
    CLOOB_TRY(reader_number(r, part, "layer_norm_eps", &b->eps));
    CLOOB_TRY(reader_number(r, part, "attention_dropout", &dropout));
    if (dropout != 0)
        ctx_log(r->ctx, CLOOB_LOG_WARN,
                "%s: attention_dropout of %g has no effect on embeddings, and training drops nothing", r->source,
                dropout);
    return hf_read_act(r, part, &b->act);
}

static cloob_status hf_read_vision(const config_reader *r, const json *v)
{
    model_config *c = r->c;
    CLOOB_TRY(reader_int(r, v, "image_size", &c->image_size));
    CLOOB_TRY(reader_int(r, v, "hidden_size", &c->width));
    CLOOB_TRY(reader_int(r, v, "num_hidden_layers", &c->layers[0]));
    CLOOB_TRY(reader_int(r, v, "patch_size", &c->patch));
    CLOOB_TRY(reader_int(r, v, "num_attention_heads", &c->image_heads));
    return hf_read_blocks(r, v, c->width, 3072, &c->image);
}

static cloob_status hf_read_text(const config_reader *r, const json *t, int64_t inner)
{
    model_config *c = r->c;
    CLOOB_TRY(reader_int(r, t, "max_position_embeddings", &c->context));
    CLOOB_TRY(reader_int(r, t, "vocab_size", &c->vocab));
    CLOOB_TRY(reader_int(r, t, "hidden_size", &c->text_width));
    CLOOB_TRY(reader_int(r, t, "num_attention_heads", &c->text_heads));
    CLOOB_TRY(reader_int(r, t, "num_hidden_layers", &c->text_layers));
    return hf_read_blocks(r, t, c->text_width, inner, &c->text);
}

/* CLIP reads the first end token; an id of 2 is an old file's, whose end token is the largest id. */
static cloob_status read_clip(const config_reader *r, const json *root, const json *v, const json *t, bool metaclip)
{
    model_config *c = r->c;
    int64_t eos = metaclip ? 2 : 49407;
    c->family = MODEL_VIT, c->embed = 512, c->image_size = 224, c->width = 768, c->layers[0] = 12, c->patch = 32;
    c->image_heads = 12, c->context = 77, c->vocab = 49408, c->text_width = 512, c->text_heads = 8, c->text_layers = 12;
    CLOOB_TRY(reader_int(r, root, "projection_dim", &c->embed));
    CLOOB_TRY(hf_read_vision(r, v));
    CLOOB_TRY(hf_read_text(r, t, 2048));
    CLOOB_TRY(reader_int(r, t, "eos_token_id", &eos));
    bool largest = eos == c->vocab - 1 || (eos == 2 && !metaclip) || !json_get(t, "eos_token_id");
    if (!largest || metaclip) c->text_pool = TEXT_POOL_EOS, c->eos = eos;
    return CLOOB_OK;
}

static cloob_status read_siglip(const config_reader *r, const json *v, const json *t)
{
    model_config *c = r->c;
    bool head = true;
    model_config_set_siglip(c, ACT_GELU_TANH);
    c->family = MODEL_VIT, c->image_size = 224, c->width = 768, c->layers[0] = 12, c->patch = 16, c->image_heads = 12;
    c->context = 64, c->vocab = 32000, c->text_width = 768, c->text_heads = 12, c->text_layers = 12;
    CLOOB_TRY(reader_bool(r, v, "vision_use_head", &head));
    if (!head) return reader_bad(r, "vision_use_head", "true");
    CLOOB_TRY(hf_read_vision(r, v));
    CLOOB_TRY(hf_read_text(r, t, 3072));
    c->embed = c->text_width;
    return reader_int(r, t, "projection_size", &c->embed);
}

static cloob_status config_read_hf(const config_reader *r, const json *root)
{
    const json *v = json_get(root, "vision_config"), *t = json_get(root, "text_config");
    const char *type = model_type(root);
    bool metaclip = strcmp(type, "metaclip_2") == 0;
    if (strcmp(type, "siglip") != 0 && strcmp(type, "clip") != 0 && !metaclip) return refuse_type(r, type);
    if (!v || v->kind != JSON_OBJECT) return reader_bad(r, "vision_config", "an object");
    if (!t || t->kind != JSON_OBJECT) return reader_bad(r, "text_config", "an object");
    return strcmp(type, "siglip") == 0 ? read_siglip(r, v, t) : read_clip(r, root, v, t, metaclip);
}

/* ---- open_clip's and cloob's configuration --------------------------------------------------- */

/* ---- sizes --------------------------------------------------------------------------------------- */

/* An edge, or open_clip's [height, width] of a square. */
static cloob_status take_image_size(const config_reader *r, const json *object, const char *key, int64_t *out)
{
    const json *v = json_get(object, key);
    if (!v || v->kind != JSON_ARRAY) return reader_int(r, object, key, out);
    int64_t h, w;
    if (v->count != 2 || !json_int(v->child, &h) || !json_int(v->child->next, &w) || h != w)
        return reader_bad(r, key, "one edge length (images are square)");
    *out = h;
    return CLOOB_OK;
}

/* One number: a ViT's depth. Four: blocks per stage of a ResNet. */
static cloob_status take_layers(const config_reader *r, const json *object, const char *key)
{
    const json *v = json_get(object, key);
    int64_t n = 0;
    if (!v) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" is missing", r->source, key);
    if (v->kind != JSON_ARRAY) {
        r->c->family = MODEL_VIT;
        return json_int(v, &r->c->layers[0]) ? CLOOB_OK : reader_bad(r, key, "a number, or four for a ResNet");
    }
    r->c->family = MODEL_RESNET;
    if (v->count != 4) return reader_bad(r, key, "a number, or four for a ResNet");
    for (const json *e = v->child; e; e = e->next)
        if (!json_int(e, &r->c->layers[n++])) return reader_bad(r, key, "a number, or four for a ResNet");
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

static cloob_status refuse_unknown(const config_reader *r, const json *object, const char *where,
                                   const known_key *known)
{
    for (const json *v = object->child; v; v = v->next)
        if (!harmless(v, known))
            return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                            "%s: %s\"%.100s\" is not part of the ResNets, ViTs and text transformers we have",
                            r->source, where, v->key);
    return CLOOB_OK;
}

/* clang-format off */
static const known_key top_keys[] = {
    { "name", NULL }, { "embed_dim", NULL }, { "vision_cfg", NULL }, { "text_cfg", NULL }, { "quick_gelu", NULL },
    { "image_mean", NULL }, { "image_std", NULL }, { "custom_text", NULL }, { "init_logit_scale", NULL },
    { "init_logit_bias", NULL }, { "preprocess_cfg", NULL }, { "resize_mode", NULL }, { NULL, NULL } };
static const known_key vision_keys[] = {
    { "image_size", NULL }, { "layers", NULL }, { "width", NULL }, { "patch_size", NULL }, { "head_width", NULL },
    { "mlp_ratio", NULL }, { "intermediate_size", NULL }, { "ls_init_value", NULL }, { "patch_dropout", NULL },
    { "pool_type", NULL }, { "no_ln_pre", NULL }, { "final_ln_after_pool", NULL }, { "act_kwargs", NULL },
    { "norm_kwargs", NULL }, { "activation", NULL }, { "class_token", NULL }, { "proj_type", NULL },
    { "output_tokens", NULL }, { "attn_pooler_queries", NULL }, { "attn_pooler_heads", NULL },
    { "block_type", "default" }, { "pos_embed_type", "learnable" }, { "timm_model_pretrained", NULL }, { NULL, NULL } };
static const known_key siglip_keys[] = {
    { "image_size", NULL }, { "timm_model_name", NULL }, { "timm_model_pretrained", NULL }, { "timm_pool", "map" },
    { "timm_proj", "none" }, { "patch_dropout", NULL }, { NULL, NULL } };
static const known_key text_keys[] = {
    { "context_length", NULL }, { "vocab_size", NULL }, { "width", NULL }, { "heads", NULL }, { "layers", NULL },
    { "mlp_ratio", NULL }, { "intermediate_size", NULL }, { "ls_init_value", NULL }, { "pool_type", NULL },
    { "eos_id", NULL }, { "pad_id", NULL }, { "no_causal_mask", NULL }, { "proj_bias", NULL }, { "proj_type", NULL },
    { "act_kwargs", NULL }, { "norm_kwargs", NULL }, { "activation", NULL }, { "output_tokens", NULL },
    { "hf_tokenizer_name", NULL }, { "tokenizer_kwargs", NULL }, { "tokenizer_mode", NULL },
    { "block_type", "default" }, { NULL, NULL } };
/* clang-format on */

/* ---- a tower ------------------------------------------------------------------------------------- */

/* open_clip's {"approximate": "tanh"} of a GELU, or cloob's name for any of the three. */
static cloob_status read_act(const config_reader *r, const json *tower, model_act *act)
{
    static const char *const words[] = { "none", "tanh", NULL }, *const names[] = { "quickgelu", "gelu", "gelu_tanh",
                                                                                    NULL };
    const json *kwargs = json_get(tower, "act_kwargs");
    int tanh = 0, own = *act;
    CLOOB_TRY(reader_choice(r, kwargs, "approximate", words, &tanh));
    CLOOB_TRY(reader_choice(r, tower, "activation", names, &own));
    *act = (model_act)own;
    for (const json *v = kwargs ? kwargs->child : NULL; v; v = v->next)
        if (strcmp(v->key, "approximate") != 0) return reader_bad(r, "act_kwargs", "\"approximate\" alone");
    if (tanh && *act == ACT_QUICKGELU) return reader_bad(r, "act_kwargs", "absent with \"quick_gelu\"");
    if (tanh) *act = ACT_GELU_TANH;
    return CLOOB_OK;
}

static cloob_status read_eps(const config_reader *r, const json *tower, double *eps)
{
    const json *kwargs = json_get(tower, "norm_kwargs");
    for (const json *v = kwargs ? kwargs->child : NULL; v; v = v->next)
        if (strcmp(v->key, "eps") != 0) return reader_bad(r, "norm_kwargs", "\"eps\" alone");
    return reader_number(r, kwargs, "eps", eps);
}

/* The hidden layer is int(width * mlp_ratio) wide, as in Python. */
static cloob_status read_blocks(const config_reader *r, const json *tower, int64_t width, model_blocks *b)
{
    double ratio = 4.0;
    CLOOB_TRY(reader_number(r, tower, "mlp_ratio", &ratio));
    if (!(ratio > 0 && ratio < 1e6) || width < 0 || width > 1 << 20) return reader_bad(r, "mlp_ratio", "above 0");
    b->inner = (int64_t)((double)width * ratio);
    CLOOB_TRY(reader_int(r, tower, "intermediate_size", &b->inner));
    if (b->inner == 4 * width) b->inner = 0;
    else if (b->inner < 1) return reader_bad(r, "intermediate_size", "above 0");
    CLOOB_TRY(reader_number(r, tower, "ls_init_value", &b->layer_scale));
    CLOOB_TRY(read_act(r, tower, &b->act));
    return read_eps(r, tower, &b->eps);
}

/* ---- SigLIP's image tower, which open_clip takes from timm --------------------------------------- */

typedef struct siglip_size {
    const char *name;
    int64_t width, layers, heads, inner;
} siglip_size;

static const siglip_size siglip_sizes[] = { { "base", 768, 12, 12, 0 },
                                            { "large", 1024, 24, 16, 0 },
                                            { "so400m", 1152, 27, 16, 4304 },
                                            { "giantopt", 1536, 40, 16, 0 } };

/* timm's towers that came with SigLIP 2 have the tanh GELU. */
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

static cloob_status read_timm(const config_reader *r, const json *v, const char *name)
{
    int64_t size;
    if (!siglip_from_timm(name, r->c))
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: its image tower is timm's %.80s; of timm's towers only SigLIP's (vit_*_siglip_*) are "
                        "built in, others would need their own graph",
                        r->source, name);
    size = r->c->image_size;
    CLOOB_TRY(refuse_unknown(r, v, "vision_cfg: ", siglip_keys));
    CLOOB_TRY(take_image_size(r, v, "image_size", &size));
    if (size != r->c->image_size) return reader_bad(r, "image_size", "the size in timm_model_name");
    return reader_number(r, v, "patch_dropout", &r->c->patch_dropout);
}

/* ---- the nested form ----------------------------------------------------------------------------- */

static cloob_status read_heads(const config_reader *r, const json *v)
{
    model_config *c = r->c;
    int64_t head = 64;
    CLOOB_TRY(reader_int(r, v, "head_width", &head));
    int64_t w = c->width < INT64_MAX / 32 ? model_config_image_attention_width(c) : 0;
    if (head < 1 || w < head || w % head)
        return ctx_fail(r->ctx, CLOOB_ERR_ARGUMENT,
                        "%s: image attention of width %lld does not divide into heads of %lld", r->source, (long long)w,
                        (long long)head);
    c->image_heads = w / head;
    return CLOOB_OK;
}

static cloob_status read_pool(const config_reader *r, const json *v)
{
    static const char *const pools[] = { "tok", "avg", "map", NULL }, *const projections[] = { "linear", "none", NULL };
    model_config *c = r->c;
    int pool = 0, projection = 0;
    bool class_token = true;
    CLOOB_TRY(reader_choice(r, v, "pool_type", pools, &pool));
    CLOOB_TRY(reader_choice(r, v, "proj_type", projections, &projection));
    CLOOB_TRY(reader_bool(r, v, "class_token", &class_token));
    CLOOB_TRY(reader_bool(r, v, "no_ln_pre", &c->no_ln_pre));
    CLOOB_TRY(reader_bool(r, v, "final_ln_after_pool", &c->norm_after_pool));
    c->image_pool = (model_image_pool)pool;
    c->no_image_projection = projection == 1;
    c->no_class_token = !class_token;
    if (pool == IMAGE_POOL_CLASS && !class_token)
        return reader_bad(r, "pool_type", "\"avg\" or \"map\" without a class token");
    if (pool == IMAGE_POOL_MAP && (class_token || c->norm_after_pool))
        return reader_bad(r, "pool_type", "\"map\" without class token and final_ln_after_pool");
    return reader_number(r, v, "patch_dropout", &c->patch_dropout);
}

static cloob_status read_vision(const config_reader *r, const json *v)
{
    model_config *c = r->c;
    const char *timm = json_string(json_get(v, "timm_model_name"));
    const json *pooler = json_get(v, "attentional_pool");
    if (timm) return read_timm(r, v, timm);
    if (pooler && (pooler->kind != JSON_BOOL || pooler->boolean) && pooler->kind != JSON_NULL)
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: \"attentional_pool\" is CoCa's pooling; its image tower is not built in", r->source);
    CLOOB_TRY(refuse_unknown(r, v, "vision_cfg: ", vision_keys));
    c->image_size = 224;
    CLOOB_TRY(take_image_size(r, v, "image_size", &c->image_size));
    CLOOB_TRY(take_layers(r, v, "layers"));
    CLOOB_TRY(reader_need_int(r, v, "width", &c->width));
    CLOOB_TRY(reader_int(r, v, "patch_size", &c->patch));
    CLOOB_TRY(read_heads(r, v));
    if (c->family == MODEL_RESNET) { /* open_clip writes null, or values it does not use */
        c->patch = 0;
        return CLOOB_OK;
    }
    CLOOB_TRY(read_blocks(r, v, c->width, &c->image));
    return read_pool(r, v);
}

static cloob_status read_text_end(const config_reader *r, const json *t)
{
    static const char *const pools[] = { "argmax", "eos", "last", "first", NULL }, *const projections[] = { "linear",
                                                                                                            "none",
                                                                                                            NULL };
    model_config *c = r->c;
    int pool = 0, projection = 0;
    c->no_causal_mask = c->text_projection_bias = false;
    CLOOB_TRY(reader_bool(r, t, "no_causal_mask", &c->no_causal_mask));
    CLOOB_TRY(reader_bool(r, t, "proj_bias", &c->text_projection_bias));
    CLOOB_TRY(reader_choice(r, t, "pool_type", pools, &pool));
    CLOOB_TRY(reader_choice(r, t, "proj_type", projections, &projection));
    c->text_pool = (model_text_pool)pool;
    c->no_text_projection = projection == 1;
    if (c->no_text_projection) c->text_projection_bias = false;
    c->eos = c->text_pool == TEXT_POOL_EOS ? 2 : 0;
    return c->text_pool == TEXT_POOL_EOS ? reader_int(r, t, "eos_id", &c->eos) : CLOOB_OK;
}

static cloob_status read_text(const config_reader *r, const json *t, model_act act)
{
    model_config *c = r->c;
    const char *hf = json_string(json_get(t, "hf_model_name"));
    const json *cls = json_get(t, "embed_cls");
    if (hf)
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: its text tower is transformers' %.80s; only CLIP's and SigLIP's text transformers are "
                        "built in, others would need their own graph and tokenizer",
                        r->source, hf);
    if (cls && cls->kind == JSON_BOOL && cls->boolean)
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: \"embed_cls\" is CoCa's text tower; its class token would need attention with a mask "
                        "for each text, which is not built in",
                        r->source);
    CLOOB_TRY(refuse_unknown(r, t, "text_cfg: ", text_keys));
    c->context = 77, c->vocab = 49408, c->text_width = 512, c->text_heads = 8, c->text_layers = 12;
    c->text = (model_blocks){ .act = act, .eps = 1e-5 };
    CLOOB_TRY(reader_int(r, t, "context_length", &c->context));
    CLOOB_TRY(reader_int(r, t, "vocab_size", &c->vocab));
    CLOOB_TRY(reader_int(r, t, "width", &c->text_width));
    CLOOB_TRY(reader_int(r, t, "heads", &c->text_heads));
    CLOOB_TRY(reader_int(r, t, "layers", &c->text_layers));
    CLOOB_TRY(read_blocks(r, t, c->text_width, &c->text));
    return read_text_end(r, t);
}

static cloob_status read_nested(const config_reader *r, const json *root)
{
    const json *vision = json_get(root, "vision_cfg"), *text = json_get(root, "text_cfg");
    const json *bias = json_get(root, "init_logit_bias");
    bool quick = false;
    if (json_get(root, "multimodal_cfg"))
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: a CoCa model (multimodal_cfg); its attentional pooler and text decoder are not built in",
                        r->source);
    if (!vision || vision->kind != JSON_OBJECT) return reader_bad(r, "vision_cfg", "an object");
    if (!text || text->kind != JSON_OBJECT) return reader_bad(r, "text_cfg", "an object");
    CLOOB_TRY(refuse_unknown(r, root, "", top_keys));
    CLOOB_TRY(reader_bool(r, root, "quick_gelu", &quick));
    model_config_set_act(r->c, quick ? ACT_QUICKGELU : ACT_GELU);
    CLOOB_TRY(reader_need_int(r, root, "embed_dim", &r->c->embed));
    CLOOB_TRY(read_vision(r, vision));
    CLOOB_TRY(read_text(r, text, quick ? ACT_QUICKGELU : ACT_GELU));
    r->c->has_logit_bias = bias && bias->kind == JSON_NUMBER;
    CLOOB_TRY(reader_channels(r, root, "image_mean", r->c->image_mean));
    CLOOB_TRY(reader_channels(r, root, "image_std", r->c->image_std));
    return reader_resize(r, root, "resize_mode");
}

/* ---- the flat form ------------------------------------------------------------------------------- */

static cloob_status read_flat(const config_reader *r, const json *root)
{
    model_config *c = r->c;
    CLOOB_TRY(reader_need_int(r, root, "embed_dim", &c->embed));
    CLOOB_TRY(reader_need_int(r, root, "image_resolution", &c->image_size));
    CLOOB_TRY(take_layers(r, root, "vision_layers"));
    CLOOB_TRY(reader_need_int(r, root, "vision_width", &c->width));
    if (c->family == MODEL_VIT) CLOOB_TRY(reader_need_int(r, root, "vision_patch_size", &c->patch));
    if (c->width > 0 && c->width < INT64_MAX / 32) c->image_heads = model_config_image_attention_width(c) / 64;
    CLOOB_TRY(reader_need_int(r, root, "context_length", &c->context));
    CLOOB_TRY(reader_need_int(r, root, "vocab_size", &c->vocab));
    CLOOB_TRY(reader_need_int(r, root, "transformer_width", &c->text_width));
    CLOOB_TRY(reader_need_int(r, root, "transformer_heads", &c->text_heads));
    return reader_need_int(r, root, "transformer_layers", &c->text_layers);
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

static cloob_status read_form(const config_reader *r, const json *root)
{
    const json *inner = json_get(root, "model_cfg"), *pre = json_get(root, "preprocess_cfg");
    if (inner) {
        CLOOB_TRY(read_nested(r, inner));
        CLOOB_TRY(reader_channels(r, pre, "mean", r->c->image_mean));
        CLOOB_TRY(reader_channels(r, pre, "std", r->c->image_std));
        return reader_resize(r, pre, "resize_mode");
    }
    if (json_get(root, "vision_cfg") || json_get(root, "text_cfg")) return read_nested(r, root);
    if (json_get(root, "vision_config") || json_get(root, "text_config")) return config_read_hf(r, root);
    if (json_get(root, "vision_layers")) return read_flat(r, root);
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT,
                    "%s: not a model configuration (neither vision_cfg, vision_layers nor vision_config is in it)",
                    r->source);
}

cloob_status model_config_from_json(cloob_ctx *ctx, const json *root, const char *source, model_config *c)
{
    config_reader r = { ctx, source, c };
    model_config_init(c);
    take_name(root, source, c);
    CLOOB_TRY(read_form(&r, root));
    cloob_status status = model_config_check(ctx, c);
    return status == CLOOB_OK ? status : ctx_wrap(ctx, status, "%s", source);
}
