/* How an image becomes the square that a model sees, before it is normalised. Part of a model: configurations store it
 * (model/config.h) and views apply it (data/view/transform.h).
 *
 * The image is resized by `mode` with `filter`, then the centre is cut out, or what is missing is padded with `fill`.
 * open_clip resizes in the mode of the file and converts to RGB afterwards; transformers (`hf`) converts to RGB first,
 * with transparency over white, rounds the weights of the filter as torch does, and rounds the offset of the crop down
 * where torchvision rounds to the nearest.
 *
 * RESIZE_PATCHES gives no square but a record of as many bytes: the image (h patch, w patch, 3), whose sides are whole
 * numbers of patches and h w at most `patches`, zeros, and in the last four bytes h and w, 16 bits each,
 * little-endian. */
#ifndef IO_IMAGE_IMAGE_VIEW_H
#define IO_IMAGE_IMAGE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

typedef enum resize_mode {
    RESIZE_SHORTEST, /* the shorter edge becomes `height` */
    RESIZE_LONGEST,  /* the longer edge becomes `height` */
    RESIZE_SQUASH,   /* `height` x `width`, whatever the proportions */
    RESIZE_NONE,     /* the image keeps its size */
    RESIZE_PATCHES,  /* NaFlex: as large as `patches` patches allow, with about its proportions; see below */
    RESIZE_MODES
} resize_mode;

/* Pillow's filters. */
typedef enum resize_filter {
    RESIZE_BICUBIC,
    RESIZE_BILINEAR,
    RESIZE_LANCZOS,
    RESIZE_BOX,
    RESIZE_HAMMING,
    RESIZE_NEAREST,
    RESIZE_FILTERS
} resize_filter;

typedef struct image_view {
    resize_mode mode;
    resize_filter filter;
    int64_t height, width;  /* what the resize makes; 0: the size of the view */
    uint8_t fill;           /* of padding, all channels */
    int64_t patch, patches; /* RESIZE_PATCHES: the side of a patch, the most of them; 0 otherwise */
    bool hf;                /* transformers' way instead of open_clip's */
} image_view;

/* "shortest", "longest", "squash", "none", "patches"; false: another word; *out does not change. */
bool resize_mode_from_name(const char *name, resize_mode *out);
const char *resize_mode_name(resize_mode m);
/* "bicubic", "bilinear", "lanczos", "box", "hamming", "nearest". */
bool resize_filter_from_name(const char *name, resize_filter *out);
const char *resize_filter_name(resize_filter f);
/* Pillow's numbers, which transformers stores: 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming. */
bool resize_filter_from_pillow(int64_t number, resize_filter *out);
int resize_filter_to_pillow(resize_filter f);

#endif
