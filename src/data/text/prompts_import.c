/* Published prompts: finds the Python in Markdown and notebooks, and pairs the lists up into sets. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "data/text/prompts.h"

/* A set whose lists have not all been seen yet. */
typedef struct draft {
    const char *name;
    python_list classes, templates;
    struct draft *next;
} draft;

typedef struct importer {
    cloob_ctx *ctx;
    const char *where;
    prompts *out;
    draft *first, *last;
} importer;

/* ---- names and scores ------------------------------------------------------------------------------ */

/* The data sets whose score is the mean over classes, as CLIP and the paper report them; accuracy for all
 * others. */
static prompt_metric metric_of(const char *name)
{
    static const char *const mean[] = { "Caltech101", "FGVCAircraft", "Flowers102", "OxfordPets" };
    for (size_t i = 0; i < sizeof mean / sizeof *mean; i++)
        if (strcasecmp(mean[i], name) == 0) return PROMPT_MEAN_PER_CLASS;
    return PROMPT_ACCURACY;
}

static bool is_templates(const char *variable)
{
    size_t n = strlen(variable);
    return n >= 9 && strcasecmp(variable + n - 9, "templates") == 0;
}

/* "imagenet_classes" belongs to imagenet, plain "classes" to the heading above it; NULL when memory is out.
 */
static const char *set_name(importer *im, const char *variable, const char *heading)
{
    static const char *const tails[] = { "templates", "class_names", "classnames", "classes" };
    size_t n = strlen(variable);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t k = strlen(tails[i]);
        if (n < k || strcasecmp(variable + n - k, tails[i]) != 0) continue;
        n -= k;
        break;
    }
    while (n && variable[n - 1] == '_') n--;
    if (n > 7 && strncasecmp(variable, "openai_", 7) == 0) variable += 7, n -= 7;
    if (n == 8 && strncasecmp(variable, "imagenet", 8) == 0) return "ImageNet";
    return n ? arena_string_n(&im->out->memory, variable, n) : heading;
}

/* ---- lists to sets --------------------------------------------------------------------------------- */

static cloob_status draft_of(importer *im, const char *name, draft **out)
{
    for (*out = im->first; *out; *out = (*out)->next)
        if (strcmp((*out)->name, name) == 0) return CLOOB_OK;
    *out = arena_push(&im->out->memory, sizeof **out);
    if (!*out) return ctx_no_memory(im->ctx, sizeof **out, "prompts");
    (*out)->name = name;
    if (im->last) im->last->next = *out;
    else im->first = *out;
    im->last = *out;
    return CLOOB_OK;
}

static cloob_status take_list(importer *im, const python_list *list, const char *heading, int64_t line)
{
    const char *name = set_name(im, list->name, heading);
    draft *d;
    if (!name)
        return ctx_fail(im->ctx, CLOOB_ERR_FORMAT,
                        "%s: before line %lld: a list `%s` with no heading or prefix that names its set", im->where,
                        (long long)line, list->name);
    CLOOB_TRY(draft_of(im, name, &d));
    python_list *place = is_templates(list->name) ? &d->templates : &d->classes;
    if (place->name)
        return ctx_fail(im->ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: a second list `%s` before line %lld", im->where,
                        name, list->name, (long long)line);
    *place = *list;
    return CLOOB_OK;
}

static cloob_status import_python(importer *im, const char *text, size_t size, const char *heading, int64_t line)
{
    python_source s = { im->ctx, &im->out->memory, im->where, text, text + size, line };
    python_list list;
    for (;;) {
        CLOOB_TRY(python_next(&s, &list));
        if (!list.name) return CLOOB_OK;
        CLOOB_TRY(take_list(im, &list, heading, s.line));
    }
}

static cloob_status finish_draft(importer *im, const draft *d)
{
    prompt_set set = {
        .name = d->name, .classes = d->classes.entry, .class_count = d->classes.count, .metric = metric_of(d->name)
    };
    if (!d->classes.name || !d->templates.name) {
        ctx_log(im->ctx, CLOOB_LOG_WARN, "%s: %s has %s but no %s; left out", im->where, d->name,
                d->classes.name ? "classes" : "templates", d->classes.name ? "templates" : "classes");
        return CLOOB_OK;
    }
    for (int64_t i = 0; i < d->templates.count; i++) {
        if (d->templates.entry[i].count != 1)
            return ctx_fail(im->ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: template %lld is a list", im->where, d->name,
                            (long long)i + 1);
        if (!prompt_list_add(&im->out->memory, &set.templates, d->templates.entry[i].item[0]))
            return ctx_no_memory(im->ctx, 64, "prompts");
    }
    return prompts_add(im->ctx, im->out, im->where, &set);
}

/* ---- Markdown -------------------------------------------------------------------------------------- */

static bool is_fence(const char *line, size_t n)
{
    return n >= 3 && (memcmp(line, "```", 3) == 0 || memcmp(line, "~~~", 3) == 0);
}

static const char *heading_text(importer *im, const char *line, size_t n)
{
    while (n && *line == '#') line++, n--;
    while (n && (*line == ' ' || *line == '\t')) line++, n--;
    while (n && strchr(" \t\r#", line[n - 1])) n--;
    return arena_string_n(&im->out->memory, line, n);
}

static cloob_status import_markdown(importer *im, const char *text, size_t size)
{
    const char *heading = NULL, *code = NULL, *end = text + size;
    int64_t line = 1, code_line = 0;
    for (const char *p = text, *stop; p < end; p = stop < end ? stop + 1 : end, line++) {
        stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        size_t n = (size_t)(stop - p);
        if (is_fence(p, n) && code) {
            CLOOB_TRY(import_python(im, code, (size_t)(p - code), heading, code_line));
            code = NULL;
        } else if (is_fence(p, n)) {
            code = stop < end ? stop + 1 : end;
            code_line = line + 1;
        } else if (!code && n && *p == '#') {
            heading = heading_text(im, p, n);
            if (!heading) return ctx_no_memory(im->ctx, n, "prompts");
        }
    }
    return code ? ctx_fail(im->ctx, CLOOB_ERR_FORMAT, "%s: the code block from line %lld on does not end", im->where,
                           (long long)code_line - 1)
                : CLOOB_OK;
}

/* ---- notebooks ------------------------------------------------------------------------------------- */

static cloob_status import_cell(importer *im, const json *source)
{
    sbuf text = { 0 };
    if (json_string(source)) sbuf_puts(&text, json_string(source));
    for (const json *x = source->kind == JSON_ARRAY ? source->child : NULL; x; x = x->next)
        if (json_string(x)) sbuf_puts(&text, json_string(x));
    cloob_status status = text.failed ? ctx_no_memory(im->ctx, text.len, "a notebook") : CLOOB_OK;
    if (status == CLOOB_OK && text.len) status = import_python(im, text.data, text.len, NULL, 1);
    sbuf_release(&text);
    return status;
}

static cloob_status import_notebook(importer *im, const char *text, size_t size)
{
    json *root;
    CLOOB_TRY(json_parse(im->ctx, &im->out->memory, text, size, im->where, &root));
    const json *cells = json_get(root, "cells");
    if (!cells || cells->kind != JSON_ARRAY)
        return ctx_fail(im->ctx, CLOOB_ERR_FORMAT, "%s: JSON, but not a notebook (no \"cells\")", im->where);
    int64_t number = 0;
    for (const json *c = cells->child; c; c = c->next) {
        const char *type = json_get(c, "cell_type") ? json_string(json_get(c, "cell_type")) : NULL;
        number++;
        if (!type || strcmp(type, "code") != 0 || !json_get(c, "source")) continue;
        cloob_status status = import_cell(im, json_get(c, "source"));
        if (status != CLOOB_OK) return ctx_wrap(im->ctx, status, "cell %lld", (long long)number);
    }
    return CLOOB_OK;
}

/* ---- the interface --------------------------------------------------------------------------------- */

static bool has_fence(const char *text, size_t size)
{
    if (is_fence(text, size)) return true;
    for (const char *p = text; (p = memchr(p, '\n', size - (size_t)(p - text))) != NULL;) {
        p++;
        if (is_fence(p, size - (size_t)(p - text))) return true;
    }
    return false;
}

static cloob_status check_utf8(cloob_ctx *ctx, const char *text, size_t size, const char *name)
{
    int64_t line = 1;
    uint32_t code;
    for (size_t i = 0; i < size;) {
        int n = utf8_decode(text + i, size - i, &code);
        if (!n) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld: not UTF-8 text", name, (long long)line);
        line += code == '\n';
        i += (size_t)n;
    }
    return CLOOB_OK;
}

cloob_status prompts_import_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, prompts *out)
{
    importer im = { .ctx = ctx, .where = name, .out = out };
    int64_t before = out->count;
    CLOOB_TRY(check_utf8(ctx, text, size, name));
    size_t blank = 0;
    while (blank < size && (text[blank] == ' ' || text[blank] == '\t' || text[blank] == '\r' || text[blank] == '\n'))
        blank++;
    if (blank < size && text[blank] == '{') CLOOB_TRY(import_notebook(&im, text, size));
    else if (has_fence(text, size)) CLOOB_TRY(import_markdown(&im, text, size));
    else CLOOB_TRY(import_python(&im, text, size, NULL, 1));
    for (const draft *d = im.first; d; d = d->next) CLOOB_TRY(finish_draft(&im, d));
    if (out->count == before)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no Python lists `classes` and `templates` in it", name);
    return CLOOB_OK;
}

/* ---- CLIP_benchmark's folders ------------------------------------------------------------------------ */

/* Lines of a file into a list, without white space at their ends; `{c}` becomes {}. Blank lines are left out. */
static cloob_status read_lines(cloob_ctx *ctx, const char *folder, const char *name, arena *a, prompt_list *l)
{
    file_bytes f;
    char *path = file_join(folder, name);
    if (!path) return ctx_no_memory(ctx, strlen(folder), folder);
    cloob_status status = file_read(ctx, path, FILE_TEXT_LIMIT, &f);
    free(path);
    CLOOB_TRY(status);
    for (char *at = f.data, *end = at + f.size; at < end && status == CLOOB_OK;) {
        char *line = memchr(at, '\n', (size_t)(end - at)), *stop = line ? line : end, *text;
        while (at < stop && isspace((unsigned char)*at)) at++;
        size_t n = (size_t)(stop - at);
        while (n && isspace((unsigned char)at[n - 1])) n--;
        text = arena_string_n(a, at, n);
        for (char *c; text && (c = strstr(text, "{c}"));) memmove(c + 1, c + 2, strlen(c + 2) + 1);
        if (!text || (*text && !prompt_list_add(a, l, text))) status = ctx_no_memory(ctx, n, folder);
        at = stop + 1;
    }
    file_bytes_release(&f);
    return status;
}

static cloob_status import_folder(cloob_ctx *ctx, const char *folder, prompts *out)
{
    arena *a = &out->memory;
    prompt_list names = { 0 };
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') n--;
    const char *base = folder + n;
    while (base > folder && base[-1] != '/') base--;
    prompt_set set = { .name = arena_string_n(a, base, (size_t)(folder + n - base)) };
    if (!set.name) return ctx_no_memory(ctx, n, folder);
    set.metric = metric_of(set.name);
    CLOOB_TRY(read_lines(ctx, folder, "classnames.txt", a, &names));
    CLOOB_TRY(read_lines(ctx, folder, "zeroshot_classification_templates.txt", a, &set.templates));
    set.class_count = names.count;
    set.classes = arena_push(a, (size_t)(names.count ? names.count : 1) * sizeof *set.classes);
    if (!set.classes) return ctx_no_memory(ctx, (size_t)names.count, folder);
    for (int64_t i = 0; i < names.count; i++) set.classes[i] = (prompt_list){ &names.item[i], 1 };
    return prompts_add(ctx, out, folder, &set);
}

cloob_status prompts_import(cloob_ctx *ctx, const char *const *path, int64_t n, prompts *out)
{
    cloob_status status = CLOOB_OK;
    *out = (prompts){ 0 };
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        file_bytes file;
        if (file_is_dir(path[i])) {
            status = import_folder(ctx, path[i], out);
            continue;
        }
        status = file_read(ctx, path[i], FILE_TEXT_LIMIT, &file);
        if (status != CLOOB_OK) break;
        status = prompts_import_text(ctx, file.data, file.size, path[i], out);
        file_bytes_release(&file);
    }
    if (status != CLOOB_OK) prompts_release(out);
    return status;
}
