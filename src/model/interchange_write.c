/* Writes weights in other programs' formats. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "model/interchange.h"
#include "model/params.h"

/* Tensors under their foreign names, in the arena. */
typedef struct writer {
    cloob_ctx *ctx;
    weights *w;
    weight_names names;
    const char *prefix;
    arena a;
    st_entry *entry;
    int64_t count;
} writer;

/* ---- tensors ------------------------------------------------------------------------------------- */

static cloob_status put(writer *o, const char *name, const tensor *t)
{
    size_t bytes = strlen(o->prefix) + strlen(name) + 1;
    char *copy = arena_push(&o->a, bytes);
    if (!copy) return ctx_no_memory(o->ctx, bytes, name);
    snprintf(copy, bytes, "%s%s", o->prefix, name);
    o->entry[o->count++] = (st_entry){ copy, *t };
    return CLOOB_OK;
}

/* Adds a tensor under its foreign names; parts are views of consecutive rows. */
static cloob_status put_foreign(writer *o, const char *canonical, const tensor *t)
{
    foreign f;
    size_t at = 0;
    names_foreign(o->names, canonical, &f);
    for (int i = 0; i < f.parts; i++) {
        tensor part = foreign_shape(t, &f, i);
        part.data = (char *)t->data + at;
        at += tensor_bytes(&part);
        if (f.transposed) {
            void *turned = arena_push(&o->a, tensor_bytes(&part));
            if (!turned) return ctx_no_memory(o->ctx, tensor_bytes(&part), canonical);
            foreign_transpose(turned, part.data, part.dim[0], part.dim[1], dtype_size(t->dtype));
            part.data = turned;
        }
        CLOOB_TRY(put(o, f.name[i], &part));
    }
    return CLOOB_OK;
}

static cloob_status put_scalar(writer *o, const char *canonical, float number)
{
    float *value = arena_push(&o->a, sizeof *value);
    if (!value) return ctx_no_memory(o->ctx, sizeof *value, canonical);
    *value = number;
    tensor t = tensor_make(CLOOB_F32, 0, NULL, value);
    return put_foreign(o, canonical, &t);
}

/* A positive number of the metadata; 0: absent. */
static double meta_number(const weights *w, const char *key)
{
    const char *text = weights_get_meta(w, key);
    double v = text ? strtod(text, NULL) : 0;
    return v > 0 && v < 1e30 ? v : 0;
}

/* All other programs expect a logit_scale. CLIP's initial value is ln(1 / 0.07). */
static cloob_status put_logit_scale(writer *o)
{
    double known = meta_number(o->w, "inv_tau"), inv_tau = known > 0 ? known : 1 / 0.07;
    if (known <= 0)
        ctx_log(o->ctx, CLOOB_LOG_WARN, "the weights have no logit_scale; writing CLIP's initial value, ln(1/0.07)");
    return put_scalar(o, "logit_scale", (float)log(inv_tau));
}

/* SigLIP's initial logit_bias is -10. */
static cloob_status put_logit_bias(writer *o)
{
    const char *known = weights_get_meta(o->w, "logit_bias");
    if (known) return put_scalar(o, "logit_bias", (float)strtod(known, NULL));
    ctx_log(o->ctx, CLOOB_LOG_WARN, "the weights have no logit_bias; writing SigLIP's initial value, -10");
    return put_scalar(o, "logit_bias", -10.0f);
}

/* Whether a tensor is written. Only the CLOOB authors' code has logit_scale_hopfield; strict readers of other formats
 * would fail on it. */
static bool belongs(const writer *o, const char *canonical)
{
    if (strncmp(canonical, "train.", 6) == 0) return false;
    if (strcmp(canonical, "logit_bias") == 0) /* a strict reader of a CLIPModel would fail on it */
        return o->w->config.has_logit_bias && o->names.text != TEXT_NAMES_HF;
    return o->names.text == TEXT_NAMES_JKU || strcmp(canonical, "logit_scale_hopfield") != 0;
}

static cloob_status put_unfolded(void *user, const char *name, const tensor *t) { return put(user, name, t); }

static cloob_status put_row(writer *o, int64_t i)
{
    const st_entry *row = &o->w->entry[i];
    bool unfolded = false;
    if (model_config_is_folded(&o->w->config))
        CLOOB_TRY(unfold_row(o->ctx, o->w, i, &o->a, put_unfolded, o, &unfolded));
    return unfolded || !belongs(o, row->name) ? CLOOB_OK : put_foreign(o, row->name, &row->t);
}

static cloob_status gather(writer *o)
{
    int64_t most = model_config_is_folded(&o->w->config) ? UNFOLD_MOST : NAME_PARTS;
    o->entry = arena_push(&o->a, (size_t)(o->w->count * most + 2) * sizeof *o->entry);
    if (!o->entry) return ctx_no_memory(o->ctx, (size_t)o->w->count * sizeof *o->entry, "the list of tensors");
    for (int64_t i = 0; i < o->w->count; i++) CLOOB_TRY(put_row(o, i));
    if (o->w->config.no_image_tower || o->w->config.no_text_tower) return CLOOB_OK; /* a single tower has no logits */
    if (o->names.image == IMAGE_NAMES_HF_VIT && meta_number(o->w, "scale_hopfield") > 0)
        return CLOOB_OK; /* rinna's CLOOB has its scales in the configuration */
    if (!weights_find(o->w, "logit_scale")) CLOOB_TRY(put_logit_scale(o));
    text_names n = o->names.text;
    bool wanted = n == TEXT_NAMES_HF_SIGLIP || (o->w->config.has_logit_bias && n != TEXT_NAMES_HF);
    bool bias = wanted && !weights_find(o->w, "logit_bias");
    return bias ? put_logit_bias(o) : CLOOB_OK;
}

/* ---- files --------------------------------------------------------------------------------------- */

static void drop_entry(void *user, const st_entry *e) { weights_drop_pages(user, &e->t); }

/* transformers requires "format": "pt" in a safetensors file. The configuration lets cloob read the file back. */
static cloob_status write_safetensors(writer *o, const char *path)
{
    sbuf config = { 0 };
    model_config_to_json(&o->w->config, &config);
    st_meta meta[] = { { "format", "pt" }, { "config", config.data } };
    cloob_status status = config.failed
                              ? ctx_no_memory(o->ctx, config.len, path)
                              : st_write_dropping(o->ctx, path, o->entry, o->count, meta, 2, drop_entry, o->w);
    sbuf_release(&config);
    return status;
}

static cloob_status write_openai(writer *o, const char *path)
{
    if (text_ends_with(path, ".safetensors")) return write_safetensors(o, path);
    return torch_write(o->ctx, path, o->entry, o->count, NULL);
}

static cloob_status write_jku(writer *o, const char *path)
{
    const char *epoch = weights_get_meta(o->w, "epoch"), *run = weights_get_meta(o->w, "run");
    torch_wrapper wrapper = { epoch ? strtoll(epoch, NULL, 10) : 0, run ? run : o->w->config.name };
    return torch_write(o->ctx, path, o->entry, o->count, &wrapper);
}

static cloob_status write_tensors_in(writer *o, const char *dir, const char *name)
{
    char path[FILE_PATH];
    CLOOB_TRY(file_in(o->ctx, dir, name, path));
    return write_safetensors(o, path);
}

/* Writes the JSON files before the weights, so that a folder with weights is complete. */
static cloob_status write_hf(writer *o, const char *dir)
{
    sbuf config = { 0 }, pre = { 0 };
    hf_kind kind = model_config_hf_kind(&o->w->config);
    hf_scales scales = { meta_number(o->w, "inv_tau"), meta_number(o->w, "scale_hopfield") };
    cloob_status status = model_config_to_hf(o->ctx, &o->w->config, &scales, dir, &config);
    if (status == CLOOB_OK) status = model_config_to_hf_preprocessor(o->ctx, &o->w->config, dir, &pre);
    if (status == CLOOB_OK) status = file_make_dirs(o->ctx, dir);
    if (status == CLOOB_OK) status = file_write_in(o->ctx, dir, "config.json", &config);
    if (status == CLOOB_OK && !o->w->config.no_image_tower && kind != HF_RINNA)
        status = file_write_in(o->ctx, dir, "preprocessor_config.json", &pre);
    if (status == CLOOB_OK) status = write_tensors_in(o, dir, "model.safetensors");
    sbuf_release(&config);
    sbuf_release(&pre);
    return status;
}

const char *interchange_own_tokenizer(const weights *w)
{
    static const char *const ways[] = { "whitespace", "whitespace", "lower", "canonicalize" };
    const char *text = weights_get_meta(w, "tokenizer"), *clean = text ? strstr(text, "\"clean\":") : NULL;
    if (!text) return NULL;
    if (strncmp(text, "#version", 8) == 0) /* CLIP's merges have this hash */
        return w->config.vocab == 49408 && strstr(text, " hash=0e985ecdbfb7f4c8") ? NULL : "lower";
    if (strncmp(text, "{\"cloob_pieces\"", 15) == 0 || !clean) return "canonicalize";
    return ways[clean[8] >= '0' && clean[8] <= '3' ? clean[8] - '0' : 0];
}

static cloob_status write_open_clip(writer *o, const char *dir)
{
    sbuf config = { 0 };
    cloob_status status =
        model_config_to_open_clip(o->ctx, &o->w->config, dir, interchange_own_tokenizer(o->w), &config);
    if (status == CLOOB_OK) status = file_make_dirs(o->ctx, dir);
    if (status == CLOOB_OK) status = file_write_in(o->ctx, dir, "open_clip_config.json", &config);
    if (status == CLOOB_OK) status = write_tensors_in(o, dir, "open_clip_model.safetensors");
    sbuf_release(&config);
    return status;
}

/* ---- entry --------------------------------------------------------------------------------------- */

static cloob_status write_as(writer *o, const char *path, weight_format format)
{
    CLOOB_TRY(gather(o));
    switch (format) {
    case FORMAT_JKU: return write_jku(o, path);
    case FORMAT_HF: return write_hf(o, path);
    case FORMAT_OPEN_CLIP: return write_open_clip(o, path);
    default: return write_openai(o, path);
    }
}

/* Naming schemes of an exported model. open_clip puts texts under "text." in custom-text models: all with a timm or
 * transformers tower, except ConvNeXt. */
static weight_names names_for(const model_config *c, bool hf)
{
    static const weight_names of_hf[] = { [HF_CLIP] = { IMAGE_NAMES_HF, TEXT_NAMES_HF },
                                          [HF_SIGLIP] = { IMAGE_NAMES_HF_SIGLIP, TEXT_NAMES_HF_SIGLIP },
                                          [HF_BERT] = { IMAGE_NAMES_HF, TEXT_NAMES_HF_BERT },
                                          [HF_RINNA] = { IMAGE_NAMES_HF_VIT, TEXT_NAMES_HF_BERT },
                                          [HF_MCLIP] = { IMAGE_NAMES_OPENAI, TEXT_NAMES_MCLIP } };
    bool timm = c->timm[0] || c->no_class_token;
    if (hf) return of_hf[model_config_hf_kind(c)];
    return (weight_names){ !timm             ? IMAGE_NAMES_OPENAI
                           : c->image.swiglu ? IMAGE_NAMES_EVA
                                             : IMAGE_NAMES_TIMM,
                           c->bert.positions                     ? TEXT_NAMES_BERT
                           : timm && c->family != MODEL_CONVNEXT ? TEXT_NAMES_CUSTOM
                                                                 : TEXT_NAMES_OPENAI };
}

cloob_status interchange_write(cloob_ctx *ctx, const char *path, weight_format format, weights *w)
{
    if (format == FORMAT_NATIVE) return weights_write_native(ctx, path, w);
    if ((w->config.no_image_tower || w->config.no_text_tower) && format != FORMAT_HF)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: this format requires both towers, and %s has one; write it as cloob or hf", path,
                        w->config.name);
    if (model_config_is_folded(&w->config) && format != FORMAT_OPEN_CLIP)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: %s has an image tower of timm; write it as cloob or open_clip",
                        path, w->config.name);
    writer o = { .ctx = ctx, .w = w, .names = NAMES_OPENAI, .prefix = "" };
    if (format == FORMAT_HF || format == FORMAT_OPEN_CLIP) o.names = names_for(&w->config, format == FORMAT_HF);
    if (format == FORMAT_JKU) { /* readers of this format remove the first seven letters unconditionally */
        o.names.text = TEXT_NAMES_JKU;
        o.prefix = "module.";
    }
    cloob_status status = write_as(&o, path, format);
    arena_release(&o.a);
    return status;
}
