/* An image file as a model sees it, and lists of image files (cloob/image.h). */
#include "cloob/image.h"

#include <glob.h>
#include <stdlib.h>

#include "core/file.h"
#include "core/rng.h"
#include "data/view/transform.h"
#include "core/needs.h"
#include "io/image/exif.h"
#include "io/image/image_list.h"

void cloob_view_options_init_size(cloob_view_options *o, size_t size)
{
    cloob_view_options d = { .max_pixels = IMAGE_MAX_PIXELS };
    options_write(o, size, &d, sizeof d);
}

static cloob_status to_transform(cloob_ctx *ctx, const cloob_view_options *v, transform_options *o)
{
    transform_options_init(o, v->side);
    if (v->interpolation) CLOOB_TRY(transform_options_set(ctx, o, "interpolation", v->interpolation));
    if (v->resize_mode) CLOOB_TRY(transform_options_set(ctx, o, "resize_mode", v->resize_mode));
    for (int i = 0; v->aug && v->aug[i]; i++) CLOOB_TRY(transform_options_parse(ctx, o, v->aug[i]));
    return transform_options_check(ctx, o);
}

static cloob_status make_view(cloob_ctx *ctx, const image *im, const cloob_view_options *v, const transform_options *o,
                              uint8_t *out)
{
    switch (v->kind) {
    case CLOOB_VIEW_EVAL: return transform_eval(ctx, im, o, out);
    case CLOOB_VIEW_TRAIN: return transform_train(ctx, im, o, rng_key(v->seed, "view"), out);
    case CLOOB_VIEW_CROP:
        return transform_crop_resize(ctx, im, v->top, v->left, v->height, v->width, v->side, v->side, o->how.filter,
                                     out);
    }
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "view of unknown kind %d", (int)v->kind);
}

cloob_status cloob_view_bytes(cloob_ctx *ctx, const void *bytes, size_t size, const char *name,
                              const cloob_view_options *v, cloob_image *out)
{
    API_NEEDS(ctx, bytes && name && v && out);
    cloob_view_options own;
    cloob_view_options_init(&own, 0);
    CLOOB_TRY(options_read(ctx, "cloob_view_options", &own, sizeof own, v));
    v = &own;
    image_limits limits = { v->max_pixels, 8, v->photo };
    transform_options o;
    image im;
    *out = (cloob_image){ 0 };
    CLOOB_TRY(to_transform(ctx, v, &o));
    CLOOB_TRY(image_decode(ctx, bytes, size, name, &limits, &im));
    size_t need = (size_t)(o.size * o.size * 3);
    uint8_t *rgb = malloc(need);
    cloob_status status = rgb ? make_view(ctx, &im, v, &o, rgb) : ctx_no_memory(ctx, need, "a view");
    image_release(&im);
    if (status == CLOOB_OK) *out = (cloob_image){ rgb, o.size, o.size };
    else free(rgb);
    return status;
}

cloob_status cloob_view_file(cloob_ctx *ctx, const char *path, const cloob_view_options *v, cloob_image *out)
{
    API_NEEDS(ctx, path && v && out);
    file_map map;
    *out = (cloob_image){ 0 };
    CLOOB_TRY(file_map_open(ctx, path, &map));
    cloob_status status = map.size ? cloob_view_bytes(ctx, map.data, map.size, path, v, out)
                                   : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the file is empty", path);
    file_map_close(&map);
    return status;
}

void cloob_image_release(cloob_image *p)
{
    if (!p) return;
    free(p->rgb);
    *p = (cloob_image){ 0 };
}
