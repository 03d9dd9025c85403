/* Sample sheets: a grid of pictures with words below, as a PNG. */
#include "data/synth_paint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sheet {
    cloob_ctx *ctx;
    cairo_t *cr;
    int64_t size; /* of a picture */
    uint8_t *rgb; /* one picture */
} sheet;

enum { GAP = 6, LINES = 3 };

static double line_height(const sheet *s) { return 6 + (double)s->size * 0.055; }

static cloob_status put_picture(sheet *s, const synth_scene *scene, double x, double y)
{
    CLOOB_TRY(synth_render(s->ctx, scene, s->size, s->rgb));
    cairo_surface_t *surface = paint_surface(s->rgb, s->size);
    cairo_set_source_surface(s->cr, surface, x, y);
    cairo_paint(s->cr);
    cairo_surface_destroy(surface);
    return CLOOB_OK;
}

/* Words broken into lines as wide as a picture; what does not fit into LINES is left out. */
static void put_text(sheet *s, const char *text, double x, double y)
{
    char line[512] = "";
    int lines = 0;
    cairo_set_source_rgb(s->cr, 0.1, 0.1, 0.12);
    while (*text && lines < LINES) {
        size_t word = strcspn(text, " "), had = strlen(line);
        if (had + word + 2 > sizeof line) break;
        snprintf(line + had, sizeof line - had, "%s%.*s", had ? " " : "", (int)word, text);
        cairo_text_extents_t e;
        cairo_text_extents(s->cr, line, &e);
        if (e.x_advance > (double)s->size && had) {
            line[had] = '\0';
            cairo_move_to(s->cr, x, y + line_height(s) * (lines++ + 0.8));
            cairo_show_text(s->cr, line);
            line[0] = '\0';
            continue;
        }
        text += word + strspn(text + word, " ");
    }
    cairo_move_to(s->cr, x, y + line_height(s) * (lines + 0.8));
    if (lines < LINES) cairo_show_text(s->cr, line);
}

static cloob_status put_samples(sheet *s, const synth_world *w, int rows, int columns)
{
    double dx = (double)s->size + GAP, dy = (double)s->size + GAP + LINES * line_height(s);
    for (int i = 0; i < rows * columns; i++) {
        double x = GAP + dx * (i % columns), y = GAP + dy * (double)(i / columns);
        synth_scene scene;
        sbuf text = { 0 };
        synth_draw(w, SYNTH_TRAIN, i, &scene);
        CLOOB_TRY(put_picture(s, &scene, x, y));
        synth_caption(&scene, &text);
        if (text.data) put_text(s, text.data, x, y + (double)s->size);
        sbuf_release(&text);
    }
    return CLOOB_OK;
}

/* A plain scene in which one factor walks through its values. */
static cloob_status put_factors(sheet *s, const synth_world *w)
{
    static const uint8_t plain[SYNTH_FACTORS] = { SYNTH_BALL, SYNTH_RED,    SYNTH_MATTE,  SYNTH_MEDIUM,
                                                  SYNTH_ONE,  SYNTH_CENTRE, SYNTH_MEADOW, SYNTH_DAY };
    double dx = (double)s->size + GAP, dy = (double)s->size + GAP + line_height(s);
    for (int f = 0; f < SYNTH_FACTORS; f++)
        for (int v = 0; v < synth_factors[f].count; v++) {
            double x = GAP + dx * v, y = GAP + dy * f;
            synth_scene scene = { .key = rng_subkey(rng_key(w->seed, "sheet"), (uint64_t)f) };
            memcpy(scene.value, plain, sizeof plain);
            scene.value[f] = (uint8_t)v;
            CLOOB_TRY(put_picture(s, &scene, x, y));
            put_text(s, synth_factors[f].value[v].name, x, y + (double)s->size);
        }
    return CLOOB_OK;
}

cloob_status synth_sheet(cloob_ctx *ctx, const synth_world *w, int rows, int columns, int64_t size,
                         const char *path)
{
    bool by_factor = rows == 0;
    sheet s = { ctx, NULL, size, malloc((size_t)(size * size * 3)) };
    if (!s.rgb) return ctx_no_memory(ctx, (size_t)(size * size * 3), "a picture");
    int across = by_factor ? SYNTH_MAX_VALUES : columns, down = by_factor ? SYNTH_FACTORS : rows;
    double cell = (double)size + GAP + (by_factor ? 1 : LINES) * line_height(&s);
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, GAP + across * ((int)size + GAP),
                                   GAP + (int)(down * cell));
    s.cr = cairo_create(surface);
    cairo_set_source_rgb(s.cr, 1, 1, 1);
    cairo_paint(s.cr);
    cairo_select_font_face(s.cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(s.cr, 0.82 * line_height(&s));
    cloob_status status = by_factor ? put_factors(&s, w) : put_samples(&s, w, rows, columns);
    cairo_status_t written =
        status == CLOOB_OK ? cairo_surface_write_to_png(surface, path) : CAIRO_STATUS_SUCCESS;
    if (written != CAIRO_STATUS_SUCCESS)
        status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write the sheet: %s", path,
                          cairo_status_to_string(written));
    cairo_destroy(s.cr);
    cairo_surface_destroy(surface);
    free(s.rgb);
    return status;
}
