/* A build without CUDA: never called, because no such device can be opened. */
#include "optim/adamw.h"

cloob_status adamw_step_cuda(cloob_ctx *ctx, device *dev, void *stream, const adamw_blocks *b, const adamw_settings *s)
{
    (void)dev, (void)stream, (void)b, (void)s;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "adamw: this build has no CUDA");
}

cloob_status optim_square_sum_cuda(cloob_ctx *ctx, device *dev, void *stream, const float *x, int64_t n, double *sum)
{
    (void)dev, (void)stream, (void)x, (void)n, (void)sum;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "gradient norm: this build has no CUDA");
}

cloob_status adamw_step_live(cloob_ctx *ctx, device *dev, void *stream, const adamw_blocks *b, int64_t n,
                             adamw_live *live)
{
    (void)dev, (void)stream, (void)b, (void)n, (void)live;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "adamw: this build has no CUDA");
}
