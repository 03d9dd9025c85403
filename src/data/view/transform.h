/* What a model sees of an image: the evaluation view and the training view, still 8-bit RGB.
 *
 * Resizing is Pillow's antialiased filter to the last bit. As in open_clip an image is resized in the mode
 * its file has and converted to RGB after that: palettes by the nearest pixel, alpha with premultiplied
 * colours, CMYK in four channels; models of transformers differ (io/image/image_view.h). Random choices are a pure
 * function of the key, so the same sample of the same epoch gets the same crop whatever thread or rank draws it.
 * Normalising ((p / 255 - mean) / std) is left to the device. */
#ifndef DATA_VIEW_TRANSFORM_H
#define DATA_VIEW_TRANSFORM_H

#include "data/view/resize.h"
#include "io/image/image.h"

typedef struct transform_options {
    int64_t size;                /* output is size x size */
    image_view how;              /* evaluation view; training crops have its filter, as open_clip applies it */
    double scale_min, scale_max; /* random resized crop: share of the area; 0.9 .. 1 */
    double ratio_min, ratio_max; /* 3/4 .. 4/3; of RESIZE_PATCHES relative to the image's own */
    double jitter[4];            /* brightness, contrast, saturation, hue; 0: off */
    double jitter_prob, gray_prob;
    double flip_prob; /* 0 by default: captions mention left and right */
    bool jpeg_shrink; /* of bytes: decode a JPEG at 1/2, 1/4 or 1/8 where the view has no more pixels than that; faster,
                       * and not Pillow's pixels: docs/reference/images.md says by how much. false */
} transform_options;

void transform_options_init(transform_options *o, int64_t size);
/* CLOOB_ERR_ARGUMENT for a size below 1, shares outside 0..1, and invalid ratios or jitters. */
cloob_status transform_options_check(cloob_ctx *ctx, const transform_options *o);

/* One setting by open_clip's name: scale, ratio, color_jitter, color_jitter_prob, gray_scale_prob,
 * interpolation, resize_mode, fill_color; and flip_prob. Numbers are separated by commas; brackets are
 * allowed: "(0.5, 1.0)". */
cloob_status transform_options_set(cloob_ctx *ctx, transform_options *o, const char *key, const char *value);
/* The same from "key=value", as --aug-cfg takes it. */
cloob_status transform_options_parse(cloob_ctx *ctx, transform_options *o, const char *item);

/* --- views ----------------------------------------------------------------------------------------- */

typedef struct view_scratch view_scratch; /* decoder and buffers, kept from call to call; one per thread */

cloob_status view_scratch_create(cloob_ctx *ctx, view_scratch **out);
void view_scratch_destroy(view_scratch *s);

/* Without a key the evaluation view: resized by o->how, centre crop or padding. With one the training view: random
 * resized crop and augmentations drawn from it. out: (size, size, 3); of RESIZE_PATCHES a record of that many bytes.
 *
 * From the bytes of a file, decoding no more than the view needs (limits may be NULL), or from an image in memory (s
 * may be NULL). Both give the same pixels. */
cloob_status view_of_bytes(cloob_ctx *ctx, view_scratch *s, const void *bytes, size_t size, const char *name,
                           const image_limits *limits, const transform_options *o, const uint64_t *key, uint8_t *out);
cloob_status view_of_image(cloob_ctx *ctx, view_scratch *s, const image *im, const transform_options *o,
                           const uint64_t *key, uint8_t *out);

/* Box of the source, resized to width x height. out: (height, width, 3). The box must be inside; a box without pixels
 * gives black, as in Pillow. */
cloob_status transform_crop_resize(cloob_ctx *ctx, const image *im, int64_t top, int64_t left, int64_t crop_height,
                                   int64_t crop_width, int64_t width, int64_t height, resize_filter filter,
                                   uint8_t *out);

/* The crop torchvision's RandomResizedCrop would draw: ten tries of area and log-uniform ratio, then the
 * centre. */
image_box transform_draw_crop(const transform_options *o, uint64_t key, int64_t width, int64_t height);
/* Whether the training view of a key is mirrored, and whether its colours are changed (jitter, grey). */
bool transform_draw_flip(const transform_options *o, uint64_t key);
bool transform_draw_colours(const transform_options *o, uint64_t key);

/* ---- colours and the mirror, on a finished view, with Pillow's 8-bit arithmetic (augment.c) ---- */

/* All in place on n pixels, (n, 3). factor 1 changes nothing (hue: shift 0), as in torchvision. */
void augment_brightness(uint8_t *rgb, int64_t n, float factor);
void augment_contrast(uint8_t *rgb, int64_t n, float factor);
void augment_saturation(uint8_t *rgb, int64_t n, float factor);
void augment_hue(uint8_t *rgb, int64_t n, double shift); /* -0.5 .. 0.5 of the circle */
void augment_gray(uint8_t *rgb, int64_t n);
void augment_flip(uint8_t *rgb, int64_t width, int64_t height); /* left to right */

/* torchvision's ColorJitter: the four in random order, each factor uniform in 1 +- strength (hue: 0 +-
 * strength). */
void augment_jitter(uint8_t *rgb, int64_t n, const double strength[4], uint64_t key);

/* A JPEG of at most size x size pixels of an image file in memory, rotated by its EXIF orientation. The
 * caller frees *jpeg. name is for messages; images above max_pixels are refused. */
cloob_status thumbnail_jpeg(cloob_ctx *ctx, const void *bytes, size_t count, const char *name, int64_t size,
                            int64_t max_pixels, void **jpeg, size_t *jpeg_bytes);

#endif
