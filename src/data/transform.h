/* What a model sees of a picture: the evaluation view and the training view, still 8-bit RGB.
 *
 * Resizing is Pillow's antialiased filter to the last bit. Random choices are a pure function of the key, so
 * the same sample of the same epoch gets the same crop whatever thread or rank draws it. Normalising
 * ((p / 255 - mean) / std) is left to the device. */
#ifndef DATA_TRANSFORM_H
#define DATA_TRANSFORM_H

#include "io/image.h"

typedef enum resize_filter { RESIZE_BICUBIC, RESIZE_BILINEAR } resize_filter;
typedef enum resize_mode { RESIZE_SHORTEST, RESIZE_LONGEST, RESIZE_SQUASH } resize_mode;

typedef struct transform_options {
    int64_t size; /* output is size x size */
    resize_filter filter;
    resize_mode mode;          /* evaluation view; RESIZE_LONGEST pads */
    double scale_min, scale_max; /* random resized crop: share of the area; 0.9 .. 1 */
    double ratio_min, ratio_max; /* 3/4 .. 4/3 */
    double jitter[4];          /* brightness, contrast, saturation, hue; 0: off */
    double jitter_prob, gray_prob;
    double flip_prob;          /* 0 by default: captions speak of left and right */
} transform_options;

void transform_options_init(transform_options *o, int64_t size);

/* Shortest edge to size, centre crop. out: (size, size, 3). */
cloob_status transform_eval(cloob_ctx *ctx, const image *im, const transform_options *o, uint8_t *out);
/* Random resized crop and augmentations drawn from key. out: (size, size, 3). */
cloob_status transform_train(cloob_ctx *ctx, const image *im, const transform_options *o, uint64_t key, uint8_t *out);
/* Box of the source, resized to width x height. out: (height, width, 3). The box must lie inside. */
cloob_status transform_crop_resize(cloob_ctx *ctx, const image *im, int64_t top, int64_t left, int64_t crop_height,
                                   int64_t crop_width, int64_t width, int64_t height, resize_filter filter, uint8_t *out);

#endif
