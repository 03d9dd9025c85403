/* What the sections share; numbers, beginning and end of every HTML page. */
#include "lab/report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { COLORS = 8 };

void page_heading(page *p, const char *id, const char *title, const char *lead)
{
    sbuf_printf(&p->html, "<h2 id=\"%s\">%s</h2>\n", id, title);
    if (lead) sbuf_printf(&p->html, "<p class=\"lead\">%s</p>\n", lead);
}

void page_chart(page *p, const chart *c)
{
    chart mean;
    sbuf links = { 0 };
    if (!chart_mean(p->memory, c, &mean)) {
        p->failed = true;
        return;
    }
    if (!chart_points(&mean)) return;
    export_chart(&p->files, &mean, &links);
    chart_put(&p->html, &mean, links.data);
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

/* ---- runs of the same settings ------------------------------------------------------------------- */

bool page_is_incidental(const char *key)
{
    static const char *const names[] = { "name",       "seed",    "logs",    "resume",          "save_frequency",
                                         "save_every", "workers", "threads", "val_frequency",   "log_every_n_steps",
                                         "report_to",  "quiet",   "device",  "save_most_recent" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

static bool same_settings(const run_files *a, const run_files *b)
{
    if (!a->params || a->params != b->params || strcmp(a->method, b->method) != 0) return false;
    for (int64_t i = 0; i < a->params; i++) {
        const char *key = a->param[i].key;
        if (!page_is_incidental(key) && strcmp(a->param[i].value, run_param_get(b, key)) != 0) return false;
    }
    return true;
}

cloob_status page_find_repeats(page *p)
{
    p->first_repeat = arena_push(p->memory, (size_t)(p->runs + 1) * sizeof *p->first_repeat);
    if (!p->first_repeat) return ctx_no_memory(p->ctx, (size_t)p->runs * sizeof *p->first_repeat, "runs");
    for (int64_t i = 0; i < p->runs; i++) {
        p->first_repeat[i] = i;
        for (int64_t k = 0; k < i && p->first_repeat[i] == i; k++)
            if (p->first_repeat[k] == k && same_settings(&p->run[k], &p->run[i])) p->first_repeat[i] = k;
    }
    return CLOOB_OK;
}

int64_t page_first_repeat(const page *p, int64_t run) { return p->first_repeat ? p->first_repeat[run] : run; }

static bool has_repeats(const page *p)
{
    for (int64_t i = 0; i < p->runs; i++)
        if (page_first_repeat(p, i) != i) return true;
    return false;
}

const char *page_group_name(const page *p, int64_t run)
{
    int64_t first = page_first_repeat(p, run);
    for (int64_t i = 0; i < p->runs; i++) { /* two settings of one method are distinguished by names of runs */
        bool other = page_first_repeat(p, i) == i && i != first && strcmp(p->run[i].method, p->run[first].method) == 0;
        if (other) return p->run[first].name;
    }
    return *p->run[first].method ? p->run[first].method : p->run[first].name;
}

int page_color(const page *p, int64_t run)
{
    int color = 0;
    bool repeats = has_repeats(p);
    if (!repeats && p->runs <= COLORS) return (int)run;
    for (int64_t i = 0; repeats && i < page_first_repeat(p, run); i++) color += page_first_repeat(p, i) == i;
    for (int64_t i = 0; !repeats && i < run; i++) { /* methods in order of first appearance */
        bool repeated = false;
        if (strcmp(p->run[i].method, p->run[run].method) == 0) return page_color(p, i);
        for (int64_t k = 0; k < i; k++) repeated |= strcmp(p->run[k].method, p->run[i].method) == 0;
        color += !repeated;
    }
    return color;
}

void page_join(const page *p, int64_t run, chart_series *s)
{
    if (!s) return;
    s->repeat = has_repeats(p);
    s->group = s->repeat ? page_group_name(p, run) : p->runs > COLORS ? p->run[run].method : NULL;
}

static void add_results(page *p, chart *c, int64_t run, const char *key, const char *name, int color)
{
    const run_files *r = &p->run[run];
    chart_series *s = page_series(p, c, name, color, r->results);
    page_join(p, run, s);
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

/* ---- HTML ---------------------------------------------------------------------------------------- */

void html_number(sbuf *s, double value)
{
    double size = fabs(value);
    if (!isfinite(value)) sbuf_puts(s, "&ndash;");
    else if (value == floor(value) && size < 1e9) sbuf_printf(s, "%.0f", value);
    else if (size >= 1000) sbuf_printf(s, "%.0f", value);
    else sbuf_printf(s, "%.4g", value);
}

void html_page_begin(sbuf *s, const char *title)
{
    sbuf_puts(s, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link "
                 "rel=\"icon\" href=\"data:,\">\n<title>");
    html_text(s, title);
    sbuf_puts(s, "</title>\n<style>\n");
    sbuf_add(s, asset_tokens_css, asset_tokens_css_bytes);
    sbuf_add(s, asset_page_css, asset_page_css_bytes);
    sbuf_puts(s, "</style>\n</head>\n<body>\n<main>\n<h1>");
    html_text(s, title);
    sbuf_puts(s, "</h1>\n");
}

void html_page_end(sbuf *s)
{
    char when[40];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&now, &tm));
    sbuf_printf(s, "<footer>Written %s by cloob %s.</footer>\n</main>\n", when, cloob_version());
    sbuf_puts(s, "</body>\n</html>\n");
}
