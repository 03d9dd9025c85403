/* The last rows that went by, for use as stored patterns: a ring of f32 or bf16 rows in a device's memory.
 *
 * Retrieval sums over patterns, so their order does not matter and the ring is read as it lies.
 *
 *     queue q;
 *     CLOOB_TRY(queue_init(ctx, &q, dev, 65536, d, CLOOB_F32));
 *     CLOOB_TRY(queue_push(ctx, &q, x, n));      after each step
 *     in.u = q.data; shape.stored_u = q.count;   once it holds something
 *     queue_release(&q);
 */
#ifndef LOSS_QUEUE_H
#define LOSS_QUEUE_H

#include "tensor/device.h"

typedef struct queue {
    device *dev;
    void *data; /* (count, dim) */
    int64_t capacity, count, dim;
    int64_t next; /* where the next row goes, which is where the oldest lies once the ring is full */
    cloob_dtype dtype;
} queue;

/* dev outlives the queue. On failure nothing is held. */
cloob_status queue_init(cloob_ctx *ctx, queue *q, device *dev, int64_t capacity, int64_t dim, cloob_dtype dtype);
void queue_release(queue *q); /* zeroed memory is fine */

/* Adds n rows (device memory); beyond the capacity the oldest go. Of more than the capacity, the last stay.
 */
cloob_status queue_push(cloob_ctx *ctx, queue *q, const void *rows, int64_t n);

/* Puts back what a queue of `capacity` rows held: count rows as they lay (host memory), the next going to
 * `next`. Into a smaller queue the latest of them go. Counts that cannot be are refused. */
cloob_status queue_restore(cloob_ctx *ctx, queue *q, const void *rows, int64_t capacity, int64_t count, int64_t next);

/* "queue:N" gives N; anything else is refused. */
cloob_status queue_parse(cloob_ctx *ctx, const char *text, int64_t *capacity);

#endif
