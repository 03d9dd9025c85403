/* Thumbnails: decodes at a reduced scale, applies the EXIF orientation, resizes, encodes. */
#include <stdlib.h>

#include "core/arith.h"
#include "data/view/transform.h"

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
    sbuf out = { 0 };
    *jpeg = NULL;
    cloob_status status = make(ctx, bytes, count, name, max_pixels, size, &out);
    if (status == CLOOB_OK && out.failed) status = ctx_no_memory(ctx, out.len, "a thumbnail");
    if (status != CLOOB_OK) sbuf_release(&out);
    else *jpeg_bytes = out.len, *jpeg = out.data;
    return status;
}
