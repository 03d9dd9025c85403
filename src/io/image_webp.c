/* WebP through libwebp, lossy and lossless, with and without alpha. */
#include <string.h>

#include <webp/decode.h>

#include "io/image_codec.h"

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

static cloob_status webp_open(cloob_ctx *ctx, image_reader *r)
{
    WebPBitstreamFeatures f;
    CLOOB_TRY(features(ctx, r, &f));
    if (f.has_animation)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s: an animated WebP; store its first frame as a still picture", r->name);
    r->width = f.width;
    r->height = f.height;
    r->kind = f.has_alpha ? IMAGE_ALPHA : IMAGE_RGB;
    return image_check_size(ctx, r, r->width, r->height);
}

static cloob_status load_alpha(cloob_ctx *ctx, image_reader *r)
{
    size_t pixels = (size_t)(r->width * r->height);
    CLOOB_TRY(image_buffer_reserve(ctx, &r->row, pixels * 4));
    CLOOB_TRY(image_buffer_reserve(ctx, &r->extra, pixels));
    if (!WebPDecodeRGBAInto(r->bytes, r->size, r->row.data, pixels * 4, (int)(r->width * 4)))
        return image_damaged(ctx, r, "its pixels cannot be decoded");
    for (size_t i = 0; i < pixels; i++) {
        memcpy(r->rgb.data + 3 * i, r->row.data + 4 * i, 3);
        r->extra.data[i] = r->row.data[4 * i + 3];
    }
    return CLOOB_OK;
}

static cloob_status webp_load(cloob_ctx *ctx, image_reader *r)
{
    CLOOB_TRY(image_reserve_whole(ctx, r));
    if (r->kind == IMAGE_ALPHA) return load_alpha(ctx, r);
    size_t bytes = (size_t)(r->width * r->height * 3);
    if (!WebPDecodeRGBInto(r->bytes, r->size, r->rgb.data, bytes, (int)(r->width * 3)))
        return image_damaged(ctx, r, "its pixels cannot be decoded");
    return CLOOB_OK;
}

static void webp_close(image_reader *r) { (void)r; }

const image_codec image_webp = { "WebP", match, webp_open, webp_load, webp_close };
