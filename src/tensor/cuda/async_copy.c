/* A second stream for copies, and two events that order them. */
#include "tensor/async_copy.h"

#include "tensor/cuda/cuda.h"

static cudaStream_t stream_of(const async_copy *f) { return (cudaStream_t)f->stream; }

static cloob_status make_event(cloob_ctx *ctx, void **out)
{
    return cuda_check(ctx, cudaEventCreateWithFlags((cudaEvent_t *)out, cudaEventDisableTiming), "feeding the GPU");
}

cloob_status async_copy_create_cuda(cloob_ctx *ctx, async_copy *f)
{
    cuda_use(f->dev);
    CLOOB_TRY(cuda_check(ctx, cudaStreamCreateWithFlags((cudaStream_t *)&f->stream, cudaStreamNonBlocking),
                         "feeding the GPU"));
    CLOOB_TRY(make_event(ctx, &f->arrived));
    return make_event(ctx, &f->read);
}

void async_copy_destroy_cuda(async_copy *f)
{
    cuda_use(f->dev);
    if (f->stream) cudaStreamSynchronize(stream_of(f));
    if (f->arrived) cudaEventDestroy(f->arrived);
    if (f->read) cudaEventDestroy(f->read);
    if (f->stream) cudaStreamDestroy(stream_of(f));
}

/* Waiting for an event that was never recorded returns immediately, so the first use needs no special case. */
cloob_status async_copy_start_cuda(cloob_ctx *ctx, async_copy *f, void *to, const void *from, size_t bytes)
{
    cuda_use(f->dev);
    if (!bytes) return CLOOB_OK;
    CLOOB_TRY(cuda_check(ctx, cudaStreamWaitEvent(stream_of(f), f->read, 0), "feeding the GPU"));
    return cuda_check(ctx, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(f)), "feeding the GPU");
}

cloob_status async_copy_filled_cuda(cloob_ctx *ctx, async_copy *f)
{
    return cuda_check(ctx, cudaEventRecord(f->arrived, stream_of(f)), "feeding the GPU");
}

cloob_status async_copy_use_cuda(cloob_ctx *ctx, async_copy *f)
{
    return cuda_check(ctx, cudaStreamWaitEvent(cuda_use(f->dev)->stream, f->arrived, 0), "feeding the GPU");
}

cloob_status async_copy_used_cuda(cloob_ctx *ctx, async_copy *f)
{
    return cuda_check(ctx, cudaEventRecord(f->read, cuda_use(f->dev)->stream), "feeding the GPU");
}

cloob_status async_copy_settle_cuda(cloob_ctx *ctx, async_copy *f)
{
    return cuda_check(ctx, cudaEventSynchronize(f->arrived), "feeding the GPU");
}

void *async_copy_host_alloc_cuda(device *d, size_t bytes)
{
    void *p = NULL;
    cuda_use(d);
    if (cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocPortable) == cudaSuccess) return p;
    cudaGetLastError();
    return NULL;
}

void async_copy_host_free_cuda(device *d, void *p)
{
    cuda_use(d);
    cudaFreeHost(p);
}
