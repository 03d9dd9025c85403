/* GIF through giflib: the first frame on its canvas. */
#include <string.h>

#include <gif_lib.h>

#include "io/image/image_codec.h"

typedef struct source {
    const uint8_t *at;
    size_t left;
} source;

static bool match(const uint8_t *b, size_t n) { return n >= 13 && memcmp(b, "GIF8", 4) == 0; }

static int take(GifFileType *g, GifByteType *to, int n)
{
    source *s = g->UserData;
    size_t m = n > 0 && (size_t)n < s->left ? (size_t)n : s->left;
    memcpy(to, s->at, m);
    s->at += m;
    s->left -= m;
    return (int)m;
}

static cloob_status gif_open(cloob_ctx *ctx, image_reader *r)
{
    const uint8_t *b = r->bytes + 6;
    r->width = b[0] | b[1] << 8;
    r->height = b[2] | b[3] << 8;
    return image_check_size(ctx, r, r->width, r->height);
}

enum { NO_COLOUR = -1 };

/* Skips extensions up to the first image. *transparent: the colour that a graphic control extension names. */
static bool find_frame(GifFileType *g, int *transparent)
{
    GifRecordType type;
    *transparent = NO_COLOUR;
    while (DGifGetRecordType(g, &type) == GIF_OK) {
        GifByteType *block;
        int code;
        if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(g) == GIF_OK;
        if (type != EXTENSION_RECORD_TYPE || DGifGetExtension(g, &code, &block) != GIF_OK) return false;
        for (; block; code = NO_COLOUR) {
            if (code == GRAPHICS_EXT_FUNC_CODE && block[0] >= 4 && (block[1] & 1)) *transparent = block[4];
            if (DGifGetExtensionNext(g, &block) != GIF_OK) return false;
        }
    }
    return false;
}

static void put_row(const image_reader *r, const GifImageDesc *f, const uint8_t *index, int y, int transparent)
{
    int64_t at = (int64_t)(f->Top + y) * r->width + f->Left;
    uint8_t *to = r->rgb.data + at * 3;
    for (int x = 0; x < f->Width; x++, to += 3) {
        if (r->keyed) r->extra.data[at + x] = index[x] == transparent ? 0 : 255;
        memcpy(to, r->palette.rgb[index[x]], 3);
    }
}

static void set_palette(image_reader *r, const ColorMapObject *map)
{
    int n = map->ColorCount < 256 ? map->ColorCount : 256;
    for (int i = 0; i < n; i++) {
        GifColorType c = map->Colors[i];
        memcpy(r->palette.rgb[i], (uint8_t[]){ c.Red, c.Green, c.Blue }, 3);
    }
    image_set_palette(r, n);
}

static bool read_frame(cloob_ctx *ctx, image_reader *r, GifFileType *g, int transparent)
{
    static const int first[] = { 0, 4, 2, 1 }, step[] = { 8, 8, 4, 2 };
    const GifImageDesc *f = &g->Image;
    const ColorMapObject *map = f->ColorMap ? f->ColorMap : g->SColorMap;
    if (!map || f->Left < 0 || f->Top < 0 || f->Width < 1 || f->Height < 1 || f->Left + f->Width > r->width ||
        f->Top + f->Height > r->height || image_buffer_reserve(ctx, &r->row, (size_t)f->Width) != CLOOB_OK)
        return false;
    set_palette(r, map);
    for (int pass = f->Interlace ? 0 : 3; pass < 4; pass++)
        for (int y = f->Interlace ? first[pass] : 0; y < f->Height; y += f->Interlace ? step[pass] : 1) {
            if (DGifGetLine(g, r->row.data, f->Width) != GIF_OK) return false;
            put_row(r, f, r->row.data, y, transparent);
        }
    return true;
}

static cloob_status gif_load(cloob_ctx *ctx, image_reader *r)
{
    int error, transparent;
    source s = { r->bytes, r->size };
    CLOOB_TRY(image_reserve_whole(ctx, r));
    memset(r->rgb.data, 0, (size_t)(r->width * r->height * 3));
    GifFileType *g = DGifOpen(&s, take, &error);
    if (!g) return image_damaged(ctx, r, "its header makes no sense");
    bool read = find_frame(g, &transparent);
    r->keyed = read && transparent != NO_COLOUR;
    size_t pixels = (size_t)(r->width * r->height);
    if (r->keyed) read = image_buffer_reserve(ctx, &r->extra, pixels) == CLOOB_OK;
    if (read && r->keyed) memset(r->extra.data, 0, pixels); /* what the frame leaves out is transparent */
    read = read && read_frame(ctx, r, g, transparent);
    DGifCloseFile(g, &error);
    return read ? CLOOB_OK : image_damaged(ctx, r, "its first frame cannot be decoded");
}

const image_codec image_gif = { "GIF", match, gif_open, gif_load, NULL };
