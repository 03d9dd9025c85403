/* The build without cairo: scenes and captions work, images do not. */
#include "lab/synth/synth.h"

cloob_status synth_render(cloob_ctx *ctx, const synth_scene *s, int64_t size, uint8_t *rgb)
{
    (void)s, (void)size, (void)rgb;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "this build cannot draw images: install libcairo2-dev and configure again");
}
