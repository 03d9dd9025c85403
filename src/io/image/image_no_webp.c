/* Stands in for image_webp.c where libwebp was not found at configure time. */
#include <string.h>

#include "io/image/image_codec.h"

static bool match(const uint8_t *b, size_t n)
{
    return n >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0;
}

static cloob_status absent(cloob_ctx *ctx, image_reader *r)
{
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: this build reads no WebP; install libwebp and build again",
                    r->name);
}

static void nothing(image_reader *r) { (void)r; }

const image_codec image_webp = { "WebP", match, absent, absent, nothing };
