/* Which prompt class each class of a data set is: by name, number, order, or a map in a file. */
#include "core/file.h"
#include "infer/zeroshot_run.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool ignored(char c) { return c == '_' || c == '-' || c == ' '; }

static bool same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (ignored(*a)) a++;
        while (ignored(*b)) b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
    }
}

/* The class with that name; -1: none, -2: several (ImageNet has two cranes). */
static int64_t class_find(const prompt_set *set, const char *name)
{
    int64_t found = -1;
    for (int64_t c = 0; c < set->class_count; c++)
        for (int64_t k = 0; k < set->classes[c].count; k++)
            if (same_name(set->classes[c].item[k], name)) {
                if (found >= 0 && found != c) return -2;
                found = c;
                break;
            }
    return found;
}

/* "7" or "007" below C; -1 otherwise. */
static int64_t as_number(const char *name, int64_t C)
{
    char *end;
    if (!isdigit((unsigned char)*name)) return -1;
    long long v = strtoll(name, &end, 10);
    return !*end && v >= 0 && v < C ? v : -1;
}

/* An earlier data class with the same prompt class as data class i; -1: none. */
static int64_t twin_of(const int64_t *class_of, int64_t i)
{
    for (int64_t k = 0; k < i; k++)
        if (class_of[k] == class_of[i]) return k;
    return -1;
}

static bool all_numbers(const dataset *d, int64_t C, int64_t *class_of)
{
    for (int64_t i = 0; i < dataset_class_count(d); i++) {
        class_of[i] = as_number(dataset_class_name(d, i), C);
        if (class_of[i] < 0 || twin_of(class_of, i) >= 0) return false;
    }
    return true;
}

static cloob_status refuse_names(cloob_ctx *ctx, const dataset *d, const prompt_set *set, int64_t unknown,
                                 int64_t known)
{
    int64_t n = dataset_class_count(d);
    if (known)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "class \"%s\" is not among the %lld classes of the prompts \"%s\" although %lld other names "
                        "are; correct its name, or choose another set with `set`",
                        dataset_class_name(d, unknown), (long long)set->class_count, set->name, (long long)known);
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "the data has %lld classes (\"%s\", ...), the prompts \"%s\" have %lld (\"%s\", ...): neither "
                    "names nor numbers agree",
                    (long long)n, dataset_class_name(d, 0), set->name, (long long)set->class_count,
                    set->classes[0].item[0]);
}

static cloob_status check_distinct(cloob_ctx *ctx, const dataset *d, const int64_t *class_of)
{
    for (int64_t i = 0; i < dataset_class_count(d); i++) {
        int64_t twin = twin_of(class_of, i);
        if (twin >= 0)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "\"%s\" and \"%s\" are the same class of the prompts",
                            dataset_class_name(d, twin), dataset_class_name(d, i));
    }
    return CLOOB_OK;
}

cloob_status class_match(cloob_ctx *ctx, const dataset *d, const prompt_set *set, int64_t *class_of, class_match_by *by)
{
    int64_t n = dataset_class_count(d), known = 0, unknown = -1, in_order = 0;
    for (int64_t i = 0; i < n; i++) {
        class_of[i] = class_find(set, dataset_class_name(d, i));
        if (class_of[i] == -2 && n == set->class_count)
            class_of[i] = i; /* if several have the name, match by position */
        if (class_of[i] < 0) unknown = i;
        else known++, in_order += class_of[i] == i;
    }
    *by = MATCH_NAMES;
    if (known == n) return check_distinct(ctx, d, class_of);
    *by = MATCH_NUMBERS;
    if (!known && all_numbers(d, set->class_count, class_of)) return CLOOB_OK;
    *by = MATCH_ORDER;
    if (n != set->class_count || in_order != known) return refuse_names(ctx, d, set, unknown, known);
    for (int64_t i = 0; i < n; i++) class_of[i] = i;
    return CLOOB_OK;
}

cloob_status names_as_prompts(cloob_ctx *ctx, arena *a, const char *title, const char *const *name, int64_t names,
                              const char *const *templates, int64_t template_count, prompt_set *set)
{
    *set = (prompt_set){ .name = title, .class_count = names };
    set->classes = arena_push(a, (size_t)names * sizeof *set->classes); /* zeroed */
    bool ok = set->classes != NULL;
    for (int64_t i = 0; i < names && ok; i++) ok = prompt_list_add(a, &set->classes[i], name[i]);
    for (int64_t i = 0; i < template_count && ok; i++) {
        if (!strstr(templates[i], "{}"))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "template \"%s\": needs {} where the label goes", templates[i]);
        ok = prompt_list_add(a, &set->templates, templates[i]);
    }
    if (ok && !template_count) ok = prompt_list_add(a, &set->templates, "a photo of a {}.");
    return ok ? CLOOB_OK : ctx_no_memory(ctx, (size_t)names * sizeof *set->classes, "prompts");
}

cloob_status class_names_as_prompts(cloob_ctx *ctx, const dataset *d, arena *a, prompt_set *out)
{
    int64_t n = dataset_class_count(d);
    if (!n) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the data has no classes; zero-shot accuracy needs them");
    const char **name = arena_push(a, (size_t)n * sizeof *name);
    if (!name) return ctx_no_memory(ctx, (size_t)n * sizeof *name, "class names");
    for (int64_t i = 0; i < n; i++) {
        char *copy = arena_string(a, dataset_class_name(d, i));
        if (!copy) return ctx_no_memory(ctx, 64, "class names");
        for (char *c = copy; *c; c++)
            if (*c == '_') *c = ' ';
        name[i] = copy;
    }
    return names_as_prompts(ctx, a, "class names", name, n, NULL, 0, out);
}

/* ---- a map from folders to classes ----------------------------------------------------------------- */

typedef struct map_reader {
    cloob_ctx *ctx;
    const char *path;
    const dataset *d;
    const prompt_set *all;
    bool *is; /* (folders of the data, classes of `all`) whether the line of a folder names a class */
} map_reader;

static int64_t find_folder(const dataset *d, const char *name)
{
    for (int64_t i = 0; i < dataset_class_count(d); i++)
        if (strcmp(dataset_class_name(d, i), name) == 0) return i;
    return -1;
}

static cloob_status find_class(const map_reader *r, const char *name, int64_t line, int64_t *out)
{
    int64_t found = class_find(r->all, name);
    *out = found >= 0 ? found : as_number(name, r->all->class_count);
    if (*out >= 0) return CLOOB_OK;
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s, line %lld: \"%s\" %s the %lld classes of \"%s\"", r->path,
                    (long long)line, name, found == -2 ? "is the name of two of" : "is not among",
                    (long long)r->all->class_count, r->all->name);
}

/* "a|b" */
static cloob_status claim(map_reader *r, int64_t folder, char *list, int64_t line)
{
    for (char *part; (part = strsep(&list, "|"));) {
        int64_t c;
        CLOOB_TRY(find_class(r, part + strspn(part, " "), line, &c));
        r->is[folder * r->all->class_count + c] = true;
    }
    return CLOOB_OK;
}

static cloob_status take_line(map_reader *r, char *text, int64_t line, int64_t *ordinal)
{
    char number[32];
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) text[--n] = '\0';
    text += strspn(text, " ");
    if (!*text || *text == '#') return CLOOB_OK;
    char *mark = strchr(text, '\t') ? strchr(text, '\t') : strchr(text, ',');
    snprintf(number, sizeof number, "%lld", (long long)(*ordinal)++);
    if (mark) *mark++ = '\0';
    int64_t folder = find_folder(r->d, text);
    return folder < 0 ? CLOOB_OK : claim(r, folder, mark ? mark + strspn(mark, " ") : number, line);
}

/* The first folder with the same classes as folder i, or i. Refused: a folder without a class, and one that shares some
 * of its classes with another. */
static cloob_status find_twin(const map_reader *r, int64_t i, int64_t *twin)
{
    int64_t C = r->all->class_count;
    const bool *own = r->is + i * C;
    if (!memchr(own, 1, (size_t)C))
        return ctx_fail(r->ctx, CLOOB_ERR_ARGUMENT, "%s: does not name the class of the folder \"%s\" is", r->path,
                        dataset_class_name(r->d, i));
    for (*twin = 0; *twin < i; ++*twin) {
        const bool *other = r->is + *twin * C;
        if (memcmp(own, other, (size_t)C) == 0) return CLOOB_OK;
        for (int64_t c = 0; c < C; c++)
            if (own[c] && other[c])
                return ctx_fail(r->ctx, CLOOB_ERR_ARGUMENT, "%s: \"%s\" and \"%s\" share only some of their classes",
                                r->path, dataset_class_name(r->d, i), dataset_class_name(r->d, *twin));
    }
    return CLOOB_OK;
}

static cloob_status fill(const map_reader *r, arena *a, class_map *out)
{
    int64_t n = dataset_class_count(r->d), C = r->all->class_count, twin = 0;
    *out = (class_map){ .set = *r->all };
    out->class_of = arena_push(a, (size_t)n * sizeof *out->class_of);
    out->shown = arena_push(a, (size_t)n * sizeof *out->shown);
    out->group = arena_push(a, (size_t)C * sizeof *out->group);
    out->set.classes = arena_push(a, (size_t)C * sizeof *out->set.classes);
    if (!out->class_of || !out->shown || !out->group || !out->set.classes)
        return ctx_no_memory(r->ctx, (size_t)C * sizeof *out->group, "classes");
    for (int64_t i = 0; i < n; i++) {
        CLOOB_TRY(find_twin(r, i, &twin));
        out->class_of[i] = twin < i ? out->class_of[twin] : out->answers;
        if (twin == i) out->shown[out->answers++] = -1;
    }
    out->set.class_count = 0;
    for (int64_t c = 0; c < C; c++) {
        int64_t folder = 0, used = out->set.class_count;
        while (folder < n && !r->is[folder * C + c]) folder++;
        if (folder == n) continue;
        int64_t answer = out->class_of[folder];
        if (out->shown[answer] < 0) out->shown[answer] = used;
        out->group[used] = answer;
        out->set.classes[used] = r->all->classes[c];
        out->set.class_count++;
    }
    return CLOOB_OK;
}

cloob_status class_map_read(cloob_ctx *ctx, arena *a, const char *path, const dataset *d, const prompt_set *all,
                            class_map *out)
{
    int64_t line = 1, ordinal = 0;
    size_t bytes = (size_t)(dataset_class_count(d) * all->class_count);
    file_bytes b;
    map_reader r = { ctx, path, d, all, arena_push(a, bytes) };
    if (!r.is) return ctx_no_memory(ctx, bytes, "classes");
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &b));
    cloob_status status = CLOOB_OK;
    char *rest = b.data;
    for (char *text; status == CLOOB_OK && (text = strsep(&rest, "\n")); line++)
        status = take_line(&r, text, line, &ordinal);
    file_bytes_release(&b);
    return status == CLOOB_OK ? fill(&r, a, out) : status;
}
