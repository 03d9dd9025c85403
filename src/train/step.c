/* Creates a step: towers, objective, optimizer, buckets, memory. */
#include "train/step_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "cloob/options.h"
#include "model/params.h"
#include "tensor/async_copy.h"

void step_options_init(step_options *o)
{
    *o = (step_options){ .compute = CLOOB_F32,
                         .batch = 64,
                         .accum = 1,
                         .grad = { .recompute = true }, /* a few percent of time for a fifth of the memory */
                         .method = CLOOB_METHOD_CLOOB,
                         .memory = "batch",
                         .inv_tau = CLOOB_DEFAULT_INV_TAU,
                         .beta = CLOOB_DEFAULT_SCALE_HOPFIELD,
                         .bias = CLOOB_DEFAULT_LOGIT_BIAS,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .eps = 1e-8,
                         .wd = CLOOB_DEFAULT_WD,
                         .layer_decay = 1 };
}

/* ---- creation ------------------------------------------------------------------------------------ */

static cloob_status sum_statistics(void *user, float *values, int64_t n)
{
    step *s = user;
    return comm_all_reduce(s->ctx, s->c, values, n, CLOOB_F32);
}

static cloob_status make_tower(cloob_ctx *ctx, step *s, int which)
{
    towers t;
    exec_bindings b = { .param = s->p->compute_view,
                        .master = s->p->master_view,
                        .grad = s->p->grad_view,
                        .stream = which == TEXT && step_two_streams(s) ? s->dev->side : NULL,
                        .ranks = s->o.bn_sync ? step_ranks(s) : 1,
                        .sum_ranks = sum_statistics,
                        .sum_user = s };
    cloob_status status = towers_build(ctx, &s->o, s->dev, s->p, which == TEXT, &t);
    if (which == TEXT) s->texts = t.count, memcpy(s->rows, t.rows, sizeof s->rows);
    if (status == CLOOB_OK)
        status = exec_create_family(ctx, t.g, t.count, s->dev, &b, which == TEXT ? s->text : &s->tower[IMAGE]);
    if (which == TEXT) s->tower[TEXT] = s->text[0];
    towers_release(&t);
    return status;
}

static cloob_status make_plan(cloob_ctx *ctx, step *s, cloob_method method, loss_plan **out)
{
    loss_options o;
    loss_options_init(&o);
    o.method = method;
    o.backend = s->dev->backend == BACKEND_CUDA ? LOSS_CUDA : s->dev->backend == BACKEND_CPU ? LOSS_CPU : LOSS_REF;
    o.inv_tau = s->o.inv_tau;
    o.beta = s->o.beta;
    o.bias = s->o.bias;
    o.unchecked = true; /* rows come from l2norm; a NaN shows in the loss */
    loss_shape shape = { .rows = s->o.batch * s->o.accum,
                         .dim = s->o.model.embed,
                         .dtype = CLOOB_F32,
                         .stored_u = hopfield_memory_max_rows(s->stored, false),
                         .stored_v = hopfield_memory_max_rows(s->stored, true) };
    return loss_plan_create(ctx, &o, &shape, s->c, out);
}

static cloob_status make_loss(cloob_ctx *ctx, step *s)
{
    if (s->o.own.call) return own_loss_create(ctx, &s->o, s->dev, s->c, &s->own);
    cloob_method bare = loss_method_leaves_one_out(s->o.method) ? CLOOB_METHOD_INFOLOOB : CLOOB_METHOD_CLIP;
    if (loss_method_has_hopfield(s->o.method))
        CLOOB_TRY(hopfield_memory_create(ctx, s->o.memory, s->dev, s->c, s->o.batch * s->o.accum, s->o.model.embed,
                                         &s->stored));
    if (s->o.hopfield_warmup > 0 && loss_method_has_hopfield(s->o.method)) CLOOB_TRY(make_plan(ctx, s, bare, &s->warm));
    return make_plan(ctx, s, s->o.method, &s->loss);
}

double step_rate(const step *s, int row)
{
    int count, group = model_group(&s->p->config, s->p->row[row].name, &count);
    return pow(s->o.layer_decay, count - 1 - group);
}

/* Neighbouring parameters with the same settings become one range. */
static cloob_status make_ranges(cloob_ctx *ctx, step *s)
{
    s->range = calloc((size_t)s->p->count, sizeof *s->range);
    if (!s->range) return ctx_no_memory(ctx, (size_t)s->p->count * sizeof *s->range, "the optimizer");
    for (int i = 0; i < s->p->count; i++) {
        const param *r = &s->p->row[i];
        if (r->buffer || r->frozen) continue;
        adamw_range next = { r->offset, r->count, r->decay, (float)step_rate(s, i) };
        adamw_range *last = s->ranges ? &s->range[s->ranges - 1] : NULL;
        if (last && last->decay == next.decay && last->rate == next.rate)
            last->count = next.offset + next.count - last->offset;
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
        if (r->buffer || r->frozen) continue;
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
    bool micro = s->o.accum > 1; /* otherwise the loss uses the towers' tensors directly */
    if (micro) CLOOB_TRY(take_floats(ctx, s, n, "summed gradients", &s->grad_sum));
    for (int t = 0; t < 2; t++) {
        bool locked = !params_trains(s->p, t == TEXT);
        if (micro) CLOOB_TRY(take_floats(ctx, s, e, "embeddings", &s->embed[t]));
        if (micro || locked) CLOOB_TRY(take_floats(ctx, s, e, "embedding gradients", &s->dembed[t]));
    }
    return CLOOB_OK;
}

/* Uploads to the inputs of both towers. */
static cloob_status make_upload(cloob_ctx *ctx, step *s)
{
    const tensor *to[UPLOAD_PARTS] = { exec_tensor(s->tower[IMAGE], "images"), exec_tensor(s->tower[TEXT], "tokens"),
                                       exec_tensor(s->tower[IMAGE], "kept") };
    size_t bytes = (size_t)(s->o.batch * s->o.accum * patch_dropout_tokens(&s->o.model)) * sizeof **s->kept;
    for (int i = 0; i < 2 && bytes; i++) {
        s->kept[i] = async_copy_host_alloc(s->dev, bytes);
        if (!s->kept[i]) return ctx_no_memory(ctx, bytes, "the patches that are kept");
    }
    return batch_upload_create(ctx, s->dev, to, s->o.accum, &s->in);
}

static cloob_status take_live(cloob_ctx *ctx, step *s)
{
    CLOOB_TRY(s->dev->alloc(ctx, s->dev, sizeof *s->live, "the update's settings", (void **)&s->live));
    s->live_host = async_copy_host_alloc(s->dev, sizeof *s->live_host);
    return s->live_host ? CLOOB_OK : ctx_no_memory(ctx, sizeof *s->live_host, "the update's settings");
}

static cloob_status build(cloob_ctx *ctx, step *s)
{
    comm_set_stream(s->c, s->dev->stream);
    CLOOB_TRY(params_create_training(ctx, &s->o.model, s->dev, s->o.compute, PARAMS_TRAIN, &s->o.part, &s->p));
    CLOOB_TRY(make_ranges(ctx, s));
    CLOOB_TRY(make_buckets(ctx, s));
    CLOOB_TRY(take_memory(ctx, s));
    CLOOB_TRY(make_tower(ctx, s, IMAGE));
    CLOOB_TRY(make_tower(ctx, s, TEXT));
    CLOOB_TRY(make_upload(ctx, s));
    if (step_ranks(s) > 1) exec_on_grad(s->tower[IMAGE], step_on_grad, s);
    for (int i = 0; i < s->texts && step_ranks(s) > 1; i++) exec_on_grad(s->text[i], step_on_grad, s);
    s->choice = calloc((size_t)s->o.accum, sizeof *s->choice);
    if (!s->choice) return ctx_no_memory(ctx, (size_t)s->o.accum * sizeof *s->choice, "the next batch");
    if (s->dev->record_begin) CLOOB_TRY(take_live(ctx, s));
    return make_loss(ctx, s);
}

/* Below 2^46 pixels per step, all planned sizes fit 64 bits. */
cloob_status step_check_sizes(cloob_ctx *ctx, const step_options *o)
{
    int64_t rows, pixels, S = o->model.image_size;
    if (checked_mul(o->batch, o->accum, &rows) && checked_mul3(rows, S, S, &pixels) && pixels < (int64_t)1 << 46)
        return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld x %lld images of %lld px in a step are too large for any memory",
                    (long long)o->batch, (long long)o->accum, (long long)S);
}

cloob_status step_create(cloob_ctx *ctx, const step_options *o, device *dev, comm *c, step **out)
{
    if (o->batch < 1 || o->accum < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "batch size %lld and accumulation %lld must be 1 or more",
                        (long long)o->batch, (long long)o->accum);
    CLOOB_TRY(step_check_sizes(ctx, o));
    step *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, "a training step");
    s->o = *o;
    s->dev = dev;
    s->c = c;
    s->ctx = ctx;
    s->scalars.inv_tau.value = log(o->inv_tau);
    s->scalars.beta.value = o->beta > 0 ? log(o->beta) : 0;
    s->scalars.bias.value = o->bias;
    cloob_status status = build(ctx, s);
    if (status != CLOOB_OK) {
        step_destroy(s);
        return status;
    }
    *out = s;
    return CLOOB_OK;
}

void step_destroy(step *s)
{
    if (!s) return;
    void *owned[] = { s->m,        s->v,         s->ema,       s->grad_sum,     s->embed[0],
                      s->embed[1], s->dembed[0], s->dembed[1], s->range_device, s->live };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (owned[i]) s->dev->free(s->dev, owned[i]);
    for (int i = 0; i < s->texts; i++) step_forget(s, i);
    if (s->live_host) async_copy_host_free(s->dev, s->live_host);
    batch_upload_destroy(s->in);
    for (int i = 0; i < 2; i++)
        if (s->kept[i]) async_copy_host_free(s->dev, s->kept[i]);
    exec_destroy(s->tower[IMAGE]);
    for (int i = s->texts - 1; i >= 0; i--) exec_destroy(s->text[i]);
    own_loss_destroy(s->own);
    loss_plan_destroy(s->loss);
    loss_plan_destroy(s->warm);
    hopfield_memory_destroy(s->stored);
    params_destroy(s->p);
    free(s->choice);
    free(s->range);
    free(s->bucket_of);
    free(s);
}

/* ---- queries ------------------------------------------------------------------------------------- */

params *step_params(step *s) { return s->p; }

exec *step_tower(step *s, bool text) { return s->tower[text]; }

step_memory step_memory_of(const step *s)
{
    exec_memory image = exec_memory_of(s->tower[IMAGE]), text = exec_memory_of(s->text[0]);
    size_t n = (size_t)s->p->trainable * sizeof(float);
    const tensor *kept = exec_tensor(s->tower[IMAGE], "kept");
    size_t shadow = s->p->shadow ? (size_t)s->p->learned * sizeof *s->p->shadow : 0;
    size_t objective = s->own ? own_loss_bytes(&s->o, step_ranks(s)) : loss_plan_bytes(s->loss);
    if (s->warm) objective += loss_plan_bytes(s->warm);
    int places = (s->embed[0] != NULL) + (s->embed[1] != NULL) + (s->dembed[0] != NULL) + (s->dembed[1] != NULL);
    size_t embeddings = (size_t)(places * s->o.batch * s->o.accum * s->o.model.embed) * sizeof(float);
    step_memory m = { .params_bytes = (size_t)s->p->total * sizeof(float) + n + shadow,
                      .optimizer_bytes = n * (2 + (s->ema != NULL) + (s->grad_sum != NULL)),
                      .image_bytes = image.arena_bytes + image.input_bytes +
                                     batch_upload_bytes(s->dev, tensor_bytes(exec_tensor(s->tower[IMAGE], "images"))) +
                                     (kept ? batch_upload_bytes(s->dev, tensor_bytes(kept)) : 0),
                      .text_bytes = text.arena_bytes + text.input_bytes +
                                    batch_upload_bytes(s->dev, tensor_bytes(exec_tensor(s->tower[TEXT], "tokens"))),
                      .loss_bytes = objective + hopfield_memory_bytes(s->stored) + embeddings };
    m.total_bytes = m.params_bytes + m.optimizer_bytes + m.image_bytes + m.text_bytes + m.loss_bytes;
    return m;
}

step_state step_get_state(const step *s)
{
    return (step_state){ .m = s->m, .v = s->v, .ema = s->ema, .scalars = s->scalars, .count = s->count };
}

hopfield_memory *step_stored(step *s) { return s->stored; }

static bool is_finite(const learned_scalar *a) { return isfinite(a->value) && isfinite(a->m) && isfinite(a->v); }

cloob_status step_set_scalars(cloob_ctx *ctx, step *s, const step_scalars *scalars, int64_t count)
{
    if (!is_finite(&scalars->inv_tau) || !is_finite(&scalars->beta) || !is_finite(&scalars->bias))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "training state: a scale is not finite");
    s->scalars = *scalars;
    s->count = count;
    return CLOOB_OK;
}

/* ---- the towers as graphs, and the numbers of rows of packed texts ---------------------------------- */

enum { ALIGN = 16 }; /* rows: whole tiles of the GEMMs */

static tower_options options_of(const step_options *o, const device *dev, const params *p, bool text)
{
    bool gpu = dev->backend == BACKEND_CUDA;
    tower_options t = { .batch = o->batch,
                        .train = true,
                        .backward = params_trains(p, text),
                        .kept = text ? 0 : model_config_patches_kept(&o->model),
                        .float_images = o->float_images,
                        .gpu_input = gpu,
                        .fuse_gemm = gpu,
                        .grad = o->grad };
    if (gpu && o->model.family != MODEL_RESNET && !t.grad.checkpoint && !o->save_memory) t.grad.recompute = false;
    return t;
}

/* Fractions of the rows of full-length texts, a fifth to a third apart. Batches of one data set have nearly the same
 * mean length, so a run uses one or two of them; captions of 14 tokens on average, of 77, use a fifth. */
static int rows_of(int64_t batch, int64_t tokens, int64_t rows[TOWER_SIZES])
{
    static const int64_t parts[TOWER_SIZES] = { 8, 6, 5, 4, 3, 2, 1 };
    int64_t whole = batch * tokens;
    int count = 0;
    for (int i = 0; i < TOWER_SIZES; i++) {
        int64_t share = (whole + parts[i] - 1) / parts[i], r = (share + ALIGN - 1) / ALIGN * ALIGN;
        if (r > whole) r = whole;
        if (count == 0 || r > rows[count - 1]) rows[count++] = r;
    }
    return count;
}

cloob_status towers_build(cloob_ctx *ctx, const step_options *o, const device *dev, const params *p, bool text,
                          towers *t)
{
    tower_options options = options_of(o, dev, p, text);
    bool packed = text && o->pack_texts && model_config_text_ends(&p->config);
    *t = (towers){ 0 };
    int sizes = packed ? rows_of(o->batch, o->model.context, t->rows) : 1;
    for (t->count = 0; t->count < sizes;) {
        graph *g = &t->g[t->count];
        if (packed) options.rows = t->rows[t->count];
        t->count++;
        CLOOB_TRY(text ? tower_text(ctx, p, &options, g) : tower_image(ctx, p, &options, g));
    }
    return CLOOB_OK;
}

void towers_release(towers *t)
{
    for (int i = 0; i < t->count; i++) graph_release(&t->g[i]);
    t->count = 0;
}

int towers_choose(const model_config *c, const int64_t *rows, int count, const int32_t *tokens, int64_t batch,
                  int64_t T)
{
    int64_t need = 0;
    int i = 0;
    for (int64_t n = 0; n < batch; n++) need += tower_text_length(c, tokens + n * T, T);
    while (i + 1 < count && rows[i] < need) i++;
    return i;
}
