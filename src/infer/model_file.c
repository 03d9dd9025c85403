/* Opens a file of weights as a model; encodes texts and images. */
#include "infer/model_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/pool.h"
#include "model/interchange.h"
#include "tensor/precision.h"
#include "core/needs.h"
#include "core/option.h"

/* ---- opening ------------------------------------------------------------------------------------- */

cloob_status model_tokenizer(cloob_ctx *ctx, const char *path, const char *vocab, const weights *w, tokenizer **out)
{
    const char *stored = weights_get_meta(w, "tokenizer"), *from = vocab ? vocab : "the stored tokenizer";
    char found[1024];
    *out = NULL;
    if (vocab || stored) {
        CLOOB_TRY(vocab ? cloob_tokenizer_open(ctx, vocab, out)
                        : tokenizer_open_text(ctx, stored, strlen(stored), from, out));
        if (tokenizer_fits(*out, w->config.vocab)) return CLOOB_OK;
        cloob_status status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %d tokens, the model of %s has %lld", from,
                                       cloob_tokenizer_vocab_size(*out), path, (long long)w->config.vocab);
        cloob_tokenizer_close(*out), *out = NULL;
        return status;
    }
    CLOOB_TRY(tokenizer_open_folder(ctx, path, w->config.vocab, out));
    if (*out || w->config.vocab != CLIP_VOCAB) return CLOOB_OK;
    CLOOB_TRY(tokenizer_find_clip(ctx, out, found, sizeof found));
    if (*out) ctx_log(ctx, CLOOB_LOG_INFO, "%s holds no tokenizer; CLIP's merges are read from %s", path, found);
    return CLOOB_OK;
}

const char *tokenizer_remedy(int64_t vocab)
{
    return vocab == CLIP_VOCAB ? ", or fetch CLIP's tokenizer once: cloob pull clip-vit-b-32" : "";
}

/* A scale is stored as its logarithm under `name`, or plainly in the metadata. */
static double read_scale(const weights *w, const char *name, const char *meta)
{
    const tensor *t = weights_find(w, name);
    const char *text = weights_get_meta(w, meta);
    double log_scale;
    if (text) return strtod(text, NULL);
    if (!t || tensor_count(t) != 1 || !dtype_convert(CLOOB_F64, &log_scale, t->dtype, t->data, 1)) return 0;
    return isfinite(exp(log_scale)) ? exp(log_scale) : 0;
}

static const char *keep(arena *a, const char *text) { return text ? arena_string(a, text) : ""; }

static void read_facts(model *m, const weights *w, const interchange_report *report)
{
    const char *epoch = weights_get_meta(w, "epoch"), *digest = st_meta_get(&w->st, "digest.model");
    bool checked = digest && strcmp(report->names, "cloob") == 0;
    snprintf(m->digest, sizeof m->digest, "%s", checked ? digest : "");
    m->epoch = epoch ? strtoll(epoch, NULL, 10) : -1;
    m->method = keep(&m->a, weights_get_meta(w, "method"));
    m->run = keep(&m->a, weights_get_meta(w, "run"));
    m->names = keep(&m->a, report->names);
    m->container = keep(&m->a, report->container);
    m->inv_tau = read_scale(w, "logit_scale", "inv_tau");
    m->scale_hopfield = read_scale(w, "logit_scale_hopfield", "scale_hopfield");
    int64_t largest = 0;
    for (int64_t i = 0; i < w->count; i++) {
        if (strncmp(w->entry[i].name, "train.", 6) == 0) continue;
        int64_t count = tensor_count(&w->entry[i].t);
        m->parameters += count;
        if (count > largest) largest = count, m->stored = w->entry[i].t.dtype;
    }
}

static cloob_status load(cloob_ctx *ctx, model *m, const char *path, const cloob_model_options *o)
{
    model_config config;
    interchange_options io = { 0 };
    interchange_report report = { 0 };
    weights w;
    precision p;
    CLOOB_TRY(precision_find(ctx, o->precision, false, &p));
    if (o->config) {
        CLOOB_TRY(model_config_load(ctx, o->config, &config));
        io.config = &config;
    }
    CLOOB_TRY(device_open(ctx, o->device ? o->device : "auto", &m->dev));
    cloob_status status = interchange_read(ctx, path, &io, &w, &report);
    if (status == CLOOB_OK) {
        status = precision_settle(ctx, m->dev, weights_get_meta(&w, "auto_precision"), &p);
        m->compute = p.compute, m->int8 = p.int8, m->fp8 = p.fp8, m->half = p.half;
        encoder_options encode = {
            .compute = p.compute, .int8 = p.int8, .fp8 = p.fp8, .invariant = o->invariant, .batch = o->batch
        };
        m->path = keep(&m->a, path);
        read_facts(m, &w, &report);
        for (int64_t i = 0; i < w.count; i++) /* two thirds of a checkpoint; only a copy in memory must be freed */
            if (strncmp(w.entry[i].name, "train.", 6) == 0) weights_forget(&w, &w.entry[i].t);
        if (status == CLOOB_OK && p.half) status = weights_convert(ctx, &w, CLOOB_F16);
        if (!m->path || !m->method || !m->run || !m->names || !m->container)
            status = ctx_no_memory(ctx, strlen(path), "the model's names");
        if (status == CLOOB_OK) status = model_tokenizer(ctx, path, o->vocab, &w, &m->tok);
        transform_options_init(&m->view, w.config.image_size);
        m->view.how = w.config.view;
        m->limits = (image_limits){ o->max_pixels, 8, o->photos };
        if (status == CLOOB_OK) status = encoder_create(ctx, &w, m->dev, &encode, &m->enc);
        weights_release(&w);
    }
    interchange_report_release(&report);
    return status;
}

cloob_status cloob_model_open(cloob_ctx *ctx, const char *path, const cloob_model_options *o, cloob_model **out)
{
    API_NEEDS(ctx, path && out);
    *out = NULL;
    OPTIONS_READ(ctx, cloob_model_options, o);
    model *m = calloc(1, sizeof *m);
    if (!m) return ctx_no_memory(ctx, sizeof *m, path);
    cloob_status status = load(ctx, m, path, o);
    if (status == CLOOB_OK) *out = m;
    else cloob_model_close(m);
    return status;
}

void cloob_model_close(cloob_model *m)
{
    if (!m) return;
    encoder_destroy(m->enc);
    cloob_tokenizer_close(m->tok);
    device_close(m->dev);
    arena_release(&m->a);
    free(m);
}

void cloob_model_get_facts(const cloob_model *m, cloob_model_facts *out)
{
    if (!m || !out) return;
    const model_config *c = encoder_config(m->enc);
    bool images = !c->no_image_tower, texts = !c->no_text_tower;
    *out = (cloob_model_facts){ .family = model_family_name(c->family),
                                .activation = model_act_name(c->text.act),
                                .embed = c->embed,
                                .image_size = images ? c->image_size : 0,
                                .context = texts ? c->context : 0,
                                .vocab = texts ? c->vocab : 0,
                                .image_features = images ? encoder_width(m->enc, CLOOB_FEATURES, false) : 0,
                                .text_features = texts ? encoder_width(m->enc, CLOOB_FEATURES, true) : 0,
                                .parameters = m->parameters,
                                .stored = m->stored,
                                .method = m->method,
                                .run = m->run,
                                .epoch = m->epoch,
                                .inv_tau = m->inv_tau,
                                .scale_hopfield = m->scale_hopfield,
                                .has_tokenizer = m->tok != NULL,
                                .container = m->container,
                                .names = m->names,
                                .device = m->dev->name,
                                .precision = m->int8                    ? "int8"
                                             : m->fp8                   ? "fp8"
                                             : m->half                  ? "f16"
                                             : m->compute == CLOOB_BF16 ? "bf16"
                                                                        : "fp32" };
    snprintf(out->name, sizeof out->name, "%s", c->name);
}

/* ---- texts --------------------------------------------------------------------------------------- */

enum { TEXTS_AT_ONCE = 1024 };

cloob_status encode_texts(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const char *const *text, int64_t n,
                          cloob_output what, float *out)
{
    int64_t T = encoder_config(enc)->context, width = encoder_width(enc, what, true);
    CLOOB_TRY(model_config_need(ctx, encoder_config(enc), true));
    if (!tok)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the weights hold no tokenizer; set `vocab` FILE%s",
                        tokenizer_remedy(encoder_config(enc)->vocab));
    int32_t *row = malloc((size_t)(TEXTS_AT_ONCE * T) * sizeof *row);
    if (!row) return ctx_no_memory(ctx, (size_t)(TEXTS_AT_ONCE * T) * sizeof *row, "tokens");
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < n && status == CLOOB_OK; i += TEXTS_AT_ONCE) {
        int64_t count = n - i < TEXTS_AT_ONCE ? n - i : TEXTS_AT_ONCE;
        status = cloob_tokenizer_encode_rows(ctx, tok, text + i, count, T, row);
        if (status == CLOOB_OK) status = encoder_texts(ctx, enc, row, count, what, out + i * width);
    }
    free(row);
    return status;
}

/* ---- images ------------------------------------------------------------------------------------ */

enum { IMAGES_AT_ONCE = 256 };

typedef struct view_job {
    cloob_ctx *ctx;
    const model *m;
    const cloob_image_input *in;
    int64_t first; /* of the call's inputs, for messages */
    uint8_t *rgb;  /* (n, S, S, 3) */
    cloob_status status[IMAGES_AT_ONCE];
    char *error[IMAGES_AT_ONCE];
} view_job;

static cloob_status view_file(cloob_ctx *ctx, const model *m, view_scratch *s, const char *path, uint8_t *rgb)
{
    file_bytes bytes;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    cloob_status status = view_of_bytes(ctx, s, bytes.data, bytes.size, path, &m->limits, &m->view, NULL, rgb);
    file_bytes_release(&bytes);
    return status;
}

static cloob_status view_one(cloob_ctx *ctx, const view_job *j, view_scratch *s, int64_t i, uint8_t *rgb)
{
    const cloob_image_input *in = &j->in[i];
    const model *m = j->m;
    char name[40];
    if (in->path) return view_file(ctx, m, s, in->path, rgb);
    snprintf(name, sizeof name, "image %lld", (long long)(j->first + i));
    if (!in->data) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: has neither a path nor data", name);
    if (in->width == 0 && in->height == 0)
        return view_of_bytes(ctx, s, in->data, in->bytes, name, &m->limits, &m->view, NULL, rgb);
    if (in->width < 1 || in->height < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %lld x %lld pixels", name, (long long)in->width,
                        (long long)in->height);
    image im = { .rgb = (uint8_t *)(uintptr_t)in->data, .width = in->width, .height = in->height }; /* only read */
    return view_of_image(ctx, s, &im, &m->view, NULL, rgb);
}

static void view_range(void *arg, int64_t begin, int64_t end, int thread)
{
    view_job *j = arg;
    size_t row = (size_t)(j->m->view.size * j->m->view.size * 3);
    cloob_ctx *ctx = ctx_worker(j->ctx);
    view_scratch *s = NULL;
    cloob_status made = ctx ? view_scratch_create(ctx, &s) : CLOOB_ERR_MEMORY;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        j->status[i] = made == CLOOB_OK ? view_one(ctx, j, s, i, j->rgb + (size_t)i * row) : made;
        if (j->status[i] != CLOOB_OK) {
            memset(j->rgb + (size_t)i * row, 0, row);
            j->error[i] = strdup(ctx ? cloob_error(ctx) : "out of memory");
        }
    }
    view_scratch_destroy(s);
    cloob_ctx_destroy(ctx);
}

static cloob_status judge(cloob_ctx *ctx, view_job *j, int64_t n, bool *bad)
{
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < n; i++) {
        const char *why = j->error[i] ? j->error[i] : "out of memory";
        bool failed = j->status[i] != CLOOB_OK;
        if (bad) bad[i] = failed;
        bool unreadable = failed && j->status[i] != CLOOB_ERR_MEMORY; /* out of memory is not an error in the image */
        if (unreadable && bad) ctx_log(ctx, CLOOB_LOG_WARN, "left out: %s", why);
        else if (failed && status == CLOOB_OK) status = ctx_fail(ctx, j->status[i], "%s", why);
        free(j->error[i]);
        j->error[i] = NULL;
    }
    return status;
}

/* (n, 3, S, S) as the image tower takes them. */
static void normalise(const model *m, const uint8_t *rgb, int64_t n, float *out)
{
    const model_config *c = encoder_config(m->enc);
    int64_t pixels = m->view.size * m->view.size;
    for (int64_t i = 0; i < n * 3; i++) {
        float mean = (float)c->image_mean[i % 3], std = (float)c->image_std[i % 3];
        const uint8_t *from = rgb + i / 3 * 3 * pixels + i % 3;
        for (int64_t k = 0; k < pixels; k++) out[i * pixels + k] = ((float)from[3 * k] / 255 - mean) / std;
    }
}

/* Rows of n images: embeddings, or where `what` is NULL the normalised pixels. */
static int64_t row_width(const model *m, const cloob_output *what)
{
    return what ? encoder_width(m->enc, *what, false) : 3 * m->view.size * m->view.size;
}

static cloob_status make_rows(cloob_ctx *ctx, model *m, view_job *j, int64_t n, const cloob_output *what, float *out,
                              bool *bad)
{
    int64_t width = row_width(m, what);
    pool_for(ctx, n, 1, view_range, j);
    CLOOB_TRY(judge(ctx, j, n, bad));
    if (what) CLOOB_TRY(encoder_images(ctx, m->enc, j->rgb, n, *what, out));
    else normalise(m, j->rgb, n, out);
    for (int64_t i = 0; i < n && bad; i++)
        if (bad[i]) memset(out + i * width, 0, (size_t)width * sizeof *out);
    return CLOOB_OK;
}

static cloob_status image_rows(cloob_ctx *ctx, model *m, const cloob_image_input *in, int64_t n,
                               const cloob_output *what, float *out, bool *bad)
{
    int64_t width = row_width(m, what), limit = n < IMAGES_AT_ONCE ? n : IMAGES_AT_ONCE;
    size_t bytes = (size_t)(limit * m->view.size * m->view.size * 3);
    CLOOB_TRY(model_config_need(ctx, encoder_config(m->enc), false));
    if (!what && m->view.how.mode == RESIZE_PATCHES)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "NaFlex images have no fixed size; embed the images or their files");
    view_job *j = calloc(1, sizeof *j);
    cloob_status status = CLOOB_OK;
    if (!j || !(j->rgb = malloc(bytes ? bytes : 1))) status = ctx_no_memory(ctx, bytes, "images");
    for (int64_t i = 0; i < n && status == CLOOB_OK; i += IMAGES_AT_ONCE) {
        int64_t count = n - i < IMAGES_AT_ONCE ? n - i : IMAGES_AT_ONCE;
        j->ctx = ctx, j->m = m, j->in = in + i, j->first = i;
        status = make_rows(ctx, m, j, count, what, out + i * width, bad ? bad + i : NULL);
    }
    if (j) free(j->rgb);
    free(j);
    return status;
}

/* ---- the public interface ---------------------------------------------------------------------------- */

static const option_desc model_table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_model_options, , __VA_ARGS__)
#include "cloob/model_options.def"
};

const option_desc *model_option_table(int64_t *count) { return OPTION_TABLE(model_table, count); }

void cloob_model_options_init_size(cloob_model_options *o, size_t size)
{
    cloob_model_options d = { .max_pixels = CLOOB_DEFAULT_MAX_PIXELS };
    OPTION_DEFAULTS(model_table, &d);
    options_write(o, size, &d, sizeof d);
}

static const option_desc eval_table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_eval_options, , __VA_ARGS__)
#include "cloob/eval_options.def"
};

const option_desc *eval_option_table(int64_t *count) { return OPTION_TABLE(eval_table, count); }

void eval_options_init(cloob_eval_options *o)
{
    if (o) OPTION_DEFAULTS(eval_table, o);
}

int64_t cloob_model_width(const cloob_model *m, cloob_output what, cloob_side side)
{
    return m ? encoder_width(m->enc, what, side == CLOOB_TEXT) : 0;
}

cloob_status cloob_encode_images(cloob_ctx *ctx, cloob_model *m, const uint8_t *rgb, int64_t n, cloob_output what,
                                 float *out)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (rgb && out)));
    int64_t S = m->view.size, width = encoder_width(m->enc, what, false);
    if (m->view.how.mode != RESIZE_PATCHES) return encoder_images(ctx, m->enc, rgb, n, what, out);
    for (int64_t i = 0; i < n; i++) /* NaFlex sees them resized to whole patches */
        CLOOB_TRY(cloob_encode_image(ctx, m, rgb + i * S * S * 3, S, S, what, out + i * width));
    return CLOOB_OK;
}

cloob_status cloob_encode_image(cloob_ctx *ctx, cloob_model *m, const uint8_t *rgb, int64_t width, int64_t height,
                                cloob_output what, float *out)
{
    API_NEEDS(ctx, m && rgb && out);
    if (width < 1 || height < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "an image of %lld x %lld", (long long)width, (long long)height);
    cloob_image_input in = { .data = rgb, .width = width, .height = height };
    return image_rows(ctx, m, &in, 1, &what, out, NULL);
}

cloob_status cloob_encode_files(cloob_ctx *ctx, cloob_model *m, const char *const *path, int64_t n, cloob_output what,
                                float *out, bool *bad)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (path && out)));
    cloob_image_input *in = calloc((size_t)n + 1, sizeof *in);
    if (!in) return ctx_no_memory(ctx, (size_t)n * sizeof *in, "images");
    for (int64_t i = 0; i < n; i++) in[i].path = path[i];
    cloob_status status = image_rows(ctx, m, in, n, &what, out, bad);
    free(in);
    return status;
}

cloob_status cloob_encode_inputs(cloob_ctx *ctx, cloob_model *m, const cloob_image_input *in, int64_t n,
                                 cloob_output what, float *out, bool *bad)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (in && out)));
    return image_rows(ctx, m, in, n, &what, out, bad);
}

cloob_status cloob_model_preprocess(cloob_ctx *ctx, cloob_model *m, const cloob_image_input *in, int64_t n, float *out,
                                    bool *bad)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (in && out)));
    return image_rows(ctx, m, in, n, NULL, out, bad);
}

cloob_status cloob_encode_texts(cloob_ctx *ctx, cloob_model *m, const char *const *text, int64_t n, cloob_output what,
                                float *out)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (text && out)));
    return encode_texts(ctx, m->enc, m->tok, text, n, what, out);
}

cloob_status cloob_model_tokenize(cloob_ctx *ctx, const cloob_model *m, const char *const *text, int64_t n,
                                  int32_t *rows)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (text && rows)));
    CLOOB_TRY(model_config_need(ctx, encoder_config(m->enc), true));
    if (!m->tok) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the weights hold no tokenizer; open them with a vocabulary");
    return cloob_tokenizer_encode_rows(ctx, m->tok, text, n, encoder_config(m->enc)->context, rows);
}

cloob_status cloob_encode_image_tensor(cloob_ctx *ctx, cloob_model *m, const float *images, int64_t n,
                                       cloob_output what, float *out)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (images && out)));
    return encoder_float_images(ctx, m->enc, images, n, what, out);
}

cloob_status cloob_encode_tokens(cloob_ctx *ctx, cloob_model *m, const int32_t *tokens, int64_t n, cloob_output what,
                                 float *out)
{
    API_NEEDS(ctx, m && n >= 0 && (n == 0 || (tokens && out)));
    return encoder_texts(ctx, m->enc, tokens, n, what, out);
}
