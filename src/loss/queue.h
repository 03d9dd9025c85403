/* The latest embeddings, as stored patterns: a ring buffer of f32 or bf16 rows in device memory.
 *
 * Retrieval sums over patterns, so their order does not matter and the ring is read in memory order.
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
    int64_t next; /* position of the next row; of the oldest one when the ring is full */
    cloob_dtype dtype;
} queue;

/* dev outlives the queue. On failure nothing is allocated. */
cloob_status queue_init(cloob_ctx *ctx, queue *q, device *dev, int64_t capacity, int64_t dim, cloob_dtype dtype);
void queue_release(queue *q); /* zeroed memory is valid */

/* Adds n rows (device memory), overwriting the oldest. Of more rows than the capacity, the last are kept. */
cloob_status queue_push(cloob_ctx *ctx, queue *q, const void *rows, int64_t n);

/* Restores the content of a queue of `capacity` rows: count rows in memory order (host memory), and the position
 * `next`. A smaller queue gets the latest rows. Invalid counts are refused. */
cloob_status queue_restore(cloob_ctx *ctx, queue *q, const void *rows, int64_t capacity, int64_t count, int64_t next);

/* "queue:N" gives N; anything else is refused. */
cloob_status queue_parse(cloob_ctx *ctx, const char *text, int64_t *capacity);

#endif
