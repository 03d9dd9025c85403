/* Two places that are filled in turn. */
#include "train/stage.h"

#include <assert.h>
#include <stdlib.h>

#include "tensor/feed.h"

struct stage {
    device *dev;
    feed *f;      /* NULL on a host */
    tensor to[2]; /* the towers' inputs: images, tokens */
    void *place[FEED_SLOTS][2];
    const char *from[2]; /* the batch put last */
    int64_t accum;
    int64_t sent, taken; /* micro-batches; place n % FEED_SLOTS holds the n-th */
};

/* Micro-batches are needed twice: for the loss, and for its gradient. */
static int64_t travels(const stage *st) { return st->accum > 1 ? 2 * st->accum : 1; }

static bool has_places(const device *dev) { return dev->backend == BACKEND_CUDA; }

size_t stage_bytes(const device *dev, size_t bytes) { return has_places(dev) ? FEED_SLOTS * bytes : 0; }

static cloob_status take_places(cloob_ctx *ctx, stage *st)
{
    CLOOB_TRY(feed_create(ctx, st->dev, &st->f));
    for (int slot = 0; slot < FEED_SLOTS; slot++)
        for (int i = 0; i < 2; i++)
            CLOOB_TRY(st->dev->alloc(ctx, st->dev, tensor_bytes(&st->to[i]), "the next batch",
                                     &st->place[slot][i]));
    return CLOOB_OK;
}

cloob_status stage_create(cloob_ctx *ctx, device *dev, const tensor *images, const tensor *tokens,
                          int64_t accum, stage **out)
{
    stage *st = calloc(1, sizeof *st);
    if (!st) return ctx_no_memory(ctx, sizeof *st, "the next batch");
    *st = (stage){ .dev = dev, .to = { *images, *tokens }, .accum = accum };
    cloob_status status = has_places(dev) ? take_places(ctx, st) : CLOOB_OK;
    if (status == CLOOB_OK) *out = st;
    else stage_destroy(st);
    return status;
}

void stage_destroy(stage *st)
{
    if (!st) return;
    feed_destroy(st->f);
    for (int k = 0; k < FEED_SLOTS * 2; k++)
        if (st->place[k / 2][k % 2]) st->dev->free(st->dev, st->place[k / 2][k % 2]);
    free(st);
}

bool stage_ahead(const stage *st) { return st->f && st->accum == 1; }

bool stage_is_empty(const stage *st)
{
    return st->accum > 1 ? !st->from[0] || st->taken == travels(st) : st->taken == st->sent;
}

static cloob_status send(cloob_ctx *ctx, stage *st)
{
    int slot = (int)(st->sent % FEED_SLOTS);
    for (int i = 0; i < 2 && st->f; i++) {
        size_t bytes = tensor_bytes(&st->to[i]);
        CLOOB_TRY(feed_copy(ctx, st->f, slot, st->place[slot][i],
                            st->from[i] + (size_t)(st->sent % st->accum) * bytes, bytes));
    }
    st->sent++;
    return st->f ? feed_filled(ctx, st->f, slot) : CLOOB_OK;
}

cloob_status stage_put(cloob_ctx *ctx, stage *st, const void *images, const int32_t *tokens)
{
    if (st->accum > 1) st->sent = st->taken = 0; /* whatever became of the batch before */
    assert(st->sent - st->taken < (stage_ahead(st) ? FEED_SLOTS : 1));
    st->from[0] = images;
    st->from[1] = (const char *)tokens;
    return send(ctx, st);
}

static cloob_status fill_inputs(cloob_ctx *ctx, stage *st, int64_t micro)
{
    int slot = (int)(st->taken % FEED_SLOTS);
    if (st->f) CLOOB_TRY(feed_use(ctx, st->f, slot));
    for (int i = 0; i < 2; i++) {
        size_t bytes = tensor_bytes(&st->to[i]);
        if (st->f) CLOOB_TRY(st->dev->copy(ctx, st->dev, st->to[i].data, st->place[slot][i], bytes));
        else
            CLOOB_TRY(
                st->dev->to_device(ctx, st->dev, st->to[i].data, st->from[i] + (size_t)micro * bytes, bytes));
    }
    return st->f ? feed_used(ctx, st->f, slot) : CLOOB_OK;
}

cloob_status stage_take(cloob_ctx *ctx, stage *st, int64_t micro)
{
    if (stage_is_empty(st))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a step without a batch: none was staged");
    assert(micro == st->taken % st->accum);
    CLOOB_TRY(fill_inputs(ctx, st, micro));
    st->taken++;
    return st->accum > 1 && st->sent < travels(st) ? send(ctx, st) : CLOOB_OK;
}

cloob_status stage_settle(cloob_ctx *ctx, stage *st) { return st->f ? feed_settle(ctx, st->f) : CLOOB_OK; }
