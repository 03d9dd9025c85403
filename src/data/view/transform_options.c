/* The settings of a view: defaults, open_clip's names, validation. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "data/view/transform.h"

void transform_options_init(transform_options *o, int64_t size)
{
    *o = (transform_options){
        .size = size, .scale_min = 0.9, .scale_max = 1.0, .ratio_min = 3.0 / 4, .ratio_max = 4.0 / 3
    };
}

cloob_status transform_options_check(cloob_ctx *ctx, const transform_options *o)
{
    if (o->size < 1 || o->size > 16384)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "image size %lld: 1 to 16384 can be had", (long long)o->size);
    if (o->how.mode == RESIZE_PATCHES && (o->how.patch < 1 || o->how.patches < 1 ||
                                          o->size * o->size * 3 < o->how.patch * o->how.patch * 3 * o->how.patches + 4))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "resize mode patches belongs to NaFlex models");
    if (!(o->scale_min > 0 && o->scale_min <= o->scale_max && o->scale_max <= 1))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "crop scale %g to %g: shares of the area, 0 < min <= max <= 1",
                        o->scale_min, o->scale_max);
    if (!(o->ratio_min > 0 && o->ratio_min <= o->ratio_max && o->ratio_max < 1e6))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "crop ratio %g to %g: 0 < min <= max", o->ratio_min, o->ratio_max);
    for (int i = 0; i < 4; i++) {
        if (!(o->jitter[i] >= 0 && (i < 3 ? isfinite(o->jitter[i]) : o->jitter[i] <= 0.5)))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "colour jitter %g: not negative, and hue at most 0.5",
                            o->jitter[i]);
    }
    return CLOOB_OK;
}

/* --- by name ----------------------------------------------------------------------------------------- */

/* Up to `max` numbers separated by commas, in brackets or not; -1 when the text is something else. */
static int numbers(const char *text, double *out, int max)
{
    int n = 0;
    text += strspn(text, " ([");
    while (*text && n < max) {
        char *end;
        errno = 0;
        out[n++] = strtod(text, &end);
        if (end == text || errno) return -1;
        text = end + strspn(end, " )],");
    }
    return *text ? -1 : n;
}

static cloob_status bad_value(cloob_ctx *ctx, const char *key, const char *value, const char *wanted)
{
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s=%s: takes %s", key, value, wanted);
}

/* One number sets brightness, contrast and saturation; three do not change the hue. */
static cloob_status set_jitter(cloob_ctx *ctx, transform_options *o, const char *key, const char *value)
{
    double v[4] = { 0 };
    int n = numbers(value, v, 4);
    if (n != 1 && n != 3 && n != 4) return bad_value(ctx, key, value, "one, three or four numbers");
    if (n == 1) v[1] = v[2] = v[0];
    memcpy(o->jitter, v, sizeof v);
    if (o->jitter_prob == 0) o->jitter_prob = 1;
    return CLOOB_OK;
}

/* A number or two in a row of the struct, each from 0 to `most`. */
typedef struct number_row {
    const char *key, *wanted;
    size_t offset;
    int count;
    double most;
} number_row;

static const number_row rows[] = {
    { "scale", "two numbers, like 0.5,1", offsetof(transform_options, scale_min), 2, INFINITY },
    { "ratio", "two numbers, like 0.5,1", offsetof(transform_options, ratio_min), 2, INFINITY },
    { "color_jitter_prob", "a number from 0 to 1", offsetof(transform_options, jitter_prob), 1, 1 },
    { "gray_scale_prob", "a number from 0 to 1", offsetof(transform_options, gray_prob), 1, 1 },
    { "flip_prob", "a number from 0 to 1", offsetof(transform_options, flip_prob), 1, 1 },
};

cloob_status transform_options_set(cloob_ctx *ctx, transform_options *o, const char *key, const char *value)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const number_row *r = &rows[i];
        double v[2] = { 0 };
        if (strcmp(key, r->key) != 0) continue;
        if (numbers(value, v, r->count) != r->count || (r->count == 1 && !(v[0] >= 0 && v[0] <= r->most)))
            return bad_value(ctx, key, value, r->wanted);
        memcpy((char *)o + r->offset, v, (size_t)r->count * sizeof *v);
        return CLOOB_OK;
    }
    if (!strcmp(key, "color_jitter")) return set_jitter(ctx, o, key, value);
    if (!strcmp(key, "jpeg_shrink")) {
        o->jpeg_shrink = strcmp(value, "1") == 0;
        return o->jpeg_shrink || !strcmp(value, "0") ? CLOOB_OK : bad_value(ctx, key, value, "0 or 1");
    }
    if (!strcmp(key, "interpolation"))
        return resize_filter_from_name(value, &o->how.filter)
                   ? CLOOB_OK
                   : bad_value(ctx, key, value, "bicubic, bilinear, lanczos, box, hamming or nearest");
    if (!strcmp(key, "resize_mode"))
        return resize_mode_from_name(value, &o->how.mode)
                   ? CLOOB_OK
                   : bad_value(ctx, key, value, "shortest, longest, squash or none");
    if (!strcmp(key, "fill_color")) {
        double v;
        if (numbers(value, &v, 1) != 1 || !(v >= 0 && v <= 255))
            return bad_value(ctx, key, value, "a number from 0 to 255");
        o->how.fill = (uint8_t)v;
        return CLOOB_OK;
    }
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "%s: no such setting of a view; known are scale, ratio, color_jitter, color_jitter_prob, "
                    "gray_scale_prob, flip_prob, jpeg_shrink, interpolation, resize_mode, fill_color",
                    key);
}

cloob_status transform_options_parse(cloob_ctx *ctx, transform_options *o, const char *item)
{
    const char *eq = strchr(item, '=');
    char key[64];
    if (!eq || eq == item || (size_t)(eq - item) >= sizeof key)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%.80s: takes key=value, like scale=0.5,1", item);
    memcpy(key, item, (size_t)(eq - item));
    key[eq - item] = 0;
    return transform_options_set(ctx, o, key, eq + 1);
}
