/* Embeddings: OpenAI's protocol with the image dialects of Infinity, Jina and vLLM, and text-embeddings-inference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "core/text.h"
#include "serve/text.h"
#include "core/ctx.h"

void unit_row(float *row, int64_t n)
{
    double square = 0;
    for (int64_t k = 0; k < n; k++) square += (double)row[k] * row[k];
    for (int64_t k = 0; k < n && square > 0; k++) row[k] = (float)((double)row[k] / sqrt(square));
}

served_model *model_of(serve *s, const http_request *q, http_reply *r, const char *name)
{
    served_model *m = serve_model(s, name);
    if (!m) http_error(r, q, 404, "there is no model %.200s; /v1/models lists them", name);
    return m;
}

/* Memory that embedding takes: rows, the inputs of one piece (batcher), the answer as numbers in JSON, and tokenizing
 * the longest text, which takes seven times its bytes. */
static int64_t embed_memory(served_model *m, const inputs *i)
{
    enum { IMAGES_AT_ONCE = 16, NUMBER_BYTES = 16, TOKENIZE_TIMES = 8 };
    cloob_model_facts f;
    cloob_batcher_get_facts(m->batcher, &f);
    int64_t images = 0, longest = 0;
    for (int64_t k = 0; k < i->n; k++) {
        int64_t bytes = i->in[k].kind == CLOOB_BATCH_TEXT ? (int64_t)strlen(i->in[k].text) : 0;
        if (bytes > longest) longest = bytes;
        images += i->in[k].kind == CLOOB_BATCH_IMAGE_FILE || i->in[k].kind == CLOOB_BATCH_IMAGE_RGB;
    }
    if (images > IMAGES_AT_ONCE) images = IMAGES_AT_ONCE;
    return i->n * f.embed * ((int64_t)sizeof(float) + NUMBER_BYTES) + images * f.image_size * f.image_size * 3 +
           TOKENIZE_TIMES * longest;
}

static bool has_images(const inputs *i)
{
    for (int64_t k = 0; k < i->n; k++)
        if (i->in[k].kind == CLOOB_BATCH_IMAGE_FILE) return true;
    return false;
}

bool embed_inputs(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, served_model *m, const inputs *i,
                  cloob_output what, bool refuse_long, cloob_batch_rows *rows)
{
    if (i->n == 0) {
        http_error(r, q, 400, "the input is empty: give at least one text or image");
        return false;
    }
    bool images = has_images(i);
    if (images && !gate_enter(&s->images, r)) return false;
    if (!http_reserve(r, q, ctx, embed_memory(m, i))) {
        if (images) gate_leave(&s->images);
        return false;
    }
    double left = (double)s->o->timeout_s - (clock_seconds() - q->received_at);
    cloob_batch_options o = { .what = what,
                              .refuse_long = refuse_long,
                              .timeout_ms = (int64_t)(1e3 * (left > 0.1 ? left : 0.1)) };
    cloob_status status = cloob_batcher_encode(ctx, m->batcher, i->in, i->n, &o, rows);
    if (images) gate_leave(&s->images);
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    return status == CLOOB_OK;
}

/* ---- the request --------------------------------------------------------------------------------- */

typedef struct embed_request {
    inputs in;
    json_doc *doc;
    const char *model; /* inside doc or query */
    char *form_model;
    bool base64, raw;
    int64_t dimensions; /* 0: all */
} embed_request;

static void embed_request_release(embed_request *a)
{
    inputs_release(&a->in);
    json_doc_close(a->doc);
    free(a->form_model);
}

/* Jina: {"text": ...} or {"image": ...}; the values of both are strings. */
static cloob_status add_object(cloob_ctx *ctx, serve *s, embed_request *a, const json *v)
{
    const char *text = json_string(json_get(v, "text")), *image = json_string(json_get(v, "image"));
    if (!text == !image) return refuse(ctx, "an input object holds either text or image, a string");
    return text ? inputs_text(ctx, &a->in, text) : inputs_image(ctx, s, &a->in, image);
}

static cloob_status add_value(cloob_ctx *ctx, serve *s, embed_request *a, const json *v, bool images)
{
    const char *text = json_string(v);
    if (text) return images ? inputs_image(ctx, s, &a->in, text) : inputs_either(ctx, s, &a->in, text);
    if (json_kind_of(v) == JSON_OBJECT) return add_object(ctx, s, a, v);
    if (json_kind_of(v) == JSON_ARRAY) return inputs_tokens(ctx, &a->in, v);
    return refuse(ctx, "input holds strings, lists of token ids, or objects with text or image");
}

/* A string, an object, a list of them, a list of ids, or a list of lists of ids. */
static cloob_status add_input(cloob_ctx *ctx, serve *s, embed_request *a, const json *v, bool images)
{
    cloob_status status = CLOOB_OK;
    if (json_kind_of(v) != JSON_ARRAY) return add_value(ctx, s, a, v, images);
    if (json_kind_of(json_first(v)) == JSON_NUMBER) return inputs_tokens(ctx, &a->in, v);
    for (const json *e = json_first(v); e && status == CLOOB_OK; e = json_next(e))
        status = add_value(ctx, s, a, e, images);
    return status;
}

/* One part of a vLLM message: {"type":"image_url","image_url":{"url":...}} or {"type":"text","text":...}. */
static cloob_status add_part(cloob_ctx *ctx, serve *s, embed_request *a, const json *part)
{
    const json *image = json_get(part, "image_url");
    const char *text = json_string(json_get(part, "text"));
    const char *url = json_string(image) ? json_string(image) : json_string(json_get(image, "url"));
    if (url) return inputs_image(ctx, s, &a->in, url);
    if (!text) return refuse(ctx, "a message's part holds text, or image_url with its url");
    return *text ? inputs_text(ctx, &a->in, text) : CLOOB_OK; /* vLLM sends an empty text with an image */
}

/* vLLM: a conversation gives one embedding, of its text or of its image. */
static cloob_status add_messages(cloob_ctx *ctx, serve *s, embed_request *a, const json *messages)
{
    cloob_status status = CLOOB_OK;
    for (const json *m = json_first(messages); m && status == CLOOB_OK; m = json_next(m)) {
        const json *content = json_get(m, "content");
        if (json_string(content)) status = inputs_text(ctx, &a->in, json_string(content));
        else
            for (const json *p = json_first(content); p && status == CLOOB_OK; p = json_next(p))
                status = add_part(ctx, s, a, p);
    }
    if (status == CLOOB_OK && a->in.n != 1)
        return refuse(ctx, "messages must hold one text or one image, here %lld", (long long)a->in.n);
    return status;
}

static bool absent(const json *v) { return json_kind_of(v) == JSON_NULL; }

static cloob_status read_settings(cloob_ctx *ctx, embed_request *a, const json *root)
{
    const json *format = json_get(root, "encoding_format"), *type = json_get(root, "embedding_type");
    const json *size = json_get(root, "dimensions"), *unit = json_get(root, "normalized");
    const json *model = json_get(root, "model");
    const char *word = json_string(absent(format) ? type : format);
    bool normalized = true;
    if (!(absent(format) && absent(type)) && (!word || (strcmp(word, "float") != 0 && strcmp(word, "base64") != 0)))
        return refuse(ctx, "encoding_format: float or base64");
    if (!absent(size) && (!json_int(size, &a->dimensions) || a->dimensions < 1))
        return refuse(ctx, "dimensions: a whole number from 1 on");
    if (!absent(unit) && !json_bool(unit, &normalized)) return refuse(ctx, "normalized: true or false");
    if (!absent(model) && !json_string(model)) return refuse(ctx, "model: a string");
    a->base64 = word && strcmp(word, "base64") == 0;
    a->raw = !normalized;
    a->model = json_string(model);
    return CLOOB_OK;
}

static cloob_status read_json(cloob_ctx *ctx, serve *s, const http_request *q, embed_request *a)
{
    cloob_status status = body_object(ctx, q, &a->doc);
    if (status != CLOOB_OK) return status;
    const json *root = json_doc_root(a->doc), *modality = json_get(root, "modality");
    const json *input = json_get(root, "input"), *messages = json_get(root, "messages");
    const char *kind = json_string(modality);
    if (!absent(modality) && (!kind || (strcmp(kind, "image") != 0 && strcmp(kind, "text") != 0)))
        return refuse(ctx, "modality: text or image");
    status = read_settings(ctx, a, root);
    if (status != CLOOB_OK) return status;
    if (json_kind_of(messages) == JSON_ARRAY) return add_messages(ctx, s, a, messages);
    if (absent(input)) return refuse(ctx, "input is missing");
    return add_input(ctx, s, a, input, kind && strcmp(kind, "image") == 0);
}

static cloob_status read_form(cloob_ctx *ctx, const http_request *q, embed_request *a)
{
    form_part part[PART_MAX];
    int n = multipart_parse(q->content_type, q->body, q->bytes, part);
    if (n < 0) return refuse(ctx, "the multipart body is not well formed");
    cloob_status status = CLOOB_OK;
    for (int i = 0; i < n && status == CLOOB_OK; i++) {
        const form_part *p = &part[i];
        bool image = *p->filename || strncmp(p->type, "image/", 6) == 0;
        char *text = image ? NULL : strndup(p->data, p->bytes);
        if (image) status = inputs_bytes(ctx, &a->in, p->data, p->bytes);
        else if (!text) status = ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
        else if (strcmp(p->name, "model") == 0 && !a->form_model) a->model = a->form_model = text, text = NULL;
        else if (strcmp(p->name, "input") == 0 || strcmp(p->name, "text") == 0) {
            status = inputs_own_text(ctx, &a->in, text);
            text = NULL;
        }
        free(text);
    }
    return status;
}

static cloob_status read_request(cloob_ctx *ctx, serve *s, const http_request *q, embed_request *a)
{
    *a = (embed_request){ .model = http_query(q, "model") };
    inputs_init(&a->in, s, q);
    if (http_type_is(q, "image/")) return inputs_bytes(ctx, &a->in, q->body, q->bytes);
    if (http_type_is(q, "multipart/form-data")) return read_form(ctx, q, a);
    return read_json(ctx, s, q, a);
}

/* ---- the answer ---------------------------------------------------------------------------------- */

static void put_embedding(json_out *w, const char *key, const float *row, int64_t n, bool base64)
{
    if (!base64) {
        json_put_floats(w, key, row, n);
        return;
    }
    sbuf text = { 0 };
    base64_put(&text, row, (size_t)n * sizeof *row); /* little-endian, as every supported machine is */
    if (!text.failed) json_put_text(w, key, n ? text.data : "");
    else w->failed = true;
    sbuf_release(&text);
}

static void put_list(json_out *w, const embed_request *a, const served_model *m, cloob_batch_rows *rows)
{
    int64_t width = a->dimensions && a->dimensions < rows->width ? a->dimensions : rows->width;
    json_begin(w, NULL, '{');
    json_put_text(w, "object", "list");
    json_begin(w, "data", '[');
    for (int64_t i = 0; i < rows->n; i++) {
        float *row = rows->data + i * rows->width;
        if (width < rows->width && !a->raw) unit_row(row, width);
        json_begin(w, NULL, '{');
        json_put_text(w, "object", "embedding");
        json_put_int(w, "index", i);
        put_embedding(w, "embedding", row, width, a->base64);
        json_end(w);
    }
    json_end(w);
    json_put_text(w, "model", m->name);
    json_begin(w, "usage", '{');
    json_put_int(w, "prompt_tokens", rows->tokens);
    json_put_int(w, "total_tokens", rows->tokens);
    json_end(w);
    json_end(w);
}

void handle_embeddings(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    embed_request a;
    cloob_batch_rows rows;
    json_out w = { 0 };
    cloob_status status = read_request(ctx, s, q, &a);
    served_model *m = status == CLOOB_OK ? model_of(s, q, r, a.model) : NULL;
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (m && embed_inputs(s, ctx, q, r, m, &a.in, a.raw ? CLOOB_RAW : CLOOB_UNIT, false, &rows)) {
        if (a.dimensions > rows.width) http_error(r, q, 400, "dimensions: the model has %lld", (long long)rows.width);
        else {
            put_list(&w, &a, m, &rows);
            http_json(r, 200, &w);
        }
        cloob_batch_rows_release(&rows);
    }
    embed_request_release(&a);
}

void handle_models(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_out w = { 0 };
    (void)ctx, (void)q;
    json_begin(&w, NULL, '{');
    json_put_text(&w, "object", "list");
    json_begin(&w, "data", '[');
    for (int64_t i = 0; i < s->models; i++) {
        cloob_model_facts f;
        cloob_batcher_stats t;
        cloob_batcher_get_facts(s->model[i].batcher, &f);
        cloob_batcher_get_stats(s->model[i].batcher, &t);
        json_begin(&w, NULL, '{');
        json_put_text(&w, "id", s->model[i].name);
        json_put_text(&w, "object", "model");
        json_put_int(&w, "created", s->model[i].seen.mtime_ns / INT64_C(1000000000));
        json_put_text(&w, "owned_by", "cloob");
        json_put_text(&w, "architecture", f.name);
        json_put_int(&w, "dimensions", f.embed);
        json_put_int(&w, "image_size", f.image_size);
        json_put_int(&w, "context", f.context);
        json_put_bool(&w, "text", f.has_tokenizer);
        json_put_text(&w, "state", t.error[0] ? "failed" : "ready");
        if (t.error[0]) json_put_text(&w, "error", t.error);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    http_json(r, 200, &w);
}

/* ---- text-embeddings-inference ------------------------------------------------------------------- */

static cloob_status read_embed(cloob_ctx *ctx, serve *s, const http_request *q, embed_request *a, bool *truncate)
{
    bool normalize = true;
    *a = (embed_request){ 0 };
    inputs_init(&a->in, s, q);
    cloob_status status = body_object(ctx, q, &a->doc);
    if (status != CLOOB_OK) return status;
    const json *root = json_doc_root(a->doc), *unit = json_get(root, "normalize");
    const json *cut = json_get(root, "truncate"), *size = json_get(root, "dimensions");
    if (!absent(unit) && !json_bool(unit, &normalize)) return refuse(ctx, "normalize: true or false");
    if (!absent(cut) && !json_bool(cut, truncate)) return refuse(ctx, "truncate: true or false");
    if (!absent(size) && (!json_int(size, &a->dimensions) || a->dimensions < 1))
        return refuse(ctx, "dimensions: a whole number from 1 on");
    a->raw = !normalize;
    if (absent(json_get(root, "inputs"))) return refuse(ctx, "inputs is missing");
    return add_input(ctx, s, a, json_get(root, "inputs"), false);
}

void handle_embed(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    embed_request a;
    bool truncate = false;
    cloob_batch_rows rows;
    json_out w = { 0 };
    cloob_status status = read_embed(ctx, s, q, &a, &truncate);
    if (status != CLOOB_OK) http_fail(r, q, ctx, status);
    else if (embed_inputs(s, ctx, q, r, &s->model[0], &a.in, a.raw ? CLOOB_RAW : CLOOB_UNIT, !truncate, &rows)) {
        int64_t width = a.dimensions && a.dimensions < rows.width ? a.dimensions : rows.width;
        json_begin(&w, NULL, '[');
        for (int64_t i = 0; i < rows.n; i++) {
            if (width < rows.width && !a.raw) unit_row(rows.data + i * rows.width, width);
            json_put_floats(&w, NULL, rows.data + i * rows.width, width);
        }
        json_end(&w);
        http_json(r, 200, &w);
        cloob_batch_rows_release(&rows);
    }
    if (r->code == 400) r->code = 422;
    embed_request_release(&a);
}

void handle_info(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_out w = { 0 };
    cloob_model_facts f;
    (void)ctx, (void)q;
    cloob_batcher_get_facts(s->model[0].batcher, &f);
    json_begin(&w, NULL, '{');
    json_put_text(&w, "model_id", s->model[0].name);
    json_put_null(&w, "model_sha");
    json_put_text(&w, "model_dtype",
                  strcmp(f.precision, "bf16") == 0   ? "bfloat16"
                  : strcmp(f.precision, "int8") == 0 ? "int8"
                  : strcmp(f.precision, "fp8") == 0  ? "float8"
                                                     : "float32");
    json_begin(&w, "model_type", '{');
    json_begin(&w, "embedding", '{');
    json_put_text(&w, "pooling", "last_token");
    json_end(&w);
    json_end(&w);
    json_put_int(&w, "max_concurrent_requests", s->o->workers + s->o->max_queue);
    json_put_int(&w, "max_input_length", f.context);
    json_put_int(&w, "max_batch_tokens", f.context * s->o->max_batch);
    json_put_int(&w, "max_batch_requests", s->o->max_batch);
    json_put_int(&w, "max_client_batch_size", s->o->max_inputs);
    json_put_bool(&w, "auto_truncate", false);
    json_put_int(&w, "tokenization_workers", s->o->workers);
    json_put_text(&w, "version", cloob_version());
    json_end(&w);
    http_json(r, 200, &w);
}
