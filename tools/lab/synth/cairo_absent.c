/* The build without cairo: scenes and captions work, images do not. */
#include "lab/synth/synth.h"
#include "lab/synth/write.h"

static cloob_status no_cairo(cloob_ctx *ctx)
{
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "this build cannot draw images: install libcairo2-dev and configure again");
}

cloob_status synth_render(cloob_ctx *ctx, const synth_scene *s, int64_t size, uint8_t *rgb)
{
    (void)s, (void)size, (void)rgb;
    return no_cairo(ctx);
}

cloob_status synth_sheet(cloob_ctx *ctx, const synth_world *w, int rows, int columns, int64_t size, const char *path)
{
    (void)w, (void)rows, (void)columns, (void)size, (void)path;
    return no_cairo(ctx);
}

cloob_status synth_encode_png(cloob_ctx *ctx, const uint8_t *rgb, int64_t size, sbuf *out)
{
    (void)rgb, (void)size, (void)out;
    return no_cairo(ctx);
}
