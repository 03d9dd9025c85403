/* Sample sheets: a grid of images with words below, as a PNG. */
#include "lab/synth/paint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sheet {
    cloob_ctx *ctx;
    cairo_t *cr;
    int64_t size; /* of an image */
    uint8_t *rgb; /* one image */
} sheet;

enum { GAP = 6, LINES = 3, MAX_SIDE = 16384 };

static double line_height(const sheet *s) { return 6 + (double)s->size * 0.055; }

static cloob_status put_image(sheet *s, const synth_scene *scene, double x, double y)
{
    CLOOB_TRY(synth_render(s->ctx, scene, s->size, s->rgb));
    cairo_surface_t *surface = paint_surface(s->rgb, s->size);
    cairo.set_source_surface(s->cr, surface, x, y);
    cairo.paint(s->cr);
    cairo.surface_destroy(surface);
    return CLOOB_OK;
}

/* Words broken into lines as wide as an image; what does not fit into LINES is left out. */
static void put_text(sheet *s, const char *text, double x, double y)
{
    char line[512] = "";
    int lines = 0;
    cairo.set_source_rgb(s->cr, 0.1, 0.1, 0.12);
    while (*text && lines < LINES) {
        size_t word = strcspn(text, " "), had = strlen(line);
        if (had + word + 2 > sizeof line) break;
        snprintf(line + had, sizeof line - had, "%s%.*s", had ? " " : "", (int)word, text);
        cairo_text_extents_t e;
        cairo.text_extents(s->cr, line, &e);
        if (e.x_advance > (double)s->size && had) {
            line[had] = '\0';
            cairo.move_to(s->cr, x, y + line_height(s) * (lines++ + 0.8));
            cairo.show_text(s->cr, line);
            line[0] = '\0';
            continue;
        }
        text += word + strspn(text + word, " ");
    }
    cairo.move_to(s->cr, x, y + line_height(s) * (lines + 0.8));
    if (lines < LINES) cairo.show_text(s->cr, line);
}

static cloob_status put_samples(sheet *s, const synth_world *w, int rows, int columns)
{
    double dx = (double)s->size + GAP, dy = (double)s->size + GAP + LINES * line_height(s);
    for (int i = 0; i < rows * columns; i++) {
        double x = GAP + dx * (i % columns), y = GAP + dy * (double)(i / columns);
        synth_scene scene;
        sbuf text = { 0 };
        synth_draw(w, SYNTH_TRAIN, i, &scene);
        CLOOB_TRY(put_image(s, &scene, x, y));
        synth_caption(&scene, &text);
        bool failed = text.failed;
        if (!failed) put_text(s, text.data, x, y + (double)s->size);
        sbuf_release(&text);
        if (failed) return ctx_no_memory(s->ctx, 256, "a caption");
    }
    return CLOOB_OK;
}

/* Which factors share a row, so that all rows are about as long as that of the objects. */
enum { FACTOR_ROWS = 4 };
static const synth_factor factor_rows[FACTOR_ROWS][3] = {
    { SYNTH_OBJECT, SYNTH_FACTORS, SYNTH_FACTORS },
    { SYNTH_COLOUR, SYNTH_LIGHT, SYNTH_FACTORS },
    { SYNTH_MATERIAL, SYNTH_SIZE, SYNTH_POSITION },
    { SYNTH_BACKGROUND, SYNTH_COUNT, SYNTH_FACTORS },
};

/* A plain scene in which one factor takes a value. */
static cloob_status put_value(sheet *s, const synth_world *w, synth_factor f, int value, double x, double y)
{
    static const uint8_t plain[SYNTH_FACTORS] = { SYNTH_BALL, SYNTH_RED,    SYNTH_MATTE,  SYNTH_MEDIUM,
                                                  SYNTH_ONE,  SYNTH_CENTRE, SYNTH_MEADOW, SYNTH_DAY };
    synth_scene scene = { .key = rng_subkey(rng_key(w->seed, "sheet"), (uint64_t)f) };
    memcpy(scene.value, plain, sizeof plain);
    scene.value[f] = (uint8_t)value;
    CLOOB_TRY(put_image(s, &scene, x, y));
    put_text(s, synth_factors[f].value[value].name, x, y + (double)s->size);
    return CLOOB_OK;
}

static cloob_status put_factors(sheet *s, const synth_world *w)
{
    double dx = (double)s->size + GAP, dy = (double)s->size + GAP + line_height(s);
    for (int row = 0; row < FACTOR_ROWS; row++) {
        int at = 0;
        for (int i = 0; i < 3 && factor_rows[row][i] != SYNTH_FACTORS; i++)
            for (int v = 0; v < synth_factors[factor_rows[row][i]].count; v++, at++)
                CLOOB_TRY(put_value(s, w, factor_rows[row][i], v, GAP + dx * at, GAP + dy * row));
    }
    return CLOOB_OK;
}

static cloob_status draw_sheet(sheet *s, const synth_world *w, int rows, int columns)
{
    cairo.set_source_rgb(s->cr, 1, 1, 1);
    cairo.paint(s->cr);
    cairo.select_font_face(s->cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo.set_font_size(s->cr, 0.82 * line_height(s));
    return rows == 0 ? put_factors(s, w) : put_samples(s, w, rows, columns);
}

cloob_status synth_sheet(cloob_ctx *ctx, const synth_world *w, int rows, int columns, int64_t size, const char *path)
{
    sheet s = { ctx, NULL, size, NULL };
    int across = rows == 0 ? SYNTH_MAX_VALUES : columns, down = rows == 0 ? FACTOR_ROWS : rows;
    double width = GAP + across * ((double)size + GAP);
    double height = GAP + down * ((double)size + GAP + (rows == 0 ? 1 : LINES) * line_height(&s));
    if (width > MAX_SIDE || height > MAX_SIDE)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a sheet of %.0f x %.0f pixels: at most %d a side", width, height,
                        MAX_SIDE);
    CLOOB_TRY(cairo_use(ctx));
    s.rgb = malloc((size_t)(size * size * 3));
    if (!s.rgb) return ctx_no_memory(ctx, (size_t)(size * size * 3), "an image");
    cairo_surface_t *surface = cairo.image_surface_create(CAIRO_FORMAT_RGB24, (int)width, (int)height);
    s.cr = cairo.create(surface);
    cloob_status status = draw_sheet(&s, w, rows, columns);
    if (status == CLOOB_OK && cairo.surface_write_to_png(surface, path) != CAIRO_STATUS_SUCCESS)
        status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write the sheet there", path);
    cairo.destroy(s.cr);
    cairo.surface_destroy(surface);
    free(s.rgb);
    return status;
}
