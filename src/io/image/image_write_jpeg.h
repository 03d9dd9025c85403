/* JPEG bytes from 8-bit RGB. */
#ifndef IO_IMAGE_IMAGE_WRITE_JPEG_H
#define IO_IMAGE_IMAGE_WRITE_JPEG_H

#include "core/ctx.h"
#include "core/sbuf.h"

bool image_jpeg_available(void);

/* Appends the file to out. rgb: (height, width, 3), each side 1 to 65500. quality: 1 to 100. Colour is stored
 * at full resolution (4:4:4). CLOOB_ERR_UNSUPPORTED in a build without libjpeg. */
cloob_status image_encode_jpeg(cloob_ctx *ctx, const uint8_t *rgb, int64_t width, int64_t height, int quality,
                               sbuf *out);

#endif
