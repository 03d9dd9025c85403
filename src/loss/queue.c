#include "loss/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

cloob_status queue_init(cloob_ctx *ctx, queue *q, int64_t capacity, int64_t dim, cloob_dtype dtype)
{
    *q = (queue){ .capacity = capacity, .dim = dim, .dtype = dtype };
    if (capacity < 1 || dim < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a queue of %lld rows of width %lld", (long long)capacity,
                        (long long)dim);
    q->data = calloc((size_t)capacity, (size_t)dim * dtype_size(dtype));
    return q->data ? CLOOB_OK
                   : ctx_no_memory(ctx, (size_t)capacity * (size_t)dim * dtype_size(dtype),
                                   "the queue of embeddings");
}

void queue_release(queue *q)
{
    free(q->data);
    memset(q, 0, sizeof *q);
}

void queue_push(queue *q, const void *rows, int64_t n)
{
    size_t row = (size_t)q->dim * dtype_size(q->dtype);
    const char *from = rows;
    if (n > q->capacity) from += (size_t)(n - q->capacity) * row, n = q->capacity;
    while (n > 0) {
        int64_t piece = q->capacity - q->next < n ? q->capacity - q->next : n;
        memcpy((char *)q->data + (size_t)q->next * row, from, (size_t)piece * row);
        from += (size_t)piece * row;
        n -= piece;
        q->next += piece;
        if (q->count < q->next) q->count = q->next;
        if (q->next == q->capacity) q->next = 0;
    }
}

cloob_status queue_parse(cloob_ctx *ctx, const char *text, int64_t *capacity)
{
    char *end;
    *capacity = 0;
    if (strcmp(text, "batch") == 0) return CLOOB_OK;
    if (strncmp(text, "queue:", 6) == 0) {
        errno = 0;
        long long n = strtoll(text + 6, &end, 10);
        if (end != text + 6 && *end == '\0' && errno == 0 && n > 0) {
            *capacity = n;
            return CLOOB_OK;
        }
    }
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "memory %s: choose batch or queue:N with N above 0", text);
}
