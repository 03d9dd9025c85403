/* Examples drawn by cairo. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/cairo_library.h"
#include "lab/report/examples.h"

enum { COLUMNS = 4, CELL = 190, SIDE = 130, TITLE = 22, ROW = 22, MARGIN = 12 };
enum { CELL_HEIGHT = MARGIN + SIDE + TITLE + EXAMPLE_GUESSES * ROW + MARGIN };

static cairo_surface_t *surface_of(const image *im)
{
    cairo_surface_t *s = cairo.image_surface_create(CAIRO_FORMAT_RGB24, (int)im->width, (int)im->height);
    uint8_t *to = cairo.image_surface_get_data(s);
    int stride = cairo.image_surface_get_stride(s);
    for (int64_t y = 0; to && y < im->height; y++)
        for (int64_t x = 0; x < im->width; x++) {
            const uint8_t *rgb = im->rgb + 3 * (y * im->width + x);
            uint32_t pixel = (uint32_t)rgb[0] << 16 | (uint32_t)rgb[1] << 8 | rgb[2];
            memcpy(to + y * stride + 4 * x, &pixel, 4);
        }
    cairo.surface_mark_dirty(s);
    return s;
}

/* Into a square at the top of a cell, its shape kept. */
static void draw_pixels(cairo_t *cr, const image *im)
{
    double scale = SIDE / fmax((double)im->width, (double)im->height);
    cairo_surface_t *s = surface_of(im);
    cairo.save(cr);
    cairo.translate(cr, MARGIN + (SIDE - scale * (double)im->width) / 2,
                    MARGIN + (SIDE - scale * (double)im->height) / 2);
    cairo.scale(cr, scale, scale);
    cairo.set_source_surface(cr, s, 0, 0);
    cairo.paint(cr);
    cairo.restore(cr);
    cairo.surface_destroy(s);
}

static void draw_guess(cairo_t *cr, const example_guess *g, double y)
{
    char share[32];
    cairo_text_extents_t e;
    double room = CELL - 2 * MARGIN;
    snprintf(share, sizeof share, "%.1f %%", 100 * g->share);
    cairo.set_source_rgb(cr, .11, .14, .19);
    cairo.save(cr); /* a long label ends where its number begins */
    cairo.rectangle(cr, MARGIN, y, room - 44, ROW);
    cairo.clip(cr);
    cairo.move_to(cr, MARGIN, y + 13);
    cairo.show_text(cr, g->label);
    cairo.restore(cr);
    cairo.text_extents(cr, share, &e);
    cairo.move_to(cr, MARGIN + room - e.x_advance, y + 13);
    cairo.show_text(cr, share);
    if (g->right) cairo.set_source_rgb(cr, .09, .50, .24);
    else cairo.set_source_rgb(cr, .55, .60, .68);
    cairo.rectangle(cr, MARGIN, y + 16, room * fmin(fmax(g->share, 0), 1), 4);
    cairo.fill(cr);
}

static void draw_example(cairo_t *cr, const example *e)
{
    if (e->pixels.rgb && e->pixels.width > 0 && e->pixels.height > 0) draw_pixels(cr, &e->pixels);
    cairo.set_source_rgb(cr, .11, .14, .19);
    cairo.select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_BOLD);
    cairo.set_font_size(cr, 12);
    cairo.move_to(cr, MARGIN, MARGIN + SIDE + 15);
    cairo.show_text(cr, e->title);
    if (e->rank) {
        char rank[32];
        snprintf(rank, sizeof rank, "  rank %lld", (long long)e->rank);
        cairo.show_text(cr, rank);
    }
    cairo.select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo.set_font_size(cr, 11);
    for (int k = 0; k < e->guesses; k++) draw_guess(cr, &e->guess[k], MARGIN + SIDE + TITLE + (double)(k * ROW));
}

static cairo_status_t collect(void *user, const unsigned char *bytes, unsigned n)
{
    sbuf_add(user, bytes, n);
    return CAIRO_STATUS_SUCCESS;
}

bool examples_draw(sbuf *out, const example *e, int64_t n, bool pdf)
{
    if (!cairo_is_there()) return false;
    int64_t columns = n < COLUMNS ? n : COLUMNS, rows = (n + COLUMNS - 1) / COLUMNS;
    double width = (double)(columns * CELL), height = (double)(rows * CELL_HEIGHT);
    cairo_surface_t *surface = pdf ? cairo.pdf_surface_create_for_stream(collect, out, width, height)
                                   : cairo.svg_surface_create_for_stream(collect, out, width, height);
    cairo_t *cr = cairo.create(surface);
    cairo.set_source_rgb(cr, 1, 1, 1);
    cairo.paint(cr);
    for (int64_t i = 0; i < n; i++) {
        cairo.save(cr);
        cairo.translate(cr, (double)(i % COLUMNS * CELL), (double)(i / COLUMNS * CELL_HEIGHT));
        draw_example(cr, &e[i]);
        cairo.restore(cr);
    }
    cairo.destroy(cr);
    cairo.surface_finish(surface);
    if (cairo.surface_status(surface) != CAIRO_STATUS_SUCCESS) out->failed = true;
    cairo.surface_destroy(surface);
    return true;
}
