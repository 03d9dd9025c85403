/* Charts drawn by Chart.js (MIT licence), whose script the page carries. Data travel as JSON beside each
 * canvas. */
#include "lab/report/page.h"
#include "lab/report/chart.h"
#include "lab/report/html.h"

static void put_values(json_out *w, const char *key, const double *value, int64_t n)
{
    json_begin(w, key, '[');
    for (int64_t i = 0; i < n; i++) json_put_digits(w, NULL, value[i], 7);
    json_end(w);
}

static void put_series(json_out *w, const chart_series *s)
{
    json_begin(w, NULL, '{');
    json_put_text(w, "name", s->name);
    json_put_text(w, "group", s->group);
    json_put_int(w, "color", s->color);
    json_begin(w, "x", '[');
    for (int64_t i = 0; i < s->n; i++) json_put_number(w, NULL, s->x[i]);
    json_end(w);
    put_values(w, "y", s->y, s->n);
    if (s->low && s->high) {
        put_values(w, "low", s->low, s->n);
        put_values(w, "high", s->high, s->n);
    }
    json_end(w);
}

static void put_data(json_out *w, const chart *c)
{
    json_begin(w, NULL, '{');
    json_put_text(w, "x", c->x_label);
    json_put_text(w, "y", c->y_label);
    json_put_bool(w, "log", c->log_y);
    json_put_bool(w, "fill", c->fill);
    json_put_bool(w, "zero", c->from_zero);
    if (c->category) {
        json_put_bool(w, "bars", c->bars);
        json_begin(w, "categories", '[');
        for (int64_t i = 0; i < c->categories; i++) json_put_text(w, NULL, c->category[i]);
        json_end(w);
    }
    json_begin(w, "series", '[');
    for (int64_t i = 0; i < c->count; i++)
        if (c->series[i].n) put_series(w, &c->series[i]);
    json_end(w);
    json_end(w);
}

void chart_put_body(sbuf *html, const chart *c)
{
    json_out w = { 0 };
    sbuf_puts(html, "<div class=\"plot\"><canvas role=\"img\" aria-label=\"");
    html_text(html, c->title);
    sbuf_puts(html, "\"></canvas></div><script type=\"application/json\">");
    put_data(&w, c);
    html_json(html, &w);
    sbuf_puts(html, "</script>");
}

void chart_put_scripts(sbuf *html)
{
    sbuf_puts(html, "<script type=\"text/plain\" title=\"licence of Chart.js\">\n");
    sbuf_add(html, asset_chart_licence, asset_chart_licence_bytes);
    sbuf_puts(html, "</script>\n<script>\n");
    sbuf_add(html, asset_chart_js, asset_chart_js_bytes);
    sbuf_puts(html, "\n</script>\n<script>\n");
    sbuf_add(html, asset_page_js, asset_page_js_bytes);
    sbuf_puts(html, "</script>\n");
}
