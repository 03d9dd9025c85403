/* A faster reading of the entropy-coded part of sequential JPEGs, put in the place of libjpeg's own.
 *
 * Three quarters of the time of a photograph's decoding go to its Huffman codes. One table look-up here gives
 * up to two coefficients with their runs, and the bytes are freed of their stuffing beforehand. Only clean
 * data is read: at the first thing out of the ordinary (an unknown code, too few bits, an unexpected marker)
 * `refused` is set and libjpeg's error exit taken; the caller then decodes again without it, so that damaged
 * files are treated by libjpeg's rules alone. What comes out is equal bit by bit.
 *
 * A jpeg_huffman must be the first member of whatever client_data points at. */
#ifndef IO_IMAGE_JPEG_HUFFMAN_H
#define IO_IMAGE_JPEG_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum { JPEG_PEEK = 11 }; /* bits of a look-up: enough for two symbols of a photograph at quality 90, most of the time */

typedef struct jpeg_codes {
    uint32_t entry[1 << JPEG_PEEK];
    uint8_t first[1 << JPEG_PEEK]; /* the length of an entry's first coefficient alone */
    int32_t limit[18];             /* by code length: the first code that is longer, aligned to 16 bits */
    int32_t offset[18];            /* symbol index = (code >> (16 - length)) + offset[length] */
    JHUFF_TBL made_of;             /* to keep a table that the next image has too */
    bool valid;
} jpeg_codes;

typedef struct jpeg_huffman {
    jpeg_codes codes[2][NUM_HUFF_TBLS]; /* DC, AC */
    uint8_t *clean;                     /* the current segment without stuffing; owned */
    size_t clean_cap;
    const uint8_t *next, *end; /* in clean; zeros follow end */
    uint64_t bits;             /* left-aligned */
    int count;                 /* bits that count; those below are valid look-ahead */
    int dc[MAX_COMPS_IN_SCAN];
    unsigned restarts_left;
    int next_restart;
    bool refused;
} jpeg_huffman;

/* After jpeg_start_decompress, before the first line. False: the file is of another kind, or memory is out;
 * libjpeg's own reader stays. */
bool jpeg_huffman_install(jpeg_huffman *h, j_decompress_ptr d);
void jpeg_huffman_release(jpeg_huffman *h);

#endif
