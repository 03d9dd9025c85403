/* Images from bytes: JPEG, PNG, WebP, GIF, BMP, TIFF, HEIC, recognised by their first bytes, as 8-bit RGB.
 *
 * Whatever the file holds (grey, CMYK, palette, alpha, 16 bit), `rgb` is what Pillow's convert("RGB") gives. EXIF
 * orientation is applied where the limits request it: loaders of data sets do not, programs for photos do. Damaged or
 * truncated files, unknown formats and images above the pixel limit are refused with one line; the limit is checked
 * before anything is allocated.
 *
 * Other loaders resize before they convert to RGB, so a resize needs what the pixels were: that is `kind` and `extra`,
 * which src/data/view/transform.h reads. Code that makes its own images leaves them zero. */
#ifndef IO_IMAGE_IMAGE_H
#define IO_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cloob/options.h"
#include "core/ctx.h"
#include "core/sbuf.h"

typedef enum image_kind {
    IMAGE_RGB = 0, /* colour or grey: nothing beyond rgb */
    IMAGE_ALPHA,   /* extra: alpha, (height, width); resized with premultiplied colours */
    IMAGE_CMYK,    /* extra: C, M, Y, K, (height, width, 4); resized in these */
    IMAGE_INDEXED  /* palette or 1 bit: resized by the nearest pixel */
} image_kind;

/* Colours by their number; black beyond the file's palette. 1 bit: 0 is black, every other number white. */
typedef struct image_palette {
    uint8_t rgb[256][3];
} image_palette;

typedef struct image {
    uint8_t *rgb; /* (height, width, 3); owned */
    int64_t width, height;
    image_kind kind;
    uint8_t *extra; /* owned, or NULL; of IMAGE_RGB and IMAGE_INDEXED: the alpha of colours that are transparent */
    image_palette palette; /* of IMAGE_INDEXED */
} image;

typedef struct image_limits {
    int64_t max_pixels; /* 0: no limit */
    int jpeg_scale;     /* eighths of the size to decode a JPEG at, 1..8; 8 or 0: full size */
    /* Turned upright by its EXIF orientation; a JPEG above max_pixels, or with max_pixels not 0 above IMAGE_MAX_PIXELS,
     * is decoded at a smaller scale. */
    bool photo;
} image_limits;

#define IMAGE_MAX_PIXELS ((int64_t)CLOOB_DEFAULT_MAX_PIXELS)

/* name is for messages. limits may be NULL: IMAGE_MAX_PIXELS, full size. On failure *out is empty. */
cloob_status image_decode(cloob_ctx *ctx, const void *bytes, size_t size, const char *name, const image_limits *limits,
                          image *out);
cloob_status image_read(cloob_ctx *ctx, const char *path, const image_limits *limits, image *out);

/* Width and height from the header alone. */
cloob_status image_size(cloob_ctx *ctx, const void *bytes, size_t size, const char *name, int64_t *width,
                        int64_t *height);

cloob_status image_write_png(cloob_ctx *ctx, const char *path, const uint8_t *rgb, int64_t width, int64_t height);

void image_release(image *im);

/* --- many images in sequence: buffers and codec state are reused ---------------------------- */

typedef struct image_box {
    int64_t top, left, height, width;
} image_box;

/* A window of a decoded image. rgb points at the window's first pixel; rows are `stride` bytes apart. The creator of
 * the image owns the bytes. extra follows kind, or is NULL: pixel (0, 0) of the window, 1 byte (alpha) or 4 bytes
 * (CMYK) per pixel, rows extra_stride apart. */
typedef struct image_part {
    const uint8_t *rgb, *extra;
    int64_t stride, extra_stride;
    int64_t width, height;
    image_kind kind;
    const image_palette *palette; /* of IMAGE_INDEXED; padding is given as a number of it */
} image_part;

image_part image_whole(const image *im);
image_part image_window(const image_part *p, const image_box *box); /* the box must be inside */

/* One pixel, as Pillow converts it: (255 - k) - c (255 - k) / 255, rounded. */
void image_cmyk_to_rgb(const uint8_t cmyk[4], uint8_t rgb[3]);

typedef struct image_reader image_reader;

cloob_status image_reader_create(cloob_ctx *ctx, image_reader **out);
void image_reader_destroy(image_reader *r);

/* Reads the header of an image. bytes and name must stay until the load. */
cloob_status image_reader_open(cloob_ctx *ctx, image_reader *r, const void *bytes, size_t size, const char *name,
                               const image_limits *limits, int64_t *width, int64_t *height);

/* Decodes what the box needs and no more where that is exact: the window's pixels equal those of the whole
 * image. box NULL: the whole. Valid until the next open. One load per open. */
cloob_status image_reader_load(cloob_ctx *ctx, image_reader *r, const image_box *box, image_part *out);

/* Frees the pixels of the last load; the reader may be used again. */
void image_reader_trim(image_reader *r);

/* JPEG bytes from 8-bit RGB. */

bool image_jpeg_available(void);

/* Appends the file to out. rgb: (height, width, 3), each side 1 to 65500. quality: 1 to 100. Colour is stored
 * at full resolution (4:4:4). CLOOB_ERR_UNSUPPORTED in a build without libjpeg. */
cloob_status image_encode_jpeg(cloob_ctx *ctx, const uint8_t *rgb, int64_t width, int64_t height, int quality,
                               sbuf *out);

/* What a JPEG file holds, from its headers: whether a decoder of plain files can read it, and how its planes are
 * stored. */

typedef struct jpeg_layout {
    int32_t width, height;
    int32_t components;   /* 1: grey; 3: Y, Cb, Cr */
    int32_t across, down; /* luma samples for one of chroma: 1 1, 2 1 or 2 2 */
    size_t size;          /* bytes up to the end of the image; what follows is not part of it */
} jpeg_layout;

/* True for a complete file with one baseline scan of 8-bit samples, grey or YCbCr at 4:4:4, 4:2:2 or 4:2:0, whose
 * chroma is wide enough to be smoothed (3 samples). False for all others: progressive, CMYK, RGB, cut off, no JPEG, and
 * in a build without libjpeg. Coded data is searched for its end, not decoded. */
bool jpeg_layout_read(const uint8_t *bytes, size_t size, jpeg_layout *out);

#endif
