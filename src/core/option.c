/* Options as texts: sets, checks and formats a member of a struct by its row. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/needs.h"
#include "core/option.h"
#include "core/sbuf.h"

/* ---- names --------------------------------------------------------------------------------------- */

static bool same_name(const char *a, const char *b)
{
    if (!a) return false;
    for (; *a && *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
    return *a == *b;
}

const option_desc *option_find(const option_desc *table, int64_t count, const char *name)
{
    if (!table || !name) return NULL;
    for (int64_t i = 0; i < count; i++)
        if (same_name(table[i].name, name) || same_name(table[i].alias, name)) return &table[i];
    for (int64_t i = 0; i < count; i++)
        if (same_name(table[i].field, name)) return &table[i];
    return NULL;
}

/* ---- ranges and choices -------------------------------------------------------------------------- */

/* "[1,)", "(0,1]", "[0,1024]"; an end that is left out is open. */
typedef struct interval {
    double min, max;
    bool above, below; /* the end itself does not belong to it */
} interval;

static interval range_of(const option_desc *o)
{
    interval r = { -INFINITY, INFINITY, false, false };
    if (!o->range) return r;
    const char *comma = strchr(o->range, ',');
    if (o->range + 1 < comma) r.min = strtod(o->range + 1, NULL);
    if (comma[1] != ')' && comma[1] != ']') r.max = strtod(comma + 1, NULL);
    r.above = o->range[0] == '(';
    r.below = o->range[strlen(o->range) - 1] == ')';
    return r;
}

static bool in_range(const option_desc *o, double v)
{
    interval r = range_of(o);
    if (!isfinite(v) || v < r.min || v > r.max) return false;
    return !(r.above && v <= r.min) && !(r.below && v >= r.max);
}

bool option_has_choices(const option_desc *o)
{
    if (!o) return false;
    if (!o->values || !strchr(o->values, '|')) return false;
    for (const char *c = o->values; *c; c++)
        if (*c >= 'A' && *c <= 'Z') return false;
    return true;
}

bool option_is_choice(const option_desc *o, const char *word)
{
    size_t n = strlen(word);
    for (const char *c = o->values; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (strncmp(c, word, n) == 0 && (c[n] == '|' || c[n] == '\0')) return true;
    return false;
}

static int numbers_of(const option_desc *o)
{
    return o->type == OPTION_NUMBERS_3 ? 3 : o->type == OPTION_NUMBERS_4 ? 4 : 1;
}

static bool is_whole(const option_desc *o) { return o->type == OPTION_INT || o->type == OPTION_AUTO_INT; }
static bool may_be_auto(const option_desc *o) { return o->type == OPTION_AUTO || o->type == OPTION_AUTO_INT; }

static double number_at(const option_desc *o, const void *at, int i)
{
    return is_whole(o) ? (double)*(const int64_t *)at : ((const double *)at)[i];
}

bool option_valid(const option_desc *o, const void *options)
{
    if (!o || !options) return false;
    const void *at = (const char *)options + o->offset;
    const char *word;
    switch (o->type) {
    case OPTION_CHAR: return *(const char *)at != '\0';
    case OPTION_STRING:
        word = *(const char *const *)at;
        return !word || !option_has_choices(o) || option_is_choice(o, word);
    case OPTION_FLAG:
    case OPTION_LIST: return true;
    default: break;
    }
    if (may_be_auto(o) && number_at(o, at, 0) < 0) return true;
    for (int i = 0; i < numbers_of(o); i++)
        if (!in_range(o, number_at(o, at, i))) return false;
    return true;
}

static void put_range(sbuf *out, const option_desc *o)
{
    interval r = range_of(o);
    if (r.max >= 1e15) r.max = INFINITY; /* beyond what a double counts exactly: no limit */
    if (r.min <= -1e15) r.min = -INFINITY;
    if (isfinite(r.min) && isfinite(r.max) && !r.above && !r.below)
        sbuf_printf(out, " between %.15g and %.15g", r.min, r.max);
    else if (isfinite(r.min) && isfinite(r.max))
        sbuf_printf(out, " %s %.15g and %s %.15g", r.above ? "above" : "of at least", r.min,
                    r.below ? "below" : "at most", r.max);
    else if (isfinite(r.min) && r.above) sbuf_printf(out, " above %.15g", r.min);
    else if (isfinite(r.min)) sbuf_printf(out, " of %.15g or more", r.min);
}

void option_rule(const option_desc *o, char *out, size_t size)
{
    if (!o || !out || !size) return;
    sbuf s = { 0 };
    sbuf_puts(&s, "must be ");
    switch (o->type) {
    case OPTION_NUMBERS_3:
    case OPTION_NUMBERS_4: sbuf_printf(&s, "%d numbers", numbers_of(o)), put_range(&s, o); break;
    case OPTION_CHAR: sbuf_puts(&s, "one character, or tab"); break;
    case OPTION_FLAG: sbuf_puts(&s, "True or False"); break;
    case OPTION_STRING: sbuf_printf(&s, option_has_choices(o) ? "one of %s" : "a text", o->values); break;
    case OPTION_LIST: sbuf_puts(&s, "a list of texts"); break;
    default:
        sbuf_printf(&s, "%sa %snumber", may_be_auto(o) ? "auto, or " : "", is_whole(o) ? "whole " : "");
        put_range(&s, o);
    }
    snprintf(out, size, "%s", s.data ? s.data : "");
    sbuf_release(&s);
}

/* ---- from text ----------------------------------------------------------------------------------- */

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end) return false;
    *out = v;
    return true;
}

static bool parse_numbers(const char *text, int count, double *out)
{
    int n = 0;
    while (*text) {
        char *end;
        double v = strtod(text, &end);
        if (end == text || n == count || !isfinite(v) || (*end && *end != ',' && *end != ' ')) return false;
        out[n++] = v;
        text = end;
        while (*text == ' ' || *text == ',') text++;
    }
    return n == count;
}

static bool parse_flag(const char *text, bool *out)
{
    *out = strcmp(text, "True") == 0 || strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    return *out || strcmp(text, "False") == 0 || strcmp(text, "false") == 0 || strcmp(text, "0") == 0;
}

static bool parse_char(const char *text, char *out)
{
    if (strcmp(text, "\\t") == 0 || strcmp(text, "tab") == 0) text = "\t";
    *out = text[0];
    return text[0] && !text[1];
}

static bool parse(const option_desc *o, const char *text, void *at)
{
    bool automatic = may_be_auto(o) && strcmp(text, "auto") == 0;
    switch (o->type) {
    case OPTION_FLAG: return parse_flag(text, at);
    case OPTION_CHAR: return parse_char(text, at);
    case OPTION_STRING: *(const char **)at = text; return true;
    case OPTION_LIST: return false;
    case OPTION_INT:
    case OPTION_AUTO_INT:
        if (!parse_int(automatic ? "-1" : text, at)) return false;
        break;
    default:
        if (!parse_numbers(automatic ? "-1" : text, numbers_of(o), at)) return false;
    }
    return automatic || !may_be_auto(o) || number_at(o, at, 0) >= 0;
}

bool option_set(const option_desc *o, void *options, const char *text)
{
    if (!o || !options || !text) return false;
    return parse(o, text, (char *)options + o->offset) && option_valid(o, options);
}

static size_t size_of(const option_desc *o)
{
    switch (o->type) {
    case OPTION_FLAG: return sizeof(bool);
    case OPTION_INT:
    case OPTION_AUTO_INT: return sizeof(int64_t);
    case OPTION_CHAR: return sizeof(char);
    case OPTION_STRING: return sizeof(const char *);
    case OPTION_LIST: return sizeof(const char *const *) + sizeof(int64_t);
    default: return (size_t)numbers_of(o) * sizeof(double);
    }
}

size_t option_end(const option_desc *o) { return o->offset + size_of(o); }

void option_copy(const option_desc *o, const void *from, void *to)
{
    if (!o || !from || !to) return;
    memcpy((char *)to + o->offset, (const char *)from + o->offset, size_of(o));
}

void option_defaults(const option_desc *table, int64_t count, void *options)
{
    if (!table || !options) return;
    for (int64_t i = 0; i < count; i++) {
        memset((char *)options + table[i].offset, 0, size_of(&table[i]));
        if (table[i].fallback) parse(&table[i], table[i].fallback, (char *)options + table[i].offset);
    }
}

/* ---- structs of other versions ------------------------------------------------------------------- */

void options_write(void *to, size_t size, const void *defaults, size_t known)
{
    if (!to || size < sizeof size) return;
    memset(to, 0, size);
    memcpy(to, defaults, size < known ? size : known);
    memcpy(to, &size, sizeof size);
}

cloob_status options_unset(cloob_ctx *ctx, const char *name, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "%s: a member is set that this library (%s) does not support; update the library", name,
                            cloob_version());
    return CLOOB_OK;
}

cloob_status options_read(cloob_ctx *ctx, const char *name, void *into, size_t known, const void *from)
{
    size_t size;
    memcpy(&size, from, sizeof size);
    if (size < sizeof size)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: its size is not set; call %s_init first", name, name);
    if (size > known) CLOOB_TRY(options_unset(ctx, name, (const char *)from + known, size - known));
    memcpy(into, from, size < known ? size : known);
    memcpy(into, &known, sizeof known);
    return CLOOB_OK;
}

/* ---- to text ------------------------------------------------------------------------------------- */

static void put_list(sbuf *out, const void *at)
{
    const char *const *item = *(const char *const *const *)at;
    int64_t count = *(const int64_t *)((const char *)at + sizeof item);
    if (count == 0) sbuf_puts(out, "None");
    for (int64_t i = 0; i < count; i++) sbuf_printf(out, "%s%s", i ? " " : "", item[i]);
}

char *option_get(const option_desc *o, const void *options)
{
    if (!o || !options) return NULL;
    const void *at = (const char *)options + o->offset;
    const char *word = o->type == OPTION_STRING ? *(const char *const *)at : NULL;
    sbuf s = { 0 };
    switch (o->type) {
    case OPTION_FLAG: sbuf_puts(&s, *(const bool *)at ? "True" : "False"); break;
    case OPTION_CHAR:
        if (*(const char *)at == '\t') sbuf_puts(&s, "tab");
        else sbuf_putc(&s, *(const char *)at);
        break;
    case OPTION_STRING: sbuf_puts(&s, word ? word : "None"); break;
    case OPTION_LIST: put_list(&s, at); break;
    default:
        if (may_be_auto(o) && number_at(o, at, 0) < 0) sbuf_puts(&s, "auto");
        else if (is_whole(o)) sbuf_printf(&s, "%lld", (long long)*(const int64_t *)at);
        else
            for (int i = 0; i < numbers_of(o); i++)
                sbuf_puts(&s, i ? " " : ""), json_print_number(&s, ((const double *)at)[i]);
    }
    return sbuf_detach(&s);
}
