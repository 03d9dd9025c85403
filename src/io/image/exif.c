/* EXIF: orientation and capture date; images turned by the orientation. */
#include "io/image/exif.h"

#include <string.h>

#include "io/image/image.h"

static uint32_t number(const uint8_t *p, int bytes, bool little)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)p[i] << 8 * (little ? i : bytes - 1 - i);
    return v;
}

/* ---- the TIFF structure inside a file ----------------------------------------------------------------- */

typedef struct tiff {
    const uint8_t *b; /* NULL: none */
    size_t n;
} tiff;

static tiff jpeg_tiff(const uint8_t *b, size_t n)
{
    for (size_t at = 2; at + 4 <= n && b[at] == 0xFF;) {
        uint8_t marker = b[at + 1];
        size_t length = number(b + at + 2, 2, false);
        if (marker == 0xDA || length < 2 || length > n - at - 2) break; /* the pixels begin */
        if (marker == 0xE1 && length >= 8 && memcmp(b + at + 4, "Exif\0\0", 6) == 0)
            return (tiff){ b + at + 10, length - 8 };
        at += 2 + length;
    }
    return (tiff){ 0 };
}

static tiff png_tiff(const uint8_t *b, size_t n)
{
    for (size_t at = 8; at + 12 <= n;) {
        size_t length = number(b + at, 4, false);
        if (length > n - at - 12) break;
        if (memcmp(b + at + 4, "eXIf", 4) == 0) return (tiff){ b + at + 8, length };
        at += 12 + length;
    }
    return (tiff){ 0 };
}

static tiff webp_tiff(const uint8_t *b, size_t n)
{
    for (size_t at = 12; at + 8 <= n;) {
        size_t length = number(b + at + 4, 4, true);
        if (length > n - at - 8) break;
        const uint8_t *data = b + at + 8;
        if (memcmp(b + at, "EXIF", 4) == 0) {
            bool headed = length > 6 && memcmp(data, "Exif\0\0", 6) == 0;
            return (tiff){ data + (headed ? 6 : 0), length - (headed ? 6 : 0) };
        }
        at += 8 + length + (length & 1);
    }
    return (tiff){ 0 };
}

static tiff find_tiff(const uint8_t *b, size_t n)
{
    tiff t = { 0 };
    if (n > 4 && b[0] == 0xFF && b[1] == 0xD8) t = jpeg_tiff(b, n);
    else if (n > 16 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0) t = png_tiff(b, n);
    else if (n > 20 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0) t = webp_tiff(b, n);
    if (t.n < 8 || (memcmp(t.b, "II", 2) != 0 && memcmp(t.b, "MM", 2) != 0)) t = (tiff){ 0 };
    return t;
}

/* The 12 bytes of an entry of the directory at `at`; NULL: none. */
static const uint8_t *find_entry(tiff t, size_t at, uint32_t tag, uint32_t type)
{
    enum { ENTRY = 12 };
    bool little = t.b[0] == 'I';
    if (at > t.n - 2) return NULL;
    uint32_t entries = number(t.b + at, 2, little);
    at += 2;
    for (uint32_t i = 0; i < entries && t.n - at >= ENTRY; i++, at += ENTRY)
        if (number(t.b + at, 2, little) == tag && number(t.b + at + 2, 2, little) == type) return t.b + at;
    return NULL;
}

int exif_orientation(const uint8_t *b, size_t n)
{
    enum { ORIENTATION = 0x0112, SHORT = 3 };
    tiff t = find_tiff(b, n);
    bool little = t.b && t.b[0] == 'I';
    const uint8_t *entry = t.b ? find_entry(t, number(t.b + 4, 4, little), ORIENTATION, SHORT) : NULL;
    uint32_t o = entry ? number(entry + 8, 2, little) : 1;
    return o >= 1 && o <= 8 ? (int)o : 1;
}

/* "2019:07:01 10:00:00" as "2019-07-01T10:00:00"; cameras without a clock write blanks or zeros. */
static bool date_text(const uint8_t *from, char out[20])
{
    static const char form[] = "dddd:dd:dd dd:dd:dd";
    for (int i = 0; i < 19; i++) {
        bool digit = from[i] >= '0' && from[i] <= '9';
        if (form[i] == 'd' ? !digit : from[i] != (uint8_t)form[i]) return false;
        out[i] = (char)from[i];
    }
    out[4] = out[7] = '-', out[10] = 'T', out[19] = 0;
    return memcmp(out, "0000", 4) != 0 && memcmp(out + 5, "00", 2) != 0 && memcmp(out + 8, "00", 2) != 0;
}

bool exif_date(const uint8_t *b, size_t n, char out[20])
{
    enum { EXIF_DIRECTORY = 0x8769, ORIGINAL = 0x9003, DIGITIZED = 0x9004, ASCII = 2, LONG = 4, BYTES = 20 };
    tiff t = find_tiff(b, n);
    bool little = t.b && t.b[0] == 'I';
    const uint8_t *entry = t.b ? find_entry(t, number(t.b + 4, 4, little), EXIF_DIRECTORY, LONG) : NULL;
    if (!entry) return false;
    size_t directory = number(entry + 8, 4, little);
    entry = find_entry(t, directory, ORIGINAL, ASCII);
    if (!entry) entry = find_entry(t, directory, DIGITIZED, ASCII);
    if (!entry || number(entry + 4, 4, little) < BYTES) return false;
    size_t at = number(entry + 8, 4, little);
    return t.n >= BYTES && at <= t.n - BYTES && date_text(t.b + at, out);
}

/* ---- turning ----------------------------------------------------------------------------------------- */

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
