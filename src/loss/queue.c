#include "loss/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

cloob_status queue_init(cloob_ctx *ctx, queue *q, device *dev, int64_t capacity, int64_t dim, cloob_dtype dtype)
{
    *q = (queue){ .dev = dev, .capacity = capacity, .dim = dim, .dtype = dtype };
    if (capacity < 1 || dim < 1 || capacity > INT64_MAX / 16 / dim)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a queue of %lld rows of width %lld", (long long)capacity,
                        (long long)dim);
    return dev->alloc(ctx, dev, (size_t)capacity * (size_t)dim * dtype_size(dtype), "the queue of embeddings",
                      &q->data);
}

void queue_release(queue *q)
{
    if (q->data) q->dev->free(q->dev, q->data);
    memset(q, 0, sizeof *q);
}

typedef cloob_status copy_fn(cloob_ctx *ctx, device *d, void *to, const void *from, size_t bytes);

static cloob_status push(cloob_ctx *ctx, queue *q, const void *rows, int64_t n, copy_fn *copy)
{
    size_t row = (size_t)q->dim * dtype_size(q->dtype);
    const char *from = rows;
    if (n > q->capacity) from += (size_t)(n - q->capacity) * row, n = q->capacity;
    while (n > 0) {
        int64_t piece = q->capacity - q->next < n ? q->capacity - q->next : n;
        CLOOB_TRY(copy(ctx, q->dev, (char *)q->data + (size_t)q->next * row, from, (size_t)piece * row));
        from += (size_t)piece * row;
        n -= piece;
        q->next += piece;
        if (q->count < q->next) q->count = q->next;
        if (q->next == q->capacity) q->next = 0;
    }
    return CLOOB_OK;
}

cloob_status queue_push(cloob_ctx *ctx, queue *q, const void *rows, int64_t n)
{
    return push(ctx, q, rows, n, q->dev->copy);
}

cloob_status queue_restore(cloob_ctx *ctx, queue *q, const void *rows, int64_t capacity, int64_t count, int64_t next)
{
    bool full = count == capacity;
    if (count < 0 || count > capacity || next < 0 || (full ? next >= capacity : next != count))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "a queue of %lld rows cannot hold %lld and continue at %lld",
                        (long long)capacity, (long long)count, (long long)next);
    size_t row = (size_t)q->dim * dtype_size(q->dtype);
    q->count = q->next = 0;
    if (!full || capacity != q->capacity) { /* by age: the oldest first */
        if (full) CLOOB_TRY(push(ctx, q, (const char *)rows + (size_t)next * row, count - next, q->dev->to_device));
        return push(ctx, q, rows, next, q->dev->to_device);
    }
    CLOOB_TRY(push(ctx, q, rows, count, q->dev->to_device));
    q->next = next;
    return CLOOB_OK;
}

cloob_status queue_parse(cloob_ctx *ctx, const char *text, int64_t *capacity)
{
    char *end;
    errno = 0;
    *capacity = strncmp(text, "queue:", 6) == 0 ? strtoll(text + 6, &end, 10) : 0;
    if (*capacity > 0 && *end == '\0' && errno == 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "memory %s: choose batch, queue:N with N above 0, or file:F", text);
}
