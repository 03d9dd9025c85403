/* Published prompts: finds the Python in Markdown and notebooks, reads its lists of strings, and pairs them up into
 * sets. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "data/text/prompts.h"

/* ---- lists of strings in Python ----------------------------------------------------------------------- */

/* One assignment `name = [...]` or `(...)`. An entry is a string, a list or tuple of strings, or a function `lambda c:
 * f'a photo of a {c}.'` for 'a photo of a {}.'. */
typedef struct list {
    const char *name; /* in the arena */
    prompt_list *entry;
    int64_t count, room;
} list;

typedef struct python {
    cloob_ctx *ctx;
    arena *memory;
    const char *where; /* for messages */
    const char *at, *end;
    int64_t line; /* of at, counted from 1 */
} python;

static cloob_status bad(const python *s, const char *why)
{
    return ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: line %lld: %s", s->where, (long long)s->line, why);
}

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }
static char peek(const python *s, size_t k) { return (size_t)(s->end - s->at) > k ? s->at[k] : '\0'; }

static void advance(python *s, size_t n)
{
    for (; n && s->at < s->end; n--) s->line += *s->at++ == '\n';
}

static void skip_line(python *s)
{
    while (s->at < s->end && *s->at != '\n') s->at++;
}

/* White space, comments and continued lines. */
static void skip_blank(python *s)
{
    for (; s->at < s->end; advance(s, 1)) {
        if (*s->at == '#') skip_line(s);
        if (s->at >= s->end || !strchr(" \t\r\n\f\\", *s->at) || !*s->at) return;
    }
}

static bool at_string(const python *s)
{
    char c = peek(s, 0), first = c && strchr("fFuU", c) ? peek(s, 1) : c;
    return first == '\'' || first == '"';
}

/* The escape after a backslash. What Python does not know stays as written, backslash and all. */
static cloob_status read_escape(python *s, sbuf *out)
{
    char c = peek(s, 0);
    if (s->at >= s->end) return bad(s, "a string that does not end");
    if (isdigit((unsigned char)c) || (c && strchr("xuUN", c)))
        return bad(s, "an escape with the code of a character; write the character itself");
    advance(s, 1);
    if (c == '\n') return CLOOB_OK;
    if (!c || !strchr("nt\\'\"", c)) sbuf_putc(out, '\\');
    sbuf_putc(out, c == 'n' ? '\n' : c == 't' ? '\t' : c);
    return CLOOB_OK;
}

/* A hole {name} of a formatted string becomes {}; doubled braces become single. */
static cloob_status read_brace(python *s, const char *argument, sbuf *out)
{
    size_t n = strlen(argument);
    char c = peek(s, 0);
    bool hole = c == '{' && n && (size_t)(s->end - s->at) > n + 1 && strncmp(s->at + 1, argument, n) == 0 &&
                s->at[n + 1] == '}';
    if (peek(s, 1) == c) sbuf_putc(out, c);
    else if (hole) sbuf_puts(out, "{}");
    else return bad(s, "a formatted string with something else than the class name in braces");
    advance(s, peek(s, 1) == c ? 2 : n + 2);
    return CLOOB_OK;
}

/* One string literal, appended. argument: what a formatted one may hold in braces; "": nothing. */
static cloob_status read_string(python *s, const char *argument, sbuf *out)
{
    bool formatted = (peek(s, 0) | 32) == 'f';
    if (is_name(peek(s, 0))) advance(s, 1);
    char quote = peek(s, 0);
    for (advance(s, 1); peek(s, 0) != quote;) {
        char c = peek(s, 0);
        if (s->at >= s->end || c == '\n') return bad(s, "a string that does not end");
        if (!c) return bad(s, "a zero byte in a string");
        if (formatted && (c == '{' || c == '}')) {
            CLOOB_TRY(read_brace(s, argument, out));
            continue;
        }
        advance(s, 1);
        if (c == '\\') CLOOB_TRY(read_escape(s, out));
        else sbuf_putc(out, c);
    }
    advance(s, 1);
    return CLOOB_OK;
}

/* Neighbouring literals are one text. */
static cloob_status read_text(python *s, const char *argument, prompt_list *out)
{
    sbuf text = { 0 };
    cloob_status status = CLOOB_OK;
    sbuf_puts(&text, "");
    for (; status == CLOOB_OK && at_string(s); skip_blank(s)) status = read_string(s, argument, &text);
    if (status == CLOOB_OK &&
        (text.failed || !prompt_list_add(s->memory, out, arena_string_n(s->memory, text.data, text.len))))
        status = ctx_no_memory(s->ctx, text.len, "a prompt");
    sbuf_release(&text);
    return status;
}

/* lambda c: f'...{c}...' */
static cloob_status read_lambda(python *s, prompt_list *out)
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

static bool at_lambda(const python *s)
{
    return s->end - s->at > 6 && memcmp(s->at, "lambda", 6) == 0 && !is_name(s->at[6]);
}

/* Items from the opening bracket to the closing one: entries of a list, or the names of one entry. */
static cloob_status read_items(python *s, list *entries, prompt_list *names)
{
    char close = peek(s, 0) == '[' ? ']' : ')';
    for (advance(s, 1);;) {
        skip_blank(s);
        if (peek(s, 0) == close) break;
        if (entries) {
            prompt_list *grown =
                arena_grow(s->memory, entries->entry, entries->count, &entries->room, 64, sizeof *entries->entry);
            if (!grown) return ctx_no_memory(s->ctx, sizeof *grown, "prompts");
            entries->entry = grown;
            names = &grown[entries->count++];
            *names = (prompt_list){ 0 };
        }
        if (at_string(s)) CLOOB_TRY(read_text(s, "", names));
        else if (entries && at_lambda(s)) CLOOB_TRY(read_lambda(s, names));
        else if (entries && (peek(s, 0) == '[' || peek(s, 0) == '(')) CLOOB_TRY(read_items(s, NULL, names));
        else return bad(s, s->at < s->end ? "something else than a string in a list" : "a list that does not end");
        skip_blank(s);
        if (peek(s, 0) == ',') advance(s, 1);
        else if (peek(s, 0) != close)
            return bad(s, s->at < s->end ? "no comma after an item" : "a list that does not end");
    }
    advance(s, 1);
    return CLOOB_OK;
}

static const char *const tails[] = { "templates", "class_names", "classnames", "classes" };

/* Bytes of a variable's name before one of the tails; false: it has none. */
static bool before_tail(const char *name, size_t n, size_t *stem)
{
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t k = strlen(tails[i]);
        if (n < k || strncasecmp(name + n - k, tails[i], k) != 0) continue;
        *stem = n - k;
        return true;
    }
    return false;
}

/* `name = [` at the beginning of a line: leaves at on the bracket. */
static bool at_assignment(python *s, const char **name, size_t *n)
{
    python ahead = *s;
    size_t stem;
    for (*name = ahead.at, *n = 0; is_name(peek(&ahead, 0)); ahead.at++) ++*n;
    if (!before_tail(*name, *n, &stem)) return false;
    while (peek(&ahead, 0) == ' ' || peek(&ahead, 0) == '\t') ahead.at++;
    if (peek(&ahead, 0) != '=' || peek(&ahead, 1) == '=') return false;
    ahead.at++;
    skip_blank(&ahead);
    if (peek(&ahead, 0) != '[' && peek(&ahead, 0) != '(') return false;
    *s = ahead;
    return true;
}

/* The next assignment whose name ends in one of the tails and whose value is a list. found->name is NULL at the end.
 * Anything else is skipped; an incomplete list or one with other content is an error with its line. */
static cloob_status next_list(python *s, list *found)
{
    const char *name;
    size_t n;
    *found = (list){ 0 };
    while (s->at < s->end) {
        if (at_assignment(s, &name, &n)) {
            found->name = arena_string_n(s->memory, name, n);
            return found->name ? read_items(s, found, NULL) : ctx_no_memory(s->ctx, n, "prompts");
        }
        skip_line(s); /* whatever it is */
        advance(s, 1);
    }
    return CLOOB_OK;
}

/* ---- lists to sets --------------------------------------------------------------------------------- */

/* A set whose lists have not all been seen yet. */
typedef struct draft {
    const char *name;
    list classes, templates;
    struct draft *next;
} draft;

typedef struct importer {
    cloob_ctx *ctx;
    const char *where;
    prompts *out;
    draft *first, *last;
} importer;

/* The data sets whose score is the mean over classes, as CLIP and the paper report them; accuracy for all
 * others. */
static prompt_metric metric_of(const char *name)
{
    static const char *const mean[] = { "Caltech101", "FGVCAircraft", "Flowers102", "OxfordPets" };
    for (size_t i = 0; i < sizeof mean / sizeof *mean; i++)
        if (strcasecmp(mean[i], name) == 0) return PROMPT_MEAN_PER_CLASS;
    return PROMPT_ACCURACY;
}

/* "imagenet_classes" belongs to imagenet, plain "classes" to the heading above it; NULL when memory is out. */
static const char *set_name(importer *im, const char *variable, const char *heading)
{
    size_t n = strlen(variable);
    before_tail(variable, n, &n);
    while (n && variable[n - 1] == '_') n--;
    if (n > 7 && strncasecmp(variable, "openai_", 7) == 0) variable += 7, n -= 7;
    if (n == 8 && strncasecmp(variable, "imagenet", 8) == 0) return "ImageNet";
    return n ? arena_string_n(&im->out->memory, variable, n) : heading;
}

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

static cloob_status take_list(importer *im, const list *found, const char *heading, int64_t line)
{
    const char *name = set_name(im, found->name, heading);
    draft *d;
    if (!name)
        return ctx_fail(im->ctx, CLOOB_ERR_FORMAT,
                        "%s: before line %lld: a list `%s` with no heading or prefix that names its set", im->where,
                        (long long)line, found->name);
    CLOOB_TRY(draft_of(im, name, &d));
    size_t n = strlen(found->name), k = strlen("templates");
    bool templates = n >= k && strcasecmp(found->name + n - k, "templates") == 0;
    list *place = templates ? &d->templates : &d->classes;
    if (place->name)
        return ctx_fail(im->ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: a second list `%s` before line %lld", im->where,
                        name, found->name, (long long)line);
    *place = *found;
    return CLOOB_OK;
}

static cloob_status import_python(importer *im, const char *text, size_t size, const char *heading, int64_t line)
{
    python s = { im->ctx, &im->out->memory, im->where, text, text + size, line };
    for (list found;;) {
        CLOOB_TRY(next_list(&s, &found));
        if (!found.name) return CLOOB_OK;
        CLOOB_TRY(take_list(im, &found, heading, s.line));
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
    char path[FILE_PATH];
    CLOOB_TRY(file_in(ctx, folder, name, path));
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &f));
    cloob_status status = CLOOB_OK;
    const char *line;
    size_t n;
    for (const char *at = f.data; status == CLOOB_OK && text_line(&at, f.data + f.size, &line, &n);) {
        while (n && isspace((unsigned char)*line)) line++, n--;
        while (n && isspace((unsigned char)line[n - 1])) n--;
        char *text = arena_string_n(a, line, n);
        for (char *c; text && (c = strstr(text, "{c}"));) memmove(c + 1, c + 2, strlen(c + 2) + 1);
        if (!text || (*text && !prompt_list_add(a, l, text))) status = ctx_no_memory(ctx, n, folder);
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
