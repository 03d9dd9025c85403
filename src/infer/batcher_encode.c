/* The encoder's thread: waits for inputs, picks a batch, encodes it; loads, replaces and unloads the model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "infer/batcher.h"
#include "core/limits.h"
#include "core/pool.h"

/* ---- the model ----------------------------------------------------------------------------------- */

/* Copies the strings, which outlive the model. */
static cloob_status copy_facts(batcher *b, const model *m, cloob_model_facts *f)
{
    model_get_facts(m, f);
    const char **const text[] = { &f->method, &f->run, &f->container, &f->names, &f->device };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        *text[i] = arena_string(&b->strings, *text[i] ? *text[i] : "");
        if (!*text[i]) return ctx_no_memory(b->ctx, 64, "the model's names");
    }
    return CLOOB_OK;
}

/* Takes over the model's tokenizer, view and facts; model_lock is held for writing. */
static cloob_status adopt(batcher *b, model *m)
{
    cloob_model_facts facts;
    CLOOB_TRY(copy_facts(b, m, &facts));
    if (m->tok) {
        tokenizer_close(b->tok);
        b->tok = m->tok, m->tok = NULL;
    }
    b->view = m->view;
    b->limits = m->limits;
    b->shape = *encoder_config(m->enc);
    b->generation++;
    b->packs_texts = encoder_packs_texts(m->enc);
    b->facts = facts;
    memcpy(b->digest, m->digest, sizeof b->digest);
    b->facts.has_tokenizer = b->tok != NULL;
    return CLOOB_OK;
}

/* ---- loading and unloading ----------------------------------------------------------------------- */

static bool same_shape(const batcher *b, const model *m)
{
    const model_config *c = encoder_config(m->enc);
    return c->embed == b->shape.embed && c->image_size == b->shape.image_size && c->context == b->shape.context &&
           c->vocab == b->shape.vocab && c->no_image_tower == b->shape.no_image_tower &&
           c->no_text_tower == b->shape.no_text_tower;
}

/* With lock held. Without weights inputs are refused until a reload succeeds: the file is wrong, not the input. After
 * a lack of memory the next input tries again. */
static cloob_status note_failure(batcher *b, cloob_status status)
{
    if (status == CLOOB_OK || status == CLOOB_ERR_BUSY || status == CLOOB_ERR_MEMORY) return status;
    if (!b->m) snprintf(b->stats.error, sizeof b->stats.error, "%s", cloob_error(b->ctx));
    return CLOOB_ERR_IO;
}

/* With lock held; released while loading. Loads weights that were freed; refuses a file of another shape. */
static cloob_status reload_model(batcher *b)
{
    model *m = NULL;
    pthread_mutex_unlock(&b->lock);
    cloob_status status = model_open(b->ctx, b->path, &b->o.model, &m);
    if (status == CLOOB_OK && !same_shape(b, m)) {
        status = ctx_fail(b->ctx, CLOOB_ERR_BUSY, "%s was replaced by another architecture; reload it", b->path);
        model_close(m), m = NULL;
    }
    pthread_mutex_lock(&b->lock);
    b->m = m;
    b->stats.loaded = m != NULL;
    b->stats.loads += m != NULL;
    return note_failure(b, status);
}

static void unload(batcher *b)
{
    model *m = b->m;
    b->m = NULL;
    b->stats.loaded = false;
    pthread_mutex_unlock(&b->lock);
    model_close(m);
    pthread_mutex_lock(&b->lock);
}

/* ---- a batch ------------------------------------------------------------------------------------- */

static bool together(const batch_item *a, const batch_item *b)
{
    if (a->all_tokens || b->all_tokens) return a == b;
    return a->text == b->text && a->what == b->what && a->length == b->length;
}

static int64_t count_like(const batcher *b, const batch_item *first)
{
    int64_t n = 0;
    for (const batch_item *it = first; it && n < b->o.max_batch; it = it->next) n += together(first, it);
    return n;
}

/* Unlinks the first item and those like it, up to a batch. */
static int64_t take_batch(batcher *b, batch_item **batch)
{
    batch_item *first = b->head, **link = &b->head, *last = NULL;
    int64_t n = 0;
    while (*link) {
        batch_item *it = *link;
        if (n < b->o.max_batch && together(first, it)) {
            *link = it->next;
            it->next = NULL;
            it->state = BATCH_RUNNING;
            batch[n++] = it;
        } else {
            last = it;
            link = &it->next;
        }
    }
    b->tail = last;
    b->stats.queued -= n;
    b->stats.running = n;
    return n;
}

static bool grow(void **p, size_t *have, size_t want)
{
    if (want <= *have) return true;
    void *more = realloc(*p, want);
    if (!more) return false;
    *p = more, *have = want;
    return true;
}

static cloob_status encode(batcher *b, batch_item *const *batch, int64_t n)
{
    bool text = batch[0]->text;
    if (batch[0]->all_tokens) return encoder_text_tokens(b->ctx, b->m->enc, batch[0]->tokens, batch[0]->out);
    int64_t D = b->facts.embed, S = b->facts.image_size;
    size_t row = text ? (size_t)b->facts.context * sizeof(int32_t) : (size_t)(S * S * 3);
    void *rows = b->rows;
    bool ok = grow(&b->stage, &b->stage_bytes, (size_t)n * row);
    ok = grow(&rows, &b->rows_bytes, (size_t)(n * D) * sizeof *b->rows) && ok;
    b->rows = rows;
    if (!ok) return ctx_no_memory(b->ctx, (size_t)n * row, "a batch");
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)b->stage + (size_t)i * row, text ? (void *)batch[i]->tokens : batch[i]->rgb, row);
    cloob_output what = batch[0]->what;
    cloob_status status = text ? encoder_texts(b->ctx, b->m->enc, b->stage, n, what, b->rows)
                               : encoder_images(b->ctx, b->m->enc, b->stage, n, what, b->rows);
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++)
        memcpy(batch[i]->out, b->rows + i * D, (size_t)D * sizeof *b->rows);
    return status;
}

static void count_batch(batcher *b, bool text, int64_t n, double seconds)
{
    int bucket = 0;
    while (bucket + 1 < CLOOB_BATCH_BUCKETS && (INT64_C(1) << bucket) < n) bucket++;
    b->stats.batch_size[text][bucket]++;
    b->stats.batches[text]++;
    b->stats.rows[text] += n;
    latency_add(&b->stats.encode[text], seconds);
}

void batch_item_free(batch_item *it)
{
    if (!it) return;
    free(it->tokens), free(it->rgb);
    if (!it->call) free(it->out);
    free(it);
}

/* Ends an item with its result; with lock held, which is released while a callback runs. */
static void item_end(batcher *b, batch_item *it, cloob_status status, const char *error)
{
    it->state = BATCH_DONE;
    it->status = status;
    snprintf(it->error, sizeof it->error, "%s", status == CLOOB_OK ? "" : error);
    b->stats.failed += status != CLOOB_OK;
    if (it->call) {
        if (--it->call->left == 0) pthread_cond_signal(&it->call->ended);
        return;
    }
    pthread_mutex_unlock(&b->lock);
    it->done(it->user, status, it->error, status == CLOOB_OK ? it->out : NULL, b->facts.embed);
    batch_item_free(it);
    pthread_mutex_lock(&b->lock);
}

/* With lock held; released while the model works. */
static void run_batch(batcher *b)
{
    batch_item **batch = b->batch;
    cloob_status status = b->m ? CLOOB_OK : reload_model(b);
    int64_t n = take_batch(b, batch);
    double begin = clock_seconds();
    if (!n) return; /* those that waited have given up while the weights were loaded */
    bool text = batch[0]->text;
    pthread_mutex_unlock(&b->lock);
    if (status == CLOOB_OK) status = encode(b, batch, n);
    double end = clock_seconds();
    pthread_mutex_lock(&b->lock);
    count_batch(b, text, n, end - begin);
    for (int64_t i = 0; i < n; i++) latency_add(&b->stats.wait[text], begin - batch[i]->queued_at);
    for (int64_t i = 0; i < n; i++) item_end(b, batch[i], status, cloob_error(b->ctx));
    b->stats.running = 0;
}

/* ---- the thread ---------------------------------------------------------------------------------- */

static void wait_until(batcher *b, double when)
{
    struct timespec t = { (time_t)floor(when), (long)((when - floor(when)) * 1e9) };
    pthread_cond_timedwait(&b->work, &b->lock, &t);
}

/* A batch that is not full waits up to max_wait_us, but only while a thread prepares an input. */
static void wait_for_more_inputs(batcher *b)
{
    double until = b->head->queued_at + 1e-6 * (double)b->o.max_wait_us;
    while (b->head && !b->stop && b->preparing > 0 && count_like(b, b->head) < b->o.max_batch &&
           clock_seconds() < until)
        wait_until(b, until);
}

/* Opens the model, or replaces it: everything queued is encoded with the old one, while new inputs wait outside. */
static void replace_model(batcher *b)
{
    model *fresh = NULL;
    b->reload = false;
    pthread_mutex_unlock(&b->lock);
    cloob_status status = model_open(b->ctx, b->path, &b->o.model, &fresh);
    bool opened = status == CLOOB_OK;
    if (opened) pthread_rwlock_wrlock(&b->model_lock);
    pthread_mutex_lock(&b->lock);
    while (opened && b->head) run_batch(b);
    if (opened) status = adopt(b, fresh);
    b->reload_status = status;
    snprintf(b->reload_error, sizeof b->reload_error, "%s", status == CLOOB_OK ? "" : cloob_error(b->ctx));
    if (status == CLOOB_OK) {
        if (b->m) unload(b);
        b->m = fresh, b->stats.loaded = true, b->stats.loads++;
        b->stats.error[0] = 0;
    } else {
        model_close(fresh);
        note_failure(b, status);
    }
    if (opened) pthread_rwlock_unlock(&b->model_lock);
    b->reloading = false;
    pthread_cond_broadcast(&b->reloaded);
}

static void idle(batcher *b, double since)
{
    double limit = b->o.idle_unload_s;
    if (limit <= 0 || !b->m) {
        pthread_cond_wait(&b->work, &b->lock);
        return;
    }
    if (clock_seconds() >= since + limit) unload(b);
    else wait_until(b, since + limit);
}

static void nothing(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)arg, (void)begin, (void)end, (void)thread;
}

void *batcher_main(void *arg)
{
    batcher *b = arg;
    /* This thread's helpers start now: OpenMP ends the process when one cannot be started, and by the first batch other
     * threads may have taken what a memory limit leaves. */
    if (b->ctx->threads > 1) pool_for(b->ctx, b->ctx->threads, 1, nothing, NULL);
    double used = clock_seconds();
    pthread_mutex_lock(&b->lock);
    replace_model(b);
    b->stop = !b->m;
    while (b->head || !b->stop) {
        if (b->reload) replace_model(b);
        else if (!b->head) idle(b, used);
        else {
            wait_for_more_inputs(b);
            if (b->head) run_batch(b);
            used = clock_seconds();
        }
    }
    pthread_mutex_unlock(&b->lock);
    model_close(b->m);
    return NULL;
}
