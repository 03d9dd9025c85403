/* Stands in for image_png.c where libpng was not found at configure time. */
#include <string.h>

#include "io/image/image_codec.h"

static bool match(const uint8_t *b, size_t n) { return n >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0; }

static cloob_status absent(cloob_ctx *ctx, image_reader *r)
{
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: this build reads no PNG; install libpng and build again", r->name);
}

static void nothing(image_reader *r) { (void)r; }

const image_codec image_png = { "PNG", match, absent, absent, nothing };

cloob_status image_write_png(cloob_ctx *ctx, const char *path, const uint8_t *rgb, int64_t width, int64_t height)
{
    (void)rgb;
    (void)width;
    (void)height;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: this build writes no PNG; install libpng and build again", path);
}
