/* Feeding on a host, where a copy is a copy; and the way to the GPU's. */
#include "tensor/async_copy.h"

#include <stdlib.h>

static bool on_gpu(const device *d) { return d->backend == BACKEND_CUDA; }

cloob_status async_copy_create(cloob_ctx *ctx, device *d, async_copy **out)
{
    async_copy *f = calloc(1, sizeof *f);
    if (!f) return ctx_no_memory(ctx, sizeof *f, "an async copy");
    f->dev = d;
    cloob_status status = on_gpu(d) ? async_copy_create_cuda(ctx, f) : CLOOB_OK;
    if (status == CLOOB_OK) *out = f;
    else async_copy_destroy(f);
    return status;
}

void async_copy_destroy(async_copy *f)
{
    if (f && on_gpu(f->dev)) async_copy_destroy_cuda(f);
    free(f);
}

cloob_status async_copy_start(cloob_ctx *ctx, async_copy *f, void *to, const void *from, size_t bytes)
{
    if (on_gpu(f->dev)) return async_copy_start_cuda(ctx, f, to, from, bytes);
    return f->dev->to_device(ctx, f->dev, to, from, bytes);
}

cloob_status async_copy_filled(cloob_ctx *ctx, async_copy *f)
{
    return on_gpu(f->dev) ? async_copy_filled_cuda(ctx, f) : CLOOB_OK;
}

cloob_status async_copy_use(cloob_ctx *ctx, async_copy *f)
{
    return on_gpu(f->dev) ? async_copy_use_cuda(ctx, f) : CLOOB_OK;
}

cloob_status async_copy_used(cloob_ctx *ctx, async_copy *f)
{
    return on_gpu(f->dev) ? async_copy_used_cuda(ctx, f) : CLOOB_OK;
}

cloob_status async_copy_settle(cloob_ctx *ctx, async_copy *f)
{
    return on_gpu(f->dev) ? async_copy_settle_cuda(ctx, f) : CLOOB_OK;
}

void *async_copy_host_alloc(device *d, size_t bytes)
{
    return on_gpu(d) ? async_copy_host_alloc_cuda(d, bytes) : malloc(bytes ? bytes : 1);
}

void async_copy_host_free(device *d, void *p)
{
    if (p && on_gpu(d)) async_copy_host_free_cuda(d, p);
    else free(p);
}
