/* The first brace of a pattern is opened into its choices; the rest follows by recursion. */
#include "data/sets/dataset_kind.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/text.h"

enum { MAX_DEPTH = 32 };

cloob_status name_list_add(cloob_ctx *ctx, name_list *list, const char *name, size_t bytes)
{
    if (!heap_grow(&list->name, list->count, &list->capacity, sizeof *list->name))
        return ctx_no_memory(ctx, (size_t)list->count * sizeof *list->name, "a list of names");
    char *copy = strndup(name, bytes);
    if (!copy) return ctx_no_memory(ctx, bytes, "a name");
    list->name[list->count++] = copy;
    return CLOOB_OK;
}

void name_list_release(name_list *list)
{
    for (int64_t i = 0; i < list->count; i++) free(list->name[i]);
    free(list->name);
    *list = (name_list){ 0 };
}

cloob_status name_list_read(cloob_ctx *ctx, name_list *list, const char *path)
{
    file_bytes f;
    const char *line;
    size_t n;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &f));
    cloob_status status = CLOOB_OK;
    for (const char *at = f.data; status == CLOOB_OK && text_line(&at, f.data + f.size, &line, &n);)
        if (n) status = name_list_add(ctx, list, line, n);
    file_bytes_release(&f);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void name_list_sort(name_list *list)
{
    if (list->count) qsort(list->name, (size_t)list->count, sizeof *list->name, by_name);
}

static cloob_status expand(cloob_ctx *ctx, const char *prefix, const char *pattern, int depth, name_list *out);

static cloob_status too_many(cloob_ctx *ctx, const char *pattern)
{
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: more than %d names", pattern, BRACES_LIMIT);
}

/* prefix + choice + rest, where the choice may have braces of its own. */
static cloob_status with_choice(cloob_ctx *ctx, const char *prefix, const char *choice, size_t n, const char *rest,
                                int depth, name_list *out)
{
    sbuf tail = { 0 };
    sbuf_add(&tail, choice, n);
    sbuf_puts(&tail, rest);
    cloob_status status =
        tail.failed ? ctx_no_memory(ctx, n, "a name") : expand(ctx, prefix, tail.data ? tail.data : "", depth + 1, out);
    sbuf_release(&tail);
    return status;
}

/* ---- ranges ------------------------------------------------------------------------------------- */

typedef struct range {
    long from, to, step;
    int width; /* of zero-padded numbers; 0: as they come */
    bool letters;
} range;

static bool take_end(const char **at, const char *stop, long *value, int *width, bool *letter)
{
    const char *begin = *at;
    char *end;
    if (begin >= stop) return false;
    *letter = isalpha((unsigned char)*begin) != 0;
    if (*letter) {
        *value = (unsigned char)*begin;
        *at = begin + 1;
        return true;
    }
    if (!isdigit((unsigned char)*begin) && !(*begin == '-' && isdigit((unsigned char)begin[1]))) return false;
    *value = strtol(begin, &end, 10);
    if (end > stop || end - begin > 10) return false;
    const char *digits = begin + (*begin == '-');
    if (*digits == '0' && end - digits > 1 && end - begin > *width) *width = (int)(end - begin);
    *at = end;
    return true;
}

static bool take_dots(const char **at, const char *stop)
{
    if (stop - *at < 2 || (*at)[0] != '.' || (*at)[1] != '.') return false;
    *at += 2;
    return true;
}

/* Whether the text between the braces is "a..b" or "a..b..step"? */
static bool parse_range(const char *at, const char *stop, range *r)
{
    bool first, second, step;
    const char *begin = at;
    *r = (range){ .step = 1 };
    if (!take_end(&at, stop, &r->from, &r->width, &first) || !take_dots(&at, stop)) return false;
    const char *middle = at;
    if (!take_end(&at, stop, &r->to, &r->width, &second) || first != second) return false;
    if (r->width) { /* one padded end pads both, to the longer spelling */
        int a = (int)(middle - 2 - begin), b = (int)(at - middle);
        r->width = a > b ? a : b;
    }
    if (at < stop) {
        int ignored = 0;
        if (!take_dots(&at, stop) || !take_end(&at, stop, &r->step, &ignored, &step) || step) return false;
    }
    r->letters = first;
    if (r->step < 0) r->step = -r->step;
    if (r->step == 0) r->step = 1;
    return at == stop;
}

static cloob_status expand_range(cloob_ctx *ctx, const char *prefix, const range *r, const char *rest, int depth,
                                 name_list *out)
{
    long count = labs(r->to - r->from) / r->step + 1, sign = r->to < r->from ? -1 : 1;
    if (count > BRACES_LIMIT) return too_many(ctx, rest);
    for (long i = 0; i < count; i++) {
        char text[32];
        long value = r->from + sign * i * r->step;
        if (r->letters) snprintf(text, sizeof text, "%c", (int)value);
        else snprintf(text, sizeof text, "%0*ld", r->width, value);
        CLOOB_TRY(with_choice(ctx, prefix, text, strlen(text), rest, depth, out));
    }
    return CLOOB_OK;
}

/* ---- lists -------------------------------------------------------------------------------------- */

/* The brace that closes the one at `open`, or NULL; *commas: separators of its own level. */
static const char *closing(const char *open, int *commas)
{
    int level = 0;
    *commas = 0;
    for (const char *c = open; *c; c++) {
        if (*c == '{') level++;
        else if (*c == '}' && --level == 0) return c;
        else if (*c == ',' && level == 1) (*commas)++;
    }
    return NULL;
}

static cloob_status expand_list(cloob_ctx *ctx, const char *prefix, const char *at, const char *stop, int depth,
                                name_list *out)
{
    int level = 0;
    for (const char *from = at, *c = at; c <= stop; c++) {
        if (c < stop && *c == '{') level++;
        if (c < stop && *c == '}') level--;
        if (c < stop && !(*c == ',' && level == 0)) continue;
        CLOOB_TRY(with_choice(ctx, prefix, from, (size_t)(c - from), stop + 1, depth, out));
        from = c + 1;
    }
    return CLOOB_OK;
}

/* ---- a pattern ---------------------------------------------------------------------------------- */

static cloob_status finish(cloob_ctx *ctx, const char *name, name_list *out)
{
    if (out->count >= BRACES_LIMIT) return too_many(ctx, name);
    return name_list_add(ctx, out, name, strlen(name));
}

static cloob_status open_brace(cloob_ctx *ctx, const char *prefix, const char *open, int depth, name_list *out)
{
    int commas;
    range r;
    const char *close = closing(open, &commas);
    if (!close || depth > MAX_DEPTH)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s%s: a brace without its partner, or too many inside each other",
                        prefix, open);
    if (commas) return expand_list(ctx, prefix, open + 1, close, depth, out);
    if (parse_range(open + 1, close, &r)) return expand_range(ctx, prefix, &r, close + 1, depth, out);
    sbuf longer = { 0 }; /* neither: the brace is part of the name */
    sbuf_puts(&longer, prefix);
    sbuf_putc(&longer, '{');
    cloob_status status =
        longer.failed ? ctx_no_memory(ctx, 1, "a name") : expand(ctx, longer.data, open + 1, depth + 1, out);
    sbuf_release(&longer);
    return status;
}

static cloob_status expand(cloob_ctx *ctx, const char *prefix, const char *pattern, int depth, name_list *out)
{
    const char *open = strchr(pattern, '{');
    sbuf longer = { 0 };
    sbuf_puts(&longer, prefix);
    sbuf_add(&longer, pattern, open ? (size_t)(open - pattern) : strlen(pattern));
    cloob_status status;
    if (longer.failed) status = ctx_no_memory(ctx, strlen(pattern), "a name");
    else if (open) status = open_brace(ctx, longer.data ? longer.data : "", open, depth, out);
    else status = finish(ctx, longer.data ? longer.data : "", out);
    sbuf_release(&longer);
    return status;
}

cloob_status braces_expand(cloob_ctx *ctx, const char *pattern, name_list *out)
{
    return expand(ctx, "", pattern, 0, out);
}
