/* One row of a batch, from its position in the epoch to pixels and tokens. */
#include <string.h>

#include "core/rng.h"
#include "data/load/loader_parts.h"

enum {
    MAX_TRIES = 256, /* unreadable samples in a row after which a training run stops */
    MAX_WARNINGS = 5 /* bad samples named in the log; the others are counted */
};

cloob_status loader_make_view(worker *w, const stored_sample *s, uint64_t key, uint8_t *out)
{
    const loader_options *o = &w->l->o;
    if (s->width) {
        image im = { .rgb = s->data, .width = s->width, .height = s->height };
        return o->train ? view_train(w->ctx, w->view, &im, &o->view, key, out)
                        : view_eval(w->ctx, w->view, &im, &o->view, out);
    }
    return o->train
               ? view_train_bytes(w->ctx, w->view, s->data, s->size, s->name.data, &w->l->limits, &o->view, key, out)
               : view_eval_bytes(w->ctx, w->view, s->data, s->size, s->name.data, &w->l->limits, &o->view, out);
}

static cloob_status read_sample(worker *w, slot *s, int64_t r, int64_t index, uint64_t pick, uint64_t view_key)
{
    loader *l = w->l;
    int64_t pixels = l->o.view.size * l->o.view.size * 3;
    int what = FETCH_IMAGE | (l->tok ? FETCH_CAPTION : 0);
    CLOOB_TRY(dataset_fetch(w->ctx, l->d, index, pick, what, &w->sample));
    if (!w->device) CLOOB_TRY(loader_make_view(w, &w->sample, view_key, s->b.images + r * pixels));
    if (l->tok)
        CLOOB_TRY(tokenizer_encode_row(w->ctx, l->tok, w->sample.caption.data, w->sample.caption.len, l->o.context,
                                       s->b.tokens + r * l->o.context));
    if (w->device) CLOOB_TRY(loader_device_view(w, view_key, r, s->b.images + r * pixels)); /* takes the bytes */
    s->b.index[r] = index;
    s->b.label[r] = (int32_t)w->sample.label;
    s->ok[r] = true;
    return CLOOB_OK;
}

/* What the data can cause is passed over; what memory or the build lacks would hit every sample. */
static bool passes_over(cloob_status status) { return status == CLOOB_ERR_FORMAT || status == CLOOB_ERR_IO; }

static void count_bad(worker *w)
{
    loader *l = w->l;
    pthread_mutex_lock(&l->lock);
    l->bad_samples++;
    bool tell = l->warned < MAX_WARNINGS, last = ++l->warned == MAX_WARNINGS;
    pthread_mutex_unlock(&l->lock);
    if (tell)
        ctx_log(w->ctx, CLOOB_LOG_WARN, "bad sample: %s%s", cloob_error(w->ctx),
                last ? " (further ones are only counted)" : "");
}

static cloob_status fill_train(worker *w, slot *s, int64_t r, int64_t position)
{
    loader *l = w->l;
    uint64_t epoch = (uint64_t)s->b.epoch, order = rng_subkey(l->order_key, epoch);
    uint64_t view_key = rng_subkey(rng_subkey(l->view_key, epoch), (uint64_t)position);
    cloob_status status = CLOOB_OK;
    for (int64_t tried = 0; tried < MAX_TRIES && tried < l->samples_per_epoch; tried++) {
        int64_t index = dataset_draw(l->d, order, (position + tried) % l->samples_per_epoch);
        /* Every epoch another caption of the image, beginning anywhere. */
        uint64_t pick = rng_u64(l->caption_key, (uint64_t)index) / 2 + epoch;
        status = read_sample(w, s, r, index, pick, view_key);
        if (status == CLOOB_OK || !passes_over(status)) return status;
        if (tried == 0) count_bad(w); /* the others are counted at their own positions */
    }
    return ctx_wrap(w->ctx, status,
                    "no readable sample at position %lld of epoch %lld or at any of the next ones; the last of them",
                    (long long)position, (long long)epoch);
}

static cloob_status fill_eval(worker *w, slot *s, int64_t r, int64_t position)
{
    cloob_status status = read_sample(w, s, r, position, 0, 0);
    if (!passes_over(status)) return status;
    count_bad(w);
    return CLOOB_OK;
}

cloob_status loader_fill_row(worker *w, slot *s, int64_t r)
{
    const loader_options *o = &w->l->o;
    int64_t position = (s->b.step * o->ranks + o->rank) * o->batch + r;
    s->ok[r] = false;
    return o->train ? fill_train(w, s, r, position) : fill_eval(w, s, r, position);
}
