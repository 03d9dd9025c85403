/* Copies from the host that go on while a device computes.
 *
 * A feed is a second queue of a device with one place that it fills. Filling it waits, on the device, until
 * the work that read it before has been done; using it waits, on the device, until it has arrived. The host
 * waits in feed_settle only. On a host device copies are made at once and nothing is ever waited for.
 *
 *     feed_copy(ctx, f, place, from, bytes);  feed_filled(ctx, f);           while the batch before is
 * computed on feed_use(ctx, f);  ... work that reads place ...  feed_used(ctx, f); feed_settle(ctx, f); now
 * `from` may be written again */
#ifndef TENSOR_FEED_H
#define TENSOR_FEED_H

#include "tensor/device.h"

typedef struct feed feed;

/* The device outlives the feed. */
cloob_status feed_create(cloob_ctx *ctx, device *d, feed **out);
void feed_destroy(feed *f); /* NULL is fine; waits for copies under way */

/* Queues a copy into the place; `from` stays untouched until feed_settle.
 * Full speed needs `from` to be memory of feed_host_alloc. */
cloob_status feed_copy(cloob_ctx *ctx, feed *f, void *to, const void *from, size_t bytes);
cloob_status feed_filled(cloob_ctx *ctx, feed *f); /* after its last copy */

/* The device's own queue waits for the place; then goes on, and tells when it has read it. */
cloob_status feed_use(cloob_ctx *ctx, feed *f);
cloob_status feed_used(cloob_ctx *ctx, feed *f);

/* The host waits until all copies queued so far have read their source. */
cloob_status feed_settle(cloob_ctx *ctx, feed *f);

/* Host memory that a device's copies read at full speed (page-locked for a GPU, plain for a host); NULL: none
 * left. */
void *feed_host_alloc(device *d, size_t bytes);
void feed_host_free(device *d, void *p);

/* GPU versions, chosen by those above. */
cloob_status feed_create_cuda(cloob_ctx *ctx, feed *f);
void feed_destroy_cuda(feed *f);
cloob_status feed_copy_cuda(cloob_ctx *ctx, feed *f, void *to, const void *from, size_t bytes);
cloob_status feed_filled_cuda(cloob_ctx *ctx, feed *f);
cloob_status feed_use_cuda(cloob_ctx *ctx, feed *f);
cloob_status feed_used_cuda(cloob_ctx *ctx, feed *f);
cloob_status feed_settle_cuda(cloob_ctx *ctx, feed *f);
void *feed_host_alloc_cuda(device *d, size_t bytes);
void feed_host_free_cuda(device *d, void *p);

/* For those versions only. */
struct feed {
    device *dev;
    void *queue;   /* NULL on a host */
    void *arrived; /* a mark in `queue`: the place is filled */
    void *read;    /* a mark in the device's queue: it has been read */
};

#endif
