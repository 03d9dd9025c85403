/* cloob_convert: reads with interchange, changes, writes with interchange, and reports. */
#include "cloob/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "infer/model_file.h"
#include "model/interchange.h"
#include "core/needs.h"
#include "model/params.h"
#include "tensor/precision.h"

void cloob_convert_options_init_size(cloob_convert_options *o, size_t size)
{
    cloob_convert_options d = { .size = 0 };
    options_write(o, size, &d, sizeof d);
}

static cloob_weight_format resolve_format(cloob_weight_format to, const char *out)
{
    if (to != CLOOB_WEIGHTS_AUTO) return to;
    return text_ends_with(out, ".pt") || text_ends_with(out, ".pth") || text_ends_with(out, ".bin")
               ? CLOOB_WEIGHTS_OPENAI
               : CLOOB_WEIGHTS_NATIVE;
}

/* Refuses extensions that other programs read as their own format. */
static cloob_status refuse_foreign_extension(cloob_ctx *ctx, const char *out)
{
    static const char *const endings[] = { ".gguf", ".ggml",   ".engine",  ".plan",     ".pb",
                                           ".h5",   ".tflite", ".mlmodel", ".mlpackage" };
    if (text_ends_with(out, ".onnx"))
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: ONNX files are not written; convert with `to` hf or open_clip and export from there", out);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (text_ends_with(out, endings[i]))
            return ctx_fail(
                ctx, CLOOB_ERR_UNSUPPORTED,
                "%s: %s files are not written; there are .safetensors (cloob's), .pt (OpenAI's and the authors' "
                "names), and folders for Hugging Face and open_clip",
                out, endings[i]);
    return CLOOB_OK;
}

static weight_format inner_format(cloob_weight_format to)
{
    switch (to) {
    case CLOOB_WEIGHTS_OPENAI: return FORMAT_OPENAI;
    case CLOOB_WEIGHTS_JKU: return FORMAT_JKU;
    case CLOOB_WEIGHTS_HF: return FORMAT_HF;
    case CLOOB_WEIGHTS_OPEN_CLIP: return FORMAT_OPEN_CLIP;
    default: return FORMAT_NATIVE;
    }
}

static cloob_status parse_activation(cloob_ctx *ctx, const char *name, model_act *act)
{
    if (model_act_from_name(name, act)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "unknown activation \"%.60s\"; choose quickgelu, gelu or gelu_tanh", name);
}

/* ---- the report ---------------------------------------------------------------------------------- */

/* The metadata that fits on one line. */
static void put_metadata(const weights *w, sbuf *s)
{
    static const char *const long_ones[] = { "config", "tokenizer", "preprocess", "train.options" };
    json_out out = json_out_on(s);
    json_begin(&out, NULL, '{');
    for (int64_t i = 0; i < w->meta_count; i++) {
        bool skip = false;
        for (size_t k = 0; k < sizeof long_ones / sizeof long_ones[0]; k++)
            skip |= strcmp(w->meta[i].key, long_ones[k]) == 0;
        if (!skip) json_put_text(&out, w->meta[i].key, w->meta[i].value);
    }
    json_end(&out);
    json_out_back(&out, s);
}

static cloob_status report_weights(cloob_ctx *ctx, const weights *w, arena *a, cloob_convert_report *r)
{
    sbuf config = { 0 }, meta = { 0 };
    snprintf(r->model, sizeof r->model, "%s", w->config.name);
    r->tensors = w->count;
    for (int64_t i = 0; i < w->count; i++) {
        r->parameters += tensor_count(&w->entry[i].t);
        r->bytes += (int64_t)tensor_bytes(&w->entry[i].t);
    }
    model_config_to_json(&w->config, &config);
    put_metadata(w, &meta);
    r->config = config.failed ? NULL : arena_string(a, config.data);
    r->metadata = meta.failed ? NULL : arena_string(a, meta.data);
    r->has_tokenizer = weights_get_meta(w, "tokenizer") != NULL;
    sbuf_release(&config);
    sbuf_release(&meta);
    return r->config && r->metadata ? CLOOB_OK : ctx_no_memory(ctx, 512, "a report");
}

/* Moves the lists to the report, which owns their arena. */
static cloob_status move_lists(cloob_ctx *ctx, interchange_report *from, cloob_convert_report *to)
{
    arena *kept = malloc(sizeof *kept);
    snprintf(to->container, sizeof to->container, "%s", from->container ? from->container : "");
    snprintf(to->names, sizeof to->names, "%s", from->names ? from->names : "");
    snprintf(to->config_from, sizeof to->config_from, "%s", from->config ? from->config : "");
    if (!kept) {
        interchange_report_release(from);
        to->config = to->metadata = NULL;
        return ctx_no_memory(ctx, sizeof *kept, "a report");
    }
    for (int i = 0; i < KEY_FATES; i++) {
        to->key[i] = from->key[i];
        to->count[i] = from->count[i];
    }
    *kept = from->a;
    to->memory = kept;
    return CLOOB_OK;
}

void cloob_convert_report_release(cloob_convert_report *r)
{
    if (!r) return;
    if (r->memory) arena_release(r->memory);
    free(r->memory);
    *r = (cloob_convert_report){ 0 };
}

/* ---- the vocabulary ------------------------------------------------------------------------------ */

/* Stores the vocabulary in the metadata as text, so that the file is complete. */
static cloob_status keep_vocab(cloob_ctx *ctx, const tokenizer *t, const char *path, weights *w)
{
    sbuf text = { 0 };
    tokenizer_save(t, &text);
    cloob_status status =
        text.failed ? ctx_no_memory(ctx, text.len, path) : weights_set_meta(ctx, w, "tokenizer", text.data);
    sbuf_release(&text);
    return status;
}

/* Stores the tokenizer with the weights if the format has a place for it. */
static cloob_status store_vocab(cloob_ctx *ctx, const char *in, const char *out, const char *vocab,
                                cloob_weight_format to, weights *w, tokenizer **t)
{
    *t = NULL;
    if (to != CLOOB_WEIGHTS_NATIVE && to != CLOOB_WEIGHTS_HF && to != CLOOB_WEIGHTS_OPEN_CLIP) return CLOOB_OK;
    CLOOB_TRY(model_tokenizer(ctx, in, vocab, w, t));
    if (*t) return keep_vocab(ctx, *t, out, w);
    if (w->config.no_text_tower) return CLOOB_OK;
    ctx_log(ctx, CLOOB_LOG_WARN,
            "%s: texts will not work, because neither %s nor this machine has its tokenizer; `vocab` FILE stores it%s",
            out, in,
            w->config.vocab == CLIP_VOCAB ? " (CLIP's is bpe_simple_vocab_16e6.txt.gz, of the Python package "
                                            "open_clip_torch or OpenAI's repository)"
                                          : "");
    return CLOOB_OK;
}

/* ---- the type of the stored weights --------------------------------------------------------------- */

static cloob_status parse_dtype(cloob_ctx *ctx, const char *name, cloob_dtype *out)
{
    if (strcmp(name, "f32") == 0) *out = CLOOB_F32;
    else if (strcmp(name, "bf16") == 0) *out = CLOOB_BF16;
    else if (strcmp(name, "f16") == 0) *out = CLOOB_F16;
    else return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "unknown type \"%.60s\"; choose f32, bf16 or f16", name);
    return CLOOB_OK;
}

/* ---- longer texts ----------------------------------------------------------------------------------- */

/* Long-CLIP's stretching: the first 20 positions, which short captions have trained well, stay; the others are spread
 * evenly over the rest, linearly between neighbours and beyond the last. */
static void stretch(float *to, int64_t n, const float *from, int64_t old, int64_t width)
{
    int64_t keep = old > 20 ? 20 : 0;
    double ratio = (double)(old - keep) / (double)(n - keep);
    for (int64_t i = 0; i < n; i++) {
        double at = i < keep ? (double)i : (double)keep + (double)(i - keep) * ratio;
        int64_t left = (int64_t)at < old - 2 ? (int64_t)at : old - 2;
        double part = at - (double)left;
        for (int64_t c = 0; c < width; c++)
            to[i * width + c] =
                (float)((1 - part) * (double)from[left * width + c] + part * (double)from[(left + 1) * width + c]);
    }
}

static cloob_status stretch_positions(cloob_ctx *ctx, weights *w, int64_t context)
{
    int64_t old = w->config.context, width = w->config.text_width;
    for (int64_t i = 0; i < w->count && context != old; i++) {
        tensor *t = &w->entry[i].t;
        if (strcmp(w->entry[i].name, "positional_embedding") != 0) continue;
        if (context < old || old < 2)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a context of %lld tokens: the model already has %lld",
                            (long long)context, (long long)old);
        float *from = arena_push(&w->a, (size_t)(old * width) * sizeof *from);
        float *to = arena_push(&w->a, (size_t)(context * width) * sizeof *to);
        if (!from || !to) return ctx_no_memory(ctx, (size_t)(context * width) * sizeof *to, w->entry[i].name);
        dtype_convert(CLOOB_F32, from, t->dtype, t->data, old * width);
        stretch(to, context, from, old, width);
        *t = TENSOR(CLOOB_F32, to, context, width);
        w->config.context = context;
        snprintf(w->config.name, sizeof w->config.name, "custom");
        break;
    }
    return model_config_check(ctx, &w->config);
}

/* ---- converting ---------------------------------------------------------------------------------- */

/* open_clip has CLIP's merges; any other tokenizer is in the folder. */
static bool exports_vocab(cloob_weight_format to, const weights *w)
{
    return to == CLOOB_WEIGHTS_HF || (to == CLOOB_WEIGHTS_OPEN_CLIP && interchange_own_tokenizer(w));
}

/* out NULL: only reads. */
static cloob_status convert(cloob_ctx *ctx, const char *in, const char *out, const cloob_convert_options *o,
                            cloob_convert_report *r)
{
    model_config config;
    model_act act;
    precision stated;
    interchange_options io = { .drop_unexpected = o->drop_unexpected };
    interchange_report found;
    weights w;
    tokenizer *t = NULL;
    if (o->config) {
        CLOOB_TRY(model_config_load(ctx, o->config, &config));
        io.config = &config;
    }
    if (o->auto_precision) {
        CLOOB_TRY(precision_find(ctx, o->auto_precision, false, &stated));
        if (stated.automatic || stated.half || r->to != CLOOB_WEIGHTS_NATIVE)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "`auto_precision` %s: must be fp32, bf16 or int8, in cloob's own format",
                            o->auto_precision);
    }
    if (o->activation) {
        CLOOB_TRY(parse_activation(ctx, o->activation, &act));
        io.act = &act;
    }
    cloob_dtype dtype = CLOOB_F32;
    if (o->dtype) CLOOB_TRY(parse_dtype(ctx, o->dtype, &dtype));
    cloob_status status = interchange_read(ctx, in, &io, &w, &found);
    if (status == CLOOB_OK && o->context) status = stretch_positions(ctx, &w, o->context);
    if (status == CLOOB_OK && o->dtype) status = weights_convert(ctx, &w, dtype);
    if (status == CLOOB_OK && o->auto_precision)
        status = weights_set_meta(ctx, &w, "auto_precision", o->auto_precision);
    if (status == CLOOB_OK) status = report_weights(ctx, &w, &found.a, r);
    if (status == CLOOB_OK && out) status = store_vocab(ctx, in, out, o->vocab, r->to, &w, &t);
    if (status == CLOOB_OK && out) status = interchange_write(ctx, out, inner_format(r->to), &w);
    if (status == CLOOB_OK && t && exports_vocab(r->to, &w)) status = tokenizer_export(ctx, t, out, w.config.context);
    cloob_tokenizer_close(t);
    weights_release(&w);
    cloob_status handed = move_lists(ctx, &found, r);
    return status != CLOOB_OK ? status : handed;
}

cloob_status cloob_convert(cloob_ctx *ctx, const char *in, const char *out, const cloob_convert_options *o,
                           cloob_convert_report *r)
{
    API_NEEDS(ctx, in && out);
    cloob_convert_report own;
    if (r) *r = (cloob_convert_report){ 0 };
    OPTIONS_READ(ctx, cloob_convert_options, o);
    cloob_convert_report *report = r ? r : &own;
    *report = (cloob_convert_report){ .to = resolve_format(o->to, out) };
    cloob_status status = refuse_foreign_extension(ctx, out);
    if (status == CLOOB_OK) status = convert(ctx, in, out, o, report);
    if (!r) cloob_convert_report_release(&own);
    return status;
}

cloob_status cloob_weights_describe(cloob_ctx *ctx, const char *in, const cloob_convert_options *o,
                                    cloob_convert_report *r)
{
    API_NEEDS(ctx, in && r);
    *r = (cloob_convert_report){ 0 };
    OPTIONS_READ(ctx, cloob_convert_options, o);
    return convert(ctx, in, NULL, o, r);
}

cloob_status cloob_weights_verify(cloob_ctx *ctx, const char *path, bool *stored)
{
    API_NEEDS(ctx, path && stored);
    weights w;
    *stored = false;
    CLOOB_TRY(weights_read_native(ctx, path, &w));
    cloob_status status = weights_verify(ctx, path, &w, stored);
    weights_release(&w);
    return status;
}
