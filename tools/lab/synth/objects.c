/* The twelve objects as tables of parts. Each is drawn in its box: x -0.5 .. 0.5, y -1 .. 0. */
#include "lab/synth/paint.h"

#include <math.h>
#include <stdlib.h>

#define PI 3.141592653589793

/* ---- paths --------------------------------------------------------------------------------------- */

static void path_star(cairo_t *cr)
{
    cairo.new_sub_path(cr);
    for (int i = 0; i < 10; i++) {
        double r = i % 2 ? 0.195 : 0.54, angle = PI * (i / 5.0 - 0.5);
        cairo.line_to(cr, r * cos(angle), -0.45 + r * sin(angle));
    }
    cairo.close_path(cr);
}

/* One tier of a fir, w wide on each side. */
static void path_tier(cairo_t *cr, double low, double high, double w)
{
    cairo.move_to(cr, 0, high);
    cairo.curve_to(cr, 0.2 * w, 0.6 * high + 0.4 * low, 0.6 * w, low - 0.06, w, low - 0.02);
    cairo.curve_to(cr, 0.5 * w, low + 0.05, -0.5 * w, low + 0.05, -w, low - 0.02);
    cairo.curve_to(cr, -0.6 * w, low - 0.06, -0.2 * w, 0.6 * high + 0.4 * low, 0, high);
    cairo.close_path(cr);
}

/* Letters, each followed by its numbers; M, L, C and Z are those of SVG:
 *
 *     M x y            begin        R x y w h                rectangle          S               the star
 *     L x y            line         E x y rx ry              ellipse            T low high w    a tier of the fir
 *     C x y x y x y    curve        A x y r from to          arc, angles in pi
 *     Z                close        X                        mirror what follows */
static void path_draw(cairo_t *cr, const char *text)
{
    double flip = 1, v[6];
    while (*text) {
        char letter = *text++;
        int n = 0;
        for (char *end = NULL; n < 6; n++, text = end) {
            v[n] = strtod(text, &end);
            if (end == text) break;
            if (n % 2 == 0) v[n] *= flip;
        }
        switch (letter) {
        case 'M': cairo.move_to(cr, v[0], v[1]); break;
        case 'L': cairo.line_to(cr, v[0], v[1]); break;
        case 'C': cairo.curve_to(cr, v[0], v[1], v[2], v[3], v[4], v[5]); break;
        case 'Z': cairo.close_path(cr); break;
        case 'R': cairo.rectangle(cr, v[0], v[1], v[2], v[3]); break;
        case 'E': path_ellipse(cr, v[0], v[1], v[2], v[3]); break;
        case 'A': cairo.new_sub_path(cr), cairo.arc(cr, v[0], v[1], v[2], v[3] * PI, v[4] * PI); break;
        case 'S': path_star(cr); break;
        case 'T': path_tier(cr, v[0], v[1], v[2]); break;
        case 'X': flip = -flip; break;
        default: break; /* a blank */
        }
    }
}

/* ---- parts --------------------------------------------------------------------------------------- */

typedef enum part_kind { FLAT = 1, ROUND, PLAIN, GLOW, LINES, HANDLE } part_kind;

typedef struct part {
    part_kind kind;
    double tone; /* FLAT, ROUND, HANDLE: of the material; LINES: opacity */
    const char *path;
    paint_rgb colour; /* PLAIN, GLOW, LINES */
    double width;     /* LINES, HANDLE */
} part;

/* clang-format off */
#define DARK   { 0.13, 0.13, 0.15 }
#define BARK   { 0.40, 0.26, 0.15 }
#define LAMP   { 1.0, 0.86, 0.45 }
#define INSECT { 0.16, 0.12, 0.12 }
#define WING                                                                                                           \
    "M 0 -.48 C .10 -.86 .40 -1.02 .50 -.86 C .56 -.66 .40 -.50 .22 -.46 C .46 -.42 .44 -.12 .28 -.10 "                \
    "C .14 -.09 .06 -.26 0 -.42 Z"
#define FEELER "M 0 -.76 C .03 -.88 .08 -.94 .15 -.96"

/* The boat is a long hull with raised ends and a square sail: nothing like the triangles of the tree. The cup is a tall
 * beaker with a large ear, so that it is not one more block. The tree's lowest tier comes first. */
enum { PARTS = 9 };
static const part objects[SYNTH_OBJECTS][PARTS] = {
    [SYNTH_BALL] = { { ROUND, 1, "E 0 -.46 .46 .46" } },
    [SYNTH_BOAT] = {
        { PLAIN, 0, "R -.03 -1 .06 .78", BARK },
        { FLAT, 1.1, "M -.30 -.94 L .26 -.94 C .40 -.80 .40 -.58 .28 -.42 L -.28 -.42 C -.18 -.58 -.18 -.80 "
                     "-.30 -.94 Z" },
        { FLAT, 0.82, "M -.52 -.46 C -.44 -.28 -.30 -.27 0 -.27 C .30 -.27 .44 -.28 .52 -.46 C .54 -.14 .36 0 .20 0 "
                      "L -.20 0 C -.36 0 -.54 -.14 -.52 -.46 Z" } },
    [SYNTH_BOTTLE] = {
        { FLAT, 1, "M -.085 -.94 L -.085 -.72 C -.08 -.60 -.26 -.60 -.26 -.46 L -.26 -.05 C -.26 0 -.24 0 -.19 0 "
                   "L .19 0 C .24 0 .26 0 .26 -.05 L .26 -.46 C .26 -.60 .08 -.60 .085 -.72 L .085 -.94 Z" },
        { PLAIN, 0, "R -.105 -1 .21 .10", { 0.30, 0.22, 0.18 } } },
    [SYNTH_BUTTERFLY] = {
        { FLAT, 1.06, "X" WING },
        { FLAT, 0.94, WING },
        { PLAIN, 0, "E 0 -.45 .045 .27 E 0 -.74 .055 .055", INSECT },
        { LINES, 1, "X" FEELER "X" FEELER, INSECT, 0.025 } },
    [SYNTH_CAR] = {
        { FLAT, 1, "M -.49 -.10 C -.51 -.26 -.50 -.30 -.38 -.32 C -.30 -.52 -.26 -.55 -.18 -.55 L .12 -.55 "
                   "C .20 -.55 .27 -.42 .32 -.32 C .46 -.30 .50 -.26 .50 -.10 Z" },
        { PLAIN, 0, "M -.21 -.48 L -.02 -.48 L -.02 -.33 L -.28 -.33 Z M .03 -.48 L .15 -.48 L .25 -.33 L .03 -.33 Z",
          { 0.62, 0.80, 0.90 } },
        { GLOW, 0, "E .465 -.21 .03 .035", LAMP },
        { PLAIN, 0, "E -.27 -.105 .105 .105", DARK },
        { PLAIN, 0, "E -.27 -.105 .050 .050", { 0.75, 0.76, 0.78 } },
        { PLAIN, 0, "E .28 -.105 .105 .105", DARK },
        { PLAIN, 0, "E .28 -.105 .050 .050", { 0.75, 0.76, 0.78 } } },
    [SYNTH_CUBE] = {
        { FLAT, 0.50, "M .126 -.558 L .450 -.828 L .450 -.270 L .126 0 Z" },
        { FLAT, 1.25, "M -.450 -.558 L -.126 -.828 L .450 -.828 L .126 -.558 Z" },
        { FLAT, 0.92, "M -.450 -.558 L .126 -.558 L .126 0 L -.450 0 Z" } },
    [SYNTH_CUP] = {
        { HANDLE, 0.85, "A .20 -.50 .24 -.5 .5", .width = 0.085 },
        { FLAT, 1, "M -.46 -.88 L -.32 -.06 C -.22 .02 .00 .02 .10 -.06 L .24 -.88 Z" },
        { FLAT, 1.15, "E -.11 -.88 .35 .12" },
        { PLAIN, 0, "E -.11 -.87 .285 .085", { 0.20, 0.11, 0.06 } } },
    [SYNTH_FISH] = {
        { FLAT, 0.85, "M -.24 -.42 L -.50 -.66 L -.43 -.42 L -.50 -.18 Z" },
        { FLAT, 0.80, "M -.06 -.66 C 0 -.84 .14 -.86 .22 -.80 C .18 -.74 .20 -.68 .22 -.62 Z" },
        { ROUND, 1, "M -.32 -.42 C -.14 -.78 .34 -.78 .50 -.42 C .34 -.08 -.14 -.08 -.32 -.42 Z" },
        { PLAIN, 0, "E .33 -.49 .055 .055", { 1, 1, 1 } },
        { PLAIN, 0, "E .345 -.49 .028 .028", DARK },
        { FLAT, 0.75, "M .06 -.40 C -.06 -.34 -.08 -.28 -.06 -.22 C .04 -.24 .10 -.30 .13 -.38 Z" } },
    [SYNTH_HOUSE] = {
        { PLAIN, 0, "R .19 -.94 .12 .30", { 0.55, 0.35, 0.30 } },
        { FLAT, 1, "R -.40 -.56 .80 .56" },
        { FLAT, 0.62, "M -.50 -.54 L 0 -.96 L .50 -.54 Z" },
        { PLAIN, 0, "R -.26 -.34 .19 .34", { 0.34, 0.21, 0.14 } },
        { GLOW, 0, "R .07 -.40 .22 .20", LAMP },
        { LINES, 0.9, "M .18 -.40 L .18 -.20 M .07 -.30 L .29 -.30", DARK, 0.022 } },
    [SYNTH_MUSHROOM] = {
        { PLAIN, 0, "M -.13 -.52 C -.09 -.30 -.15 -.12 -.20 -.03 C -.08 .02 .08 .02 .20 -.03 "
                    "C .15 -.12 .09 -.30 .13 -.52 Z", { 0.93, 0.88, 0.76 } },
        { ROUND, 1, "M -.50 -.46 C -.48 -.84 -.22 -.98 0 -.98 C .22 -.98 .48 -.84 .50 -.46 "
                    "C .30 -.38 -.30 -.38 -.50 -.46 Z" } },
    [SYNTH_STAR] = { { ROUND, 1, "S" } },
    [SYNTH_TREE] = {
        { PLAIN, 0, "R -.065 -.18 .13 .18", BARK },
        { FLAT, 0.84, "T -.12 -.56 .44" },
        { FLAT, 0.84 + 0.12, "T -.36 -.78 .34" },
        { FLAT, 0.84 + 0.12 * 2, "T -.60 -1.0 .24" } },
};
/* clang-format on */

void draw_object(const brush *b, int object)
{
    for (const part *p = objects[object]; p->kind; p++) {
        path_draw(b->cr, p->path);
        switch (p->kind) {
        case FLAT: brush_fill(b, p->tone, SHADE_FLAT); break;
        case ROUND: brush_fill(b, p->tone, SHADE_ROUND); break;
        case PLAIN: brush_plain(b, p->colour); break;
        case GLOW: brush_glow(b, p->colour); break;
        case HANDLE: brush_stroke(b, p->width, p->tone); break;
        case LINES:
            cairo.set_line_width(b->cr, p->width);
            paint_source(b->cr, light_near(b->light, p->colour), p->tone);
            cairo.stroke(b->cr);
            break;
        }
    }
}
