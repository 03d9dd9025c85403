/* An image file as a model sees it (cloob/image.h), and as a thumbnail. */
#include "cloob/image.h"

#include <stdlib.h>

#include "core/arith.h"
#include "core/file.h"
#include "core/rng.h"
#include "data/view/transform.h"
#include "core/needs.h"

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
    case CLOOB_VIEW_EVAL: return view_of_image(ctx, NULL, im, o, NULL, out);
    case CLOOB_VIEW_TRAIN: return view_of_image(ctx, NULL, im, o, &(uint64_t){ rng_key(v->seed, "view") }, out);
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

/* --- thumbnails: decode small and upright, resize, encode ---------------------------------------------- */

enum { QUALITY = 84 };

/* The smallest scale in eighths at which a JPEG still has as many pixels as the thumbnail. */
static int scale_of(int64_t width, int64_t height, int64_t size)
{
    int64_t longest = width > height ? width : height;
    for (int eighths = 1; eighths < 8; eighths *= 2)
        if (longest * eighths >= 8 * size) return eighths;
    return 8;
}

static cloob_status shrink(cloob_ctx *ctx, const image *im, int64_t w, int64_t h, uint8_t *out)
{
    resize_scratch s = { 0 };
    resize_source src = { im->rgb, im->width * 3, im->width, im->height, 3 };
    resize_plan p = resize_plan_whole(w, h, RESIZE_BICUBIC);
    cloob_status status = resize_run(ctx, &s, &src, &p, out);
    resize_scratch_release(&s);
    return status;
}

static cloob_status make(cloob_ctx *ctx, const void *bytes, size_t count, const char *name, int64_t max_pixels,
                         int64_t size, sbuf *out)
{
    image im;
    int64_t w, h;
    if (size < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a thumbnail of %lld pixels", (long long)size);
    CLOOB_TRY(image_size(ctx, bytes, count, name, &w, &h));
    image_limits l = { .max_pixels = max_pixels, .jpeg_scale = scale_of(w, h, size), .photo = true };
    CLOOB_TRY(image_decode(ctx, bytes, count, name, &l, &im));
    int64_t longest = im.width > im.height ? im.width : im.height, edge = longest < size ? longest : size;
    w = max64(1, (im.width * edge + longest / 2) / longest);
    h = max64(1, (im.height * edge + longest / 2) / longest);
    uint8_t *small = malloc((size_t)(w * h * 3));
    cloob_status status =
        small ? shrink(ctx, &im, w, h, small) : ctx_no_memory(ctx, (size_t)(w * h * 3), "a thumbnail");
    if (status == CLOOB_OK) status = image_encode_jpeg(ctx, small, w, h, QUALITY, out);
    free(small);
    image_release(&im);
    return status;
}

cloob_status thumbnail_jpeg(cloob_ctx *ctx, const void *bytes, size_t count, const char *name, int64_t size,
                            int64_t max_pixels, void **jpeg, size_t *jpeg_bytes)
{
    API_NEEDS(ctx, bytes && name && jpeg && jpeg_bytes);
    sbuf out = { 0 };
    *jpeg = NULL;
    cloob_status status = make(ctx, bytes, count, name, max_pixels, size, &out);
    if (status == CLOOB_OK && out.failed) status = ctx_no_memory(ctx, out.len, "a thumbnail");
    if (status != CLOOB_OK) sbuf_release(&out);
    else *jpeg_bytes = out.len, *jpeg = out.data;
    return status;
}
