/* Changes of colour and the mirror, on a finished view, with Pillow's 8-bit arithmetic. */
#ifndef DATA_VIEW_AUGMENT_H
#define DATA_VIEW_AUGMENT_H

#include <stdint.h>

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

#endif
