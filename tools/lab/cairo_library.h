/* cairo, which draws charts and the synthetic world. It is loaded with the first drawing: a program that draws nothing
 * starts on a machine without it.
 *
 *     CLOOB_TRY(cairo_use(ctx));
 *     cairo.move_to(cr, x, y); */
#ifndef LAB_CAIRO_LIBRARY_H
#define LAB_CAIRO_LIBRARY_H

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>

#include "core/ctx.h"

/* clang-format off */
#define CAIRO_FUNCTIONS(X) \
    X(append_path) X(arc) X(clip) X(close_path) X(copy_path) X(create) X(curve_to) X(destroy) X(fill) \
    X(fill_preserve) X(image_surface_create) X(image_surface_get_data) X(image_surface_get_stride) X(line_to) \
    X(move_to) X(new_path) X(new_sub_path) X(paint) X(path_destroy) X(path_extents) X(pattern_add_color_stop_rgb) \
    X(pattern_add_color_stop_rgba) X(pattern_create_linear) X(pattern_create_radial) X(pattern_destroy) \
    X(pdf_surface_create_for_stream) X(recording_surface_create) X(rectangle) X(restore) X(rotate) X(save) X(scale) \
    X(select_font_face) X(set_font_size) X(set_line_cap) X(set_line_join) X(set_line_width) X(set_source) \
    X(set_source_rgb) X(set_source_rgba) X(show_text) X(status) X(status_to_string) X(stroke) \
    X(stroke_preserve) X(surface_destroy) X(surface_finish) X(surface_flush) X(surface_status) \
    X(svg_surface_create_for_stream) X(text_extents) \
    X(translate)
/* clang-format on */
#define MEMBER(name) __typeof__(&cairo_##name) name;
typedef struct cairo_functions {
    CAIRO_FUNCTIONS(MEMBER)
} cairo_functions;
#undef MEMBER

/* Written once by the first load that succeeds. */
extern cairo_functions cairo;

/* Before the first call of a drawing. Fails with one line that says what to install. */
cloob_status cairo_use(cloob_ctx *ctx);
/* The same without an error, for a page that shows numbers in place of a chart. */
bool cairo_is_there(void);

#endif
