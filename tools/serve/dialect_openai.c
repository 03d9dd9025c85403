/* OpenAI's embeddings with the image dialects of Infinity (modality), Jina (objects) and vLLM (messages), raw image
 * bodies and multipart; and the list of models. */
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "core/ctx.h"
#include "core/text.h"
#include "serve/text.h"

/* vLLM: a conversation gives one embedding, of its text or of its image. */
static cloob_status read_messages(cloob_ctx *ctx, embed_call *e, const json *messages)
{
    cloob_status status = CLOOB_OK;
    for (const json *m = json_first(messages); m && status == CLOOB_OK; m = json_next(m))
        status = inputs_content(ctx, &e->in, json_get(m, "content"));
    if (status == CLOOB_OK && e->in.n != 1)
        return refuse(ctx, "messages must hold one text or one image, here %lld", (long long)e->in.n);
    return status;
}

/* A member that is one of two words. */
static cloob_status read_word(cloob_ctx *ctx, const json *root, const char *key, const char *no, const char *yes,
                              bool *out)
{
    const char *word = NULL;
    cloob_status status = field_text(ctx, root, key, &word);
    if (status != CLOOB_OK || !word) return status;
    if (strcmp(word, no) != 0 && strcmp(word, yes) != 0) return refuse(ctx, "%s: %s or %s", key, no, yes);
    *out = strcmp(word, yes) == 0;
    return CLOOB_OK;
}

static cloob_status read_json(cloob_ctx *ctx, embed_call *e)
{
    bool images = false, normalized = true;
    cloob_status status = call_body(ctx, e);
    const json *root = e->root, *messages = json_get(root, "messages");
    if (status == CLOOB_OK) status = read_word(ctx, root, "modality", "text", "image", &images);
    if (status == CLOOB_OK) status = read_word(ctx, root, "embedding_type", "float", "base64", &e->base64);
    if (status == CLOOB_OK) status = read_word(ctx, root, "encoding_format", "float", "base64", &e->base64);
    if (status == CLOOB_OK) status = field_int(ctx, root, "dimensions", 1, INT64_MAX, &e->dimensions);
    if (status == CLOOB_OK) status = field_bool(ctx, root, "normalized", &normalized);
    if (status == CLOOB_OK) status = field_text(ctx, root, "model", &e->model);
    e->raw = !normalized;
    if (status != CLOOB_OK) return status;
    if (json_kind_of(messages) == JSON_ARRAY) return read_messages(ctx, e, messages);
    if (field_absent(root, "input")) return refuse(ctx, "input is missing");
    return inputs_any(ctx, &e->in, json_get(root, "input"), images);
}

static cloob_status read_form(cloob_ctx *ctx, embed_call *e)
{
    form_part part[PART_MAX];
    int n = multipart_parse(e->q->content_type, e->q->body, e->q->bytes, part);
    if (n < 0) return refuse(ctx, "the multipart body is not well formed");
    cloob_status status = CLOOB_OK;
    for (int i = 0; i < n && status == CLOOB_OK; i++) {
        const form_part *p = &part[i];
        bool is_text = strcmp(p->name, "input") == 0 || strcmp(p->name, "text") == 0;
        if (*p->filename || strncmp(p->type, "image/", 6) == 0) {
            status = inputs_bytes(ctx, &e->in, p->data, p->bytes);
        } else if (is_text || strcmp(p->name, "model") == 0) {
            char *text = strndup(p->data, p->bytes);
            status = inputs_own(ctx, &e->in, text);
            if (status == CLOOB_OK && is_text) status = inputs_text(ctx, &e->in, text);
            else e->model = text;
        }
    }
    return status;
}

static cloob_status openai_read(cloob_ctx *ctx, embed_call *e)
{
    e->model = http_query(e->q, "model");
    if (http_type_is(e->q, "image/")) return inputs_bytes(ctx, &e->in, e->q->body, e->q->bytes);
    if (http_type_is(e->q, "multipart/form-data")) return read_form(ctx, e);
    return read_json(ctx, e);
}

static void put_embedding(json_out *w, const float *row, int64_t n, bool base64)
{
    sbuf text = { 0 };
    if (!base64) {
        json_put_floats(w, "embedding", row, n);
        return;
    }
    base64_put(&text, row, (size_t)n * sizeof *row); /* little-endian, as every supported machine is */
    if (!text.failed) json_put_text(w, "embedding", n ? text.data : "");
    else w->failed = true;
    sbuf_release(&text);
}

static cloob_status openai_write(cloob_ctx *ctx, const embed_call *e, const served_model *m, cloob_batch_rows *rows,
                                 json_out *w)
{
    (void)ctx;
    json_begin(w, NULL, '{');
    json_put_text(w, "object", "list");
    json_begin(w, "data", '[');
    for (int64_t i = 0; i < rows->n; i++) {
        json_begin(w, NULL, '{');
        json_put_text(w, "object", "embedding");
        json_put_int(w, "index", i);
        put_embedding(w, rows->data + i * rows->width, rows->width, e->base64);
        json_end(w);
    }
    json_end(w);
    json_put_text(w, "model", m->name);
    json_begin(w, "usage", '{');
    json_put_int(w, "prompt_tokens", rows->tokens);
    json_put_int(w, "total_tokens", rows->tokens);
    json_end(w);
    json_end(w);
    return CLOOB_OK;
}

const dialect dialect_openai = { openai_read, openai_write };

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
        json_put_bool(&w, "image", f.image_size > 0);
        json_put_bool(&w, "text", f.has_tokenizer && f.context > 0);
        json_put_text(&w, "state", t.error[0] ? "failed" : "ready");
        if (t.error[0]) json_put_text(&w, "error", t.error);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    http_json(r, 200, &w);
}
