/* Feeding on a host, where a copy is a copy; and the way to the GPU's. */
#include "tensor/feed.h"

#include <stdlib.h>

static bool on_gpu(const device *d) { return d->backend == BACKEND_CUDA; }

cloob_status feed_create(cloob_ctx *ctx, device *d, feed **out)
{
    feed *f = calloc(1, sizeof *f);
    if (!f) return ctx_no_memory(ctx, sizeof *f, "a feed");
    f->dev = d;
    cloob_status status = on_gpu(d) ? feed_create_cuda(ctx, f) : CLOOB_OK;
    if (status == CLOOB_OK) *out = f;
    else feed_destroy(f);
    return status;
}

void feed_destroy(feed *f)
{
    if (f && on_gpu(f->dev)) feed_destroy_cuda(f);
    free(f);
}

cloob_status feed_copy(cloob_ctx *ctx, feed *f, void *to, const void *from, size_t bytes)
{
    if (on_gpu(f->dev)) return feed_copy_cuda(ctx, f, to, from, bytes);
    return f->dev->to_device(ctx, f->dev, to, from, bytes);
}

cloob_status feed_filled(cloob_ctx *ctx, feed *f)
{
    return on_gpu(f->dev) ? feed_filled_cuda(ctx, f) : CLOOB_OK;
}

cloob_status feed_use(cloob_ctx *ctx, feed *f) { return on_gpu(f->dev) ? feed_use_cuda(ctx, f) : CLOOB_OK; }

cloob_status feed_used(cloob_ctx *ctx, feed *f) { return on_gpu(f->dev) ? feed_used_cuda(ctx, f) : CLOOB_OK; }

cloob_status feed_settle(cloob_ctx *ctx, feed *f)
{
    return on_gpu(f->dev) ? feed_settle_cuda(ctx, f) : CLOOB_OK;
}

void *feed_host_alloc(device *d, size_t bytes)
{
    return on_gpu(d) ? feed_host_alloc_cuda(d, bytes) : malloc(bytes ? bytes : 1);
}

void feed_host_free(device *d, void *p)
{
    if (p && on_gpu(d)) feed_host_free_cuda(d, p);
    else free(p);
}
