/* Images: what a model sees of a file, before normalising.
 *
 *     cloob_view_options o;
 *     cloob_view_options_init(&o, 224);
 *     cloob_image p;
 *     if (cloob_view_file(ctx, "cat.jpg", &o, &p) == CLOOB_OK) { ... p.rgb ... cloob_image_release(&p); }
 *
 * JPEG, PNG and WebP are told apart by their content. Resizing is Pillow's antialiased filter, to the bit. */
#ifndef CLOOB_IMAGE_H
#define CLOOB_IMAGE_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_image {
    uint8_t *rgb; /* (height, width, 3); owned, freed by cloob_image_release */
    int64_t width, height;
} cloob_image;

typedef enum cloob_view_kind {
    CLOOB_VIEW_EVAL = 0, /* resize by resize_mode, centre crop */
    CLOOB_VIEW_CROP,     /* the box, resized to side x side */
    CLOOB_VIEW_TRAIN     /* random resized crop and augmentations, drawn from seed */
} cloob_view_kind;

typedef struct cloob_view_options {
    size_t size; /* of this struct; set by cloob_view_options_init */
    cloob_view_kind kind;
    int64_t side;                     /* the result is side x side */
    int64_t top, left, height, width; /* CLOOB_VIEW_CROP: a box inside the image; an empty one gives black */
    const char *interpolation;        /* "bicubic" (NULL) or "bilinear" */
    const char *resize_mode;          /* "shortest" (NULL), "longest" (padded with black) or "squash" */
    const char *const
        *aug; /* CLOOB_VIEW_TRAIN: "key=value" items, NULL ends; NULL: none. See docs/reference/images.md */
    uint64_t seed;
    int64_t max_pixels; /* images above it are refused; 25,000,000; 0: no limit */
    bool photo;         /* turned upright by its EXIF orientation; a JPEG above max_pixels is decoded smaller */
} cloob_view_options;

CLOOB_API void cloob_view_options_init(cloob_view_options *o, int64_t side);

/* Reads an image and makes its view. On failure *out is empty. */
CLOOB_API cloob_status cloob_view_file(cloob_ctx *ctx, const char *path, const cloob_view_options *o, cloob_image *out);
/* The same from bytes in memory; name is for messages. */
CLOOB_API cloob_status cloob_view_bytes(cloob_ctx *ctx, const void *bytes, size_t size, const char *name,
                                        const cloob_view_options *o, cloob_image *out);

CLOOB_API void cloob_image_release(cloob_image *p);

#ifdef __cplusplus
}
#endif
#endif
