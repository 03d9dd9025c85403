/* The last rows that went by, for use as stored patterns: a ring of f32 or bf16 rows in host memory.
 *
 * Retrieval sums over patterns, so their order does not matter and the ring is read as it lies.
 *
 *     queue q;
 *     CLOOB_TRY(queue_init(ctx, &q, 65536, d, CLOOB_F32));
 *     queue_push(&q, x, n);                      after each step
 *     in.u = q.data; shape.stored_u = q.count;   once it holds something
 *     queue_release(&q);
 */
#ifndef LOSS_QUEUE_H
#define LOSS_QUEUE_H

#include "core/ctx.h"

typedef struct queue {
    void *data; /* (count, dim) */
    int64_t capacity, count, dim;
    int64_t next; /* where the oldest row lies once the ring is full */
    cloob_dtype dtype;
} queue;

cloob_status queue_init(cloob_ctx *ctx, queue *q, int64_t capacity, int64_t dim, cloob_dtype dtype);
void queue_release(queue *q);

/* Adds n rows; beyond the capacity the oldest go. Of more than the capacity, the last stay. */
void queue_push(queue *q, const void *rows, int64_t n);

/* "batch" gives *capacity 0; "queue:N" gives N; a text that is neither is refused. */
cloob_status queue_parse(cloob_ctx *ctx, const char *text, int64_t *capacity);

#endif
