/* Formats whose library was not found at configure time: recognised, and refused with the name of what is missing. */
#include <string.h>

#include "io/image/image.h"
#include "io/image/image_codec.h"

__attribute__((unused)) static cloob_status absent(cloob_ctx *ctx, image_reader *r)
{
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: this build reads no %s; install its library and build again, or convert the image", r->name,
                    r->codec->format);
}

#define ABSENT(id, format, condition)                                                                                  \
    static bool match_##id(const uint8_t *b, size_t n) { return condition; }                                           \
    const image_codec image_##id = { format, match_##id, absent, absent, NULL };

#ifdef NO_JPEG
bool image_jpeg_available(void) { return false; }
bool jpeg_layout_read(const uint8_t *bytes, size_t size, jpeg_layout *out)
{
    return (void)bytes, (void)size, (void)out, false;
}

cloob_status image_encode_jpeg(cloob_ctx *ctx, const uint8_t *rgb, int64_t width, int64_t height, int quality,
                               sbuf *out)
{
    (void)rgb, (void)width, (void)height, (void)quality, (void)out;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "this build cannot write JPEG: install libjpeg62-turbo-dev and configure again");
}
ABSENT(jpeg, "JPEG", n >= 3 && memcmp(b, "\xFF\xD8\xFF", 3) == 0)
#endif
#ifdef NO_PNG
cloob_status image_write_png(cloob_ctx *ctx, const char *path, const uint8_t *rgb, int64_t width, int64_t height)
{
    (void)rgb, (void)width, (void)height;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: this build writes no PNG; install libpng and build again", path);
}
ABSENT(png, "PNG", n >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0)
#endif
#ifdef NO_WEBP
ABSENT(webp, "WebP", n >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0)
#endif
#ifdef NO_GIF
ABSENT(gif, "GIF", n >= 13 && memcmp(b, "GIF8", 4) == 0)
#endif
#ifdef NO_TIFF
ABSENT(tiff, "TIFF", n >= 8 && (memcmp(b, "II*\0", 4) == 0 || memcmp(b, "MM\0*", 4) == 0))
#endif
#ifdef NO_HEIF
ABSENT(heif, "HEIC", n >= 12 && memcmp(b + 4, "ftyp", 4) == 0)
#endif
