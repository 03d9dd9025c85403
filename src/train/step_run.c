/* Runs a step: forward, objective, backward, exchange between ranks, update. */
#include <math.h>

#include "core/pool.h"
#include "core/rng.h"
#include "train/step_impl.h"

/* ---- patch dropout ------------------------------------------------------------------------------- */

int64_t patch_dropout_tokens(const model_config *c)
{
    int64_t kept = model_config_patches_kept(c);
    return kept ? kept + !c->no_class_token : 0;
}

typedef struct drawing {
    int64_t patches, tokens, first_row;
    bool has_class;
    uint64_t key;
    int32_t *kept;
} drawing;

/* Insertion sort: at most a few hundred. */
static void insert(int32_t *sorted, int64_t n, int32_t v)
{
    for (; n > 0 && sorted[n - 1] > v; n--) sorted[n] = sorted[n - 1];
    sorted[n] = v;
}

static void draw_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const drawing *d = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        uint64_t key = rng_subkey(d->key, (uint64_t)(d->first_row + r));
        int32_t *row = d->kept + r * d->tokens;
        if (d->has_class) row[0] = 0;
        for (int64_t k = d->has_class; k < d->tokens; k++) {
            uint64_t patch = rng_permute(key, (uint64_t)(k - d->has_class), (uint64_t)d->patches);
            insert(row + d->has_class, k - d->has_class, (int32_t)patch + d->has_class);
        }
    }
}

void patch_dropout_draw(cloob_ctx *ctx, const model_config *c, uint64_t seed, int64_t number, int64_t first_row,
                        int64_t rows, int32_t *kept)
{
    drawing d = { .patches = model_config_image_tokens(c) - !c->no_class_token,
                  .tokens = patch_dropout_tokens(c),
                  .first_row = first_row,
                  .has_class = !c->no_class_token,
                  .key = rng_subkey(rng_key(seed, "patch dropout"), (uint64_t)number),
                  .kept = kept };
    pool_for(ctx, rows, 16, draw_range, &d);
}

/* ---- forward ------------------------------------------------------------------------------------- */

void step_set_draws(step *s, uint64_t seed, int64_t next)
{
    s->seed = seed;
    s->staged = next;
}

/* Draws the image tokens to keep for the next upload. At most two batches are in flight, so two buffers alternate. */
static const int32_t *keep_patches(cloob_ctx *ctx, step *s)
{
    int64_t rows = s->o.batch * s->o.accum;
    int32_t *kept = s->kept[s->staged % 2];
    if (kept) patch_dropout_draw(ctx, &s->o.model, s->seed, s->staged, rows * (s->c ? comm_rank(s->c) : 0), rows, kept);
    s->staged++;
    return kept;
}

/* Packed texts use the smallest tower that holds them. It is chosen here, while the tokens are valid. */
cloob_status step_stage(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens)
{
    int64_t B = s->o.batch, T = s->o.model.context;
    for (int64_t k = 0; k < s->o.accum && s->o.pack_texts; k++)
        s->choice[k] = towers_choose(&s->p->config, s->rows, s->texts, tokens + k * B * T, B, T);
    const void *part[UPLOAD_PARTS] = { images, tokens, keep_patches(ctx, s) };
    return batch_upload_start(ctx, s->in, part, s->choice);
}

bool step_looks_ahead(const step *s) { return batch_upload_ahead(s->in); }

cloob_status step_wait_upload(cloob_ctx *ctx, step *s) { return batch_upload_wait(ctx, s->in); }

static void set_ctx(cloob_ctx *ctx, step *s)
{
    s->ctx = ctx;
    exec_set_ctx(s->tower[IMAGE], ctx);
    for (int i = 0; i < s->texts; i++) exec_set_ctx(s->text[i], ctx);
}

/* Copies the next micro-batch into the towers' input buffers. */
static cloob_status take_inputs(cloob_ctx *ctx, step *s, int64_t micro)
{
    s->now = batch_upload_note(s->in);
    s->tower[TEXT] = s->text[s->now];
    return batch_upload_take(ctx, s->in, micro);
}

/* Copies the rows of a micro-batch between a tower and the buffer of all embeddings. */
static cloob_status copy_rows(cloob_ctx *ctx, step *s, int t, int64_t micro, bool gradient)
{
    const tensor *tower = exec_tensor(s->tower[t], gradient ? "doutput" : "output");
    if (!tower) return CLOOB_OK; /* a locked tower has no gradients */
    float *all = (gradient ? s->dembed : s->embed)[t] + micro * tensor_count(tower);
    return s->dev->copy(ctx, s->dev, gradient ? tower->data : (void *)all, gradient ? (void *)all : tower->data,
                        tensor_bytes(tower));
}

/* Runs `pass` on both towers, concurrently when there are two streams. The text tower starts first: it has fewer
 * kernels, so the image tower's stream is not held up. */
static cloob_status both_towers(cloob_ctx *ctx, step *s, cloob_status (*pass)(exec *))
{
    if (step_two_streams(s)) CLOOB_TRY(s->dev->fork(ctx, s->dev));
    CLOOB_TRY(pass(s->tower[TEXT]));
    CLOOB_TRY(pass(s->tower[IMAGE]));
    return step_two_streams(s) ? s->dev->join(ctx, s->dev) : CLOOB_OK;
}

static cloob_status embed_all(cloob_ctx *ctx, step *s)
{
    for (int64_t k = 0; k < s->o.accum; k++) {
        CLOOB_TRY(take_inputs(ctx, s, k));
        CLOOB_TRY(both_towers(ctx, s, exec_forward));
        for (int t = 0; t < 2 && s->o.accum > 1; t++) CLOOB_TRY(copy_rows(ctx, s, t, k, false));
    }
    return CLOOB_OK;
}

const float *step_embeddings(const step *s, bool text)
{
    return s->o.accum > 1 ? s->embed[text] : exec_tensor(s->tower[text], "output")->data;
}

/* A locked tower has no gradient buffer: the step allocates one. */
static float *gradient_buffer(step *s, int t)
{
    const tensor *d = exec_tensor(s->tower[t], "doutput");
    return s->o.accum == 1 && d ? d->data : s->dembed[t];
}

static loss_inputs loss_reads(const step *s)
{
    return (loss_inputs){ .x = step_embeddings(s, false), .y = step_embeddings(s, true) };
}
static loss_outputs loss_writes(step *s)
{
    return (loss_outputs){ .dx = gradient_buffer(s, IMAGE), .dy = gradient_buffer(s, TEXT) };
}
static loss_plan *plan_now(const step *s) { return s->warm && s->count < s->o.hopfield_warmup ? s->warm : s->loss; }

double step_train_factor(const step_options *o, double inv_tau)
{
    return o->own.call ? 1 : loss_train_factor(o->method, inv_tau);
}

/* A loss that is not finite is not an error: its gradient is not finite either, so the update is skipped. */
static cloob_status take_loss(cloob_status status, const loss_result *l, double inv_tau, double beta, step_result *r)
{
    if (status != CLOOB_OK && !(status == CLOOB_ERR_NUMERIC && !isfinite(l->loss))) return status;
    *r = (step_result){ .loss = l->loss,
                        .image_term = l->image_term,
                        .text_term = l->text_term,
                        .inv_tau = inv_tau,
                        .beta = beta,
                        .terms = *l };
    return CLOOB_OK;
}

static cloob_status run_loss(cloob_ctx *ctx, step *s, step_result *r)
{
    loss_result l;
    double inv_tau = s->o.learn_inv_tau ? loss_scale_value(s->scalars.inv_tau.value) : s->o.inv_tau;
    double beta = s->o.learn_beta ? loss_scale_value(s->scalars.beta.value) : s->o.beta;
    loss_inputs in = loss_reads(s);
    loss_outputs out = loss_writes(s);
    loss_plan *plan = plan_now(s);
    int64_t u, v;
    if (s->own) return take_loss(own_loss_run(ctx, s->own, &in, &out, inv_tau, s->count, &l), &l, inv_tau, beta, r);
    hopfield_memory_bind(s->stored, &in, &u, &v);
    CLOOB_TRY(loss_plan_stored(ctx, plan, u, v));
    CLOOB_TRY(loss_plan_scales(ctx, plan, inv_tau, beta));
    if (s->o.learn_bias) CLOOB_TRY(loss_plan_bias(ctx, plan, s->scalars.bias.value));
    return take_loss(loss_run(ctx, plan, &in, &out, s->dev->stream, &l), &l, inv_tau, beta, r);
}

/* ---- backward and the ranks ---------------------------------------------------------------------- */

static void begin_bucket(step *s, bucket *b)
{
    if (b->begun || s->exchange_status != CLOOB_OK) return;
    b->begun = true;
    s->exchange_status =
        comm_all_reduce_begin(s->ctx, s->c, s->p->grad + b->first, b->count, CLOOB_F32, s->dev->stream, &b->request);
}

/* Every rank finishes its gradients in the same order, so buckets are sent in the same order. */
void step_on_grad(void *user, int row)
{
    step *s = user;
    bucket *b = &s->bucket[s->bucket_of[row]];
    if (s->exchange && --b->waiting == 0) begin_bucket(s, b);
}

static cloob_status finish_exchange(cloob_ctx *ctx, step *s)
{
    for (int i = 0; i < s->buckets; i++) begin_bucket(s, &s->bucket[i]); /* also those with unwritten parameters */
    for (int i = 0; i < s->buckets && s->exchange_status == CLOOB_OK; i++)
        s->exchange_status = comm_all_reduce_wait(ctx, s->c, &s->bucket[i].request);
    s->exchange = false;
    return s->exchange_status;
}

static void start_exchange(step *s)
{
    s->exchange = true;
    s->exchange_status = CLOOB_OK;
    for (int i = 0; i < s->buckets; i++) s->bucket[i].waiting = s->bucket[i].rows, s->bucket[i].begun = false;
}

static cloob_status add_gradients(cloob_ctx *ctx, step *s)
{
    op_env env = { .ctx = ctx, .dev = s->dev, .stream = s->dev->stream, .ranks = 1 };
    op_args a = { 0 };
    for (int k = 0; k < OP_INPUTS; k++) a.in[k].ndim = -1;
    for (int k = 0; k < OP_OUTPUTS; k++) a.out[k].ndim = -1;
    a.in[0] = a.out[0] = TENSOR(CLOOB_F32, s->grad_sum, s->p->trainable);
    a.in[1] = TENSOR(CLOOB_F32, s->p->grad, s->p->trainable);
    return op_find_kernel(s->dev->backend, OP_ADD)->run(&env, &a);
}

static cloob_status backward_micro(cloob_ctx *ctx, step *s)
{
    size_t bytes = (size_t)s->p->trainable * sizeof(float);
    CLOOB_TRY(s->dev->zero(ctx, s->dev, s->grad_sum, bytes));
    for (int64_t k = 0; k < s->o.accum; k++) {
        CLOOB_TRY(take_inputs(ctx, s, k));
        CLOOB_TRY(both_towers(ctx, s, exec_recompute_forward));
        for (int t = 0; t < 2; t++) CLOOB_TRY(copy_rows(ctx, s, t, k, true));
        CLOOB_TRY(both_towers(ctx, s, exec_backward));
        CLOOB_TRY(add_gradients(ctx, s));
    }
    return s->dev->copy(ctx, s->dev, s->p->grad, s->grad_sum, bytes);
}

cloob_status step_gradients(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens, step_result *r)
{
    bool many = step_ranks(s) > 1;
    set_ctx(ctx, s);
    if (images) CLOOB_TRY(step_stage(ctx, s, images, tokens));
    CLOOB_TRY(embed_all(ctx, s));
    CLOOB_TRY(run_loss(ctx, s, r));
    if (s->o.accum > 1) {
        CLOOB_TRY(backward_micro(ctx, s));
        if (many) start_exchange(s); /* send only the sum of the micro-batches */
    } else {
        if (many) start_exchange(s);
        CLOOB_TRY(both_towers(ctx, s, exec_backward));
    }
    if (many) CLOOB_TRY(finish_exchange(ctx, s));
    return batch_upload_wait(ctx, s->in); /* the caller may overwrite the batch after this */
}

/* ---- the update ---------------------------------------------------------------------------------- */

/* Adam without weight decay. */
static void update_scalar(const step *s, learned_scalar *a, double g, double lr)
{
    double t = (double)s->count;
    a->m = s->o.beta1 * a->m + (1 - s->o.beta1) * g;
    a->v = s->o.beta2 * a->v + (1 - s->o.beta2) * g * g;
    double m = a->m / (1 - pow(s->o.beta1, t)), v = a->v / (1 - pow(s->o.beta2, t));
    a->value -= lr * m / (sqrt(v) + s->o.eps);
}

static void update_scale(const step *s, learned_scalar *a, double g, double lr)
{
    update_scalar(s, a, g, lr);
    a->value = loss_scale_clamp(a->value);
}

static adamw_settings settings_now(const step *s, double lr, double scale, int64_t count)
{
    return (adamw_settings){ lr, s->o.beta1, s->o.beta2, s->o.eps, s->o.wd, scale, count, s->o.ema };
}

static adamw_blocks blocks_of(const step *s)
{
    return (adamw_blocks){ .param = s->p->master,
                           .m = s->m,
                           .v = s->v,
                           .grad = s->p->grad,
                           .shadow = s->p->shadow,
                           .ema = s->ema,
                           .range = s->range,
                           .range_device = s->range_device,
                           .ranges = s->ranges };
}

static cloob_status update(cloob_ctx *ctx, step *s, double lr, const step_result *r)
{
    const loss_result *l = &r->terms;
    double clip = s->o.clip > 0 && r->grad_norm > s->o.clip ? s->o.clip / r->grad_norm : 1.0;
    s->count++;
    adamw_settings set = settings_now(s, lr, clip * step_train_factor(&s->o, r->inv_tau), s->count);
    adamw_blocks b = blocks_of(s);
    CLOOB_TRY(adamw_step(ctx, s->dev, s->dev->stream, &b, &set));
    double dlogit = s->own ? l->dsum_dinv_tau * r->inv_tau : loss_dlogit_inv_tau(s->o.method, l, r->inv_tau);
    if (s->o.learn_inv_tau) update_scale(s, &s->scalars.inv_tau, dlogit, lr);
    if (s->o.learn_beta) update_scale(s, &s->scalars.beta, loss_dlogit_beta(s->o.method, l, r->inv_tau, r->beta), lr);
    if (s->o.learn_bias) update_scalar(s, &s->scalars.bias, l->dsum_dbias, lr);
    return CLOOB_OK;
}

/* ---- a captured step ------------------------------------------------------------------------------ */

/* A captured step never waits for the host: clipping and skipping a bad update happen on the GPU. Learned scales and
 * stored Hopfield sets change from step to step and are kernel arguments, so such a step is not captured. */
static bool can_capture(const step *s)
{
    return s->live && !s->own && !s->o.eager && s->o.accum == 1 && step_ranks(s) == 1 && !s->stored &&
           !s->o.learn_inv_tau && !s->o.learn_beta && !s->o.learn_bias && loss_can_queue(plan_now(s));
}

static cloob_status queue_step(cloob_ctx *ctx, step *s)
{
    loss_inputs in = loss_reads(s);
    loss_outputs out = loss_writes(s);
    adamw_blocks b = blocks_of(s);
    CLOOB_TRY(s->dev->copy(ctx, s->dev, s->live, s->live_host, sizeof *s->live));
    CLOOB_TRY(both_towers(ctx, s, exec_forward));
    CLOOB_TRY(loss_queue(ctx, plan_now(s), &in, &out, s->dev->stream));
    CLOOB_TRY(both_towers(ctx, s, exec_backward));
    CLOOB_TRY(adamw_step_live(ctx, s->dev, s->dev->stream, &b, s->p->trainable, s->live));
    return s->dev->copy(ctx, s->dev, s->live_host, s->live, sizeof *s->live);
}

void step_forget(step *s, int text)
{
    if (s->replay[text].recording) s->dev->forget(s->dev, s->replay[text].recording);
    s->replay[text].recording = NULL;
}

/* When a library does not support capture there is no recording, and every step is launched kernel by kernel. */
static cloob_status record(cloob_ctx *ctx, step *s)
{
    void **recording = &s->replay[s->now].recording;
    step_forget(s, s->now);
    s->replay[s->now].recorded = plan_now(s);
    CLOOB_TRY(s->dev->record_begin(ctx, s->dev));
    cloob_status status = queue_step(ctx, s);
    CLOOB_TRY(s->dev->record_end(ctx, s->dev, recording));
    if (status != CLOOB_OK) step_forget(s, s->now);
    if (!*recording) ctx_log(ctx, CLOOB_LOG_INFO, "the step cannot be captured: its kernels are launched one by one");
    return CLOOB_OK;
}

static cloob_status start_step(cloob_ctx *ctx, step *s)
{
    const loss_plan *plan = plan_now(s);
    if (s->replay[s->now].tried == plan && s->replay[s->now].recorded != plan) CLOOB_TRY(record(ctx, s));
    s->replay[s->now].tried = plan;
    void *recording = s->replay[s->now].recorded == plan ? s->replay[s->now].recording : NULL;
    return recording ? s->dev->replay(ctx, s->dev, recording) : queue_step(ctx, s);
}

static cloob_status run_captured(cloob_ctx *ctx, step *s, double lr, step_result *r)
{
    loss_result l;
    double factor = loss_train_factor(s->o.method, s->o.inv_tau);
    adamw_settings set = settings_now(s, lr, factor, s->count + 1);
    *s->live_host = (adamw_live){ .u = adamw_update_of(&set), .clip = s->o.clip };
    CLOOB_TRY(take_inputs(ctx, s, 0));
    CLOOB_TRY(start_step(ctx, s));
    CLOOB_TRY(batch_upload_wait(ctx, s->in));
    CLOOB_TRY(s->dev->sync(ctx, s->dev));
    CLOOB_TRY(take_loss(loss_collect(ctx, plan_now(s), &l), &l, s->o.inv_tau, s->o.beta, r));
    r->grad_norm = factor * sqrt(s->live_host->square);
    r->skipped = s->live_host->skipped;
    s->count += !r->skipped;
    return CLOOB_OK;
}

cloob_status step_run(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens, double lr, step_result *r)
{
    double square;
    if (can_capture(s)) {
        set_ctx(ctx, s);
        if (images) CLOOB_TRY(step_stage(ctx, s, images, tokens));
        return run_captured(ctx, s, lr, r);
    }
    CLOOB_TRY(step_gradients(ctx, s, images, tokens, r));
    CLOOB_TRY(optim_square_sum(ctx, s->dev, s->dev->stream, s->p->grad, s->p->trainable, &square));
    r->grad_norm = step_train_factor(&s->o, r->inv_tau) * sqrt(square);
    r->skipped = !isfinite(r->loss) || !isfinite(r->grad_norm);
    if (r->skipped) return CLOOB_OK;
    CLOOB_TRY(update(ctx, s, lr, r));
    return hopfield_memory_push(ctx, s->stored, step_embeddings(s, false), step_embeddings(s, true));
}
