/* The one writer of JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/json.h"

/* The buffer of a writer as a string that grows, and back. */
static sbuf take(const json_out *w) { return (sbuf){ w->data, w->len, w->cap, w->failed }; }

static void keep(json_out *w, const sbuf *s)
{
    w->data = s->data, w->len = s->len, w->cap = s->cap, w->failed = s->failed;
}

static void put_line_end(const json_out *w, sbuf *s) { sbuf_printf(s, "\n%*s", 2 * w->depth, ""); }

static sbuf start(json_out *w, const char *key)
{
    sbuf s = take(w);
    bool line = w->depth && w->depth <= w->lines;
    if (w->more) sbuf_puts(&s, w->spaced && !line ? ", " : ",");
    if (line) put_line_end(w, &s);
    if (key) json_print_string(&s, key), sbuf_puts(&s, w->spaced ? ": " : ":");
    w->more = true;
    return s;
}

void json_begin(json_out *w, const char *key, char open)
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

void json_end(json_out *w)
{
    if (!w) return;
    sbuf s = take(w);
    if (w->depth > 0 && --w->depth < (int)sizeof w->close) {
        if (w->depth < w->lines) put_line_end(w, &s);
        sbuf_putc(&s, w->close[w->depth]);
    }
    w->more = true;
    keep(w, &s);
}

void json_put_text(json_out *w, const char *key, const char *text)
{
    if (!w) return;
    sbuf s = start(w, key);
    if (text) json_print_string(&s, text);
    else sbuf_puts(&s, "null");
    keep(w, &s);
}

void json_put_number(json_out *w, const char *key, double value)
{
    if (!w) return;
    sbuf s = start(w, key);
    json_print_number(&s, value);
    keep(w, &s);
}

void json_put_digits(json_out *w, const char *key, double value, int digits)
{
    if (!w) return;
    sbuf s = start(w, key);
    if (isfinite(value)) sbuf_printf(&s, "%.*g", digits, value);
    else sbuf_puts(&s, "null");
    keep(w, &s);
}

void json_put_int(json_out *w, const char *key, int64_t value)
{
    if (!w) return;
    sbuf s = start(w, key);
    sbuf_printf(&s, "%lld", (long long)value);
    keep(w, &s);
}

void json_put_bool(json_out *w, const char *key, bool value)
{
    json_put_raw(w, key, value ? "true" : "false", value ? 4 : 5);
}

void json_put_null(json_out *w, const char *key) { json_put_raw(w, key, "null", 4); }

void json_put_raw(json_out *w, const char *key, const char *text, size_t bytes)
{
    if (!w) return;
    sbuf s = start(w, key);
    sbuf_add(&s, text, bytes);
    keep(w, &s);
}

void json_put_floats(json_out *w, const char *key, const float *row, int64_t n)
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

void json_put_members(json_out *w, const json_member *member, size_t count)
{
    for (const json_member *m = member; m < member + count; m++) {
        switch (m->kind) {
        case JSON_MEMBER_TEXT: json_put_text(w, m->key, m->text); break;
        case JSON_MEMBER_INT: json_put_int(w, m->key, m->whole); break;
        case JSON_MEMBER_BOOL: json_put_bool(w, m->key, m->whole != 0); break;
        case JSON_MEMBER_NUMBER:
            if (m->digits) json_put_digits(w, m->key, m->number, m->digits);
            else json_put_number(w, m->key, m->number);
            break;
        }
    }
}

json_out json_out_on(sbuf *s)
{
    json_out w = { .data = s->data, .len = s->len, .cap = s->cap, .failed = s->failed };
    *s = (sbuf){ 0 };
    return w;
}

void json_out_back(json_out *w, sbuf *s)
{
    *s = take(w);
    *w = (json_out){ 0 };
}

char *json_out_line(json_out *w)
{
    sbuf s = take(w);
    sbuf_putc(&s, '\n');
    *w = (json_out){ 0 };
    return sbuf_detach(&s);
}

void json_out_append(json_out *w, sbuf *out)
{
    if (w->data) sbuf_add(out, w->data, w->len);
    sbuf_putc(out, '\n');
    out->failed |= w->failed;
    free(w->data);
    *w = (json_out){ 0 };
}
