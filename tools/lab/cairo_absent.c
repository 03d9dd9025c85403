/* The build without cairo: pages list numbers in place of charts; scenes and captions work, images do not. */
#include "lab/report/chart.h"
#include "lab/synth/synth.h"
#include "lab/synth/write.h"

bool chart_draw(sbuf *out, const chart *c, chart_frame frame)
{
    (void)out, (void)c, (void)frame;
    return false;
}

bool examples_draw(sbuf *out, const example *e, int64_t n, bool pdf)
{
    (void)out, (void)e, (void)n, (void)pdf;
    return false;
}

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

cloob_status synth_encode_png(cloob_ctx *ctx, const uint8_t *rgb, int64_t size, sbuf *out)
{
    (void)rgb, (void)size, (void)out;
    return no_cairo(ctx);
}
