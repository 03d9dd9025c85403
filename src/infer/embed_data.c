/* A pass over a data set through both towers. */
#include "infer/embed_data.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/async_copy.h"

void embed_options_init(embed_options *o) { *o = (embed_options){ .what = CLOOB_UNIT, .batch = 64, .workers = 2 }; }

void embedded_release(embedded *e)
{
    free(e->image), free(e->text), free(e->label), free(e->index);
    *e = (embedded){ 0 };
}

/* Batches are in pinned memory, which the device copies at full speed. */
static void *batch_alloc(void *dev, size_t bytes) { return async_copy_host_alloc(dev, bytes); }

static void batch_release(void *dev, void *memory, size_t bytes)
{
    (void)bytes;
    async_copy_host_free(dev, memory);
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

/* A loader of evaluation views and tokens as the encoder takes them. */
static cloob_status embed_loader(cloob_ctx *ctx, const encoder *enc, const tokenizer *tok, const dataset *d,
                                 const embed_options *o, loader **out)
{
    loader_options lo;
    loader_options_init(&lo);
    lo.batch = o->batch;
    lo.workers = o->workers;
    lo.train = false;
    lo.bad_share = o->bad_share;
    lo.context = encoder_config(enc)->context;
    loader_feeds(&lo, encoder_device(enc));
    transform_options_init(&lo.view, encoder_config(enc)->image_size);
    lo.view.how = encoder_config(enc)->view;
    return loader_create(ctx, d, tok, &lo, out);
}

/* ---- in batches ---------------------------------------------------------------------------------- */

/* Room for n rows. */
static cloob_status make_room(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d,
                              const embed_options *o, int64_t n, embedded *e)
{
    bool texts = tok && dataset_has_captions(d), labels = dataset_class_count(d) > 0;
    *e = (embedded){ .image_width = encoder_width(enc, o->what, false),
                     .text_width = encoder_width(enc, o->what, true) };
    e->image = malloc((size_t)(n * e->image_width) * sizeof *e->image);
    e->index = malloc((size_t)n * sizeof *e->index);
    if (texts) e->text = malloc((size_t)(n * e->text_width) * sizeof *e->text);
    if (labels) e->label = malloc((size_t)n * sizeof *e->label);
    if (e->image && e->index && (!texts || e->text) && (!labels || e->label)) return CLOOB_OK;
    return ctx_no_memory(ctx, (size_t)(n * (e->image_width + e->text_width)) * sizeof(float), "embeddings");
}

static cloob_status run(cloob_ctx *ctx, encoder *enc, cloob_output what, loader *l, int64_t n, embedded *e,
                        embed_visitor *visit, void *user)
{
    batch b;
    int64_t rows = 0;
    ctx_progress(ctx, "embed", 0, n, "samples");
    for (;;) {
        CLOOB_TRY(loader_next(ctx, l, &b));
        if (b.end) break;
        CLOOB_TRY(encoder_images(ctx, enc, b.images, b.rows, what, e->image));
        if (e->text) CLOOB_TRY(encoder_texts(ctx, enc, b.tokens, b.rows, what, e->text));
        for (int64_t i = 0; i < b.rows; i++) e->index[i] = b.index[i];
        for (int64_t i = 0; i < b.rows && e->label; i++) e->label[i] = b.label[i];
        e->rows = b.rows;
        CLOOB_TRY(visit(ctx, user, e));
        rows += b.rows;
        ctx_progress(ctx, "embed", rows, n, "samples");
    }
    if (rows < n) ctx_progress(ctx, "embed", n, n, "samples"); /* the others cannot be read */
    e->bad = loader_stats_take(l).bad_samples;
    if (rows) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "none of the %lld samples can be read", (long long)e->bad);
}

cloob_status embed_data_each(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d,
                             const embed_options *o, embed_visitor *visit, void *user, int64_t *bad)
{
    embed_options full = *o;
    embedded e;
    loader *l = NULL;
    full.batch = embed_rows_at_once(enc, o->batch);
    cloob_status status = make_room(ctx, enc, tok, d, o, full.batch, &e);
    if (status == CLOOB_OK) status = embed_loader(ctx, enc, e.text ? tok : NULL, d, &full, &l);
    if (status == CLOOB_OK) status = run(ctx, enc, o->what, l, dataset_epoch_samples(d), &e, visit, user);
    *bad = e.bad;
    loader_destroy(l);
    embedded_release(&e);
    return status;
}

/* ---- all in memory ------------------------------------------------------------------------------- */

static cloob_status keep_batch(cloob_ctx *ctx, void *user, const embedded *b)
{
    embedded *e = user;
    size_t n = (size_t)b->rows;
    (void)ctx;
    memcpy(e->image + e->rows * e->image_width, b->image, n * (size_t)e->image_width * sizeof *e->image);
    if (e->text) memcpy(e->text + e->rows * e->text_width, b->text, n * (size_t)e->text_width * sizeof *e->text);
    if (e->label) memcpy(e->label + e->rows, b->label, n * sizeof *e->label);
    memcpy(e->index + e->rows, b->index, n * sizeof *e->index);
    e->rows += b->rows;
    return CLOOB_OK;
}

cloob_status embed_data(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d, const embed_options *o,
                        embedded *e)
{
    cloob_status status = make_room(ctx, enc, tok, d, o, dataset_epoch_samples(d), e);
    if (status == CLOOB_OK) status = embed_data_each(ctx, enc, tok, d, o, keep_batch, e, &e->bad);
    if (status != CLOOB_OK) embedded_release(e);
    return status;
}
