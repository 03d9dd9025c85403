/* As much of Python's syntax as lists of strings take: both quotes, three of them, escapes, prefixes,
 * neighbouring strings joined, comments, nested lists, and the one-argument functions some write templates
 * as. */
#include "data/text/prompts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/text.h"

static cloob_status bad(const python_source *s, const char *why)
{
    return ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: line %lld: %s", s->where, (long long)s->line, why);
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void advance(python_source *s, size_t n)
{
    for (; n && s->at < s->end; n--) s->line += *s->at++ == '\n';
}

static char peek(const python_source *s, size_t k) { return (size_t)(s->end - s->at) > k ? s->at[k] : '\0'; }

static void skip_comment(python_source *s)
{
    while (s->at < s->end && *s->at != '\n') s->at++;
}

static void skip_blank(python_source *s)
{
    for (; s->at < s->end; advance(s, 1)) {
        if (*s->at == '#') skip_comment(s);
        if (s->at >= s->end || !strchr(" \t\r\n\f\\", *s->at) || !*s->at) return;
    }
}

/* ---- strings --------------------------------------------------------------------------------------- */

static cloob_status add_code(python_source *s, unsigned long code, sbuf *out)
{
    char utf8[4];
    if (!code || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return bad(s, "an escape that is no character");
    sbuf_add(out, utf8, (size_t)utf8_encode((uint32_t)code, utf8));
    return CLOOB_OK;
}

static cloob_status hex_escape(python_source *s, size_t digits, sbuf *out)
{
    char number[9] = "";
    for (size_t i = 0; i < digits; i++) {
        number[i] = peek(s, i);
        if (!strchr("0123456789abcdefABCDEF", number[i]) || !number[i]) return bad(s, "an escape with too few digits");
    }
    advance(s, digits);
    return add_code(s, strtoul(number, NULL, 16), out);
}

static cloob_status octal_escape(python_source *s, char first, sbuf *out)
{
    unsigned long code = (unsigned long)(first - '0');
    for (int i = 0; i < 2 && peek(s, 0) >= '0' && peek(s, 0) <= '7'; i++, advance(s, 1))
        code = code * 8 + (unsigned long)(peek(s, 0) - '0');
    return add_code(s, code, out);
}

/* The escape after a backslash. What Python does not know stays as written, backslash and all. */
static cloob_status read_escape(python_source *s, sbuf *out)
{
    static const char from[] = "ntrfva b\\'\"", to[] = "\n\t\r\f\v\a \b\\'\"";
    char c = peek(s, 0);
    if (s->at >= s->end) return bad(s, "a string that does not end");
    advance(s, 1);
    if (c == '\n') return CLOOB_OK;
    if (c == 'x') return hex_escape(s, 2, out);
    if (c == 'u') return hex_escape(s, 4, out);
    if (c == 'U') return hex_escape(s, 8, out);
    if (c >= '0' && c <= '7') return octal_escape(s, c, out);
    const char *known = c && c != ' ' ? strchr(from, c) : NULL;
    if (known) sbuf_putc(out, to[known - from]);
    else sbuf_putc(out, '\\'), sbuf_putc(out, c);
    return CLOOB_OK;
}

/* A hole {name} of a formatted string becomes {}; doubled braces become single. */
static cloob_status read_brace(python_source *s, const char *argument, sbuf *out)
{
    size_t n = 0;
    char c = peek(s, 0);
    if (peek(s, 1) == c) {
        sbuf_putc(out, c);
        advance(s, 2);
        return CLOOB_OK;
    }
    while (is_name(peek(s, 1 + n))) n++;
    if (c != '{' || peek(s, 1 + n) != '}' || !argument || n != strlen(argument) || strncmp(s->at + 1, argument, n) != 0)
        return bad(s, "a formatted string with something else than the class name in braces");
    sbuf_puts(out, "{}");
    advance(s, n + 2);
    return CLOOB_OK;
}

typedef struct quoting {
    char quote;
    size_t width; /* 1 or 3 */
    bool raw, formatted;
} quoting;

static bool at_quote(const python_source *s, const quoting *q)
{
    return peek(s, 0) == q->quote && (q->width == 1 || (peek(s, 1) == q->quote && peek(s, 2) == q->quote));
}

/* One string literal at its prefix or quote, appended. argument: what a formatted one may hold in braces. */
static cloob_status read_string(python_source *s, const char *argument, sbuf *out)
{
    quoting q = { .width = 1 };
    for (; is_name(peek(s, 0)); advance(s, 1)) {
        char c = (char)(peek(s, 0) | 32);
        if (c == 'b') return bad(s, "bytes where text is needed");
        q.raw |= c == 'r';
        q.formatted |= c == 'f';
    }
    q.quote = peek(s, 0);
    if (peek(s, 1) == q.quote && peek(s, 2) == q.quote) q.width = 3;
    for (advance(s, q.width); !at_quote(s, &q);) {
        char c = peek(s, 0);
        if (s->at >= s->end || (c == '\n' && q.width == 1)) return bad(s, "a string that does not end");
        if (!c) return bad(s, "a zero byte in a string");
        if (c == '\\' && !q.raw) {
            advance(s, 1);
            CLOOB_TRY(read_escape(s, out));
        } else if (q.formatted && (c == '{' || c == '}')) {
            CLOOB_TRY(read_brace(s, argument, out));
        } else {
            sbuf_putc(out, c);
            advance(s, 1);
        }
    }
    advance(s, q.width);
    return CLOOB_OK;
}

static bool at_string(const python_source *s)
{
    size_t n = 0;
    while (n < 3 && peek(s, n) && strchr("rRuUfFbB", peek(s, n))) n++;
    return n < 3 && (peek(s, n) == '\'' || peek(s, n) == '"');
}

/* Neighbouring literals are one text. */
static cloob_status read_text(python_source *s, const char *argument, prompt_list *out)
{
    sbuf text = { 0 };
    cloob_status status = CLOOB_OK;
    sbuf_puts(&text, "");
    while (status == CLOOB_OK && at_string(s)) {
        status = read_string(s, argument, &text);
        skip_blank(s);
    }
    if (status == CLOOB_OK &&
        (text.failed || !prompt_list_add(s->memory, out, arena_string_n(s->memory, text.data, text.len))))
        status = ctx_no_memory(s->ctx, text.len, "a prompt");
    sbuf_release(&text);
    return status;
}

/* ---- lists ----------------------------------------------------------------------------------------- */

static bool at_word(const python_source *s, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(s->end - s->at) >= n && memcmp(s->at, word, n) == 0 && !is_name(peek(s, n));
}

/* lambda c: f'...{c}...' */
static cloob_status read_lambda(python_source *s, prompt_list *out)
{
    char argument[64];
    size_t n = 0;
    advance(s, strlen("lambda"));
    skip_blank(s);
    while (is_name(peek(s, n)) && n < sizeof argument - 1) argument[n] = peek(s, n), n++;
    argument[n] = '\0';
    advance(s, n);
    skip_blank(s);
    if (!n || peek(s, 0) != ':') return bad(s, "a function of something else than one class name");
    advance(s, 1);
    skip_blank(s);
    return at_string(s) ? read_text(s, argument, out) : bad(s, "a function that is not a formatted string");
}

/* Items up to the closing bracket, which is passed. An item that is a list itself is left to read_item. */
static cloob_status read_names(python_source *s, char close, prompt_list *out)
{
    for (;;) {
        skip_blank(s);
        if (peek(s, 0) == close) break;
        if (!at_string(s))
            return bad(s,
                       s->at < s->end ? "something else than a string in a list of names" : "a list that does not end");
        CLOOB_TRY(read_text(s, NULL, out));
        if (peek(s, 0) == ',') advance(s, 1);
        else if (peek(s, 0) != close) return bad(s, "no comma after a string");
    }
    advance(s, 1);
    return CLOOB_OK;
}

static cloob_status read_item(python_source *s, prompt_list *out)
{
    char c = peek(s, 0);
    if (at_string(s)) return read_text(s, NULL, out);
    if (at_word(s, "lambda")) return read_lambda(s, out);
    if (c != '[' && c != '(')
        return bad(s, s->at < s->end ? "something else than a string in a list" : "a list that does not end");
    advance(s, 1);
    CLOOB_TRY(read_names(s, c == '[' ? ']' : ')', out));
    skip_blank(s);
    return CLOOB_OK;
}

static cloob_status add_entry(python_source *s, python_list *l)
{
    if ((l->count & (l->count - 1)) == 0) {
        size_t bytes = (size_t)(l->count ? 2 * l->count : 1) * sizeof *l->entry;
        prompt_list *grown = arena_push(s->memory, bytes);
        if (!grown) return ctx_no_memory(s->ctx, bytes, "prompts");
        if (l->count) memcpy(grown, l->entry, (size_t)l->count * sizeof *grown);
        l->entry = grown;
    }
    l->entry[l->count] = (prompt_list){ 0 };
    return read_item(s, &l->entry[l->count++]);
}

static cloob_status read_list(python_source *s, python_list *l)
{
    char close = peek(s, 0) == '[' ? ']' : ')';
    advance(s, 1);
    for (;;) {
        skip_blank(s);
        if (peek(s, 0) == close) break;
        CLOOB_TRY(add_entry(s, l));
        if (peek(s, 0) == ',') advance(s, 1);
        else if (peek(s, 0) != close)
            return bad(s, s->at < s->end ? "no comma after an item" : "a list that does not end");
    }
    advance(s, 1);
    return CLOOB_OK;
}

/* ---- assignments ----------------------------------------------------------------------------------- */

static bool ends_with(const char *name, size_t n, const char *tail)
{
    size_t k = strlen(tail);
    return n >= k && strncasecmp(name + n - k, tail, k) == 0;
}

static bool is_wanted(const char *name, size_t n)
{
    return ends_with(name, n, "classes") || ends_with(name, n, "classnames") || ends_with(name, n, "class_names") ||
           ends_with(name, n, "templates");
}

/* `name = [` at the beginning of a line: leaves at on the bracket. */
static bool at_assignment(python_source *s, const char **name, size_t *n)
{
    python_source ahead = *s;
    for (*name = ahead.at, *n = 0; is_name(peek(&ahead, 0)); ahead.at++) ++*n;
    if (!*n || !is_wanted(*name, *n)) return false;
    while (peek(&ahead, 0) == ' ' || peek(&ahead, 0) == '\t') ahead.at++;
    if (peek(&ahead, 0) != '=' || peek(&ahead, 1) == '=') return false;
    ahead.at++;
    skip_blank(&ahead);
    if (peek(&ahead, 0) != '[' && peek(&ahead, 0) != '(') return false;
    *s = ahead;
    return true;
}

cloob_status python_next(python_source *s, python_list *found)
{
    const char *name;
    size_t n;
    *found = (python_list){ 0 };
    while (s->at < s->end) {
        if (at_assignment(s, &name, &n)) {
            found->name = arena_string_n(s->memory, name, n);
            return found->name ? read_list(s, found) : ctx_no_memory(s->ctx, n, "prompts");
        }
        skip_comment(s); /* the rest of the line, whatever it is */
        advance(s, 1);
    }
    return CLOOB_OK;
}
