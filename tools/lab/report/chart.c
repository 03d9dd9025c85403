/* Charts: their points, means over repeats, SVG and CSV. */
#include "lab/report/chart.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/arith.h"
#include "core/file.h"
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

int64_t chart_points(const chart *c)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < c->count; i++) longest = max64(longest, c->series[i].n);
    return longest;
}

/* ---- repeats of a run as one line: the mean over seeds, with a band of one standard deviation ------ */

static bool is_repeat_of(const chart_series *s, const chart_series *first)
{
    return s->group && s->n && strcmp(s->group, first->group) == 0;
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
    for (const chart_series *s = c->series; s < c->series + c->count; s++) {
        if (!is_repeat_of(s, first)) continue;
        if (!value_at(s, first->x[i], i, &y)) return false;
        sum += y, n++;
    }
    *mean = sum / (double)n;
    for (const chart_series *s = c->series; s < c->series + c->count; s++)
        if (is_repeat_of(s, first) && value_at(s, first->x[i], i, &y)) squares += (y - *mean) * (y - *mean);
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    return true;
}

static void add_mean(arena *a, const chart *c, const chart_series *first, chart *out)
{
    char name[200];
    int64_t n = 0;
    for (int64_t k = 0; k < c->count; k++) n += is_repeat_of(&c->series[k], first);
    snprintf(name, sizeof name, "%.150s, mean of %lld", first->group, (long long)n);
    chart_series *s = chart_add(a, out, name, first->color, first->n);
    s->low = must(arena_push(a, (size_t)(first->n + 1) * sizeof *s->low));
    s->high = must(arena_push(a, (size_t)(first->n + 1) * sizeof *s->high));
    for (int64_t i = 0; i < first->n; i++) {
        double mean, deviation;
        if (!spread_at(c, first, i, &mean, &deviation)) continue;
        double low = mean - deviation;
        s->low[s->n] = c->log_y && low <= 0 ? mean : low, s->high[s->n] = mean + deviation;
        chart_point(out, s, first->x[i], mean);
    }
}

chart chart_mean(arena *a, const chart *c)
{
    chart out = *c;
    out.series = NULL, out.count = out.room = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const chart_series *s = &c->series[i];
        bool seen = false;
        for (int64_t k = 0; s->group && k < i; k++) seen |= is_repeat_of(&c->series[k], s);
        if (!s->group) *chart_add(a, &out, s->name, s->color, 0) = *s;
        else if (s->n && !seen) add_mean(a, c, s, &out);
    }
    return out;
}

/* ---- axes: ticks at round numbers ------------------------------------------------------------------ */

enum { AXIS_TICKS = 24 };

typedef struct axis {
    double low, high; /* of the data, widened to ticks */
    bool log;
    int ticks;
    double tick[AXIS_TICKS];
} axis;

/* The smallest of 1, 2, 5 times a power of ten that is not below x. */
static double round_step(double x)
{
    double power = pow(10, floor(log10(x))), part = x / power;
    return power * (part <= 1 + 1e-9 ? 1 : part <= 2 + 1e-9 ? 2 : part <= 5 + 1e-9 ? 5 : 10);
}

static void init_log(axis *a, int wanted)
{
    int from = (int)floor(log10(a->low)), to = (int)ceil(log10(a->high));
    if (to == from) to++;
    int step = (to - from + wanted - 1) / wanted;
    for (int e = from; e <= to && a->ticks < AXIS_TICKS; e += step) a->tick[a->ticks++] = pow(10, e);
    a->low = pow(10, from), a->high = pow(10, to);
}

/* low <= high, finite; above 0 where log. At most about `wanted` ticks, at 1, 2 or 5 times a power of ten (log: at
 * powers of ten). */
static void init_axis(axis *a, double low, double high, bool log, int wanted)
{
    *a = (axis){ .low = low, .high = high, .log = log };
    if (log) {
        init_log(a, wanted);
        return;
    }
    if (!(high - low > 1e-12 * fmax(fabs(low), fabs(high)))) { /* one value: widen the axis a little */
        double room = low != 0 ? 0.1 * fabs(low) : 1;
        a->low = low - room, a->high = high + room;
    }
    double step = round_step((a->high - a->low) / wanted), first = floor(a->low / step + 1e-9);
    a->low = first * step;
    a->high = ceil(a->high / step - 1e-9) * step;
    for (int i = 0; i < AXIS_TICKS && (first + i) * step <= a->high + 0.5 * step; i++)
        a->tick[a->ticks++] = (first + i) * step;
}

/* 0 at low, 1 at high. */
static double axis_at(const axis *a, double value)
{
    if (a->log) return log(value / a->low) / log(a->high / a->low);
    return (value - a->low) / (a->high - a->low);
}

static void init_axes(const chart *c, axis *x, axis *y)
{
    double low[2] = { INFINITY, INFINITY }, high[2] = { -INFINITY, -INFINITY };
    bool whole = true; /* epochs and steps: no ticks between them */
    for (const chart_series *s = c->series; s < c->series + c->count; s++)
        for (int64_t k = 0; k < s->n; k++) {
            low[0] = fmin(low[0], s->x[k]), high[0] = fmax(high[0], s->x[k]);
            low[1] = fmin(low[1], s->low ? s->low[k] : s->y[k]),
            high[1] = fmax(high[1], s->high ? s->high[k] : s->y[k]);
            whole = whole && s->x[k] == floor(s->x[k]);
        }
    init_axis(x, low[0], high[0], false, whole ? (int)fmin(7, fmax(1, high[0] - low[0])) : 7);
    init_axis(y, c->fill || c->from_zero ? fmin(low[1], 0) : low[1], high[1], c->log_y, 6);
}

/* ---- SVG ------------------------------------------------------------------------------------------- */

enum {
    WIDTH = 560,
    HEIGHT = 300,
    LEFT = 66,
    RIGHT = 14,
    TOP = 10,
    BOTTOM = 46,
    HEADING = 26,
    LEGEND_ROW = 18,
    LEGEND_MARK = 22, /* from an entry's mark to its name */
    LEGEND_MOST = 24, /* entries */
    LETTER = 7        /* width of a wide letter of the font */
};

/* The colours of tokens.css in light; a page replaces them by their classes. */
static const char *const palette[8] = { "#2f5bd7", "#ad4a12", "#236b40", "#9a2196",
                                        "#866000", "#0b7080", "#b42253", "#64635e" };

typedef struct drawing {
    sbuf *out;
    axis x, y;
} drawing;

static double px(const drawing *d, double x) { return LEFT + axis_at(&d->x, x) * (WIDTH - LEFT - RIGHT); }
static double py(const drawing *d, double y) { return HEIGHT - BOTTOM - axis_at(&d->y, y) * (HEIGHT - BOTTOM - TOP); }

/* anchor: start, middle or end. A text wider than the available space is squeezed. */
static void put_text(sbuf *out, double x, double y, const char *anchor, int room, const char *text)
{
    html_put(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", x, y, anchor);
    if ((int)strlen(text) * LETTER > room)
        sbuf_printf(out, " textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\"", room);
    html_put(out, ">%s</text>\n", text);
}

static void put_tick(const drawing *d, const axis *a, int k, bool across)
{
    char text[40];
    double v = a->tick[k], at = across ? py(d, v) : px(d, v);
    if (!a->log && fabs(v) < 1e-9 * (a->high - a->low)) v = 0;
    snprintf(text, sizeof text, "%.4g", v);
    sbuf_printf(d->out, "<path class=\"line\" color=\"#e4e3de\" stroke=\"currentColor\" d=\"M%.1f %.1f%c%d\"/>",
                across ? LEFT : at, across ? at : TOP, across ? 'H' : 'V', across ? WIDTH - RIGHT : HEIGHT - BOTTOM);
    put_text(d->out, across ? LEFT - 6 : at, across ? at + 4 : HEIGHT - BOTTOM + 16, across ? "end" : "middle", LEFT,
             text);
}

static void put_axes(const drawing *d, const chart *c)
{
    double middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    sbuf_puts(d->out, "<g class=\"dim\" color=\"#64635e\" fill=\"currentColor\">\n");
    for (int i = 0; i < d->x.ticks; i++) put_tick(d, &d->x, i, false);
    for (int i = 0; i < d->y.ticks; i++) put_tick(d, &d->y, i, true);
    put_text(d->out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 5, "middle", WIDTH - LEFT, c->x_label);
    sbuf_printf(d->out, "<g transform=\"translate(13 %.1f) rotate(-90)\">", middle);
    put_text(d->out, 0, 0, "middle", HEIGHT - BOTTOM, c->y_label);
    sbuf_puts(d->out, "</g></g>\n");
}

static void put_points(const drawing *d, const double *x, const double *y, int64_t n, bool backwards)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t k = backwards ? n - 1 - i : i;
        sbuf_printf(d->out, "%.1f,%.1f ", px(d, x[k]), py(d, y[k]));
    }
}

static void put_series(const drawing *d, const chart *c, const chart_series *s)
{
    sbuf_printf(d->out, "<g class=\"c%d\" color=\"%s\" fill=\"currentColor\">\n", s->color % 8, palette[s->color % 8]);
    if (s->low && s->high) {
        sbuf_puts(d->out, "<polygon opacity=\".18\" points=\"");
        put_points(d, s->x, s->high, s->n, false), put_points(d, s->x, s->low, s->n, true);
        sbuf_puts(d->out, "\"/>\n");
    }
    if (c->fill) {
        sbuf_puts(d->out, "<polygon opacity=\".2\" points=\"");
        put_points(d, s->x, s->y, s->n, false);
        sbuf_printf(d->out, "%.1f,%d %.1f,%d\"/>\n", px(d, s->x[s->n - 1]), HEIGHT - BOTTOM, px(d, s->x[0]),
                    HEIGHT - BOTTOM);
    }
    sbuf_puts(d->out, "<polyline fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.8\" points=\"");
    put_points(d, s->x, s->y, s->n, false);
    sbuf_puts(d->out, "\"/>\n");
    for (int64_t i = 0; s->n <= 40 && i < s->n; i++) /* few points are marked: a line of one is invisible */
        sbuf_printf(d->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\"/>\n", px(d, s->x[i]), py(d, s->y[i]));
    sbuf_puts(d->out, "</g>\n");
}

/* Two columns, or one where a name may be wider than a column. */
static int legend_columns(const chart *c)
{
    for (int64_t i = 0; i < c->count; i++)
        if (LEGEND_MARK + LETTER * (int)strlen(c->series[i].name) > (WIDTH - LEFT - RIGHT) / 2) return 1;
    return 2;
}

/* One series needs no legend. */
static int64_t legend_entries(const chart *c) { return c->count > 1 ? min64(c->count, LEGEND_MOST) : 0; }

static void put_legend(sbuf *out, const chart *c)
{
    int columns = legend_columns(c), wide = (WIDTH - LEFT - RIGHT) / columns;
    for (int64_t i = 0; i < legend_entries(c); i++) {
        int x = LEFT + wide * (int)(i % columns), y = HEIGHT + LEGEND_ROW * (int)(i / columns) + 12;
        bool last = i + 1 == LEGEND_MOST && c->count > LEGEND_MOST;
        sbuf_printf(
            out, "<rect class=\"c%d\" color=\"%s\" fill=\"currentColor\" x=\"%d\" y=\"%d\" width=\"16\" height=\"3\"/>",
            c->series[i].color % 8, palette[c->series[i].color % 8], x, y - 6);
        put_text(out, x + LEGEND_MARK, y, "start", wide - LEGEND_MARK, last ? "and others" : c->series[i].name);
    }
}

void chart_svg(sbuf *out, const chart *c, bool alone)
{
    drawing d = { .out = out };
    int columns = legend_columns(c), head = alone ? HEADING : 0;
    int height = HEIGHT + head + LEGEND_ROW * (int)((legend_entries(c) + columns - 1) / columns) + 4;
    init_axes(c, &d.x, &d.y);
    html_put(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" aria-label=\"%s\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n",
        c->title, WIDTH, height);
    if (alone) {
        sbuf_puts(out, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<g font-size=\"14\">");
        put_text(out, WIDTH / 2.0, HEADING - 8, "middle", WIDTH - 2 * RIGHT, c->title);
        sbuf_printf(out, "</g><g transform=\"translate(0 %d)\">\n", HEADING);
    }
    put_axes(&d, c);
    for (int64_t i = 0; i < c->count; i++)
        if (c->series[i].n) put_series(&d, c, &c->series[i]);
    sbuf_puts(out, "<g class=\"ink\" color=\"#1d1d1b\" fill=\"currentColor\">\n");
    put_legend(out, c);
    sbuf_puts(out, alone ? "</g></g></svg>\n" : "</g></svg>\n");
}

/* A single point is shown as a number. */
static void put_numbers(sbuf *html, const chart *c)
{
    sbuf_puts(html, "<div class=\"numbers\">");
    for (int64_t i = 0; i < c->count; i++)
        if (c->series[i].n)
            html_put(html, "<div><b>%s</b> <span>%s</span></div>", NUMBER(c->series[i].y[0]), c->series[i].name);
    sbuf_puts(html, "</div>");
}

void chart_put(sbuf *html, const chart *c)
{
    bool single = chart_points(c) == 1;
    html_put(html, "<figure class=\"chart%s\"><figcaption>%s</figcaption>", single ? " single" : "", c->title);
    if (single) put_numbers(html, c);
    else chart_svg(html, c, false);
    if (c->note) html_put(html, "<p class=\"note\">%s</p>", c->note);
    sbuf_puts(html, "</figure>\n");
}

/* ---- files ----------------------------------------------------------------------------------------- */

/* "Recall, image to text" -> "recall-image-to-text" */
static void name_of(const char *title, char out[96])
{
    size_t n = 0;
    for (const char *c = title; *c && n < 90; c++) {
        if (isalnum((unsigned char)*c)) out[n++] = (char)tolower((unsigned char)*c);
        else if (n && out[n - 1] != '-') out[n++] = '-';
    }
    while (n && out[n - 1] == '-') n--;
    out[n] = '\0';
}

/* A row for each point; with low and high where a series has a band. */
static void put_csv(sbuf *out, const chart *c)
{
    grid g = { .columns = 3, .format = "%.9g" };
    for (int64_t i = 0; i < c->count; i++)
        if (c->series[i].low) g.columns = 5;
    grid_texts(&g, "series", c->x_label, c->y_label);
    if (g.columns == 5) grid_texts(&g, "low", "high");
    for (const chart_series *s = c->series; s < c->series + c->count; s++)
        for (int64_t k = 0; k < s->n; k++) {
            grid_text(&g, s->name), grid_number(&g, s->x[k]), grid_number(&g, s->y[k]);
            if (g.columns == 5) grid_number(&g, s->low ? s->low[k] : NAN), grid_number(&g, s->high ? s->high[k] : NAN);
        }
    grid_put(&g, GRID_CSV, out);
    grid_release(&g);
}

cloob_status chart_write(cloob_ctx *ctx, const chart *c, const char *dir)
{
    char name[96], file[112];
    sbuf svg = { 0 }, csv = { 0 };
    name_of(c->title, name);
    chart_svg(&svg, c, true);
    put_csv(&csv, c);
    snprintf(file, sizeof file, "%s.svg", name);
    cloob_status status = file_write_in(ctx, dir, file, &svg);
    snprintf(file, sizeof file, "%s.csv", name);
    if (status == CLOOB_OK) status = file_write_in(ctx, dir, file, &csv);
    sbuf_release(&svg), sbuf_release(&csv);
    return status;
}
