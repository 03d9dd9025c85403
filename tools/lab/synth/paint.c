/* Colours, light, materials, and the shapes that all drawings share. */
#include "lab/synth/paint.h"

#include <math.h>

#include "core/shared_object.h"

#define TAU 6.283185307179586

cairo_functions cairo;

#define ROW(name) { "cairo_" #name, (void **)&cairo.name },
static const shared_function functions[] = { CAIRO_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libcairo.so.2" },
                                 .functions = functions,
                                 .install = "libcairo2 to draw synthetic images" };
SHARED_LISTED(library)

cloob_status cairo_use(cloob_ctx *ctx) { return shared_object_use(ctx, &library); }

/* ---- colours and light --------------------------------------------------------------------------- */

static double clamp01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

paint_rgb paint_mix(paint_rgb a, paint_rgb b, double t)
{
    return (paint_rgb){ a.r + (b.r - a.r) * t, a.g + (b.g - a.g) * t, a.b + (b.b - a.b) * t };
}

paint_rgb paint_scale(paint_rgb a, double by)
{
    return (paint_rgb){ clamp01(a.r * by), clamp01(a.g * by), clamp01(a.b * by) };
}

void paint_source(cairo_t *cr, paint_rgb c, double alpha) { cairo.set_source_rgba(cr, c.r, c.g, c.b, alpha); }

/* What a white surface looks like, and how much of the air's colour is added to it. */
typedef struct light_row {
    paint_rgb white_far, white_near, air, sky_top, sky_horizon;
    double air_far, air_near;
} light_row;

static const light_row lights[SYNTH_LIGHTS] = {
    [SYNTH_DAY] = { { 1, 1, 1 }, { 1, 1, 1 }, { 0.8, 0.9, 1 }, { 0.30, 0.58, 0.90 }, { 0.78, 0.90, 0.98 }, 0, 0 },
    [SYNTH_DUSK] = { { 0.80, 0.58, 0.52 },
                     { 1, 0.86, 0.74 },
                     { 0.95, 0.5, 0.3 },
                     { 0.26, 0.18, 0.44 },
                     { 0.99, 0.60, 0.32 },
                     0.10,
                     0.04 },
    [SYNTH_FOG] = { { 0.9, 0.9, 0.92 },
                    { 0.95, 0.95, 0.97 },
                    { 0.80, 0.82, 0.84 },
                    { 0.74, 0.77, 0.80 },
                    { 0.84, 0.86, 0.87 },
                    0.62,
                    0.26 },
    [SYNTH_NIGHT] = { { 0.28, 0.33, 0.50 },
                      { 0.74, 0.75, 0.88 },
                      { 0.05, 0.08, 0.2 },
                      { 0.02, 0.03, 0.11 },
                      { 0.13, 0.17, 0.33 },
                      0.10,
                      0.04 },
};

static paint_rgb lit(paint_rgb c, paint_rgb white, paint_rgb air, double air_share)
{
    return paint_mix((paint_rgb){ c.r * white.r, c.g * white.g, c.b * white.b }, air, air_share);
}

paint_rgb light_far(int light, paint_rgb c)
{
    const light_row *l = &lights[light];
    return lit(c, l->white_far, l->air, l->air_far);
}

paint_rgb light_near(int light, paint_rgb c)
{
    const light_row *l = &lights[light];
    return lit(c, l->white_near, l->air, l->air_near);
}

paint_rgb light_sky_top(int light) { return lights[light].sky_top; }
paint_rgb light_sky_horizon(int light) { return lights[light].sky_horizon; }

/* ---- the brush ----------------------------------------------------------------------------------- */

static const paint_rgb colours[SYNTH_COLOURS] = {
    [SYNTH_BLUE] = { 0.13, 0.36, 0.86 },  [SYNTH_GREEN] = { 0.13, 0.62, 0.22 },  [SYNTH_ORANGE] = { 0.98, 0.50, 0.06 },
    [SYNTH_PINK] = { 0.98, 0.52, 0.74 },  [SYNTH_PURPLE] = { 0.50, 0.17, 0.72 }, [SYNTH_RED] = { 0.86, 0.10, 0.12 },
    [SYNTH_WHITE] = { 0.95, 0.95, 0.96 }, [SYNTH_YELLOW] = { 0.99, 0.84, 0.10 },
};

static const paint_rgb black = { 0, 0, 0 }, white = { 1, 1, 1 }, brown = { 0.46, 0.27, 0.12 };

brush brush_make(cairo_t *cr, int light, int material, int colour, rnd *d)
{
    paint_rgb c = colours[colour];
    c.r = clamp01(c.r + rnd_range(d, -0.03, 0.03));
    c.g = clamp01(c.g + rnd_range(d, -0.03, 0.03));
    c.b = clamp01(c.b + rnd_range(d, -0.03, 0.03));
    /* The second colour of a pattern: pale on dark things, deep on bright ones. */
    double grey = 0.3 * c.r + 0.59 * c.g + 0.11 * c.b;
    paint_rgb accent = grey < 0.58 ? paint_mix(c, white, 0.78) : paint_mix(c, black, 0.55);
    if (colour == SYNTH_WHITE) accent = (paint_rgb){ 0.36, 0.40, 0.48 };
    return (brush){ cr, light, material, c, accent, rng_subkey(d->key, d->next++) };
}

typedef struct box {
    double x0, y0, x1, y1;
} box;

static void paint_stripes(cairo_t *cr, box e, rnd *d)
{
    double from = e.x0 - (e.y1 - e.y0) + rnd_range(d, 0, 0.25);
    cairo.set_line_width(cr, 0.12);
    for (double x = from; x < e.x1 + 0.2; x += 0.25) {
        cairo.move_to(cr, x, e.y1 + 0.05);
        cairo.line_to(cr, x + 0.55 * (e.y1 - e.y0 + 0.1), e.y0 - 0.05);
    }
    cairo.stroke(cr);
}

static void paint_dots(cairo_t *cr, box e, rnd *d)
{
    double ox = rnd_range(d, 0, 0.1), oy = rnd_range(d, 0, 0.1);
    int row = 0;
    for (double y = e.y0 - oy; y < e.y1 + 0.1; y += 0.19, row++)
        for (double x = e.x0 - ox + (row % 2 ? 0.12 : 0); x < e.x1 + 0.1; x += 0.24)
            path_ellipse(cr, x, y, 0.068, 0.068);
    cairo.fill(cr);
}

static void paint_checks(cairo_t *cr, box e, rnd *d)
{
    const double side = 0.18;
    double ox = rnd_range(d, 0, 0.18), oy = rnd_range(d, 0, 0.18);
    int row = 0;
    for (double y = e.y0 - oy; y < e.y1; y += side, row++)
        for (double x = e.x0 - ox + (row % 2 ? side : 0); x < e.x1; x += 2 * side)
            cairo.rectangle(cr, x, y, side, side);
    cairo.fill(cr);
}

/* Grain: long wavy lines, with a knot that they lead around. */
static void paint_grain(cairo_t *cr, box e, paint_rgb dark, rnd *d)
{
    double kx = rnd_range(d, e.x0, e.x1), ky = rnd_range(d, e.y0, e.y1);
    for (double y = e.y0 - 0.04; y < e.y1 + 0.08; y += 0.10) {
        double bend = 0.05 * exp(-12 * (y - ky) * (y - ky)) * (y < ky ? -1 : 1);
        cairo.set_line_width(cr, rnd_range(d, 0.020, 0.042));
        paint_source(cr, dark, rnd_range(d, 0.5, 0.9));
        cairo.move_to(cr, e.x0 - 0.1, y + rnd_range(d, -0.02, 0.02));
        cairo.curve_to(cr, kx - 0.12, y + bend, kx + 0.12, y + bend, e.x1 + 0.1, y + rnd_range(d, -0.03, 0.03));
        cairo.stroke(cr);
    }
    paint_source(cr, dark, 0.8);
    path_ellipse(cr, kx, ky, 0.05, 0.028);
    cairo.fill(cr);
}

static void paint_material(const brush *b, double tone, box e)
{
    cairo_t *cr = b->cr;
    rnd d = rnd_from(b->key, "texture");
    paint_rgb base = b->material == SYNTH_WOODEN ? paint_mix(b->colour, brown, 0.16) : b->colour;
    paint_source(cr, light_near(b->light, paint_scale(base, tone)), 1);
    cairo.paint(cr);
    paint_source(cr, light_near(b->light, paint_scale(b->accent, tone)), 1);
    switch (b->material) {
    case SYNTH_STRIPED: paint_stripes(cr, e, &d); break;
    case SYNTH_DOTTED: paint_dots(cr, e, &d); break;
    case SYNTH_CHECKED: paint_checks(cr, e, &d); break;
    case SYNTH_WOODEN:
        paint_grain(cr, e, light_near(b->light, paint_scale(paint_mix(b->colour, brown, 0.72), 0.70)), &d);
        break;
    default: break;
    }
}

static void stop(cairo_pattern_t *p, double at, paint_rgb c, double alpha)
{
    cairo.pattern_add_color_stop_rgba(p, at, c.r, c.g, c.b, alpha);
}

static void paint_pattern(cairo_t *cr, cairo_pattern_t *p)
{
    cairo.set_source(cr, p);
    cairo.paint(cr);
    cairo.pattern_destroy(p);
}

/* Light from the upper left. A shiny thing has a dark band, a bright rim and a white spot; the others fall
 * off gently. */
static void paint_shade(const brush *b, box e, brush_shade shade)
{
    double w = e.x1 - e.x0, h = e.y1 - e.y0, r = 0.5 * sqrt(w * w + h * h),
           strong = b->material == SYNTH_SHINY ? 1.6 : 1;
    cairo_pattern_t *p = shade == SHADE_ROUND ? cairo.pattern_create_radial(e.x0 + 0.34 * w, e.y0 + 0.28 * h, 0.05 * r,
                                                                            e.x0 + 0.45 * w, e.y0 + 0.42 * h, 1.05 * r)
                                              : cairo.pattern_create_linear(e.x0, e.y0, e.x0 + w, e.y0 + 0.5 * h);
    stop(p, 0, white, 0.22 * strong);
    stop(p, 0.4, white, 0);
    stop(p, 0.55, black, 0);
    stop(p, 1, black, 0.30 * strong);
    paint_pattern(b->cr, p);
}

static void paint_gloss(const brush *b, box e)
{
    double w = e.x1 - e.x0, h = e.y1 - e.y0, r = 0.24 * (w < h ? w : h) + 0.03;
    cairo_pattern_t *band = cairo.pattern_create_linear(e.x0 + 0.15 * w, e.y0, e.x1, e.y1);
    stop(band, 0.30, white, 0);
    stop(band, 0.40, white, 0.55);
    stop(band, 0.46, white, 0.50);
    stop(band, 0.52, black, 0.14);
    stop(band, 0.90, white, 0);
    stop(band, 1, white, 0.35);
    paint_pattern(b->cr, band);
    double x = e.x0 + 0.30 * w, y = e.y0 + 0.26 * h;
    cairo_pattern_t *spot = cairo.pattern_create_radial(x, y, 0, x, y, r);
    stop(spot, 0, white, 1);
    stop(spot, 0.45, white, 0.85);
    stop(spot, 1, white, 0);
    paint_pattern(b->cr, spot);
}

static void outline(const brush *b, const cairo_path_t *path, paint_rgb c)
{
    cairo.append_path(b->cr, path);
    cairo.set_line_width(b->cr, 0.028);
    paint_source(b->cr, light_near(b->light, paint_mix(c, black, 0.68)), 0.9);
    cairo.stroke(b->cr);
}

void brush_fill(const brush *b, double tone, brush_shade shade)
{
    cairo_path_t *path = cairo.copy_path(b->cr);
    box e;
    cairo.path_extents(b->cr, &e.x0, &e.y0, &e.x1, &e.y1);
    cairo.save(b->cr);
    cairo.clip(b->cr);
    paint_material(b, tone, e);
    paint_shade(b, e, shade);
    if (b->material == SYNTH_SHINY) paint_gloss(b, e);
    cairo.restore(b->cr);
    outline(b, path, b->colour);
    cairo.path_destroy(path);
}

void brush_plain(const brush *b, paint_rgb c)
{
    paint_source(b->cr, light_near(b->light, c), 1);
    cairo.fill_preserve(b->cr);
    cairo.set_line_width(b->cr, 0.016);
    paint_source(b->cr, light_near(b->light, paint_mix(c, black, 0.6)), 0.6);
    cairo.stroke(b->cr);
}

void brush_glow(const brush *b, paint_rgb c)
{
    if (b->light != SYNTH_NIGHT && b->light != SYNTH_DUSK) c = (paint_rgb){ 0.62, 0.78, 0.88 }; /* glass by day */
    paint_source(b->cr, c, 1);
    cairo.fill_preserve(b->cr);
    cairo.set_line_width(b->cr, 0.018);
    paint_source(b->cr, light_near(b->light, (paint_rgb){ 0.15, 0.13, 0.13 }), 0.8);
    cairo.stroke(b->cr);
}

void brush_stroke(const brush *b, double width, double tone)
{
    cairo.set_line_width(b->cr, width + 0.036);
    paint_source(b->cr, light_near(b->light, paint_mix(b->colour, black, 0.62)), 0.75);
    cairo.stroke_preserve(b->cr);
    cairo.set_line_width(b->cr, width);
    paint_source(b->cr, light_near(b->light, paint_scale(b->colour, tone)), 1);
    cairo.stroke(b->cr);
}

/* ---- shapes -------------------------------------------------------------------------------------- */

void path_ellipse(cairo_t *cr, double x, double y, double rx, double ry)
{
    cairo.save(cr);
    cairo.translate(cr, x, y);
    cairo.scale(cr, rx, ry);
    cairo.new_sub_path(cr);
    cairo.arc(cr, 0, 0, 1, 0, TAU);
    cairo.close_path(cr);
    cairo.restore(cr);
}

void path_polygon(cairo_t *cr, const double (*point)[2], int n)
{
    cairo.new_sub_path(cr);
    for (int i = 0; i < n; i++) cairo.line_to(cr, point[i][0], point[i][1]);
    cairo.close_path(cr);
}

void path_hills(cairo_t *cr, double y, double height, int waves, rnd *d)
{
    double step = 1.2 / waves, x = -0.1, last = y + rnd_range(d, -height, height);
    cairo.move_to(cr, x, last);
    for (int i = 0; i < waves; i++, x += step) {
        double next = y + rnd_range(d, -height, height);
        cairo.curve_to(cr, x + step / 2, last, x + step / 2, next, x + step, next);
        last = next;
    }
    cairo.line_to(cr, 1.1, 1.1);
    cairo.line_to(cr, -0.1, 1.1);
    cairo.close_path(cr);
}
