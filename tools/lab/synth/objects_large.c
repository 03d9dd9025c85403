/* The larger things: boat, car, fish, house, tree. Each in its box: x -0.5 .. 0.5, y -1 .. 0. */
#include "lab/synth/paint.h"

static const paint_rgb dark = { 0.13, 0.13, 0.15 }, bark = { 0.40, 0.26, 0.15 }, lamp = { 1.0, 0.86, 0.45 };

/* A long hull with raised ends and one square sail: nothing like the triangles of the tree. */
void draw_boat(const brush *b)
{
    cairo_t *cr = b->cr;
    cairo.rectangle(cr, -0.03, -1, 0.06, 0.78);
    brush_plain(b, bark);
    cairo.move_to(cr, -0.30, -0.94);
    cairo.line_to(cr, 0.26, -0.94);
    cairo.curve_to(cr, 0.40, -0.80, 0.40, -0.58, 0.28, -0.42);
    cairo.line_to(cr, -0.28, -0.42);
    cairo.curve_to(cr, -0.18, -0.58, -0.18, -0.80, -0.30, -0.94);
    cairo.close_path(cr);
    brush_fill(b, 1.1, SHADE_FLAT);
    cairo.move_to(cr, -0.52, -0.46);
    cairo.curve_to(cr, -0.44, -0.28, -0.30, -0.27, 0, -0.27);
    cairo.curve_to(cr, 0.30, -0.27, 0.44, -0.28, 0.52, -0.46);
    cairo.curve_to(cr, 0.54, -0.14, 0.36, 0, 0.20, 0);
    cairo.line_to(cr, -0.20, 0);
    cairo.curve_to(cr, -0.36, 0, -0.54, -0.14, -0.52, -0.46);
    cairo.close_path(cr);
    brush_fill(b, 0.82, SHADE_FLAT);
}

static void wheel(const brush *b, double x)
{
    path_ellipse(b->cr, x, -0.105, 0.105, 0.105);
    brush_plain(b, dark);
    path_ellipse(b->cr, x, -0.105, 0.050, 0.050);
    brush_plain(b, (paint_rgb){ 0.75, 0.76, 0.78 });
}

void draw_car(const brush *b)
{
    static const double rear_window[][2] = { { -0.21, -0.48 }, { -0.02, -0.48 }, { -0.02, -0.33 }, { -0.28, -0.33 } };
    static const double front_window[][2] = { { 0.03, -0.48 }, { 0.15, -0.48 }, { 0.25, -0.33 }, { 0.03, -0.33 } };
    cairo_t *cr = b->cr;
    cairo.move_to(cr, -0.49, -0.10);
    cairo.curve_to(cr, -0.51, -0.26, -0.50, -0.30, -0.38, -0.32);
    cairo.curve_to(cr, -0.30, -0.52, -0.26, -0.55, -0.18, -0.55);
    cairo.line_to(cr, 0.12, -0.55);
    cairo.curve_to(cr, 0.20, -0.55, 0.27, -0.42, 0.32, -0.32);
    cairo.curve_to(cr, 0.46, -0.30, 0.50, -0.26, 0.50, -0.10);
    cairo.close_path(cr);
    brush_fill(b, 1, SHADE_FLAT);
    path_polygon(cr, rear_window, 4);
    path_polygon(cr, front_window, 4);
    brush_plain(b, (paint_rgb){ 0.62, 0.80, 0.90 });
    path_ellipse(cr, 0.465, -0.21, 0.03, 0.035);
    brush_glow(b, lamp);
    wheel(b, -0.27);
    wheel(b, 0.28);
}

void draw_fish(const brush *b)
{
    static const double tail[][2] = { { -0.24, -0.42 }, { -0.50, -0.66 }, { -0.43, -0.42 }, { -0.50, -0.18 } };
    cairo_t *cr = b->cr;
    path_polygon(cr, tail, 4);
    brush_fill(b, 0.85, SHADE_FLAT);
    cairo.move_to(cr, -0.06, -0.66);
    cairo.curve_to(cr, 0, -0.84, 0.14, -0.86, 0.22, -0.80);
    cairo.curve_to(cr, 0.18, -0.74, 0.20, -0.68, 0.22, -0.62);
    cairo.close_path(cr);
    brush_fill(b, 0.80, SHADE_FLAT);
    cairo.move_to(cr, -0.32, -0.42);
    cairo.curve_to(cr, -0.14, -0.78, 0.34, -0.78, 0.50, -0.42);
    cairo.curve_to(cr, 0.34, -0.08, -0.14, -0.08, -0.32, -0.42);
    cairo.close_path(cr);
    brush_fill(b, 1, SHADE_ROUND);
    path_ellipse(cr, 0.33, -0.49, 0.055, 0.055);
    brush_plain(b, (paint_rgb){ 1, 1, 1 });
    path_ellipse(cr, 0.345, -0.49, 0.028, 0.028);
    brush_plain(b, dark);
    cairo.move_to(cr, 0.06, -0.40);
    cairo.curve_to(cr, -0.06, -0.34, -0.08, -0.28, -0.06, -0.22);
    cairo.curve_to(cr, 0.04, -0.24, 0.10, -0.30, 0.13, -0.38);
    cairo.close_path(cr);
    brush_fill(b, 0.75, SHADE_FLAT);
}

void draw_house(const brush *b)
{
    static const double roof[][2] = { { -0.50, -0.54 }, { 0, -0.96 }, { 0.50, -0.54 } };
    cairo_t *cr = b->cr;
    cairo.rectangle(cr, 0.19, -0.94, 0.12, 0.30);
    brush_plain(b, (paint_rgb){ 0.55, 0.35, 0.30 });
    cairo.rectangle(cr, -0.40, -0.56, 0.80, 0.56);
    brush_fill(b, 1, SHADE_FLAT);
    path_polygon(cr, roof, 3);
    brush_fill(b, 0.62, SHADE_FLAT);
    cairo.rectangle(cr, -0.26, -0.34, 0.19, 0.34);
    brush_plain(b, (paint_rgb){ 0.34, 0.21, 0.14 });
    cairo.rectangle(cr, 0.07, -0.40, 0.22, 0.20);
    brush_glow(b, lamp);
    cairo.move_to(cr, 0.18, -0.40);
    cairo.line_to(cr, 0.18, -0.20);
    cairo.move_to(cr, 0.07, -0.30);
    cairo.line_to(cr, 0.29, -0.30);
    cairo.set_line_width(cr, 0.022);
    paint_source(cr, light_near(b->light, dark), 0.9);
    cairo.stroke(cr);
}

/* Three tiers of a fir, the lowest first. */
void draw_tree(const brush *b)
{
    static const double tier[3][3] = { { -0.12, -0.56, 0.44 }, { -0.36, -0.78, 0.34 }, { -0.60, -1.0, 0.24 } };
    cairo_t *cr = b->cr;
    cairo.rectangle(cr, -0.065, -0.18, 0.13, 0.18);
    brush_plain(b, bark);
    for (int i = 0; i < 3; i++) {
        double low = tier[i][0], high = tier[i][1], w = tier[i][2];
        cairo.move_to(cr, 0, high);
        cairo.curve_to(cr, 0.2 * w, 0.6 * high + 0.4 * low, 0.6 * w, low - 0.06, w, low - 0.02);
        cairo.curve_to(cr, 0.5 * w, low + 0.05, -0.5 * w, low + 0.05, -w, low - 0.02);
        cairo.curve_to(cr, -0.6 * w, low - 0.06, -0.2 * w, 0.6 * high + 0.4 * low, 0, high);
        cairo.close_path(cr);
        brush_fill(b, 0.84 + 0.12 * i, SHADE_FLAT);
    }
}
