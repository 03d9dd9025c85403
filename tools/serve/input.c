/* Reads JSON bodies, and collects the texts and images to embed. */
#include "serve/handlers.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/arena.h"
#include "core/text.h"
#include "core/ctx.h"

enum { MAX_VALUES = 300000 }; /* limit on the values in a JSON body, which bounds its memory to about 60 MB */

/* ---- JSON bodies --------------------------------------------------------------------------------- */

/* Upper bound of the memory of parsed JSON: its strings, and 200 bytes per value; a value ends at a comma or a
 * bracket. */
static int64_t json_memory(const char *text, size_t bytes)
{
    int64_t values = 1;
    for (size_t k = 0; k < bytes; k++) values += text[k] == ',' || text[k] == '[' || text[k] == '{';
    return (int64_t)bytes + 200 * (values < MAX_VALUES ? values : MAX_VALUES);
}

cloob_status body_object(cloob_ctx *ctx, const http_request *q, json_doc **doc)
{
    *doc = NULL;
    if (!q->bytes) return refuse(ctx, "the request has no body; send a JSON object");
    CLOOB_TRY(account_reserve(ctx, q->memory, json_memory(q->body, q->bytes)));
    CLOOB_TRY(json_doc_parse(ctx, q->body, q->bytes, "the body", MAX_VALUES, doc));
    if (json_kind_of(json_doc_root(*doc)) == JSON_OBJECT) return CLOOB_OK;
    json_doc_close(*doc);
    *doc = NULL;
    return refuse(ctx, "the body must be a JSON object");
}

cloob_status known_keys(cloob_ctx *ctx, const json *object, const char *known)
{
    for (const json *v = json_first(object); v; v = json_next(v))
        if (!json_key(v) || !text_has_word(known, json_key(v)))
            return refuse(ctx, "unknown key \"%.100s\"; supported: %s", json_key(v) ? json_key(v) : "", known);
    return CLOOB_OK;
}

bool field_absent(const json *object, const char *key) { return json_kind_of(json_get(object, key)) == JSON_NULL; }

cloob_status field_text(cloob_ctx *ctx, const json *object, const char *key, const char **out)
{
    const char *text = json_string(json_get(object, key));
    if (text) *out = text;
    return text || field_absent(object, key) ? CLOOB_OK : refuse(ctx, "%s: a string", key);
}

cloob_status field_bool(cloob_ctx *ctx, const json *object, const char *key, bool *out)
{
    if (field_absent(object, key) || json_bool(json_get(object, key), out)) return CLOOB_OK;
    return refuse(ctx, "%s must be true or false", key);
}

cloob_status field_int(cloob_ctx *ctx, const json *object, const char *key, int64_t min, int64_t max, int64_t *out)
{
    if (field_absent(object, key)) return CLOOB_OK;
    if (json_int(json_get(object, key), out) && *out >= min && *out <= max) return CLOOB_OK;
    if (max == INT64_MAX) return refuse(ctx, "%s must be an integer of at least %lld", key, (long long)min);
    return refuse(ctx, "%s must be an integer from %lld to %lld", key, (long long)min, (long long)max);
}

cloob_status field_number(cloob_ctx *ctx, const json *object, const char *key, double *out)
{
    if (field_absent(object, key) || json_number(json_get(object, key), out)) return CLOOB_OK;
    return refuse(ctx, "%s: a number", key);
}

cloob_status field_word(cloob_ctx *ctx, const json *object, const char *key, const char *no, const char *yes, bool *out)
{
    const char *word = NULL;
    CLOOB_TRY(field_text(ctx, object, key, &word));
    if (!word) return CLOOB_OK;
    *out = strcmp(word, yes) == 0;
    return *out || strcmp(word, no) == 0 ? CLOOB_OK : refuse(ctx, "%s: %s or %s", key, no, yes);
}

cloob_status body_parts(call *c, form_part **part, int *n)
{
    const http_request *q = c->q;
    *part = calloc(PART_MAX, sizeof **part);
    CLOOB_TRY(call_own(c, *part));
    *n = http_type_is(q, "multipart/form-data") ? multipart_parse(q->content_type, q->body, q->bytes, *part) : -1;
    return *n >= 0 ? CLOOB_OK : refuse(c->ctx, "the body must be well-formed multipart/form-data");
}

/* ---- inputs -------------------------------------------------------------------------------------- */

cloob_status call_own(call *c, void *memory)
{
    if (!memory || !heap_grow(&c->owned, c->owned_count, &c->owned_cap, sizeof *c->owned)) {
        free(memory);
        return ctx_fail(c->ctx, CLOOB_ERR_MEMORY, "out of memory");
    }
    c->owned[c->owned_count++] = memory;
    return CLOOB_OK;
}

static cloob_status add(call *c, batch_input in)
{
    if (c->inputs == c->s->o->max_inputs)
        return refuse(c->ctx, "more than %lld texts and images in one request; send fewer, or raise --max-inputs",
                      (long long)c->inputs);
    if (!heap_grow(&c->in, c->inputs, &c->inputs_cap, sizeof *c->in))
        return ctx_fail(c->ctx, CLOOB_ERR_MEMORY, "out of memory");
    c->in[c->inputs++] = in;
    return CLOOB_OK;
}

cloob_status input_text(call *c, const char *text) { return add(c, (batch_input){ .kind = BATCH_TEXT, .text = text }); }

cloob_status input_own_text(call *c, char *text)
{
    CLOOB_TRY(call_own(c, text));
    return input_text(c, text);
}

cloob_status input_bytes(call *c, const void *data, size_t bytes)
{
    if (!bytes) return refuse(c->ctx, "an image is empty");
    return add(c, (batch_input){ .kind = BATCH_IMAGE_FILE, .data = data, .bytes = bytes });
}

cloob_status input_image(call *c, const char *text)
{
    unsigned char *data = NULL;
    size_t bytes = 0;
    if (strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0) {
        const serve_options *o = c->s->o;
        CLOOB_TRY(
            fetch_url(c->ctx, o, text, (size_t)o->max_body_mb << 20, (long)o->timeout_s, c->q->memory, &data, &bytes));
    } else {
        const char *from = data_url_image(text);
        if (!from && strncasecmp(text, "data:", 5) == 0) return refuse(c->ctx, "a data URL is not a base64 image");
        if (!from) from = text;
        CLOOB_TRY(account_reserve(c->ctx, c->q->memory, (int64_t)(strlen(from) / 4 * 3)));
        if (!base64_decode(from, strlen(from), &data, &bytes)) return refuse(c->ctx, "an image is not valid base64");
    }
    CLOOB_TRY(call_own(c, data));
    return input_bytes(c, data, bytes);
}

cloob_status input_tokens(call *c, const json *list)
{
    int64_t n = json_count(list), at = 0;
    int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
    CLOOB_TRY(call_own(c, ids));
    for (const json *v = json_first(list); v; v = json_next(v)) {
        int64_t id;
        if (!json_int(v, &id) || id < 0 || id > INT32_MAX)
            return refuse(c->ctx, "token ids must be integers of at least 0");
        ids[at++] = (int32_t)id;
    }
    return add(c, (batch_input){ .kind = BATCH_TOKENS, .ids = ids, .count = n });
}

static cloob_status add_value(call *c, const json *v, bool images)
{
    const char *text = json_string(v), *image = NULL;
    if (json_kind_of(v) == JSON_ARRAY) return input_tokens(c, v);
    if (text) return images || strncasecmp(text, "data:image/", 11) == 0 ? input_image(c, text) : input_text(c, text);
    if (json_kind_of(v) != JSON_OBJECT)
        return refuse(c->ctx, "input must contain strings, lists of token ids, or objects with text or image");
    text = json_string(json_get(v, "text")), image = json_string(json_get(v, "image"));
    if (!text == !image) return refuse(c->ctx, "an input object must have either text or image, as a string");
    return text ? input_text(c, text) : input_image(c, image);
}

cloob_status input_any(call *c, const json *v, bool images)
{
    if (json_kind_of(v) != JSON_ARRAY) return add_value(c, v, images);
    if (json_kind_of(json_first(v)) == JSON_NUMBER) return input_tokens(c, v);
    for (const json *e = json_first(v); e; e = json_next(e)) CLOOB_TRY(add_value(c, e, images));
    return CLOOB_OK;
}

cloob_status input_list(call *c, const json *object, const char *key, bool images)
{
    const json *list = json_get(object, key), *v = json_kind_of(list) == JSON_ARRAY ? json_first(list) : list;
    if (field_absent(object, key)) return CLOOB_OK;
    for (; v; v = v == list ? NULL : json_next(v)) {
        const char *text = json_string(v);
        if (!text) return refuse(c->ctx, "%s must be a list of strings", key);
        CLOOB_TRY(images ? input_image(c, text) : input_text(c, text));
    }
    return CLOOB_OK;
}

cloob_status input_images_and_texts(call *c)
{
    CLOOB_TRY(input_list(c, c->root, "images", true));
    c->images = c->inputs;
    return input_list(c, c->root, "texts", false);
}

cloob_status input_content(call *c, const json *content)
{
    if (json_string(content)) return input_text(c, json_string(content));
    for (const json *part = json_first(content); part; part = json_next(part)) {
        const json *image = json_get(part, "image_url");
        const char *text = json_string(json_get(part, "text"));
        const char *url = json_string(image) ? json_string(image) : json_string(json_get(image, "url"));
        if (url) CLOOB_TRY(input_image(c, url));
        else if (!text) return refuse(c->ctx, "a part of a content must have text, or image_url with its url");
        else if (*text) CLOOB_TRY(input_text(c, text)); /* vLLM's clients send an empty text along with an image */
    }
    return CLOOB_OK;
}
