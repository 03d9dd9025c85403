/* Configurations as JSON. Read and written: open_clip's nested form, and cloob's, which adds keys to it. Read only: the
 * flat form of the original CLOOB code. Hugging Face's form is in config_hf.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_reader.h"

/* ---- keys ---------------------------------------------------------------------------------------- */

static const char *const image_pools[] = { "tok", "avg", "map", NULL };
static const char *const text_pools[] = { "argmax", "eos", "last", "first", NULL };
static const char *const projections[] = { "linear", "none", NULL };
static const char *const norms[] = { "before", "after", "branch", NULL };
static const char *const default_block[] = { "default", NULL }, *const learnable[] = { "learnable", NULL };
static const char *const timm_pools[] = { "token", "avg", "map" };
static const char *const act_names[] = { "quickgelu", "gelu", "gelu_tanh", NULL };

/* clang-format off */
static const config_field top_keys[] = {
    FIELD_OTHER("name"), FIELD_OTHER("embed_dim"), FIELD_OTHER("vision_cfg"), FIELD_OTHER("text_cfg"),
    FIELD_OTHER("quick_gelu"), FIELD_OTHER("image_mean"), FIELD_OTHER("image_std"), FIELD_OTHER("custom_text"),
    FIELD_OTHER("init_logit_scale"), FIELD_OTHER("init_logit_bias"), FIELD_OTHER("preprocess_cfg"),
    FIELD_OTHER("resize_mode"), FIELD_OTHER("interpolation"), FIELD_OTHER("fill_color"), FIELD_OTHER("resize_size"),
    FIELD_OTHER("preprocess_of"), FIELD_END };

/* Keys of all image towers. A ResNet has no other keys. */
static const config_field vision_sizes[] = {
    FIELD("width", NEED, width), FIELD_OTHER("image_size"), FIELD_OTHER("layers"), FIELD_OTHER("head_width"),
    FIELD_OTHER("mlp_ratio"), FIELD_OTHER("intermediate_size"), FIELD_OTHER("ls_init_value"),
    FIELD_OTHER("act_kwargs"), FIELD_OTHER("norm_kwargs"), FIELD_OTHER("activation"), FIELD_OTHER("output_tokens"),
    FIELD_OTHER("attn_pooler_queries"), FIELD_OTHER("attn_pooler_heads"), FIELD_OTHER("timm_model_pretrained"),
    FIELD_OTHER("timm"), FIELD_OTHER("convnext"), FIELD_OTHER("fastvit"), FIELD_OTHER("patch_bias"),
    { "block_type", FIELD_KNOWN, 0, default_block }, { "pos_embed_type", FIELD_KNOWN, 0, learnable }, FIELD_END };

static const config_field vision_fields[] = {
    FIELD("patch_size", INT, patch), FIELD("position_side", INT, position_side),
    FIELD("max_patches", INT, view.patches), FIELD("patch_stem", BOOL, patch_stem),
    FIELD("proj_bias", BOOL, image_projection_bias), FIELD("proj_hidden", INT, image_projection_hidden),
    FIELD("no_ln_pre", BOOL, no_ln_pre), FIELD("no_ln_post", BOOL, no_ln_post),
    FIELD_OF("block_norm", CHOICE, image.norm, norms), FIELD("swiglu", BOOL, image.swiglu),
    FIELD("inner_norms", BOOL, image.inner_norms), FIELD("no_key_bias", BOOL, image.no_key_bias),
    FIELD("rope_grid", NUMBER, image.rope_grid), FIELD("rope_offset", NUMBER, image.rope_offset),
    FIELD("rope_swapped", BOOL, image.rope_swapped), FIELD("pool_heads", INT, pool_heads),
    FIELD("pool_intermediate_size", INT, pool_inner), FIELD_OF("pool_type", CHOICE, image_pool, image_pools),
    FIELD("class_token", NOT, no_class_token), FIELD_OF("proj_type", SECOND, no_image_projection, projections),
    FIELD("final_ln_after_pool", BOOL, norm_after_pool), FIELD("patch_dropout", NUMBER, patch_dropout), FIELD_END };

static const config_field timm_fields[] = {
    FIELD("patch_dropout", NUMBER, patch_dropout), FIELD_OTHER("image_size"), FIELD_OTHER("timm_model_name"),
    FIELD_OTHER("timm_model_pretrained"), FIELD_OTHER("timm_pool"), FIELD_OTHER("timm_proj"), FIELD_OTHER("timm_drop"),
    FIELD_OTHER("timm_drop_path"), FIELD_END };

/* Keys of all text towers, CLIP's and BERT. */
static const config_field text_sizes[] = {
    FIELD("vocab_size", SIZE, vocab), FIELD("width", SIZE, text_width), FIELD("heads", SIZE, text_heads),
    FIELD("layers", SIZE, text_layers), FIELD("proj_bias", BOOL, text_projection_bias), FIELD_OTHER("context_length"),
    FIELD_OTHER("mlp_ratio"), FIELD_OTHER("intermediate_size"), FIELD_OTHER("act_kwargs"), FIELD_OTHER("norm_kwargs"),
    FIELD_OTHER("activation"), FIELD_OTHER("output_tokens"), FIELD_OTHER("hf_tokenizer_name"),
    FIELD_OTHER("tokenizer_kwargs"), FIELD_END };

static const config_field text_fields[] = {
    FIELD("no_causal_mask", BOOL, no_causal_mask), FIELD("no_ln_final", BOOL, no_ln_final),
    FIELD("mask_queries", BOOL, mask_queries), FIELD_OF("pool_type", CHOICE, text_pool, text_pools),
    FIELD_OF("proj_type", SECOND, no_text_projection, projections), FIELD("eos_id", INT, eos),
    FIELD_OTHER("ls_init_value"), FIELD_OTHER("pad_id"), FIELD_OTHER("tokenizer_mode"),
    { "block_type", FIELD_KNOWN, 0, default_block }, FIELD_END };

static const config_field bert_keys[] = {
    FIELD_OTHER("hf_model_name"), FIELD_OTHER("hf_model_pretrained"), FIELD_OTHER("hf_pooler_type"),
    FIELD_OTHER("hf_proj_type"), FIELD_OTHER("bert"), FIELD_END };

static const config_field bert_fields[] = {
    FIELD("positions", NEED, bert.positions), FIELD("first_position", SIZE, bert.first),
    FIELD("token_types", NEED, bert.types), FIELD("pad_id", SIZE, bert.pad), FIELD_END };

static const config_field flat_fields[] = {
    FIELD("embed_dim", NEED, embed), FIELD("image_resolution", NEED, image_size), FIELD("vision_width", NEED, width),
    FIELD("context_length", NEED, context), FIELD("vocab_size", NEED, vocab),
    FIELD("transformer_width", NEED, text_width), FIELD("transformer_heads", NEED, text_heads),
    FIELD("transformer_layers", NEED, text_layers), FIELD_END };
/* clang-format on */

/* ---- blocks -------------------------------------------------------------------------------------- */

/* Fails if `object` has a key other than `key`. */
static cloob_status read_only_key(const config_reader *r, const json *object, const char *name, const char *key)
{
    for (const json *v = object ? object->child : NULL; v; v = v->next)
        if (strcmp(v->key, key) != 0) {
            char wanted[40];
            snprintf(wanted, sizeof wanted, "\"%s\" alone", key);
            return reader_bad(r, name, wanted);
        }
    return CLOOB_OK;
}

/* The activation: open_clip's act_kwargs {"approximate": "tanh"}, or cloob's "activation" with a name of model_act. */
static cloob_status read_act(const config_reader *r, const json *tower, model_act *act)
{
    static const char *const words[] = { "none", "tanh", NULL };
    const json *kwargs = json_get(tower, "act_kwargs");
    int tanh = 0, own = *act;
    CLOOB_TRY(reader_choice(r, kwargs, "approximate", words, &tanh));
    CLOOB_TRY(reader_choice(r, tower, "activation", act_names, &own));
    CLOOB_TRY(read_only_key(r, kwargs, "act_kwargs", "approximate"));
    if (tanh && own == ACT_QUICKGELU) return reader_bad(r, "act_kwargs", "absent with \"quick_gelu\"");
    *act = tanh ? ACT_GELU_TANH : (model_act)own;
    return CLOOB_OK;
}

/* Fields of the blocks. The MLP's hidden width is int(width * mlp_ratio), as in Python. */
static cloob_status read_blocks(const config_reader *r, const json *tower, int64_t width, model_blocks *b)
{
    double ratio = 4.0;
    const json *norm = json_get(tower, "norm_kwargs");
    CLOOB_TRY(reader_number(r, tower, "mlp_ratio", &ratio));
    if (!(ratio > 0 && ratio < 1e6) || width < 0 || width > 1 << 20) return reader_bad(r, "mlp_ratio", "above 0");
    b->inner = (int64_t)((double)width * ratio);
    CLOOB_TRY(reader_int(r, tower, "intermediate_size", &b->inner));
    if (b->inner == 4 * width) b->inner = 0;
    else if (b->inner < 1) return reader_bad(r, "intermediate_size", "above 0");
    CLOOB_TRY(reader_number(r, tower, "ls_init_value", &b->layer_scale));
    CLOOB_TRY(read_act(r, tower, &b->act));
    CLOOB_TRY(read_only_key(r, norm, "norm_kwargs", "eps"));
    return reader_number(r, norm, "eps", &b->eps);
}

/* The smallest mlp_ratio with four decimals for which int(width * mlp_ratio) is `inner`. */
static double mlp_ratio(int64_t width, int64_t inner) { return ceil((double)inner / (double)width * 1e4) / 1e4; }

static bool mixed_quick(const model_config *c)
{
    return c->family == MODEL_VIT && !c->bert.positions &&
           (c->image.act == ACT_QUICKGELU) != (c->text.act == ACT_QUICKGELU);
}

/* Writes only values that differ from CLIP's, so that older readers accept the JSON of a plain model. */
static void put_blocks(json_out *w, const model_config *c, const model_blocks *b, int64_t width)
{
    if (b->inner && (int64_t)((double)width * mlp_ratio(width, b->inner)) == b->inner)
        json_put_number(w, "mlp_ratio", mlp_ratio(width, b->inner));
    else if (b->inner) json_put_int(w, "intermediate_size", b->inner);
    if (b->layer_scale) json_put_number(w, "ls_init_value", b->layer_scale);
    if (mixed_quick(c)) json_put_text(w, "activation", model_act_name(b->act));
    else if (b->act == ACT_GELU_TANH) json_object(w, "act_kwargs", J_TEXT("approximate", "tanh"));
    if (b->eps == 1e-5) return;
    json_begin(w, "norm_kwargs", '{');
    json_put_number(w, "eps", b->eps);
    json_end(w);
}

/* ---- image towers -------------------------------------------------------------------------------- */

/* One edge length, or open_clip's [height, width] of a square. */
static cloob_status read_image_size(const config_reader *r, const json *vision)
{
    const json *v = json_get(vision, "image_size");
    if (!v || v->kind != JSON_ARRAY) return reader_int(r, vision, "image_size", &r->c->image_size);
    int64_t h, w;
    if (v->count != 2 || !json_int(v->child, &h) || !json_int(v->child->next, &w) || h != w)
        return reader_bad(r, "image_size", "one edge length (images are square)");
    r->c->image_size = h;
    return CLOOB_OK;
}

/* The depth of a ViT as one number, or the blocks per stage: four, or five for FastViT. */
static cloob_status read_layers(const config_reader *r, const json *object, const char *key, bool fastvit)
{
    const json *v = json_get(object, key);
    bool stages = v && v->kind == JSON_ARRAY;
    int64_t n = 0;
    if (!v) return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" is missing", r->source, key);
    r->c->family = stages ? MODEL_RESNET : MODEL_VIT;
    bool good = stages ? v->count == 4 || (fastvit && v->count == 5) : json_int(v, &r->c->layers[0]);
    for (const json *e = stages && good ? v->child : NULL; e && good; e = e->next)
        good = json_int(e, &r->c->layers[n++]);
    return good ? CLOOB_OK : reader_bad(r, key, "a number, or four for a ResNet");
}

static cloob_status read_heads(const config_reader *r, const json *v)
{
    model_config *c = r->c;
    int64_t head = 64;
    CLOOB_TRY(reader_int(r, v, "head_width", &head));
    int64_t w = c->width < INT64_MAX / 32 ? model_config_image_attention_width(c) : 0;
    if (head < 1 || w < head || w % head)
        return ctx_fail(r->ctx, CLOOB_ERR_ARGUMENT,
                        "%s: image attention width %lld is not a multiple of the head width %lld", r->source,
                        (long long)w, (long long)head);
    c->image_heads = w / head;
    return CLOOB_OK;
}

/* Reads a timm tower. timm_pool must be the tower's own pooling, or "". */
static cloob_status read_timm(const config_reader *r, const json *v, const char *name)
{
    model_config *c = r->c;
    const char *pool = json_string(json_get(v, "timm_pool")), *projection = json_string(json_get(v, "timm_proj"));
    if (!model_config_from_timm(name, c))
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: timm image tower %.80s is not supported; supported timm towers: ConvNeXt, EVA, PE-Core, "
                        "MobileCLIP, SigLIP, plain ViTs",
                        r->source, name);
    int64_t size = c->image_size;
    const char *own = c->family == MODEL_FASTVIT ? "avg" : c->family == MODEL_VIT ? timm_pools[c->image_pool] : NULL;
    CLOOB_TRY(reader_refuse_unknown(r, v, "vision_cfg: ", timm_fields, NULL));
    CLOOB_TRY(read_image_size(r, v));
    if (size != c->image_size && c->family == MODEL_VIT)
        return reader_bad(r, "image_size", "the size in timm_model_name");
    if (pool && pool[0] && own && strcmp(pool, own) != 0) return reader_bad(r, "timm_pool", own);
    if (!model_config_set_timm_projection(c, projection))
        return reader_bad(r, "timm_proj", "linear, mlp, none or null");
    return reader_fields(r, v, timm_fields);
}

static cloob_status read_pool(const config_reader *r, const json *v)
{
    model_config *c = r->c;
    c->patch_bias = c->no_class_token;
    CLOOB_TRY(reader_bool(r, v, "patch_bias", &c->patch_bias));
    if (c->image_pool == IMAGE_POOL_CLASS && c->no_class_token)
        return reader_bad(r, "pool_type", "\"avg\" or \"map\" without a class token");
    if (c->image_pool == IMAGE_POOL_MAP && c->norm_after_pool)
        return reader_bad(r, "pool_type", "\"map\" without final_ln_after_pool");
    return CLOOB_OK;
}

static cloob_status read_vision(const config_reader *r, const json *v)
{
    model_config *c = r->c;
    const char *timm = json_string(json_get(v, "timm_model_name")), *own = json_string(json_get(v, "timm"));
    const json *pooler = reader_value(v, "attentional_pool");
    bool convnext = false, fastvit = false;
    if (timm) return read_timm(r, v, timm);
    if (pooler && (pooler->kind != JSON_BOOL || pooler->boolean))
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED, "%s: \"attentional_pool\" (CoCa) is not supported", r->source);
    CLOOB_TRY(reader_refuse_unknown(r, v, "vision_cfg: ", vision_sizes, vision_fields));
    c->image_size = 224;
    CLOOB_TRY(read_image_size(r, v));
    CLOOB_TRY(reader_bool(r, v, "convnext", &convnext));
    CLOOB_TRY(reader_bool(r, v, "fastvit", &fastvit));
    CLOOB_TRY(read_layers(r, v, "layers", fastvit));
    CLOOB_TRY(reader_fields(r, v, vision_sizes));
    if ((convnext || fastvit) && c->family == MODEL_RESNET)
        c->family = convnext ? MODEL_CONVNEXT : MODEL_FASTVIT, c->image_heads = 1;
    else CLOOB_TRY(read_heads(r, v));
    if (own)
        snprintf(c->timm, sizeof c->timm, "%s", own); /* cloob's files name the timm tower in addition to its
                                                            * sizes */
    if (c->family == MODEL_RESNET) return CLOOB_OK;   /* open_clip writes unused ViT fields for ResNets, too */
    CLOOB_TRY(reader_fields(r, v, vision_fields));
    CLOOB_TRY(read_blocks(r, v, c->width, &c->image));
    if (c->position_side) model_config_set_naflex(c, c->position_side, c->view.patches);
    return c->family == MODEL_VIT ? read_pool(r, v) : CLOOB_OK;
}

static void put_vision(json_out *w, const model_config *c)
{
    if (c->family == MODEL_VIT) json_put_int(w, "layers", c->layers[0]);
    else {
        json_begin(w, "layers", '[');
        for (int i = 0; i < 4 + (c->layers[4] > 0); i++) json_put_int(w, NULL, c->layers[i]);
        json_end(w);
    }
    fields_put(w, c, vision_sizes);
    if (c->family == MODEL_RESNET || c->family == MODEL_VIT)
        json_put_int(w, "head_width", model_config_image_attention_width(c) / c->image_heads);
    if (c->family == MODEL_RESNET) return;
    if (c->timm[0]) json_put_text(w, "timm", c->timm);
    if (c->family != MODEL_VIT) json_put_bool(w, c->family == MODEL_CONVNEXT ? "convnext" : "fastvit", true);
    else if (c->patch_bias != c->no_class_token) json_put_bool(w, "patch_bias", c->patch_bias);
    fields_put(w, c, vision_fields);
    put_blocks(w, c, &c->image, c->width);
}

static void put_timm_vision(json_out *w, const model_config *c, const char *name)
{
    json_members(w, J_TEXT("timm_model_name", name), J_BOOL("timm_model_pretrained", false),
                 J_TEXT("timm_pool", c->family == MODEL_CONVNEXT  ? ""
                                     : c->family == MODEL_FASTVIT ? "avg"
                                                                  : timm_pools[c->image_pool]));
    if (c->image_projection_bias) json_put_null(w, "timm_proj");
    else json_put_text(w, "timm_proj", c->no_image_projection ? "none" : c->image_projection_hidden ? "mlp" : "linear");
}

/* ---- text towers --------------------------------------------------------------------------------- */

/* Reads a BERT. cloob's files hold its sizes; open_clip's only its name in transformers. */
static cloob_status read_bert(const config_reader *r, const json *t, const char *name)
{
    static const char *const poolers[] = { "mean_pooler", "cls_pooler", "cls_last_hidden_state_pooler", NULL },
                             *const kinds[] = { "mlp", "linear", NULL };
    model_config *c = r->c;
    const json *own = json_get(t, "bert"), *projects = json_get(t, "hf_proj_type");
    int pooler = 0, kind = 0;
    CLOOB_TRY(reader_refuse_unknown(r, t, "text_cfg: ", bert_keys, text_sizes));
    if (own) {
        model_config_set_bert(c);
        c->text.eps = 1e-5;
        CLOOB_TRY(reader_fields(r, t, text_sizes));
        CLOOB_TRY(read_blocks(r, t, c->text_width, &c->text));
        CLOOB_TRY(reader_fields(r, own, bert_fields));
        if (c->bert.positions < 1) return reader_bad(r, "positions", "above 0");
    } else CLOOB_TRY(config_read_bert_name(r, name));
    snprintf(c->bert.name, sizeof c->bert.name, "%s", name);
    CLOOB_TRY(reader_choice(r, t, "hf_pooler_type", poolers, &pooler));
    CLOOB_TRY(reader_choice(r, t, "hf_proj_type", kinds, &kind));
    c->text_pool = pooler ? TEXT_POOL_FIRST : TEXT_POOL_MEAN;
    c->bert.pooler = pooler == 1;
    c->no_text_projection = projects && projects->kind == JSON_NULL;
    c->text_projection_hidden = kind == 0 && !c->no_text_projection ? (c->text_width + c->embed) / 2 : 0;
    return CLOOB_OK;
}

static cloob_status read_text(const config_reader *r, const json *t, model_act act)
{
    model_config *c = r->c;
    const char *hf = json_string(json_get(t, "hf_model_name"));
    const json *cls = json_get(t, "embed_cls");
    if (cls && cls->kind == JSON_BOOL && cls->boolean)
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED, "%s: \"embed_cls\" (CoCa's text tower) is not supported",
                        r->source);
    c->context = 77, c->vocab = 49408, c->text_width = 512, c->text_heads = 8, c->text_layers = 12;
    c->text = (model_blocks){ .act = act, .eps = 1e-5 }; /* a timm image tower may have set SigLIP's choices */
    c->no_causal_mask = c->text_projection_bias = c->no_text_projection = false, c->text_pool = TEXT_POOL_ARGMAX;
    CLOOB_TRY(reader_int(r, t, "context_length", &c->context));
    if (hf) return read_bert(r, t, hf);
    CLOOB_TRY(reader_refuse_unknown(r, t, "text_cfg: ", text_sizes, text_fields));
    CLOOB_TRY(reader_fields(r, t, text_sizes));
    c->eos = 2; /* open_clip's default */
    CLOOB_TRY(reader_fields(r, t, text_fields));
    if (c->text_pool != TEXT_POOL_EOS) c->eos = 0;
    if (c->no_text_projection) c->text_projection_bias = false;
    return read_blocks(r, t, c->text_width, &c->text);
}

/* own: write cloob's form, which has the sizes; open_clip's has only the name. */
static void put_bert(json_out *w, const model_config *c, bool own)
{
    json_members(w, J_TEXT("hf_model_name", c->bert.name), J_TEXT("hf_tokenizer_name", c->bert.name),
                 J_TEXT("hf_pooler_type", c->text_pool == TEXT_POOL_MEAN ? "mean_pooler"
                                          : c->bert.pooler               ? "cls_pooler"
                                                                         : "cls_last_hidden_state_pooler"));
    if (c->no_text_projection) json_put_null(w, "hf_proj_type");
    else json_put_text(w, "hf_proj_type", c->text_projection_hidden ? "mlp" : "linear");
    if (!own) return;
    json_begin(w, "bert", '{');
    fields_put(w, c, bert_fields);
    json_end(w);
}

static void put_text(json_out *w, const model_config *c, bool own)
{
    bool bert = c->bert.positions > 0;
    json_put_int(w, "context_length", c->context);
    if (bert) put_bert(w, c, own);
    if (bert && !own) return;
    fields_put(w, c, text_sizes);
    if (!bert) fields_put(w, c, text_fields);
    put_blocks(w, c, &c->text, c->text_width);
}

/* ---- the nested form ----------------------------------------------------------------------------- */

static cloob_status read_nested(const config_reader *r, const json *root)
{
    const json *vision = json_get(root, "vision_cfg"), *text = json_get(root, "text_cfg");
    const json *bias = json_get(root, "init_logit_bias");
    bool quick = false;
    if (json_get(root, "multimodal_cfg"))
        return ctx_fail(r->ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: a CoCa model (multimodal_cfg) is not supported: cloob has neither its attentional pooler "
                        "nor its text decoder",
                        r->source);
    r->c->no_image_tower = vision && vision->kind == JSON_NULL && text && text->kind != JSON_NULL;
    r->c->no_text_tower = text && text->kind == JSON_NULL && vision && vision->kind != JSON_NULL;
    if (!r->c->no_image_tower && (!vision || vision->kind != JSON_OBJECT))
        return reader_bad(r, "vision_cfg", "an object");
    if (!r->c->no_text_tower && (!text || text->kind != JSON_OBJECT)) return reader_bad(r, "text_cfg", "an object");
    CLOOB_TRY(reader_refuse_unknown(r, root, "", top_keys, NULL));
    CLOOB_TRY(reader_bool(r, root, "quick_gelu", &quick));
    model_config_set_act(r->c, quick ? ACT_QUICKGELU : ACT_GELU);
    CLOOB_TRY(reader_need_int(r, root, "embed_dim", &r->c->embed));
    if (!r->c->no_image_tower) CLOOB_TRY(read_vision(r, vision));
    if (!r->c->no_text_tower) CLOOB_TRY(read_text(r, text, quick ? ACT_QUICKGELU : ACT_GELU));
    r->c->has_logit_bias = bias && bias->kind == JSON_NUMBER;
    return preprocess_read_own(r, root);
}

/* Writes the fields that cloob's and open_clip's forms share, without the braces. */
static void put_nested(json_out *w, const model_config *c, const char *timm, bool own, const char *clean)
{
    const model_blocks *blocks = c->bert.positions ? &c->image : &c->text; /* open_clip does not store a BERT's
                                                                            * activation */
    json_put_int(w, "embed_dim", c->embed);
    json_put_bool(w, "quick_gelu", blocks->act == ACT_QUICKGELU && !mixed_quick(c));
    if (c->has_logit_bias) json_put_int(w, "init_logit_bias", -10);
    if (timm && c->family != MODEL_CONVNEXT && !c->bert.positions) json_put_bool(w, "custom_text", true);
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
    put_text(w, c, own);
    if (clean && !c->bert.positions)
        json_put_text(w, "hf_tokenizer_name", c->name); /* open_clip then loads the tokenizer from the folder's files */
    if (clean) json_object(w, "tokenizer_kwargs", J_TEXT("clean", clean));
    json_end(w);
}

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

/* Whether timm's tower has the model's image size, which fixes the positions of a ViT. True for names that are not in
 * the table. */
static bool timm_has(const model_config *c)
{
    model_config known;
    model_config_init(&known);
    return c->family != MODEL_VIT || !model_config_from_timm(c->timm, &known) || known.image_size == c->image_size;
}

/* Why open_clip cannot express the model; NULL: it can. timm: the name of the image tower in timm; "" for a tower of
 * open_clip. */
static const char *beyond_open_clip(const model_config *c, char timm[64])
{
    snprintf(timm, 64, "%s", c->timm);
    if (c->timm[0] && !timm_has(c)) return "takes the image tower from timm, where it has another image size";
    if (c->position_side) return "has no SigLIP 2 NaFlex models; write it as hf";
    if (c->no_class_token && !c->timm[0] && (c->image_pool != IMAGE_POOL_MAP || !model_config_timm_name(c, timm, 64)))
        return "takes SigLIP's image tower from timm, which has no tower with these sizes";
    if (c->no_ln_post || c->no_ln_final) return "has neither towers without a final layer norm nor a query mask";
    if (c->bert.positions && !c->bert.name[0])
        return "takes the sizes of a BERT from its name in transformers, and this model stores none";
    return mixed_quick(c) ? "has one quick_gelu setting for both towers, and only one of these towers uses it" : NULL;
}

cloob_status model_config_to_open_clip(cloob_ctx *ctx, const model_config *c, const char *path, const char *clean,
                                       sbuf *s)
{
    json_out w = { 0 };
    char timm[64];
    const char *beyond = beyond_open_clip(c, timm);
    if (beyond) return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: %s: open_clip %s", path, c->name, beyond);
    json_begin(&w, NULL, '{');
    json_begin(&w, "model_cfg", '{');
    put_nested(&w, c, timm[0] ? timm : NULL, false, clean);
    json_end(&w);
    cloob_status status = preprocess_put_open_clip(ctx, &w, c, path);
    json_end(&w);
    json_out_append(&w, s);
    return status;
}

/* ---- entry points -------------------------------------------------------------------------------- */

static cloob_status read_flat(const config_reader *r, const json *root)
{
    model_config *c = r->c;
    CLOOB_TRY(reader_fields(r, root, flat_fields));
    CLOOB_TRY(read_layers(r, root, "vision_layers", false));
    if (c->family == MODEL_VIT) CLOOB_TRY(reader_need_int(r, root, "vision_patch_size", &c->patch));
    if (c->width > 0 && c->width < INT64_MAX / 32) c->image_heads = model_config_image_attention_width(c) / 64;
    return CLOOB_OK;
}

/* The name in the file; without one, the file's name without folder and extension. */
static void read_name(const json *root, const char *source, model_config *c)
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
    if (config_is_hf(root)) return config_read_hf(r, root);
    if (json_get(root, "vision_layers")) return read_flat(r, root);
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT,
                    "%s: not a model configuration (it has neither vision_cfg, vision_layers nor vision_config)",
                    r->source);
}

/* Gives a missing tower the sizes and choices of a plain CLIP, so that model_config_check passes. */
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
    read_name(root, source, c);
    CLOOB_TRY(read_form(&r, root));
    fill_absent(c);
    cloob_status status = model_config_check(ctx, c);
    return status == CLOOB_OK ? status : ctx_wrap(ctx, status, "%s", source);
}

cloob_status model_config_from_text(cloob_ctx *ctx, const char *text, const char *source, model_config *c)
{
    arena a = { 0 };
    json *root;
    cloob_status status = json_parse(ctx, &a, text, strlen(text), source, &root);
    if (status == CLOOB_OK) status = model_config_from_json(ctx, root, source, c);
    arena_release(&a);
    return status;
}
