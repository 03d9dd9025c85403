/* RGB out of the planes of a JPEG file, to the last bit as libjpeg makes it: chroma smoothed by a triangle filter (3/4
 * of the nearest sample, 1/4 of the next, in each halved direction; past an edge the last sample again), then
 *
 *     R = Y + 1.402 Cr',   G = Y - 0.34414 Cb' - 0.71414 Cr',   B = Y + 1.772 Cb',   with Cb' = Cb - 128
 *
 * in 16-bit fixed point. The arithmetic is written once, for the host and for kernels. */
#ifndef DATA_VIEW_YCC_H
#define DATA_VIEW_YCC_H

#include "data/view/host_device.h"

typedef struct ycc_planes {
    const uint8_t *plane[3];          /* Y, Cb, Cr; of a grey image Y alone */
    int32_t pitch[3];                 /* bytes from row to row */
    int32_t width, height;            /* of Y */
    int32_t components, across, down; /* as in jpeg_layout; chroma is (width + across - 1) / across wide */
} ycc_planes;

VIEW_BOTH int ycc_inside(int i, int n) { return i < 0 ? 0 : i < n ? i : n - 1; }

/* Three times the near row plus the next one; without vertical subsampling, the row itself. */
VIEW_BOTH int ycc_column(const uint8_t *near, const uint8_t *far, int x)
{
    return far ? 3 * near[x] + far[x] : near[x];
}

/* Chroma at pixel (x, y) of Y. */
VIEW_BOTH int ycc_chroma(const ycc_planes *p, int c, int x, int y)
{
    const uint8_t *plane = p->plane[c];
    int width = (p->width + p->across - 1) / p->across, height = (p->height + p->down - 1) / p->down;
    const uint8_t *near = plane + (int64_t)(y / p->down) * p->pitch[c], *far = 0;
    if (p->across == 1) return near[x];
    if (p->down == 2) far = plane + (int64_t)ycc_inside(y / 2 + (y % 2 ? 1 : -1), height) * p->pitch[c];
    int odd = x % 2, at = x / 2, next = ycc_inside(at + (odd ? 1 : -1), width);
    int sum = 3 * ycc_column(near, far, at) + ycc_column(near, far, next);
    return far ? (sum + (odd ? 7 : 8)) >> 4 : (sum + (odd ? 2 : 1)) >> 2;
}

VIEW_BOTH uint8_t ycc_byte(int v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); }

VIEW_BOTH void ycc_pixel(const ycc_planes *p, int x, int y, uint8_t rgb[3])
{
    int luma = p->plane[0][(int64_t)y * p->pitch[0] + x];
    rgb[0] = rgb[1] = rgb[2] = (uint8_t)luma;
    if (p->components == 1) return;
    int cb = ycc_chroma(p, 1, x, y) - 128, cr = ycc_chroma(p, 2, x, y) - 128;
    rgb[0] = ycc_byte(luma + ((91881 * cr + 32768) >> 16));
    rgb[1] = ycc_byte(luma + ((-22554 * cb - 46802 * cr + 32768) >> 16));
    rgb[2] = ycc_byte(luma + ((116130 * cb + 32768) >> 16));
}

#endif
