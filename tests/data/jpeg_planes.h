/* JPEG files of every layout for the tests of views on a GPU, and their planes as libjpeg decodes them. */
#ifndef TESTS_DATA_JPEG_PLANES_H
#define TESTS_DATA_JPEG_PLANES_H

#include "data/view/ycc.h"
#include "io/image/image.h"

typedef struct jpeg_case {
    int width, height;
    int components;   /* 1, 3 or 4 */
    int across, down; /* luma samples for one of chroma */
    bool progressive, rgb;
    int restart; /* blocks between markers; 0: none */
    int exif;    /* an orientation to say; 0: no EXIF */
} jpeg_case;

/* A file with waves and noise. The caller frees. */
uint8_t *jpeg_make(const jpeg_case *c, uint64_t seed, size_t *bytes);

/* The planes of a file that jpeg_layout_read takes, in one block that the caller frees. */
uint8_t *jpeg_decode_planes(const uint8_t *bytes, size_t size, ycc_planes *out);

#endif
