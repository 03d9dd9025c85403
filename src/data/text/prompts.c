/* Reads, checks and writes prompt sets as JSON. */
#include "data/text/prompts.h"

#include <string.h>

#include "core/file.h"
#include "core/json.h"

/* ---- lists and names ------------------------------------------------------------------------------- */

bool prompt_list_add(arena *a, prompt_list *l, const char *text)
{
    if ((l->count & (l->count - 1)) == 0) { /* full: the capacity is a power of 2 */
        const char **item = arena_push(a, (size_t)(l->count ? 2 * l->count : 1) * sizeof *item);
        if (!item) return false;
        if (l->count) memcpy(item, l->item, (size_t)l->count * sizeof *item);
        l->item = item;
    }
    l->item[l->count++] = text;
    return text != NULL;
}

static int fold(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

static const char *skip(const char *s) { return s + strspn(s, " -_/"); }

static bool same_name(const char *a, const char *b)
{
    for (a = skip(a), b = skip(b); *a && fold(*a) == fold(*b);) a = skip(a + 1), b = skip(b + 1);
    return !*a && !*b;
}

static const prompt_set *find(const prompts *p, const char *name)
{
    for (int64_t i = 0; i < p->count; i++)
        if (same_name(p->set[i].name, name)) return &p->set[i];
    return NULL;
}

cloob_status prompts_find(cloob_ctx *ctx, const prompts *p, const char *name, const prompt_set **out)
{
    sbuf names = { 0 };
    *out = find(p, name);
    if (*out) return CLOOB_OK;
    for (int64_t i = 0; i < p->count; i++) sbuf_printf(&names, "%s%s", i ? ", " : "", p->set[i].name);
    cloob_status status =
        ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "no prompt set %s; available: %s", name, names.data ? names.data : "none");
    sbuf_release(&names);
    return status;
}

void prompt_fill(const char *template, const char *class_name, sbuf *out)
{
    for (const char *hole; (hole = strstr(template, "{}")) != NULL; template = hole + 2) {
        sbuf_add(out, template, (size_t)(hole - template));
        sbuf_puts(out, class_name);
    }
    sbuf_puts(out, template);
}

/* ---- adding ---------------------------------------------------------------------------------------- */

static bool is_blank(const char *s) { return s[strspn(s, " \t\r\n")] == '\0'; }

static cloob_status check_set(cloob_ctx *ctx, const prompts *p, const char *where, const prompt_set *s)
{
    if (is_blank(s->name)) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a prompt set without a name", where);
    if (find(p, s->name))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: duplicate name (see %s)", where, s->name,
                        find(p, s->name)->name);
    if (!s->class_count) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: no classes", where, s->name);
    if (!s->templates.count) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: no templates", where, s->name);
    for (int64_t i = 0; i < s->templates.count; i++)
        if (!strstr(s->templates.item[i], "{}"))
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: template \"%s\" has no {} for the class name",
                            where, s->name, s->templates.item[i]);
    for (int64_t i = 0; i < s->class_count; i++)
        for (int64_t k = 0; k < s->classes[i].count || k == 0; k++)
            if (!s->classes[i].count || is_blank(s->classes[i].item[k]))
                return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: class %lld has an empty name", where,
                                s->name, (long long)i + 1);
    return CLOOB_OK;
}

cloob_status prompts_add(cloob_ctx *ctx, prompts *out, const char *where, const prompt_set *set)
{
    CLOOB_TRY(check_set(ctx, out, where, set));
    prompt_set *grown = arena_grow(&out->memory, out->set, out->count, &out->room, 16, sizeof *out->set);
    if (!grown) return ctx_no_memory(ctx, sizeof *grown, "prompt sets");
    out->set = grown;
    out->set[out->count++] = *set;
    return CLOOB_OK;
}

/* ---- reading --------------------------------------------------------------------------------------- */

typedef struct reader {
    cloob_ctx *ctx;
    const char *name;
    prompts *out;
} reader;

static cloob_status bad(reader *r, const char *set, const char *why)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: prompt set %s: %s", r->name, set, why);
}

static cloob_status read_list(reader *r, const char *set, const json *array, const char *why, prompt_list *out)
{
    if (!array || array->kind != JSON_ARRAY) return bad(r, set, why);
    for (const json *x = array->child; x; x = x->next) {
        if (!json_string(x)) return bad(r, set, why);
        if (!prompt_list_add(&r->out->memory, out, json_string(x))) return ctx_no_memory(r->ctx, 64, "prompts");
    }
    return CLOOB_OK;
}

static cloob_status read_classes(reader *r, const json *array, prompt_set *s)
{
    if (!array || array->kind != JSON_ARRAY) return bad(r, s->name, "needs \"classes\": a list of names");
    s->classes = arena_push(&r->out->memory, (size_t)(array->count + 1) * sizeof *s->classes);
    if (!s->classes) return ctx_no_memory(r->ctx, (size_t)array->count * sizeof *s->classes, "classes");
    for (const json *x = array->child; x; x = x->next, s->class_count++) {
        if (x->kind == JSON_ARRAY)
            CLOOB_TRY(read_list(r, s->name, x, "a class is a name or a list of names", &s->classes[s->class_count]));
        else if (!json_string(x)) return bad(r, s->name, "a class is a name or a list of names");
        else if (!prompt_list_add(&r->out->memory, &s->classes[s->class_count], json_string(x)))
            return ctx_no_memory(r->ctx, 64, "prompts");
    }
    return CLOOB_OK;
}

static cloob_status read_set(reader *r, const json *object)
{
    prompt_set s = { .name = object->key };
    if (object->kind != JSON_OBJECT) return bad(r, s.name, "needs an object with classes and templates");
    CLOOB_TRY(read_classes(r, json_get(object, "classes"), &s));
    CLOOB_TRY(read_list(r, s.name, json_get(object, "templates"), "needs \"templates\": a list of texts with {}",
                        &s.templates));
    const json *metric = json_get(object, "metric");
    const char *word = metric ? json_string(metric) : "accuracy";
    if (word && strcmp(word, "mean_per_class") == 0) s.metric = PROMPT_MEAN_PER_CLASS;
    else if (!word || strcmp(word, "accuracy") != 0) return bad(r, s.name, "\"metric\" is accuracy or mean_per_class");
    return prompts_add(r->ctx, r->out, r->name, &s);
}

cloob_status prompts_parse(cloob_ctx *ctx, const char *text, size_t size, const char *name, prompts *out)
{
    json *root;
    *out = (prompts){ 0 };
    reader r = { ctx, name, out };
    cloob_status status = json_parse(ctx, &out->memory, text, size, name, &root);
    if (status == CLOOB_OK && (root->kind != JSON_OBJECT || !root->count))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: needs an object of prompt sets by name, at least one", name);
    for (const json *x = status == CLOOB_OK ? root->child : NULL; x && status == CLOOB_OK; x = x->next)
        status = read_set(&r, x);
    if (status != CLOOB_OK) prompts_release(out);
    return status;
}

cloob_status prompts_open(cloob_ctx *ctx, const char *path, prompts *out)
{
    file_bytes file;
    *out = (prompts){ 0 };
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &file));
    cloob_status status = prompts_parse(ctx, file.data, file.size, path, out);
    file_bytes_release(&file);
    return status;
}

void prompts_release(prompts *p)
{
    arena_release(&p->memory);
    *p = (prompts){ 0 };
}

/* ---- writing --------------------------------------------------------------------------------------- */

static void put_list(json_out *w, const char *key, const prompt_list *l)
{
    json_begin(w, key, '[');
    for (int64_t i = 0; i < l->count; i++) json_put_text(w, NULL, l->item[i]);
    json_end(w);
}

void prompts_put(const prompts *p, sbuf *out)
{
    json_out w = { .spaced = true, .lines = 2 };
    json_begin(&w, NULL, '{');
    for (const prompt_set *s = p->set; s < p->set + p->count; s++) {
        json_begin(&w, s->name, '{');
        json_begin(&w, "classes", '[');
        for (int64_t i = 0; i < s->class_count; i++)
            if (s->classes[i].count > 1) put_list(&w, NULL, &s->classes[i]);
            else json_put_text(&w, NULL, s->classes[i].item[0]);
        json_end(&w);
        put_list(&w, "templates", &s->templates);
        json_put_text(&w, "metric", s->metric == PROMPT_MEAN_PER_CLASS ? "mean_per_class" : "accuracy");
        json_end(&w);
    }
    json_end(&w);
    json_out_append(&w, out);
}

cloob_status prompts_save(cloob_ctx *ctx, const prompts *p, const char *path)
{
    sbuf text = { 0 };
    prompts_put(p, &text);
    return file_write_text(ctx, path, &text);
}
