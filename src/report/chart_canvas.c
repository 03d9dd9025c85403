/* Charts drawn by Chart.js (MIT licence), whose script the page carries. Data travel as JSON beside each
 * canvas. */
#include "core/json.h"
#include "report/page.h"
#include "report/chart.h"
#include "report/html.h"

static void put_values(sbuf *html, const double *value, int64_t n)
{
    for (int64_t i = 0; i < n; i++) sbuf_printf(html, "%s%.7g", i ? "," : "", value[i]);
}

static void put_series(sbuf *html, const chart_series *s)
{
    sbuf_puts(html, "{\"name\":");
    html_json_string(html, s->name);
    sbuf_puts(html, ",\"group\":");
    if (s->group) html_json_string(html, s->group);
    else sbuf_puts(html, "null");
    sbuf_printf(html, ",\"color\":%d,\"x\":[", s->color);
    for (int64_t i = 0; i < s->n; i++) {
        if (i) sbuf_putc(html, ',');
        json_put_number(html, s->x[i]);
    }
    sbuf_puts(html, "],\"y\":[");
    put_values(html, s->y, s->n);
    if (s->low && s->high) {
        sbuf_puts(html, "],\"low\":[");
        put_values(html, s->low, s->n);
        sbuf_puts(html, "],\"high\":[");
        put_values(html, s->high, s->n);
    }
    sbuf_puts(html, "]}");
}

static void put_categories(sbuf *html, const chart *c)
{
    sbuf_printf(html, ",\"bars\":%s,\"categories\":[", c->bars ? "true" : "false");
    for (int64_t i = 0; i < c->categories; i++) {
        if (i) sbuf_putc(html, ',');
        html_json_string(html, c->category[i]);
    }
    sbuf_putc(html, ']');
}

void chart_put_body(sbuf *html, const chart *c)
{
    bool first = true;
    sbuf_puts(html, "<div class=\"plot\"><canvas role=\"img\" aria-label=\"");
    html_text(html, c->title);
    sbuf_puts(html, "\"></canvas></div><script type=\"application/json\">{\"x\":");
    html_json_string(html, c->x_label);
    sbuf_puts(html, ",\"y\":");
    html_json_string(html, c->y_label);
    sbuf_printf(html, ",\"log\":%s,\"fill\":%s,\"zero\":%s", c->log_y ? "true" : "false", c->fill ? "true" : "false",
                c->from_zero ? "true" : "false");
    if (c->category) put_categories(html, c);
    sbuf_puts(html, ",\"series\":[");
    for (int64_t i = 0; i < c->count; i++) {
        if (!c->series[i].n) continue;
        if (!first) sbuf_putc(html, ',');
        put_series(html, &c->series[i]);
        first = false;
    }
    sbuf_puts(html, "]}</script>");
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
