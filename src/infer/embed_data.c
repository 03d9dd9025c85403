/* A pass over a data set through both towers. */
#include "infer/embed_data.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/async_copy.h"

void embed_options_init(embed_options *o)
{
    *o = (embed_options){ .what = CLOOB_UNIT, .batch = 64, .workers = 2, .texts = true };
}

void embedded_release(embedded *e)
{
    free(e->image), free(e->text), free(e->label), free(e->index);
    *e = (embedded){ 0 };
}

/* Batches lie where the device can read them by itself. */
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
    lo.view.how = encoder_config(enc)->view;
    return loader_create(ctx, d, tok, &lo, out);
}

/* ---- in batches ---------------------------------------------------------------------------------- */

bool embed_has_texts(const tokenizer *tok, const dataset *d, const embed_options *o)
{
    return o->texts && tok && dataset_has_captions(d);
}

typedef struct pass {
    encoder *enc;
    cloob_output what;
    embed_batch room; /* for one batch */
    embed_visitor *visit;
    void *user;
} pass;

static cloob_status pass_room(cloob_ctx *ctx, pass *p, int64_t n, bool texts, bool labels)
{
    size_t image_bytes = (size_t)(n * encoder_width(p->enc, p->what, false)) * sizeof(float),
           text_bytes = (size_t)(n * encoder_width(p->enc, p->what, true)) * sizeof(float);
    p->room.image = malloc(image_bytes);
    p->room.index = malloc((size_t)n * sizeof *p->room.index);
    if (texts) p->room.text = malloc(text_bytes);
    if (labels) p->room.label = malloc((size_t)n * sizeof *p->room.label);
    if (p->room.image && p->room.index && (!texts || p->room.text) && (!labels || p->room.label)) return CLOOB_OK;
    return ctx_no_memory(ctx, image_bytes + text_bytes, "a batch of embeddings");
}

static void pass_release(pass *p) { free(p->room.image), free(p->room.text), free(p->room.label), free(p->room.index); }

static cloob_status take_batch(cloob_ctx *ctx, pass *p, const batch *b)
{
    embed_batch *to = &p->room;
    CLOOB_TRY(encoder_images(ctx, p->enc, b->images, b->rows, p->what, to->image));
    if (to->text) CLOOB_TRY(encoder_texts(ctx, p->enc, b->tokens, b->rows, p->what, to->text));
    for (int64_t i = 0; i < b->rows; i++) {
        to->index[i] = b->index[i];
        if (to->label) to->label[i] = b->label[i];
    }
    to->rows = b->rows;
    return p->visit(ctx, p->user, to);
}

static cloob_status run(cloob_ctx *ctx, pass *p, loader *l, int64_t n, int64_t *bad)
{
    batch b;
    int64_t rows = 0;
    ctx_progress(ctx, "embed", 0, n, "samples");
    for (;;) {
        CLOOB_TRY(loader_next(ctx, l, &b));
        if (b.end) break;
        CLOOB_TRY(take_batch(ctx, p, &b));
        rows += b.rows;
        ctx_progress(ctx, "embed", rows, n, "samples");
    }
    *bad = loader_stats_take(l).bad_samples;
    if (rows) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "none of the %lld samples can be read", (long long)*bad);
}

cloob_status embed_data_each(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d,
                             const embed_options *o, embed_visitor *visit, void *user, int64_t *bad)
{
    embed_options full = *o;
    bool texts = embed_has_texts(tok, d, o);
    pass p = { .enc = enc, .what = o->what, .visit = visit, .user = user };
    loader *l = NULL;
    *bad = 0;
    full.batch = embed_rows_at_once(enc, o->batch);
    cloob_status status = pass_room(ctx, &p, full.batch, texts, dataset_class_count(d) > 0);
    if (status == CLOOB_OK) status = embed_loader(ctx, enc, texts ? tok : NULL, d, &full, &l);
    if (status == CLOOB_OK) status = run(ctx, &p, l, dataset_epoch_samples(d), bad);
    loader_destroy(l);
    pass_release(&p);
    return status;
}

/* ---- all in memory ------------------------------------------------------------------------------- */

static cloob_status make_room(cloob_ctx *ctx, embedded *e, int64_t n, bool texts, bool labels)
{
    e->image = malloc((size_t)(n * e->image_width) * sizeof *e->image);
    e->index = malloc((size_t)n * sizeof *e->index);
    if (texts) e->text = malloc((size_t)(n * e->text_width) * sizeof *e->text);
    if (labels) e->label = malloc((size_t)n * sizeof *e->label);
    if (e->image && e->index && (!texts || e->text) && (!labels || e->label)) return CLOOB_OK;
    return ctx_no_memory(ctx, (size_t)(n * (e->image_width + e->text_width)) * sizeof(float), "embeddings");
}

static cloob_status keep_batch(cloob_ctx *ctx, void *user, const embed_batch *b)
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
    *e = (embedded){ .image_width = encoder_width(enc, o->what, false),
                     .text_width = encoder_width(enc, o->what, true) };
    cloob_status status =
        make_room(ctx, e, dataset_epoch_samples(d), embed_has_texts(tok, d, o), dataset_class_count(d) > 0);
    if (status == CLOOB_OK) status = embed_data_each(ctx, enc, tok, d, o, keep_batch, e, &e->bad);
    if (status != CLOOB_OK) embedded_release(e);
    return status;
}
