/* The step, in the order it happens. */
#include <math.h>

#include "train/patch_dropout.h"
#include "train/step_impl.h"

/* ---- forward ------------------------------------------------------------------------------------- */

void step_set_draws(step *s, uint64_t seed, int64_t next)
{
    s->seed = seed;
    s->staged = next;
}

/* Which tokens of the images to be staged stay. Two batches at most are under way, and take turns. */
static const int32_t *keep_patches(cloob_ctx *ctx, step *s)
{
    int64_t rows = s->o.batch * s->o.accum;
    int32_t *kept = s->kept[s->staged % 2];
    if (kept) patch_dropout_draw(ctx, &s->o.model, s->seed, s->staged, rows * (s->c ? comm_rank(s->c) : 0), rows, kept);
    s->staged++;
    return kept;
}

/* Packed texts go to the smallest tower that holds them. The choice is made while their memory is sure to be there. */
cloob_status step_stage(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens)
{
    int64_t B = s->o.batch, T = s->o.model.context;
    for (int64_t k = 0; k < s->o.accum && s->o.pack_texts; k++)
        s->choice[k] = towers_choose(&s->p->config, s->rows, s->texts, tokens + k * B * T, B, T);
    const void *part[UPLOAD_PARTS] = { images, tokens, keep_patches(ctx, s) };
    return batch_upload_put(ctx, s->in, part, s->choice);
}

bool step_looks_ahead(const step *s) { return batch_upload_ahead(s->in); }

cloob_status step_settle(cloob_ctx *ctx, step *s) { return batch_upload_settle(ctx, s->in); }

static void set_ctx(cloob_ctx *ctx, step *s)
{
    s->ctx = ctx;
    exec_set_ctx(s->tower[IMAGE], ctx);
    for (int i = 0; i < s->texts; i++) exec_set_ctx(s->text[i], ctx);
}

/* The next micro-batch to where the towers read it. */
static cloob_status take_inputs(cloob_ctx *ctx, step *s, int64_t micro)
{
    s->now = batch_upload_note(s->in);
    s->tower[TEXT] = s->text[s->now];
    return batch_upload_take(ctx, s->in, micro);
}

/* Rows of a micro-batch between a tower and the block of all embeddings. */
static cloob_status copy_rows(cloob_ctx *ctx, step *s, int t, int64_t micro, bool gradient)
{
    const tensor *tower = exec_tensor(s->tower[t], gradient ? "doutput" : "output");
    if (!tower) return CLOOB_OK; /* a locked tower takes no gradient */
    float *all = (gradient ? s->dembed : s->embed)[t] + micro * tensor_count(tower);
    return s->dev->copy(ctx, s->dev, gradient ? tower->data : (void *)all, gradient ? (void *)all : tower->data,
                        tensor_bytes(tower));
}

/* pass over both towers, beside each other where there are two queues. The text tower first: it has fewer calls, so the
 * other queue does not wait long for its own. */
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

/* A locked tower has no place for its gradient: the step keeps one. */
static float *gradient_place(step *s, int t)
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
    return (loss_outputs){ .dx = gradient_place(s, IMAGE), .dy = gradient_place(s, TEXT) };
}
static loss_plan *plan_now(const step *s) { return s->warm && s->count < s->o.hopfield_warmup ? s->warm : s->loss; }

/* A loss that is not finite is no failure: its gradient is not finite either, and the update is left out. */
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
    double inv_tau = s->o.learn_inv_tau ? loss_scale_value(s->scalar[0]) : s->o.inv_tau;
    double beta = s->o.learn_beta ? loss_scale_value(s->scalar[3]) : s->o.beta;
    loss_inputs in = loss_reads(s);
    loss_outputs out = loss_writes(s);
    loss_plan *plan = plan_now(s);
    int64_t u, v;
    hopfield_memory_bind(s->stored, &in, &u, &v);
    CLOOB_TRY(loss_plan_stored(ctx, plan, u, v));
    CLOOB_TRY(loss_plan_scales(ctx, plan, inv_tau, beta));
    if (s->o.learn_bias) CLOOB_TRY(loss_plan_bias(ctx, plan, s->scalar[6]));
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

/* Every rank finishes its gradients in the same order, so buckets go out in the same order everywhere. */
void step_on_grad(void *user, int row)
{
    step *s = user;
    bucket *b = &s->bucket[s->bucket_of[row]];
    if (s->exchange && --b->waiting == 0) begin_bucket(s, b);
}

static cloob_status finish_exchange(cloob_ctx *ctx, step *s)
{
    for (int i = 0; i < s->buckets; i++) begin_bucket(s, &s->bucket[i]); /* those with a parameter nobody wrote */
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
        if (many) start_exchange(s); /* only the sum goes out */
    } else {
        if (many) start_exchange(s);
        CLOOB_TRY(both_towers(ctx, s, exec_backward));
    }
    if (many) CLOOB_TRY(finish_exchange(ctx, s));
    return batch_upload_settle(ctx, s->in); /* the host has nothing else to do, and may fill the batch's memory again */
}

/* ---- the update ---------------------------------------------------------------------------------- */

/* Adam on one number; learnable scales and the bias do not decay. */
static void update_number(const step *s, double scale[3], double g, double lr)
{
    double t = (double)s->count;
    scale[1] = s->o.beta1 * scale[1] + (1 - s->o.beta1) * g;
    scale[2] = s->o.beta2 * scale[2] + (1 - s->o.beta2) * g * g;
    double m = scale[1] / (1 - pow(s->o.beta1, t)), v = scale[2] / (1 - pow(s->o.beta2, t));
    scale[0] -= lr * m / (sqrt(v) + s->o.eps);
}

static void update_scale(const step *s, double scale[3], double g, double lr)
{
    update_number(s, scale, g, lr);
    scale[0] = loss_scale_clamp(scale[0]);
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
    adamw_settings set = settings_now(s, lr, clip * loss_train_factor(s->o.method, r->inv_tau), s->count);
    adamw_blocks b = blocks_of(s);
    CLOOB_TRY(adamw_step(ctx, s->dev, s->dev->stream, &b, &set));
    if (s->o.learn_inv_tau) update_scale(s, s->scalar, loss_dlogit_inv_tau(s->o.method, l, r->inv_tau), lr);
    if (s->o.learn_beta) update_scale(s, s->scalar + 3, loss_dlogit_beta(s->o.method, l, r->inv_tau, r->beta), lr);
    if (s->o.learn_bias) update_number(s, s->scalar + 6, l->dsum_dbias, lr);
    return CLOOB_OK;
}

/* ---- a captured step ------------------------------------------------------------------------------ */

/* Nothing in it waits for the host: gradients are clipped and a bad update is left out on the GPU, so all of it can be
 * recorded once and replayed. Not for scales or stored sets that change from step to step: they are arguments of the
 * objective's kernels. */
static bool can_capture(const step *s)
{
    return s->live && !s->o.eager && s->o.accum == 1 && step_ranks(s) == 1 && !s->stored && !s->o.learn_inv_tau &&
           !s->o.learn_beta && !s->o.learn_bias && loss_can_queue(plan_now(s));
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

/* Where a library refuses to be recorded there is no recording, and steps are queued one by one. */
static cloob_status record(cloob_ctx *ctx, step *s)
{
    void **recording = &s->replay[s->now].recording;
    step_forget(s, s->now);
    s->replay[s->now].recorded = plan_now(s);
    CLOOB_TRY(s->dev->record_begin(ctx, s->dev));
    cloob_status status = queue_step(ctx, s);
    CLOOB_TRY(s->dev->record_end(ctx, s->dev, recording));
    if (status != CLOOB_OK) step_forget(s, s->now);
    if (!*recording) ctx_log(ctx, CLOOB_LOG_INFO, "the step cannot be recorded: it is queued call by call");
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
    CLOOB_TRY(batch_upload_settle(ctx, s->in));
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
    r->grad_norm = loss_train_factor(s->o.method, r->inv_tau) * sqrt(square);
    r->skipped = !isfinite(r->loss) || !isfinite(r->grad_norm);
    if (r->skipped) return CLOOB_OK;
    CLOOB_TRY(update(ctx, s, lr, r));
    return hopfield_memory_push(ctx, s->stored, step_embeddings(s, false), step_embeddings(s, true));
}
