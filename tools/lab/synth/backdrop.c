/* Out of doors: the sky, beach, desert, meadow and snow. */
#include "lab/synth/paint.h"

static const paint_rgb white = { 1, 1, 1 };

static void vertical(cairo_t *cr, double y0, paint_rgb top, double y1, paint_rgb bottom)
{
    cairo_pattern_t *p = cairo.pattern_create_linear(0, y0, 0, y1);
    cairo.pattern_add_color_stop_rgb(p, 0, top.r, top.g, top.b);
    cairo.pattern_add_color_stop_rgb(p, 1, bottom.r, bottom.g, bottom.b);
    cairo.set_source(cr, p);
    cairo.pattern_destroy(p);
}

/* Fills the current path as ground: pale at y0, far away, full colour at the bottom. */
static void fill_ground(cairo_t *cr, int light, double y0, paint_rgb c)
{
    vertical(cr, y0, light_far(light, paint_mix(c, white, 0.12)), 1,
             paint_mix(light_far(light, c), light_near(light, c), 0.45));
    cairo.fill(cr);
}

static void draw_halo(cairo_t *cr, double x, double y, double r, paint_rgb c, double alpha)
{
    cairo_pattern_t *p = cairo.pattern_create_radial(x, y, r, x, y, r * 4);
    cairo.pattern_add_color_stop_rgba(p, 0, c.r, c.g, c.b, alpha);
    cairo.pattern_add_color_stop_rgba(p, 1, c.r, c.g, c.b, 0);
    cairo.set_source(cr, p);
    cairo.pattern_destroy(p);
    path_ellipse(cr, x, y, r * 4, r * 4);
    cairo.fill(cr);
}

static void draw_sun(cairo_t *cr, double x, double y, double r, paint_rgb c)
{
    draw_halo(cr, x, y, r, c, 0.5);
    path_ellipse(cr, x, y, r, r);
    paint_source(cr, c, 1);
    cairo.fill(cr);
}

/* A crescent: the outer edge of one circle, back along the edge of another. */
static void draw_moon(cairo_t *cr, double x, double y, double r)
{
    const paint_rgb c = { 0.96, 0.95, 0.85 };
    draw_halo(cr, x, y, r, c, 0.16);
    cairo.arc(cr, x, y, r, 0.7, 5.0);
    cairo.curve_to(cr, x - 0.55 * r, y - 0.75 * r, x - 0.25 * r, y + 0.85 * r, x + r * 0.765, y + r * 0.644);
    cairo.close_path(cr);
    paint_source(cr, c, 1);
    cairo.fill(cr);
}

static void draw_cloud(cairo_t *cr, double x, double y, double w, paint_rgb c, double alpha)
{
    paint_source(cr, c, alpha);
    path_ellipse(cr, x, y, 0.50 * w, 0.13 * w);
    path_ellipse(cr, x - 0.18 * w, y - 0.09 * w, 0.20 * w, 0.15 * w);
    path_ellipse(cr, x + 0.12 * w, y - 0.13 * w, 0.25 * w, 0.19 * w);
    cairo.fill(cr);
}

static void draw_stars(cairo_t *cr, double horizon, rnd *d)
{
    for (int i = 0; i < 26; i++) {
        double r = rnd_range(d, 0.002, 0.006);
        path_ellipse(cr, rnd_range(d, 0, 1), rnd_range(d, 0, horizon * 0.9), r, r);
    }
    paint_source(cr, white, 0.85);
    cairo.fill(cr);
}

void draw_sky(cairo_t *cr, int light, double horizon, rnd *d)
{
    vertical(cr, 0, light_sky_top(light), horizon, light_sky_horizon(light));
    cairo.paint(cr);
    double x = rnd_range(d, 0.08, 0.92);
    if (light == SYNTH_DAY) draw_sun(cr, x, rnd_range(d, 0.08, 0.16), 0.055, (paint_rgb){ 1, 0.95, 0.65 });
    if (light == SYNTH_DUSK) draw_sun(cr, x, horizon - rnd_range(d, 0.02, 0.08), 0.075, (paint_rgb){ 1, 0.75, 0.35 });
    if (light == SYNTH_NIGHT) {
        draw_stars(cr, horizon, d);
        draw_moon(cr, x, rnd_range(d, 0.08, 0.16), 0.055);
        return;
    }
    paint_rgb c = light == SYNTH_DUSK ? (paint_rgb){ 0.95, 0.62, 0.55 } : white;
    int clouds = rnd_below(d, 4);
    for (int i = 0; i < clouds; i++)
        draw_cloud(cr, rnd_range(d, 0, 1), rnd_range(d, 0.07, 0.6 * horizon), rnd_range(d, 0.15, 0.34), c,
                   light == SYNTH_FOG ? 0.3 : 0.72);
}

/* Short strokes on the ground, longer near the viewer: grass, or with no height, pebbles. */
static void draw_tufts(cairo_t *cr, paint_rgb c, double from, int n, double height, rnd *d)
{
    paint_source(cr, c, 0.7);
    cairo.set_line_width(cr, 0.008);
    for (int i = 0; i < n; i++) {
        double x = rnd_range(d, 0, 1), y = rnd_range(d, from, 1), near = 0.4 + (y - from) / (1 - from);
        cairo.move_to(cr, x, y);
        cairo.line_to(cr, x + rnd_range(d, -0.012, 0.012), y - height * near - 0.003);
    }
    cairo.stroke(cr);
}

static void draw_specks(cairo_t *cr, paint_rgb c, double alpha, double from, int n, double size, rnd *d)
{
    paint_source(cr, c, alpha);
    for (int i = 0; i < n; i++) {
        double x = rnd_range(d, 0, 1), y = rnd_range(d, from, 1), r = size * (0.4 + (y - from) / (1 - from));
        path_ellipse(cr, x, y, r, 0.7 * r);
    }
    cairo.fill(cr);
}

void draw_meadow(cairo_t *cr, int light, double horizon, rnd *d)
{
    draw_sky(cr, light, horizon, d);
    path_hills(cr, horizon - 0.03, 0.05, 3, d);
    fill_ground(cr, light, horizon - 0.08, (paint_rgb){ 0.42, 0.66, 0.38 });
    path_hills(cr, horizon + 0.06, 0.03, 2, d);
    fill_ground(cr, light, horizon, (paint_rgb){ 0.36, 0.68, 0.24 });
    draw_tufts(cr, light_far(light, (paint_rgb){ 0.20, 0.48, 0.14 }), horizon + 0.10, 70, 0.035, d);
    draw_specks(cr, light_far(light, (paint_rgb){ 1, 0.92, 0.5 }), 0.9, horizon + 0.14, 12, 0.008, d);
    draw_specks(cr, light_far(light, (paint_rgb){ 1, 0.98, 0.98 }), 0.9, horizon + 0.14, 12, 0.008, d);
}

void draw_beach(cairo_t *cr, int light, double horizon, rnd *d)
{
    double shore = horizon + rnd_range(d, 0.13, 0.18);
    draw_sky(cr, light, horizon, d);
    vertical(cr, horizon, light_far(light, (paint_rgb){ 0.20, 0.52, 0.72 }), shore,
             light_far(light, (paint_rgb){ 0.32, 0.78, 0.80 }));
    cairo.rectangle(cr, 0, horizon, 1, 1 - horizon);
    cairo.fill(cr);
    paint_source(cr, light_far(light, white), 0.6);
    cairo.set_line_width(cr, 0.006);
    for (int i = 0; i < 9; i++) { /* crests */
        double x = rnd_range(d, -0.1, 1), y = rnd_range(d, horizon + 0.02, shore), w = rnd_range(d, 0.05, 0.16);
        cairo.move_to(cr, x, y);
        cairo.curve_to(cr, x + 0.3 * w, y - 0.010, x + 0.7 * w, y - 0.010, x + w, y);
    }
    cairo.stroke(cr);
    rnd surf = *d; /* the foam follows the edge of the sand */
    path_hills(cr, shore - 0.016, 0.014, 4, &surf);
    paint_source(cr, light_far(light, white), 0.85);
    cairo.fill(cr);
    path_hills(cr, shore, 0.014, 4, d);
    fill_ground(cr, light, shore, (paint_rgb){ 0.93, 0.83, 0.60 });
    draw_specks(cr, light_far(light, (paint_rgb){ 0.66, 0.54, 0.34 }), 0.55, shore + 0.03, 60, 0.005, d);
    draw_specks(cr, light_far(light, (paint_rgb){ 1, 0.96, 0.90 }), 0.9, shore + 0.05, 7, 0.011, d);
}

static void draw_cactus(cairo_t *cr, double x, double y, double h, paint_rgb c)
{
    cairo.set_line_cap(cr, CAIRO_LINE_CAP_ROUND);
    cairo.set_line_width(cr, 0.20 * h);
    paint_source(cr, c, 1);
    cairo.move_to(cr, x, y);
    cairo.line_to(cr, x, y - h);
    cairo.stroke(cr);
    cairo.set_line_width(cr, 0.13 * h);
    cairo.move_to(cr, x, y - 0.35 * h);
    cairo.line_to(cr, x - 0.3 * h, y - 0.40 * h);
    cairo.line_to(cr, x - 0.3 * h, y - 0.72 * h);
    cairo.move_to(cr, x, y - 0.5 * h);
    cairo.line_to(cr, x + 0.28 * h, y - 0.55 * h);
    cairo.line_to(cr, x + 0.28 * h, y - 0.85 * h);
    cairo.stroke(cr);
    cairo.set_line_cap(cr, CAIRO_LINE_CAP_BUTT);
}

void draw_desert(cairo_t *cr, int light, double horizon, rnd *d)
{
    draw_sky(cr, light, horizon, d);
    path_hills(cr, horizon - 0.02, 0.07, 3, d);
    fill_ground(cr, light, horizon - 0.09, (paint_rgb){ 0.80, 0.50, 0.30 });
    int cacti = 1 + rnd_below(d, 3);
    for (int i = 0; i < cacti; i++)
        draw_cactus(cr, rnd_range(d, 0.04, 0.96), horizon + 0.07, rnd_range(d, 0.10, 0.17),
                    light_far(light, (paint_rgb){ 0.24, 0.46, 0.26 }));
    path_hills(cr, horizon + 0.05, 0.035, 2, d);
    fill_ground(cr, light, horizon, (paint_rgb){ 0.90, 0.62, 0.36 });
    paint_source(cr, light_far(light, (paint_rgb){ 0.70, 0.42, 0.22 }), 0.55);
    cairo.set_line_width(cr, 0.007);
    for (int i = 0; i < 13; i++) { /* ripples */
        double x = rnd_range(d, -0.1, 0.9), y = rnd_range(d, horizon + 0.12, 1), w = rnd_range(d, 0.1, 0.35);
        cairo.move_to(cr, x, y);
        cairo.curve_to(cr, x + 0.3 * w, y - 0.022, x + 0.6 * w, y + 0.014, x + w, y - 0.004);
    }
    cairo.stroke(cr);
}

static void draw_peak(cairo_t *cr, int light, double x, double base, double w, double h)
{
    const double all[][2] = { { x - w, base }, { x, base - h }, { x + w, base } };
    const double cap[][2] = { { x - 0.36 * w, base - 0.64 * h }, { x, base - h },
                              { x + 0.36 * w, base - 0.64 * h }, { x + 0.12 * w, base - 0.70 * h },
                              { x - 0.04 * w, base - 0.58 * h }, { x - 0.16 * w, base - 0.70 * h } };
    path_polygon(cr, all, 3);
    paint_source(cr, light_far(light, (paint_rgb){ 0.50, 0.58, 0.72 }), 1);
    cairo.fill(cr);
    path_polygon(cr, cap, 6);
    paint_source(cr, light_far(light, (paint_rgb){ 0.96, 0.97, 1 }), 1);
    cairo.fill(cr);
}

void draw_snow(cairo_t *cr, int light, double horizon, rnd *d)
{
    draw_sky(cr, light, horizon, d);
    for (int i = 0; i < 3; i++)
        draw_peak(cr, light, i * 0.4 + rnd_range(d, 0, 0.25), horizon + 0.05, rnd_range(d, 0.2, 0.34),
                  rnd_range(d, 0.16, 0.30));
    path_hills(cr, horizon + 0.03, 0.025, 3, d);
    fill_ground(cr, light, horizon, (paint_rgb){ 0.84, 0.90, 0.97 });
    path_hills(cr, horizon + 0.16, 0.03, 2, d);
    fill_ground(cr, light, horizon + 0.1, (paint_rgb){ 0.93, 0.95, 0.99 });
    paint_source(cr, light_near(light, white), 0.9);
    for (int i = 0; i < 45; i++) { /* flakes in the air */
        double r = rnd_range(d, 0.004, 0.010);
        path_ellipse(cr, rnd_range(d, 0, 1), rnd_range(d, 0, 1), r, r);
    }
    cairo.fill(cr);
}
