/* Names against names, then order. */
#include "infer/class_match.h"

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

int64_t class_find(const prompt_set *set, const char *name)
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

static bool all_numbers(const dataset *d, int64_t C, int64_t *class_of)
{
    bool taken_twice = false;
    for (int64_t i = 0; i < dataset_class_count(d); i++) {
        class_of[i] = as_number(dataset_class_name(d, i), C);
        if (class_of[i] < 0) return false;
        for (int64_t k = 0; k < i; k++) taken_twice |= class_of[k] == class_of[i];
    }
    return !taken_twice;
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

static cloob_status check_distinct(cloob_ctx *ctx, const dataset *d, const int64_t *class_of, int64_t C)
{
    int64_t *first = malloc((size_t)C * sizeof *first), n = dataset_class_count(d);
    if (!first) return ctx_no_memory(ctx, (size_t)C * sizeof *first, "classes");
    cloob_status status = CLOOB_OK;
    for (int64_t c = 0; c < C; c++) first[c] = -1;
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        int64_t *f = &first[class_of[i]];
        if (*f >= 0)
            status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "\"%s\" and \"%s\" are the same class of the prompts",
                              dataset_class_name(d, *f), dataset_class_name(d, i));
        *f = i;
    }
    free(first);
    return status;
}

cloob_status class_match(cloob_ctx *ctx, const dataset *d, const prompt_set *set, int64_t *class_of, class_match_by *by)
{
    int64_t n = dataset_class_count(d), known = 0, unknown = -1, in_order = 0;
    for (int64_t i = 0; i < n; i++) {
        class_of[i] = class_find(set, dataset_class_name(d, i));
        if (class_of[i] == -2 && n == set->class_count)
            class_of[i] = i; /* of several with one name, the one in order */
        if (class_of[i] < 0) unknown = i;
        else known++, in_order += class_of[i] == i;
    }
    *by = MATCH_NAMES;
    if (known == n) return check_distinct(ctx, d, class_of, set->class_count);
    *by = MATCH_NUMBERS;
    if (!known && all_numbers(d, set->class_count, class_of)) return CLOOB_OK;
    *by = MATCH_ORDER;
    if (n != set->class_count || in_order != known) return refuse_names(ctx, d, set, unknown, known);
    for (int64_t i = 0; i < n; i++) class_of[i] = i;
    return CLOOB_OK;
}

cloob_status class_names_as_prompts(cloob_ctx *ctx, const dataset *d, arena *a, prompt_set *out)
{
    int64_t n = dataset_class_count(d);
    *out = (prompt_set){ .name = "class names", .class_count = n };
    if (!n) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the data has no classes; zero-shot accuracy needs them");
    out->classes = arena_push(a, (size_t)n * sizeof *out->classes);
    if (!out->classes) return ctx_no_memory(ctx, (size_t)n * sizeof *out->classes, "class names");
    for (int64_t i = 0; i < n; i++) {
        char *name = arena_string(a, dataset_class_name(d, i));
        out->classes[i] = (prompt_list){ 0 };
        if (!name) return ctx_no_memory(ctx, 64, "class names");
        for (char *c = name; *c; c++)
            if (*c == '_') *c = ' ';
        if (!prompt_list_add(a, &out->classes[i], name)) return ctx_no_memory(ctx, 64, "class names");
    }
    return prompt_list_add(a, &out->templates, "a photo of a {}.") ? CLOOB_OK : ctx_no_memory(ctx, 64, "a template");
}
