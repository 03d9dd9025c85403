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
    CLOOB_TRY(call_body(ctx, e));
    const json *root = e->root, *messages = json_get(root, "messages");
    CLOOB_TRY(read_word(ctx, root, "modality", "text", "image", &images));
    CLOOB_TRY(read_word(ctx, root, "embedding_type", "float", "base64", &e->base64));
    CLOOB_TRY(read_word(ctx, root, "encoding_format", "float", "base64", &e->base64));
    CLOOB_TRY(field_int(ctx, root, "dimensions", 1, INT64_MAX, &e->dimensions));
    CLOOB_TRY(field_bool(ctx, root, "normalized", &normalized));
    CLOOB_TRY(field_text(ctx, root, "model", &e->model));
    e->raw = !normalized;
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
        json_members(w, J_TEXT("object", "embedding"), J_INT("index", i));
        put_embedding(w, rows->data + i * rows->width, rows->width, e->base64);
        json_end(w);
    }
    json_end(w);
    json_put_text(w, "model", m->name);
    json_object(w, "usage", J_INT("prompt_tokens", rows->tokens), J_INT("total_tokens", rows->tokens));
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
        json_members(&w, J_TEXT("id", s->model[i].name), J_TEXT("object", "model"),
                     J_INT("created", s->model[i].seen.mtime_ns / INT64_C(1000000000)), J_TEXT("owned_by", "cloob"),
                     J_TEXT("architecture", f.name), J_INT("dimensions", f.embed), J_OF(&f, image_size),
                     J_OF(&f, context), J_BOOL("image", f.image_size > 0),
                     J_BOOL("text", f.has_tokenizer && f.context > 0),
                     J_TEXT("state", t.error[0] ? "failed" : "ready"));
        if (t.error[0]) json_put_text(&w, "error", t.error);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    http_json(r, 200, &w);
}
