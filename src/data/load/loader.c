/* Slots in a ring, workers that fill them row by row, one caller that takes them in order. */
#include "data/load/loader.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/rng.h"
#include "data/load/loader_parts.h"

void loader_options_init(loader_options *o)
{
    *o = (loader_options){ .batch = 64, .ranks = 1, .workers = 4, .ahead = 2, .context = 77 };
    transform_options_init(&o->view, 224);
}

/* ---- which rows --------------------------------------------------------------------------------- */

static int64_t count_batches(const loader *l)
{
    int64_t global = l->o.batch * l->o.ranks;
    return l->o.train ? l->samples_per_epoch / global : (l->samples_per_epoch + global - 1) / global;
}

static int64_t rows_at(const loader *l, int64_t step)
{
    int64_t left = l->samples_per_epoch - (step * l->o.ranks + l->o.rank) * l->o.batch;
    return left < 0 ? 0 : left < l->o.batch ? left : l->o.batch;
}

static void advance(const loader *l, place *p)
{
    if (++p->step < l->batches) return;
    p->step = 0;
    p->epoch++;
}

/* ---- one row, from its position in the epoch to pixels and tokens ----------------------------------- */

/* The number of rows that decide whether the data set is readable. */
static int64_t early_rows(const loader *l)
{
    enum { EARLY_ROWS = 1000 };
    int64_t rows = l->o.train ? l->batches * l->o.batch : (l->samples_per_epoch + l->o.ranks - 1) / l->o.ranks;
    return rows < EARLY_ROWS ? rows : EARLY_ROWS;
}

enum {
    MAX_TRIES = 256,  /* unreadable samples in a row after which a training run stops */
    MAX_WARNINGS = 5, /* bad samples named in the log; the others are counted */
    NAMED = 3         /* shown in the error when there are too many */
};

cloob_status loader_make_view(worker *w, const stored_sample *s, uint64_t key, uint8_t *out)
{
    const loader *l = w->l;
    const uint64_t *drawn = l->o.train ? &key : NULL;
    image im = { .rgb = s->data, .width = s->width, .height = s->height };
    if (s->width) return view_of_image(w->ctx, w->view, &im, &l->o.view, drawn, out);
    return view_of_bytes(w->ctx, w->view, s->data, s->size, s->name.data, &l->limits, &l->o.view, drawn, out);
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
    if (w->device) CLOOB_TRY(loader_device_view(w, view_key, r, s->b.images + r * pixels)); /* takes its bytes */
    s->b.index[r] = index;
    s->b.label[r] = (int32_t)w->sample.label;
    s->ok[r] = true;
    return CLOOB_OK;
}

/* Errors in the data skip the sample; missing memory or build parts would affect every sample. */
static bool is_sample_error(cloob_status status) { return status == CLOOB_ERR_FORMAT || status == CLOOB_ERR_IO; }

/* With lock held: marks a sample as bad; false if it was already marked. */
static bool mark_bad(loader *l, int64_t index)
{
    if (!l->bad) l->bad = calloc((size_t)dataset_count(l->d) / 8 + 1, 1);
    if (!l->bad || l->bad[index / 8] & (1 << index % 8)) return false;
    l->bad[index / 8] |= (uint8_t)(1 << index % 8);
    l->bad_samples++;
    return true;
}

/* With lock held: counts a bad sample among the rows that decide. */
static void count_early_bad(worker *w)
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
        100 * l->o.bad_share, (long long)early_rows(l), l->bad_names.data ? l->bad_names.data : "", l->bad_reason);
}

/* The sample of row r cannot be read, for the reason in the worker's context; fails when there are too many of them. */
static cloob_status count_bad(worker *w, const slot *s, int64_t r, int64_t index)
{
    loader *l = w->l;
    int64_t judged = early_rows(l);
    pthread_mutex_lock(&l->lock);
    bool fresh = mark_bad(l, index), logged = fresh && l->warned < MAX_WARNINGS,
         last = logged && ++l->warned == MAX_WARNINGS;
    if (s->first + r < judged) count_early_bad(w);
    bool too_many = l->o.bad_share > 0 && (double)l->bad_at_first > l->o.bad_share * (double)judged;
    pthread_mutex_unlock(&l->lock);
    if (logged)
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
        /* Another caption in every epoch, from a random start. */
        uint64_t pick = rng_u64(l->caption_key, (uint64_t)index) / 2 + epoch;
        status = read_sample(w, s, r, index, pick, view_key);
        if (status == CLOOB_OK || !is_sample_error(status)) return status;
        if (tried == 0) CLOOB_TRY(count_bad(w, s, r, index)); /* the others are counted at their own positions */
    }
    return ctx_wrap(w->ctx, status, "no readable sample at position %lld of epoch %lld or after it; last error",
                    (long long)position, (long long)epoch);
}

static cloob_status fill_eval(worker *w, slot *s, int64_t r, int64_t position)
{
    cloob_status status = read_sample(w, s, r, position, 0, 0);
    if (!is_sample_error(status)) return status;
    return count_bad(w, s, r, position);
}

cloob_status loader_fill_row(worker *w, slot *s, int64_t r)
{
    const loader_options *o = &w->l->o;
    int64_t position = (s->b.step * o->ranks + o->rank) * o->batch + r;
    s->ok[r] = false;
    return o->train ? fill_train(w, s, r, position) : fill_eval(w, s, r, position);
}

/* ---- filling, under the lock -------------------------------------------------------------------- */

/* The slot with rows that no worker has started; NULL when all batches ahead are in progress. */
static slot *open_slot(loader *l)
{
    slot *s = l->filled > l->taken ? &l->slot[(l->filled - 1) % l->slots] : NULL;
    if (s && s->issued < s->rows && s->status == CLOOB_OK) return s;
    if (l->filled - l->taken >= l->slots) return NULL;
    if (l->next_fill.epoch > l->next_take.epoch + (l->o.train ? 1 : 0)) return NULL;
    s = &l->slot[l->filled++ % l->slots];
    s->b.epoch = l->next_fill.epoch;
    s->b.step = l->next_fill.step;
    s->rows = rows_at(l, s->b.step);
    s->first = l->begun;
    l->begun += s->rows;
    s->issued = s->done = 0;
    s->status = CLOOB_OK;
    advance(l, &l->next_fill);
    if (s->rows == 0) pthread_cond_broadcast(&l->ready);
    return s;
}

static bool is_ready(const slot *s) { return s->done == s->rows || (s->status != CLOOB_OK && s->done == s->issued); }

/* Rows per visit: few enough that all workers share the first batch, enough that the lock costs nothing. */
static int64_t rows_per_visit(const loader *l)
{
    if (l->o.decoder) return loader_device_rows(l);
    int64_t n = l->o.batch / (8 * (l->o.workers ? l->o.workers : 1));
    return n < 1 ? 1 : n > 8 ? 8 : n;
}

/* Takes some rows of s and fills them with the lock released. */
static void fill_some(loader *l, worker *w, slot *s)
{
    int64_t begin = s->issued, end = begin + rows_per_visit(l);
    if (end > s->rows) end = s->rows;
    s->issued = end;
    l->busy++;
    pthread_mutex_unlock(&l->lock);
    cloob_status status = CLOOB_OK;
    if (w->device) loader_device_begin(w);
    for (int64_t r = begin; r < end && status == CLOOB_OK; r++) status = loader_fill_row(w, s, r);
    if (status == CLOOB_OK && w->device) status = loader_device_finish(w, s);
    pthread_mutex_lock(&l->lock);
    l->busy--;
    s->done += end - begin;
    if (status != CLOOB_OK && s->status == CLOOB_OK) {
        s->status = status;
        memcpy(s->error, w->ctx->error, sizeof s->error);
    }
    if (is_ready(s) || l->paused) pthread_cond_broadcast(&l->ready);
}

static void *work(void *arg)
{
    worker *w = arg;
    loader *l = w->l;
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        slot *s = l->paused ? NULL : open_slot(l);
        if (!s) pthread_cond_wait(&l->work, &l->lock);
        else if (s->rows) fill_some(l, w, s);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- taking ------------------------------------------------------------------------------------- */

/* Closes the gaps that unreadable samples left. */
static void compact(const loader *l, slot *s)
{
    size_t pixels = (size_t)(l->o.view.size * l->o.view.size * 3), context = (size_t)l->o.context;
    int64_t kept = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        if (!s->ok[r]) continue;
        if (kept < r) {
            memcpy(s->b.images + kept * (int64_t)pixels, s->b.images + r * (int64_t)pixels, pixels);
            if (l->tok)
                memcpy(s->b.tokens + kept * (int64_t)context, s->b.tokens + r * (int64_t)context,
                       context * sizeof(int32_t));
            s->b.index[kept] = s->b.index[r];
            s->b.label[kept] = s->b.label[r];
        }
        kept++;
    }
    s->b.rows = kept;
}

static void release_held(loader *l)
{
    if (!l->held) return;
    l->held = false;
    l->taken++;
    pthread_cond_broadcast(&l->work);
}

static void wait_ready(loader *l)
{
    double from = clock_seconds();
    for (;;) {
        slot *s = l->filled > l->taken ? &l->slot[l->taken % l->slots] : NULL;
        if (s && is_ready(s)) break;
        if (l->workers) pthread_cond_wait(&l->ready, &l->lock);
        else if ((s = open_slot(l)) && s->rows) fill_some(l, &l->worker[0], s);
    }
    l->wait_seconds += clock_seconds() - from;
}

/* Starts the next epoch. In evaluation only on request, because a next epoch is rare. */
static void begin_next_epoch(loader *l)
{
    l->next_take = (place){ l->next_take.epoch + 1, 0 };
    pthread_cond_broadcast(&l->work);
}

static bool end_of_epoch(loader *l, batch *b)
{
    if (l->next_take.step > l->batches) begin_next_epoch(l); /* the previous call returned the end */
    if (l->next_take.step < l->batches) return false;
    *b = (batch){ .epoch = l->next_take.epoch, .step = l->next_take.step, .end = true };
    if (l->o.train) begin_next_epoch(l);
    else l->next_take.step++;
    return true;
}

cloob_status loader_next(cloob_ctx *ctx, loader *l, batch *b)
{
    cloob_status status = CLOOB_OK;
    *b = (batch){ 0 };
    pthread_mutex_lock(&l->lock);
    release_held(l);
    if (!end_of_epoch(l, b)) {
        wait_ready(l);
        slot *s = &l->slot[l->taken % l->slots];
        status = s->status;
        if (status != CLOOB_OK) ctx_fail(ctx, status, "%s", s->error);
        else {
            compact(l, s);
            *b = s->b;
            l->held = true;
            l->next_take.step++;
            l->samples += b->rows;
        }
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Samples that were read ahead of a seek are not counted. */
static void forget_bad(loader *l)
{
    free(l->bad);
    l->bad = NULL;
    l->bad_samples = l->bad_at_first = l->begun = 0;
    l->bad_names.len = 0;
}

cloob_status loader_seek(cloob_ctx *ctx, loader *l, int64_t epoch, int64_t step)
{
    if (epoch < 0 || step < 0 || step > l->batches)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "epoch %lld, batch %lld: an epoch has %lld batches", (long long)epoch,
                        (long long)step, (long long)l->batches);
    pthread_mutex_lock(&l->lock);
    if (l->next_take.step >= l->batches && l->next_take.epoch + 1 == epoch) begin_next_epoch(l);
    if (l->next_take.epoch != epoch || l->next_take.step != step) {
        l->paused = true;
        while (l->busy) pthread_cond_wait(&l->ready, &l->lock);
        l->filled = l->taken = 0;
        l->held = false;
        l->next_take = l->next_fill = (place){ epoch, step };
        forget_bad(l);
        if (step == l->batches) l->next_fill = (place){ epoch + 1, 0 };
        l->paused = false;
        pthread_cond_broadcast(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return CLOOB_OK;
}

/* ---- statistics --------------------------------------------------------------------------------- */

int64_t loader_batches(const loader *l) { return l->batches; }
size_t loader_buffer_bytes(const loader *l) { return (size_t)l->slots * l->slot_bytes; }

cloob_status loader_bad_samples(cloob_ctx *ctx, loader *l, int64_t **index, int64_t *count)
{
    int64_t n = dataset_count(l->d);
    *count = 0;
    pthread_mutex_lock(&l->lock);
    *index = malloc((size_t)(l->bad_samples + 1) * sizeof **index);
    for (int64_t i = 0; *index && l->bad && i < n; i++)
        if (l->bad[i / 8] & (1 << i % 8)) (*index)[(*count)++] = i;
    pthread_mutex_unlock(&l->lock);
    return *index ? CLOOB_OK : ctx_no_memory(ctx, sizeof **index, "the list of bad samples");
}

loader_stats loader_stats_take(loader *l)
{
    double now = clock_seconds();
    pthread_mutex_lock(&l->lock);
    loader_stats s = { l->wait_seconds, now - l->since, l->bad_samples, l->samples, l->cpu_views };
    l->wait_seconds = 0;
    l->since = now;
    pthread_mutex_unlock(&l->lock);
    return s;
}

void loader_log_bottleneck(cloob_ctx *ctx, const loader *l, const loader_stats *s)
{
    const double share = 0.2;
    if (s->wall_seconds <= 0 || s->wait_seconds < share * s->wall_seconds) return;
    ctx_log(ctx, CLOOB_LOG_WARN,
            "data is the bottleneck: the model waited %.1f of the last %.1f s (%.0f %%) for %d workers; use more "
            "`workers`, smaller stored images or faster storage",
            s->wait_seconds, s->wall_seconds, 100 * s->wait_seconds / s->wall_seconds, l->workers);
}

/* ---- life --------------------------------------------------------------------------------------- */

static cloob_status check(cloob_ctx *ctx, const loader *l)
{
    const loader_options *o = &l->o;
    if (o->batch < 1 || o->ranks < 1 || o->rank < 0 || o->rank >= o->ranks || o->workers < 0 || o->ahead < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "loader: batch %lld, rank %d of %d, %d workers, %d ahead",
                        (long long)o->batch, o->rank, o->ranks, o->workers, o->ahead);
    if (l->tok && o->context < 2)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "loader: a context of %lld tokens", (long long)o->context);
    if (l->tok && !dataset_has_captions(l->d))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the data set (%s) has no captions to train on", dataset_kind(l->d));
    CLOOB_TRY(transform_options_check(ctx, &o->view));
    CLOOB_TRY(loader_device_check(ctx, o));
    if (o->train && count_batches(l) == 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "%lld samples do not fill one batch of %lld on %d rank%s; use a smaller `batch_size`",
                        (long long)l->samples_per_epoch, (long long)o->batch, o->ranks, o->ranks == 1 ? "" : "s");
    return CLOOB_OK;
}

void *loader_take_memory(const loader *l, size_t bytes)
{
    return l->o.alloc ? l->o.alloc(l->o.memory_user, bytes) : malloc(bytes ? bytes : 1);
}

void loader_give_memory(const loader *l, void *memory, size_t bytes)
{
    if (!memory) return;
    if (l->o.release) l->o.release(l->o.memory_user, memory, bytes);
    else if (!l->o.alloc) free(memory);
}

static cloob_status create_slots(cloob_ctx *ctx, loader *l)
{
    size_t images = (size_t)(l->o.batch * l->o.view.size * l->o.view.size * 3), n = (size_t)l->o.batch;
    device *dev = l->o.decoder ? device_decoder_device(l->o.decoder) : NULL;
    images = (images + 63) / 64 * 64; /* tokens begin aligned */
    l->slot_bytes = (dev ? 0 : images) + (l->tok ? n * (size_t)l->o.context * sizeof(int32_t) : 0);
    l->slots = l->o.ahead + 1;
    l->slot = calloc((size_t)l->slots, sizeof *l->slot);
    if (!l->slot) return ctx_no_memory(ctx, (size_t)l->slots * sizeof *l->slot, "the loader");
    for (int i = 0; i < l->slots; i++) {
        slot *s = &l->slot[i];
        s->memory = loader_take_memory(l, l->slot_bytes);
        s->ok = calloc(n, sizeof *s->ok);
        s->b.index = calloc(n, sizeof *s->b.index);
        s->b.label = calloc(n, sizeof *s->b.label);
        if (!s->memory || !s->ok || !s->b.index || !s->b.label) return ctx_no_memory(ctx, l->slot_bytes, "a batch");
        s->b.images = s->memory;
        s->b.tokens = l->tok ? (int32_t *)(void *)(s->b.images + (dev ? 0 : images)) : NULL;
        void *views = NULL;
        if (dev) CLOOB_TRY(dev->alloc(ctx, dev, images, "the images of a batch", &views));
        if (dev) s->b.images = views;
    }
    return CLOOB_OK;
}

static cloob_status create_workers(cloob_ctx *ctx, loader *l)
{
    int n = l->o.workers ? l->o.workers : 1;
    l->worker = calloc((size_t)n, sizeof *l->worker);
    if (!l->worker) return ctx_no_memory(ctx, (size_t)n * sizeof *l->worker, "the loader's workers");
    for (int i = 0; i < n; i++) {
        worker *w = &l->worker[i];
        w->l = l;
        w->ctx = ctx_worker(ctx);
        if (!w->ctx) return ctx_no_memory(ctx, sizeof *w->ctx, "a worker");
        CLOOB_TRY(view_scratch_create(ctx, &w->view));
        if (l->o.decoder) CLOOB_TRY(loader_device_create(ctx, w));
    }
    /* Workers block signals, which are handled by the caller's thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (l->workers < l->o.workers) {
        worker *w = &l->worker[l->workers];
        w->started = pthread_create(&w->thread, NULL, work, w) == 0;
        if (!w->started) break;
        l->workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (l->workers == 0 && l->o.workers > 0) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "cannot start a loader thread");
    return CLOOB_OK;
}

cloob_status loader_create(cloob_ctx *ctx, const dataset *d, const tokenizer *tok, const loader_options *o,
                           loader **out)
{
    loader *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return ctx_no_memory(ctx, sizeof *l, "the loader");
    l->d = d;
    l->tok = tok;
    l->o = *o;
    l->limits = dataset_image_limits(d);
    l->samples_per_epoch = dataset_epoch_samples(d);
    l->order_key = rng_key(o->seed, "data/order");
    l->caption_key = rng_key(o->seed, "data/caption");
    l->view_key = rng_key(o->seed, "data/view");
    l->since = clock_seconds();
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    cloob_status status = check(ctx, l);
    if (status == CLOOB_OK) {
        l->batches = count_batches(l);
        status = create_slots(ctx, l);
    }
    if (status == CLOOB_OK) status = create_workers(ctx, l);
    if (status == CLOOB_OK) *out = l;
    else loader_destroy(l);
    return status;
}

static void stop_workers(loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; l->worker && i < (l->o.workers ? l->o.workers : 1); i++) {
        worker *w = &l->worker[i];
        if (w->started) pthread_join(w->thread, NULL);
        view_scratch_destroy(w->view);
        loader_device_destroy(w);
        stored_sample_release(&w->sample);
        cloob_ctx_destroy(w->ctx);
    }
}

void loader_destroy(loader *l)
{
    if (!l) return;
    device *dev = l->o.decoder ? device_decoder_device(l->o.decoder) : NULL;
    stop_workers(l);
    for (int i = 0; l->slot && i < l->slots; i++) {
        slot *s = &l->slot[i];
        if (dev && s->b.images != s->memory) dev->free(dev, s->b.images);
        loader_give_memory(l, s->memory, l->slot_bytes);
        free(s->ok);
        free(s->b.index);
        free(s->b.label);
    }
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    free(l->slot);
    free(l->worker);
    free(l->bad);
    sbuf_release(&l->bad_names);
    free(l);
}
