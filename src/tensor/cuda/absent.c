/* A build without CUDA. */
#include "tensor/device.h"

int device_cuda_count(void) { return 0; }

cloob_status device_open_cuda(cloob_ctx *ctx, int index, device **out)
{
    (void)index, (void)out;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "device cuda: this build has no CUDA; use --device cpu");
}
