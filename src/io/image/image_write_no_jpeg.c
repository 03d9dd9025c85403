/* The build without libjpeg. */
#include "io/image/image_write_jpeg.h"

bool image_jpeg_available(void) { return false; }

cloob_status image_encode_jpeg(cloob_ctx *ctx, const uint8_t *rgb, int64_t width, int64_t height, int quality,
                               sbuf *out)
{
    (void)rgb, (void)width, (void)height, (void)quality, (void)out;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "this build cannot write JPEG: install libjpeg62-turbo-dev and configure again");
}
