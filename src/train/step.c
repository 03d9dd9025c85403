/* The step, in the order it happens. */
#include "train/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/adamw.h"
#include "tensor/feed.h"
#include "train/stage.h"

enum { BUCKET_FLOATS = 8 << 20, MAX_BUCKETS = 256 };

/* A stretch of the gradient block that is summed over ranks at once, as soon as the backward pass has written all of it. */
typedef struct bucket {
    int64_t first, count;
    int waiting, rows; /* parameters still to come, and in all */
    bool begun;
    comm_request request;
} bucket;

struct step {
    step_options o;
    device *dev;
    comm *c;
    params *p;
    exec *tower[2]; /* image, text */
    stage *in;
    stored_sets *stored;    /* what retrieval searches; NULL: the batch */
    loss_plan *loss, *warm; /* warm: the same objective without retrieval, for the first updates */
    float *m, *v, *ema, *grad_sum, *embed[2], *dembed[2];
    void *range_device;
    adamw_range *range;
    int ranges;
    bucket bucket[MAX_BUCKETS];
    int buckets, *bucket_of;
    bool exchange; /* buckets go out during this backward pass */
    cloob_status exchange_status;
    cloob_ctx *ctx; /* of the call under way, for the exchange */
    double scalar[6];
    int64_t count;
    adamw_live *live, *live_host; /* a step the GPU does by itself: in its memory, and page-locked */
    void *recording;              /* of such a step with the objective `recorded`; NULL: not yet */
    const loss_plan *recorded, *tried; /* tried: queued at least once, so that nothing is loaded during a recording */
};

enum { IMAGE, TEXT };

void step_options_init(step_options *o)
{
    *o = (step_options){ .compute = CLOOB_F32, .batch = 64, .accum = 1, .grad = { .recompute = true }, /* a few percent of time for a fifth of the memory */
                         .method = LOSS_CLOOB, .memory = "batch", .inv_tau = 30, .beta = 8,
                         .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .wd = 0.1 };
}

graph_grad_options step_grad(const step_options *o, const device *dev)
{
    graph_grad_options g = o->grad;
    if (dev->backend == BACKEND_CUDA && o->model.family != MODEL_RESNET && !g.checkpoint) g.recompute = false;
    return g;
}

static int ranks_of(const step *s) { return s->c ? comm_size(s->c) : 1; }

/* The towers run beside each other on a GPU's two queues. Across ranks they do not: gradients of both are summed in one order. */
static bool two_queues(const step *s) { return s->dev->side && ranks_of(s) == 1; }

/* ---- creation ------------------------------------------------------------------------------------ */

static cloob_status sum_statistics(void *user, float *values, int64_t n)
{
    step *s = user;
    return comm_all_reduce(s->ctx, s->c, values, n, CLOOB_F32);
}

static cloob_status make_tower(cloob_ctx *ctx, step *s, int which)
{
    graph g;
    tower_options o = { .batch = s->o.batch,
                        .train = true,
                        .backward = which == IMAGE ? !s->o.lock_image : !s->o.lock_text,
                        .float_images = s->o.float_images,
                        .padded_input = s->dev->backend == BACKEND_CUDA,
                        .grad = step_grad(&s->o, s->dev) };
    exec_bindings b = { .param = s->p->compute_view, .master = s->p->master_view, .grad = s->p->grad_view,
                        .stream = which == TEXT && two_queues(s) ? s->dev->side : NULL, .ranks = s->o.bn_sync ? ranks_of(s) : 1, .sum_ranks = sum_statistics, .sum_user = s };
    cloob_status status = which == IMAGE ? tower_image(ctx, s->p, &o, &g) : tower_text(ctx, s->p, &o, &g);
    if (status == CLOOB_OK) status = exec_create(ctx, &g, s->dev, &b, &s->tower[which]);
    graph_release(&g);
    return status;
}

static cloob_status make_plan(cloob_ctx *ctx, step *s, loss_method method, loss_plan **out)
{
    loss_options o;
    loss_options_init(&o);
    o.method = method;
    o.backend = s->dev->backend == BACKEND_CUDA ? LOSS_CUDA : s->dev->backend == BACKEND_CPU ? LOSS_CPU : LOSS_REF;
    o.inv_tau = s->o.inv_tau;
    o.beta = s->o.beta;
    o.unchecked = true; /* l2norm has just made the rows; a NaN shows in the loss */
    loss_shape shape = { .rows = s->o.batch * s->o.accum, .dim = s->o.model.embed, .dtype = CLOOB_F32,
                         .stored_u = stored_most(s->stored, false), .stored_v = stored_most(s->stored, true) };
    return loss_plan_create(ctx, &o, &shape, s->c, out);
}

static cloob_status make_loss(cloob_ctx *ctx, step *s)
{
    loss_method bare = loss_method_leaves_one_out(s->o.method) ? LOSS_INFOLOOB : LOSS_CLIP;
    if (loss_method_has_hopfield(s->o.method))
        CLOOB_TRY(stored_create(ctx, s->o.memory, s->dev, s->c, s->o.batch * s->o.accum, s->o.model.embed, &s->stored));
    if (s->o.hopfield_warmup > 0 && loss_method_has_hopfield(s->o.method)) CLOOB_TRY(make_plan(ctx, s, bare, &s->warm));
    return make_plan(ctx, s, s->o.method, &s->loss);
}

static bool is_locked(const step *s, const param *r)
{
    return strncmp(r->name, "visual.", 7) == 0 ? s->o.lock_image : s->o.lock_text;
}

/* Neighbours that are treated alike become one range. */
static cloob_status make_ranges(cloob_ctx *ctx, step *s)
{
    s->range = calloc((size_t)s->p->count, sizeof *s->range);
    if (!s->range) return ctx_no_memory(ctx, (size_t)s->p->count * sizeof *s->range, "the optimizer");
    for (int i = 0; i < s->p->count; i++) {
        const param *r = &s->p->row[i];
        if (r->buffer) continue;
        adamw_range next = { r->offset, r->count, r->decay, is_locked(s, r) };
        adamw_range *last = s->ranges ? &s->range[s->ranges - 1] : NULL;
        if (last && last->decay == next.decay && last->frozen == next.frozen) last->count = next.offset + next.count - last->offset;
        else s->range[s->ranges++] = next;
    }
    size_t bytes = (size_t)s->ranges * sizeof *s->range;
    CLOOB_TRY(s->dev->alloc(ctx, s->dev, bytes, "the optimizer's table", &s->range_device));
    return s->dev->to_device(ctx, s->dev, s->range_device, s->range, bytes);
}

static cloob_status make_buckets(cloob_ctx *ctx, step *s)
{
    s->bucket_of = calloc((size_t)s->p->count, sizeof *s->bucket_of);
    if (!s->bucket_of) return ctx_no_memory(ctx, (size_t)s->p->count * sizeof(int), "gradient buckets");
    for (int i = 0; i < s->p->count; i++) {
        const param *r = &s->p->row[i];
        if (r->buffer) continue;
        bucket *b = s->buckets ? &s->bucket[s->buckets - 1] : NULL;
        if (!b || (b->count + r->count > BUCKET_FLOATS && s->buckets < MAX_BUCKETS)) {
            b = &s->bucket[s->buckets++];
            *b = (bucket){ .first = r->offset };
        }
        b->count = r->offset + r->count - b->first;
        b->rows++;
        s->bucket_of[i] = s->buckets - 1;
    }
    return CLOOB_OK;
}

static cloob_status take_floats(cloob_ctx *ctx, step *s, int64_t n, const char *what, float **out)
{
    return s->dev->alloc(ctx, s->dev, (size_t)n * sizeof(float), what, (void **)out);
}

static cloob_status take_memory(cloob_ctx *ctx, step *s)
{
    int64_t n = s->p->trainable, e = s->o.batch * s->o.accum * s->o.model.embed;
    CLOOB_TRY(take_floats(ctx, s, n, "first moments", &s->m));
    CLOOB_TRY(take_floats(ctx, s, n, "second moments", &s->v));
    if (s->o.ema > 0) CLOOB_TRY(take_floats(ctx, s, n, "averaged weights", &s->ema));
    bool micro = s->o.accum > 1; /* else the loss reads and writes the towers' own tensors */
    if (micro) CLOOB_TRY(take_floats(ctx, s, n, "summed gradients", &s->grad_sum));
    for (int t = 0; t < 2; t++) {
        bool locked = t == IMAGE ? s->o.lock_image : s->o.lock_text;
        if (micro) CLOOB_TRY(take_floats(ctx, s, e, "embeddings", &s->embed[t]));
        if (micro || locked) CLOOB_TRY(take_floats(ctx, s, e, "embedding gradients", &s->dembed[t]));
    }
    return CLOOB_OK;
}

static cloob_status take_live(cloob_ctx *ctx, step *s)
{
    CLOOB_TRY(s->dev->alloc(ctx, s->dev, sizeof *s->live, "the update's settings", (void **)&s->live));
    s->live_host = feed_host_alloc(s->dev, sizeof *s->live_host);
    return s->live_host ? CLOOB_OK : ctx_no_memory(ctx, sizeof *s->live_host, "the update's settings");
}

static void on_grad(void *user, int param_row);

static cloob_status build(cloob_ctx *ctx, step *s)
{
    comm_set_stream(s->c, s->dev->stream);
    CLOOB_TRY(params_create(ctx, &s->o.model, s->dev, s->o.compute, PARAMS_TRAIN, &s->p));
    CLOOB_TRY(make_ranges(ctx, s));
    CLOOB_TRY(make_buckets(ctx, s));
    CLOOB_TRY(take_memory(ctx, s));
    CLOOB_TRY(make_tower(ctx, s, IMAGE));
    CLOOB_TRY(make_tower(ctx, s, TEXT));
    CLOOB_TRY(stage_create(ctx, s->dev, exec_tensor(s->tower[IMAGE], "images"), exec_tensor(s->tower[TEXT], "tokens"), s->o.accum, &s->in));
    for (int t = 0; t < 2; t++)
        if (ranks_of(s) > 1) exec_on_grad(s->tower[t], on_grad, s);
    if (s->dev->record_begin) CLOOB_TRY(take_live(ctx, s));
    return make_loss(ctx, s);
}

cloob_status step_create(cloob_ctx *ctx, const step_options *o, device *dev, comm *c, step **out)
{
    if (o->batch < 1 || o->accum < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "batch size %lld and accumulation %lld must be 1 or more", (long long)o->batch, (long long)o->accum);
    step *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, "a training step");
    s->o = *o;
    s->dev = dev;
    s->c = c;
    s->ctx = ctx;
    s->scalar[0] = log(o->inv_tau);
    s->scalar[3] = o->beta > 0 ? log(o->beta) : 0;
    cloob_status status = build(ctx, s);
    if (status != CLOOB_OK) {
        step_destroy(s);
        return status;
    }
    *out = s;
    return CLOOB_OK;
}

static void forget(step *s);

void step_destroy(step *s)
{
    if (!s) return;
    void *owned[] = { s->m, s->v, s->ema, s->grad_sum, s->embed[0], s->embed[1], s->dembed[0], s->dembed[1], s->range_device, s->live };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (owned[i]) s->dev->free(s->dev, owned[i]);
    forget(s);
    if (s->live_host) feed_host_free(s->dev, s->live_host);
    stage_destroy(s->in);
    exec_destroy(s->tower[IMAGE]);
    exec_destroy(s->tower[TEXT]);
    loss_plan_destroy(s->loss);
    loss_plan_destroy(s->warm);
    stored_destroy(s->stored);
    params_destroy(s->p);
    free(s->range);
    free(s->bucket_of);
    free(s);
}

/* ---- forward ------------------------------------------------------------------------------------- */

cloob_status step_stage(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens) { return stage_put(ctx, s->in, images, tokens); }

bool step_looks_ahead(const step *s) { return stage_ahead(s->in); }

cloob_status step_settle(cloob_ctx *ctx, step *s) { return stage_settle(ctx, s->in); }

/* Rows of a micro-batch between a tower and the block of all embeddings. */
static cloob_status copy_rows(cloob_ctx *ctx, step *s, int t, int64_t micro, bool gradient)
{
    const tensor *tower = exec_tensor(s->tower[t], gradient ? "doutput" : "output");
    if (!tower) return CLOOB_OK; /* a locked tower takes no gradient */
    float *all = (gradient ? s->dembed : s->embed)[t] + micro * tensor_count(tower);
    return s->dev->copy(ctx, s->dev, gradient ? tower->data : (void *)all, gradient ? (void *)all : tower->data, tensor_bytes(tower));
}

/* pass over both towers, beside each other where there are two queues. The text tower first: it has fewer calls, so the other
 * queue does not wait long for its own. */
static cloob_status both_towers(cloob_ctx *ctx, step *s, cloob_status (*pass)(exec *))
{
    if (two_queues(s)) CLOOB_TRY(s->dev->fork(ctx, s->dev));
    CLOOB_TRY(pass(s->tower[TEXT]));
    CLOOB_TRY(pass(s->tower[IMAGE]));
    return two_queues(s) ? s->dev->join(ctx, s->dev) : CLOOB_OK;
}

static cloob_status embed_all(cloob_ctx *ctx, step *s)
{
    for (int64_t k = 0; k < s->o.accum; k++) {
        CLOOB_TRY(stage_take(ctx, s->in, k));
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

static loss_inputs loss_reads(const step *s) { return (loss_inputs){ .x = step_embeddings(s, false), .y = step_embeddings(s, true) }; }
static loss_outputs loss_writes(step *s) { return (loss_outputs){ .dx = gradient_place(s, IMAGE), .dy = gradient_place(s, TEXT) }; }
static loss_plan *plan_now(const step *s) { return s->warm && s->count < s->o.hopfield_warmup ? s->warm : s->loss; }

/* A loss that is not finite is no failure: its gradient is not finite either, and the update is left out. */
static cloob_status take_loss(cloob_ctx *ctx, cloob_status status, const loss_result *l, double inv_tau, double beta, step_result *r)
{
    if (status != CLOOB_OK && !(status == CLOOB_ERR_NUMERIC && !isfinite(l->loss))) return status;
    (void)ctx;
    *r = (step_result){ .loss = l->loss, .image_term = l->image_term, .text_term = l->text_term, .inv_tau = inv_tau, .beta = beta, .terms = *l };
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
    stored_bind(s->stored, &in, &u, &v);
    CLOOB_TRY(loss_plan_stored(ctx, plan, u, v));
    CLOOB_TRY(loss_plan_scales(ctx, plan, inv_tau, beta));
    return take_loss(ctx, loss_run(ctx, plan, &in, &out, s->dev->stream, &l), &l, inv_tau, beta, r);
}

/* ---- backward and the ranks ---------------------------------------------------------------------- */

static void begin_bucket(step *s, bucket *b)
{
    if (b->begun || s->exchange_status != CLOOB_OK) return;
    b->begun = true;
    s->exchange_status = comm_all_reduce_begin(s->ctx, s->c, s->p->grad + b->first, b->count, CLOOB_F32, s->dev->stream, &b->request);
}

/* Every rank finishes its gradients in the same order, so buckets go out in the same order everywhere. */
static void on_grad(void *user, int row)
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
        CLOOB_TRY(stage_take(ctx, s->in, k));
        CLOOB_TRY(both_towers(ctx, s, exec_forward_again));
        for (int t = 0; t < 2; t++) CLOOB_TRY(copy_rows(ctx, s, t, k, true));
        CLOOB_TRY(both_towers(ctx, s, exec_backward));
        CLOOB_TRY(add_gradients(ctx, s));
    }
    return s->dev->copy(ctx, s->dev, s->p->grad, s->grad_sum, bytes);
}

cloob_status step_gradients(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens, step_result *r)
{
    bool many = ranks_of(s) > 1;
    s->ctx = ctx;
    for (int t = 0; t < 2; t++) exec_set_ctx(s->tower[t], ctx);
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
    return stage_settle(ctx, s->in); /* the host has nothing else to do, and may fill the batch's memory again */
}

/* ---- the update ---------------------------------------------------------------------------------- */

/* Adam on one number; the learnable scales do not decay. */
static void update_scalar(const step *s, double scale[3], double g, double lr)
{
    double t = (double)s->count;
    scale[1] = s->o.beta1 * scale[1] + (1 - s->o.beta1) * g;
    scale[2] = s->o.beta2 * scale[2] + (1 - s->o.beta2) * g * g;
    double m = scale[1] / (1 - pow(s->o.beta1, t)), v = scale[2] / (1 - pow(s->o.beta2, t));
    scale[0] = loss_scale_clamp(scale[0] - lr * m / (sqrt(v) + s->o.eps));
}

static adamw_settings settings_now(const step *s, double lr, double scale, int64_t count)
{
    return (adamw_settings){ lr, s->o.beta1, s->o.beta2, s->o.eps, s->o.wd, scale, count, s->o.ema };
}

static adamw_blocks blocks_of(const step *s)
{
    return (adamw_blocks){ .param = s->p->master, .m = s->m, .v = s->v, .grad = s->p->grad, .shadow = s->p->shadow, .ema = s->ema,
                           .range = s->range, .range_device = s->range_device, .ranges = s->ranges };
}

static cloob_status update(cloob_ctx *ctx, step *s, double lr, const step_result *r)
{
    const loss_result *l = &r->terms;
    double scale = s->o.clip > 0 && r->grad_norm > s->o.clip ? s->o.clip / r->grad_norm : 1.0;
    s->count++;
    adamw_settings set = settings_now(s, lr, scale, s->count);
    adamw_blocks b = blocks_of(s);
    CLOOB_TRY(adamw_step(ctx, s->dev, s->dev->stream, &b, &set));
    if (s->o.learn_inv_tau) update_scalar(s, s->scalar, loss_dlogit_inv_tau(l, r->inv_tau), lr);
    if (s->o.learn_beta) update_scalar(s, s->scalar + 3, loss_dlogit_beta(l, r->inv_tau, r->beta), lr);
    return CLOOB_OK;
}

/* ---- a step the GPU does by itself --------------------------------------------------------------- */

/* Nothing in it waits for the host: gradients are clipped and a bad update is left out on the GPU, so all of it can be recorded
 * once and replayed. Not for scales or stored sets that change from step to step: they are arguments of the objective's kernels. */
static bool by_itself(const step *s)
{
    return s->live && !s->o.eager && s->o.accum == 1 && ranks_of(s) == 1 && !s->stored && !s->o.learn_inv_tau && !s->o.learn_beta && loss_can_queue(plan_now(s));
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

static void forget(step *s)
{
    if (s->recording) s->dev->forget(s->dev, s->recording);
    s->recording = NULL;
}

/* Where a library refuses to be recorded there is no recording, and steps are queued one by one. */
static cloob_status record(cloob_ctx *ctx, step *s)
{
    forget(s);
    s->recorded = plan_now(s);
    CLOOB_TRY(s->dev->record_begin(ctx, s->dev));
    cloob_status status = queue_step(ctx, s);
    CLOOB_TRY(s->dev->record_end(ctx, s->dev, &s->recording));
    if (status != CLOOB_OK) forget(s);
    if (!s->recording) ctx_log(ctx, CLOOB_LOG_INFO, "the step cannot be recorded: it is queued call by call");
    return CLOOB_OK;
}

static cloob_status start_step(cloob_ctx *ctx, step *s)
{
    const loss_plan *plan = plan_now(s);
    if (s->tried == plan && s->recorded != plan) CLOOB_TRY(record(ctx, s));
    s->tried = plan;
    return s->recording && s->recorded == plan ? s->dev->replay(ctx, s->dev, s->recording) : queue_step(ctx, s);
}

static cloob_status run_by_itself(cloob_ctx *ctx, step *s, double lr, step_result *r)
{
    loss_result l;
    adamw_settings set = settings_now(s, lr, 1.0, s->count + 1);
    *s->live_host = (adamw_live){ .u = adamw_update_of(&set), .clip = s->o.clip };
    CLOOB_TRY(stage_take(ctx, s->in, 0));
    CLOOB_TRY(start_step(ctx, s));
    CLOOB_TRY(stage_settle(ctx, s->in));
    CLOOB_TRY(s->dev->sync(ctx, s->dev));
    CLOOB_TRY(take_loss(ctx, loss_collect(ctx, plan_now(s), &l), &l, s->o.inv_tau, s->o.beta, r));
    r->grad_norm = sqrt(s->live_host->square);
    r->skipped = s->live_host->skipped;
    s->count += !r->skipped;
    return CLOOB_OK;
}

cloob_status step_run(cloob_ctx *ctx, step *s, const void *images, const int32_t *tokens, double lr, step_result *r)
{
    double square;
    if (by_itself(s)) {
        s->ctx = ctx;
        for (int t = 0; t < 2; t++) exec_set_ctx(s->tower[t], ctx);
        if (images) CLOOB_TRY(step_stage(ctx, s, images, tokens));
        return run_by_itself(ctx, s, lr, r);
    }
    CLOOB_TRY(step_gradients(ctx, s, images, tokens, r));
    CLOOB_TRY(optim_square_sum(ctx, s->dev, s->dev->stream, s->p->grad, s->p->trainable, &square));
    r->grad_norm = sqrt(square);
    r->skipped = !isfinite(r->loss) || !isfinite(r->grad_norm);
    if (r->skipped) return CLOOB_OK;
    CLOOB_TRY(update(ctx, s, lr, r));
    return stored_push(ctx, s->stored, step_embeddings(s, false), step_embeddings(s, true));
}

/* ---- queries ------------------------------------------------------------------------------------- */

params *step_params(step *s) { return s->p; }

exec *step_tower(step *s, bool text) { return s->tower[text]; }

int64_t step_count(const step *s) { return s->count; }

static size_t embedding_bytes(const step *s)
{
    int places = (s->embed[0] != NULL) + (s->embed[1] != NULL) + (s->dembed[0] != NULL) + (s->dembed[1] != NULL);
    return (size_t)(places * s->o.batch * s->o.accum * s->o.model.embed) * sizeof(float);
}

step_memory step_memory_of(const step *s)
{
    exec_memory image = exec_memory_of(s->tower[IMAGE]), text = exec_memory_of(s->tower[TEXT]);
    size_t n = (size_t)s->p->trainable * sizeof(float);
    step_memory m = { .params_bytes = (size_t)s->p->total * sizeof(float) + n + (s->p->shadow ? n / 2 : 0),
                      .optimizer_bytes = n * (2 + (s->ema != NULL) + (s->grad_sum != NULL)),
                      .image_bytes = image.arena_bytes + image.input_bytes + stage_bytes(s->dev, tensor_bytes(exec_tensor(s->tower[IMAGE], "images"))),
                      .text_bytes = text.arena_bytes + text.input_bytes + stage_bytes(s->dev, tensor_bytes(exec_tensor(s->tower[TEXT], "tokens"))),
                      .loss_bytes = loss_plan_bytes(s->loss) + (s->warm ? loss_plan_bytes(s->warm) : 0) + stored_bytes(s->stored) + embedding_bytes(s) };
    m.total_bytes = m.params_bytes + m.optimizer_bytes + m.image_bytes + m.text_bytes + m.loss_bytes;
    return m;
}

void step_profile(step *s, bool on)
{
    for (int t = 0; t < 2; t++) exec_profile(s->tower[t], on);
}

const double *step_op_seconds(const step *s, bool text) { return exec_op_seconds(s->tower[text]); }

step_state step_get_state(const step *s)
{
    step_state st = { .m = s->m, .v = s->v, .ema = s->ema, .count = s->count };
    memcpy(st.scalar, s->scalar, sizeof st.scalar);
    return st;
}

stored_sets *step_stored(step *s) { return s->stored; }

cloob_status step_set_scalars(cloob_ctx *ctx, step *s, const double scalar[6], int64_t count)
{
    for (int i = 0; i < 6; i++)
        if (!isfinite(scalar[i])) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "training state: a scale is not finite");
    memcpy(s->scalar, scalar, sizeof s->scalar);
    s->count = count;
    return CLOOB_OK;
}
