/* Copies from the host that overlap with a device's work.
 *
 * An async_copy is a second stream of a device with one staging buffer that it fills. Filling waits, on the device,
 * until the work that read the buffer before is done; using it waits, on the device, until the copy has arrived. The
 * host waits in async_copy_settle only. On a host device copies are made at once and nothing ever waits.
 *
 *     async_copy_start(ctx, f, place, from, bytes);     while the batch before is being computed
 *     async_copy_filled(ctx, f);
 *     async_copy_use(ctx, f);
 *     ... work that reads place ...
 *     async_copy_used(ctx, f);
 *     async_copy_settle(ctx, f);                        now `from` may be overwritten
 */
#ifndef TENSOR_ASYNC_COPY_H
#define TENSOR_ASYNC_COPY_H

#include "tensor/device.h"

typedef struct async_copy async_copy;

/* The device outlives it. */
cloob_status async_copy_create(cloob_ctx *ctx, device *d, async_copy **out);
void async_copy_destroy(async_copy *f); /* NULL is fine; waits for copies under way */

/* Queues a copy into the buffer; `from` stays untouched until async_copy_settle.
 * Full speed needs `from` to be memory of async_copy_host_alloc, or the device's own. */
cloob_status async_copy_start(cloob_ctx *ctx, async_copy *f, void *to, const void *from, size_t bytes);
cloob_status async_copy_filled(cloob_ctx *ctx, async_copy *f); /* after its last copy */

/* The device's own stream waits until the buffer is filled; used marks the point where it has been read. */
cloob_status async_copy_use(cloob_ctx *ctx, async_copy *f);
cloob_status async_copy_used(cloob_ctx *ctx, async_copy *f);

/* The host waits until all copies queued so far have read their source. */
cloob_status async_copy_settle(cloob_ctx *ctx, async_copy *f);

/* Host memory that a device's copies read at full speed (page-locked for a GPU, plain for a host); NULL: none left. */
void *async_copy_host_alloc(device *d, size_t bytes);
void async_copy_host_free(device *d, void *p);

/* GPU versions, chosen by those above. */
cloob_status async_copy_create_cuda(cloob_ctx *ctx, async_copy *f);
void async_copy_destroy_cuda(async_copy *f);
cloob_status async_copy_start_cuda(cloob_ctx *ctx, async_copy *f, void *to, const void *from, size_t bytes);
cloob_status async_copy_filled_cuda(cloob_ctx *ctx, async_copy *f);
cloob_status async_copy_use_cuda(cloob_ctx *ctx, async_copy *f);
cloob_status async_copy_used_cuda(cloob_ctx *ctx, async_copy *f);
cloob_status async_copy_settle_cuda(cloob_ctx *ctx, async_copy *f);
void *async_copy_host_alloc_cuda(device *d, size_t bytes);
void async_copy_host_free_cuda(device *d, void *p);

/* For those versions only. */
struct async_copy {
    device *dev;
    void *stream;  /* NULL on a host */
    void *arrived; /* a mark in `stream`: the place is filled */
    void *read;    /* a mark in the device's stream: it has been read */
};

#endif
