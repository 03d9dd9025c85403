/* Drawing scenes with cairo: colours under a light, the brush that knows the material, objects, backdrops.
 * Only the files of the renderer include this; other files do not include cairo.
 *
 * Images are drawn in the unit square, y downwards. An object is drawn in its own box, x from -0.5 to 0.5
 * and y from -1 (top) to 0 (the ground it stands on). */
#ifndef SYNTH_PAINT_H
#define SYNTH_PAINT_H

#include <cairo.h>

#include "lab/synth/synth.h"

/* cairo is loaded with the first image, so programs that draw nothing run without it.
 *
 *     CLOOB_TRY(cairo_use(ctx));
 *     cairo.move_to(cr, x, y); */

/* clang-format off */
#define CAIRO_FUNCTIONS(X) \
    X(append_path) X(arc) X(clip) X(close_path) X(copy_path) X(create) X(curve_to) X(destroy) X(fill) X(fill_preserve) \
    X(image_surface_create) X(image_surface_get_data) X(image_surface_get_stride) X(line_to) X(move_to) X(new_sub_path) \
    X(paint) X(path_destroy) X(path_extents) X(pattern_add_color_stop_rgb) X(pattern_add_color_stop_rgba) \
    X(pattern_create_linear) X(pattern_create_radial) X(pattern_destroy) X(rectangle) X(restore) X(rotate) X(save) \
    X(scale) X(set_line_cap) X(set_line_join) X(set_line_width) X(set_source) X(set_source_rgba) X(status) \
    X(status_to_string) X(stroke) X(stroke_preserve) X(surface_destroy) X(surface_flush) X(translate)
/* clang-format on */
#define MEMBER(name) __typeof__(&cairo_##name) name;
typedef struct cairo_functions {
    CAIRO_FUNCTIONS(MEMBER)
} cairo_functions;
#undef MEMBER

extern cairo_functions cairo; /* written once by the first load that succeeds */

/* Before the first call. Fails with one line that says what to install. */
cloob_status cairo_use(cloob_ctx *ctx);

typedef struct paint_rgb {
    double r, g, b;
} paint_rgb;

paint_rgb paint_mix(paint_rgb a, paint_rgb b, double share_of_b);
paint_rgb paint_scale(paint_rgb a, double by); /* darker or lighter, stays in [0, 1] */
void paint_source(cairo_t *cr, paint_rgb c, double alpha);

/* ---- light --------------------------------------------------------------------------------------- */

/* A colour as the light shows it: far away, where a backdrop is, and near, where an object stands (weaker, so
 * that its colour can still be recognised). */
paint_rgb light_far(int light, paint_rgb c);
paint_rgb light_near(int light, paint_rgb c);
paint_rgb light_sky_top(int light);
paint_rgb light_sky_horizon(int light);

/* ---- the brush ----------------------------------------------------------------------------------- */

typedef enum brush_shade { SHADE_FLAT, SHADE_ROUND } brush_shade;

typedef struct brush {
    cairo_t *cr;
    int light, material;
    paint_rgb colour, accent; /* not yet lit */
    uint64_t key;             /* of the texture */
} brush;

/* colour: SYNTH_BLUE, ...; d gives a little variation. */
brush brush_make(cairo_t *cr, int light, int material, int colour, rnd *d);

/* Each fills the current path, outlines it and clears it. */
void brush_fill(const brush *b, double tone, brush_shade shade); /* the material, darker or lighter by tone */
void brush_plain(const brush *b, paint_rgb c);                   /* a part that has its own colour */
void brush_glow(const brush *b, paint_rgb c);                    /* likewise, unlit: a light source at night */
/* Strokes and clears the current path in the object's colour with an outline. */
void brush_stroke(const brush *b, double width, double tone);

/* ---- objects and backdrops ----------------------------------------------------------------------- */

/* object: SYNTH_BALL, ... */
void draw_object(const brush *b, int object);

typedef void backdrop_fn(cairo_t *cr, int light, double horizon, rnd *d);
backdrop_fn draw_beach, draw_desert, draw_forest, draw_meadow, draw_room, draw_snow, draw_street;

/* Shapes that several of them use. */
void path_ellipse(cairo_t *cr, double x, double y, double rx, double ry);
void path_polygon(cairo_t *cr, const double (*point)[2], int n);
/* Rolling ground from y downwards: waves of the given height across the image. */
void path_hills(cairo_t *cr, double y, double height, int waves, rnd *d);

#endif
