/* Hugging Face's config.json: CLIP, MetaCLIP 2, SigLIP. Defaults are those of transformers, which leaves out of the
 * file what equals them. */
#include <string.h>

#include "model/config_reader.h"

/* "clip" where the file does not say. */
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

static cloob_status read_act(const config_reader *r, const json *part, model_act *act)
{
    static const char *const names[] = { "quick_gelu", "gelu", "gelu_pytorch_tanh", "gelu_new", NULL };
    int i = *act;
    CLOOB_TRY(reader_choice(r, part, "hidden_act", names, &i));
    *act = i > ACT_GELU_TANH ? ACT_GELU_TANH : (model_act)i;
    return CLOOB_OK;
}

/* inner: the default of intermediate_size. */
static cloob_status read_blocks(const config_reader *r, const json *part, int64_t width, int64_t inner, model_blocks *b)
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
    return read_act(r, part, &b->act);
}

static cloob_status read_vision(const config_reader *r, const json *v)
{
    model_config *c = r->c;
    CLOOB_TRY(reader_int(r, v, "image_size", &c->image_size));
    CLOOB_TRY(reader_int(r, v, "hidden_size", &c->width));
    CLOOB_TRY(reader_int(r, v, "num_hidden_layers", &c->layers[0]));
    CLOOB_TRY(reader_int(r, v, "patch_size", &c->patch));
    CLOOB_TRY(reader_int(r, v, "num_attention_heads", &c->image_heads));
    return read_blocks(r, v, c->width, 3072, &c->image);
}

static cloob_status read_text(const config_reader *r, const json *t, int64_t inner)
{
    model_config *c = r->c;
    CLOOB_TRY(reader_int(r, t, "max_position_embeddings", &c->context));
    CLOOB_TRY(reader_int(r, t, "vocab_size", &c->vocab));
    CLOOB_TRY(reader_int(r, t, "hidden_size", &c->text_width));
    CLOOB_TRY(reader_int(r, t, "num_attention_heads", &c->text_heads));
    CLOOB_TRY(reader_int(r, t, "num_hidden_layers", &c->text_layers));
    return read_blocks(r, t, c->text_width, inner, &c->text);
}

/* CLIP reads the first end token; an id of 2 is an old file's, whose end token is the largest id. */
static cloob_status read_clip(const config_reader *r, const json *root, const json *v, const json *t, bool metaclip)
{
    model_config *c = r->c;
    int64_t eos = metaclip ? 2 : 49407;
    c->family = MODEL_VIT, c->embed = 512, c->image_size = 224, c->width = 768, c->layers[0] = 12, c->patch = 32;
    c->image_heads = 12, c->context = 77, c->vocab = 49408, c->text_width = 512, c->text_heads = 8, c->text_layers = 12;
    CLOOB_TRY(reader_int(r, root, "projection_dim", &c->embed));
    CLOOB_TRY(read_vision(r, v));
    CLOOB_TRY(read_text(r, t, 2048));
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
    CLOOB_TRY(read_vision(r, v));
    CLOOB_TRY(read_text(r, t, 3072));
    c->embed = c->text_width;
    return reader_int(r, t, "projection_size", &c->embed);
}

cloob_status config_read_hf(const config_reader *r, const json *root)
{
    const json *v = json_get(root, "vision_config"), *t = json_get(root, "text_config");
    const char *type = model_type(root);
    bool metaclip = strcmp(type, "metaclip_2") == 0;
    if (strcmp(type, "siglip") != 0 && strcmp(type, "clip") != 0 && !metaclip) return refuse_type(r, type);
    if (!v || v->kind != JSON_OBJECT) return reader_bad(r, "vision_config", "an object");
    if (!t || t->kind != JSON_OBJECT) return reader_bad(r, "text_config", "an object");
    return strcmp(type, "siglip") == 0 ? read_siglip(r, v, t) : read_clip(r, root, v, t, metaclip);
}
