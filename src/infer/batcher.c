/* The batching encoder's thread: opens the model, encodes what callers queue, in batches. */
#include "infer/batcher_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/pool.h"
#include "tensor/precision.h"

/* ---- statistics -------------------------------------------------------------------------------------- */

static const double bounds[LATENCY_BUCKETS] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                0.25,   0.5,   1,      2.5,   5,    10,    30,   INFINITY };

double latency_bound(int i) { return i >= 0 && i < LATENCY_BUCKETS ? bounds[i] : 0; }

void latency_add(latency_histogram *h, double seconds)
{
    int i = 0;
    while (i + 1 < LATENCY_BUCKETS && seconds > bounds[i]) i++;
    h->count[i]++;
    h->total++;
    h->sum_s += seconds;
}

void batcher_get_stats(batcher *b, batcher_stats *out)
{
    if (!out) return;
    *out = (batcher_stats){ 0 };
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    *out = b->stats;
    pthread_mutex_unlock(&b->lock);
}

/* ---- the model ----------------------------------------------------------------------------------- */

/* Copies the strings, which outlive the model. */
static cloob_status copy_facts(batcher *b, const model *m, cloob_model_facts *f)
{
    cloob_model_get_facts(m, f);
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
        cloob_tokenizer_close(b->tok);
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
 * CLOOB_ERR_MEMORY the next input tries again. */
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
    cloob_status status = cloob_model_open(b->ctx, b->path, &b->o.model, &m);
    if (status == CLOOB_OK && !same_shape(b, m)) {
        status = ctx_fail(b->ctx, CLOOB_ERR_BUSY, "%s was replaced by another architecture; reload it", b->path);
        cloob_model_close(m), m = NULL;
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
    cloob_model_close(m);
    pthread_mutex_lock(&b->lock);
}

/* ---- a batch ------------------------------------------------------------------------------------- */

batch_item *batch_unlink(batcher *b, item_test *wanted, const void *what, int64_t most, int64_t *n)
{
    batch_item *taken = NULL, **end = &taken, **link = &b->head, *last = NULL;
    *n = 0;
    while (*link) {
        batch_item *it = *link;
        if (*n < most && wanted(it, what)) {
            *link = it->next;
            it->next = NULL;
            *end = it, end = &it->next;
            ++*n;
        } else {
            last = it;
            link = &it->next;
        }
    }
    b->tail = last;
    b->stats.queued -= *n;
    return taken;
}

/* Whether two items may be in one batch. */
static bool can_share_batch(const batch_item *a, const void *other)
{
    const batch_item *b = other;
    if (a->all_tokens || b->all_tokens) return a == b;
    return a->text == b->text && a->what == b->what && a->length == b->length;
}

static bool batch_is_full(const batcher *b)
{
    int64_t n = 0;
    for (const batch_item *it = b->head; it && n < b->o.max_batch; it = it->next) n += can_share_batch(it, b->head);
    return n == b->o.max_batch;
}

static cloob_status encode(batcher *b, const batch_item *first, int64_t n)
{
    bool text = first->text;
    if (first->all_tokens) return encoder_text_tokens(b->ctx, b->m->enc, first->tokens, first->out);
    size_t D = (size_t)b->facts.embed, S = (size_t)b->facts.image_size, at = 0;
    size_t bytes = text ? (size_t)b->facts.context * sizeof(int32_t) : S * S * 3;
    uint8_t *in = malloc((size_t)n * bytes);
    float *rows = malloc((size_t)n * D * sizeof *rows);
    cloob_status status = in && rows ? CLOOB_OK : ctx_no_memory(b->ctx, (size_t)n * bytes, "a batch");
    for (const batch_item *it = first; it && status == CLOOB_OK; it = it->next, at++)
        memcpy(in + at * bytes, text ? (void *)it->tokens : it->rgb, bytes);
    if (status == CLOOB_OK)
        status = text ? encoder_texts(b->ctx, b->m->enc, (const void *)in, n, first->what, rows)
                      : encoder_images(b->ctx, b->m->enc, in, n, first->what, rows);
    at = 0;
    for (const batch_item *it = first; it && status == CLOOB_OK; it = it->next, at++)
        memcpy(it->out, rows + at * D, D * sizeof *rows);
    free(in), free(rows);
    return status;
}

static void count_batch(batcher *b, bool text, int64_t n, double seconds)
{
    int bucket = 0;
    while (bucket + 1 < BATCH_BUCKETS && (INT64_C(1) << bucket) < n) bucket++;
    b->stats.batch_size[text][bucket]++;
    b->stats.batches[text]++;
    b->stats.rows[text] += n;
    latency_add(&b->stats.encode[text], seconds);
}

/* With lock held: ends an item; the first failure of a call is its result. */
static void item_end(batcher *b, batch_item *it, cloob_status status, const char *error)
{
    batch_call *call = it->call;
    b->stats.failed += status != CLOOB_OK;
    if (status != CLOOB_OK && call->status == CLOOB_OK) {
        call->status = status;
        snprintf(call->error, sizeof call->error, "%s", error);
    }
    if (--call->left == 0) pthread_cond_signal(&call->ended);
}

/* With lock held; released while the model works. */
static void run_batch(batcher *b)
{
    int64_t n;
    cloob_status status = b->m ? CLOOB_OK : reload_model(b);
    batch_item *first = batch_unlink(b, can_share_batch, b->head, b->o.max_batch, &n);
    double begin = clock_seconds();
    if (!n) return; /* all callers gave up while the weights were loading */
    bool text = first->text;
    b->stats.running = n;
    pthread_mutex_unlock(&b->lock);
    if (status == CLOOB_OK) status = encode(b, first, n);
    double end = clock_seconds();
    pthread_mutex_lock(&b->lock);
    count_batch(b, text, n, end - begin);
    for (batch_item *it = first, *next; it; it = next) {
        next = it->next; /* the encoder thread does not use an item after it has ended */
        latency_add(&b->stats.wait[text], begin - it->queued_at);
        item_end(b, it, status, cloob_error(b->ctx));
    }
    b->stats.running = 0;
}

/* ---- the thread ---------------------------------------------------------------------------------- */

/* A batch that is not full waits up to max_wait_us, but only while a thread prepares an input. */
static void wait_for_more_inputs(batcher *b)
{
    double until = b->head->queued_at + 1e-6 * (double)b->o.max_wait_us;
    while (b->head && !b->stop && b->preparing > 0 && !batch_is_full(b) && clock_seconds() < until)
        clock_cond_wait(&b->work, &b->lock, until);
}

/* Opens the model, or replaces it: everything queued is encoded with the old one, while new inputs wait outside. */
static void replace_model(batcher *b)
{
    model *fresh = NULL;
    b->reload = false;
    pthread_mutex_unlock(&b->lock);
    cloob_status status = cloob_model_open(b->ctx, b->path, &b->o.model, &fresh);
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
        cloob_model_close(fresh);
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
    else clock_cond_wait(&b->work, &b->lock, since + limit);
}

static void no_work(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)arg, (void)begin, (void)end, (void)thread;
}

/* The encoder thread: opens the model, reports through reload_status, then encodes until `stop`. */
static void *encoder_main(void *arg)
{
    batcher *b = arg;
    /* Starts this thread's pool now, while memory is available: OpenMP ends the process when a thread cannot be
     * started. */
    if (b->ctx->threads > 1) pool_for(b->ctx, b->ctx->threads, 1, no_work, NULL);
    double used = clock_seconds();
    pthread_mutex_lock(&b->lock);
    replace_model(b);
    b->stop = !b->m;
    while (!b->stop) {
        if (b->reload) replace_model(b);
        else if (!b->head) idle(b, used);
        else {
            wait_for_more_inputs(b);
            if (b->head) run_batch(b);
            used = clock_seconds();
        }
    }
    pthread_mutex_unlock(&b->lock);
    cloob_model_close(b->m);
    return NULL;
}

/* ---- life cycle ---------------------------------------------------------------------------------- */

void batcher_options_init(batcher_options *o)
{
    *o = (batcher_options){ .max_batch = 32, .max_wait_us = 2000, .max_queue = 4096, .max_pixels = IMAGE_MAX_PIXELS };
    cloob_model_options_init(&o->model);
}

static cloob_status check_options(cloob_ctx *ctx, const batcher_options *o)
{
    precision p;
    CLOOB_TRY(precision_find(ctx, o->model.precision, false, &p));
    if (o->max_batch < 1 || o->max_batch > 65536)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`max_batch` %lld: must be from 1 to 65536", (long long)o->max_batch);
    if (o->max_queue < 1 || o->max_wait_us < 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`max_queue` %lld and `max_wait_us` %lld: must be at least 1 and 0",
                        (long long)o->max_queue, (long long)o->max_wait_us);
    return CLOOB_OK;
}

/* NULL stays NULL. */
static bool copy_text(batcher *b, const char **text) { return !*text || (*text = arena_string(&b->strings, *text)); }

static void init_locks(batcher *b)
{
    pthread_rwlockattr_t writer_first;
    clock_cond_init(&b->work), clock_cond_init(&b->scratch_free), clock_cond_init(&b->reloaded);
    pthread_mutex_init(&b->lock, NULL);
    pthread_rwlockattr_init(&writer_first);
    pthread_rwlockattr_setkind_np(&writer_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&b->model_lock, &writer_first);
    pthread_rwlockattr_destroy(&writer_first);
}

static void release(batcher *b)
{
    for (int i = 0; b->scratch && i < b->scratch_count; i++) view_scratch_destroy(b->scratch[i]);
    free(b->scratch);
    cloob_tokenizer_close(b->tok);
    arena_release(&b->strings);
    cloob_ctx_destroy(b->ctx);
    pthread_cond_destroy(&b->work), pthread_cond_destroy(&b->scratch_free), pthread_cond_destroy(&b->reloaded);
    pthread_mutex_destroy(&b->lock);
    pthread_rwlock_destroy(&b->model_lock);
    free(b);
}

static cloob_status fill(cloob_ctx *ctx, batcher *b, const char *path, const batcher_options *o)
{
    cloob_ctx_options c = { .size = sizeof c,
                            .threads = ctx->threads,
                            .log = ctx->log,
                            .log_user = ctx->log_user,
                            .log_level = ctx->log_level,
                            .copy_files = true };
    cloob_model_options *m = &b->o.model;
    b->o = *o, b->path = path;
    m->size = sizeof *m, m->batch = o->max_batch, m->max_pixels = o->max_pixels;
    if (b->o.decoders < 1) b->o.decoders = ctx->threads;
    b->ctx = cloob_ctx_create(&c);
    if (b->ctx) b->ctx->kernels = ctx->kernels;
    b->scratch = calloc((size_t)b->o.decoders, sizeof *b->scratch);
    bool ok = b->ctx && b->scratch && copy_text(b, &b->path) && copy_text(b, &m->device) &&
              copy_text(b, &m->precision) && copy_text(b, &m->vocab) && copy_text(b, &m->config);
    if (!ok) return ctx_no_memory(ctx, sizeof *b, "a batching encoder");
    for (; b->scratch_count < b->o.decoders; b->scratch_count++)
        CLOOB_TRY(view_scratch_create(ctx, &b->scratch[b->scratch_count]));
    return CLOOB_OK;
}

/* Waits until the encoder thread has opened the model; returns its status and error text. */
static cloob_status await_model(cloob_ctx *ctx, batcher *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->reloading) pthread_cond_wait(&b->reloaded, &b->lock);
    cloob_status status = b->reload_status;
    if (status != CLOOB_OK) ctx_fail(ctx, status, "%s", b->reload_error);
    pthread_mutex_unlock(&b->lock);
    return status;
}

cloob_status batcher_create(cloob_ctx *ctx, const char *path, const batcher_options *o, batcher **out)
{
    *out = NULL;
    batcher_options defaults;
    batcher_options_init(&defaults);
    if (!o) o = &defaults;
    CLOOB_TRY(check_options(ctx, o));
    batcher *b = calloc(1, sizeof *b);
    if (!b) return ctx_no_memory(ctx, sizeof *b, "a batching encoder");
    init_locks(b);
    b->reloading = true;
    cloob_status status = fill(ctx, b, path, o);
    if (status == CLOOB_OK && pthread_create(&b->thread, NULL, encoder_main, b) != 0)
        status = ctx_fail(ctx, CLOOB_ERR_MEMORY, "the encoder's thread cannot be started");
    else if (status == CLOOB_OK && (status = await_model(ctx, b)) != CLOOB_OK) pthread_join(b->thread, NULL);
    if (status == CLOOB_OK) *out = b;
    else release(b);
    return status;
}

void batcher_destroy(batcher *b)
{
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    release(b);
}

cloob_status batcher_reload(cloob_ctx *ctx, batcher *b)
{
    pthread_mutex_lock(&b->lock);
    b->reload = b->reloading = true;
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    return await_model(ctx, b);
}

void batcher_get_facts(batcher *b, cloob_model_facts *out)
{
    if (!b || !out) return;
    pthread_rwlock_rdlock(&b->model_lock);
    *out = b->facts;
    pthread_rwlock_unlock(&b->model_lock);
}

void batcher_get_digest(batcher *b, char out[DIGEST_TEXT])
{
    pthread_rwlock_rdlock(&b->model_lock);
    memcpy(out, b->digest, sizeof b->digest);
    pthread_rwlock_unlock(&b->model_lock);
}
