/* The first brace of a pattern is opened into its choices; the rest follows by recursion. */
#include "data/sets/dataset_kind.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
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

cloob_status name_list_folder(cloob_ctx *ctx, name_list *list, const char *path)
{
    cloob_status status = CLOOB_OK;
    DIR *d = opendir(path);
    if (!d) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(d));)
        if (e->d_name[0] != '.') status = name_list_add(ctx, list, e->d_name, strlen(e->d_name));
    closedir(d);
    name_list_sort(list);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void name_list_sort(name_list *list)
{
    if (list->count) qsort(list->name, (size_t)list->count, sizeof *list->name, by_name);
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

/* ---- patterns --------------------------------------------------------------------------------------- */

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

static cloob_status expand(cloob_ctx *ctx, const char *pattern, size_t at, int depth, name_list *out);

/* The pattern with [head, rest) replaced by a choice, which may have braces of its own. */
static cloob_status with_choice(cloob_ctx *ctx, const char *pattern, size_t head, const char *choice, size_t n,
                                const char *rest, int depth, name_list *out)
{
    sbuf name = { 0 };
    sbuf_add(&name, pattern, head);
    sbuf_add(&name, choice, n);
    sbuf_puts(&name, rest);
    cloob_status status =
        name.failed ? ctx_no_memory(ctx, n, "a name") : expand(ctx, name.data ? name.data : "", head, depth + 1, out);
    sbuf_release(&name);
    return status;
}

static cloob_status too_many(cloob_ctx *ctx, const char *pattern)
{
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: more than %d names", pattern, BRACES_LIMIT);
}

static cloob_status expand_range(cloob_ctx *ctx, const char *pattern, size_t head, const range *r, const char *rest,
                                 int depth, name_list *out)
{
    long count = labs(r->to - r->from) / r->step + 1, sign = r->to < r->from ? -1 : 1;
    if (count > BRACES_LIMIT) return too_many(ctx, pattern);
    for (long i = 0; i < count; i++) {
        char text[32];
        long value = r->from + sign * i * r->step;
        if (r->letters) snprintf(text, sizeof text, "%c", (int)value);
        else snprintf(text, sizeof text, "%0*ld", r->width, value);
        CLOOB_TRY(with_choice(ctx, pattern, head, text, strlen(text), rest, depth, out));
    }
    return CLOOB_OK;
}

static cloob_status expand_list(cloob_ctx *ctx, const char *pattern, const char *open, const char *close, int depth,
                                name_list *out)
{
    int level = 0;
    for (const char *from = open + 1, *c = from; c <= close; c++) {
        if (*c == '{') level++;
        if (*c == '}' && c < close) level--;
        if (c < close && !(*c == ',' && level == 0)) continue;
        CLOOB_TRY(with_choice(ctx, pattern, (size_t)(open - pattern), from, (size_t)(c - from), close + 1, depth, out));
        from = c + 1;
    }
    return CLOOB_OK;
}

/* Opens the first brace from `at` on; one that is neither a list nor a range is part of the name. */
static cloob_status expand(cloob_ctx *ctx, const char *pattern, size_t at, int depth, name_list *out)
{
    int commas;
    range r;
    const char *open = strchr(pattern + at, '{');
    if (!open)
        return out->count >= BRACES_LIMIT ? too_many(ctx, pattern) : name_list_add(ctx, out, pattern, strlen(pattern));
    const char *close = closing(open, &commas);
    size_t head = (size_t)(open - pattern);
    if (!close || depth > MAX_DEPTH)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: a brace without its partner, or too many inside each other",
                        pattern);
    if (commas) return expand_list(ctx, pattern, open, close, depth, out);
    if (parse_range(open + 1, close, &r)) return expand_range(ctx, pattern, head, &r, close + 1, depth, out);
    return expand(ctx, pattern, head + 1, depth + 1, out);
}

cloob_status braces_expand(cloob_ctx *ctx, const char *pattern, name_list *out)
{
    return expand(ctx, pattern, 0, 0, out);
}
