/* Gathers what is to be embedded. */
#include "serve/handlers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/fetch.h"
#include "core/text.h"
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

void inputs_init(inputs *i, const serve *s, const http_request *q)
{
    *i = (inputs){ .limit = s->o->max_inputs, .memory = q->memory };
}

void inputs_release(inputs *i)
{
    for (int64_t k = 0; k < i->owned_count; k++) free(i->owned[k]);
    free(i->owned), free(i->in);
    *i = (inputs){ 0 };
}

static cloob_status own(cloob_ctx *ctx, inputs *i, void *memory)
{
    if (i->owned_count == i->owned_cap) {
        int64_t cap = i->owned_cap ? 2 * i->owned_cap : 8;
        void **more = realloc(i->owned, (size_t)cap * sizeof *more);
        if (!more) {
            free(memory);
            return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
        }
        i->owned = more, i->owned_cap = cap;
    }
    i->owned[i->owned_count++] = memory;
    return CLOOB_OK;
}

static cloob_status add(cloob_ctx *ctx, inputs *i, cloob_batch_input in)
{
    if (i->n >= i->limit) return refuse(ctx, "more than %lld inputs in one request", (long long)i->limit);
    if (i->n == i->cap) {
        int64_t cap = i->cap ? 2 * i->cap : 8;
        cloob_batch_input *more = realloc(i->in, (size_t)cap * sizeof *more);
        if (!more) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
        i->in = more, i->cap = cap;
    }
    i->in[i->n++] = in;
    return CLOOB_OK;
}

cloob_status inputs_text(cloob_ctx *ctx, inputs *i, const char *text)
{
    return add(ctx, i, (cloob_batch_input){ .kind = CLOOB_BATCH_TEXT, .text = text });
}

cloob_status inputs_own_text(cloob_ctx *ctx, inputs *i, char *text)
{
    cloob_status status = own(ctx, i, text);
    return status == CLOOB_OK ? inputs_text(ctx, i, text) : status;
}

cloob_status inputs_bytes(cloob_ctx *ctx, inputs *i, const void *data, size_t bytes)
{
    if (!bytes) return refuse(ctx, "an image of no bytes");
    return add(ctx, i, (cloob_batch_input){ .kind = CLOOB_BATCH_IMAGE_FILE, .data = data, .bytes = bytes });
}

static cloob_status add_owned(cloob_ctx *ctx, inputs *i, unsigned char *data, size_t bytes)
{
    cloob_status status = own(ctx, i, data);
    return status == CLOOB_OK ? inputs_bytes(ctx, i, data, bytes) : status;
}

cloob_status inputs_image(cloob_ctx *ctx, serve *s, inputs *i, const char *text)
{
    unsigned char *data;
    size_t bytes;
    if (strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0) {
        cloob_status status = fetch_url(ctx, s->o, text, (size_t)s->o->max_body_mb << 20, (long)s->o->timeout_s,
                                        i->memory, &data, &bytes);
        return status == CLOOB_OK ? add_owned(ctx, i, data, bytes) : status;
    }
    const char *from = data_url_image(text);
    if (!from && strncasecmp(text, "data:", 5) == 0) return refuse(ctx, "a data URL that is no base64 image");
    if (!from) from = text;
    cloob_status status = account_reserve(ctx, i->memory, (int64_t)(strlen(from) / 4 * 3));
    if (status != CLOOB_OK) return status;
    if (!base64_decode(from, strlen(from), &data, &bytes)) return refuse(ctx, "an image that is not valid base64");
    return add_owned(ctx, i, data, bytes);
}

cloob_status inputs_either(cloob_ctx *ctx, serve *s, inputs *i, const char *text)
{
    return strncasecmp(text, "data:image/", 11) == 0 ? inputs_image(ctx, s, i, text) : inputs_text(ctx, i, text);
}

cloob_status inputs_tokens(cloob_ctx *ctx, inputs *i, const json *list)
{
    int64_t n = json_count(list), at = 0;
    int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
    if (!ids) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory");
    cloob_status status = own(ctx, i, ids);
    if (status != CLOOB_OK) return status;
    for (const json *v = json_first(list); v; v = json_next(v)) {
        int64_t id;
        if (!json_int(v, &id) || id < 0 || id > INT32_MAX) return refuse(ctx, "token ids are whole numbers from 0 on");
        ids[at++] = (int32_t)id;
    }
    return add(ctx, i, (cloob_batch_input){ .kind = CLOOB_BATCH_TOKENS, .ids = ids, .count = n });
}

/* At most what the tree of a JSON text takes: its strings, and 200 bytes for a value; a value ends at a comma or a
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
