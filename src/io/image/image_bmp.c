/* BMP by hand: uncompressed, 1, 4 and 8 bits with a palette, 24 and 32 bits. */
#include <string.h>

#include "core/arith.h"
#include "io/image/image_codec.h"

typedef struct bmp {
    int64_t pixels, palette, colours; /* offsets and count */
    int64_t width, height, stride;
    int bits;
    bool top_down;
} bmp;

static uint32_t le32(const uint8_t *p) { return (uint32_t)load_le(p, 4); }

static bool match(const uint8_t *b, size_t n)
{
    return n >= 54 && b[0] == 'B' && b[1] == 'M' && le32(b + 14) >= 40 && le32(b + 14) <= 124;
}

static cloob_status parse(cloob_ctx *ctx, const image_reader *r, bmp *h)
{
    const uint8_t *b = r->bytes;
    int64_t rows = (int32_t)le32(b + 22);
    uint32_t compression = le32(b + 30), used = le32(b + 46);
    *h = (bmp){ .pixels = le32(b + 10),
                .palette = 14 + (int64_t)le32(b + 14),
                .width = (int32_t)le32(b + 18),
                .height = rows < 0 ? -rows : rows,
                .bits = (int)load_le(b + 28, 2),
                .top_down = rows < 0 };
    if (compression != 0 && !(compression == 3 && h->bits == 32))
        return image_damaged(ctx, r, "a compressed BMP; only plain ones are read");
    if (h->bits != 1 && h->bits != 4 && h->bits != 8 && h->bits != 24 && h->bits != 32)
        return image_damaged(ctx, r, "neither 1, 4, 8, 24 nor 32 bits per pixel");
    CLOOB_TRY(image_check_size(ctx, r, h->width, h->height));
    h->colours = h->bits > 8 ? 0 : used ? used : INT64_C(1) << h->bits;
    h->stride = (h->width * h->bits + 31) / 32 * 4;
    if (h->colours > 256 || h->palette + 4 * h->colours > (int64_t)r->size ||
        h->pixels + h->stride * h->height > (int64_t)r->size)
        return image_damaged(ctx, r, "it is truncated");
    return CLOOB_OK;
}

static cloob_status bmp_open(cloob_ctx *ctx, image_reader *r)
{
    bmp h;
    CLOOB_TRY(parse(ctx, r, &h));
    r->width = h.width;
    r->height = h.height;
    return CLOOB_OK;
}

/* Two colours, black and white, are 1 bit to Pillow; other palettes of files below 24 bits stay palettes. */
static void set_palette(image_reader *r, const bmp *h)
{
    static const uint8_t bilevel[7] = { 0, 0, 0, 0, 255, 255, 255 };
    const uint8_t *from = r->bytes + h->palette;
    for (int64_t i = 0; i < h->colours; i++)
        memcpy(r->palette.rgb[i], (uint8_t[]){ from[4 * i + 2], from[4 * i + 1], from[4 * i] }, 3);
    image_set_palette(r, (int)h->colours);
    if (h->colours == 2 && memcmp(from, bilevel, 3) == 0 && memcmp(from + 4, bilevel + 4, 3) == 0) image_set_bilevel(r);
}

static void put_pixel(const image_reader *r, const bmp *h, const uint8_t *row, int64_t x, uint8_t to[3])
{
    if (h->bits >= 24) {
        const uint8_t *c = row + x * (h->bits / 8);
        to[0] = c[2], to[1] = c[1], to[2] = c[0];
        return;
    }
    int per_byte = 8 / h->bits, shift = (per_byte - 1 - (int)(x % per_byte)) * h->bits;
    memcpy(to, r->palette.rgb[row[x / per_byte] >> shift & ((1 << h->bits) - 1)], 3);
}

static cloob_status bmp_load(cloob_ctx *ctx, image_reader *r)
{
    bmp h;
    CLOOB_TRY(parse(ctx, r, &h));
    CLOOB_TRY(image_reserve_whole(ctx, r));
    if (h.bits <= 8) set_palette(r, &h);
    uint8_t *to = r->rgb.data;
    for (int64_t y = 0; y < h.height; y++) {
        const uint8_t *row = r->bytes + h.pixels + (h.top_down ? y : h.height - 1 - y) * h.stride;
        for (int64_t x = 0; x < h.width; x++, to += 3) put_pixel(r, &h, row, x, to);
    }
    return CLOOB_OK;
}

const image_codec image_bmp = { "BMP", match, bmp_open, bmp_load, NULL };
