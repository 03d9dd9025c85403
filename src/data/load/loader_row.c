/* One row of a batch, from its position in the epoch to pixels and tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "data/load/loader_parts.h"

enum {
    MAX_TRIES = 256,  /* unreadable samples in a row after which a training run stops */
    MAX_WARNINGS = 5, /* bad samples named in the log; the others are counted */
    NAMED = 3         /* where there are too many */
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

/* Errors in the data skip the sample; missing memory or build parts would affect every sample. */
static bool passes_over(cloob_status status) { return status == CLOOB_ERR_FORMAT || status == CLOOB_ERR_IO; }

/* Under the lock; true: this sample was not known to be bad. */
static bool mark_bad(loader *l, int64_t index)
{
    if (!l->bad) l->bad = calloc((size_t)dataset_count(l->d) / 8 + 1, 1);
    if (!l->bad || l->bad[index / 8] & (1 << index % 8)) return false;
    l->bad[index / 8] |= (uint8_t)(1 << index % 8);
    l->bad_samples++;
    return true;
}

/* Under the lock: a bad one among the rows that are judged. */
static void judge(worker *w)
{
    loader *l = w->l;
    if (l->bad_at_first++ == 0) snprintf(l->bad_reason, sizeof l->bad_reason, "%s", cloob_error(w->ctx));
    if (l->bad_at_first <= NAMED)
        sbuf_printf(&l->bad_names, "%s%s", l->bad_at_first > 1 ? ", " : "", w->sample.name.data);
}

static cloob_status too_many_bad(cloob_ctx *ctx, const loader *l)
{
    return ctx_fail(
        ctx, CLOOB_ERR_FORMAT,
        "more than %g %% of the first %lld samples cannot be read: %s, .. (%s); set the folder of the images with "
        "`path_data`, or skip them with `allow_bad_samples`",
        100 * l->o.bad_share, (long long)loader_judged_rows(l), l->bad_names.data ? l->bad_names.data : "",
        l->bad_reason);
}

/* The sample of row r cannot be read, for the reason in the worker's context; fails when there are too many of them. */
static cloob_status count_bad(worker *w, const slot *s, int64_t r, int64_t index)
{
    loader *l = w->l;
    int64_t judged = loader_judged_rows(l);
    pthread_mutex_lock(&l->lock);
    bool fresh = mark_bad(l, index), tell = fresh && l->warned < MAX_WARNINGS,
         last = tell && ++l->warned == MAX_WARNINGS;
    if (s->first + r < judged) judge(w);
    bool too_many = l->o.bad_share > 0 && (double)l->bad_at_first > l->o.bad_share * (double)judged;
    pthread_mutex_unlock(&l->lock);
    if (tell)
        ctx_log(w->ctx, CLOOB_LOG_WARN, "bad sample: %s%s", cloob_error(w->ctx),
                last ? " (further ones are only counted)" : "");
    return too_many ? too_many_bad(w->ctx, l) : CLOOB_OK;
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
        if (tried == 0) CLOOB_TRY(count_bad(w, s, r, index)); /* the others are counted at their own positions */
    }
    return ctx_wrap(w->ctx, status,
                    "no readable sample at position %lld of epoch %lld or at any of the next ones; the last of them",
                    (long long)position, (long long)epoch);
}

static cloob_status fill_eval(worker *w, slot *s, int64_t r, int64_t position)
{
    cloob_status status = read_sample(w, s, r, position, 0, 0);
    if (!passes_over(status)) return status;
    return count_bad(w, s, r, position);
}

cloob_status loader_fill_row(worker *w, slot *s, int64_t r)
{
    const loader_options *o = &w->l->o;
    int64_t position = (s->b.step * o->ranks + o->rank) * o->batch + r;
    s->ok[r] = false;
    return o->train ? fill_train(w, s, r, position) : fill_eval(w, s, r, position);
}
