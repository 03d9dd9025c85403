/* Reads configurations from JSON: nested as in open_clip and cloob, flat as in CLOOB's original code, or Hugging
 * Face's. */
#include "model/config_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

/* ---- Hugging Face's config.json of CLIP, MetaCLIP 2 and SigLIP ------------------------------- */

/* "clip" where the file has none. */
static const char *model_type(const json *root)
{
    const char *type = json_string(json_get(root, "model_type"));
    return type ? type : "clip";
}

static cloob_status refuse_type(const config_reader *r, const char *type)
{
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: a model of type %.60s; of transformers' models CLIP, MetaCLIP 2, SigLIP, Chinese-CLIP and "
                    "M-CLIP are built in",
                    r->source, type);
}

static cloob_status read_bert_name(const config_reader *r, const char *name)
{
    if (model_config_bert_by_name(name, r->c)) return CLOOB_OK;
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: its text tower is transformers' %.80s; CLIP's and SigLIP's text transformers, BERT, RoBERTa "
                    "and XLM-RoBERTa are built in, others would need their own graph and tokenizer",
                    r->source, name);
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

/* SigLIP 2 NaFlex: num_patches is the number of positions; how many patches an image has is its processor's choice. */
static cloob_status read_naflex(const config_reader *r, const json *v)
{
    enum { PATCHES = 256 }; /* of both, where the file has none */
    int64_t positions = PATCHES, side = 1;
    CLOOB_TRY(reader_int(r, v, "num_patches", &positions));
    while (side * side < positions && side < 1 << 10) side++;
    if (side * side != positions) return reader_bad(r, "num_patches", "a square number");
    model_config_set_naflex(r->c, side, PATCHES);
    r->c->view.filter = RESIZE_BILINEAR;
    return CLOOB_OK;
}

/* A part of files from 2022 is in a second object, which transformers applies over the first. */
static const json *hf_part(const json *root, const char *key, const char *dict)
{
    return reader_value(root, dict) ? json_get(root, dict) : json_get(root, key);
}

static cloob_status read_hf_bert(const config_reader *r, const json *t)
{
    model_config *c = r->c;
    c->context = 512, c->vocab = 30522, c->text_width = 768, c->text_heads = 12, c->text_layers = 12;
    model_config_set_bert(c);
    c->bert.types = 2;
    CLOOB_TRY(hf_read_text(r, t, 3072));
    CLOOB_TRY(reader_int(r, t, "type_vocab_size", &c->bert.types));
    CLOOB_TRY(reader_int(r, t, "pad_token_id", &c->bert.pad));
    c->bert.positions = c->context;
    return CLOOB_OK;
}

/* Chinese-CLIP: CLIP's image tower and a BERT read at its first token. */
static cloob_status read_chinese(const config_reader *r, const json *root, const json *v, const json *t)
{
    model_config *c = r->c;
    c->family = MODEL_VIT, c->embed = 512, c->image_size = 224, c->width = 768, c->layers[0] = 12, c->patch = 32;
    c->image_heads = 12;
    CLOOB_TRY(reader_int(r, root, "projection_dim", &c->embed));
    CLOOB_TRY(hf_read_vision(r, v));
    return read_hf_bert(r, t);
}

/* rinna's Japanese CLIP and CLOOB: transformers' ViT and a RoBERTa, both read at the first token. Positions of texts
 * are counted from 0, and images are resized as by torchvision, bilinear. */
static cloob_status read_rinna(const config_reader *r, const json *root, const json *v, const json *t)
{
    model_config *c = r->c;
    enum { CONTEXT = 77 }; /* of rinna's tokenize() */
    bool qkv_bias = true;
    if (strcmp(model_type(v), "vit") != 0) return refuse_type(r, model_type(v));
    if (strcmp(model_type(t), "roberta") != 0 && strcmp(model_type(t), "bert") != 0)
        return refuse_type(r, model_type(t));
    model_config_set_act(c, ACT_GELU);
    c->family = MODEL_VIT, c->embed = 512, c->image_size = 224, c->width = 768, c->layers[0] = 12, c->patch = 16;
    c->image_heads = 12, c->image.eps = 1e-12, c->no_ln_pre = c->patch_bias = true;
    CLOOB_TRY(reader_int(r, root, "projection_dim", &c->embed));
    CLOOB_TRY(reader_bool(r, v, "qkv_bias", &qkv_bias));
    if (!qkv_bias) return reader_bad(r, "qkv_bias", "true");
    CLOOB_TRY(hf_read_vision(r, v));
    c->bert.pad = strcmp(model_type(t), "roberta") == 0;
    CLOOB_TRY(read_hf_bert(r, t));
    if (c->context > CONTEXT) c->context = CONTEXT;
    c->view.filter = RESIZE_BILINEAR;
    return CLOOB_OK;
}

/* M-CLIP: a BERT by its name, the mean of its tokens and a matrix with a bias; no image tower. */
static cloob_status read_mclip(const config_reader *r, const json *root)
{
    const char *base = json_string(json_get(root, "modelBase"));
    model_config *c = r->c;
    if (!base) return reader_bad(r, "modelBase", "the name of a BERT");
    CLOOB_TRY(read_bert_name(r, base));
    CLOOB_TRY(reader_need_int(r, root, "numDims", &c->embed));
    c->context = c->bert.positions - c->bert.first;
    c->text_pool = TEXT_POOL_MEAN, c->text_projection_bias = c->no_image_tower = true;
    return CLOOB_OK;
}

/* The folder of one tower: its values are in the root. */
static cloob_status read_hf_tower(const config_reader *r, const json *root, const char *type)
{
    bool text = text_ends_with(type, "_text_model");
    const json *v = text ? NULL : root, *t = text ? root : NULL;
    model_config *c = r->c;
    c->no_image_tower = text, c->no_text_tower = !text;
    if (strncmp(type, "siglip", 6) != 0) return read_clip(r, root, v, t, strncmp(type, "metaclip_2_", 11) == 0);
    CLOOB_TRY(read_siglip(r, v, t));
    if (!text) c->embed = c->width;
    return !text && strncmp(type, "siglip2_", 8) == 0 ? read_naflex(r, v) : CLOOB_OK;
}

static bool is_hf_tower(const char *type)
{
    static const char *const kinds[] = { "clip", "metaclip_2", "siglip", "siglip2" };
    char name[64];
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "%s_%s_model", kinds[i / 2], i % 2 ? "text" : "vision");
        if (strcmp(type, name) == 0) return true;
    }
    return false;
}

static cloob_status config_read_hf(const config_reader *r, const json *root)
{
    const json *v = hf_part(root, "vision_config", "vision_config_dict");
    const json *t = hf_part(root, "text_config", "text_config_dict");
    const char *type = model_type(root);
    if (is_hf_tower(type)) return read_hf_tower(r, root, type);
    if (strcmp(type, "M-CLIP") == 0) return read_mclip(r, root);
    bool metaclip = strcmp(type, "metaclip_2") == 0, chinese = strcmp(type, "chinese_clip") == 0;
    bool rinna = strcmp(type, "cloob") == 0 || (strcmp(type, "clip") == 0 && v && strcmp(model_type(v), "vit") == 0);
    bool naflex = strcmp(type, "siglip2") == 0;
    if (strcmp(type, "siglip") != 0 && strcmp(type, "clip") != 0 && !naflex && !metaclip && !chinese && !rinna)
        return refuse_type(r, type);
    if (!v || v->kind != JSON_OBJECT) return reader_bad(r, "vision_config", "an object");
    if (!t || t->kind != JSON_OBJECT) return reader_bad(r, "text_config", "an object");
    if (rinna) return read_rinna(r, root, v, t);
    if (chinese) return read_chinese(r, root, v, t);
    if (naflex) {
        CLOOB_TRY(read_siglip(r, v, t));
        return read_naflex(r, v);
    }
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
    if (v->count != (json_get(object, "fastvit") && v->count == 5 ? 5 : 4))
        return reader_bad(r, key, "a number, or four for a ResNet");
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
    { "init_logit_bias", NULL }, { "preprocess_cfg", NULL }, { "resize_mode", NULL }, { "interpolation", NULL },
    { "fill_color", NULL }, { "resize_size", NULL }, { "preprocess_of", NULL }, { NULL, NULL } };
static const known_key vision_keys[] = {
    { "image_size", NULL }, { "layers", NULL }, { "width", NULL }, { "patch_size", NULL }, { "head_width", NULL },
    { "mlp_ratio", NULL }, { "intermediate_size", NULL }, { "ls_init_value", NULL }, { "patch_dropout", NULL },
    { "pool_type", NULL }, { "no_ln_pre", NULL }, { "final_ln_after_pool", NULL }, { "act_kwargs", NULL },
    { "norm_kwargs", NULL }, { "activation", NULL }, { "class_token", NULL }, { "proj_type", NULL },
    { "output_tokens", NULL }, { "attn_pooler_queries", NULL }, { "attn_pooler_heads", NULL },
    { "block_type", "default" }, { "pos_embed_type", "learnable" }, { "timm_model_pretrained", NULL },
    { "timm", NULL }, { "patch_bias", NULL }, { "no_ln_post", NULL }, { "block_norm", NULL }, { "swiglu", NULL },
    { "inner_norms", NULL }, { "no_key_bias", NULL }, { "rope_grid", NULL }, { "rope_offset", NULL },
    { "rope_swapped", NULL }, { "proj_bias", NULL }, { "proj_hidden", NULL }, { "pool_heads", NULL },
    { "pool_intermediate_size", NULL }, { "convnext", NULL }, { "fastvit", NULL }, { "patch_stem", NULL },
    { "position_side", NULL }, { "max_patches", NULL }, { NULL, NULL } };
static const known_key timm_keys[] = {
    { "image_size", NULL }, { "timm_model_name", NULL }, { "timm_model_pretrained", NULL }, { "timm_pool", NULL },
    { "timm_proj", NULL }, { "timm_drop", NULL }, { "timm_drop_path", NULL }, { "patch_dropout", NULL },
    { NULL, NULL } };
static const known_key text_keys[] = {
    { "context_length", NULL }, { "vocab_size", NULL }, { "width", NULL }, { "heads", NULL }, { "layers", NULL },
    { "mlp_ratio", NULL }, { "intermediate_size", NULL }, { "ls_init_value", NULL }, { "pool_type", NULL },
    { "eos_id", NULL }, { "pad_id", NULL }, { "no_causal_mask", NULL }, { "proj_bias", NULL }, { "proj_type", NULL },
    { "act_kwargs", NULL }, { "norm_kwargs", NULL }, { "activation", NULL }, { "output_tokens", NULL },
    { "hf_tokenizer_name", NULL }, { "tokenizer_kwargs", NULL }, { "tokenizer_mode", NULL },
    { "no_ln_final", NULL }, { "mask_queries", NULL },
    { "block_type", "default" }, { NULL, NULL } };
static const known_key bert_keys[] = {
    { "hf_model_name", NULL }, { "hf_tokenizer_name", NULL }, { "hf_model_pretrained", NULL },
    { "hf_pooler_type", NULL }, { "hf_proj_type", NULL }, { "context_length", NULL }, { "bert", NULL },
    { "vocab_size", NULL }, { "width", NULL }, { "heads", NULL }, { "layers", NULL }, { "mlp_ratio", NULL },
    { "intermediate_size", NULL }, { "norm_kwargs", NULL }, { "act_kwargs", NULL }, { "activation", NULL },
    { "tokenizer_kwargs", NULL }, { "output_tokens", NULL }, { "proj_bias", NULL }, { NULL, NULL } };
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

/* ---- image towers of timm -------------------------------------------------------------------------- */

/* timm_pool is the tower's own pooling, by its own name; "" leaves it alone. */
static cloob_status read_timm(const config_reader *r, const json *v, const char *name)
{
    static const char *const pools[] = { "token", "avg", "map" };
    model_config *c = r->c;
    const char *pool = json_string(json_get(v, "timm_pool")), *projection = json_string(json_get(v, "timm_proj"));
    if (!model_config_from_timm(name, c))
        return ctx_fail(
            r->ctx, CLOOB_ERR_UNSUPPORTED,
            "%s: its image tower is timm's %.80s; of timm's towers ConvNeXt, EVA, PE-Core, MobileCLIP's, SigLIP's and "
            "plain ViTs are built in, others would need their own graph",
            r->source, name);
    int64_t size = c->image_size;
    CLOOB_TRY(refuse_unknown(r, v, "vision_cfg: ", timm_keys));
    CLOOB_TRY(take_image_size(r, v, "image_size", &size));
    if (size != c->image_size && c->family == MODEL_VIT)
        return reader_bad(r, "image_size", "the size in timm_model_name");
    c->image_size = size;
    if (pool && pool[0] && c->family == MODEL_VIT && strcmp(pool, pools[c->image_pool]) != 0)
        return reader_bad(r, "timm_pool", pools[c->image_pool]);
    if (pool && pool[0] && c->family == MODEL_FASTVIT && strcmp(pool, "avg") != 0)
        return reader_bad(r, "timm_pool", "avg");
    if (!model_config_set_timm_projection(c, projection))
        return reader_bad(r, "timm_proj", "linear, mlp, none or null");
    return reader_number(r, v, "patch_dropout", &c->patch_dropout);
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
    c->patch_bias = !class_token;
    CLOOB_TRY(reader_bool(r, v, "patch_bias", &c->patch_bias));
    if (pool == IMAGE_POOL_CLASS && !class_token)
        return reader_bad(r, "pool_type", "\"avg\" or \"map\" without a class token");
    if (pool == IMAGE_POOL_MAP && c->norm_after_pool)
        return reader_bad(r, "pool_type", "\"map\" without final_ln_after_pool");
    return reader_number(r, v, "patch_dropout", &c->patch_dropout);
}

/* What only towers of timm have, under cloob's own keys. */
static cloob_status read_projection(const config_reader *r, const json *v)
{
    static const char *const norms[] = { "before", "after", "branch", NULL };
    model_config *c = r->c;
    model_blocks *b = &c->image;
    int norm = b->norm;
    CLOOB_TRY(reader_bool(r, v, "no_ln_post", &c->no_ln_post));
    CLOOB_TRY(reader_bool(r, v, "proj_bias", &c->image_projection_bias));
    CLOOB_TRY(reader_int(r, v, "proj_hidden", &c->image_projection_hidden));
    CLOOB_TRY(reader_choice(r, v, "block_norm", norms, &norm));
    b->norm = (model_norm)norm;
    CLOOB_TRY(reader_bool(r, v, "swiglu", &b->swiglu));
    CLOOB_TRY(reader_bool(r, v, "inner_norms", &b->inner_norms));
    CLOOB_TRY(reader_bool(r, v, "no_key_bias", &b->no_key_bias));
    CLOOB_TRY(reader_number(r, v, "rope_grid", &b->rope_grid));
    CLOOB_TRY(reader_number(r, v, "rope_offset", &b->rope_offset));
    CLOOB_TRY(reader_bool(r, v, "rope_swapped", &b->rope_swapped));
    CLOOB_TRY(reader_int(r, v, "pool_heads", &c->pool_heads));
    CLOOB_TRY(reader_int(r, v, "position_side", &c->position_side));
    CLOOB_TRY(reader_int(r, v, "max_patches", &c->view.patches));
    if (c->position_side) model_config_set_naflex(c, c->position_side, c->view.patches);
    return reader_int(r, v, "pool_intermediate_size", &c->pool_inner);
}

static cloob_status read_vision(const config_reader *r, const json *v)
{
    model_config *c = r->c;
    const char *timm = json_string(json_get(v, "timm_model_name"));
    const json *pooler = json_get(v, "attentional_pool");
    bool convnext = false, fastvit = false;
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
    CLOOB_TRY(reader_bool(r, v, "convnext", &convnext));
    CLOOB_TRY(reader_bool(r, v, "fastvit", &fastvit));
    CLOOB_TRY(reader_bool(r, v, "patch_stem", &c->patch_stem));
    if ((convnext || fastvit) && c->family == MODEL_RESNET)
        c->family = convnext ? MODEL_CONVNEXT : MODEL_FASTVIT, c->image_heads = 1;
    else CLOOB_TRY(read_heads(r, v));
    const char *own = json_string(json_get(v, "timm")); /* next to the sizes, in cloob's files */
    if (own) snprintf(c->timm, sizeof c->timm, "%s", own);
    if (c->family == MODEL_RESNET) { /* open_clip writes null, or values it does not use */
        c->patch = 0;
        return CLOOB_OK;
    }
    CLOOB_TRY(read_blocks(r, v, c->width, &c->image));
    CLOOB_TRY(read_projection(r, v));
    return c->family == MODEL_VIT ? read_pool(r, v) : CLOOB_OK;
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

/* ---- a text tower of transformers ------------------------------------------------------------ */

/* The sizes of a tower whose name is not known, or may not be: cloob's own files have them. */
static cloob_status read_bert_sizes(const config_reader *r, const json *t, const json *sizes)
{
    model_config *c = r->c;
    model_config_set_bert(c);
    c->text.eps = 1e-5;
    CLOOB_TRY(reader_int(r, t, "vocab_size", &c->vocab));
    CLOOB_TRY(reader_int(r, t, "width", &c->text_width));
    CLOOB_TRY(reader_int(r, t, "heads", &c->text_heads));
    CLOOB_TRY(reader_int(r, t, "layers", &c->text_layers));
    CLOOB_TRY(read_blocks(r, t, c->text_width, &c->text));
    CLOOB_TRY(reader_need_int(r, sizes, "positions", &c->bert.positions));
    CLOOB_TRY(reader_int(r, sizes, "first_position", &c->bert.first));
    CLOOB_TRY(reader_need_int(r, sizes, "token_types", &c->bert.types));
    CLOOB_TRY(reader_int(r, sizes, "pad_id", &c->bert.pad));
    return c->bert.positions > 0 ? CLOOB_OK : reader_bad(r, "positions", "above 0");
}

static cloob_status read_bert(const config_reader *r, const json *t, const char *name)
{
    static const char *const poolers[] = { "mean_pooler", "cls_pooler", "cls_last_hidden_state_pooler", NULL },
                             *const projections[] = { "mlp", "linear", NULL };
    model_config *c = r->c;
    const json *sizes = json_get(t, "bert"), *projects = json_get(t, "hf_proj_type");
    int pooler = 0, projection = 0;
    CLOOB_TRY(refuse_unknown(r, t, "text_cfg: ", bert_keys));
    c->context = 77;
    if (sizes) CLOOB_TRY(read_bert_sizes(r, t, sizes));
    else CLOOB_TRY(read_bert_name(r, name));
    snprintf(c->bert.name, sizeof c->bert.name, "%s", name);
    CLOOB_TRY(reader_int(r, t, "context_length", &c->context));
    CLOOB_TRY(reader_choice(r, t, "hf_pooler_type", poolers, &pooler));
    CLOOB_TRY(reader_choice(r, t, "hf_proj_type", projections, &projection));
    c->text_pool = pooler ? TEXT_POOL_FIRST : TEXT_POOL_MEAN;
    c->bert.pooler = pooler == 1;
    c->no_text_projection = projects && projects->kind == JSON_NULL;
    c->text_projection_hidden = projection == 0 && !c->no_text_projection ? (c->text_width + c->embed) / 2 : 0;
    return reader_bool(r, t, "proj_bias", &c->text_projection_bias);
}

static cloob_status read_text(const config_reader *r, const json *t, model_act act)
{
    model_config *c = r->c;
    const char *hf = json_string(json_get(t, "hf_model_name"));
    const json *cls = json_get(t, "embed_cls");
    if (hf) return read_bert(r, t, hf);
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
    CLOOB_TRY(reader_bool(r, t, "no_ln_final", &c->no_ln_final));
    CLOOB_TRY(reader_bool(r, t, "mask_queries", &c->mask_queries));
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
    r->c->no_image_tower = vision && vision->kind == JSON_NULL && text && text->kind != JSON_NULL;
    r->c->no_text_tower = text && text->kind == JSON_NULL && vision && vision->kind != JSON_NULL;
    if (!r->c->no_image_tower && (!vision || vision->kind != JSON_OBJECT))
        return reader_bad(r, "vision_cfg", "an object");
    if (!r->c->no_text_tower && (!text || text->kind != JSON_OBJECT)) return reader_bad(r, "text_cfg", "an object");
    CLOOB_TRY(refuse_unknown(r, root, "", top_keys));
    CLOOB_TRY(reader_bool(r, root, "quick_gelu", &quick));
    model_config_set_act(r->c, quick ? ACT_QUICKGELU : ACT_GELU);
    CLOOB_TRY(reader_need_int(r, root, "embed_dim", &r->c->embed));
    if (!r->c->no_image_tower) CLOOB_TRY(read_vision(r, vision));
    if (!r->c->no_text_tower) CLOOB_TRY(read_text(r, text, quick ? ACT_QUICKGELU : ACT_GELU));
    r->c->has_logit_bias = bias && bias->kind == JSON_NUMBER;
    return preprocess_read_own(r, root);
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
    const json *inner = json_get(root, "model_cfg");
    if (inner) {
        CLOOB_TRY(read_nested(r, inner));
        return preprocess_read_open_clip(r, json_get(root, "preprocess_cfg"));
    }
    if (json_get(root, "vision_cfg") || json_get(root, "text_cfg")) return read_nested(r, root);
    if (json_get(root, "vision_config") || json_get(root, "text_config") || json_get(root, "modelBase") ||
        is_hf_tower(model_type(root)))
        return config_read_hf(r, root);
    if (json_get(root, "vision_layers")) return read_flat(r, root);
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT,
                    "%s: not a model configuration (neither vision_cfg, vision_layers nor vision_config is in it)",
                    r->source);
}

/* Sizes and choices of a plain CLIP where there is no tower, so that every rule holds. */
static void fill_absent(model_config *c)
{
    model_config plain;
    model_config_init(&plain);
    if (c->no_image_tower || c->no_text_tower) c->has_logit_bias = false;
    if (c->no_image_tower) {
        c->family = MODEL_VIT, c->image_size = 224, c->width = 768, c->layers[0] = 12, c->patch = 32;
        c->image_heads = 12, c->image = plain.image, c->image.act = c->text.act, c->image_pool = IMAGE_POOL_CLASS;
        c->no_class_token = c->no_image_projection = c->patch_bias = c->no_ln_pre = false;
    }
    if (c->no_text_tower) {
        c->context = 77, c->vocab = 49408, c->text_width = 512, c->text_heads = 8, c->text_layers = 12;
        c->text = plain.text, c->text.act = c->image.act, c->text_pool = TEXT_POOL_ARGMAX, c->eos = 0;
        c->no_causal_mask = c->text_projection_bias = c->no_text_projection = false;
    }
}

cloob_status model_config_from_json(cloob_ctx *ctx, const json *root, const char *source, model_config *c)
{
    config_reader r = { ctx, source, c };
    model_config_init(c);
    take_name(root, source, c);
    CLOOB_TRY(read_form(&r, root));
    fill_absent(c);
    cloob_status status = model_config_check(ctx, c);
    return status == CLOOB_OK ? status : ctx_wrap(ctx, status, "%s", source);
}
