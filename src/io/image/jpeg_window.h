/* Decoding a part of a JPEG, exactly: its pixels are those of the whole image. */
#ifndef IO_IMAGE_JPEG_WINDOW_H
#define IO_IMAGE_JPEG_WINDOW_H

#include <stdio.h>

#include <jpeglib.h>

#include "io/image/image.h"

/* After jpeg_start_decompress. Enlarges box to what libjpeg can deliver without a change of pixels; the lines
 * that come now are those of the box from its top on, as wide as it is. May take libjpeg's error exit. */
void jpeg_window_begin(j_decompress_ptr d, image_box *box);

#endif
