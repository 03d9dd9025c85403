/* A build without CUDA. */
#include "tensor/device.h"
#include "tensor/async_copy.h"
#include "tensor/bf16_copy.h"

int device_cuda_count(void) { return 0; }

cloob_status device_open_cuda(cloob_ctx *ctx, int index, device **out)
{
    (void)index, (void)out;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "device cuda: this build has no CUDA; use `device` cpu");
}

void machine_describe_cuda(sbuf *s, device *d) { (void)s, (void)d; }

/* No such device can be opened, so none of these is reached. */
static cloob_status no_gpu(cloob_ctx *ctx)
{
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "upload to a GPU: this build has no CUDA");
}

cloob_status async_copy_create_cuda(cloob_ctx *ctx, async_copy *f) { return (void)f, no_gpu(ctx); }
void async_copy_destroy_cuda(async_copy *f) { (void)f; }
cloob_status async_copy_start_cuda(cloob_ctx *ctx, async_copy *f, void *to, const void *from, size_t bytes)
{
    (void)f, (void)to, (void)from, (void)bytes;
    return no_gpu(ctx);
}
cloob_status async_copy_filled_cuda(cloob_ctx *ctx, async_copy *f) { return (void)f, no_gpu(ctx); }
cloob_status async_copy_use_cuda(cloob_ctx *ctx, async_copy *f) { return (void)f, no_gpu(ctx); }
cloob_status async_copy_used_cuda(cloob_ctx *ctx, async_copy *f) { return (void)f, no_gpu(ctx); }
cloob_status async_copy_settle_cuda(cloob_ctx *ctx, async_copy *f) { return (void)f, no_gpu(ctx); }
void *async_copy_host_alloc_cuda(device *d, size_t bytes) { return (void)d, (void)bytes, NULL; }
void async_copy_host_free_cuda(device *d, void *p) { (void)d, (void)p; }

cloob_status bf16_copy_cuda(cloob_ctx *ctx, device *d, uint16_t *to, const float *from, int64_t n)
{
    return (void)d, (void)to, (void)from, (void)n, no_gpu(ctx);
}
