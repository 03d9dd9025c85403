/* A build without CUDA: creating a decoder fails, so the other functions are never called. */
#include "data/view/device_view.h"

static cloob_status refuse(cloob_ctx *ctx)
{
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "`image_decoder` gpu: this build has no CUDA; use cpu");
}

cloob_status device_decoder_create(cloob_ctx *ctx, device *dev, device_decoder **out)
{
    (void)dev;
    *out = NULL;
    return refuse(ctx);
}

void device_decoder_destroy(device_decoder *d) { (void)d; }
const char *device_decoder_name(const device_decoder *d) { return (void)d, ""; }
bool device_decoder_exact(const device_decoder *d) { return (void)d, false; }
device *device_decoder_device(const device_decoder *d) { return (void)d, NULL; }

cloob_status device_view_create(cloob_ctx *ctx, device_decoder *d, const transform_options *o, device_view **out)
{
    (void)d, (void)o;
    *out = NULL;
    return refuse(ctx);
}

void device_view_destroy(device_view *v) { (void)v; }

cloob_status device_view_run(cloob_ctx *ctx, device_view *v, view_job *jobs, int n)
{
    (void)v, (void)jobs, (void)n;
    return refuse(ctx);
}

cloob_status device_view_put(cloob_ctx *ctx, device_view *v, uint8_t *const *out, const uint8_t *views, int n)
{
    (void)v, (void)out, (void)views, (void)n;
    return refuse(ctx);
}
