/* The stored patterns of a run: a queue of embeddings, or rows of a file. */
#include "train/hopfield_memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"

enum { IMAGE, TEXT };

/* A ring of unit rows in device memory. */
typedef struct queue {
    void *data; /* (count, dim) F32 */
    int64_t capacity, count;
    int64_t next; /* position of the next row; of the oldest one when the ring is full */
} queue;

struct hopfield_memory {
    device *dev;
    comm *c;
    bool is_queue;
    queue set[2];      /* a file's rows are a queue without pushes */
    int64_t rows, dim; /* of a step on this rank */
    int64_t *elements; /* of each rank; NULL when alone */
    float *gathered;   /* (rows of all ranks, dim); NULL when alone */
};

/* N of "queue:N"; 0: another text. */
static int64_t queue_rows(const char *text)
{
    char *end;
    errno = 0;
    int64_t n = strncmp(text, "queue:", 6) == 0 ? strtoll(text + 6, &end, 10) : 0;
    return n > 0 && !*end && !errno ? n : 0;
}

cloob_status hopfield_memory_check(cloob_ctx *ctx, const char *text)
{
    if (strcmp(text, "batch") == 0 || (strncmp(text, "file:", 5) == 0 && text[5]) || queue_rows(text)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`memory` %s: choose batch, queue:N with N above 0, or file:F", text);
}

/* ---- a queue ------------------------------------------------------------------------------------- */

static cloob_status queue_init(cloob_ctx *ctx, hopfield_memory *s, int t, int64_t capacity)
{
    if (capacity > INT64_MAX / 16 / s->dim)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a queue of %lld rows of width %lld", (long long)capacity,
                        (long long)s->dim);
    s->set[t].capacity = capacity;
    return s->dev->alloc(ctx, s->dev, (size_t)capacity * (size_t)s->dim * sizeof(float), "the queue of embeddings",
                         &s->set[t].data);
}

typedef cloob_status copy_fn(cloob_ctx *ctx, device *d, void *to, const void *from, size_t bytes);

/* Adds n rows to set t, overwriting the oldest. Of more rows than the capacity, the last are kept. */
static cloob_status push(cloob_ctx *ctx, hopfield_memory *s, int t, const float *rows, int64_t n, copy_fn *copy)
{
    queue *q = &s->set[t];
    if (n > q->capacity) rows += (n - q->capacity) * s->dim, n = q->capacity;
    while (n > 0) {
        int64_t piece = min64(q->capacity - q->next, n), elements = piece * s->dim;
        CLOOB_TRY(copy(ctx, s->dev, (float *)q->data + q->next * s->dim, rows, (size_t)elements * sizeof(float)));
        rows += elements;
        n -= piece;
        q->next += piece;
        if (q->count < q->next) q->count = q->next;
        if (q->next == q->capacity) q->next = 0;
    }
    return CLOOB_OK;
}

static cloob_status open_queue(cloob_ctx *ctx, hopfield_memory *s, const char *text)
{
    int ranks = comm_size(s->c);
    size_t bytes = (size_t)(s->rows * s->dim * ranks) * sizeof(float);
    s->is_queue = true;
    for (int t = 0; t < 2; t++) CLOOB_TRY(queue_init(ctx, s, t, queue_rows(text)));
    if (ranks == 1) return CLOOB_OK;
    s->elements = calloc((size_t)ranks, sizeof *s->elements);
    if (!s->elements) return ctx_no_memory(ctx, (size_t)ranks * sizeof *s->elements, "the queue of embeddings");
    for (int r = 0; r < ranks; r++) s->elements[r] = s->rows * s->dim;
    return s->dev->alloc(ctx, s->dev, bytes, "the queue of embeddings", (void **)&s->gathered);
}

static cloob_status push_side(cloob_ctx *ctx, hopfield_memory *s, int t, const float *rows)
{
    if (!s->gathered) return push(ctx, s, t, rows, s->rows, s->dev->copy);
    comm_set_stream(s->c, s->dev->stream);
    CLOOB_TRY(comm_all_gather(ctx, s->c, rows, s->gathered, s->elements, CLOOB_F32));
    return push(ctx, s, t, s->gathered, s->rows * comm_size(s->c), s->dev->copy);
}

cloob_status hopfield_memory_push(cloob_ctx *ctx, hopfield_memory *s, const float *x, const float *y)
{
    if (!s || !s->is_queue) return CLOOB_OK;
    CLOOB_TRY(push_side(ctx, s, IMAGE, x));
    return push_side(ctx, s, TEXT, y);
}

/* ---- a file -------------------------------------------------------------------------------------- */

/* Normalises rows, to remove rounding errors; a row that is not close to unit length is an error. */
static cloob_status make_unit(cloob_ctx *ctx, float *x, int64_t n, int64_t d, const char *path, const char *name)
{
    for (int64_t i = 0; i < n; i++) {
        double square = 0;
        for (int64_t k = 0; k < d; k++) square += (double)x[i * d + k] * (double)x[i * d + k];
        double length = sqrt(square);
        if (!(fabs(length - 1) <= 1e-2))
            return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                            "`memory`: %s: row %lld of %s has length %.6g; stored rows must have unit length "
                            "(cloob embed without `raw`)",
                            path, (long long)i, name, length);
        for (int64_t k = 0; k < d; k++) x[i * d + k] = (float)((double)x[i * d + k] / length);
    }
    return CLOOB_OK;
}

static cloob_status fill_set(cloob_ctx *ctx, hopfield_memory *s, int t, const st_entry *e, const char *path)
{
    int64_t n = e->t.dim[0], count = tensor_count(&e->t);
    float *x = malloc((size_t)count * sizeof *x);
    if (!x) return ctx_no_memory(ctx, (size_t)count * sizeof *x, "stored patterns");
    cloob_status status = CLOOB_OK;
    if (!dtype_convert(CLOOB_F32, x, e->t.dtype, e->t.data, count))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "`memory`: %s: %s is %s; must be F32, BF16, F16 or F64", path, e->name,
                          dtype_name(e->t.dtype));
    if (status == CLOOB_OK) status = make_unit(ctx, x, n, s->dim, path, e->name);
    if (status == CLOOB_OK) status = queue_init(ctx, s, t, n);
    if (status == CLOOB_OK) status = push(ctx, s, t, x, n, s->dev->to_device);
    if (status == CLOOB_OK) status = s->dev->sync(ctx, s->dev);
    free(x);
    return status;
}

static const st_entry *find_set(const st_file *f, int t)
{
    static const char *const names[2][2] = { { "U", "image" }, { "V", "text" } };
    const st_entry *e = st_find(f, names[t][0]);
    return e ? e : st_find(f, names[t][1]);
}

static cloob_status read_set(cloob_ctx *ctx, hopfield_memory *s, int t, const st_file *f, const char *path)
{
    char shape[SHAPE_TEXT];
    const st_entry *e = find_set(f, t);
    if (!e) return CLOOB_OK;
    if (e->t.ndim == 2 && e->t.dim[0] > 0 && e->t.dim[1] == s->dim) return fill_set(ctx, s, t, e, path);
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "`memory`: %s: %s is %s; rows must have the model's width of %lld", path,
                    e->name, tensor_shape_text(&e->t, shape), (long long)s->dim);
}

static cloob_status open_file(cloob_ctx *ctx, hopfield_memory *s, const char *path)
{
    st_file f;
    CLOOB_TRY(st_open(ctx, path, &f));
    cloob_status status = read_set(ctx, s, IMAGE, &f, path);
    if (status == CLOOB_OK) status = read_set(ctx, s, TEXT, &f, path);
    if (status == CLOOB_OK && !s->set[IMAGE].data && !s->set[TEXT].data)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "`memory`: %s: holds neither U and V nor image and text", path);
    st_close(&f);
    return status;
}

static cloob_status measure_file(cloob_ctx *ctx, const char *path, int64_t max_rows[2])
{
    st_file f;
    CLOOB_TRY(st_open(ctx, path, &f));
    for (int t = 0; t < 2; t++) {
        const st_entry *e = find_set(&f, t);
        max_rows[t] = e && e->t.ndim == 2 ? e->t.dim[0] : 0;
    }
    st_close(&f);
    return CLOOB_OK;
}

cloob_status hopfield_memory_measure(cloob_ctx *ctx, const char *text, int ranks, int64_t rows, int64_t dim,
                                     int64_t max_rows[2], size_t *bytes)
{
    CLOOB_TRY(hopfield_memory_check(ctx, text));
    max_rows[IMAGE] = max_rows[TEXT] = queue_rows(text);
    bool is_queue = max_rows[IMAGE] > 0;
    if (strncmp(text, "file:", 5) == 0) CLOOB_TRY(measure_file(ctx, text + 5, max_rows));
    int64_t gathered = is_queue && ranks > 1 ? saturating_mul(rows, ranks) : 0;
    int64_t total = saturating_add(saturating_add(max_rows[IMAGE], max_rows[TEXT]), gathered);
    *bytes = saturating_mul_size((size_t)saturating_mul(total, dim), sizeof(float)); /* overflow: refused later */
    return CLOOB_OK;
}

/* ---- life ---------------------------------------------------------------------------------------- */

cloob_status hopfield_memory_create(cloob_ctx *ctx, const char *text, device *dev, comm *c, int64_t rows, int64_t dim,
                                    hopfield_memory **out)
{
    *out = NULL;
    CLOOB_TRY(hopfield_memory_check(ctx, text));
    if (strcmp(text, "batch") == 0) return CLOOB_OK;
    hopfield_memory *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, "stored patterns");
    *s = (hopfield_memory){ .dev = dev, .c = c, .rows = rows, .dim = dim };
    cloob_status status = strncmp(text, "file:", 5) == 0 ? open_file(ctx, s, text + 5) : open_queue(ctx, s, text);
    if (status == CLOOB_OK) *out = s;
    else hopfield_memory_destroy(s);
    return status;
}

void hopfield_memory_destroy(hopfield_memory *s)
{
    if (!s) return;
    for (int t = 0; t < 2; t++)
        if (s->set[t].data) s->dev->free(s->dev, s->set[t].data);
    if (s->gathered) s->dev->free(s->dev, s->gathered);
    free(s->elements);
    free(s);
}

int64_t hopfield_memory_max_rows(const hopfield_memory *s, bool text) { return s ? s->set[text].capacity : 0; }

void hopfield_memory_bind(const hopfield_memory *s, loss_inputs *in, int64_t *u, int64_t *v)
{
    *u = s ? s->set[IMAGE].count : 0;
    *v = s ? s->set[TEXT].count : 0;
    in->u = *u ? s->set[IMAGE].data : NULL;
    in->v = *v ? s->set[TEXT].data : NULL;
}

size_t hopfield_memory_bytes(const hopfield_memory *s)
{
    if (!s) return 0;
    int64_t gathered = s->gathered ? s->rows * comm_size(s->c) : 0;
    return (size_t)((s->set[IMAGE].capacity + s->set[TEXT].capacity + gathered) * s->dim) * sizeof(float);
}

/* ---- checkpoints --------------------------------------------------------------------------------- */

static const char *const tensor_names[2] = { "train.queue.image", "train.queue.text" };

static cloob_status save_side(cloob_ctx *ctx, const hopfield_memory *s, int t, weights *w)
{
    tensor rows = TENSOR(CLOOB_F32, NULL, s->set[t].count, s->dim);
    rows.data = arena_push(&w->a, tensor_bytes(&rows));
    if (!rows.data) return ctx_no_memory(ctx, tensor_bytes(&rows), "a checkpoint");
    CLOOB_TRY(s->dev->to_host(ctx, s->dev, rows.data, s->set[t].data, tensor_bytes(&rows)));
    return weights_add(ctx, w, tensor_names[t], &rows);
}

cloob_status hopfield_memory_save(cloob_ctx *ctx, const hopfield_memory *s, weights *w)
{
    char place[64];
    if (!s || !s->is_queue || s->set[IMAGE].count == 0) return CLOOB_OK;
    for (int t = 0; t < 2; t++) CLOOB_TRY(save_side(ctx, s, t, w));
    snprintf(place, sizeof place, "%lld %lld", (long long)s->set[IMAGE].capacity, (long long)s->set[IMAGE].next);
    return weights_set_meta(ctx, w, "train.queue", place); /* both sides advance together */
}

/* Rows in the order of memory, and the position of the next one. */
static cloob_status load_side(cloob_ctx *ctx, hopfield_memory *s, int t, const tensor *rows, const char *path,
                              int64_t next)
{
    queue *q = &s->set[t];
    int64_t n = rows && rows->ndim == 2 ? rows->dim[0] : -1;
    if (n < 0 || n > q->capacity || rows->dtype != CLOOB_F32 || rows->dim[1] != s->dim || next < 0 ||
        (n == q->capacity ? next >= n : next != n))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: its queue of embeddings is damaged; use an earlier checkpoint, or `pretrained`", path);
    q->count = q->next = 0;
    CLOOB_TRY(push(ctx, s, t, rows->data, n, s->dev->to_device));
    q->next = next;
    return s->dev->sync(ctx, s->dev);
}

cloob_status hopfield_memory_load(cloob_ctx *ctx, hopfield_memory *s, const weights *w, const char *path)
{
    const char *place = weights_get_meta(w, "train.queue");
    long long capacity, next;
    if (!place && s && s->is_queue)
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: holds no queue of embeddings; the queue starts empty", path);
    if (place && !(s && s->is_queue))
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: its queue of embeddings is ignored: this run has another `memory`", path);
    if (!place || !s || !s->is_queue) return CLOOB_OK;
    if (sscanf(place, "%lld %lld", &capacity, &next) != 2) next = capacity = -1;
    if (capacity > 0 && capacity != s->set[IMAGE].capacity) {
        ctx_log(ctx, CLOOB_LOG_WARN,
                "%s: its queue has room for %lld rows, this run's for %lld; the queue starts empty", path, capacity,
                (long long)s->set[IMAGE].capacity);
        return CLOOB_OK;
    }
    for (int t = 0; t < 2; t++) CLOOB_TRY(load_side(ctx, s, t, weights_find(w, tensor_names[t]), path, next));
    return CLOOB_OK;
}
