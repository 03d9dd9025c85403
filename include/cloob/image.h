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
    CLOOB_VIEW_CROP,     /* the box, resized to size x size */
    CLOOB_VIEW_TRAIN     /* random resized crop and augmentations, drawn from seed */
} cloob_view_kind;

typedef struct cloob_view_options {
    cloob_view_kind kind;
    int64_t size;                     /* the result is size x size */
    int64_t top, left, height, width; /* CLOOB_VIEW_CROP: a box inside the image; an empty one gives black */
    const char *interpolation;        /* "bicubic" (NULL) or "bilinear" */
    const char *resize_mode;          /* "shortest" (NULL), "longest" (padded with black) or "squash" */
    const char *const
        *aug; /* CLOOB_VIEW_TRAIN: "key=value" items, NULL ends; NULL: none. See docs/reference/images.md */
    uint64_t seed;
    int64_t max_pixels; /* images above it are refused; 25,000,000; 0: no limit */
    bool photo;         /* turned upright by its EXIF orientation; a JPEG above max_pixels is decoded smaller */
} cloob_view_options;

CLOOB_API void cloob_view_options_init(cloob_view_options *o, int64_t size);

/* Reads an image and makes its view. On failure *out is empty. */
CLOOB_API cloob_status cloob_view_file(cloob_ctx *ctx, const char *path, const cloob_view_options *o, cloob_image *out);
/* The same from bytes in memory; name is for messages. */
CLOOB_API cloob_status cloob_view_bytes(cloob_ctx *ctx, const void *bytes, size_t size, const char *name,
                                        const cloob_view_options *o, cloob_image *out);

/* Files, folders (with the folders in them) and glob patterns, as paths of images: what is named is taken as it is,
 * folders give files with the endings of known formats, in order. */
typedef struct cloob_image_paths {
    const char **path; /* (count), belongs to `memory` */
    int64_t count;
    void *memory;
} cloob_image_paths;

/* A single path that is not there is an error that names it; one of several is listed, and whoever reads it leaves it
 * out. Release the result also on failure. */
CLOOB_API cloob_status cloob_image_paths_find(cloob_ctx *ctx, const char *const *what, int64_t n,
                                              cloob_image_paths *out);
CLOOB_API void cloob_image_paths_release(cloob_image_paths *p);

/* Writes an RGB PNG beside the target and renames it. */
CLOOB_API cloob_status cloob_image_write_png(cloob_ctx *ctx, const char *path, const cloob_image *p);
CLOOB_API void cloob_image_release(cloob_image *p);

/* A JPEG of at most size x size pixels of an image file in memory, turned upright as its EXIF orientation says. The
 * caller frees *jpeg. name is for messages; max_pixels as above. */
CLOOB_API cloob_status cloob_thumbnail(cloob_ctx *ctx, const void *bytes, size_t count, const char *name, int64_t size,
                                       int64_t max_pixels, void **jpeg, size_t *jpeg_bytes);

/* Width and height of an image file in memory, upright, from its header alone. */
CLOOB_API cloob_status cloob_image_size(cloob_ctx *ctx, const void *bytes, size_t count, const char *name,
                                        int64_t *width, int64_t *height);

#ifdef __cplusplus
}
#endif
#endif
