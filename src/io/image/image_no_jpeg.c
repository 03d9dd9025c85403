/* Stands in for image_jpeg.c where libjpeg-turbo was not found at configure time. */
#include "io/image/image_codec.h"

static bool match(const uint8_t *b, size_t n) { return n >= 3 && b[0] == 0xFF && b[1] == 0xD8 && b[2] == 0xFF; }

static cloob_status absent(cloob_ctx *ctx, image_reader *r)
{
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: this build reads no JPEG; install libjpeg-turbo and build again",
                    r->name);
}

static void nothing(image_reader *r) { (void)r; }

const image_codec image_jpeg = { "JPEG", match, absent, absent, nothing };
