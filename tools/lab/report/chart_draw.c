/* Charts drawn by cairo. */
#include "lab/report/chart.h"

#include <math.h>
#include <string.h>
#include <stdio.h>

#include "lab/cairo_library.h"

enum {
    WIDTH = 560,
    HEIGHT = 300,
    LEFT = 66,
    RIGHT = 14,
    TOP = 10,
    BOTTOM = 46,
    HEADING = 26,
    LEGEND_ROW = 18,
    LEGEND_MARK = 22 /* from an entry's mark to its name */
};

typedef struct drawing {
    cairo_t *cr;
    chart_axis x, y;
} drawing;

static const double palette[8][3] = { { .16, .44, .86 }, { .85, .28, .06 }, { .09, .50, .24 }, { .64, .13, .62 },
                                      { .65, .46, .00 }, { .04, .54, .60 }, { .76, .15, .36 }, { .36, .40, .47 } };

static void use_color(cairo_t *cr, int color, double alpha)
{
    const double *c = palette[color % 8];
    cairo.set_source_rgba(cr, c[0], c[1], c[2], alpha);
}

/* ---- ticks at round numbers ---- */

/* The smallest of 1, 2, 5 times a power of ten that is not below x. */
static double round_step(double x)
{
    double power = pow(10, floor(log10(x))), part = x / power;
    return power * (part <= 1 + 1e-9 ? 1 : part <= 2 + 1e-9 ? 2 : part <= 5 + 1e-9 ? 5 : 10);
}

static void init_log(chart_axis *a, int wanted)
{
    int from = (int)floor(log10(a->low)), to = (int)ceil(log10(a->high));
    if (to == from) to++;
    int step = (to - from + wanted - 1) / wanted;
    for (int e = from; e <= to && a->ticks < AXIS_TICKS; e += step) a->tick[a->ticks++] = pow(10, e);
    a->low = pow(10, from);
    a->high = pow(10, to);
}

/* low <= high, finite; above 0 where log. At most about `wanted` ticks, at 1, 2 or 5 times a power of ten
 * (log: at powers of ten). */
static void axis_init(chart_axis *a, double low, double high, bool log, int wanted)
{
    *a = (chart_axis){ .low = low, .high = high, .log = log };
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
static double axis_at(const chart_axis *a, double value)
{
    if (a->log) return log(value / a->low) / log(a->high / a->low);
    return (value - a->low) / (a->high - a->low);
}

static void axis_label(const chart_axis *a, int tick, char *text, size_t bytes)
{
    double v = a->tick[tick];
    if (!a->log && fabs(v) < 1e-9 * (a->high - a->low)) v = 0;
    snprintf(text, bytes, "%.4g", v);
}

/* ---- drawing --------------------------------------------------------------------------------------- */

static double px(const drawing *d, double x) { return LEFT + axis_at(&d->x, x) * (WIDTH - LEFT - RIGHT); }
static double py(const drawing *d, double y) { return HEIGHT - BOTTOM - axis_at(&d->y, y) * (HEIGHT - BOTTOM - TOP); }

/* across: 0 puts the text's left edge at x, 0.5 its middle, 1 its right edge. */
static void put_words(cairo_t *cr, double x, double y, double across, const char *text)
{
    cairo_text_extents_t e;
    cairo.text_extents(cr, text, &e);
    cairo.move_to(cr, x - across * e.x_advance, y);
    cairo.show_text(cr, text);
}

/* Names below the middle of each category, every second one lower where they would meet. */
static void draw_categories(const drawing *d, const chart *c)
{
    double room = (WIDTH - LEFT - RIGHT) / (double)c->categories;
    bool tight = false;
    cairo.set_source_rgb(d->cr, .36, .40, .47);
    for (int64_t i = 0; i < c->categories; i++) {
        cairo_text_extents_t e;
        cairo.text_extents(d->cr, c->category[i], &e);
        tight |= e.x_advance > room - 6;
    }
    for (int64_t i = 0; i < c->categories; i++)
        put_words(d->cr, px(d, (double)i), HEIGHT - BOTTOM + (tight && i % 2 ? 26 : 14), 0.5, c->category[i]);
}

static void draw_grid(drawing *d, const chart *c)
{
    char text[40];
    if (c->category) d->x.ticks = 0;
    cairo.set_line_width(d->cr, 1);
    for (int i = 0; i < d->x.ticks + d->y.ticks; i++) {
        bool across = i >= d->x.ticks;
        int k = across ? i - d->x.ticks : i;
        double at = across ? py(d, d->y.tick[k]) : px(d, d->x.tick[k]);
        cairo.set_source_rgb(d->cr, .80, .83, .87);
        cairo.move_to(d->cr, across ? LEFT : at, across ? at : TOP);
        cairo.line_to(d->cr, across ? WIDTH - RIGHT : at, across ? at : HEIGHT - BOTTOM);
        cairo.stroke(d->cr);
        cairo.set_source_rgb(d->cr, .36, .40, .47);
        axis_label(across ? &d->y : &d->x, k, text, sizeof text);
        put_words(d->cr, across ? LEFT - 6 : at, across ? at + 4 : HEIGHT - BOTTOM + 16, across ? 1 : 0.5, text);
    }
    if (c->category) draw_categories(d, c);
    put_words(d->cr, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 5, 0.5, c->x_label);
    cairo.save(d->cr);
    cairo.translate(d->cr, 13, (TOP + HEIGHT - BOTTOM) / 2.0);
    cairo.rotate(d->cr, -M_PI / 2);
    put_words(d->cr, 0, 0, 0.5, c->y_label);
    cairo.restore(d->cr);
}

static void draw_band(drawing *d, const chart_series *s)
{
    cairo.new_path(d->cr);
    for (int64_t i = 0; i < s->n; i++) cairo.line_to(d->cr, px(d, s->x[i]), py(d, s->high[i]));
    for (int64_t i = s->n - 1; i >= 0; i--) cairo.line_to(d->cr, px(d, s->x[i]), py(d, s->low[i]));
    cairo.close_path(d->cr);
    use_color(d->cr, s->color, 0.18);
    cairo.fill(d->cr);
}

static void draw_whisker(drawing *d, double x, double low, double high)
{
    cairo.set_source_rgb(d->cr, .11, .14, .19);
    cairo.set_line_width(d->cr, 1.1);
    for (int end = 0; end < 2; end++) {
        double y = py(d, end ? high : low);
        cairo.move_to(d->cr, x - 3, y);
        cairo.line_to(d->cr, x + 3, y);
    }
    cairo.move_to(d->cr, x, py(d, low));
    cairo.line_to(d->cr, x, py(d, high));
    cairo.stroke(d->cr);
}

/* Series k of n: its bar in every category, next to those of the others. */
static void draw_bars(drawing *d, const chart_series *s, int64_t k, int64_t n)
{
    double width = 0.8 / (double)n, from = py(d, fmax(0, d->y.low));
    for (int64_t i = 0; i < s->n; i++) {
        double left = px(d, s->x[i] - 0.4 + width * (double)k), right = px(d, s->x[i] - 0.4 + width * (double)(k + 1));
        cairo.rectangle(d->cr, left + 1, fmin(from, py(d, s->y[i])), right - left - 2, fabs(py(d, s->y[i]) - from));
        use_color(d->cr, s->color, 1);
        cairo.fill(d->cr);
        if (s->low && s->high) draw_whisker(d, (left + right) / 2, s->low[i], s->high[i]);
    }
}

static void draw_series(drawing *d, const chart *c, const chart_series *s)
{
    if (s->low && s->high) draw_band(d, s);
    cairo.new_path(d->cr); /* text before it left a point behind */
    for (int64_t i = 0; i < s->n; i++) cairo.line_to(d->cr, px(d, s->x[i]), py(d, s->y[i]));
    use_color(d->cr, s->color, 1);
    cairo.set_line_width(d->cr, 1.8);
    if (c->fill) {
        cairo.stroke_preserve(d->cr);
        cairo.line_to(d->cr, px(d, s->x[s->n - 1]), HEIGHT - BOTTOM);
        cairo.line_to(d->cr, px(d, s->x[0]), HEIGHT - BOTTOM);
        use_color(d->cr, s->color, 0.2);
        cairo.fill(d->cr);
    } else {
        cairo.stroke(d->cr);
    }
    use_color(d->cr, s->color, 1);
    cairo.new_path(d->cr);
    for (int64_t i = 0; s->n <= 40 && i < s->n; i++) { /* few points: each is shown, a single one is seen at all */
        cairo.arc(d->cr, px(d, s->x[i]), py(d, s->y[i]), 2.4, 0, 2 * M_PI);
        cairo.fill(d->cr);
    }
}

/* True for the first series of a group, and for every series without one. */
static bool has_entry(const chart *c, int64_t i)
{
    for (int64_t k = 0; c->series[i].group && k < i; k++)
        if (c->series[k].group && strcmp(c->series[k].group, c->series[i].group) == 0) return false;
    return true;
}

static const char *entry_of(const chart *c, int64_t i)
{
    return c->series[i].group ? c->series[i].group : c->series[i].name;
}

/* Bytes of the longest beginning of text that is at most room wide, and at least one character; it ends after a
 * sign where a name may be broken, if there is one in its second half. */
static size_t line_bytes(cairo_t *cr, const char *text, double room)
{
    char piece[512];
    size_t fits = 0, broken = 0;
    cairo_text_extents_t e;
    for (size_t n = 1; n < sizeof piece && text[n - 1]; n++) {
        if (((unsigned char)text[n] & 0xC0) == 0x80) continue; /* inside a character */
        memcpy(piece, text, n);
        piece[n] = '\0';
        cairo.text_extents(cr, piece, &e);
        if (fits && e.x_advance > room) return 2 * broken > fits ? broken : fits;
        fits = n;
        if (strchr(" _-,/:;", text[n - 1])) broken = n;
    }
    return fits;
}

/* Puts text on as many lines as it needs, the first at y, and returns how many. */
static int64_t put_lines(cairo_t *cr, double x, double y, double room, const char *text, bool paint)
{
    char piece[512];
    int64_t lines = 0;
    do {
        size_t n = line_bytes(cr, text, room);
        memcpy(piece, text, n);
        piece[n] = '\0';
        if (paint) put_words(cr, x, y + LEGEND_ROW * (double)lines, 0, piece);
        text += n;
        lines++;
    } while (*text);
    return lines;
}

/* Two columns, or one where a name is wider than a column. */
static int legend_columns(cairo_t *cr, const chart *c)
{
    for (int64_t i = 0; i < c->count; i++) {
        cairo_text_extents_t e;
        cairo.text_extents(cr, entry_of(c, i), &e);
        if (LEGEND_MARK + e.x_advance + 8 > (WIDTH - LEFT - RIGHT) / 2) return 1;
    }
    return 2;
}

/* Returns the legend's height; one series needs none. */
static double put_legend(cairo_t *cr, const chart *c, bool paint)
{
    int columns = legend_columns(cr, c);
    double wide = (double)(WIDTH - LEFT - RIGHT) / columns;
    int64_t row = 0, column = 0;
    for (int64_t i = 0; c->count > 1 && i < c->count; i++) {
        if (!has_entry(c, i)) continue;
        double x = LEFT + wide * (double)column, y = HEIGHT + LEGEND_ROW * (double)row + 12;
        if (paint) {
            use_color(cr, c->series[i].color, 1);
            cairo.rectangle(cr, x, y - 6, 16, 3);
            cairo.fill(cr);
            cairo.set_source_rgb(cr, .11, .14, .19);
        }
        int64_t lines = put_lines(cr, x + LEGEND_MARK, y, wide - LEGEND_MARK, entry_of(c, i), paint);
        column = (column + 1) % columns;
        if (!column) row += lines;
    }
    return LEGEND_ROW * (double)(row + (column > 0));
}

/* Epochs and updates: no ticks between them. */
static bool whole_numbers(const chart *c)
{
    for (int64_t i = 0; i < c->count; i++)
        for (int64_t k = 0; k < c->series[i].n; k++)
            if (c->series[i].x[k] != floor(c->series[i].x[k])) return false;
    return true;
}

void chart_range(const chart *c, chart_axis *x, chart_axis *y)
{
    double low[2] = { INFINITY, INFINITY }, high[2] = { -INFINITY, -INFINITY };
    for (int64_t i = 0; i < c->count; i++)
        for (int64_t k = 0; k < c->series[i].n; k++) {
            low[0] = fmin(low[0], c->series[i].x[k]), high[0] = fmax(high[0], c->series[i].x[k]);
            low[1] = fmin(low[1], c->series[i].y[k]), high[1] = fmax(high[1], c->series[i].y[k]);
            if (!c->series[i].low || !c->series[i].high) continue;
            low[1] = fmin(low[1], c->series[i].low[k]), high[1] = fmax(high[1], c->series[i].high[k]);
        }
    axis_init(x, low[0], high[0], false, whole_numbers(c) ? (int)fmin(7, fmax(1, high[0] - low[0])) : 7);
    if (c->category) *x = (chart_axis){ .low = -0.5, .high = (double)c->categories - 0.5 };
    if (c->bars) high[1] = fmax(high[1], 0);
    axis_init(y, c->fill || c->from_zero || c->bars ? fmin(low[1], 0) : low[1], high[1], c->log_y, 6);
}

static cairo_status_t collect(void *user, const unsigned char *bytes, unsigned n)
{
    sbuf_add(user, bytes, n);
    return CAIRO_STATUS_SUCCESS;
}

static void use_font(cairo_t *cr, double size)
{
    cairo.select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo.set_font_size(cr, size);
}

/* White paper and the title on it, smaller where it would not fit; what follows is drawn below. */
static void draw_heading(cairo_t *cr, const chart *c)
{
    cairo_text_extents_t e;
    cairo.set_source_rgb(cr, 1, 1, 1);
    cairo.paint(cr);
    cairo.set_source_rgb(cr, .11, .14, .19);
    use_font(cr, 14);
    cairo.text_extents(cr, c->title, &e);
    if (e.x_advance > WIDTH - 2 * RIGHT) use_font(cr, 14 * (WIDTH - 2 * RIGHT) / e.x_advance);
    put_words(cr, WIDTH / 2.0, HEADING - 8, 0.5, c->title);
    cairo.translate(cr, 0, HEADING);
}

/* A file's size is fixed before anything is drawn in it: the legend is measured on a surface of its own. */
static double height_of(const chart *c, chart_frame frame)
{
    cairo_surface_t *nowhere = cairo.recording_surface_create(CAIRO_CONTENT_COLOR, NULL);
    cairo_t *cr = cairo.create(nowhere);
    use_font(cr, 12);
    double legend = put_legend(cr, c, false);
    cairo.destroy(cr);
    cairo.surface_destroy(nowhere);
    return HEIGHT + legend + 4 + (frame == CHART_IN_PAGE ? 0 : HEADING);
}

/* Draws and takes the surface. */
static void draw_on(cairo_surface_t *surface, sbuf *out, const chart *c, chart_frame frame)
{
    drawing d = { .cr = cairo.create(surface) };
    if (frame != CHART_IN_PAGE) draw_heading(d.cr, c);
    use_font(d.cr, 12);
    chart_range(c, &d.x, &d.y);
    draw_grid(&d, c);
    for (int64_t i = 0; i < c->count; i++) {
        if (!c->series[i].n) continue;
        if (c->bars) draw_bars(&d, &c->series[i], i, c->count);
        else draw_series(&d, c, &c->series[i]);
    }
    put_legend(d.cr, c, true);
    cairo.destroy(d.cr);
    cairo.surface_finish(surface);
    if (cairo.surface_status(surface) != CAIRO_STATUS_SUCCESS) out->failed = true;
    cairo.surface_destroy(surface);
}

bool chart_draw(sbuf *out, const chart *c, chart_frame frame)
{
    if (!cairo_is_there()) return false;
    double height = height_of(c, frame);
    draw_on(frame == CHART_PDF ? cairo.pdf_surface_create_for_stream(collect, out, WIDTH, height)
                               : cairo.svg_surface_create_for_stream(collect, out, WIDTH, height),
            out, c, frame);
    return true;
}
