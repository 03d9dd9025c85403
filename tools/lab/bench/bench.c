/* Steps and embeddings of random inputs against the clock. */
#include "core/arith.h"
#include "lab/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/limits.h"
#include "data/view/device_view.h"
#include "core/rng.h"
#include "lab/memory.h"
#include "model/encoder.h"
#include "tensor/async_copy.h"
#include "tensor/precision.h"
#include "train/memory_budget.h"

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int64_t memory_used(device *d)
{
    size_t total = 0, available = 0;
    if (d->backend == BACKEND_CUDA) {
        d->memory(d, &total, &available);
        return (int64_t)(total - available);
    }
    return peak_bytes();
}

double median(double *x, int64_t n)
{
    if (!n) return 0;
    qsort(x, (size_t)n, sizeof *x, order_double);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

void random_unit(float *row, int64_t D, uint64_t key)
{
    double square = 0;
    for (int64_t k = 0; k < D; k++) {
        row[k] = (float)rng_uniform(key, (uint64_t)k) - 0.5f;
        square += (double)row[k] * row[k];
    }
    for (int64_t k = 0; k < D; k++) row[k] = (float)((double)row[k] / sqrt(square));
}

/* ---- inputs -------------------------------------------------------------------------------------- */

typedef struct inputs {
    device *dev;
    uint8_t *rgb;    /* (n, S, S, 3) */
    int32_t *tokens; /* (n, T): start, words, end, zeros */
} inputs;

static void release_inputs(inputs *in)
{
    if (in->rgb) async_copy_host_free(in->dev, in->rgb);
    if (in->tokens) async_copy_host_free(in->dev, in->tokens);
}

/* Where text r of T tokens ends; length: tokens in the mean, or 0. */
static int64_t end_of(uint64_t key, int64_t r, int64_t T, int64_t length)
{
    int64_t low = length ? length - length / 2 : 4, high = length ? length + length / 2 : T;
    if (high > T) high = T;
    if (low > high) low = high;
    return low - 1 + (int64_t)rng_below(key, (uint64_t)r, (uint64_t)(high - low + 1));
}

static cloob_status make_inputs(cloob_ctx *ctx, device *d, const model_config *c, int64_t n, const bench_options *o,
                                inputs *in)
{
    int64_t pixels = n * c->image_size * c->image_size * 3, T = c->context;
    uint64_t key = rng_key(o->seed, "bench");
    *in = (inputs){ d, async_copy_host_alloc(d, (size_t)pixels),
                    async_copy_host_alloc(d, (size_t)(n * T) * sizeof *in->tokens) };
    if (!in->rgb || !in->tokens) {
        release_inputs(in);
        *in = (inputs){ 0 };
        return ctx_no_memory(ctx, (size_t)pixels, "images");
    }
    for (int64_t i = 0; i < pixels; i++) in->rgb[i] = (uint8_t)rng_u64(key, (uint64_t)i);
    for (int64_t r = 0; r < n; r++) {
        int64_t end = end_of(rng_subkey(key, 1), r, T, o->text_length);
        for (int64_t k = 0; k < T; k++) {
            int64_t word = 1 + (int64_t)rng_below(rng_subkey(key, 2), (uint64_t)(r * T + k), (uint64_t)(c->vocab - 3));
            in->tokens[r * T + k] = (int32_t)(k == end ? c->vocab - 1 : k == 0 ? c->vocab - 2 : k > end ? 0 : word);
        }
    }
    return CLOOB_OK;
}

/* ---- the clock ----------------------------------------------------------------------------------- */

typedef cloob_status once_fn(cloob_ctx *ctx, void *user);

static cloob_status take_times(cloob_ctx *ctx, device *d, int64_t repeats, int64_t items, once_fn *once, void *user,
                               bench_result *out)
{
    double *ms = must(calloc((size_t)repeats + 1, sizeof *ms)), cpu = 0;
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i <= repeats && status == CLOOB_OK; i++) {
        double from = clock_seconds();
        if (i == 1) cpu = cpu_ms();
        status = once(ctx, user);
        if (status == CLOOB_OK) status = d->sync(ctx, d);
        ms[i] = 1e3 * (clock_seconds() - from);
    }
    if (status == CLOOB_OK) {
        out->first_ms = ms[0];
        out->cpu_ms = repeats ? (cpu_ms() - cpu) / (double)repeats : 0;
        out->ms = repeats ? median(ms + 1, repeats) : ms[0];
        out->items_per_s = 1e3 * (double)items / out->ms;
        out->peak_bytes = memory_used(d);
        snprintf(out->device, sizeof out->device, "%s", d->name);
    }
    free(ms);
    return status;
}

static cloob_status check(cloob_ctx *ctx, const bench_options *o, bool training, precision *p)
{
    CLOOB_TRY(precision_find(ctx, o->precision, training, p));
    if (o->batch < 1 || o->repeats < 1 || o->accum < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "batch %lld, accum %lld, repeats %lld: all must be above 0",
                        (long long)o->batch, (long long)o->accum, (long long)o->repeats);
    return CLOOB_OK;
}

/* ---- op by op ------------------------------------------------------------------------------------ */

/* The executors report every call before it starts. The device is synchronised there, so that a call's time is its own:
 * a profiled run is slower than a timed one, most of all on a GPU, where calls no longer overlap. */

static profile_row *row_of(profile *p, const char *name)
{
    for (int i = 0; i < p->rows; i++)
        if (strcmp(p->row[i].name, name) == 0) return &p->row[i];
    if (p->rows == PROFILE_ROWS) return &p->row[PROFILE_ROWS - 1];
    if (p->rows == PROFILE_ROWS - 1) name = "other ops"; /* the last row has the rest */
    profile_row *row = &p->row[p->rows++];
    *row = (profile_row){ 0 };
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

static bool is_forward(const op_args *a) { return a->op == OP_CONV2D || a->op == OP_LINEAR; }

/* Every row of the output multiplies and adds each weight once. Winograd's algorithm needs fewer multiplications. */
static double flops_of(const op_args *a)
{
    bool forward = is_forward(a), dx = a->op == OP_CONV2D_DX || a->op == OP_LINEAR_DX;
    if (!forward && !dx && a->op != OP_CONV2D_DW && a->op != OP_LINEAR_DW) return 0;
    const tensor *y = forward ? &a->out[0] : &a->in[0], *w = forward || dx ? &a->in[1] : &a->in[2];
    return 2.0 * (double)tensor_count(y) / (double)tensor_cols(y) * (double)tensor_count(w);
}

/* "conv2d, 3136 rows of 576 to 64". */
static const char *name_with_shape(const char *name, const op_group *call, char out[PROFILE_NAME])
{
    for (int i = 0; i < call->members; i++) {
        const op_args *a = call->member[i];
        if (!is_forward(a)) continue;
        int64_t outputs = tensor_cols(&a->out[0]);
        snprintf(out, PROFILE_NAME, "%s, %lld rows of %lld to %lld", name,
                 (long long)(tensor_count(&a->out[0]) / outputs), (long long)(tensor_count(&a->in[1]) / outputs),
                 (long long)outputs);
        return out;
    }
    return name;
}

static double bytes_of(const op_args *a)
{
    double sum = 0;
    for (int k = 0; k < OP_INPUTS; k++) sum += op_has(&a->in[k]) ? (double)tensor_bytes(&a->in[k]) : 0;
    for (int k = 0; k < OP_OUTPUTS; k++) sum += op_has(&a->out[k]) ? (double)tensor_bytes(&a->out[k]) : 0;
    return sum;
}

static void on_call(void *user, const char *name, const op_group *call)
{
    profile *p = user;
    char text[PROFILE_NAME];
    if (p->status == CLOOB_OK) p->status = p->dev->sync(p->ctx, p->dev);
    double now = clock_seconds();
    if (p->now) p->now->ms += 1e3 * (now - p->since);
    if (name && p->shapes) name = name_with_shape(name, call, text);
    p->now = name ? row_of(p, name) : NULL;
    p->since = now;
    if (!p->now) return;
    p->now->calls++;
    for (int i = 0; i < call->members; i++) {
        p->now->flops += flops_of(call->member[i]);
        p->now->bytes += bytes_of(call->member[i]);
    }
}

static int slowest_first(const void *a, const void *b)
{
    const profile_row *x = a, *y = b;
    return x->ms != y->ms ? (x->ms < y->ms ? 1 : -1) : strcmp(x->name, y->name);
}

/* Sorts the rows and divides them by the number of runs. */
static cloob_status profile_finish(profile *p, int64_t runs, double run_ms)
{
    double towers = 0;
    for (int i = 0; i < p->rows; i++) {
        p->row[i].ms /= (double)runs;
        p->row[i].flops /= (double)runs;
        p->row[i].bytes /= (double)runs;
        p->row[i].calls /= runs;
        towers += p->row[i].ms;
    }
    qsort(p->row, (size_t)p->rows, sizeof *p->row, slowest_first);
    p->run_ms = run_ms;
    p->rest_ms = run_ms > towers ? run_ms - towers : 0;
    return p->status;
}

/* ---- training ------------------------------------------------------------------------------------ */

typedef struct training {
    step *s;
    inputs in;
    bool begun;
    step_result last;
} training;

static void profile_step(const training *t, op_call_fn *fn, profile *p)
{
    for (int text = 0; text < 2; text++) exec_on_call(step_tower(t->s, text), fn, p);
}

/* As in a run: the next step's upload starts before this one is computed. */
static cloob_status train_once(cloob_ctx *ctx, void *user)
{
    training *t = user;
    if (!step_looks_ahead(t->s)) return step_run(ctx, t->s, t->in.rgb, t->in.tokens, 1e-4, &t->last);
    if (!t->begun) CLOOB_TRY(step_stage(ctx, t->s, t->in.rgb, t->in.tokens));
    t->begun = true;
    CLOOB_TRY(step_stage(ctx, t->s, t->in.rgb, t->in.tokens));
    return step_run(ctx, t->s, NULL, NULL, 1e-4, &t->last);
}

static cloob_status plan_step(cloob_ctx *ctx, const char *fit, step_options *so, device *d)
{
    memory_case c = { so, d, 1, 0, 0 };
    memory_need n;
    char text[MEMORY_TEXT];
    size_t limit;
    if (fit && !memory_parse(fit, &limit))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "fit-memory %s: not a size; give a number of bytes, or a size such as 80G", fit);
    if (fit) CLOOB_TRY(memory_fit(ctx, &c, so, limit, &n));
    CLOOB_TRY(memory_check(ctx, &c, &n));
    ctx_log(ctx, CLOOB_LOG_INFO, "planned peak %s", memory_text(&n, text));
    return CLOOB_OK;
}

cloob_status step_timing(cloob_ctx *ctx, const bench_options *o, bench_result *out)
{
    step_options so;
    precision p;
    training t = { 0 };
    device *d = NULL;
    *out = (bench_result){ 0 };
    step_options_init(&so);
    CLOOB_TRY(check(ctx, o, true, &p));
    out->precision = p.name;
    so.compute = p.compute;
    CLOOB_TRY(model_config_load(ctx, o->model, &so.model));
    so.batch = o->batch, so.accum = o->accum;
    so.method = o->method;
    so.grad.checkpoint = o->grad_checkpointing;
    so.pack_texts = o->pack_texts;
    so.eager = o->profile != NULL; /* a captured step has no calls to time */
    cloob_status status = device_open(ctx, o->device ? o->device : "auto", &d);
    if (status == CLOOB_OK) status = plan_step(ctx, o->fit_memory, &so, d);
    if (status == CLOOB_OK) status = step_create(ctx, &so, d, NULL, &t.s);
    if (status == CLOOB_OK) status = params_init(ctx, step_params(t.s), o->seed);
    if (status == CLOOB_OK) status = make_inputs(ctx, d, &so.model, o->batch * o->accum, o, &t.in);
    if (status == CLOOB_OK) {
        out->planned_bytes = (int64_t)step_memory_of(t.s).total_bytes;
        if (o->profile) status = train_once(ctx, &t); /* chooses the text tower */
        if (o->profile) *o->profile = (profile){ .ctx = ctx, .dev = d }, profile_step(&t, on_call, o->profile);
        if (status == CLOOB_OK) status = take_times(ctx, d, o->repeats, o->batch * o->accum, train_once, &t, out);
        if (o->profile) profile_step(&t, NULL, NULL);
        if (o->profile && status == CLOOB_OK) status = profile_finish(o->profile, o->repeats + 1, out->ms);
        out->loss = t.last.loss;
        release_inputs(&t.in);
    }
    step_destroy(t.s);
    device_close(d);
    return status;
}

/* ---- the objective ------------------------------------------------------------------------------- */

typedef struct objective {
    cloob_objective_plan *plan;
    cloob_objective_rows rows;
    cloob_objective_result last;
} objective;

static cloob_status evaluate_once(cloob_ctx *ctx, void *user)
{
    objective *j = user;
    return cloob_objective_plan_run(ctx, j->plan, &j->rows, &j->last);
}

/* n random rows in device memory, which the caller frees. */
static cloob_status upload_rows(cloob_ctx *ctx, device *d, const loss_bench *b, uint64_t key, cloob_dtype dtype,
                                void **out)
{
    int64_t count = b->n * b->d;
    size_t bytes = (size_t)count * dtype_size(dtype);
    float *x = malloc((size_t)count * sizeof *x);
    if (!x) return ctx_no_memory(ctx, (size_t)count * sizeof *x, "embeddings");
    for (int64_t i = 0; i < b->n; i++) random_unit(x + i * b->d, b->d, rng_subkey(key, (uint64_t)i));
    if (dtype != CLOOB_F32) dtype_convert(dtype, x, CLOOB_F32, x, count);
    cloob_status status = d->alloc(ctx, d, bytes, "embeddings", out);
    if (status == CLOOB_OK) status = d->to_device(ctx, d, *out, x, bytes);
    if (status == CLOOB_OK) status = d->sync(ctx, d);
    free(x);
    return status;
}

static cloob_status time_objective(cloob_ctx *ctx, const cloob_objective_options *o, const loss_bench *b, device *d,
                                   void *at[4], bench_result *out)
{
    objective j = { 0 };
    uint64_t key = rng_key(b->seed, "bench/loss");
    cloob_objective_shape shape = { .n = b->n, .d = b->d, .dtype = o->compute, .gradients = !b->forward_only };
    for (int i = 0; i < 2; i++) CLOOB_TRY(upload_rows(ctx, d, b, rng_subkey(key, (uint64_t)i), o->compute, &at[i]));
    peak_reset();
    int64_t before = memory_used(d);
    for (int i = 2; i < 4 && !b->forward_only; i++)
        CLOOB_TRY(d->alloc(ctx, d, (size_t)(b->n * b->d) * sizeof(float), "gradients", &at[i]));
    j.rows = (cloob_objective_rows){ .x = at[0], .y = at[1], .dx = at[2], .dy = at[3] };
    CLOOB_TRY(cloob_objective_plan_create(ctx, o, &shape, &j.plan));
    cloob_status status = take_times(ctx, d, b->repeats, b->n, evaluate_once, &j, out);
    out->peak_bytes -= before;
    out->loss = j.last.loss;
    cloob_objective_plan_destroy(j.plan);
    return status;
}

cloob_status loss_timing(cloob_ctx *ctx, const cloob_objective_options *o, const loss_bench *b, bench_result *out)
{
    device *d;
    void *at[4] = { NULL };
    *out = (bench_result){ 0 };
    if (b->n < 2 || b->d < 1 || b->repeats < 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a benchmark needs 2 pairs and a width");
    CLOOB_TRY(device_open(ctx, o->device ? o->device : "auto", &d));
    cloob_status status = time_objective(ctx, o, b, d, at, out);
    for (int i = 0; i < 4; i++) d->free(d, at[i]);
    device_close(d);
    return status;
}

/* ---- embedding ----------------------------------------------------------------------------------- */

typedef struct embedding {
    encoder *e;
    inputs in;
    float *rows;
    int64_t n;
    bool text;
} embedding;

static cloob_status embed_once(cloob_ctx *ctx, void *user)
{
    embedding *b = user;
    if (b->text) return encoder_texts(ctx, b->e, b->in.tokens, b->n, CLOOB_UNIT, b->rows);
    return encoder_images(ctx, b->e, b->in.rgb, b->n, CLOOB_UNIT, b->rows);
}

cloob_status embed_timing(cloob_ctx *ctx, const bench_options *o, bench_result *out)
{
    model_config c;
    encoder_options eo;
    precision compute;
    embedding b = { .n = o->batch, .text = o->text };
    params *p = NULL;
    device *d = NULL;
    *out = (bench_result){ 0 };
    encoder_options_init(&eo);
    CLOOB_TRY(check(ctx, o, false, &compute));
    CLOOB_TRY(model_config_load(ctx, o->model, &c));
    CLOOB_TRY(device_open(ctx, o->device ? o->device : "auto", &d));
    cloob_status status = precision_settle(ctx, d, NULL, &compute);
    out->precision = compute.name;
    eo.compute = compute.compute, eo.int8 = compute.int8, eo.fp8 = compute.fp8;
    eo.invariant = o->invariant, eo.batch = o->batch;
    if (status == CLOOB_OK) status = params_create(ctx, &c, d, eo.compute, PARAMS_INFER, &p);
    if (status == CLOOB_OK) status = params_init(ctx, p, o->seed);
    if (status == CLOOB_OK) status = encoder_create_on(ctx, p, &eo, &b.e);
    if (status == CLOOB_OK) status = make_inputs(ctx, d, &c, o->batch, o, &b.in);
    if (status == CLOOB_OK) b.rows = must(malloc((size_t)(o->batch * c.embed) * sizeof *b.rows));
    if (status == CLOOB_OK && o->profile) {
        *o->profile = (profile){ .ctx = ctx, .dev = d, .shapes = true };
        status = embed_once(ctx, &b); /* folds and packs weights */
        encoder_on_call(b.e, on_call, o->profile);
    }
    if (status == CLOOB_OK) status = take_times(ctx, d, o->repeats, o->batch, embed_once, &b, out);
    if (status == CLOOB_OK && o->profile) status = profile_finish(o->profile, o->repeats + 1, out->ms);
    free(b.rows);
    release_inputs(&b.in);
    encoder_destroy(b.e);
    params_destroy(p);
    device_close(d);
    return status;
}

void bench_options_init(bench_options *o)
{
    *o = (bench_options){ .model = "RN50", .batch = 32, .accum = 1, .repeats = 5, .method = CLOOB_METHOD_CLOOB };
}

/* ---- devices --------------------------------------------------------------------- */

int device_count(void) { return 1 + device_cuda_count(); }

static void describe_decoder(cloob_ctx *ctx, device *d, device_facts *out)
{
    device_decoder *decoder;
    cloob_status status = device_decoder_create(ctx, d, &decoder);
    snprintf(out->decoder, sizeof out->decoder, "%s",
             status == CLOOB_OK ? device_decoder_name(decoder) : cloob_error(ctx));
    device_decoder_destroy(decoder);
}

cloob_status device_describe(cloob_ctx *ctx, int index, device_facts *out)
{
    char name[32];
    device *d;
    size_t total = 0, available = 0;
    *out = (device_facts){ .automatic = "", .why = "" };
    snprintf(name, sizeof name, "cuda:%d", index - 1);
    CLOOB_TRY(device_open(ctx, index ? name : "cpu", &d));
    d->memory(d, &total, &available);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->runs, sizeof out->runs, "%s", d->runs);
    if (index) describe_decoder(ctx, d, out);
    precision_choice is = precision_of_device(d);
    out->automatic = is.name, out->why = is.why;
    out->total_bytes = (int64_t)total, out->free_bytes = (int64_t)available;
    device_close(d);
    return CLOOB_OK;
}
