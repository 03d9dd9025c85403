/* EXIF orientation of photos: 1 upright, 2 mirrored, 3 upside down, 4 both, 5 to 8 the same with rows and columns
 * swapped. */
#ifndef IO_IMAGE_EXIF_H
#define IO_IMAGE_EXIF_H

#include "core/ctx.h"

/* The orientation of a JPEG, PNG or WebP file; 1 if it has none or an invalid one. */
int exif_orientation(const uint8_t *bytes, size_t size);

/* When the photo was taken, in the camera's local time, as "2019-07-01T10:00:00". false: the file does not say. */
bool exif_date(const uint8_t *bytes, size_t size, char out[20]);

/* to = from (height, width, channels) turned upright, as Pillow's exif_transpose; (width, height, channels) from 5
 * on. */
void exif_turn(uint8_t *to, const uint8_t *from, int64_t width, int64_t height, int64_t channels, int orientation);

/* Width and height of an image file in memory, upright, from its header alone. */
cloob_status image_upright_size(cloob_ctx *ctx, const void *bytes, size_t count, const char *name, int64_t *width,
                                int64_t *height);

#endif
