/* The protocols of Ollama, Cohere and Weaviate's inference containers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "serve/handlers.h"
#include "core/ctx.h"
#include "core/text.h"
#include "infer/batcher.h"

/* ---- Ollama -------------------------------------------------------------------------------------- */

/* Embeds input, then images, each a string or a list. Without either, the answer has no rows: Ollama's clients send
 * this to load a model. */
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
    json_members(&c->w, J_INT("total_duration", (int64_t)(1e9 * (clock_seconds() - c->q->received_at))),
                 J_INT("load_duration", 0), J_INT("prompt_eval_count", c->rows.tokens));
    return CLOOB_OK;
}

/* The older /api/embeddings with a single prompt or image. */
cloob_status handle_ollama_prompt(call *c)
{
    const char *prompt = NULL;
    CLOOB_TRY(field_text(c->ctx, c->root, "model", &c->model));
    CLOOB_TRY(field_text(c->ctx, c->root, "prompt", &prompt));
    if (prompt && *prompt) CLOOB_TRY(input_text(c, prompt));
    CLOOB_TRY(input_list(c, c->root, "images", true));
    c->may_be_empty = true;
    if (c->inputs > 1) return refuse(c->ctx, "send one prompt or one image; /api/embed accepts several");
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
        batcher_get_facts(m->batcher, &f);
        batcher_get_digest(m->batcher, digest);
        watched file = serve_model_file(c->s, m);
        date_print(file.mtime_ns, date);
        json_begin(w, NULL, '{');
        json_members(w, J_OF(m, name), J_TEXT("model", m->name), J_TEXT("modified_at", date), J_OF(&file, size),
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

/* Which embedding_types are requested. */
static cloob_status read_types(call *c, bool *floats, bool *base64)
{
    const json *list = json_get(c->root, "embedding_types");
    *floats = field_absent(c->root, "embedding_types"), *base64 = false;
    for (const json *v = json_first(list); v; v = json_next(v)) {
        const char *word = json_string(v) ? json_string(v) : "";
        *floats |= strcmp(word, "float") == 0, *base64 |= strcmp(word, "base64") == 0;
        if (strcmp(word, "float") != 0 && strcmp(word, "base64") != 0)
            return refuse(c->ctx, "embedding_types must contain only float and base64");
    }
    return *floats || *base64 ? CLOOB_OK : refuse(c->ctx, "embedding_types must be a list of float and base64");
}

/* Embeds images, texts, and inputs, where each content is one text or one image. */
cloob_status handle_cohere(call *c)
{
    bool floats, base64;
    json_out *w = &c->w;
    CLOOB_TRY(read_types(c, &floats, &base64));
    CLOOB_TRY(field_word(c->ctx, c->root, "truncate", "END", "NONE", &c->refuse_long));
    CLOOB_TRY(field_text(c->ctx, c->root, "model", &c->model));
    CLOOB_TRY(field_int(c->ctx, c->root, "output_dimension", 1, INT64_MAX, &c->dimensions));
    CLOOB_TRY(input_images_and_texts(c));
    for (const json *v = json_first(json_get(c->root, "inputs")); v; v = json_next(v)) {
        int64_t before = c->inputs;
        CLOOB_TRY(input_content(c, json_get(v, "content")));
        if (c->inputs != before + 1) return refuse(c->ctx, "inputs: each content must be one text or one image");
    }
    CLOOB_TRY(embed(c));
    json_begin(w, NULL, '{');
    json_members(w, J_TEXT("id", "cloob"), J_TEXT("response_type", "embeddings_by_type"));
    json_begin(w, "embeddings", '{');
    if (floats) put_rows(c, "float", 0, c->rows.n);
    if (base64) json_begin(w, "base64", '[');
    for (int64_t i = 0; i < c->rows.n && base64; i++) put_base64(w, NULL, row_at(c, i), c->rows.width);
    if (base64) json_end(w);
    json_end(w);
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
    batcher_get_facts(m->batcher, &f);
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
