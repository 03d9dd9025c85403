/* OpenAI's embeddings, with the image extensions of Infinity (modality), Jina (objects) and vLLM (messages), raw image
 * bodies and multipart; and the list of models. */
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"
#include "core/ctx.h"

static cloob_status read_json(call *c, bool *base64)
{
    bool images = false, normalized = true;
    const json *root = c->root, *messages = json_get(root, "messages");
    CLOOB_TRY(field_word(c->ctx, root, "modality", "text", "image", &images));
    CLOOB_TRY(field_word(c->ctx, root, "embedding_type", "float", "base64", base64));
    CLOOB_TRY(field_word(c->ctx, root, "encoding_format", "float", "base64", base64));
    CLOOB_TRY(field_int(c->ctx, root, "dimensions", 1, INT64_MAX, &c->dimensions));
    CLOOB_TRY(field_bool(c->ctx, root, "normalized", &normalized));
    CLOOB_TRY(field_text(c->ctx, root, "model", &c->model));
    c->raw = !normalized;
    if (json_kind_of(messages) == JSON_ARRAY) { /* vLLM: one embedding per conversation */
        for (const json *m = json_first(messages); m; m = json_next(m))
            CLOOB_TRY(input_content(c, json_get(m, "content")));
        if (c->inputs == 1) return CLOOB_OK;
        return refuse(c->ctx, "messages must contain one text or one image, not %lld", (long long)c->inputs);
    }
    if (field_absent(root, "input")) return refuse(c->ctx, "input is missing");
    return input_any(c, json_get(root, "input"), images);
}

static cloob_status read_form(call *c)
{
    form_part *part;
    int n;
    CLOOB_TRY(body_parts(c, &part, &n));
    for (const form_part *p = part; p < part + n; p++) {
        bool is_text = strcmp(p->name, "input") == 0 || strcmp(p->name, "text") == 0;
        if (*p->filename || strncmp(p->type, "image/", 6) == 0) {
            CLOOB_TRY(input_bytes(c, p->data, p->bytes));
        } else if (is_text || strcmp(p->name, "model") == 0) {
            char *text = strndup(p->data, p->bytes);
            CLOOB_TRY(call_own(c, text));
            if (is_text) CLOOB_TRY(input_text(c, text));
            else c->model = text;
        }
    }
    return CLOOB_OK;
}

cloob_status handle_openai(call *c)
{
    bool base64 = false;
    json_out *w = &c->w;
    c->model = http_query(c->q, "model");
    if (c->root) CLOOB_TRY(read_json(c, &base64));
    else if (http_type_is(c->q, "image/")) CLOOB_TRY(input_bytes(c, c->q->body, c->q->bytes));
    else CLOOB_TRY(read_form(c));
    CLOOB_TRY(embed(c));
    json_begin(w, NULL, '{');
    json_put_text(w, "object", "list");
    json_begin(w, "data", '[');
    for (int64_t i = 0; i < c->rows.n; i++) {
        json_begin(w, NULL, '{');
        json_members(w, J_TEXT("object", "embedding"), J_INT("index", i));
        if (base64) put_base64(w, "embedding", row_at(c, i), c->rows.width);
        else json_put_floats(w, "embedding", row_at(c, i), c->rows.width);
        json_end(w);
    }
    json_end(w);
    json_put_text(w, "model", c->m->name);
    json_object(w, "usage", J_INT("prompt_tokens", c->rows.tokens), J_INT("total_tokens", c->rows.tokens));
    return CLOOB_OK;
}

cloob_status handle_models(call *c)
{
    json_out *w = &c->w;
    json_begin(w, NULL, '{');
    json_put_text(w, "object", "list");
    json_begin(w, "data", '[');
    for (const served_model *m = c->s->model; m < c->s->model + c->s->models; m++) {
        cloob_model_facts f;
        batcher_stats t;
        batcher_get_facts(m->batcher, &f);
        batcher_get_stats(m->batcher, &t);
        json_begin(w, NULL, '{');
        json_members(w, J_TEXT("id", m->name), J_TEXT("object", "model"),
                     J_INT("created", serve_model_file(c->s, m).mtime_ns / INT64_C(1000000000)),
                     J_TEXT("owned_by", "cloob"), J_TEXT("architecture", f.name), J_INT("dimensions", f.embed),
                     J_OF(&f, image_size), J_OF(&f, context), J_BOOL("image", f.image_size > 0),
                     J_BOOL("text", f.has_tokenizer && f.context > 0),
                     J_TEXT("state", t.error[0] ? "failed" : "ready"));
        if (t.error[0]) json_put_text(w, "error", t.error);
        json_end(w);
    }
    return CLOOB_OK;
}
