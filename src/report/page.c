/* What the sections share. */
#include "report/page.h"

#include <stdio.h>
#include <string.h>

enum { COLORS = 8 };

void page_heading(page *p, const char *id, const char *title, const char *lead)
{
    sbuf_printf(&p->html, "<h2 id=\"%s\">%s</h2>\n", id, title);
    if (lead) sbuf_printf(&p->html, "<p class=\"lead\">%s</p>\n", lead);
}

void page_chart(page *p, const chart *c)
{
    sbuf links = { 0 };
    if (!chart_points(c)) return;
    export_chart(&p->files, c, &links);
    chart_put(&p->html, c, links.data);
    p->charts++;
    p->failed |= links.failed;
    sbuf_release(&links);
}

chart_series *page_series(page *p, chart *c, const char *name, int color, int64_t n)
{
    chart_series *s = chart_add(p->memory, c, name, color, n);
    if (!s) p->failed = true;
    return s;
}

int page_color(const page *p, int64_t run)
{
    int color = 0;
    if (p->runs <= COLORS) return (int)run;
    for (int64_t i = 0; i < run; i++) { /* methods in order of first appearance */
        bool repeated = false;
        if (strcmp(p->run[i].method, p->run[run].method) == 0) return page_color(p, i);
        for (int64_t k = 0; k < i; k++) repeated |= strcmp(p->run[k].method, p->run[i].method) == 0;
        color += !repeated;
    }
    return color;
}

const char *page_group(const page *p, int64_t run) { return p->runs > COLORS ? p->run[run].method : NULL; }

static void add_results(page *p, chart *c, int64_t run, const char *key, const char *name, int color)
{
    const run_files *r = &p->run[run];
    chart_series *s = page_series(p, c, name, color, r->results);
    if (s) s->group = page_group(p, run);
    for (int64_t i = 0; s && i < r->results; i++) {
        const json *x = json_get(r->result[i], "epoch"), *y = json_get(r->result[i], key);
        if (y && y->kind == JSON_NUMBER)
            chart_point(c, s, x && x->kind == JSON_NUMBER ? x->number : (double)(i + 1), y->number);
    }
}

void page_result_charts(page *p, const char *title, const char *y_label, const char *const *key,
                        const char *const *label, int64_t keys)
{
    if (p->runs == 1) {
        chart c = { .title = title, .x_label = "epoch", .y_label = y_label, .from_zero = strcmp(y_label, "loss") != 0 };
        for (int64_t k = 0; k < keys; k++) add_results(p, &c, 0, key[k], label[k], (int)k);
        page_chart(p, &c);
        return;
    }
    for (int64_t k = 0; k < keys; k++) {
        char both[160];
        snprintf(both, sizeof both, "%s: %s", title, label[k]);
        chart c = { .title = keys > 1 ? both : title,
                    .x_label = "epoch",
                    .y_label = y_label,
                    .from_zero = strcmp(y_label, "loss") != 0 };
        for (int64_t i = 0; i < p->runs; i++) add_results(p, &c, i, key[k], p->run[i].name, page_color(p, i));
        page_chart(p, &c);
    }
}
