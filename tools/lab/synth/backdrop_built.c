/* Among walls and trunks: forest, room and street. */
#include "lab/synth/paint.h"

static void fill_rect(cairo_t *cr, double x, double y, double w, double h, paint_rgb c)
{
    cairo.rectangle(cr, x, y, w, h);
    paint_source(cr, c, 1);
    cairo.fill(cr);
}

static void fill_down(cairo_t *cr, double y, paint_rgb top, paint_rgb bottom)
{
    cairo_pattern_t *p = cairo.pattern_create_linear(0, y, 0, 1);
    cairo.pattern_add_color_stop_rgb(p, 0, top.r, top.g, top.b);
    cairo.pattern_add_color_stop_rgb(p, 1, bottom.r, bottom.g, bottom.b);
    cairo.set_source(cr, p);
    cairo.pattern_destroy(p);
    cairo.rectangle(cr, 0, y, 1, 1 - y);
    cairo.fill(cr);
}

/* ---- forest -------------------------------------------------------------------------------------- */

/* Bare trunks that leave the image at the top: nothing here looks like the object "tree". */
static void draw_trunks(cairo_t *cr, int light, int n, double base, double width, double depth, rnd *d)
{
    for (int i = 0; i < n; i++) {
        double x = (i + rnd_range(d, 0.1, 0.9)) / n, w = width * rnd_range(d, 0.7, 1.3),
               y = base + rnd_range(d, 0, 0.02);
        paint_rgb c = light_far(light, paint_scale((paint_rgb){ 0.44, 0.31, 0.21 }, 1 - 0.4 * depth));
        const double trunk[][2] = { { x - 0.4 * w, 0 }, { x + 0.4 * w, 0 }, { x + 0.5 * w, y }, { x - 0.5 * w, y } };
        path_polygon(cr, trunk, 4);
        paint_source(cr, c, 1);
        cairo.fill(cr);
        fill_rect(cr, x + 0.15 * w, 0, 0.25 * w, y - 0.01, paint_scale(c, 0.75)); /* the shaded side */
    }
}

static void draw_leaves(cairo_t *cr, paint_rgb c, double alpha, double y0, double y1, int n, double size, rnd *d)
{
    paint_source(cr, c, alpha);
    for (int i = 0; i < n; i++) {
        double r = size * rnd_range(d, 0.6, 1.3);
        path_ellipse(cr, rnd_range(d, 0, 1), rnd_range(d, y0, y1), r, 0.6 * r);
    }
    cairo.fill(cr);
}

void draw_forest(cairo_t *cr, int light, double horizon, rnd *d)
{
    paint_rgb haze = light_far(light, (paint_rgb){ 0.50, 0.68, 0.44 });
    paint_source(cr, paint_mix(light_sky_horizon(light), haze, 0.75), 1);
    cairo.paint(cr);
    draw_trunks(cr, light, 9, horizon + 0.01, 0.035, 0, d);
    fill_down(cr, horizon, light_far(light, (paint_rgb){ 0.34, 0.42, 0.20 }),
              light_far(light, (paint_rgb){ 0.42, 0.34, 0.18 }));
    draw_trunks(cr, light, 5, horizon + 0.07, 0.075, 1, d);
    draw_leaves(cr, light_far(light, (paint_rgb){ 0.14, 0.36, 0.14 }), 0.9, -0.02, 0.12, 28, 0.075, d);
    draw_leaves(cr, light_far(light, (paint_rgb){ 0.24, 0.50, 0.18 }), 0.9, -0.04, 0.09, 20, 0.060, d);
    draw_leaves(cr, light_far(light, (paint_rgb){ 0.60, 0.40, 0.16 }), 0.8, horizon + 0.1, 1, 36, 0.012, d);
    draw_leaves(cr, light_far(light, (paint_rgb){ 0.26, 0.22, 0.10 }), 0.8, horizon + 0.1, 1, 30, 0.012, d);
}

/* ---- room ---------------------------------------------------------------------------------------- */

static void draw_window(cairo_t *cr, int light, double x, double y, rnd *d)
{
    const double w = 0.27, h = 0.27;
    fill_rect(cr, x - 0.02, y - 0.02, w + 0.04, h + 0.04, light_near(light, (paint_rgb){ 0.97, 0.96, 0.93 }));
    cairo.save(cr);
    cairo.rectangle(cr, x, y, w, h);
    cairo.clip(cr);
    cairo.translate(cr, x, y);
    cairo.scale(cr, w, h);
    draw_sky(cr, light, 1, d);
    cairo.restore(cr);
    paint_rgb bar = light_near(light, (paint_rgb){ 0.97, 0.96, 0.93 });
    fill_rect(cr, x + w / 2 - 0.009, y, 0.018, h, bar);
    fill_rect(cr, x, y + h / 2 - 0.009, w, 0.018, bar);
}

static void draw_frame(cairo_t *cr, int light, double x, double y, rnd *d)
{
    static const paint_rgb art[] = {
        { 0.45, 0.62, 0.70 }, { 0.72, 0.62, 0.45 }, { 0.60, 0.50, 0.60 }, { 0.50, 0.62, 0.50 }
    };
    fill_rect(cr, x, y, 0.19, 0.16, light_near(light, (paint_rgb){ 0.36, 0.24, 0.16 }));
    fill_rect(cr, x + 0.018, y + 0.018, 0.154, 0.124, light_near(light, art[rnd_below(d, 4)]));
}

/* Boards that run towards the viewer from a vanishing point above the skirting. */
static void draw_boards(cairo_t *cr, int light, double floor, double vanish)
{
    paint_source(cr, light_near(light, (paint_rgb){ 0.38, 0.24, 0.14 }), 0.7);
    cairo.set_line_width(cr, 0.006);
    for (int i = -8; i <= 8; i++) {
        cairo.move_to(cr, vanish + 0.09 * i, floor);
        cairo.line_to(cr, vanish + 0.28 * i, 1);
    }
    cairo.stroke(cr);
}

void draw_room(cairo_t *cr, int light, double horizon, rnd *d)
{
    static const paint_rgb walls[] = {
        { 0.86, 0.80, 0.70 }, { 0.78, 0.82, 0.80 }, { 0.84, 0.78, 0.80 }, { 0.80, 0.80, 0.72 }
    };
    paint_rgb wall = walls[rnd_below(d, 4)];
    double floor = horizon + 0.08, x = rnd_chance(d, 0.5) ? rnd_range(d, 0.06, 0.16) : rnd_range(d, 0.58, 0.66);
    /* Indoors the light is never quite that of the sky: a lamp is on. */
    paint_rgb shown = paint_mix(light_far(light, wall), light_near(light, wall), 0.6);
    paint_source(cr, shown, 1);
    cairo.paint(cr);
    cairo.set_line_width(cr, 0.012);
    paint_source(cr, paint_scale(shown, 0.93), 1);
    for (double at = 0.05; at < 1; at += 0.1) {
        cairo.move_to(cr, at, 0);
        cairo.line_to(cr, at, floor);
    }
    cairo.stroke(cr);
    draw_window(cr, light, x, rnd_range(d, 0.08, 0.13), d);
    draw_frame(cr, light, x < 0.4 ? rnd_range(d, 0.55, 0.75) : rnd_range(d, 0.08, 0.25), rnd_range(d, 0.12, 0.2), d);
    paint_rgb wood = { 0.66, 0.46, 0.29 };
    fill_down(cr, floor, light_far(light, wood), light_near(light, wood));
    draw_boards(cr, light, floor, rnd_range(d, 0.35, 0.65));
    fill_rect(cr, 0, floor - 0.022, 1, 0.026, light_near(light, (paint_rgb){ 0.93, 0.91, 0.87 }));
}

/* ---- street -------------------------------------------------------------------------------------- */

static void draw_block(cairo_t *cr, int light, double x, double w, double top, double base, rnd *d)
{
    static const paint_rgb walls[] = {
        { 0.60, 0.58, 0.58 }, { 0.66, 0.52, 0.46 }, { 0.54, 0.58, 0.64 }, { 0.70, 0.65, 0.56 }
    };
    bool dark = light == SYNTH_NIGHT || light == SYNTH_DUSK;
    fill_rect(cr, x, top, w, base - top, light_far(light, walls[rnd_below(d, 4)]));
    for (double y = top + 0.03; y < base - 0.05; y += 0.055)
        for (double at = x + 0.02; at + 0.025 < x + w; at += 0.045) {
            bool on = rnd_chance(d, 0.55);
            paint_rgb glass =
                dark && on ? (paint_rgb){ 1, 0.84, 0.42 } : light_far(light, (paint_rgb){ 0.36, 0.44, 0.52 });
            fill_rect(cr, at, y, 0.024, 0.030, glass);
        }
}

void draw_street(cairo_t *cr, int light, double horizon, rnd *d)
{
    double kerb = horizon + 0.09, x = -0.05;
    draw_sky(cr, light, horizon, d);
    while (x < 1) {
        double w = rnd_range(d, 0.13, 0.24);
        draw_block(cr, light, x, w, horizon - rnd_range(d, 0.08, 0.38), kerb, d);
        x += w + rnd_range(d, 0, 0.03);
    }
    fill_rect(cr, 0, horizon + 0.05, 1, 0.06, light_far(light, (paint_rgb){ 0.72, 0.71, 0.69 }));
    fill_down(cr, kerb, light_far(light, (paint_rgb){ 0.36, 0.37, 0.39 }),
              light_near(light, (paint_rgb){ 0.30, 0.31, 0.33 }));
    fill_rect(cr, 0, kerb, 1, 0.012, light_far(light, (paint_rgb){ 0.55, 0.55, 0.54 }));
    double line = kerb + 0.12, phase = rnd_range(d, 0, 0.2);
    for (double at = -phase; at < 1; at += 0.22)
        fill_rect(cr, at, line, 0.12, 0.018, light_near(light, (paint_rgb){ 0.9, 0.88, 0.80 }));
}
