/* WebP through libwebp, lossy and lossless, with and without alpha; of an animation the first frame. */
#include <string.h>

#include <webp/decode.h>

#include "io/image/image_codec.h"

static bool match(const uint8_t *b, size_t n)
{
    return n >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0;
}

/* A file cut anywhere, even in metadata after the pixels, is refused, as Pillow does. */
static bool is_cut(const image_reader *r)
{
    const uint8_t *b = r->bytes + 4;
    uint64_t says = b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24;
    return says + 8 > r->size;
}

static cloob_status features(cloob_ctx *ctx, const image_reader *r, WebPBitstreamFeatures *f)
{
    if (is_cut(r)) return image_damaged(ctx, r, "it is truncated");
    VP8StatusCode code = WebPGetFeatures(r->bytes, r->size, f);
    if (code == VP8_STATUS_NOT_ENOUGH_DATA) return image_damaged(ctx, r, "it is truncated");
    if (code != VP8_STATUS_OK) return image_damaged(ctx, r, "its header makes no sense");
    return CLOOB_OK;
}

/* --- animations: the first frame on the canvas, as Pillow opens them ----------------------------------- */

typedef struct webp_frame {
    const uint8_t *data; /* what libwebp decodes: chunks of one still image */
    size_t size;
    int64_t left, top, width, height; /* on the canvas */
    int64_t canvas_width, canvas_height;
    bool alpha;
} webp_frame;

static int64_t le24(const uint8_t *p) { return p[0] | p[1] << 8 | (int64_t)p[2] << 16; }

/* Payload of the first chunk called `tag` behind the RIFF header; NULL when there is none. */
static const uint8_t *find_chunk(const image_reader *r, const char *tag, size_t *size)
{
    size_t at = 12;
    while (at + 8 <= r->size) {
        const uint8_t *p = r->bytes + at;
        *size = (size_t)le24(p + 4) | (size_t)p[7] << 24;
        if (*size > r->size - at - 8) return NULL;
        if (memcmp(p, tag, 4) == 0) return p + 8;
        at += 8 + *size + (*size & 1);
    }
    return NULL;
}

static cloob_status first_frame(cloob_ctx *ctx, const image_reader *r, webp_frame *f)
{
    size_t head, size;
    const uint8_t *x = find_chunk(r, "VP8X", &head), *a = find_chunk(r, "ANMF", &size);
    WebPBitstreamFeatures still;
    if (!x || head < 10 || !a || size < 16) return image_damaged(ctx, r, "an animation without a frame");
    *f = (webp_frame){ a + 16,          size - 16,       2 * le24(a),     2 * le24(a + 3),   le24(a + 6) + 1,
                       le24(a + 9) + 1, le24(x + 4) + 1, le24(x + 7) + 1, (x[0] & 0x10) != 0 };
    if (f->left + f->width > f->canvas_width || f->top + f->height > f->canvas_height ||
        WebPGetFeatures(f->data, f->size, &still) != VP8_STATUS_OK || still.width != f->width ||
        still.height != f->height)
        return image_damaged(ctx, r, "its first frame makes no sense");
    return CLOOB_OK;
}

/* A still image is a frame that fills the canvas. */
static cloob_status find_frame(cloob_ctx *ctx, const image_reader *r, webp_frame *f)
{
    WebPBitstreamFeatures b;
    CLOOB_TRY(features(ctx, r, &b));
    if (b.has_animation) return first_frame(ctx, r, f);
    *f = (webp_frame){ r->bytes, r->size, 0, 0, b.width, b.height, b.width, b.height, b.has_alpha };
    return CLOOB_OK;
}

/* --- codec ---------------------------------------------------------------------------------------------- */

static cloob_status webp_open(cloob_ctx *ctx, image_reader *r)
{
    webp_frame f = { 0 };
    CLOOB_TRY(find_frame(ctx, r, &f));
    r->width = f.canvas_width;
    r->height = f.canvas_height;
    r->kind = f.alpha ? IMAGE_ALPHA : IMAGE_RGB;
    return image_check_size(ctx, r, r->width, r->height);
}

static cloob_status load_alpha(cloob_ctx *ctx, image_reader *r, const webp_frame *f)
{
    size_t pixels = (size_t)(r->width * r->height), stride = (size_t)r->width * 4;
    size_t at = (size_t)f->top * stride + (size_t)f->left * 4;
    CLOOB_TRY(image_buffer_reserve(ctx, &r->row, pixels * 4));
    CLOOB_TRY(image_buffer_reserve(ctx, &r->extra, pixels));
    memset(r->row.data, 0, pixels * 4);
    if (!WebPDecodeRGBAInto(f->data, f->size, r->row.data + at, pixels * 4 - at, (int)stride))
        return image_damaged(ctx, r, "its pixels cannot be decoded");
    for (size_t i = 0; i < pixels; i++) {
        memcpy(r->rgb.data + 3 * i, r->row.data + 4 * i, 3);
        r->extra.data[i] = r->row.data[4 * i + 3];
    }
    return CLOOB_OK;
}

static cloob_status webp_load(cloob_ctx *ctx, image_reader *r)
{
    webp_frame f = { 0 };
    CLOOB_TRY(find_frame(ctx, r, &f));
    CLOOB_TRY(image_reserve_whole(ctx, r));
    if (r->kind == IMAGE_ALPHA) return load_alpha(ctx, r, &f);
    size_t bytes = (size_t)(r->width * r->height * 3), at = (size_t)((f.top * r->width + f.left) * 3);
    if (f.width < r->width || f.height < r->height) memset(r->rgb.data, 0, bytes);
    if (!WebPDecodeRGBInto(f.data, f.size, r->rgb.data + at, bytes - at, (int)(r->width * 3)))
        return image_damaged(ctx, r, "its pixels cannot be decoded");
    return CLOOB_OK;
}

const image_codec image_webp = { "WebP", match, webp_open, webp_load, NULL };
