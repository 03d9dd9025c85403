/* A recursive-descent reader with bounded depth, and the one writer of JSON. */
#include "core/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/text.h"

enum { MAX_DEPTH = 64 };

typedef struct reader {
    cloob_ctx *ctx;
    arena *a;
    const char *text, *at, *end, *name;
    int depth;
    int64_t values, max_values;
} reader;

static cloob_status fail(reader *r, const char *what)
{
    int64_t line = 1, column = 1;
    for (const char *c = r->text; c < r->at; c++) {
        if (*c == '\n') line++, column = 0;
        column++;
    }
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: line %lld, column %lld: %s", r->name, (long long)line,
                    (long long)column, what);
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool accept(reader *r, char c)
{
    if (r->at >= r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static json *node(reader *r, json_kind kind)
{
    json *j = arena_push(r->a, sizeof *j);
    if (j) j->kind = kind;
    return j;
}

/* ---- strings ------------------------------------------------------------------------------------- */

static bool hex4(reader *r, uint32_t *out)
{
    if (r->end - r->at < 4) return false;
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        uint32_t digit;
        if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') digit = (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F') digit = (uint32_t)(c - 'A' + 10);
        else return false;
        *out = *out * 16 + digit;
    }
    return true;
}

static bool unicode_escape(reader *r, uint32_t *code)
{
    uint32_t low;
    if (!hex4(r, code)) return false;
    if (*code >= 0xDC00 && *code < 0xE000) return false;
    if (*code < 0xD800 || *code >= 0xDC00) return *code != 0;
    if (!accept(r, '\\') || !accept(r, 'u') || !hex4(r, &low) || low < 0xDC00 || low >= 0xE000) return false;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

static bool escape(reader *r, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at >= r->end) return false;
    char c = *r->at++;
    if (c == 'u') {
        uint32_t code;
        if (!unicode_escape(r, &code)) return false;
        *out += utf8_encode(code, *out);
        return true;
    }
    const char *hit = c ? strchr(from, c) : NULL;
    if (!hit) return false;
    *(*out)++ = to[hit - from];
    return true;
}

/* The number of characters from here on without escapes: ASCII without controls and backslashes. An image in base64 is
 * one run, so eight are checked together: each borrows its top bit where it is below a bound, or equals one. */
static size_t plain_run(const char *from, size_t n)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t v, slash;
        memcpy(&v, from + i, sizeof v);
        slash = v ^ '\\' * ones;
        if ((v | (v - 0x20 * ones) | (slash - ones)) & tops) break;
    }
    while (i < n && (signed char)from[i] >= 0x20 && from[i] != '\\') i++; /* beyond ASCII is negative */
    return i;
}

/* The result is never longer than the source, so one pass into a buffer of that size is enough. */
static cloob_status read_string(reader *r, const char **out)
{
    const char *close = memchr(r->at, '"', (size_t)(r->end - r->at));
    if (close && memchr(r->at, '\\', (size_t)(close - r->at))) { /* perhaps an escaped quote */
        close = r->at;
        while (close < r->end && *close != '"') close += *close == '\\' ? 2 : 1;
    }
    if (!close || close >= r->end) return fail(r, "string without an end");
    char *buffer = arena_push(r->a, (size_t)(close - r->at) + 1), *o = buffer;
    if (!buffer) return ctx_no_memory(r->ctx, (size_t)(close - r->at), r->name);
    while (r->at < close) {
        uint32_t code;
        size_t plain = plain_run(r->at, (size_t)(close - r->at));
        memcpy(o, r->at, plain);
        o += plain, r->at += plain;
        if (r->at == close) break;
        if (*r->at == '\\') {
            r->at++;
            if (!escape(r, &o)) return fail(r, "bad escape in a string");
            continue;
        }
        if ((unsigned char)*r->at < 0x20) return fail(r, "control character in a string");
        int n = utf8_decode(r->at, (size_t)(close - r->at), &code);
        if (n <= 0) return fail(r, "string is not UTF-8");
        memcpy(o, r->at, (size_t)n);
        o += n;
        r->at += n;
    }
    r->at = close + 1;
    *out = buffer;
    return CLOOB_OK;
}

/* ---- values -------------------------------------------------------------------------------------- */

static bool digits(reader *r)
{
    const char *from = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return r->at > from;
}

static cloob_status read_number(reader *r, json **out)
{
    const char *from = r->at;
    accept(r, '-');
    bool zero = r->at < r->end && *r->at == '0';
    if (zero ? (r->at++, false) : !digits(r)) return fail(r, "expected a value");
    if (accept(r, '.') && !digits(r)) return fail(r, "number without digits after the point");
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (!accept(r, '+')) accept(r, '-');
        if (!digits(r)) return fail(r, "number without digits in the exponent");
    }
    json *j = node(r, JSON_NUMBER);
    char *text = j ? arena_string_n(r->a, from, (size_t)(r->at - from)) : NULL;
    if (!text) return ctx_no_memory(r->ctx, sizeof *j, r->name);
    j->text = text;
    j->number = strtod(text, NULL);
    *out = j;
    return CLOOB_OK;
}

static cloob_status read_value(reader *r, json **out);

/* Finds duplicate keys with one sort per object; comparing all pairs would be quadratic. */
static int by_key(const void *a, const void *b)
{
    return strcmp((*(const json *const *)a)->key, (*(const json *const *)b)->key);
}

static cloob_status refuse_duplicates(reader *r, const json *object)
{
    if (object->count < 2) return CLOOB_OK;
    const json **sorted = malloc((size_t)object->count * sizeof *sorted);
    if (!sorted) return ctx_no_memory(r->ctx, (size_t)object->count * sizeof *sorted, r->name);
    int64_t n = 0;
    for (const json *c = object->child; c; c = c->next) sorted[n++] = c;
    qsort(sorted, (size_t)n, sizeof *sorted, by_key);
    cloob_status status = CLOOB_OK;
    for (int64_t i = 1; i < n && status == CLOOB_OK; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            status = ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: key \"%.200s\" appears twice", r->name, sorted[i]->key);
    free(sorted);
    return status;
}

static cloob_status read_key(reader *r, const char **key)
{
    skip_space(r);
    if (!accept(r, '"')) return fail(r, "expected a key in quotes");
    CLOOB_TRY(read_string(r, key));
    skip_space(r);
    return accept(r, ':') ? CLOOB_OK : fail(r, "expected a colon after the key");
}

static cloob_status read_container(reader *r, json_kind kind, json **out)
{
    char close = kind == JSON_OBJECT ? '}' : ']';
    json *j = node(r, kind), **tail;
    if (!j) return ctx_no_memory(r->ctx, sizeof *j, r->name);
    if (++r->depth > MAX_DEPTH) return fail(r, "nested too deeply");
    tail = &j->child;
    skip_space(r);
    if (!accept(r, close)) {
        do {
            const char *key = NULL;
            if (kind == JSON_OBJECT) CLOOB_TRY(read_key(r, &key));
            CLOOB_TRY(read_value(r, tail));
            (*tail)->key = key;
            tail = &(*tail)->next;
            j->count++;
            skip_space(r);
        } while (accept(r, ','));
        if (!accept(r, close)) return fail(r, kind == JSON_OBJECT ? "expected , or }" : "expected , or ]");
    }
    r->depth--;
    *out = j;
    return kind == JSON_OBJECT ? refuse_duplicates(r, j) : CLOOB_OK;
}

static bool read_word(reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static cloob_status read_literal(reader *r, json **out)
{
    bool yes = read_word(r, "true"), no = !yes && read_word(r, "false");
    if (!yes && !no && !read_word(r, "null")) return read_number(r, out);
    json *j = node(r, yes || no ? JSON_BOOL : JSON_NULL);
    if (!j) return ctx_no_memory(r->ctx, sizeof *j, r->name);
    j->boolean = yes;
    *out = j;
    return CLOOB_OK;
}

static cloob_status read_value(reader *r, json **out)
{
    if (++r->values > r->max_values) return fail(r, "too many values");
    skip_space(r);
    if (accept(r, '{')) return read_container(r, JSON_OBJECT, out);
    if (accept(r, '[')) return read_container(r, JSON_ARRAY, out);
    if (!accept(r, '"')) return read_literal(r, out);
    json *j = node(r, JSON_STRING);
    if (!j) return ctx_no_memory(r->ctx, sizeof *j, r->name);
    *out = j;
    return read_string(r, &j->text);
}

static cloob_status parse(cloob_ctx *ctx, arena *a, const char *text, size_t len, const char *name, int64_t max_values,
                          json **root)
{
    reader r = { ctx, a, text, text, text + len, name, 0, 0, max_values };
    CLOOB_TRY(read_value(&r, root));
    skip_space(&r);
    return r.at == r.end ? CLOOB_OK : fail(&r, "text after the end");
}

cloob_status json_parse(cloob_ctx *ctx, arena *a, const char *text, size_t len, const char *name, json **root)
{
    return parse(ctx, a, text, len, name, JSON_MAX_VALUES, root);
}

cloob_status json_read_file(cloob_ctx *ctx, arena *a, const char *path, json **root)
{
    file_bytes bytes;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &bytes));
    cloob_status status = json_parse(ctx, a, bytes.data, bytes.size, path, root);
    file_bytes_release(&bytes);
    return status;
}

/* ---- queries and writers ------------------------------------------------------------------------- */

json_kind json_kind_of(const json *v) { return v ? v->kind : JSON_NULL; }

const json *json_get(const json *object, const char *key)
{
    if (!object || !key || object->kind != JSON_OBJECT) return NULL;
    for (const json *m = object->child; m; m = m->next)
        if (strcmp(m->key, key) == 0) return m;
    return NULL;
}

double json_get_number(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->kind == JSON_NUMBER ? v->number : NAN;
}

int64_t json_count(const json *v) { return v ? v->count : 0; }
const json *json_first(const json *v) { return v ? v->child : NULL; }
const json *json_next(const json *v) { return v ? v->next : NULL; }
const char *json_key(const json *v) { return v ? v->key : NULL; }
const char *json_string(const json *v) { return v && v->kind == JSON_STRING ? v->text : NULL; }

bool json_number(const json *v, double *out)
{
    if (json_kind_of(v) != JSON_NUMBER) return false;
    *out = v->number;
    return true;
}

bool json_int(const json *value, int64_t *out)
{
    if (!value || value->kind != JSON_NUMBER) return false;
    if (fabs(value->number) > 9007199254740992.0 || value->number != floor(value->number)) return false;
    *out = (int64_t)value->number;
    return true;
}

bool json_bool(const json *v, bool *out)
{
    if (json_kind_of(v) != JSON_BOOL) return false;
    *out = v->boolean;
    return true;
}

cloob_status json_doc_parse(cloob_ctx *ctx, const char *text, size_t bytes, const char *name, int64_t max_values,
                            json_doc **out)
{
    *out = NULL;
    json_doc *doc = calloc(1, sizeof *doc);
    if (!doc) return ctx_no_memory(ctx, sizeof *doc, name);
    cloob_status status = parse(ctx, &doc->a, text, bytes, name, max_values, &doc->root);
    if (status == CLOOB_OK) *out = doc;
    else json_doc_close(doc);
    return status;
}

void json_doc_close(json_doc *doc)
{
    if (!doc) return;
    arena_release(&doc->a);
    free(doc);
}

const json *json_doc_root(const json_doc *doc) { return doc ? doc->root : NULL; }

void json_print_string(sbuf *s, const char *text)
{
    size_t left = strlen(text);
    sbuf_putc(s, '"');
    while (left) {
        uint32_t code;
        int n = utf8_decode(text, left, &code);
        if (n <= 0) sbuf_puts(s, "\xEF\xBF\xBD"), n = 1;
        else if (code == '"' || code == '\\') sbuf_printf(s, "\\%c", (char)code);
        else if (code == '\n') sbuf_puts(s, "\\n");
        else if (code < 0x20) sbuf_printf(s, "\\u%04x", code);
        else sbuf_add(s, text, (size_t)n);
        text += n;
        left -= (size_t)n;
    }
    sbuf_putc(s, '"');
}

void json_print_number(sbuf *s, double value)
{
    char text[40];
    if (!isfinite(value)) {
        sbuf_puts(s, "null");
        return;
    }
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, value);
        if (strtod(text, NULL) == value) break;
    }
    sbuf_puts(s, text);
}

/* x as 9 decimal digits times a power of ten: x = digits 10^(exponent - 8). In double the product is exact to 15
 * digits. */
static int64_t nine_digits(double x, int *exponent)
{
    int e = (int)floor(log10(x));
    int64_t digits = llrint(x * pow(10, 8 - e));
    if (digits >= 1000000000) digits = llrint(x * pow(10, 8 - ++e));
    else if (digits < 100000000) digits = llrint(x * pow(10, 8 - --e));
    *exponent = e;
    return digits;
}

size_t json_print_float(float value, char *text)
{
    char digit[9];
    int exponent, n = 9;
    char *o = text;
    if (!isfinite(value)) return (size_t)snprintf(text, 24, "null");
    if (fabsf(value) < 1e-5f || fabsf(value) >= 1e8f) return (size_t)snprintf(text, 24, "%.9g", (double)value);
    int64_t digits = nine_digits(fabs((double)value), &exponent);
    for (int i = 8; i >= 0; i--, digits /= 10) digit[i] = (char)('0' + digits % 10);
    while (n > 1 && digit[n - 1] == '0') n--;
    if (value < 0) *o++ = '-';
    if (exponent < 0) {
        *o++ = '0', *o++ = '.';
        for (int i = -1; i > exponent; i--) *o++ = '0';
        for (int i = 0; i < n; i++) *o++ = digit[i];
        return (size_t)(o - text);
    }
    for (int i = 0; i <= exponent || i < n; i++) {
        if (i == exponent + 1) *o++ = '.';
        *o++ = i < n ? digit[i] : '0';
    }
    return (size_t)(o - text);
}

/* ---- the writer ---------------------------------------------------------------------------------- */

static void put_line_end(json_out *w) { sbuf_printf(&w->text, "\n%*s", 2 * w->depth, ""); }

/* Writes what precedes a value: a comma, a line end, a key. */
static sbuf *start(json_out *w, const char *key)
{
    bool line = w->depth && w->depth <= w->lines;
    if (w->more) sbuf_puts(&w->text, w->spaced && !line ? ", " : ",");
    if (line) put_line_end(w);
    if (key) json_print_string(&w->text, key), sbuf_puts(&w->text, w->spaced ? ": " : ":");
    w->more = true;
    return &w->text;
}

void json_begin(json_out *w, const char *key, char open)
{
    if (!w) return;
    sbuf_putc(start(w, key), open);
    if (w->depth < (int)sizeof w->close) w->close[w->depth] = open == '{' ? '}' : ']';
    else w->failed = true;
    w->depth++;
    w->more = false;
}

void json_end(json_out *w)
{
    if (!w) return;
    if (w->depth > 0 && --w->depth < (int)sizeof w->close) {
        if (w->depth < w->lines) put_line_end(w);
        sbuf_putc(&w->text, w->close[w->depth]);
    }
    w->more = true;
}

void json_put_raw(json_out *w, const char *key, const char *text, size_t bytes)
{
    if (w) sbuf_add(start(w, key), text, bytes);
}

void json_put_null(json_out *w, const char *key) { json_put_raw(w, key, "null", 4); }

void json_put_bool(json_out *w, const char *key, bool value)
{
    json_put_raw(w, key, value ? "true" : "false", value ? 4 : 5);
}

void json_put_text(json_out *w, const char *key, const char *text)
{
    if (!text) json_put_null(w, key);
    else if (w) json_print_string(start(w, key), text);
}

void json_put_number(json_out *w, const char *key, double value)
{
    if (w) json_print_number(start(w, key), value);
}

void json_put_digits(json_out *w, const char *key, double value, int digits)
{
    if (!isfinite(value)) json_put_null(w, key);
    else if (w) sbuf_printf(start(w, key), "%.*g", digits, value);
}

void json_put_int(json_out *w, const char *key, int64_t value)
{
    if (w) sbuf_printf(start(w, key), "%lld", (long long)value);
}

void json_put_floats(json_out *w, const char *key, const float *row, int64_t n)
{
    if (!w) return;
    sbuf *s = start(w, key);
    sbuf_putc(s, '[');
    for (int64_t i = 0; i < n; i++) {
        char text[32];
        if (i) sbuf_putc(s, ',');
        sbuf_add(s, text, json_print_float(row[i], text));
    }
    sbuf_putc(s, ']');
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
    json_out w = { .text = *s };
    *s = (sbuf){ 0 };
    return w;
}

void json_out_back(json_out *w, sbuf *s)
{
    *s = w->text;
    *w = (json_out){ 0 };
}

char *json_out_line(json_out *w)
{
    sbuf s = w->text;
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
