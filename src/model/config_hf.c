/* Hugging Face's config.json: CLIP, MetaCLIP 2, SigLIP, SigLIP 2, Chinese-CLIP, rinna's Japanese CLIP and CLOOB,
 * M-CLIP. */
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "model/config_reader.h"

/* Defaults of transformers for a model_type. The default image tower is 768 wide with 12 layers. */
typedef struct hf_type {
    const char *name, *class; /* model_type, and the prefix of its class names */
    hf_kind kind;
    int64_t patch, context, vocab, text_width, text_heads, text_inner;
} hf_type;

enum { CLIP, METACLIP_2, SIGLIP, SIGLIP_2, CHINESE_CLIP, RINNA, TYPES };
static const hf_type types[TYPES] = {
    [CLIP] = { "clip", "CLIP", HF_CLIP, 32, 77, 49408, 512, 8, 2048 },
    [METACLIP_2] = { "metaclip_2", "MetaClip2", HF_CLIP, 32, 77, 49408, 512, 8, 2048 },
    [SIGLIP] = { "siglip", "Siglip", HF_SIGLIP, 16, 64, 32000, 768, 12, 3072 },
    [SIGLIP_2] = { "siglip2", "Siglip2", HF_SIGLIP, 16, 64, 32000, 768, 12, 3072 },
    [CHINESE_CLIP] = { "chinese_clip", "ChineseCLIP", HF_BERT, 32, 512, 30522, 768, 12, 3072 },
    [RINNA] = { "cloob", "CLOOB", HF_RINNA, 16, 512, 30522, 768, 12, 3072 },
};
static const hf_type rinna_clip = { .name = "clip", .class = "CLIP", .kind = HF_RINNA };

/* clang-format off */
static const config_field vision_fields[] = {
    FIELD("hidden_size", SIZE, width), FIELD("num_attention_heads", SIZE, image_heads),
    FIELD("num_hidden_layers", SIZE, layers[0]), FIELD("patch_size", SIZE, patch), FIELD_END };
static const config_field text_fields[] = {
    FIELD("hidden_size", SIZE, text_width), FIELD("num_attention_heads", SIZE, text_heads),
    FIELD("num_hidden_layers", SIZE, text_layers), FIELD("max_position_embeddings", SIZE, context),
    FIELD("vocab_size", SIZE, vocab), FIELD_END };
static const config_field bert_fields[] = {
    FIELD("type_vocab_size", SIZE, bert.types), FIELD("pad_token_id", SIZE, bert.pad), FIELD_END };
/* clang-format on */

static const char *const act_names[] = { "quick_gelu", "gelu", "gelu_pytorch_tanh", "gelu_new", NULL };

/* ---- reading ------------------------------------------------------------------------------------- */

/* The model_type; "clip" if the file has none. */
static const char *model_type(const json *root)
{
    const char *type = json_string(json_get(root, "model_type"));
    return type ? type : "clip";
}

/* Row of a model_type; NULL: unknown. *tower: 'v' or 't' if the type is a single tower, else 0. */
static const hf_type *find_type(const char *name, char *tower)
{
    for (int i = 0; i < TYPES; i++) {
        size_t n = strlen(types[i].name);
        if (strncmp(name, types[i].name, n) != 0) continue;
        bool vision = strcmp(name + n, "_vision_model") == 0, text = strcmp(name + n, "_text_model") == 0;
        *tower = vision ? 'v' : text ? 't' : 0;
        if (!name[n] || ((vision || text) && types[i].kind <= HF_SIGLIP)) return &types[i];
    }
    return NULL;
}

static cloob_status refuse_type(const config_reader *r, const char *type)
{
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: model type %.60s is not supported; supported types of transformers: CLIP, MetaCLIP 2, SigLIP, "
                    "Chinese-CLIP, M-CLIP",
                    r->source, type);
}

/* Reads the fields of a tower's blocks. inner: the default of intermediate_size. */
static cloob_status read_blocks(const config_reader *r, const json *part, int64_t width, int64_t inner, model_blocks *b)
{
    double dropout = 0;
    int act = b->act;
    CLOOB_TRY(reader_int(r, part, "intermediate_size", &inner));
    if (inner < 1) return reader_bad(r, "intermediate_size", "above 0");
    b->inner = inner == 4 * width ? 0 : inner;
    CLOOB_TRY(reader_number(r, part, "layer_norm_eps", &b->eps));
    CLOOB_TRY(reader_number(r, part, "attention_dropout", &dropout));
    if (dropout != 0)
        ctx_log(r->ctx, CLOOB_LOG_WARN, "%s: attention_dropout of %g is ignored; training uses no dropout", r->source,
                dropout);
    CLOOB_TRY(reader_choice(r, part, "hidden_act", act_names, &act));
    b->act = act > ACT_GELU_TANH ? ACT_GELU_TANH : (model_act)act;
    return CLOOB_OK;
}

/* Refuses values that change what a tower computes, except the one that is supported. */
static cloob_status check_plain(const config_reader *r, const json *part)
{
    static const char *const positions[] = { "absolute", NULL };
    static const char *const off[] = { "is_decoder", "add_cross_attention" };
    const json *pruned = reader_value(part, "pruned_heads");
    int64_t channels = 3;
    int first = 0;
    CLOOB_TRY(reader_choice(r, part, "position_embedding_type", positions, &first));
    CLOOB_TRY(reader_int(r, part, "num_channels", &channels));
    if (channels != 3) return reader_bad(r, "num_channels", "3");
    if (pruned && pruned->child) return reader_bad(r, "pruned_heads", "empty");
    for (int i = 0; i < 2; i++) {
        bool on = false;
        CLOOB_TRY(reader_bool(r, part, off[i], &on));
        if (on) return reader_bad(r, off[i], "false");
    }
    return CLOOB_OK;
}

/* Reads both towers, starting from the defaults of the type. */
static cloob_status read_towers(const config_reader *r, const hf_type *type, const json *v, const json *t)
{
    model_config *c = r->c;
    c->family = MODEL_VIT, c->embed = 512, c->image_size = 224, c->width = 768, c->layers[0] = 12, c->image_heads = 12;
    c->patch = type->patch, c->context = type->context, c->vocab = type->vocab, c->text_width = type->text_width;
    c->text_heads = type->text_heads, c->text_layers = 12;
    if (type->kind == HF_SIGLIP) model_config_set_siglip(c, ACT_GELU_TANH);
    if (type->kind >= HF_BERT) model_config_set_bert(c), c->bert.types = 2;
    CLOOB_TRY(check_plain(r, v));
    CLOOB_TRY(check_plain(r, t));
    CLOOB_TRY(reader_int(r, v, "image_size", &c->image_size));
    CLOOB_TRY(reader_fields(r, v, vision_fields));
    CLOOB_TRY(read_blocks(r, v, c->width, 3072, &c->image));
    CLOOB_TRY(reader_fields(r, t, text_fields));
    CLOOB_TRY(read_blocks(r, t, c->text_width, type->text_inner, &c->text));
    if (type->kind < HF_BERT) return CLOOB_OK;
    c->bert.positions = c->context;
    return reader_fields(r, t, bert_fields);
}

/* CLIP pools the first end token. In old files eos_token_id is 2 and the end token is the largest id. */
static cloob_status read_end(const config_reader *r, const json *t, bool metaclip)
{
    model_config *c = r->c;
    int64_t eos = metaclip ? 2 : 49407;
    CLOOB_TRY(reader_int(r, t, "eos_token_id", &eos));
    bool largest = eos == c->vocab - 1 || (eos == 2 && !metaclip) || !json_get(t, "eos_token_id");
    if (!largest || metaclip) c->text_pool = TEXT_POOL_EOS, c->eos = eos;
    return CLOOB_OK;
}

static cloob_status read_siglip(const config_reader *r, const json *v, const json *t)
{
    bool head = true;
    CLOOB_TRY(reader_bool(r, v, "vision_use_head", &head));
    if (!head) return reader_bad(r, "vision_use_head", "true");
    r->c->embed = t ? r->c->text_width : r->c->width;
    return reader_int(r, t, "projection_size", &r->c->embed);
}

/* SigLIP 2 NaFlex: num_patches is the number of positions. The number of patches of an image is set by its
 * processor. */
static cloob_status read_naflex(const config_reader *r, const json *v)
{
    enum { PATCHES = 256 }; /* default of num_patches and of the processor's maximum */
    int64_t positions = PATCHES, side = 1;
    CLOOB_TRY(reader_int(r, v, "num_patches", &positions));
    while (side * side < positions && side < 1 << 10) side++;
    if (side * side != positions) return reader_bad(r, "num_patches", "a square number");
    model_config_set_naflex(r->c, side, PATCHES);
    r->c->view.filter = RESIZE_BILINEAR;
    return CLOOB_OK;
}

/* rinna's Japanese CLIP and CLOOB: transformers' ViT and a RoBERTa, both pooled at the first token. Text positions
 * count from 0, and images are resized like torchvision's bilinear filter. */
static cloob_status read_rinna(const config_reader *r, const json *v, const json *t)
{
    model_config *c = r->c;
    enum { CONTEXT = 77 }; /* context length of rinna's tokenize() */
    bool qkv_bias = true, roberta = strcmp(model_type(t), "roberta") == 0;
    if (strcmp(model_type(v), "vit") != 0) return refuse_type(r, model_type(v));
    if (!roberta && strcmp(model_type(t), "bert") != 0) return refuse_type(r, model_type(t));
    CLOOB_TRY(reader_bool(r, v, "qkv_bias", &qkv_bias));
    if (!qkv_bias) return reader_bad(r, "qkv_bias", "true");
    c->image.act = ACT_GELU, c->image.eps = 1e-12, c->no_ln_pre = c->patch_bias = true;
    c->bert.pad = roberta;
    CLOOB_TRY(read_towers(r, &types[RINNA], v, t));
    if (c->context > CONTEXT) c->context = CONTEXT;
    c->view.filter = RESIZE_BILINEAR;
    return CLOOB_OK;
}

cloob_status config_read_bert_name(const config_reader *r, const char *name)
{
    if (model_config_bert_by_name(name, r->c)) return CLOOB_OK;
    return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: its text tower is transformers' %.80s; CLIP's and SigLIP's text transformers, BERT, RoBERTa "
                    "and XLM-RoBERTa are built in, others would need their own graph and tokenizer",
                    r->source, name);
}

/* M-CLIP: a BERT given by name, the mean of its tokens, and a projection with a bias; no image tower. */
static cloob_status read_mclip(const config_reader *r, const json *root)
{
    const char *base = json_string(json_get(root, "modelBase"));
    model_config *c = r->c;
    if (!base) return reader_bad(r, "modelBase", "the name of a BERT");
    CLOOB_TRY(config_read_bert_name(r, base));
    CLOOB_TRY(reader_need_int(r, root, "numDims", &c->embed));
    c->context = c->bert.positions - c->bert.first;
    c->text_pool = TEXT_POOL_MEAN, c->text_projection_bias = c->no_image_tower = true;
    return CLOOB_OK;
}

/* Part `key` of the configuration. Files from 2022 also have an object `dict`, whose values override it, as in
 * transformers. */
static const json *hf_part(const json *root, const char *key, const char *dict)
{
    return reader_value(root, dict) ? json_get(root, dict) : json_get(root, key);
}

bool config_is_hf(const json *root)
{
    char tower = 0;
    return json_get(root, "vision_config") || json_get(root, "text_config") || json_get(root, "modelBase") ||
           (find_type(model_type(root), &tower) && tower);
}

cloob_status config_read_hf(const config_reader *r, const json *root)
{
    char tower = 0;
    const hf_type *type = find_type(model_type(root), &tower);
    const json *v = tower == 't' ? NULL : tower ? root : hf_part(root, "vision_config", "vision_config_dict");
    const json *t = tower == 'v' ? NULL : tower ? root : hf_part(root, "text_config", "text_config_dict");
    model_config *c = r->c;
    if (strcmp(model_type(root), "M-CLIP") == 0) return read_mclip(r, root);
    if (!type) return refuse_type(r, model_type(root));
    if (reader_value(root, "quantization_config"))
        return reader_bad(r, "quantization_config", "absent; quantised weights are not supported");
    if (!tower && (!v || v->kind != JSON_OBJECT)) return reader_bad(r, "vision_config", "an object");
    if (!tower && (!t || t->kind != JSON_OBJECT)) return reader_bad(r, "text_config", "an object");
    c->no_image_tower = tower == 't', c->no_text_tower = tower == 'v';
    bool rinna = type == &types[RINNA] || (type == &types[CLIP] && !tower && strcmp(model_type(v), "vit") == 0);
    CLOOB_TRY(rinna ? read_rinna(r, v, t) : read_towers(r, type, v, t));
    if (type->kind == HF_SIGLIP) CLOOB_TRY(read_siglip(r, v, t));
    else CLOOB_TRY(reader_int(r, root, "projection_dim", &c->embed));
    if (type->kind == HF_CLIP && !rinna) CLOOB_TRY(read_end(r, t, type == &types[METACLIP_2]));
    return type == &types[SIGLIP_2] && v ? read_naflex(r, v) : CLOOB_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static void put_blocks(json_out *w, const model_blocks *b, int64_t width)
{
    json_put_text(w, "hidden_act", act_names[b->act]);
    json_put_number(w, "layer_norm_eps", b->eps);
    json_put_int(w, "intermediate_size", model_blocks_inner(b, width));
}

static void put_vision(json_out *w, const model_config *c)
{
    put_blocks(w, &c->image, c->width);
    fields_put(w, c, vision_fields);
    if (!c->no_image_projection) json_put_int(w, "projection_dim", c->embed);
    if (c->position_side) json_put_int(w, "num_patches", c->position_side * c->position_side);
    else json_put_int(w, "image_size", c->image_size);
}

/* max_position_embeddings counts all positions; rinna's tokenize() makes shorter texts. */
static void put_bert(json_out *w, const model_config *c)
{
    model_config all = *c;
    all.context = c->bert.positions;
    fields_put(w, &all, text_fields);
    fields_put(w, c, bert_fields);
}

static void put_text(json_out *w, const model_config *c)
{
    put_blocks(w, &c->text, c->text_width);
    if (c->bert.positions) {
        put_bert(w, c);
        return;
    }
    fields_put(w, c, text_fields);
    if (c->text_projection_bias) { /* SigLIP */
        json_put_int(w, "projection_size", c->embed);
        return;
    }
    if (!c->no_text_projection) json_put_int(w, "projection_dim", c->embed);
    if (c->text_pool == TEXT_POOL_ARGMAX) json_put_int(w, "bos_token_id", c->vocab - 2);
    /* the first token with the largest id is the end token, so this equals argmax */
    json_put_int(w, "eos_token_id", c->text_pool == TEXT_POOL_EOS ? c->eos : c->vocab - 1);
    if (c->text_pool == TEXT_POOL_ARGMAX) json_put_int(w, "pad_token_id", 0);
}

hf_kind model_config_hf_kind(const model_config *c)
{
    if (model_config_is_siglip(c)) return HF_SIGLIP;
    if (!c->bert.positions) return HF_CLIP;
    if (c->no_image_tower) return HF_MCLIP;
    return c->patch_bias ? HF_RINNA : HF_BERT;
}

static const hf_type *type_of(const model_config *c)
{
    bool metaclip = c->text_pool == TEXT_POOL_EOS && c->eos == 2; /* CLIPModel interprets 2 as "the largest id" */
    switch (model_config_hf_kind(c)) {
    case HF_SIGLIP: return &types[c->position_side ? SIGLIP_2 : SIGLIP];
    case HF_BERT: return &types[CHINESE_CLIP];
    case HF_RINNA: return &types[RINNA];
    default: return &types[metaclip ? METACLIP_2 : CLIP];
    }
}

static void put_tower(json_out *w, const model_config *c, const hf_type *type, bool text)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s_model", type->name, text ? "text" : "vision");
    json_put_text(w, "model_type", type->kind != HF_RINNA ? name : !text ? "vit" : c->bert.pad ? "roberta" : "bert");
    if (text) put_text(w, c);
    else put_vision(w, c);
}

static void put_class(json_out *w, const char *name)
{
    json_begin(w, "architectures", '[');
    json_put_text(w, NULL, name);
    json_end(w);
}

static void put_mclip(json_out *w, const model_config *c)
{
    json_begin(w, NULL, '{');
    put_class(w, "MultilingualCLIP");
    json_members(w, J_TEXT("model_type", "M-CLIP"), J_TEXT("modelBase", c->bert.name));
    json_put_int(w, "transformerDimensions", c->text_width);
    json_put_int(w, "numDims", c->embed);
    json_end(w);
}

/* A single tower's values are at the root. */
static void put_model(json_out *w, const model_config *c, const hf_scales *scales)
{
    const hf_type *type = type_of(c);
    bool alone = c->no_image_tower || c->no_text_tower, siglip = type->kind == HF_SIGLIP;
    bool projects = c->no_image_tower ? !c->no_text_projection : !c->no_image_projection;
    bool cloob = type->kind == HF_RINNA && scales->hopfield > 0;
    char class[64];
    if (type->kind == HF_RINNA && !cloob) type = &rinna_clip;
    snprintf(class, sizeof class, "%s%sModel%s", type->class,
             c->no_image_tower  ? "Text"
             : c->no_text_tower ? "Vision"
                                : "",
             alone && projects && !siglip ? "WithProjection" : "");
    json_begin(w, NULL, '{');
    put_class(w, class);
    if (!alone) json_put_text(w, "model_type", type->name);
    if (!alone && !siglip) json_put_int(w, "projection_dim", c->embed);
    if (cloob && scales->inv_tau > 0) json_put_number(w, "init_inv_tau", scales->inv_tau);
    if (cloob) json_put_number(w, "scale_hopfield", scales->hopfield);
    for (int text = 1; text >= 0; text--) {
        if (text ? c->no_text_tower : c->no_image_tower) continue;
        if (!alone) json_begin(w, text ? "text_config" : "vision_config", '{');
        put_tower(w, c, type, text);
        if (!alone) json_end(w);
    }
    json_end(w);
}

bool model_config_is_siglip(const model_config *c)
{
    bool image = c->no_class_token && !c->timm[0] && c->image_pool == IMAGE_POOL_MAP && c->no_ln_pre &&
                 c->no_image_projection && !c->image.layer_scale,
         text = c->no_causal_mask && c->text_projection_bias && c->text_pool == TEXT_POOL_LAST && !c->text.layer_scale;
    return (image || c->no_image_tower) && (text || c->no_text_tower);
}

/* The property of c that the BERTs of Chinese-CLIP, rinna and M-CLIP do not have; NULL: none. */
static const char *beyond_berts(const model_config *c, hf_kind kind)
{
    bool mclip = kind == HF_MCLIP;
    if (c->bert.pooler || c->text_projection_hidden || c->no_text_projection) return "a pooler or another projection";
    if (c->text_pool != (mclip ? TEXT_POOL_MEAN : TEXT_POOL_FIRST)) return "another pooling of texts";
    if (c->text_projection_bias != mclip)
        return mclip ? "a mean of tokens without a bias" : "a text projection with a bias";
    if (mclip ? !c->bert.name[0] : c->bert.first != 0)
        return mclip ? "a BERT without a name" : "positions that begin after the padding";
    if (kind == HF_BERT && c->context != c->bert.positions) return "texts shorter than the positions";
    return NULL;
}

/* The property of c that a CLIPModel (or a model with the same image tower and a BERT) cannot express; NULL: none. */
static const char *beyond_clip(const model_config *c)
{
    hf_kind kind = model_config_hf_kind(c);
    if (kind == HF_MCLIP) return beyond_berts(c, kind);
    if (c->family != MODEL_VIT) return "a ResNet or ConvNeXt";
    if (c->timm[0]) return "an image tower of timm";
    if (c->no_ln_post || c->no_ln_final || c->mask_queries) return "crowsonkb's CLOOB";
    if (c->no_ln_pre != (kind == HF_RINNA) || c->no_class_token) return "a ViT without ln_pre or class token";
    if (c->image_pool != IMAGE_POOL_CLASS || c->norm_after_pool) return "a pooling other than the class token";
    if (c->image.layer_scale || c->text.layer_scale) return "layer scale";
    if (c->bert.positions) return beyond_berts(c, kind);
    if (c->no_causal_mask) return "a text tower without a causal mask";
    if (c->text_pool == TEXT_POOL_LAST || c->text_pool == TEXT_POOL_FIRST)
        return "a text read at its last or first token";
    bool alone = c->no_image_tower || c->no_text_tower;
    if (c->no_image_projection && !alone) return "a ViT without a projection";
    return c->text_projection_bias || (c->no_text_projection && !alone) ? "another text projection" : NULL;
}

cloob_status model_config_to_hf(cloob_ctx *ctx, const model_config *c, const hf_scales *scales, const char *path,
                                sbuf *s)
{
    const char *beyond = beyond_clip(c);
    json_out w = { 0 };
    if (beyond && !model_config_is_siglip(c))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: Hugging Face's CLIP models do not support %s; write %s as openai or open_clip%s", path,
                        beyond, c->name, c->family == MODEL_RESNET ? ", or as jku" : "");
    if (model_config_hf_kind(c) == HF_MCLIP) put_mclip(&w, c);
    else put_model(&w, c, scales);
    json_out_append(&w, s);
    return CLOOB_OK;
}
