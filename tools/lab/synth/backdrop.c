/* Backdrops: the sky, beach, desert, meadow and snow; forest, room and street. */
#include "lab/synth/paint.h"

static const paint_rgb white = { 1, 1, 1 };

static void fill(cairo_t *cr, paint_rgb c, double alpha)
{
    paint_source(cr, c, alpha);
    cairo.fill(cr);
}

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
    fill(cr, c, 1);
}

/* A crescent: the outer edge of one circle, back along the edge of another. */
static void draw_moon(cairo_t *cr, double x, double y, double r)
{
    const paint_rgb c = { 0.96, 0.95, 0.85 };
    draw_halo(cr, x, y, r, c, 0.16);
    cairo.arc(cr, x, y, r, 0.7, 5.0);
    cairo.curve_to(cr, x - 0.55 * r, y - 0.75 * r, x - 0.25 * r, y + 0.85 * r, x + r * 0.765, y + r * 0.644);
    cairo.close_path(cr);
    fill(cr, c, 1);
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
    fill(cr, white, 0.85);
}

/* With sun, moon, stars and clouds. */
static void draw_sky(cairo_t *cr, int light, double horizon, rnd *d)
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
    fill(cr, light_far(light, white), 0.85);
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
    fill(cr, light_far(light, (paint_rgb){ 0.50, 0.58, 0.72 }), 1);
    path_polygon(cr, cap, 6);
    fill(cr, light_far(light, (paint_rgb){ 0.96, 0.97, 1 }), 1);
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

/* ---- among walls and trunks ----------------------------------------------------------------------- */

static void fill_rect(cairo_t *cr, double x, double y, double w, double h, paint_rgb c)
{
    cairo.rectangle(cr, x, y, w, h);
    fill(cr, c, 1);
}

static void fill_down(cairo_t *cr, double y, paint_rgb top, paint_rgb bottom)
{
    vertical(cr, y, top, 1, bottom);
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
        fill(cr, c, 1);
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
    /* Indoors a lamp changes the light of the sky. */
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
