/* Thin bodies of include/cloob/json.h over core/json.h. */
#include "cloob/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/needs.h"

/* ---- reading ------------------------------------------------------------------------------------- */

struct cloob_json_doc {
    arena a;
    json *root;
};

static const json *peek(const cloob_json *v) { return (const json *)(const void *)v; }
static const cloob_json *give(const json *v) { return (const cloob_json *)(const void *)v; }

cloob_status cloob_json_parse(cloob_ctx *ctx, const char *text, size_t bytes, const char *name, int64_t max_values,
                              cloob_json_doc **out)
{
    API_NEEDS(ctx, text && name && out);
    *out = NULL;
    cloob_json_doc *doc = calloc(1, sizeof *doc);
    if (!doc) return ctx_no_memory(ctx, sizeof *doc, name);
    cloob_status status = json_parse_bounded(ctx, &doc->a, text, bytes, name, max_values, &doc->root);
    if (status == CLOOB_OK) *out = doc;
    else cloob_json_close(doc);
    return status;
}

void cloob_json_close(cloob_json_doc *doc)
{
    if (!doc) return;
    arena_release(&doc->a);
    free(doc);
}

const cloob_json *cloob_json_root(const cloob_json_doc *doc) { return doc ? give(doc->root) : NULL; }

/* The public kinds are numbered like the inner ones. */
_Static_assert((int)CLOOB_JSON_OBJECT == (int)JSON_OBJECT && (int)CLOOB_JSON_STRING == (int)JSON_STRING, "json kinds");

cloob_json_kind cloob_json_kind_of(const cloob_json *v) { return v ? (cloob_json_kind)peek(v)->kind : CLOOB_JSON_NULL; }

const cloob_json *cloob_json_get(const cloob_json *object, const char *key)
{
    return object && key ? give(json_get(peek(object), key)) : NULL;
}

int64_t cloob_json_count(const cloob_json *v) { return v ? peek(v)->count : 0; }
const cloob_json *cloob_json_first(const cloob_json *v) { return v ? give(peek(v)->child) : NULL; }
const cloob_json *cloob_json_next(const cloob_json *v) { return v ? give(peek(v)->next) : NULL; }
const char *cloob_json_key(const cloob_json *v) { return v ? peek(v)->key : NULL; }
const char *cloob_json_text(const cloob_json *v) { return v ? json_string(peek(v)) : NULL; }
bool cloob_json_int(const cloob_json *v, int64_t *out) { return v && out && json_int(peek(v), out); }

bool cloob_json_number(const cloob_json *v, double *out)
{
    if (!out || cloob_json_kind_of(v) != CLOOB_JSON_NUMBER) return false;
    *out = peek(v)->number;
    return true;
}

bool cloob_json_bool(const cloob_json *v, bool *out)
{
    if (!out || cloob_json_kind_of(v) != CLOOB_JSON_BOOL) return false;
    *out = peek(v)->boolean;
    return true;
}

/* ---- writing ------------------------------------------------------------------------------------- */

/* The buffer of a writer as a string that grows, and back. */
static sbuf take(const cloob_json_out *w) { return (sbuf){ w->data, w->len, w->cap, w->failed }; }

static void keep(cloob_json_out *w, const sbuf *s)
{
    w->data = s->data, w->len = s->len, w->cap = s->cap, w->failed = s->failed;
}

static sbuf start(cloob_json_out *w, const char *key)
{
    sbuf s = take(w);
    if (w->more) sbuf_putc(&s, ',');
    if (key) json_put_string(&s, key), sbuf_putc(&s, ':');
    w->more = true;
    return s;
}

void cloob_json_begin(cloob_json_out *w, const char *key, char open)
{
    if (!w) return;
    sbuf s = start(w, key);
    sbuf_putc(&s, open);
    if (w->depth < (int)sizeof w->close) w->close[w->depth] = open == '{' ? '}' : ']';
    else s.failed = true;
    w->depth++;
    w->more = false;
    keep(w, &s);
}

void cloob_json_end(cloob_json_out *w)
{
    if (!w) return;
    sbuf s = take(w);
    if (w->depth > 0 && --w->depth < (int)sizeof w->close) sbuf_putc(&s, w->close[w->depth]);
    w->more = true;
    keep(w, &s);
}

void cloob_json_put_text(cloob_json_out *w, const char *key, const char *text)
{
    if (!w) return;
    sbuf s = start(w, key);
    if (text) json_put_string(&s, text);
    else sbuf_puts(&s, "null");
    keep(w, &s);
}

void cloob_json_put_number(cloob_json_out *w, const char *key, double value)
{
    if (!w) return;
    sbuf s = start(w, key);
    json_put_number(&s, value);
    keep(w, &s);
}

void cloob_json_put_int(cloob_json_out *w, const char *key, int64_t value)
{
    if (!w) return;
    sbuf s = start(w, key);
    sbuf_printf(&s, "%lld", (long long)value);
    keep(w, &s);
}

void cloob_json_put_bool(cloob_json_out *w, const char *key, bool value)
{
    cloob_json_put_raw(w, key, value ? "true" : "false", value ? 4 : 5);
}

void cloob_json_put_null(cloob_json_out *w, const char *key) { cloob_json_put_raw(w, key, "null", 4); }

void cloob_json_put_raw(cloob_json_out *w, const char *key, const char *text, size_t bytes)
{
    if (!w) return;
    sbuf s = start(w, key);
    sbuf_add(&s, text, bytes);
    keep(w, &s);
}

void cloob_json_put_floats(cloob_json_out *w, const char *key, const float *row, int64_t n)
{
    if (!w) return;
    sbuf s = start(w, key);
    sbuf_putc(&s, '[');
    for (int64_t i = 0; i < n; i++) {
        char text[32];
        if (i) sbuf_putc(&s, ',');
        sbuf_add(&s, text, json_print_float(row[i], text));
    }
    sbuf_putc(&s, ']');
    keep(w, &s);
}
