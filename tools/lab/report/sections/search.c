/* What a sweep's search found: how the number that was chosen by answers to each setting, and how much each matters. */
#include <math.h>
#include <stdio.h>

#include "lab/report/page.h"

static int64_t count(const json *array)
{
    int64_t n = 0;
    for (const json *v = array ? array->child : NULL; v; v = v->next) n++;
    return n;
}

/* The values of an axis as categories. */
static const char **names_of(page *p, const json *values, int64_t n)
{
    const char **name = arena_push(p->memory, (size_t)(n + 1) * sizeof *name);
    int64_t i = 0;
    if (!name) p->failed = true;
    for (const json *v = values->child; name && v; v = v->next) {
        name[i] = json_string(json_get(v, "value"));
        if (!name[i++]) return NULL;
    }
    return name;
}

/* One line per group: the mean over the settings with this value, the band from the worst to the best of them. */
static void add_group(page *p, chart *c, const json *values, const char *group, int color)
{
    chart_series *s = page_series(p, c, *group ? group : "all", color, c->categories);
    int64_t i = 0;
    for (const json *v = values->child; s && v; v = v->next, i++) {
        const json *g = json_get(json_get(v, "groups"), group);
        double mean = json_get_number(g, "mean");
        if (!isfinite(mean)) continue;
        chart_band_point(p->memory, c, s, c->categories, (double)i, mean, json_get_number(g, "lowest"),
                         json_get_number(g, "highest"));
        if (!s->low || !s->high) p->failed = true;
    }
}

static void response(page *p, const json *axis, const char *select)
{
    char title[200];
    const char *name = json_string(json_get(axis, "name"));
    const json *values = json_get(axis, "values");
    int64_t n = count(values);
    const char **category = name && n > 1 ? names_of(p, values, n) : NULL;
    const json *groups = category ? json_get(values->child, "groups") : NULL;
    if (!groups) return;
    snprintf(title, sizeof title, "Response to %.100s", name);
    chart c = { .title = title,
                .x_label = name,
                .y_label = select,
                .note = "Mean over the settings with this value, which differ in all others; the band goes from the "
                        "worst of them to the best.",
                .category = category,
                .categories = n };
    int color = 0;
    for (const json *g = groups->child; g; g = g->next) add_group(p, &c, values, g->key, color++);
    page_chart(p, &c);
}

static void importances(page *p, const json *axes)
{
    int64_t n = count(axes), i = 0;
    const char **name = arena_push(p->memory, (size_t)(n + 1) * sizeof *name);
    if (!name) {
        p->failed = true;
        return;
    }
    chart c = { .title = "Importance of the settings",
                .x_label = "",
                .y_label = "share of the variance, %",
                .note = "The share of the scores' variance that lies between the values of one setting.",
                .bars = true,
                .category = name,
                .categories = n };
    chart_series *s = page_series(p, &c, "all", 0, n);
    for (const json *a = axes->child; s && a; a = a->next, i++) {
        name[i] = json_string(json_get(a, "name"));
        if (!name[i]) return;
        chart_point(&c, s, (double)i, 100 * json_get_number(a, "importance"));
    }
    page_chart(p, &c);
}

void page_search(page *p)
{
    const json *axes = json_get(p->search, "axes");
    const char *select = json_string(json_get(p->search, "select"));
    if (!axes || axes->kind != JSON_ARRAY || !axes->child || !select) return;
    page_heading(
        p, "search", "Settings tried",
        "Every setting was trained and compared on validation data; the best of each group was trained again.");
    sbuf_puts(&p->html, "<div class=\"charts\">\n");
    for (const json *a = axes->child; a; a = a->next) response(p, a, select);
    importances(p, axes);
    sbuf_puts(&p->html, "</div>\n");
}
