/* The EXIF orientation, and images turned by it. */
#include "io/image/exif.h"

#include <string.h>

#include "io/image/image.h"

static uint32_t number(const uint8_t *p, int bytes, bool little)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)p[i] << 8 * (little ? i : bytes - 1 - i);
    return v;
}

/* Entry 0x0112 of the first directory of a TIFF structure. */
static int tiff_orientation(const uint8_t *b, size_t n)
{
    enum { ENTRY = 12, ORIENTATION = 0x0112, SHORT = 3 };
    if (n < 8 || (memcmp(b, "II", 2) != 0 && memcmp(b, "MM", 2) != 0)) return 1;
    bool little = b[0] == 'I';
    size_t at = number(b + 4, 4, little);
    if (at > n - 2) return 1;
    uint32_t entries = number(b + at, 2, little);
    at += 2;
    for (uint32_t i = 0; i < entries && n - at >= ENTRY; i++, at += ENTRY)
        if (number(b + at, 2, little) == ORIENTATION && number(b + at + 2, 2, little) == SHORT) {
            uint32_t o = number(b + at + 8, 2, little);
            return o >= 1 && o <= 8 ? (int)o : 1;
        }
    return 1;
}

static int jpeg_orientation(const uint8_t *b, size_t n)
{
    for (size_t at = 2; at + 4 <= n && b[at] == 0xFF;) {
        uint8_t marker = b[at + 1];
        size_t length = number(b + at + 2, 2, false);
        if (marker == 0xDA || length < 2 || length > n - at - 2) return 1; /* the pixels begin */
        if (marker == 0xE1 && length >= 8 && memcmp(b + at + 4, "Exif\0\0", 6) == 0)
            return tiff_orientation(b + at + 10, length - 8);
        at += 2 + length;
    }
    return 1;
}

static int png_orientation(const uint8_t *b, size_t n)
{
    for (size_t at = 8; at + 12 <= n;) {
        size_t length = number(b + at, 4, false);
        if (length > n - at - 12) return 1;
        if (memcmp(b + at + 4, "eXIf", 4) == 0) return tiff_orientation(b + at + 8, length);
        at += 12 + length;
    }
    return 1;
}

static int webp_orientation(const uint8_t *b, size_t n)
{
    for (size_t at = 12; at + 8 <= n;) {
        size_t length = number(b + at + 4, 4, true);
        if (length > n - at - 8) return 1;
        const uint8_t *data = b + at + 8;
        if (memcmp(b + at, "EXIF", 4) == 0) {
            bool headed = length > 6 && memcmp(data, "Exif\0\0", 6) == 0;
            return tiff_orientation(data + (headed ? 6 : 0), length - (headed ? 6 : 0));
        }
        at += 8 + length + (length & 1);
    }
    return 1;
}

int exif_orientation(const uint8_t *b, size_t n)
{
    if (n > 4 && b[0] == 0xFF && b[1] == 0xD8) return jpeg_orientation(b, n);
    if (n > 16 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0) return png_orientation(b, n);
    if (n > 20 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0) return webp_orientation(b, n);
    return 1;
}

void exif_turn(uint8_t *to, const uint8_t *from, int64_t width, int64_t height, int64_t channels, int orientation)
{
    bool swapped = orientation >= 5;
    int64_t W = swapped ? height : width, H = swapped ? width : height;
    bool right =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8; /* x counts from the right */
    bool bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    for (int64_t y = 0; y < H; y++)
        for (int64_t x = 0; x < W; x++, to += channels) {
            int64_t sx = swapped ? y : x, sy = swapped ? x : y;
            if (right) sx = width - 1 - sx;
            if (bottom) sy = height - 1 - sy;
            memcpy(to, from + (sy * width + sx) * channels, (size_t)channels);
        }
}

cloob_status image_upright_size(cloob_ctx *ctx, const void *bytes, size_t count, const char *name, int64_t *width,
                                int64_t *height)
{
    int64_t w, h;
    CLOOB_TRY(image_size(ctx, bytes, count, name, &w, &h));
    bool sideways = exif_orientation(bytes, count) >= 5;
    *width = sideways ? h : w;
    *height = sideways ? w : h;
    return CLOOB_OK;
}
