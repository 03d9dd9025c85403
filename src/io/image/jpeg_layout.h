/* What a JPEG file holds, from its markers alone: whether a decoder of plain files can read it, and the layout of its
 * planes. */
#ifndef IO_IMAGE_JPEG_LAYOUT_H
#define IO_IMAGE_JPEG_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct jpeg_layout {
    int32_t width, height;
    int32_t components;   /* 1: grey; 3: Y, Cb, Cr */
    int32_t across, down; /* luma samples for one of chroma: 1 1, 2 1 or 2 2 */
    size_t size;          /* bytes up to the end of the image; what follows is not part of it */
    bool exif;            /* has EXIF data, perhaps with an orientation */
} jpeg_layout;

/* True for a complete file with one baseline scan of 8-bit samples, grey or YCbCr at 4:4:4, 4:2:2 or 4:2:0, whose
 * chroma is wide enough to be smoothed (3 samples). False for all others: progressive, CMYK, RGB, cut off, no JPEG.
 * Coded data is searched for its end, not decoded. */
bool jpeg_layout_read(const uint8_t *bytes, size_t size, jpeg_layout *out);

#endif
