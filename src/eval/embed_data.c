/* A pass over a data set through both towers. */
#include "eval/embed_data.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/feed.h"

void embed_options_init(embed_options *o)
{
    *o = (embed_options){ .what = ENCODE_UNIT, .batch = 64, .workers = 2, .texts = true };
}

void embedded_release(embedded *e)
{
    free(e->image), free(e->text), free(e->label), free(e->index);
    *e = (embedded){ 0 };
}

/* Batches lie where the device can read them by itself. */
static void *batch_alloc(void *dev, size_t bytes) { return feed_host_alloc(dev, bytes); }

static void batch_release(void *dev, void *memory, size_t bytes)
{
    (void)bytes;
    feed_host_free(dev, memory);
}

void loader_feeds(loader_options *o, device *dev)
{
    o->alloc = batch_alloc;
    o->release = batch_release;
    o->memory_user = dev;
}

int64_t embed_rows_at_once(const encoder *enc, int64_t wanted)
{
    int64_t each = encoder_batch(enc);
    return (wanted + each - 1) / each * each;
}

cloob_status embed_loader(cloob_ctx *ctx, const encoder *enc, const tokenizer *tok, const dataset *d,
                          const embed_options *o, loader **out)
{
    loader_options lo;
    loader_options_init(&lo);
    lo.batch = o->batch;
    lo.workers = o->workers;
    lo.train = false;
    lo.context = encoder_config(enc)->context;
    loader_feeds(&lo, encoder_device(enc));
    transform_options_init(&lo.view, encoder_config(enc)->image_size);
    lo.view.mode = (resize_mode)encoder_config(enc)->resize;
    return loader_create(ctx, d, tok, &lo, out);
}

static cloob_status make_room(cloob_ctx *ctx, embedded *e, int64_t n, bool texts, bool labels)
{
    e->image = malloc((size_t)(n * e->image_width) * sizeof *e->image);
    e->index = malloc((size_t)n * sizeof *e->index);
    if (texts) e->text = malloc((size_t)(n * e->text_width) * sizeof *e->text);
    if (labels) e->label = malloc((size_t)n * sizeof *e->label);
    if (e->image && e->index && (!texts || e->text) && (!labels || e->label)) return CLOOB_OK;
    return ctx_no_memory(ctx, (size_t)(n * (e->image_width + e->text_width)) * sizeof(float), "embeddings");
}

static cloob_status take_batch(cloob_ctx *ctx, encoder *enc, const batch *b, encoder_output what, embedded *e)
{
    CLOOB_TRY(encoder_images(ctx, enc, b->images, b->rows, what, e->image + e->rows * e->image_width));
    if (e->text)
        CLOOB_TRY(encoder_texts(ctx, enc, b->tokens, b->rows, what, e->text + e->rows * e->text_width));
    for (int64_t i = 0; i < b->rows; i++) {
        e->index[e->rows + i] = b->index[i];
        if (e->label) e->label[e->rows + i] = b->label[i];
    }
    e->rows += b->rows;
    return CLOOB_OK;
}

static cloob_status run(cloob_ctx *ctx, encoder *enc, loader *l, encoder_output what, int64_t n, embedded *e)
{
    batch b;
    int64_t told = 0;
    for (;;) {
        CLOOB_TRY(loader_next(ctx, l, &b));
        if (b.end) break;
        CLOOB_TRY(take_batch(ctx, enc, &b, what, e));
        if (e->rows - told < 10000) continue;
        ctx_log(ctx, CLOOB_LOG_INFO, "%lld of %lld embedded", (long long)e->rows, (long long)n);
        told = e->rows;
    }
    e->bad = loader_stats_take(l).bad_samples;
    if (e->rows) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "none of the %lld samples can be read", (long long)e->bad);
}

cloob_status embed_data(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d,
                        const embed_options *o, embedded *e)
{
    int64_t n = dataset_epoch_samples(d);
    embed_options full = *o;
    bool texts = o->texts && tok && dataset_has_captions(d);
    loader *l = NULL;
    *e = (embedded){ .image_width = encoder_width(enc, o->what, false),
                     .text_width = encoder_width(enc, o->what, true) };
    cloob_status status = make_room(ctx, e, n, texts, dataset_class_count(d) > 0);
    full.batch = embed_rows_at_once(enc, o->batch);
    if (status == CLOOB_OK) status = embed_loader(ctx, enc, texts ? tok : NULL, d, &full, &l);
    if (status == CLOOB_OK) status = run(ctx, enc, l, o->what, n, e);
    loader_destroy(l);
    if (status != CLOOB_OK) embedded_release(e);
    return status;
}
