/* The small things: ball, bottle, butterfly, cube, cup, mushroom, star. Each in its box: x -0.5 .. 0.5, y -1
 * .. 0. */
#include "lab/synth/paint.h"

#include <math.h>

#define PI 3.141592653589793

void draw_ball(const brush *b)
{
    path_ellipse(b->cr, 0, -0.46, 0.46, 0.46);
    brush_fill(b, 1, SHADE_ROUND);
}

void draw_bottle(const brush *b)
{
    cairo_t *cr = b->cr;
    cairo.move_to(cr, -0.085, -0.94);
    cairo.line_to(cr, -0.085, -0.72);
    cairo.curve_to(cr, -0.08, -0.60, -0.26, -0.60, -0.26, -0.46);
    cairo.line_to(cr, -0.26, -0.05);
    cairo.curve_to(cr, -0.26, 0, -0.24, 0, -0.19, 0);
    cairo.line_to(cr, 0.19, 0);
    cairo.curve_to(cr, 0.24, 0, 0.26, 0, 0.26, -0.05);
    cairo.line_to(cr, 0.26, -0.46);
    cairo.curve_to(cr, 0.26, -0.60, 0.08, -0.60, 0.085, -0.72);
    cairo.line_to(cr, 0.085, -0.94);
    cairo.close_path(cr);
    brush_fill(b, 1, SHADE_FLAT);
    cairo.rectangle(cr, -0.105, -1, 0.21, 0.10);
    brush_plain(b, (paint_rgb){ 0.30, 0.22, 0.18 });
}

/* One wing pair of one side; side is -1 or 1. */
static void wings(const brush *b, double side)
{
    cairo_t *cr = b->cr;
    cairo.move_to(cr, 0, -0.48);
    cairo.curve_to(cr, side * 0.10, -0.86, side * 0.40, -1.02, side * 0.50, -0.86);
    cairo.curve_to(cr, side * 0.56, -0.66, side * 0.40, -0.50, side * 0.22, -0.46);
    cairo.curve_to(cr, side * 0.46, -0.42, side * 0.44, -0.12, side * 0.28, -0.10);
    cairo.curve_to(cr, side * 0.14, -0.09, side * 0.06, -0.26, 0, -0.42);
    cairo.close_path(cr);
    brush_fill(b, side < 0 ? 1.06 : 0.94, SHADE_FLAT);
}

void draw_butterfly(const brush *b)
{
    const paint_rgb body = { 0.16, 0.12, 0.12 };
    wings(b, -1);
    wings(b, 1);
    path_ellipse(b->cr, 0, -0.45, 0.045, 0.27);
    path_ellipse(b->cr, 0, -0.74, 0.055, 0.055);
    brush_plain(b, body);
    for (int side = -1; side <= 1; side += 2) {
        cairo.move_to(b->cr, 0, -0.76);
        cairo.curve_to(b->cr, side * 0.03, -0.88, side * 0.08, -0.94, side * 0.15, -0.96);
    }
    cairo.set_line_width(b->cr, 0.025);
    paint_source(b->cr, light_near(b->light, body), 1);
    cairo.stroke(b->cr);
}

void draw_cube(const brush *b)
{
    static const double front[][2] = { { -0.450, -0.558 }, { 0.126, -0.558 }, { 0.126, 0 }, { -0.450, 0 } };
    static const double top[][2] = { { -0.450, -0.558 }, { -0.126, -0.828 }, { 0.450, -0.828 }, { 0.126, -0.558 } };
    static const double side[][2] = { { 0.126, -0.558 }, { 0.450, -0.828 }, { 0.450, -0.270 }, { 0.126, 0 } };
    path_polygon(b->cr, side, 4);
    brush_fill(b, 0.50, SHADE_FLAT);
    path_polygon(b->cr, top, 4);
    brush_fill(b, 1.25, SHADE_FLAT);
    path_polygon(b->cr, front, 4);
    brush_fill(b, 0.92, SHADE_FLAT);
}

/* A tall beaker with a large ear, so that it is not one more block. */
void draw_cup(const brush *b)
{
    cairo_t *cr = b->cr;
    cairo.new_sub_path(cr);
    cairo.arc(cr, 0.20, -0.50, 0.24, -0.5 * PI, 0.5 * PI);
    brush_stroke(b, 0.085, 0.85);
    cairo.move_to(cr, -0.46, -0.88);
    cairo.line_to(cr, -0.32, -0.06);
    cairo.curve_to(cr, -0.22, 0.02, 0.00, 0.02, 0.10, -0.06);
    cairo.line_to(cr, 0.24, -0.88);
    cairo.close_path(cr);
    brush_fill(b, 1, SHADE_FLAT);
    path_ellipse(cr, -0.11, -0.88, 0.35, 0.12);
    brush_fill(b, 1.15, SHADE_FLAT);
    path_ellipse(cr, -0.11, -0.87, 0.285, 0.085);
    brush_plain(b, (paint_rgb){ 0.20, 0.11, 0.06 });
}

void draw_mushroom(const brush *b)
{
    cairo_t *cr = b->cr;
    cairo.move_to(cr, -0.13, -0.52);
    cairo.curve_to(cr, -0.09, -0.30, -0.15, -0.12, -0.20, -0.03);
    cairo.curve_to(cr, -0.08, 0.02, 0.08, 0.02, 0.20, -0.03);
    cairo.curve_to(cr, 0.15, -0.12, 0.09, -0.30, 0.13, -0.52);
    cairo.close_path(cr);
    brush_plain(b, (paint_rgb){ 0.93, 0.88, 0.76 });
    cairo.move_to(cr, -0.50, -0.46);
    cairo.curve_to(cr, -0.48, -0.84, -0.22, -0.98, 0, -0.98);
    cairo.curve_to(cr, 0.22, -0.98, 0.48, -0.84, 0.50, -0.46);
    cairo.curve_to(cr, 0.30, -0.38, -0.30, -0.38, -0.50, -0.46);
    cairo.close_path(cr);
    brush_fill(b, 1, SHADE_ROUND);
}

void draw_star(const brush *b)
{
    cairo.new_sub_path(b->cr);
    for (int i = 0; i < 10; i++) {
        double r = i % 2 ? 0.195 : 0.54, angle = PI * (i / 5.0 - 0.5);
        cairo.line_to(b->cr, r * cos(angle), -0.45 + r * sin(angle));
    }
    cairo.close_path(b->cr);
    cairo.set_line_join(b->cr, CAIRO_LINE_JOIN_ROUND);
    brush_fill(b, 1, SHADE_ROUND);
}
