/* A batching encoder from the side of those who submit: life cycle, preparing inputs, waiting for rows. */
#include "core/needs.h"
#include "infer/batcher.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/limits.h"
#include "model/tower.h"
#include "tensor/precision.h"

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

static bool copy_text(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

static void init_locks(batcher *b)
{
    pthread_condattr_t clock;
    pthread_rwlockattr_t writer_first;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&b->work, &clock);
    pthread_cond_init(&b->scratch_free, &clock);
    pthread_cond_init(&b->reloaded, &clock);
    pthread_condattr_destroy(&clock);
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
    tokenizer_close(b->tok);
    arena_release(&b->strings);
    free(b->path), free(b->device), free(b->precision), free(b->vocab), free(b->config);
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
    const cloob_model_options *m = &o->model;
    b->o = *o;
    if (b->o.decoders < 1) b->o.decoders = ctx->threads;
    b->ctx = cloob_ctx_create(&c);
    if (b->ctx) b->ctx->kernels = ctx->kernels;
    b->scratch = calloc((size_t)b->o.decoders, sizeof *b->scratch);
    b->batch = calloc((size_t)o->max_batch, sizeof *b->batch);
    bool ok = b->ctx && b->scratch && b->batch && copy_text(&b->path, path) && copy_text(&b->device, m->device) &&
              copy_text(&b->precision, m->precision) && copy_text(&b->vocab, m->vocab) &&
              copy_text(&b->config, m->config);
    if (!ok) return ctx_no_memory(ctx, sizeof *b, "a batching encoder");
    b->o.model.device = b->device, b->o.model.precision = b->precision;
    b->o.model.vocab = b->vocab, b->o.model.config = b->config;
    b->o.model.batch = o->max_batch, b->o.model.max_pixels = o->max_pixels;
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
    if (status == CLOOB_OK && pthread_create(&b->thread, NULL, batcher_main, b) != 0)
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
    int32_t start = b->tok ? tokenizer_start_id(b->tok) : (int32_t)vocab - 2;
    int32_t end = b->tok ? tokenizer_end_id(b->tok) : (int32_t)vocab - 1;
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
        CLOOB_TRY(tokenizer_encode(ctx, b->tok, in->text, strlen(in->text), &ids, &count));
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
    if (rows) CLOOB_TRY(image_size(ctx, in->data, in->bytes, "the image", &rows->image_w, &rows->image_h));
    view_scratch *s = take_scratch(b);
    cloob_status status = view_eval_bytes(ctx, s, in->data, in->bytes, "the image", &b->limits, &b->view, it->rgb);
    give_scratch(b, s);
    return status;
}

static bool is_text(const cloob_batch_input *in)
{
    return in->kind == CLOOB_BATCH_TEXT || in->kind == CLOOB_BATCH_TOKENS;
}

static cloob_status prepare(cloob_ctx *ctx, batcher *b, const cloob_batch_input *in, const cloob_batch_options *o,
                            cloob_batch_rows *rows, batch_item **out)
{
    batch_item *it = calloc(1, sizeof *it);
    if (!it) return ctx_no_memory(ctx, sizeof *it, "an input");
    *out = it;
    it->what = o->what;
    CLOOB_TRY(model_config_need(ctx, &b->shape, is_text(in)));
    double begin = clock_seconds();
    cloob_status status = is_text(in) ? prepare_text(ctx, b, in, o, it) : prepare_image(ctx, b, in, it, rows);
    double took = clock_seconds() - begin;
    if (rows && it->text && status == CLOOB_OK)
        rows->tokens += tower_text_length(&b->shape, it->tokens, b->facts.context);
    if (rows) rows->prepare_s += took;
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
static cloob_status enqueue(cloob_ctx *ctx, batcher *b, batch_item *const *item, int64_t n)
{
    cloob_status status = CLOOB_OK;
    double now = clock_seconds();
    pthread_mutex_lock(&b->lock);
    if (b->stop) status = ctx_fail(ctx, CLOOB_ERR_STOPPED, "the encoder is ending");
    else if (b->stats.error[0]) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s", b->stats.error);
    else if (b->stats.queued + n > b->o.max_queue) {
        b->stats.refused += n;
        status = ctx_fail(ctx, CLOOB_ERR_BUSY, "%lld inputs are waiting already; try again later",
                          (long long)b->stats.queued);
    }
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) {
        item[i]->queued_at = now;
        if (b->tail) b->tail->next = item[i];
        else b->head = item[i];
        b->tail = item[i];
        b->stats.queued++;
        *(item[i]->text ? &b->stats.texts : &b->stats.images) += 1;
    }
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

enum { IMAGES_AT_ONCE = 16, TEXTS_AT_ONCE = 256 }; /* of one call in the queue: bounds its memory */

/* With lock held: takes the caller's items that are still queued out again. */
static void give_up(batcher *b, const batch_call *call)
{
    batch_item **link = &b->head, *last = NULL;
    while (*link) {
        batch_item *it = *link;
        if (it->call == call) {
            *link = it->next;
            it->state = BATCH_DONE, it->status = CLOOB_ERR_BUSY;
            snprintf(it->error, sizeof it->error, "no answer in time; try again later");
            it->call->left--;
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
    struct timespec t = { (time_t)floor(until), (long)((until - floor(until)) * 1e9) };
    pthread_mutex_lock(&b->lock);
    while (call->left > 0) {
        if (until <= 0) pthread_cond_wait(&call->ended, &b->lock);
        else if (pthread_cond_timedwait(&call->ended, &b->lock, &t) != 0 && call->left > 0)
            give_up(b, call), until = 0; /* running inputs are awaited */
    }
    pthread_mutex_unlock(&b->lock);
}

static cloob_status judge(cloob_ctx *ctx, batch_item *const *item, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (item[i]->status != CLOOB_OK) return ctx_fail(ctx, item[i]->status, "%s", item[i]->error);
    return CLOOB_OK;
}

/* What is done for some of the inputs of one call. */
typedef struct piece {
    const cloob_batch_input *in;
    int64_t first, n, of;
    bool all_tokens; /* of one text */
    batch_item **item;
    batch_call call;
} piece;

static cloob_status prepare_piece(cloob_ctx *ctx, batcher *b, piece *p, const cloob_batch_options *o,
                                  cloob_batch_rows *rows)
{
    announce(b, 1);
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < p->n && status == CLOOB_OK; i++) {
        status = prepare(ctx, b, p->in + i, o, rows, &p->item[i]);
        if (status != CLOOB_OK && p->of > 1) ctx_wrap(ctx, status, "input %lld", (long long)(p->first + i));
        if (status != CLOOB_OK) break;
        p->item[i]->call = &p->call;
        p->item[i]->all_tokens = p->all_tokens;
        p->item[i]->out = rows->data + (p->first + i) * rows->width;
    }
    p->call.left = p->n;
    if (status == CLOOB_OK) status = enqueue(ctx, b, p->item, p->n);
    announce(b, -1);
    return status;
}

static cloob_status encode_piece(cloob_ctx *ctx, batcher *b, piece *p, const cloob_batch_options *o, double until,
                                 int64_t *generation, cloob_batch_rows *rows)
{
    pthread_condattr_t clock;
    cloob_status status = CLOOB_OK;
    memset(p->item, 0, (size_t)p->n * sizeof(batch_item *));
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->call.ended, &clock);
    pthread_condattr_destroy(&clock);
    pthread_rwlock_rdlock(&b->model_lock);
    if (*generation < 0) {
        *generation = b->generation;
        rows->width = b->facts.embed;
        if (p->all_tokens) rows->n = b->facts.context;
        rows->data = malloc((size_t)(rows->n * rows->width) * sizeof *rows->data);
        if (!rows->data)
            status = ctx_no_memory(ctx, (size_t)(rows->n * rows->width) * sizeof *rows->data, "embeddings");
    } else if (*generation != b->generation)
        status = ctx_fail(ctx, CLOOB_ERR_BUSY, "the model was replaced meanwhile; try again");
    if (status == CLOOB_OK) status = prepare_piece(ctx, b, p, o, rows);
    pthread_rwlock_unlock(&b->model_lock);
    double begin = clock_seconds();
    if (status == CLOOB_OK) {
        await(b, &p->call, until);
        status = judge(ctx, p->item, p->n);
    }
    rows->wait_s += clock_seconds() - begin;
    for (int64_t i = 0; i < p->n; i++) {
        if (p->item[i]) p->item[i]->call = &p->call; /* its row belongs to the caller */
        batch_item_free(p->item[i]);
    }
    pthread_cond_destroy(&p->call.ended);
    return status;
}

/* How many inputs from `first` on go together: texts are small, images are not. */
static int64_t piece_of(const cloob_batch_input *in, int64_t left)
{
    int64_t n = 0, images = 0;
    for (; n < left && n < TEXTS_AT_ONCE; n++) {
        images += !is_text(in + n);
        if (images > IMAGES_AT_ONCE) break;
    }
    return n;
}

cloob_status cloob_batcher_encode(cloob_ctx *ctx, cloob_batcher *b, const cloob_batch_input *in, int64_t n,
                                  const cloob_batch_options *o, cloob_batch_rows *out)
{
    API_NEEDS(ctx, b && in && out);
    static const cloob_batch_options defaults = { .what = CLOOB_UNIT };
    batch_item *item[TEXTS_AT_ONCE];
    int64_t generation = -1;
    cloob_status status = CLOOB_OK;
    if (!o) o = &defaults;
    *out = (cloob_batch_rows){ .n = n };
    if (n < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "there is nothing to embed");
    if (o->what == CLOOB_FEATURES) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "features are not batched");
    double until = o->timeout_ms > 0 ? clock_seconds() + 1e-3 * (double)o->timeout_ms : 0;
    for (int64_t i = 0; i < n && status == CLOOB_OK;) {
        piece p = { .in = in + i, .first = i, .n = piece_of(in + i, n - i), .of = n, .item = item };
        status = encode_piece(ctx, b, &p, o, until, &generation, out);
        i += p.n;
    }
    if (status != CLOOB_OK) cloob_batch_rows_release(out);
    return status;
}

cloob_status batcher_encode_tokens(cloob_ctx *ctx, batcher *b, const cloob_batch_input *in,
                                   const cloob_batch_options *o, cloob_batch_rows *out)
{
    batch_item *item;
    piece p = { .in = in, .n = 1, .of = 1, .all_tokens = true, .item = &item };
    int64_t generation = -1;
    double until = o->timeout_ms > 0 ? clock_seconds() + 1e-3 * (double)o->timeout_ms : 0;
    *out = (cloob_batch_rows){ 0 };
    if (!is_text(in)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "only texts have tokens");
    cloob_status status = encode_piece(ctx, b, &p, o, until, &generation, out);
    out->n = out->tokens;
    if (status != CLOOB_OK) cloob_batch_rows_release(out);
    return status;
}

cloob_status cloob_batcher_submit(cloob_ctx *ctx, cloob_batcher *b, const cloob_batch_input *in,
                                  const cloob_batch_options *o, cloob_batch_done_fn *done, void *user)
{
    API_NEEDS(ctx, b && in && done);
    static const cloob_batch_options defaults = { .what = CLOOB_UNIT };
    batch_item *it = NULL;
    announce(b, 1);
    pthread_rwlock_rdlock(&b->model_lock);
    cloob_status status = prepare(ctx, b, in, o ? o : &defaults, NULL, &it);
    if (status == CLOOB_OK) {
        it->done = done, it->user = user;
        it->out = malloc((size_t)b->facts.embed * sizeof *it->out);
        if (!it->out) status = ctx_no_memory(ctx, (size_t)b->facts.embed * sizeof *it->out, "a row");
    }
    if (status == CLOOB_OK) status = enqueue(ctx, b, &it, 1);
    pthread_rwlock_unlock(&b->model_lock);
    announce(b, -1);
    if (status != CLOOB_OK) batch_item_free(it);
    return status;
}

void cloob_batch_rows_release(cloob_batch_rows *r)
{
    if (!r) return;
    free(r->data);
    *r = (cloob_batch_rows){ 0 };
}

/* ---- statistics -------------------------------------------------------------------------------------- */

static const double bounds[CLOOB_LATENCY_BUCKETS] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                      0.25,   0.5,   1,      2.5,   5,    10,    30,   INFINITY };

double latency_bound(int i) { return i >= 0 && i < CLOOB_LATENCY_BUCKETS ? bounds[i] : 0; }

void latency_add(cloob_latency *h, double seconds)
{
    if (!h) return;
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
