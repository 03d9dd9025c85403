/* A scene as pixels: backdrop, then the objects from back to front, each with its shadow. */
#include "lab/synth/paint.h"

static backdrop_fn *const backdrops[SYNTH_BACKGROUNDS] = {
    [SYNTH_BEACH] = draw_beach,   [SYNTH_DESERT] = draw_desert, [SYNTH_FOREST] = draw_forest,
    [SYNTH_MEADOW] = draw_meadow, [SYNTH_ROOM] = draw_room,     [SYNTH_SNOW] = draw_snow,
    [SYNTH_STREET] = draw_street,
};

/* How wide the shadow is, in widths of the box, and how high the thing floats. */
static const struct {
    double shadow, lift;
} stance[SYNTH_OBJECTS] = {
    [SYNTH_BALL] = { 0.40, 0 },         [SYNTH_BOAT] = { 0.46, 0 }, [SYNTH_BOTTLE] = { 0.28, 0 },
    [SYNTH_BUTTERFLY] = { 0.34, 0.08 }, [SYNTH_CAR] = { 0.52, 0 },  [SYNTH_CUBE] = { 0.50, 0 },
    [SYNTH_CUP] = { 0.36, 0 },          [SYNTH_FISH] = { 0.42, 0 }, [SYNTH_HOUSE] = { 0.50, 0 },
    [SYNTH_MUSHROOM] = { 0.34, 0 },     [SYNTH_STAR] = { 0.36, 0 }, [SYNTH_TREE] = { 0.34, 0 },
};

/* ---- positions of objects -------------------------------------------------------------------------- */

typedef struct place {
    double x, y, scale; /* of the point on the ground, and of the box */
} place;

/* Offsets in widths of one object, back row first; the width of an object by size; half the width of the
 * group. */
typedef struct layout {
    int count;
    double half, width[SYNTH_SIZES], at[4][2];
} layout;

#define WIDTHS(large, medium, small)                                                                                   \
    {                                                                                                                  \
        [SYNTH_LARGE] = large, [SYNTH_MEDIUM] = medium, [SYNTH_SMALL] = small                                          \
    }

/* A group leaves space on both sides, and no object is so small that its shape is unrecognisable at 64
 * pixels. */
static const layout layouts[SYNTH_COUNTS] = {
    [SYNTH_ONE] = { 1, 0.50, WIDTHS(0.64, 0.49, 0.36), { { 0, 0 } } },
    [SYNTH_TWO] = { 2, 0.98, WIDTHS(0.46, 0.38, 0.31), { { -0.48, 0 }, { 0.48, 0 } } },
    [SYNTH_THREE] = { 3, 0.98, WIDTHS(0.44, 0.37, 0.30), { { 0, -0.58 }, { -0.48, 0 }, { 0.48, 0 } } },
    [SYNTH_FOUR] = { 4,
                     0.98,
                     WIDTHS(0.43, 0.36, 0.30),
                     { { -0.42, -0.66 }, { 0.50, -0.62 }, { -0.50, 0 }, { 0.46, 0 } } },
};

static int arrange(const synth_scene *s, place *out)
{
    const layout *l = &layouts[s->value[SYNTH_COUNT]];
    rnd d = rnd_from(s->key, "layout");
    double width = l->width[s->value[SYNTH_SIZE]] * rnd_range(&d, 0.96, 1.04);
    double edge = l->half * width + rnd_range(&d, -0.03, 0.02), x = 0.5 + rnd_range(&d, -0.02, 0.02);
    double y = 0.89 + rnd_range(&d, -0.03, 0.03), jitter = l->count > 1 ? 0.05 : 0;
    if (s->value[SYNTH_POSITION] == SYNTH_LEFT) x = edge;
    if (s->value[SYNTH_POSITION] == SYNTH_RIGHT) x = 1 - edge;
    for (int i = 0; i < l->count; i++) {
        out[i].scale = width * (l->at[i][1] < 0 ? 0.94 : 1);
        out[i].x = x + width * (l->at[i][0] + rnd_range(&d, -jitter, jitter));
        out[i].y = y + width * (l->at[i][1] + rnd_range(&d, -jitter, jitter));
    }
    return l->count;
}

/* ---- drawing ------------------------------------------------------------------------------------- */

static void draw_shadow(cairo_t *cr, int light, int object, place at)
{
    double dark = light == SYNTH_FOG ? 0.30 : light == SYNTH_DAY ? 0.48 : 0.42;
    cairo.save(cr);
    cairo.translate(cr, at.x + 0.05 * at.scale, at.y);
    cairo.scale(cr, 1.25 * stance[object].shadow * at.scale, 0.24 * stance[object].shadow * at.scale);
    cairo_pattern_t *p = cairo.pattern_create_radial(0, 0, 0.15, 0, 0, 1);
    cairo.pattern_add_color_stop_rgba(p, 0, 0, 0, 0.02, dark);
    cairo.pattern_add_color_stop_rgba(p, 0.6, 0, 0, 0.02, 0.6 * dark);
    cairo.pattern_add_color_stop_rgba(p, 1, 0, 0, 0.02, 0);
    cairo.set_source(cr, p);
    cairo.pattern_destroy(p);
    cairo.arc(cr, 0, 0, 1, 0, 6.283185307179586);
    cairo.fill(cr);
    cairo.restore(cr);
}

static void put_object(cairo_t *cr, const synth_scene *s, const brush *b, place at, rnd *d)
{
    int object = s->value[SYNTH_OBJECT];
    draw_shadow(cr, b->light, object, at);
    cairo.save(cr);
    cairo.translate(cr, at.x, at.y - stance[object].lift * at.scale);
    cairo.scale(cr, (rnd_chance(d, 0.5) ? -1 : 1) * at.scale, at.scale);
    cairo.rotate(cr, rnd_range(d, -0.05, 0.05));
    draw_object(b, object);
    cairo.restore(cr);
}

/* The air between the backdrop and the objects, so that these stand out. */
static void draw_haze(cairo_t *cr, int light)
{
    paint_source(cr, light_sky_horizon(light), 0.20);
    cairo.paint(cr);
}

static void draw_vignette(cairo_t *cr)
{
    cairo_pattern_t *p = cairo.pattern_create_radial(0.5, 0.5, 0.45, 0.5, 0.5, 0.78);
    cairo.pattern_add_color_stop_rgba(p, 0, 0, 0, 0, 0);
    cairo.pattern_add_color_stop_rgba(p, 1, 0, 0, 0, 0.22);
    cairo.set_source(cr, p);
    cairo.paint(cr);
    cairo.pattern_destroy(p);
}

static void draw_scene(cairo_t *cr, const synth_scene *s)
{
    rnd back = rnd_from(s->key, "backdrop"), d = rnd_from(s->key, "objects");
    int light = s->value[SYNTH_LIGHT];
    place at[4];
    backdrops[s->value[SYNTH_BACKGROUND]](cr, light, 0.52 + rnd_range(&back, -0.04, 0.04), &back);
    draw_haze(cr, light);
    brush b = brush_make(cr, light, s->value[SYNTH_MATERIAL], s->value[SYNTH_COLOUR], &d);
    int n = arrange(s, at);
    cairo.set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
    for (int i = 0; i < n; i++) {
        b.key = rng_subkey(b.key, (uint64_t)i); /* every piece has its own grain */
        put_object(cr, s, &b, at[i], &d);
    }
    draw_vignette(cr);
}

static void unpack(cairo_surface_t *surface, int64_t size, uint8_t *rgb)
{
    const unsigned char *data = cairo.image_surface_get_data(surface);
    int64_t stride = cairo.image_surface_get_stride(surface);
    for (int64_t y = 0; y < size; y++) {
        const uint32_t *row = (const uint32_t *)(const void *)(data + y * stride);
        for (int64_t x = 0; x < size; x++, rgb += 3) {
            rgb[0] = (uint8_t)(row[x] >> 16);
            rgb[1] = (uint8_t)(row[x] >> 8);
            rgb[2] = (uint8_t)row[x];
        }
    }
}

cloob_status synth_render(cloob_ctx *ctx, const synth_scene *s, int64_t size, uint8_t *rgb)
{
    if (size < SYNTH_MIN_SIZE || size > SYNTH_MAX_SIZE)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "images of %lld pixels: must be from %d to %d", (long long)size,
                        SYNTH_MIN_SIZE, SYNTH_MAX_SIZE);
    CLOOB_TRY(cairo_use(ctx));
    cairo_surface_t *surface = cairo.image_surface_create(CAIRO_FORMAT_RGB24, (int)size, (int)size);
    cairo_t *cr = cairo.create(surface);
    cairo.scale(cr, (double)size, (double)size);
    draw_scene(cr, s);
    cairo_status_t drawn = cairo.status(cr);
    cairo.surface_flush(surface);
    if (drawn == CAIRO_STATUS_SUCCESS) unpack(surface, size, rgb);
    cairo.destroy(cr);
    cairo.surface_destroy(surface);
    if (drawn == CAIRO_STATUS_SUCCESS) return CLOOB_OK;
    return ctx_fail(ctx, drawn == CAIRO_STATUS_NO_MEMORY ? CLOOB_ERR_MEMORY : CLOOB_ERR_UNSUPPORTED,
                    "cannot draw an image of %lld pixels: %s", (long long)size, cairo.status_to_string(drawn));
}
