/* Pictures from bytes: JPEG, PNG, WebP, told apart by their first bytes, as 8-bit RGB.
 *
 * Whatever the file holds (grey, CMYK, palette, alpha, 16 bit), what comes out is what Pillow's
 * convert("RGB") gives. EXIF orientation is not applied, as the field's loaders do not. Damaged files,
 * unknown formats and pictures above the pixel limit are refused with one line. */
#ifndef IO_IMAGE_H
#define IO_IMAGE_H

#include "core/ctx.h"

typedef struct image {
    uint8_t *rgb; /* (height, width, 3); owned */
    int64_t width, height;
} image;

typedef struct image_limits {
    int64_t max_pixels; /* 0: no limit */
    int jpeg_scale;     /* eighths of the size to decode a JPEG at, 1..8; 8 or 0: full size */
} image_limits;

/* name is for messages. limits may be NULL: 25,000,000 pixels, full size. */
cloob_status image_decode(cloob_ctx *ctx, const void *bytes, size_t size, const char *name, const image_limits *limits,
                          image *out);
cloob_status image_read(cloob_ctx *ctx, const char *path, const image_limits *limits, image *out);

/* Width and height from the header alone. */
cloob_status image_size(cloob_ctx *ctx, const void *bytes, size_t size, const char *name, int64_t *width, int64_t *height);

cloob_status image_write_png(cloob_ctx *ctx, const char *path, const uint8_t *rgb, int64_t width, int64_t height);

void image_release(image *im);

#endif
