/* EXIF orientation of photos: 1 upright, 2 mirrored, 3 upside down, 4 both, 5 to 8 the same with rows and columns
 * swapped. */
#ifndef IO_IMAGE_EXIF_H
#define IO_IMAGE_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the bytes of a JPEG, PNG or WebP file; 1 where there is none or it makes no sense. */
int exif_orientation(const uint8_t *bytes, size_t size);

/* to = from (height, width, channels) turned upright, as Pillow's exif_transpose; (width, height, channels) from 5
 * on. */
void exif_turn(uint8_t *to, const uint8_t *from, int64_t width, int64_t height, int64_t channels, int orientation);

#endif
