/* Expands the first brace of a pattern into its choices, and the rest by recursion. */
#include "data/sets/dataset_kind.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/arith.h"
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
    if (!d) return file_fail(ctx, path, "cannot open");
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(d));)
        if (e->d_name[0] != '.') status = name_list_add(ctx, list, e->d_name, strlen(e->d_name));
    closedir(d);
    name_list_sort(list);
    return status;
}

void name_list_sort(name_list *list)
{
    if (list->count) qsort(list->name, (size_t)list->count, sizeof *list->name, order_text);
}

/* ---- patterns --------------------------------------------------------------------------------------- */

static cloob_status too_many(cloob_ctx *ctx, const char *pattern)
{
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: more than %d names", pattern, BRACES_LIMIT);
}

static bool is_padded(const char *number)
{
    number += *number == '-';
    return number[0] == '0' && number[1] >= '0' && number[1] <= '9';
}

/* Adds the numbers or letters of "a..b" or "a..b..step"; other texts add nothing. */
static cloob_status put_range(cloob_ctx *ctx, const char *pattern, const char *text, size_t n, name_list *out)
{
    enum { LONGEST = 40 };
    char range[LONGEST + 1] = "", name[32];
    long from, to, step = 1;
    int end = 0, more = 0, width = 0;
    if (n > LONGEST) return CLOOB_OK;
    memcpy(range, text, n);
    bool letters = isalpha((unsigned char)range[0]) && strncmp(range + 1, "..", 2) == 0;
    if (letters) from = range[0], to = range[3], end = isalpha((unsigned char)range[3]) ? 4 : 0;
    else if (strspn(range, "-.0123456789") != n || sscanf(range, "%10ld..%10ld%n", &from, &to, &end) != 2) end = 0;
    if (!end || (range[end] && (sscanf(range + end, "..%10ld%n", &step, &more) != 1 || range[end + more])))
        return CLOOB_OK;
    const char *second = strstr(range, "..") + 2;
    if (!letters && (is_padded(range) || is_padded(second))) { /* one padded end pads both, to the longer spelling */
        int a = (int)(second - 2 - range), b = (int)(range + end - second);
        width = a > b ? a : b;
    }
    step = step ? labs(step) : 1;
    long count = labs(to - from) / step + 1;
    if (count > BRACES_LIMIT) return too_many(ctx, pattern);
    for (long i = 0; i < count; i++) {
        long value = from + (to < from ? -i : i) * step;
        if (letters) name[0] = (char)value, n = 1;
        else n = (size_t)snprintf(name, sizeof name, "%0*ld", width, value);
        CLOOB_TRY(name_list_add(ctx, out, name, n));
    }
    return CLOOB_OK;
}

/* The brace that closes the one at `open`, or NULL. */
static const char *closing(const char *open)
{
    int level = 0;
    for (const char *c = open; *c; c++) {
        if (*c == '{') level++;
        else if (*c == '}' && --level == 0) return c;
    }
    return NULL;
}

/* Adds the choices between two braces: the parts of a list, or a range. A choice may have braces of its own. */
static cloob_status put_choices(cloob_ctx *ctx, const char *pattern, const char *open, const char *close,
                                name_list *out)
{
    const char *begin = open + 1;
    int level = 0;
    for (const char *c = begin; c <= close; c++) {
        level += (*c == '{') - (*c == '}' && c < close);
        if (c < close ? *c != ',' || level : begin == open + 1) continue;
        CLOOB_TRY(name_list_add(ctx, out, begin, (size_t)(c - begin)));
        begin = c + 1;
    }
    return out->count ? CLOOB_OK : put_range(ctx, pattern, open + 1, (size_t)(close - open - 1), out);
}

/* Expands the first brace from `at` on; a brace that is neither a list nor a range is part of the name. */
static cloob_status expand(cloob_ctx *ctx, const char *pattern, size_t at, int depth, name_list *out)
{
    name_list choices = { 0 };
    const char *open = strchr(pattern + at, '{'), *close = open ? closing(open) : NULL;
    size_t head = open ? (size_t)(open - pattern) : 0;
    if (!open)
        return out->count >= BRACES_LIMIT ? too_many(ctx, pattern) : name_list_add(ctx, out, pattern, strlen(pattern));
    if (!close || depth > MAX_DEPTH)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: unbalanced braces, or too many nested ones", pattern);
    cloob_status status = put_choices(ctx, pattern, open, close, &choices);
    if (status == CLOOB_OK && !choices.count) status = expand(ctx, pattern, head + 1, depth + 1, out);
    for (int64_t i = 0; status == CLOOB_OK && i < choices.count; i++) {
        sbuf name = { 0 };
        sbuf_add(&name, pattern, head);
        sbuf_puts(&name, choices.name[i]);
        sbuf_puts(&name, close + 1);
        status = name.failed ? ctx_no_memory(ctx, head, "a name") : expand(ctx, name.data, head, depth + 1, out);
        sbuf_release(&name);
    }
    name_list_release(&choices);
    return status;
}

cloob_status braces_expand(cloob_ctx *ctx, const char *pattern, name_list *out)
{
    return expand(ctx, pattern, 0, 0, out);
}
