/* Reads JSON bodies, and gathers the texts and images that are to be embedded. */
#include "serve/handlers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/arena.h"
#include "core/text.h"
#include "serve/state.h"
#include "serve/text.h"
#include "core/ctx.h"

enum { MAX_VALUES = 300000 }; /* of a JSON body: bounds its memory to about 60 MB */

cloob_status refuse(cloob_ctx *ctx, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s", text);
}

/* ---- JSON bodies --------------------------------------------------------------------------------- */

/* An upper bound of the memory of a parsed JSON text: its strings, and 200 bytes for a value; a value ends at a comma
 * or a bracket. */
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
    cloob_status status = account_reserve(ctx, q->memory, json_memory(q->body, q->bytes));
    if (status == CLOOB_OK) status = json_doc_parse(ctx, q->body, q->bytes, "the body", MAX_VALUES, doc);
    if (status != CLOOB_OK) return status;
    if (json_kind_of(json_doc_root(*doc)) == JSON_OBJECT) return CLOOB_OK;
    json_doc_close(*doc);
    *doc = NULL;
    return refuse(ctx, "the body must be a JSON object");
}

static bool is_word_of(const char *words, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = words; n && (at = strstr(at, key)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

cloob_status known_keys(cloob_ctx *ctx, const json *object, const char *known)
{
    for (const json *v = json_first(object); v; v = json_next(v))
        if (!json_key(v) || !is_word_of(known, json_key(v)))
            return refuse(ctx, "unknown key \"%.100s\"; known are: %s", json_key(v) ? json_key(v) : "", known);
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
    return refuse(ctx, "%s: true or false", key);
}

cloob_status field_int(cloob_ctx *ctx, const json *object, const char *key, int64_t min, int64_t max, int64_t *out)
{
    if (field_absent(object, key)) return CLOOB_OK;
    if (json_int(json_get(object, key), out) && *out >= min && *out <= max) return CLOOB_OK;
    if (max == INT64_MAX) return refuse(ctx, "%s: an integer, at least %lld", key, (long long)min);
    return refuse(ctx, "%s: an integer from %lld to %lld", key, (long long)min, (long long)max);
}

cloob_status field_number(cloob_ctx *ctx, const json *object, const char *key, double *out)
{
    if (field_absent(object, key) || json_number(json_get(object, key), out)) return CLOOB_OK;
    return refuse(ctx, "%s: a number", key);
}

/* ---- inputs -------------------------------------------------------------------------------------- */

void inputs_init(inputs *i, serve *s, const http_request *q)
{
    *i = (inputs){ .limit = s ? s->o->max_inputs : 1, .s = s, .memory = q->memory };
}

void inputs_release(inputs *i)
{
    for (int64_t k = 0; k < i->owned_count; k++) free(i->owned[k]);
    free(i->owned), free(i->in);
    *i = (inputs){ 0 };
}

cloob_status inputs_own(cloob_ctx *ctx, inputs *i, void *memory)
{
    if (!memory || !heap_grow(&i->owned, i->owned_count, &i->owned_cap, sizeof *i->owned)) {
        free(memory);
        return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    }
    i->owned[i->owned_count++] = memory;
    return CLOOB_OK;
}

static cloob_status add(cloob_ctx *ctx, inputs *i, cloob_batch_input in)
{
    if (i->n == i->limit)
        return refuse(ctx, "more than %lld texts and images in one request; send fewer, or raise --max-inputs",
                      (long long)i->limit);
    if (!heap_grow(&i->in, i->n, &i->cap, sizeof *i->in)) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    i->in[i->n++] = in;
    return CLOOB_OK;
}

cloob_status inputs_text(cloob_ctx *ctx, inputs *i, const char *text)
{
    return add(ctx, i, (cloob_batch_input){ .kind = CLOOB_BATCH_TEXT, .text = text });
}

cloob_status inputs_own_text(cloob_ctx *ctx, inputs *i, char *text)
{
    CLOOB_TRY(inputs_own(ctx, i, text));
    return inputs_text(ctx, i, text);
}

cloob_status inputs_bytes(cloob_ctx *ctx, inputs *i, const void *data, size_t bytes)
{
    if (!bytes) return refuse(ctx, "an image of no bytes");
    return add(ctx, i, (cloob_batch_input){ .kind = CLOOB_BATCH_IMAGE_FILE, .data = data, .bytes = bytes });
}

cloob_status inputs_image(cloob_ctx *ctx, inputs *i, const char *text)
{
    unsigned char *data = NULL;
    size_t bytes = 0;
    cloob_status status;
    if (strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0) {
        const serve_options *o = i->s->o;
        status = fetch_url(ctx, o, text, (size_t)o->max_body_mb << 20, (long)o->timeout_s, i->memory, &data, &bytes);
    } else {
        const char *from = data_url_image(text);
        if (!from && strncasecmp(text, "data:", 5) == 0) return refuse(ctx, "a data URL that is no base64 image");
        if (!from) from = text;
        status = account_reserve(ctx, i->memory, (int64_t)(strlen(from) / 4 * 3));
        if (status == CLOOB_OK && !base64_decode(from, strlen(from), &data, &bytes))
            status = refuse(ctx, "an image that is not valid base64");
    }
    if (status == CLOOB_OK) status = inputs_own(ctx, i, data);
    return status == CLOOB_OK ? inputs_bytes(ctx, i, data, bytes) : status;
}

cloob_status inputs_tokens(cloob_ctx *ctx, inputs *i, const json *list)
{
    int64_t n = json_count(list), at = 0;
    int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
    CLOOB_TRY(inputs_own(ctx, i, ids));
    for (const json *v = json_first(list); v; v = json_next(v)) {
        int64_t id;
        if (!json_int(v, &id) || id < 0 || id > INT32_MAX) return refuse(ctx, "token ids are integers, at least 0");
        ids[at++] = (int32_t)id;
    }
    return add(ctx, i, (cloob_batch_input){ .kind = CLOOB_BATCH_TOKENS, .ids = ids, .count = n });
}

static cloob_status add_value(cloob_ctx *ctx, inputs *i, const json *v, bool images)
{
    const char *text = json_string(v), *image = NULL;
    if (json_kind_of(v) == JSON_ARRAY) return inputs_tokens(ctx, i, v);
    if (text)
        return images || strncasecmp(text, "data:image/", 11) == 0 ? inputs_image(ctx, i, text)
                                                                   : inputs_text(ctx, i, text);
    if (json_kind_of(v) != JSON_OBJECT)
        return refuse(ctx, "input holds strings, lists of token ids, or objects with text or image");
    text = json_string(json_get(v, "text")), image = json_string(json_get(v, "image"));
    if (!text == !image) return refuse(ctx, "an input object holds either text or image, a string");
    return text ? inputs_text(ctx, i, text) : inputs_image(ctx, i, image);
}

cloob_status inputs_any(cloob_ctx *ctx, inputs *i, const json *v, bool images)
{
    cloob_status status = CLOOB_OK;
    if (json_kind_of(v) != JSON_ARRAY) return add_value(ctx, i, v, images);
    if (json_kind_of(json_first(v)) == JSON_NUMBER) return inputs_tokens(ctx, i, v);
    for (const json *e = json_first(v); e && status == CLOOB_OK; e = json_next(e))
        status = add_value(ctx, i, e, images);
    return status;
}

cloob_status inputs_list(cloob_ctx *ctx, inputs *i, const json *object, const char *key, bool images)
{
    const json *list = json_get(object, key), *v = json_kind_of(list) == JSON_ARRAY ? json_first(list) : list;
    cloob_status status = CLOOB_OK;
    if (field_absent(object, key)) return CLOOB_OK;
    for (; v && status == CLOOB_OK; v = v == list ? NULL : json_next(v)) {
        const char *text = json_string(v);
        if (!text) return refuse(ctx, "%s: a list of strings", key);
        status = images ? inputs_image(ctx, i, text) : inputs_text(ctx, i, text);
    }
    return status;
}

cloob_status inputs_content(cloob_ctx *ctx, inputs *i, const json *content)
{
    cloob_status status = CLOOB_OK;
    if (json_string(content)) return inputs_text(ctx, i, json_string(content));
    for (const json *part = json_first(content); part && status == CLOOB_OK; part = json_next(part)) {
        const json *image = json_get(part, "image_url");
        const char *text = json_string(json_get(part, "text"));
        const char *url = json_string(image) ? json_string(image) : json_string(json_get(image, "url"));
        if (url) status = inputs_image(ctx, i, url);
        else if (!text) return refuse(ctx, "a part of a content holds text, or image_url with its url");
        else if (*text) status = inputs_text(ctx, i, text); /* vLLM's clients send an empty text with an image */
    }
    return status;
}
