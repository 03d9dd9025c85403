/* One staging buffer on the device, refilled as soon as it has been read. */
#include "train/step_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "tensor/async_copy.h"

enum { PARTS = UPLOAD_PARTS, MAX_BATCHES = 2 }; /* batches started and not yet taken */

typedef struct source {
    const char *part[PARTS]; /* host memory */
    int *note;               /* (accum) */
} source;

struct batch_upload {
    device *dev;
    async_copy *f;    /* NULL on a host */
    tensor to[PARTS]; /* the towers' inputs; data NULL: no such part */
    void *staging[PARTS];
    int *notes;                /* (MAX_BATCHES, accum) */
    source batch[MAX_BATCHES]; /* [0]: to be taken next, or being taken */
    int batches;
    int64_t accum;
    int64_t sent, taken; /* micro-batches of batch[0] */
};

static bool has_staging(const device *dev) { return dev->backend == BACKEND_CUDA; }

size_t batch_upload_bytes(const device *dev, size_t bytes) { return has_staging(dev) ? bytes : 0; }

static cloob_status alloc_staging(cloob_ctx *ctx, batch_upload *st)
{
    CLOOB_TRY(async_copy_create(ctx, st->dev, &st->f));
    for (int i = 0; i < PARTS; i++)
        if (st->to[i].data)
            CLOOB_TRY(st->dev->alloc(ctx, st->dev, tensor_bytes(&st->to[i]), "the next batch", &st->staging[i]));
    return CLOOB_OK;
}

cloob_status batch_upload_create(cloob_ctx *ctx, device *dev, const tensor *const to[UPLOAD_PARTS], int64_t accum,
                                 batch_upload **out)
{
    batch_upload *st = calloc(1, sizeof *st);
    if (!st) return ctx_no_memory(ctx, sizeof *st, "the next batch");
    *st = (batch_upload){ .dev = dev, .accum = accum };
    for (int i = 0; i < PARTS; i++)
        if (to[i]) st->to[i] = *to[i];
    st->notes = calloc((size_t)(MAX_BATCHES * accum), sizeof *st->notes);
    for (int i = 0; st->notes && i < MAX_BATCHES; i++) st->batch[i].note = st->notes + i * accum;
    cloob_status status = st->notes ? CLOOB_OK : ctx_no_memory(ctx, (size_t)accum * sizeof(int), "the next batch");
    if (status == CLOOB_OK && has_staging(dev)) status = alloc_staging(ctx, st);
    if (status == CLOOB_OK) *out = st;
    else batch_upload_destroy(st);
    return status;
}

void batch_upload_destroy(batch_upload *st)
{
    if (!st) return;
    async_copy_destroy(st->f);
    for (int i = 0; i < PARTS; i++)
        if (st->staging[i]) st->dev->free(st->dev, st->staging[i]);
    free(st->notes);
    free(st);
}

bool batch_upload_ahead(const batch_upload *st) { return st->f && st->accum == 1; }

static const char *source_of(const batch_upload *st, int part, int64_t n)
{
    return st->batch[0].part[part] + (size_t)(n % st->accum) * tensor_bytes(&st->to[part]);
}

int batch_upload_note(const batch_upload *st) { return st->batches ? st->batch[0].note[st->taken % st->accum] : 0; }

/* Starts the copy of the next micro-batch of batch[0] to the staging buffer. */
static cloob_status send(cloob_ctx *ctx, batch_upload *st)
{
    for (int i = 0; i < PARTS; i++)
        if (st->to[i].data)
            CLOOB_TRY(
                async_copy_start(ctx, st->f, st->staging[i], source_of(st, i, st->sent), tensor_bytes(&st->to[i])));
    st->sent++;
    return async_copy_filled(ctx, st->f);
}

cloob_status batch_upload_start(cloob_ctx *ctx, batch_upload *st, const void *const part[UPLOAD_PARTS], const int *note)
{
    if (!batch_upload_ahead(st)) st->batches = 0; /* drops an unfinished one */
    assert(st->batches < MAX_BATCHES);
    source *b = &st->batch[st->batches++];
    for (int i = 0; i < PARTS; i++) b->part[i] = part[i];
    for (int64_t k = 0; k < st->accum; k++) b->note[k] = note ? note[k] : 0;
    if (st->batches > 1) return CLOOB_OK;
    st->sent = st->taken = 0;
    return st->f ? send(ctx, st) : CLOOB_OK;
}

static cloob_status fill_inputs(cloob_ctx *ctx, batch_upload *st)
{
    device *d = st->dev;
    if (st->f) CLOOB_TRY(async_copy_use(ctx, st->f));
    for (int i = 0; i < PARTS; i++) {
        size_t bytes = tensor_bytes(&st->to[i]);
        if (!st->to[i].data) continue;
        if (st->f) CLOOB_TRY(d->copy(ctx, d, st->to[i].data, st->staging[i], bytes));
        else CLOOB_TRY(d->to_device(ctx, d, st->to[i].data, source_of(st, i, st->taken), bytes));
    }
    return st->f ? async_copy_used(ctx, st->f) : CLOOB_OK;
}

cloob_status batch_upload_take(cloob_ctx *ctx, batch_upload *st, int64_t micro)
{
    if (!st->batches) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a step without a batch: none was uploaded");
    assert(micro == st->taken % st->accum);
    (void)micro;
    CLOOB_TRY(fill_inputs(ctx, st));
    st->taken++;
    if (st->taken == (st->accum > 1 ? 2 * st->accum : 1)) { /* micro-batches are needed for the loss and its gradient */
        source done = st->batch[0];
        st->batch[0] = st->batch[1];
        st->batch[1] = done; /* do not free the notes buffer */
        st->batches--;
        st->sent = st->taken = 0;
    }
    return st->batches && st->f ? send(ctx, st) : CLOOB_OK;
}

cloob_status batch_upload_wait(cloob_ctx *ctx, batch_upload *st)
{
    return st->f ? async_copy_settle(ctx, st->f) : CLOOB_OK;
}
