/* The batching encoder: callers prepare inputs and queue them, one thread encodes them in batches.
 *
 * Callers hold `model_lock` for reading while they prepare inputs and queue them; the encoder thread holds it for
 * writing while it replaces the model, so queued inputs always belong to the model that encodes them. `lock` guards the
 * queue and the counters. Only the encoder thread uses the model. */
#include "infer/batcher.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/needs.h"
#include "core/pool.h"
#include "model/tower.h"
#include "tensor/precision.h"

enum { IMAGES_AT_ONCE = 16, TEXTS_AT_ONCE = 256 }; /* inputs of one call in the queue: bounds its memory */

typedef struct batch_call { /* a caller that waits for several items */
    pthread_cond_t ended;
    int64_t left;        /* items that have not ended */
    cloob_status status; /* the first failure */
    char error[256];
} batch_call;

typedef struct batch_item batch_item;
struct batch_item {
    batch_item *next;
    batch_call *call;
    cloob_output what;
    bool text;
    bool all_tokens; /* out: (context, D), a row for every token; not batched with others */
    int length;      /* class of a text's length: texts of one class share a batch */
    int32_t *tokens; /* (context), or NULL */
    uint8_t *rgb;    /* (S, S, 3), or NULL */
    float *out;      /* (D), owned by the caller */
    double queued_at;
};

struct cloob_batcher {
    cloob_batcher_options o; /* its strings are in `strings` */
    const char *path;

    pthread_rwlock_t model_lock;
    tokenizer *tok; /* NULL: none */
    transform_options view;
    image_limits limits;
    model_config shape;
    cloob_model_facts facts;
    char digest[DIGEST_TEXT];
    arena strings; /* of options and facts; grows by a few words with every reload */
    int64_t generation;
    bool packs_texts; /* texts of all lengths share a batch */

    pthread_mutex_t lock;
    pthread_cond_t work, scratch_free, reloaded;
    batch_item *head, *tail;
    int64_t preparing;
    bool stop, reload, reloading;
    cloob_status reload_status;
    char reload_error[512];
    cloob_batcher_stats stats;
    view_scratch **scratch; /* those that are free */
    int scratch_count;

    pthread_t thread;
    cloob_ctx *ctx;     /* the encoder's */
    model *m;           /* NULL while unloaded */
    batch_item **batch; /* (max_batch) the items of a batch */
    void *stage;        /* inputs of a batch, contiguous */
    float *rows;        /* results of a batch */
    size_t stage_bytes, rows_bytes;
};

/* ---- statistics -------------------------------------------------------------------------------------- */

static const double bounds[CLOOB_LATENCY_BUCKETS] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                      0.25,   0.5,   1,      2.5,   5,    10,    30,   INFINITY };

double latency_bound(int i) { return i >= 0 && i < CLOOB_LATENCY_BUCKETS ? bounds[i] : 0; }

void latency_add(cloob_latency *h, double seconds)
{
    int i = 0;
    while (i + 1 < CLOOB_LATENCY_BUCKETS && seconds > bounds[i]) i++;
    h->count[i]++;
    h->total++;
    h->sum_s += seconds;
}

void cloob_batcher_get_stats(cloob_batcher *b, cloob_batcher_stats *out)
{
    if (!out) return;
    *out = (cloob_batcher_stats){ 0 };
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

/* A batch that is not full waits up to max_wait_us, but only while a thread prepares an input. */
static void wait_for_more_inputs(batcher *b)
{
    double until = b->head->queued_at + 1e-6 * (double)b->o.max_wait_us;
    while (b->head && !b->stop && b->preparing > 0 && count_like(b, b->head) < b->o.max_batch &&
           clock_seconds() < until)
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

static void nothing(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)arg, (void)begin, (void)end, (void)thread;
}

/* The encoder thread: opens the model, reports through reload_status, then encodes until `stop`. */
static void *encoder_main(void *arg)
{
    batcher *b = arg;
    /* This thread's helpers start now: OpenMP ends the process when one cannot be started, and by the first batch other
     * threads may have taken what a memory limit leaves. */
    if (b->ctx->threads > 1) pool_for(b->ctx, b->ctx->threads, 1, nothing, NULL);
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

void cloob_batcher_options_init_size(cloob_batcher_options *o, size_t size)
{
    cloob_batcher_options d = {
        .max_batch = 32, .max_wait_us = 2000, .max_queue = 4096, .max_pixels = IMAGE_MAX_PIXELS
    };
    cloob_model_options_init(&d.model);
    options_write(o, size, &d, sizeof d);
}

static cloob_status check_options(cloob_ctx *ctx, const cloob_batcher_options *o)
{
    precision p;
    CLOOB_TRY(precision_find(ctx, o->model.precision, false, &p));
    if (o->max_batch < 1 || o->max_batch > 65536)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a batch of %lld: 1 to 65536 rows", (long long)o->max_batch);
    if (o->max_queue < 1 || o->max_wait_us < 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a queue of %lld inputs, a wait of %lld us: 1 and 0 at least",
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
    free(b->batch), free(b->stage), free(b->rows);
    cloob_ctx_destroy(b->ctx);
    pthread_cond_destroy(&b->work), pthread_cond_destroy(&b->scratch_free), pthread_cond_destroy(&b->reloaded);
    pthread_mutex_destroy(&b->lock);
    pthread_rwlock_destroy(&b->model_lock);
    free(b);
}

static cloob_status fill(cloob_ctx *ctx, batcher *b, const char *path, const cloob_batcher_options *o)
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
    b->batch = calloc((size_t)o->max_batch, sizeof *b->batch);
    bool ok = b->ctx && b->scratch && b->batch && copy_text(b, &b->path) && copy_text(b, &m->device) &&
              copy_text(b, &m->precision) && copy_text(b, &m->vocab) && copy_text(b, &m->config);
    if (!ok) return ctx_no_memory(ctx, sizeof *b, "a batching encoder");
    for (; b->scratch_count < b->o.decoders; b->scratch_count++)
        CLOOB_TRY(view_scratch_create(ctx, &b->scratch[b->scratch_count]));
    return CLOOB_OK;
}

/* Waits until the encoder's thread has opened the model, and passes on what became of it. */
static cloob_status await_model(cloob_ctx *ctx, batcher *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->reloading) pthread_cond_wait(&b->reloaded, &b->lock);
    cloob_status status = b->reload_status;
    if (status != CLOOB_OK) ctx_fail(ctx, status, "%s", b->reload_error);
    pthread_mutex_unlock(&b->lock);
    return status;
}

cloob_status cloob_batcher_create(cloob_ctx *ctx, const char *path, const cloob_batcher_options *o, cloob_batcher **out)
{
    API_NEEDS(ctx, path && out);
    *out = NULL;
    OPTIONS_READ(ctx, cloob_batcher_options, o);
    OPTIONS_ROOM(ctx, cloob_batcher_options, o, model);
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

void cloob_batcher_destroy(cloob_batcher *b)
{
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    release(b);
}

cloob_status cloob_batcher_reload(cloob_ctx *ctx, cloob_batcher *b)
{
    API_NEEDS(ctx, b);
    pthread_mutex_lock(&b->lock);
    b->reload = b->reloading = true;
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    return await_model(ctx, b);
}

void cloob_batcher_get_facts(cloob_batcher *b, cloob_model_facts *out)
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

static cloob_status need_tokenizer(cloob_ctx *ctx, const batcher *b)
{
    CLOOB_TRY(model_config_need(ctx, &b->shape, true));
    if (b->tok) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "%s holds no tokenizer, so it embeds only images; give its merges as a vocabulary", b->path);
}

cloob_status batcher_use_tokenizer(cloob_ctx *ctx, batcher *b,
                                   cloob_status (*use)(cloob_ctx *ctx, const tokenizer *t, void *user), void *user)
{
    pthread_rwlock_rdlock(&b->model_lock);
    cloob_status status = need_tokenizer(ctx, b);
    if (status == CLOOB_OK) status = use(ctx, b->tok, user);
    pthread_rwlock_unlock(&b->model_lock);
    return status;
}

/* ---- preparing an input: model_lock is held for reading ----------------------------------------------- */

/* start, ids, end, zeros; ids that begin with the start are taken as they are. */
static cloob_status row_of_ids(cloob_ctx *ctx, const batcher *b, const cloob_batch_input *in, int32_t *row)
{
    int64_t T = b->facts.context, vocab = b->facts.vocab, at = 0;
    int32_t start = b->tok ? cloob_tokenizer_start_id(b->tok) : (int32_t)vocab - 2;
    int32_t end = b->tok ? cloob_tokenizer_end_id(b->tok) : (int32_t)vocab - 1;
    if (in->count < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a list of tokens is empty");
    if (start >= 0 && in->ids[0] != start) row[at++] = start;
    for (int64_t i = 0; i < in->count; i++) {
        if (in->ids[i] < 0 || in->ids[i] >= vocab)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "token %d is outside the vocabulary of %lld", in->ids[i],
                            (long long)vocab);
        if (at < T) row[at++] = in->ids[i];
    }
    if (end >= 0 && row[at - 1] != end) row[at < T ? at : T - 1] = end;
    return CLOOB_OK;
}

static cloob_status refuse_long(cloob_ctx *ctx, const batcher *b, const cloob_batch_input *in)
{
    int64_t count = in->count, T = b->facts.context;
    int32_t *ids = NULL;
    if (in->kind == CLOOB_BATCH_TEXT)
        CLOOB_TRY(cloob_tokenizer_encode(ctx, b->tok, in->text, strlen(in->text), &ids, &count));
    free(ids);
    if (count + 2 <= T) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "the text has %lld tokens, the model takes %lld; shorten it or truncate it", (long long)count + 2,
                    (long long)T);
}

static cloob_status prepare_text(cloob_ctx *ctx, const batcher *b, const cloob_batch_input *in,
                                 const cloob_batch_options *o, batch_item *it)
{
    int64_t T = b->facts.context;
    it->text = true;
    it->tokens = calloc((size_t)T + 1, sizeof *it->tokens);
    if (!it->tokens) return ctx_no_memory(ctx, (size_t)T * sizeof *it->tokens, "tokens");
    if (in->kind == CLOOB_BATCH_TEXT) CLOOB_TRY(need_tokenizer(ctx, b));
    if (o->refuse_long) CLOOB_TRY(refuse_long(ctx, b, in));
    if (in->kind == CLOOB_BATCH_TOKENS) CLOOB_TRY(row_of_ids(ctx, b, in, it->tokens));
    else CLOOB_TRY(tokenizer_encode_row(ctx, b->tok, in->text, strlen(in->text), T, it->tokens));
    bool classes = strncmp(b->facts.device, "cpu", 3) == 0 && !b->packs_texts;
    it->length = classes ? encoder_text_steps(&b->shape, it->tokens) : 0;
    return CLOOB_OK;
}

static view_scratch *take_scratch(batcher *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->scratch_count == 0) pthread_cond_wait(&b->scratch_free, &b->lock);
    view_scratch *s = b->scratch[--b->scratch_count];
    pthread_mutex_unlock(&b->lock);
    return s;
}

static void give_scratch(batcher *b, view_scratch *s)
{
    pthread_mutex_lock(&b->lock);
    b->scratch[b->scratch_count++] = s;
    pthread_cond_signal(&b->scratch_free);
    pthread_mutex_unlock(&b->lock);
}

static cloob_status prepare_image(cloob_ctx *ctx, batcher *b, const cloob_batch_input *in, batch_item *it,
                                  cloob_batch_rows *rows)
{
    size_t bytes = (size_t)(b->view.size * b->view.size * 3);
    it->rgb = malloc(bytes);
    if (!it->rgb) return ctx_no_memory(ctx, bytes, "an image");
    if (in->kind == CLOOB_BATCH_IMAGE_RGB) {
        if (in->bytes != bytes)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%zu bytes of pixels: the model takes %lld x %lld x 3", in->bytes,
                            (long long)b->view.size, (long long)b->view.size);
        memcpy(it->rgb, in->data, bytes);
        return CLOOB_OK;
    }
    CLOOB_TRY(image_size(ctx, in->data, in->bytes, "the image", &rows->image_w, &rows->image_h));
    view_scratch *s = take_scratch(b);
    cloob_status status = view_of_bytes(ctx, s, in->data, in->bytes, "the image", &b->limits, &b->view, NULL, it->rgb);
    give_scratch(b, s);
    return status;
}

static bool is_text(const cloob_batch_input *in)
{
    return in->kind == CLOOB_BATCH_TEXT || in->kind == CLOOB_BATCH_TOKENS;
}

static cloob_status prepare(cloob_ctx *ctx, batcher *b, const cloob_batch_input *in, const cloob_batch_options *o,
                            cloob_batch_rows *rows, batch_item *it)
{
    CLOOB_TRY(model_config_need(ctx, &b->shape, is_text(in)));
    double begin = clock_seconds();
    cloob_status status = is_text(in) ? prepare_text(ctx, b, in, o, it) : prepare_image(ctx, b, in, it, rows);
    double took = clock_seconds() - begin;
    if (it->text && status == CLOOB_OK) rows->tokens += tower_text_length(&b->shape, it->tokens, b->facts.context);
    rows->prepare_s += took;
    pthread_mutex_lock(&b->lock);
    latency_add(&b->stats.prepare[is_text(in)], took);
    pthread_mutex_unlock(&b->lock);
    return status;
}

static void announce(batcher *b, int change)
{
    pthread_mutex_lock(&b->lock);
    b->preparing += change;
    if (change < 0) pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
}

/* All of them, or none. */
static cloob_status enqueue(cloob_ctx *ctx, batcher *b, batch_item *item, int64_t n)
{
    cloob_status status = CLOOB_OK;
    double now = clock_seconds();
    pthread_mutex_lock(&b->lock);
    if (b->stats.error[0]) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s", b->stats.error);
    else if (b->stats.queued + n > b->o.max_queue) {
        b->stats.refused += n;
        status = ctx_fail(ctx, CLOOB_ERR_BUSY, "%lld inputs are waiting already; try again later",
                          (long long)b->stats.queued);
    }
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        item[i].queued_at = now;
        if (b->tail) b->tail->next = &item[i];
        else b->head = &item[i];
        b->tail = &item[i];
        b->stats.queued++;
        *(item[i].text ? &b->stats.texts : &b->stats.images) += 1;
    }
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

/* With lock held: takes the caller's items that are still queued out again. */
static void give_up(batcher *b, batch_call *call)
{
    batch_item **link = &b->head, *last = NULL;
    while (*link) {
        batch_item *it = *link;
        if (it->call == call) {
            *link = it->next;
            call->left--, call->status = CLOOB_ERR_BUSY;
            snprintf(call->error, sizeof call->error, "no answer in time; try again later");
            b->stats.queued--, b->stats.refused++;
        } else {
            last = it;
            link = &it->next;
        }
    }
    b->tail = last;
}

static void await(batcher *b, batch_call *call, double until)
{
    pthread_mutex_lock(&b->lock);
    while (call->left > 0) {
        if (until <= 0) pthread_cond_wait(&call->ended, &b->lock);
        else if (!clock_cond_wait(&call->ended, &b->lock, until) && call->left > 0)
            give_up(b, call), until = 0; /* running inputs are awaited */
    }
    pthread_mutex_unlock(&b->lock);
}

/* Some of the inputs of one call. */
typedef struct piece {
    const cloob_batch_input *in;
    int64_t first, n, of;
    bool all_tokens; /* of one text */
    batch_item item[TEXTS_AT_ONCE];
    batch_call call;
} piece;

static cloob_status prepare_piece(cloob_ctx *ctx, batcher *b, piece *p, const cloob_batch_options *o,
                                  cloob_batch_rows *rows)
{
    announce(b, 1);
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < p->n && status == CLOOB_OK; i++) {
        p->item[i] = (batch_item){ .call = &p->call,
                                   .what = o->what,
                                   .all_tokens = p->all_tokens,
                                   .out = rows->data + (p->first + i) * rows->width };
        status = prepare(ctx, b, p->in + i, o, rows, &p->item[i]);
        if (status != CLOOB_OK && p->of > 1) ctx_wrap(ctx, status, "input %lld", (long long)(p->first + i));
    }
    p->call.left = p->n;
    if (status == CLOOB_OK) status = enqueue(ctx, b, p->item, p->n);
    announce(b, -1);
    return status;
}

/* The first piece allocates the rows; the model must stay the same for the others. */
static cloob_status begin_piece(cloob_ctx *ctx, const batcher *b, const piece *p, int64_t *generation,
                                cloob_batch_rows *rows)
{
    if (*generation >= 0 && *generation != b->generation)
        return ctx_fail(ctx, CLOOB_ERR_BUSY, "the model was replaced meanwhile; try again");
    if (*generation >= 0) return CLOOB_OK;
    *generation = b->generation;
    rows->width = b->facts.embed;
    if (p->all_tokens) rows->n = b->facts.context;
    size_t bytes = (size_t)(rows->n * rows->width) * sizeof *rows->data;
    rows->data = malloc(bytes);
    return rows->data ? CLOOB_OK : ctx_no_memory(ctx, bytes, "embeddings");
}

static cloob_status encode_piece(cloob_ctx *ctx, batcher *b, piece *p, const cloob_batch_options *o, double until,
                                 int64_t *generation, cloob_batch_rows *rows)
{
    for (int64_t i = 0; i < p->n; i++) p->item[i] = (batch_item){ 0 };
    p->call = (batch_call){ .status = CLOOB_OK };
    clock_cond_init(&p->call.ended);
    pthread_rwlock_rdlock(&b->model_lock);
    cloob_status status = begin_piece(ctx, b, p, generation, rows);
    if (status == CLOOB_OK) status = prepare_piece(ctx, b, p, o, rows);
    pthread_rwlock_unlock(&b->model_lock);
    double begin = clock_seconds();
    if (status == CLOOB_OK) {
        await(b, &p->call, until);
        status = p->call.status;
        if (status != CLOOB_OK) ctx_fail(ctx, status, "%s", p->call.error);
    }
    rows->wait_s += clock_seconds() - begin;
    for (int64_t i = 0; i < p->n; i++) free(p->item[i].tokens), free(p->item[i].rgb);
    pthread_cond_destroy(&p->call.ended);
    return status;
}

/* Number of inputs of the next piece: texts are small, images are not. */
static int64_t piece_of(const cloob_batch_input *in, int64_t left)
{
    int64_t n = 0, images = 0;
    for (; n < left && n < TEXTS_AT_ONCE; n++) {
        images += !is_text(in + n);
        if (images > IMAGES_AT_ONCE) break;
    }
    return n;
}

static cloob_status encode_all(cloob_ctx *ctx, batcher *b, const cloob_batch_input *in, int64_t n, bool all_tokens,
                               const cloob_batch_options *o, cloob_batch_rows *out)
{
    int64_t generation = -1;
    double until = o->timeout_ms > 0 ? clock_seconds() + 1e-3 * (double)o->timeout_ms : 0;
    piece *p = malloc(sizeof *p);
    cloob_status status = p ? CLOOB_OK : ctx_no_memory(ctx, sizeof *p, "inputs");
    *out = (cloob_batch_rows){ .n = n };
    for (int64_t i = 0; i < n && status == CLOOB_OK; i += p->n) {
        p->in = in + i, p->first = i, p->n = piece_of(in + i, n - i), p->of = n, p->all_tokens = all_tokens;
        status = encode_piece(ctx, b, p, o, until, &generation, out);
    }
    free(p);
    if (status != CLOOB_OK) cloob_batch_rows_release(out);
    return status;
}

cloob_status cloob_batcher_encode(cloob_ctx *ctx, cloob_batcher *b, const cloob_batch_input *in, int64_t n,
                                  const cloob_batch_options *o, cloob_batch_rows *out)
{
    API_NEEDS(ctx, b && in && out);
    static const cloob_batch_options defaults = { .what = CLOOB_UNIT };
    if (!o) o = &defaults;
    *out = (cloob_batch_rows){ 0 };
    if (n < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "there is nothing to embed");
    if (o->what == CLOOB_FEATURES) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "features are not batched");
    return encode_all(ctx, b, in, n, false, o, out);
}

cloob_status batcher_encode_tokens(cloob_ctx *ctx, batcher *b, const cloob_batch_input *in,
                                   const cloob_batch_options *o, cloob_batch_rows *out)
{
    *out = (cloob_batch_rows){ 0 };
    if (!is_text(in)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "only texts have tokens");
    CLOOB_TRY(encode_all(ctx, b, in, 1, true, o, out));
    out->n = out->tokens;
    return CLOOB_OK;
}

void cloob_batch_rows_release(cloob_batch_rows *r)
{
    if (!r) return;
    free(r->data);
    *r = (cloob_batch_rows){ 0 };
}
