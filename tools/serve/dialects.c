/* Ollama, Cohere and Weaviate's inference containers. */
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

static int64_t nanoseconds(double seconds) { return (int64_t)(1e9 * seconds); }

/* input, then images, each a string or a list. Without both the answer has no rows: Ollama's clients send that to load
 * a model. */
cloob_status handle_ollama(call *c)
{
    bool truncate = true;
    const json *input = json_get(c->root, "input");
    CLOOB_TRY(field_text(c->ctx, c->root, "model", &c->model));
    CLOOB_TRY(field_bool(c->ctx, c->root, "truncate", &truncate));
    CLOOB_TRY(field_int(c->ctx, c->root, "dimensions", 0, INT64_MAX, &c->dimensions));
    c->refuse_long = !truncate, c->may_be_empty = true;
    bool none = field_absent(c->root, "input") || (json_string(input) && !*json_string(input));
    if (!none) CLOOB_TRY(input_any(c, input, false));
    CLOOB_TRY(input_list(c, c->root, "images", true));
    CLOOB_TRY(embed(c));
    json_begin(&c->w, NULL, '{');
    json_put_text(&c->w, "model", c->model ? c->model : c->m->name);
    put_rows(c, "embeddings", 0, c->rows.n);
    json_members(&c->w, J_INT("total_duration", nanoseconds(clock_seconds() - c->q->received_at)),
                 J_INT("load_duration", 0), J_INT("prompt_eval_count", c->rows.tokens));
    return CLOOB_OK;
}

/* The older /api/embeddings: one prompt, or one image. */
cloob_status handle_ollama_prompt(call *c)
{
    const char *prompt = NULL;
    CLOOB_TRY(field_text(c->ctx, c->root, "model", &c->model));
    CLOOB_TRY(field_text(c->ctx, c->root, "prompt", &prompt));
    if (prompt && *prompt) CLOOB_TRY(input_text(c, prompt));
    CLOOB_TRY(input_list(c, c->root, "images", true));
    c->may_be_empty = true;
    if (c->inputs > 1) return refuse(c->ctx, "one prompt or one image; /api/embed takes several");
    CLOOB_TRY(embed(c));
    json_begin(&c->w, NULL, '{');
    json_put_floats(&c->w, "embedding", c->rows.data, c->rows.n ? c->rows.width : 0);
    return CLOOB_OK;
}

cloob_status handle_tags(call *c)
{
    json_out *w = &c->w;
    answer_list(c, "models");
    for (int64_t i = 0; i < c->s->models; i++) {
        served_model *m = &c->s->model[i];
        cloob_model_facts f;
        char digest[DIGEST_TEXT], date[32];
        cloob_batcher_get_facts(m->batcher, &f);
        batcher_get_digest(m->batcher, digest);
        date_print(m->seen.mtime_ns, date);
        json_begin(w, NULL, '{');
        json_members(w, J_OF(m, name), J_TEXT("model", m->name), J_TEXT("modified_at", date), J_OF(&m->seen, size),
                     J_TEXT("digest", digest));
        json_begin(w, "details", '{');
        json_members(w, J_TEXT("parent_model", ""), J_TEXT("format", "safetensors"), J_TEXT("family", "clip"));
        json_put_raw(w, "families", "[\"clip\"]", 8);
        json_members(w, J_TEXT("parameter_size", f.name), J_TEXT("quantization_level", f.precision));
        json_end(w);
        json_end(w);
    }
    return CLOOB_OK;
}

cloob_status handle_version(call *c)
{
    json_object(&c->w, NULL, J_TEXT("version", cloob_version()));
    return CLOOB_OK;
}

/* ---- Cohere -------------------------------------------------------------------------------------- */

enum { TYPE_FLOAT = 1, TYPE_BASE64 = 2, TYPE_BINARY = 4, TYPE_UBINARY = 8 };
static const char *const type_name[] = { "float", "base64", "binary", "ubinary" };

/* The set of embedding_types. */
static cloob_status read_types(call *c, unsigned *types)
{
    *types = field_absent(c->root, "embedding_types") ? TYPE_FLOAT : 0;
    for (const json *v = json_first(json_get(c->root, "embedding_types")); v; v = json_next(v)) {
        unsigned bit = 0;
        for (int k = 0; k < 4 && json_string(v); k++)
            if (strcmp(type_name[k], json_string(v)) == 0) bit = 1u << k;
        if (!bit) return refuse(c->ctx, "embedding_types: float, base64, binary and ubinary are supported");
        *types |= bit;
    }
    return *types ? CLOOB_OK : refuse(c->ctx, "embedding_types: a list of float, base64, binary and ubinary");
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

static void put_typed_rows(call *c, unsigned types)
{
    json_begin(&c->w, "embeddings", '{');
    for (unsigned k = 0; k < 4; k++) {
        if (!(types & 1u << k)) continue;
        json_begin(&c->w, type_name[k], '[');
        for (int64_t i = 0; i < c->rows.n; i++) put_typed_row(&c->w, row_at(c, i), c->rows.width, 1u << k);
        json_end(&c->w);
    }
    json_end(&c->w);
}

/* images, texts, and inputs, each of whose contents is one text or one image. */
cloob_status handle_cohere(call *c)
{
    unsigned types;
    json_out *w = &c->w;
    CLOOB_TRY(read_types(c, &types));
    CLOOB_TRY(field_word(c->ctx, c->root, "truncate", "END", "NONE", &c->refuse_long));
    CLOOB_TRY(field_text(c->ctx, c->root, "model", &c->model));
    CLOOB_TRY(field_int(c->ctx, c->root, "output_dimension", 1, INT64_MAX, &c->dimensions));
    CLOOB_TRY(input_images_and_texts(c));
    for (const json *v = json_first(json_get(c->root, "inputs")); v; v = json_next(v)) {
        int64_t before = c->inputs;
        CLOOB_TRY(input_content(c, json_get(v, "content")));
        if (c->inputs != before + 1) return refuse(c->ctx, "inputs: a content holds one text or one image");
    }
    CLOOB_TRY(embed(c));
    json_begin(w, NULL, '{');
    json_members(w, J_TEXT("id", "cloob"), J_TEXT("response_type", "embeddings_by_type"));
    put_typed_rows(c, types);
    json_begin(w, "texts", '[');
    for (const json *t = json_first(json_get(c->root, "texts")); t; t = json_next(t))
        json_put_text(w, NULL, json_string(t));
    json_end(w);
    json_begin(w, "meta", '{');
    json_object(w, "api_version", J_TEXT("version", "2"));
    json_object(w, "billed_units", J_INT("input_tokens", c->rows.tokens), J_OF(c, images));
    return CLOOB_OK;
}

/* ---- Weaviate ------------------------------------------------------------------------------------ */

/* multi2vec-clip: {"texts": [..], "images": [..]}. */
cloob_status handle_vectorize(call *c)
{
    c->may_be_empty = true;
    CLOOB_TRY(input_images_and_texts(c));
    CLOOB_TRY(embed(c));
    json_begin(&c->w, NULL, '{');
    put_rows(c, "imageVectors", 0, c->images);
    put_rows(c, "textVectors", c->images, c->rows.n - c->images);
    return CLOOB_OK;
}

/* text2vec-transformers: {"text": ..}. */
cloob_status handle_vectors(call *c)
{
    const char *text = NULL;
    CLOOB_TRY(field_text(c->ctx, c->root, "text", &text));
    if (!text) return refuse(c->ctx, "text is missing");
    CLOOB_TRY(input_text(c, text));
    CLOOB_TRY(embed(c));
    json_begin(&c->w, NULL, '{');
    json_put_text(&c->w, "text", text);
    json_put_floats(&c->w, "vector", c->rows.data, c->rows.width);
    json_put_int(&c->w, "dim", c->rows.width);
    return CLOOB_OK;
}

cloob_status handle_meta(call *c)
{
    const served_model *m = &c->s->model[0];
    cloob_model_facts f;
    cloob_batcher_get_facts(m->batcher, &f);
    json_object(&c->w, NULL, J_TEXT("model", m->name), J_TEXT("architecture", f.name), J_INT("dimensions", f.embed));
    return CLOOB_OK;
}

/* Weaviate waits for 204 before it uses the container. */
cloob_status handle_no_content(call *c)
{
    CLOOB_TRY(handle_ready(c));
    http_text(c->r, 204, "");
    return CLOOB_OK;
}
