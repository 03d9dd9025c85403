/* Calls of the batching encoder: a caller's inputs are prepared on its thread, queued in pieces, and awaited. */
#include "infer/batcher_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "model/tower.h"

enum { IMAGES_AT_ONCE = 16, TEXTS_AT_ONCE = 256 }; /* inputs of one call in the queue: bounds its memory */

static cloob_status need_tokenizer(cloob_ctx *ctx, const batcher *b)
{
    CLOOB_TRY(model_config_need(ctx, &b->shape, true));
    if (b->tok) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "%s holds no tokenizer, so it embeds only images; give its merges as a vocabulary", b->path);
}

cloob_status batcher_acquire_tokenizer(cloob_ctx *ctx, batcher *b, const tokenizer **out)
{
    pthread_rwlock_rdlock(&b->model_lock);
    cloob_status status = need_tokenizer(ctx, b);
    *out = b->tok;
    if (status != CLOOB_OK) batcher_release_tokenizer(b);
    return status;
}

void batcher_release_tokenizer(batcher *b) { pthread_rwlock_unlock(&b->model_lock); }

/* ---- preparing an input: model_lock is held for reading ----------------------------------------------- */

/* start, ids, end, zeros; ids that begin with the start are taken as they are. */
static cloob_status row_of_ids(cloob_ctx *ctx, const batcher *b, const batch_input *in, int32_t *row)
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

static cloob_status refuse_long(cloob_ctx *ctx, const batcher *b, const batch_input *in)
{
    int64_t count = in->count, T = b->facts.context;
    int32_t *ids = NULL;
    if (in->kind == BATCH_TEXT)
        CLOOB_TRY(cloob_tokenizer_encode(ctx, b->tok, in->text, strlen(in->text), &ids, &count));
    free(ids);
    if (count + 2 <= T) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                    "the text has %lld tokens, the limit of the model is %lld; shorten it or truncate it",
                    (long long)count + 2, (long long)T);
}

static cloob_status prepare_text(cloob_ctx *ctx, const batcher *b, const batch_input *in, const batch_options *o,
                                 batch_item *it)
{
    int64_t T = b->facts.context;
    it->text = true;
    it->tokens = calloc((size_t)T + 1, sizeof *it->tokens);
    if (!it->tokens) return ctx_no_memory(ctx, (size_t)T * sizeof *it->tokens, "tokens");
    if (in->kind == BATCH_TEXT) CLOOB_TRY(need_tokenizer(ctx, b));
    if (o->refuse_long) CLOOB_TRY(refuse_long(ctx, b, in));
    if (in->kind == BATCH_TOKENS) CLOOB_TRY(row_of_ids(ctx, b, in, it->tokens));
    else CLOOB_TRY(tokenizer_encode_row(ctx, b->tok, in->text, strlen(in->text), T, it->tokens));
    bool classes = strncmp(b->facts.device, "cpu", 3) == 0 && !b->packs_texts;
    it->length = classes ? encoder_text_steps(&b->shape, it->tokens) : 0;
    return CLOOB_OK;
}

static cloob_status prepare_image(cloob_ctx *ctx, batcher *b, const batch_input *in, batch_item *it, batch_rows *rows)
{
    size_t bytes = (size_t)(b->view.size * b->view.size * 3);
    it->rgb = malloc(bytes);
    if (!it->rgb) return ctx_no_memory(ctx, bytes, "an image");
    if (in->kind == BATCH_IMAGE_RGB) {
        if (in->bytes != bytes)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%zu bytes of pixels: the model needs %lld x %lld x 3", in->bytes,
                            (long long)b->view.size, (long long)b->view.size);
        memcpy(it->rgb, in->data, bytes);
        return CLOOB_OK;
    }
    CLOOB_TRY(image_size(ctx, in->data, in->bytes, "the image", &rows->image_w, &rows->image_h));
    pthread_mutex_lock(&b->lock);
    while (b->scratch_count == 0) pthread_cond_wait(&b->scratch_free, &b->lock);
    view_scratch *s = b->scratch[--b->scratch_count];
    pthread_mutex_unlock(&b->lock);
    cloob_status status = view_of_bytes(ctx, s, in->data, in->bytes, "the image", &b->limits, &b->view, NULL, it->rgb);
    pthread_mutex_lock(&b->lock);
    b->scratch[b->scratch_count++] = s;
    pthread_cond_signal(&b->scratch_free);
    pthread_mutex_unlock(&b->lock);
    return status;
}

static bool is_text(const batch_input *in) { return in->kind == BATCH_TEXT || in->kind == BATCH_TOKENS; }

static cloob_status prepare(cloob_ctx *ctx, batcher *b, const batch_input *in, const batch_options *o, batch_rows *rows,
                            batch_item *it)
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

/* Queues all items or none. */
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

static bool is_of_call(const batch_item *it, const void *call) { return it->call == call; }

/* With lock held: removes the caller's items that are still queued. */
static void give_up(batcher *b, batch_call *call)
{
    int64_t n;
    batch_unlink(b, is_of_call, call, INT64_MAX, &n);
    if (!n) return;
    call->left -= n, call->status = CLOOB_ERR_BUSY;
    snprintf(call->error, sizeof call->error, "no answer in time; try again later");
    b->stats.refused += n;
}

static void wait_for_items(batcher *b, batch_call *call, double until)
{
    pthread_mutex_lock(&b->lock);
    while (call->left > 0) {
        if (until <= 0) pthread_cond_wait(&call->ended, &b->lock);
        else if (!clock_cond_wait(&call->ended, &b->lock, until) && call->left > 0)
            give_up(b, call), until = 0; /* inputs being encoded are waited for */
    }
    pthread_mutex_unlock(&b->lock);
}

/* Some of the inputs of one call. */
typedef struct piece {
    const batch_input *in;
    int64_t first, n, of;
    bool all_tokens;    /* of one text */
    int64_t generation; /* of the model that the first piece was prepared for */
    batch_item item[TEXTS_AT_ONCE];
    batch_call call;
} piece;

/* The first piece allocates the rows; the model must stay the same for the others. */
static cloob_status make_rows(cloob_ctx *ctx, const batcher *b, piece *p, batch_rows *rows)
{
    if (rows->data && p->generation != b->generation)
        return ctx_fail(ctx, CLOOB_ERR_BUSY, "the model was replaced meanwhile; try again");
    if (rows->data) return CLOOB_OK;
    p->generation = b->generation;
    rows->width = b->facts.embed;
    if (p->all_tokens) rows->n = b->facts.context;
    size_t bytes = (size_t)(rows->n * rows->width) * sizeof *rows->data;
    rows->data = malloc(bytes);
    return rows->data ? CLOOB_OK : ctx_no_memory(ctx, bytes, "embeddings");
}

static cloob_status prepare_piece(cloob_ctx *ctx, batcher *b, piece *p, const batch_options *o, batch_rows *rows)
{
    announce(b, 1);
    cloob_status status = make_rows(ctx, b, p, rows);
    for (int64_t i = 0; i < p->n && status == CLOOB_OK; i++) {
        p->item[i] = (batch_item){ .call = &p->call,
                                   .what = o->what,
                                   .all_tokens = p->all_tokens,
                                   .out = rows->data + (p->first + i) * rows->width };
        status = prepare(ctx, b, p->in + i, o, rows, &p->item[i]);
        if (status != CLOOB_OK && p->of > 1) ctx_wrap(ctx, status, "input %lld", (long long)(p->first + i));
    }
    if (status == CLOOB_OK) status = enqueue(ctx, b, p->item, p->n);
    announce(b, -1);
    return status;
}

static cloob_status encode_piece(cloob_ctx *ctx, batcher *b, piece *p, const batch_options *o, double until,
                                 batch_rows *rows)
{
    memset(p->item, 0, (size_t)p->n * sizeof *p->item);
    p->call = (batch_call){ .left = p->n };
    clock_cond_init(&p->call.ended);
    pthread_rwlock_rdlock(&b->model_lock);
    cloob_status status = prepare_piece(ctx, b, p, o, rows);
    pthread_rwlock_unlock(&b->model_lock);
    double begin = clock_seconds();
    if (status == CLOOB_OK) {
        wait_for_items(b, &p->call, until);
        status = p->call.status;
        if (status != CLOOB_OK) ctx_fail(ctx, status, "%s", p->call.error);
    }
    rows->wait_s += clock_seconds() - begin;
    for (int64_t i = 0; i < p->n; i++) free(p->item[i].tokens), free(p->item[i].rgb);
    pthread_cond_destroy(&p->call.ended);
    return status;
}

/* Number of inputs of the next piece: fewer images than texts, because images need more memory. */
static int64_t piece_of(const batch_input *in, int64_t left)
{
    int64_t n = 0, images = 0;
    for (; n < left && n < TEXTS_AT_ONCE; n++) {
        images += !is_text(in + n);
        if (images > IMAGES_AT_ONCE) break;
    }
    return n;
}

static cloob_status encode_all(cloob_ctx *ctx, batcher *b, const batch_input *in, int64_t n, bool all_tokens,
                               const batch_options *o, batch_rows *out)
{
    double until = o->timeout_ms > 0 ? clock_seconds() + 1e-3 * (double)o->timeout_ms : 0;
    piece *p = malloc(sizeof *p);
    cloob_status status = p ? CLOOB_OK : ctx_no_memory(ctx, sizeof *p, "inputs");
    *out = (batch_rows){ .n = n };
    for (int64_t i = 0; i < n && status == CLOOB_OK; i += p->n) {
        p->in = in + i, p->first = i, p->n = piece_of(in + i, n - i), p->of = n, p->all_tokens = all_tokens;
        status = encode_piece(ctx, b, p, o, until, out);
    }
    free(p);
    if (status != CLOOB_OK) batch_rows_release(out);
    return status;
}

cloob_status batcher_encode(cloob_ctx *ctx, batcher *b, const batch_input *in, int64_t n, const batch_options *o,
                            batch_rows *out)
{
    static const batch_options defaults = { .what = CLOOB_UNIT };
    if (!o) o = &defaults;
    *out = (batch_rows){ 0 };
    if (n < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "there is nothing to embed");
    if (o->what == CLOOB_FEATURES) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "features are not batched");
    return encode_all(ctx, b, in, n, false, o, out);
}

cloob_status batcher_encode_tokens(cloob_ctx *ctx, batcher *b, const batch_input *in, const batch_options *o,
                                   batch_rows *out)
{
    *out = (batch_rows){ 0 };
    if (!is_text(in)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "only texts have tokens");
    CLOOB_TRY(encode_all(ctx, b, in, 1, true, o, out));
    out->n = out->tokens;
    return CLOOB_OK;
}

void batch_rows_release(batch_rows *r)
{
    if (!r) return;
    free(r->data);
    *r = (batch_rows){ 0 };
}
