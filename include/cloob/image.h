/* Images: decodes a file and computes the view that a model receives, before normalisation.
 *
 *     cloob_view_options o;
 *     cloob_view_options_init(&o, 224);
 *     cloob_image p;
 *     if (cloob_view_file(ctx, "cat.jpg", &o, &p) == CLOOB_OK) { ... p.rgb ... cloob_image_release(&p); }
 *
 * The format (JPEG, PNG, WebP) is detected from the content. Resizing equals Pillow's antialiased filter, bit for
 * bit. */
#ifndef CLOOB_IMAGE_H
#define CLOOB_IMAGE_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_image {
    uint8_t *rgb; /* (height, width, 3); freed by cloob_image_release */
    int64_t width, height;
} cloob_image;

typedef enum cloob_view_kind {
    CLOOB_VIEW_EVAL = 0, /* resize by resize_mode, centre crop */
    CLOOB_VIEW_CROP,     /* the box below, resized to side x side */
    CLOOB_VIEW_TRAIN     /* random resized crop and augmentations, drawn from seed */
} cloob_view_kind;

typedef struct cloob_view_options {
    size_t size; /* of this struct; set by cloob_view_options_init */
    cloob_view_kind kind;
    int64_t side;                     /* the result is side x side */
    int64_t top, left, height, width; /* CLOOB_VIEW_CROP: a box inside the image; an empty box gives black */
    const char *interpolation;        /* "bicubic" (NULL) or "bilinear" */
    const char *resize_mode;          /* "shortest" (NULL), "longest" (padded with black) or "squash" */
    /* CLOOB_VIEW_TRAIN: NULL-terminated array of "key=value" texts; NULL: none. See docs/reference/images.md. */
    const char *const *aug;
    uint64_t seed;
    int64_t max_pixels; /* larger images are refused; default: 25,000,000; 0: no limit */
    bool photo;         /* apply the EXIF orientation; decode a JPEG above max_pixels at a reduced scale */
} cloob_view_options;

CLOOB_API void cloob_view_options_init_size(cloob_view_options *o, size_t size);
static inline void cloob_view_options_init(cloob_view_options *o, int64_t side)
{
    cloob_view_options_init_size(o, sizeof *o);
    if (o) o->side = side;
}

/* Reads an image file and computes its view. The caller releases *out; on failure *out is empty. */
CLOOB_API cloob_status cloob_view_file(cloob_ctx *ctx, const char *path, const cloob_view_options *o, cloob_image *out);
/* The same for an encoded image in memory; `name` identifies it in error messages. */
CLOOB_API cloob_status cloob_view_bytes(cloob_ctx *ctx, const void *bytes, size_t size, const char *name,
                                        const cloob_view_options *o, cloob_image *out);

CLOOB_API void cloob_image_release(cloob_image *p);

#ifdef __cplusplus
}
#endif
#endif
