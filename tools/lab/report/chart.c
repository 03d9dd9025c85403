/* Charts: their points, means over repeats, and the figure in a page. */
#include "lab/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "lab/grid.h"
#include "lab/memory.h"

chart_series *chart_add(arena *a, chart *c, const char *name, int color, int64_t n)
{
    c->series = must(arena_grow(a, c->series, c->count, &c->room, 8, sizeof *c->series));
    c->series[c->count] = (chart_series){ .name = must(arena_string(a, name)),
                                          .color = color,
                                          .x = must(arena_push(a, (size_t)(n + 1) * sizeof(double))),
                                          .y = must(arena_push(a, (size_t)(n + 1) * sizeof(double))) };
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
    if (!s->low) s->low = must(arena_push(a, (size_t)(room + 1) * sizeof *s->low));
    if (!s->high) s->high = must(arena_push(a, (size_t)(room + 1) * sizeof *s->high));
    chart_point(c, s, x, y);
    if (s->n == n) return;
    s->low[n] = !isfinite(low) || (c->log_y && low <= 0) ? y : low;
    s->high[n] = isfinite(high) ? high : y;
}

/* A single point is no curve: its number says more. */
static void put_numbers(sbuf *html, const chart *c)
{
    sbuf_puts(html, "<div class=\"numbers\">");
    for (int64_t i = 0; i < c->count; i++)
        if (c->series[i].n)
            html_put(html, "<div><b>%s</b> <span>%s</span></div>", NUMBER(c->series[i].y[0]), c->series[i].name);
    sbuf_puts(html, "</div>");
}

int64_t chart_points(const chart *c)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < c->count; i++) longest = c->series[i].n > longest ? c->series[i].n : longest;
    return longest;
}

/* Without cairo: the ends and extremes of every series. */
static void put_list(sbuf *html, const chart *c)
{
    grid g = { .columns = 5 };
    grid_texts(&g, "", "first", "last", "smallest", "largest");
    for (const chart_series *s = c->series; s < c->series + c->count; s++) {
        double low = INFINITY, high = -INFINITY;
        if (!s->n) continue;
        for (int64_t i = 0; i < s->n; i++) low = fmin(low, s->y[i]), high = fmax(high, s->y[i]);
        grid_text(&g, s->name);
        grid_number(&g, s->y[0]), grid_number(&g, s->y[s->n - 1]), grid_number(&g, low), grid_number(&g, high);
    }
    grid_put(&g, GRID_HTML, html);
    grid_release(&g);
}

void chart_put(sbuf *html, const chart *c, const char *links)
{
    sbuf svg = { 0 };
    int64_t longest = chart_points(c);
    if (!longest) return;
    bool single = longest == 1 && !c->category;
    html_put(html, "<figure class=\"chart%s\"><figcaption>%s</figcaption>", single ? " single" : "", c->title);
    if (single) put_numbers(html, c);
    else if (chart_draw(&svg, c, CHART_IN_PAGE)) {
        /* an image rather than inline SVG: cairo's names of glyphs would clash with those of the next chart; dark mode
         * inverts it (page.css) */
        html_put(html, "<img class=\"drawn\" alt=\"%s\" src=\"data:image/svg+xml;base64,", c->title);
        base64_put(html, svg.data, svg.len);
        sbuf_puts(html, "\">");
        html->failed |= svg.failed;
    } else put_list(html, c);
    if (c->note) html_put(html, "<p class=\"note\">%s</p>", c->note);
    if (links) sbuf_printf(html, "<p class=\"links\">%s</p>", links);
    sbuf_puts(html, "</figure>\n");
    sbuf_release(&svg);
}

/* ---- repeats of a run as one line: the mean over seeds, with a band of one standard deviation ------ */

static bool is_repeat_of(const chart_series *s, const chart_series *first)
{
    return s->repeat && s->group && strcmp(s->group, first->group) == 0;
}

/* y of the series at x; false: it has no such point. Points of repeats mostly have the same index. */
static bool value_at(const chart_series *s, double x, int64_t guess, double *y)
{
    if (guess < s->n && s->x[guess] == x) return *y = s->y[guess], true;
    for (int64_t i = 0; i < s->n; i++)
        if (s->x[i] == x) return *y = s->y[i], true;
    return false;
}

/* Mean and deviation over all repeats at point i of the first; false where one of them has no value. */
static bool spread_at(const chart *c, const chart_series *first, int64_t i, double *mean, double *deviation)
{
    double sum = 0, squares = 0, y;
    int64_t n = 0;
    for (int64_t k = 0; k < c->count; k++) {
        const chart_series *s = &c->series[k];
        if (!is_repeat_of(s, first) || !s->n) continue;
        if (!value_at(s, first->x[i], i, &y)) return false;
        sum += y, n++;
    }
    *mean = sum / (double)n;
    for (int64_t k = 0; k < c->count; k++) {
        const chart_series *s = &c->series[k];
        if (is_repeat_of(s, first) && value_at(s, first->x[i], i, &y)) squares += (y - *mean) * (y - *mean);
    }
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    return true;
}

static void add_mean(arena *a, const chart *c, const chart_series *first, chart *out)
{
    char name[200];
    int64_t n = 0;
    for (int64_t k = 0; k < c->count; k++) n += is_repeat_of(&c->series[k], first) && c->series[k].n;
    snprintf(name, sizeof name, "%.150s, mean of %lld", first->group, (long long)n);
    chart_series *s = chart_add(a, out, name, first->color, first->n);
    for (int64_t i = 0; i < first->n; i++) {
        double mean, deviation;
        if (spread_at(c, first, i, &mean, &deviation))
            chart_band_point(a, out, s, first->n, first->x[i], mean, mean - deviation, mean + deviation);
    }
}

chart chart_mean(arena *a, const chart *c)
{
    chart out = *c;
    out.series = NULL, out.count = out.room = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const chart_series *s = &c->series[i];
        bool seen = false;
        for (int64_t k = 0; s->repeat && k < i; k++) seen |= is_repeat_of(&c->series[k], s) && c->series[k].n;
        if (s->repeat && s->n && !seen) add_mean(a, c, s, &out);
        if (!s->repeat) *chart_add(a, &out, s->name, s->color, 0) = *s;
    }
    return out;
}
