/* JSON to chart. */
#include "lab/report/report.h"

#include <string.h>

#include "core/json.h"
#include "lab/report/export.h"

typedef struct reader {
    cloob_ctx *ctx;
    const char *path;
    arena *a;
} reader;

static cloob_status bad(const reader *r, const char *what)
{
    return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: %s", r->path, what);
}

static const char *text_of(const json *o, const char *key)
{
    const char *s = json_string(json_get(o, key));
    return s ? s : "";
}

static bool flag(const json *o, const char *key)
{
    const json *v = json_get(o, key);
    return v && v->kind == JSON_BOOL && v->boolean;
}

/* n numbers under a key. */
static cloob_status numbers(const reader *r, const json *o, const char *key, int64_t n, double **out)
{
    const json *list = json_get(o, key);
    int64_t i = 0;
    if (!list || list->kind != JSON_ARRAY || list->count != n)
        return ctx_fail(r->ctx, CLOOB_ERR_FORMAT, "%s: \"%s\" of series \"%.60s\" must be a list of %lld numbers",
                        r->path, key, text_of(o, "name"), (long long)n);
    *out = arena_push(r->a, (size_t)(n + 1) * sizeof **out);
    if (!*out) return ctx_no_memory(r->ctx, (size_t)n * sizeof **out, r->path);
    for (const json *v = list->child; v; v = v->next) {
        if (v->kind != JSON_NUMBER) return bad(r, "a list holds something that is no number");
        (*out)[i++] = v->number;
    }
    return CLOOB_OK;
}

static cloob_status add_series(const reader *r, const json *o, chart *c)
{
    const json *points = json_get(o, "y");
    int64_t n = points && points->kind == JSON_ARRAY ? points->count : 0, color = c->count;
    double *x, *y, *low = NULL, *high = NULL;
    CLOOB_TRY(numbers(r, o, "x", n, &x));
    CLOOB_TRY(numbers(r, o, "y", n, &y));
    if (json_get(o, "low")) CLOOB_TRY(numbers(r, o, "low", n, &low));
    if (low) CLOOB_TRY(numbers(r, o, "high", n, &high));
    json_int(json_get(o, "color"), &color);
    chart_series *s = chart_add(r->a, c, text_of(o, "name"), (int)(color & 7), n);
    if (!s) return ctx_no_memory(r->ctx, (size_t)n * sizeof(double), r->path);
    for (int64_t i = 0; i < n; i++) {
        if (low) chart_band_point(r->a, c, s, n, x[i], y[i], low[i], high[i]);
        else chart_point(c, s, x[i], y[i]);
    }
    return CLOOB_OK;
}

static cloob_status read_categories(const reader *r, const json *list, chart *c)
{
    if (!list) return CLOOB_OK;
    const char **name = arena_push(r->a, (size_t)(list->count + 1) * sizeof *name);
    if (!name) return ctx_no_memory(r->ctx, (size_t)list->count * sizeof *name, r->path);
    for (const json *v = list->child; v; v = v->next) {
        if (!json_string(v)) return bad(r, "\"categories\" must be a list of texts");
        name[c->categories++] = json_string(v);
    }
    c->category = name;
    return CLOOB_OK;
}

static cloob_status read_chart(const reader *r, const json *root, chart *c)
{
    const json *series = json_get(root, "series");
    *c = (chart){ .title = text_of(root, "title"),
                  .x_label = text_of(root, "x_label"),
                  .y_label = text_of(root, "y_label") };
    c->log_y = flag(root, "log_y"), c->from_zero = flag(root, "from_zero"), c->bars = flag(root, "bars");
    CLOOB_TRY(read_categories(r, json_get(root, "categories"), c));
    for (const json *s = series ? series->child : NULL; s; s = s->next) CLOOB_TRY(add_series(r, s, c));
    if (c->bars && !c->category) return bad(r, "bars need \"categories\"");
    return chart_points(c) ? CLOOB_OK : bad(r, "\"series\" holds no point");
}

static cloob_status draw_file(cloob_ctx *ctx, const char *path, export_files *e)
{
    arena a = { 0 };
    reader r = { ctx, path, &a };
    json *root;
    chart c;
    cloob_status status = json_read_file(ctx, &a, path, &root);
    if (status == CLOOB_OK && !*text_of(root, "name")) status = bad(&r, "needs a \"name\" for the files");
    if (status == CLOOB_OK && strpbrk(text_of(root, "name"), "/\\"))
        status = bad(&r, "\"name\" is a file name, not a path");
    if (status == CLOOB_OK) status = read_chart(&r, root, &c);
    if (status == CLOOB_OK && !export_chart_as(e, text_of(root, "name"), &c, NULL) && e->status == CLOOB_OK)
        status = ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, CHART_NO_CAIRO);
    arena_release(&a);
    return status == CLOOB_OK ? e->status : status;
}

cloob_status figure_file_write(cloob_ctx *ctx, const char *path, const char *dir)
{
    export_files e;
    export_begin(&e, ctx, dir, dir);
    cloob_status status = e.status == CLOOB_OK ? draw_file(ctx, path, &e) : e.status;
    export_end(&e);
    return status;
}
