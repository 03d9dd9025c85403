/* Ollama, Cohere and Weaviate's inference containers. A dialect is a reader, a writer, and a row of the table of
 * routes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "serve/handlers.h"
#include "core/ctx.h"
#include "core/text.h"
#include "infer/batcher.h"
#include "serve/text.h"

/* ---- Ollama -------------------------------------------------------------------------------------- */

/* input, then images, each a string or a list. Without both the answer has no rows: Ollama's clients send that to load
 * a model. */
static cloob_status ollama_read(cloob_ctx *ctx, embed_call *e)
{
    bool truncate = true;
    CLOOB_TRY(call_body(ctx, e));
    CLOOB_TRY(field_text(ctx, e->root, "model", &e->model));
    CLOOB_TRY(field_bool(ctx, e->root, "truncate", &truncate));
    CLOOB_TRY(field_int(ctx, e->root, "dimensions", 0, INT64_MAX, &e->dimensions));
    e->refuse_long = !truncate, e->may_be_empty = true;
    const json *input = json_get(e->root, "input");
    bool none = field_absent(e->root, "input") || (json_string(input) && !*json_string(input));
    if (!none) CLOOB_TRY(inputs_any(ctx, &e->in, input, false));
    return inputs_list(ctx, &e->in, e->root, "images", true);
}

static int64_t nanoseconds(double seconds) { return (int64_t)(1e9 * seconds); }

static cloob_status ollama_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                 json_out *w)
{
    (void)ctx;
    json_begin(w, NULL, '{');
    json_put_text(w, "model", e->model ? e->model : m->name);
    put_rows(w, "embeddings", rows->data, rows->n, rows->width);
    json_members(w, J_INT("total_duration", nanoseconds(clock_seconds() - e->q->received_at)),
                 J_INT("load_duration", 0), J_INT("prompt_eval_count", rows->tokens));
    json_end(w);
    return CLOOB_OK;
}

/* The older /api/embeddings: one prompt, or one image. */
static cloob_status prompt_read(cloob_ctx *ctx, embed_call *e)
{
    const char *prompt = NULL;
    CLOOB_TRY(call_body(ctx, e));
    CLOOB_TRY(field_text(ctx, e->root, "model", &e->model));
    CLOOB_TRY(field_text(ctx, e->root, "prompt", &prompt));
    if (prompt && *prompt) CLOOB_TRY(inputs_text(ctx, &e->in, prompt));
    CLOOB_TRY(inputs_list(ctx, &e->in, e->root, "images", true));
    e->may_be_empty = true;
    if (e->in.n > 1) return refuse(ctx, "one prompt or one image; /api/embed takes several");
    return CLOOB_OK;
}

static cloob_status prompt_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                 json_out *w)
{
    (void)ctx, (void)e, (void)m;
    json_begin(w, NULL, '{');
    json_put_floats(w, "embedding", rows->data, rows->n ? rows->width : 0);
    json_end(w);
    return CLOOB_OK;
}

const dialect dialect_ollama = { ollama_read, ollama_write };
const dialect dialect_ollama_prompt = { prompt_read, prompt_write };

void handle_tags(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_out w = { 0 };
    (void)ctx, (void)q;
    json_begin(&w, NULL, '{');
    json_begin(&w, "models", '[');
    for (int64_t i = 0; i < s->models; i++) {
        served_model *m = &s->model[i];
        cloob_model_facts f;
        char digest[DIGEST_TEXT], date[32];
        cloob_batcher_get_facts(m->batcher, &f);
        batcher_get_digest(m->batcher, digest);
        date_print(m->seen.mtime_ns, date);
        json_begin(&w, NULL, '{');
        json_members(&w, J_OF(m, name), J_TEXT("model", m->name), J_TEXT("modified_at", date), J_OF(&m->seen, size),
                     J_TEXT("digest", digest));
        json_begin(&w, "details", '{');
        json_members(&w, J_TEXT("parent_model", ""), J_TEXT("format", "safetensors"), J_TEXT("family", "clip"));
        json_begin(&w, "families", '[');
        json_put_text(&w, NULL, "clip");
        json_end(&w);
        json_members(&w, J_TEXT("parameter_size", f.name), J_TEXT("quantization_level", f.precision));
        json_end(&w);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    http_json(r, 200, &w);
}

void handle_version(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_out w = { 0 };
    (void)s, (void)ctx, (void)q;
    json_object(&w, NULL, J_TEXT("version", cloob_version()));
    http_json(r, 200, &w);
}

/* ---- Cohere -------------------------------------------------------------------------------------- */

enum { TYPE_FLOAT = 1, TYPE_BASE64 = 2, TYPE_BINARY = 4, TYPE_UBINARY = 8 };
static const char *const type_name[] = { "float", "base64", "binary", "ubinary" };

static cloob_status read_types(cloob_ctx *ctx, embed_call *e)
{
    const json *list = json_get(e->root, "embedding_types");
    e->types = field_absent(e->root, "embedding_types") ? TYPE_FLOAT : 0;
    for (const json *v = json_first(list); v; v = json_next(v)) {
        unsigned bit = 0;
        for (int k = 0; k < 4 && json_string(v); k++)
            if (strcmp(type_name[k], json_string(v)) == 0) bit = 1u << k;
        if (!bit) return refuse(ctx, "embedding_types: float, base64, binary and ubinary are supported");
        e->types |= bit;
    }
    return e->types ? CLOOB_OK : refuse(ctx, "embedding_types: a list of float, base64, binary and ubinary");
}

static cloob_status read_truncate(cloob_ctx *ctx, embed_call *e)
{
    const char *cut = "END";
    CLOOB_TRY(field_text(ctx, e->root, "truncate", &cut));
    e->refuse_long = strcmp(cut, "NONE") == 0;
    return e->refuse_long || strcmp(cut, "END") == 0 ? CLOOB_OK : refuse(ctx, "truncate: END or NONE");
}

/* texts, images, and inputs, each of whose contents is one text or one image. */
static cloob_status cohere_read(cloob_ctx *ctx, embed_call *e)
{
    cloob_status status = call_body(ctx, e);
    if (status == CLOOB_OK) status = read_types(ctx, e);
    if (status == CLOOB_OK) status = read_truncate(ctx, e);
    if (status == CLOOB_OK) status = field_text(ctx, e->root, "model", &e->model);
    if (status == CLOOB_OK) status = field_int(ctx, e->root, "output_dimension", 1, INT64_MAX, &e->dimensions);
    if (status == CLOOB_OK) status = inputs_list(ctx, &e->in, e->root, "images", true);
    e->images = e->in.n;
    if (status == CLOOB_OK) status = inputs_list(ctx, &e->in, e->root, "texts", false);
    const json *v = status == CLOOB_OK ? json_first(json_get(e->root, "inputs")) : NULL;
    for (; v && status == CLOOB_OK; v = json_next(v)) {
        int64_t before = e->in.n;
        status = inputs_content(ctx, &e->in, json_get(v, "content"));
        if (status == CLOOB_OK && e->in.n != before + 1)
            status = refuse(ctx, "inputs: a content holds one text or one image");
    }
    return status;
}

/* A bit for every column, set where it is positive, the first column in the highest bit. */
static unsigned sign_byte(const float *row, int64_t n)
{
    unsigned byte = 0;
    for (int64_t k = 0; k < 8; k++) byte = 2 * byte + (k < n && row[k] > 0);
    return byte;
}

static void put_typed_row(json_out *w, const float *row, int64_t width, unsigned type)
{
    sbuf text = { 0 };
    if (type == TYPE_FLOAT) {
        json_put_floats(w, NULL, row, width);
    } else if (type == TYPE_BASE64) {
        base64_put(&text, row, (size_t)width * sizeof *row);
        json_put_text(w, NULL, text.data);
    } else {
        json_begin(w, NULL, '[');
        for (int64_t k = 0; k < width; k += 8)
            json_put_int(w, NULL, (int64_t)sign_byte(row + k, width - k) - (type == TYPE_BINARY ? 128 : 0));
        json_end(w);
    }
    w->failed = w->failed || text.failed;
    sbuf_release(&text);
}

static cloob_status cohere_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                 json_out *w)
{
    (void)ctx, (void)m;
    json_begin(w, NULL, '{');
    json_members(w, J_TEXT("id", "cloob"), J_TEXT("response_type", "embeddings_by_type"));
    json_begin(w, "embeddings", '{');
    for (unsigned k = 0; k < 4; k++) {
        if (!(e->types & 1u << k)) continue;
        json_begin(w, type_name[k], '[');
        for (int64_t i = 0; i < rows->n; i++) put_typed_row(w, rows->data + i * rows->width, rows->width, 1u << k);
        json_end(w);
    }
    json_end(w);
    json_begin(w, "texts", '[');
    for (const json *t = json_first(json_get(e->root, "texts")); t; t = json_next(t))
        json_put_text(w, NULL, json_string(t));
    json_end(w);
    json_begin(w, "meta", '{');
    json_object(w, "api_version", J_TEXT("version", "2"));
    json_object(w, "billed_units", J_INT("input_tokens", rows->tokens), J_OF(e, images));
    json_end(w);
    json_end(w);
    return CLOOB_OK;
}

const dialect dialect_cohere = { cohere_read, cohere_write };

/* ---- Weaviate ------------------------------------------------------------------------------------ */

/* multi2vec-clip: {"texts": [..], "images": [..]}. */
static cloob_status vectorize_read(cloob_ctx *ctx, embed_call *e)
{
    CLOOB_TRY(call_body(ctx, e));
    CLOOB_TRY(inputs_list(ctx, &e->in, e->root, "images", true));
    e->images = e->in.n, e->may_be_empty = true;
    return inputs_list(ctx, &e->in, e->root, "texts", false);
}

static cloob_status vectorize_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                    json_out *w)
{
    (void)ctx, (void)m;
    json_begin(w, NULL, '{');
    put_rows(w, "imageVectors", rows->data, e->images, rows->width);
    put_rows(w, "textVectors", rows->n ? rows->data + e->images * rows->width : NULL, rows->n - e->images, rows->width);
    json_end(w);
    return CLOOB_OK;
}

/* text2vec-transformers: {"text": ..}. */
static cloob_status vectors_read(cloob_ctx *ctx, embed_call *e)
{
    const char *text = NULL;
    CLOOB_TRY(call_body(ctx, e));
    CLOOB_TRY(field_text(ctx, e->root, "text", &text));
    return text ? inputs_text(ctx, &e->in, text) : refuse(ctx, "text is missing");
}

static cloob_status vectors_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                  json_out *w)
{
    (void)ctx, (void)m;
    json_begin(w, NULL, '{');
    json_put_text(w, "text", json_string(json_get(e->root, "text")));
    json_put_floats(w, "vector", rows->data, rows->width);
    json_put_int(w, "dim", rows->width);
    json_end(w);
    return CLOOB_OK;
}

const dialect dialect_vectorize = { vectorize_read, vectorize_write };
const dialect dialect_vectors = { vectors_read, vectors_write };

void handle_meta(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    json_out w = { 0 };
    cloob_model_facts f;
    (void)ctx, (void)q;
    cloob_batcher_get_facts(s->model[0].batcher, &f);
    json_object(&w, NULL, J_TEXT("model", s->model[0].name), J_TEXT("architecture", f.name),
                J_INT("dimensions", f.embed));
    http_json(r, 200, &w);
}

/* Weaviate waits for 204 before it uses the container. */
void handle_no_content(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    handle_ready(s, ctx, q, r);
    if (r->code != 200) return;
    http_reply_release(r);
    http_text(r, 204, "");
}
