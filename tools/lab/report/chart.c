/* What all kinds of charts share. */
#include "lab/report/chart.h"

#include <math.h>
#include <string.h>

#include "lab/report/html.h"

chart_series *chart_add(arena *a, chart *c, const char *name, int color, int64_t n)
{
    chart_series *all = arena_grow(a, c->series, c->count, &c->room, 8, sizeof *all);
    if (!all) return NULL;
    c->series = all;
    chart_series s = { .name = arena_string(a, name), .color = color };
    s.x = arena_push(a, (size_t)(n + 1) * sizeof *s.x);
    s.y = arena_push(a, (size_t)(n + 1) * sizeof *s.y);
    if (!s.name || !s.x || !s.y) return NULL;
    c->series[c->count] = s;
    return &c->series[c->count++];
}

void chart_point(const chart *c, chart_series *s, double x, double y)
{
    if (!isfinite(x) || !isfinite(y) || (c->log_y && y <= 0)) return;
    s->x[s->n] = x;
    s->y[s->n++] = y;
}

void chart_band_point(arena *a, const chart *c, chart_series *s, int64_t room, double x, double y, double low,
                      double high)
{
    int64_t n = s->n;
    if (!s->low) s->low = arena_push(a, (size_t)(room + 1) * sizeof *s->low);
    if (!s->high) s->high = arena_push(a, (size_t)(room + 1) * sizeof *s->high);
    chart_point(c, s, x, y);
    if (s->n == n || !s->low || !s->high) return;
    s->low[n] = !isfinite(low) || (c->log_y && low <= 0) ? y : low;
    s->high[n] = isfinite(high) ? high : y;
}

/* A single point is no curve: its number says more. */
static void put_numbers(sbuf *html, const chart *c)
{
    sbuf_puts(html, "<div class=\"numbers\">");
    for (int64_t i = 0; i < c->count; i++) {
        if (!c->series[i].n) continue;
        sbuf_puts(html, "<div><b>");
        html_number(html, c->series[i].y[0]);
        sbuf_puts(html, "</b> <span>");
        html_text(html, c->series[i].name);
        sbuf_puts(html, "</span></div>");
    }
    sbuf_puts(html, "</div>");
}

int64_t chart_points(const chart *c)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < c->count; i++) longest = c->series[i].n > longest ? c->series[i].n : longest;
    return longest;
}

void chart_put(sbuf *html, const chart *c, const char *links)
{
    int64_t longest = chart_points(c);
    if (!longest) return;
    sbuf_printf(html, "<figure class=\"chart%s\"><figcaption>", longest == 1 && !c->category ? " single" : "");
    html_text(html, c->title);
    sbuf_puts(html, "</figcaption>");
    if (longest == 1 && !c->category) put_numbers(html, c);
    else chart_put_body(html, c);
    if (c->note) {
        sbuf_puts(html, "<p class=\"note\">");
        html_text(html, c->note);
        sbuf_puts(html, "</p>");
    }
    if (links) sbuf_printf(html, "<p class=\"links\">%s</p>", links);
    sbuf_puts(html, "</figure>\n");
}
