/* Imports published prompts: finds the lists of strings in Markdown, notebooks and Python files and pairs them into
 * sets; reads folders of CLIP_benchmark. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "data/text/prompts.h"

/* The value of `name = [...]` or `(...)`. An entry is a string, a list or tuple of strings, or a function `lambda c:
 * f'a photo of a {c}.'`, which becomes 'a photo of a {}.'. */
typedef struct list {
    prompt_list *entry;
    int64_t count, room;
    bool given;
} list;

/* A set for which not all lists have been read. */
typedef struct draft {
    const char *name;
    list classes, templates;
    struct draft *next;
} draft;

typedef struct importer {
    cloob_ctx *ctx;
    const char *where; /* for messages */
    prompts *out;
    const char *at, *end;
    int64_t line; /* line number of `at`, from 1 */
    draft *first;
} importer;

static cloob_status bad(const importer *s, const char *why)
{
    return ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: line %lld: %s", s->where, (long long)s->line, why);
}

/* ---- lists of strings in Python ----------------------------------------------------------------------- */

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }
static char peek(const importer *s, size_t k) { return (size_t)(s->end - s->at) > k ? s->at[k] : '\0'; }

static void advance(importer *s, size_t n)
{
    for (; n && s->at < s->end; n--) s->line += *s->at++ == '\n';
}

/* Skips white space, comments and line continuations. */
static void skip_blank(importer *s)
{
    for (; s->at < s->end; advance(s, 1)) {
        if (*s->at == '#') s->at += strcspn(s->at, "\n");
        if (!*s->at || !strchr(" \t\r\n\f\\", *s->at)) return;
    }
}

static bool at_string(const importer *s)
{
    char c = peek(s, 0), first = c && strchr("fFuU", c) ? peek(s, 1) : c;
    return first == '\'' || first == '"';
}

/* Escapes that Python does not define are kept as written. */
static cloob_status read_escape(importer *s, sbuf *out)
{
    char c = peek(s, 1);
    if (isdigit((unsigned char)c) || (c && strchr("xuUN", c)))
        return bad(s, "an escape with a character code; write the character itself");
    if (!c || !strchr("nt\\'\"\n", c)) sbuf_putc(out, '\\');
    if (c != '\n') sbuf_putc(out, c == 'n' ? '\n' : c == 't' ? '\t' : c);
    advance(s, 2);
    return CLOOB_OK;
}

/* In a formatted string, a name in braces is the class name and doubled braces are single braces. */
static cloob_status read_brace(importer *s, sbuf *out)
{
    size_t n = 1;
    if (peek(s, 1) == peek(s, 0)) sbuf_putc(out, peek(s, 0)), n = 2;
    else {
        while (peek(s, 0) == '{' && is_name(peek(s, n))) n++;
        if (n == 1 || peek(s, n++) != '}')
            return bad(s, "a formatted string with something other than the class name in braces");
        sbuf_puts(out, "{}");
    }
    advance(s, n);
    return CLOOB_OK;
}

/* Appends one string literal. */
static cloob_status read_string(importer *s, sbuf *out)
{
    bool formatted = (peek(s, 0) | 32) == 'f';
    if (is_name(peek(s, 0))) advance(s, 1);
    char quote = peek(s, 0);
    for (advance(s, 1); peek(s, 0) != quote;) {
        char c = peek(s, 0);
        if (!c || c == '\n') return bad(s, "an unterminated string");
        if (c == '\\') CLOOB_TRY(read_escape(s, out));
        else if (formatted && (c == '{' || c == '}')) CLOOB_TRY(read_brace(s, out));
        else sbuf_putc(out, c), s->at++;
    }
    advance(s, 1);
    return CLOOB_OK;
}

/* Concatenates adjacent literals. */
static cloob_status read_text(importer *s, prompt_list *out)
{
    arena *memory = &s->out->memory;
    sbuf text = { 0 };
    cloob_status status = CLOOB_OK;
    sbuf_puts(&text, "");
    for (; status == CLOOB_OK && at_string(s); skip_blank(s)) status = read_string(s, &text);
    if (status == CLOOB_OK && (text.failed || !prompt_list_add(memory, out, arena_string(memory, text.data))))
        status = ctx_no_memory(s->ctx, text.len, "a prompt");
    sbuf_release(&text);
    return status;
}

/* Skips `lambda c:` before a string. */
static cloob_status skip_lambda(importer *s)
{
    if (s->end - s->at <= 6 || memcmp(s->at, "lambda", 6) != 0) return CLOOB_OK;
    while (is_name(peek(s, 0)) || peek(s, 0) == ' ') s->at++;
    if (peek(s, 0) == ':') s->at++;
    skip_blank(s);
    return at_string(s) ? CLOOB_OK : bad(s, "a function that is not a formatted string");
}

/* Reads the items between brackets: entries of a list, or with `names` the names of one entry. */
static cloob_status read_items(importer *s, list *entries, prompt_list *names)
{
    char close = peek(s, 0) == '[' ? ']' : ')';
    for (advance(s, 1);;) {
        skip_blank(s);
        if (peek(s, 0) == close) break;
        prompt_list *item = names;
        if (!item) {
            item = arena_grow(&s->out->memory, entries->entry, entries->count, &entries->room, 64, sizeof *item);
            if (!item) return ctx_no_memory(s->ctx, sizeof *item, "prompts");
            entries->entry = item;
            item += entries->count++;
            *item = (prompt_list){ 0 };
            CLOOB_TRY(skip_lambda(s));
        }
        if (at_string(s)) CLOOB_TRY(read_text(s, item));
        else if (!names && (peek(s, 0) == '[' || peek(s, 0) == '(')) CLOOB_TRY(read_items(s, NULL, item));
        else return bad(s, s->at < s->end ? "an entry of a list that is not a string" : "an unterminated list");
        skip_blank(s);
        if (peek(s, 0) == ',') advance(s, 1);
        else if (peek(s, 0) != close)
            return bad(s, s->at < s->end ? "a missing comma after an item" : "an unterminated list");
    }
    advance(s, 1);
    return CLOOB_OK;
}

/* ---- lists to sets --------------------------------------------------------------------------------- */

/* Data sets whose score is the mean over classes, as reported by CLIP and the CLOOB paper; accuracy for all others. */
static prompt_metric metric_of(const char *name)
{
    static const char *const mean[] = { "Caltech101", "FGVCAircraft", "Flowers102", "OxfordPets" };
    for (size_t i = 0; i < sizeof mean / sizeof *mean; i++)
        if (strcasecmp(mean[i], name) == 0) return PROMPT_MEAN_PER_CLASS;
    return PROMPT_ACCURACY;
}

/* "imagenet_classes" belongs to the set ImageNet, plain "classes" to the set of the heading above. *place: the list to
 * fill; NULL if the variable is not a list of classes or templates. */
static cloob_status find_place(importer *s, const char *variable, size_t n, const char *heading, list **place)
{
    static const char *const tails[] = { "templates", "class_names", "classnames", "classes" };
    size_t tail = 0, stem = n;
    *place = NULL;
    for (; tail < 4; tail++) {
        size_t k = strlen(tails[tail]);
        if (n < k || strncasecmp(variable + n - k, tails[tail], k) != 0) continue;
        stem = n - k;
        break;
    }
    if (tail == 4) return CLOOB_OK;
    while (stem && variable[stem - 1] == '_') stem--;
    if (stem > 7 && strncasecmp(variable, "openai_", 7) == 0) variable += 7, stem -= 7;
    bool imagenet = stem == 8 && strncasecmp(variable, "imagenet", 8) == 0;
    const char *name = imagenet ? "ImageNet" : stem ? arena_string_n(&s->out->memory, variable, stem) : heading;
    if (!name && stem) return ctx_no_memory(s->ctx, stem, "prompts");
    if (!name) return bad(s, "a list without a heading or prefix that names its set");
    draft **d = &s->first;
    while (*d && strcmp((*d)->name, name) != 0) d = &(*d)->next;
    if (!*d && !(*d = arena_push(&s->out->memory, sizeof **d))) return ctx_no_memory(s->ctx, sizeof **d, "prompts");
    (*d)->name = name;
    *place = tail == 0 ? &(*d)->templates : &(*d)->classes;
    return (*place)->given ? bad(s, "a second list of this name in a prompt set") : CLOOB_OK;
}

/* Whether the line is `name = [`; moves `at` to the bracket. */
static bool at_assignment(importer *s, size_t *n)
{
    importer ahead = *s;
    for (*n = 0; is_name(peek(s, *n));) ++*n;
    advance(&ahead, *n);
    while (peek(&ahead, 0) == ' ') ahead.at++;
    if (!*n || peek(&ahead, 0) != '=') return false;
    advance(&ahead, 1);
    skip_blank(&ahead);
    if (peek(&ahead, 0) != '[' && peek(&ahead, 0) != '(') return false;
    *s = ahead;
    return true;
}

/* Reads headings outside of code blocks, and assignments of lists. Other lines are skipped. */
static cloob_status import_lines(importer *s)
{
    const char *heading = NULL;
    for (bool code = false; s->at < s->end; advance(s, 1)) {
        const char *line = s->at;
        size_t n, length = strcspn(line, "\r\n");
        list *place;
        if (length >= 3 && (memcmp(line, "```", 3) == 0 || memcmp(line, "~~~", 3) == 0)) code = !code;
        else if (*line == '#' && !code) {
            size_t from = strspn(line, "# \t");
            while (length > from && strchr(" \t#", line[length - 1])) length--;
            if (length > from) heading = arena_string_n(&s->out->memory, line + from, length - from);
        } else if (at_assignment(s, &n)) {
            CLOOB_TRY(find_place(s, line, n, heading, &place));
            if (place) CLOOB_TRY(read_items(s, place, NULL));
            if (place) place->given = true;
        }
        s->at += strcspn(s->at, "\n");
    }
    return CLOOB_OK;
}

static cloob_status finish_draft(importer *s, const draft *d)
{
    prompt_set set = {
        .name = d->name, .classes = d->classes.entry, .class_count = d->classes.count, .metric = metric_of(d->name)
    };
    if (!d->classes.given || !d->templates.given) {
        ctx_log(s->ctx, CLOOB_LOG_WARN, "%s: %s has %s but no %s; skipped", s->where, d->name,
                d->classes.given ? "classes" : "templates", d->classes.given ? "templates" : "classes");
        return CLOOB_OK;
    }
    for (int64_t i = 0; i < d->templates.count; i++) {
        if (d->templates.entry[i].count != 1)
            return ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: template %lld is a list", s->where, d->name,
                            (long long)i + 1);
        if (!prompt_list_add(&s->out->memory, &set.templates, d->templates.entry[i].item[0]))
            return ctx_no_memory(s->ctx, 64, "prompts");
    }
    return prompts_add(s->ctx, s->out, s->where, &set);
}

/* ---- files ----------------------------------------------------------------------------------------- */

/* Appends the code cells of a notebook, or the text itself if it is not a notebook. */
static cloob_status put_code(importer *s, const char *text, size_t size, sbuf *out)
{
    json *root;
    size_t blank = 0;
    while (blank < size && isspace((unsigned char)text[blank])) blank++;
    if (blank == size || text[blank] != '{') {
        sbuf_add(out, text, size);
        return CLOOB_OK;
    }
    CLOOB_TRY(json_parse(s->ctx, &s->out->memory, text, size, s->where, &root));
    if (json_kind_of(json_get(root, "cells")) != JSON_ARRAY)
        return ctx_fail(s->ctx, CLOOB_ERR_FORMAT, "%s: JSON file, but not a notebook (no \"cells\")", s->where);
    for (const json *c = json_first(json_get(root, "cells")); c; c = json_next(c)) {
        const char *type = json_string(json_get(c, "cell_type"));
        const json *source = json_get(c, "source");
        if (!type || strcmp(type, "code") != 0) continue;
        if (json_string(source)) sbuf_puts(out, json_string(source));
        for (const json *x = json_first(source); x; x = json_next(x))
            if (json_string(x)) sbuf_puts(out, json_string(x));
        sbuf_putc(out, '\n');
    }
    return CLOOB_OK;
}

static cloob_status import_text(importer *s, const char *text, size_t size)
{
    uint32_t code;
    for (s->line = 1; s->at < s->end; s->line += code == '\n') {
        int n = utf8_decode(s->at, (size_t)(s->end - s->at), &code);
        if (!n || !code) return bad(s, "not UTF-8 text");
        s->at += n;
    }
    s->at = text, s->end = text + size, s->line = 1;
    CLOOB_TRY(import_lines(s));
    for (const draft *d = s->first; d; d = d->next) CLOOB_TRY(finish_draft(s, d));
    return CLOOB_OK;
}

cloob_status prompts_import_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, prompts *out)
{
    importer s = { .ctx = ctx, .where = name, .out = out };
    int64_t before = out->count;
    sbuf lines = { 0 }; /* a zero-terminated copy, because `text` may not be */
    sbuf_puts(&lines, "");
    cloob_status status = put_code(&s, text, size, &lines);
    s.at = lines.data, s.end = lines.data + lines.len;
    if (status == CLOOB_OK) status = lines.failed ? ctx_no_memory(ctx, size, name) : import_text(&s, s.at, lines.len);
    sbuf_release(&lines);
    if (status == CLOOB_OK && out->count == before)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no Python lists `classes` and `templates` found", name);
    return status;
}

/* Reads the non-empty lines of a file into a list, trimmed at the end; `{c}` becomes {}. */
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
