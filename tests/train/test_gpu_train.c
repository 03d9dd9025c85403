/* Training on a GPU: the same bytes again, after a resume, and when batches arrive ahead; the CPU's numbers
 * within rounding; memory as planned. CLOOB_TEST_DEVICE=cpu runs the same checks there. */
#include "check.h"

#include <unistd.h>

#include "core/rng.h"
#include "model/encoder.h"
#include "tensor/async_copy.h"
#include "train/checkpoint.h"
#include "train/memory_budget.h"

static cloob_ctx *ctx;
static char folder[256];

static const char *where(void)
{
    const char *named = getenv("CLOOB_TEST_DEVICE");
    if (named) return named;
    return device_cuda_count() ? "cuda" : NULL;
}

#define NEEDS_GPU()                                                                                                    \
    do {                                                                                                               \
        if (!where()) SKIP("no GPU here");                                                                             \
    } while (0)

/* ---- a training of its own ----------------------------------------------------------------------- */

enum { BATCH = 12, BATCHES = 4 };

typedef struct setup {
    device *dev;
    step *s;
    int64_t image_bytes, rows, context; /* of one batch */
    uint8_t *images;                    /* BATCHES of them, in memory that copies read by themselves */
    int32_t *tokens;
} setup;

static void fill(setup *u, const model_config *c)
{
    uint64_t key = rng_key(3, "images");
    for (int64_t i = 0; i < BATCHES * u->image_bytes; i++) u->images[i] = (uint8_t)rng_u64(key, (uint64_t)i);
    for (int64_t r = 0; r < BATCHES * u->rows; r++)
        for (int64_t t = 0; t < u->context; t++) {
            int64_t end = 2 + r % (u->context - 2);
            int64_t word =
                1 + (int64_t)rng_below(rng_key(4, "words"), (uint64_t)(r * u->context + t), (uint64_t)(c->vocab - 3));
            u->tokens[r * u->context + t] = (int32_t)(t == 0     ? c->vocab - 2
                                                      : t == end ? c->vocab - 1
                                                      : t > end  ? 0
                                                                 : word);
        }
}

static void options(step_options *o, const char *model, cloob_dtype compute)
{
    step_options_init(o);
    CHECK_OK(ctx, model_config_by_name(ctx, model, &o->model));
    o->batch = BATCH;
    o->compute = compute;
    o->hopfield_warmup = 4; /* the objective changes under way, and with it what a GPU has recorded */
}

static bool open_on(setup *u, const step_options *o, const char *device_name)
{
    const model_config *c = &o->model;
    *u = (setup){ .rows = o->batch * o->accum, .context = c->context };
    u->image_bytes = u->rows * c->image_size * c->image_size * 3;
    CHECK_OK(ctx, device_open(ctx, device_name, &u->dev));
    if (!u->dev) return false;
    CHECK_OK(ctx, step_create(ctx, o, u->dev, NULL, &u->s));
    if (!u->s) return false;
    CHECK_OK(ctx, params_init(ctx, step_params(u->s), 7));
    u->images = async_copy_host_alloc(u->dev, (size_t)(BATCHES * u->image_bytes));
    u->tokens = async_copy_host_alloc(u->dev, (size_t)(BATCHES * u->rows * u->context) * sizeof *u->tokens);
    fill(u, c);
    return true;
}

static void close_setup(setup *u)
{
    step_destroy(u->s);
    if (u->images) async_copy_host_free(u->dev, u->images);
    if (u->tokens) async_copy_host_free(u->dev, u->tokens);
    device_close(u->dev);
}

static const uint8_t *images_of(const setup *u, int k) { return u->images + (k % BATCHES) * u->image_bytes; }
static const int32_t *tokens_of(const setup *u, int k) { return u->tokens + (k % BATCHES) * u->rows * u->context; }

static void train(setup *u, int from, int to)
{
    step_result r = { 0 };
    for (int k = from; k < to; k++) {
        CHECK_OK(ctx, step_run(ctx, u->s, images_of(u, k), tokens_of(u, k), 1e-3, &r));
        CHECK(isfinite(r.loss) && !r.skipped);
    }
}

/* The next batch sets out before each step, from memory that is written over as soon as that is allowed. */
static void train_ahead(setup *u, int steps)
{
    step_result r;
    size_t n = (size_t)u->image_bytes, m = (size_t)(u->rows * u->context) * sizeof(int32_t);
    bool ahead = step_looks_ahead(u->s);
    uint8_t *images[2] = { async_copy_host_alloc(u->dev, n), async_copy_host_alloc(u->dev, n) };
    int32_t *tokens[2] = { async_copy_host_alloc(u->dev, m), async_copy_host_alloc(u->dev, m) };
    for (int put = 0, k = 0; k < steps; k++) {
        for (; put < steps && put <= k + ahead; put++) {
            memcpy(images[put % 2], images_of(u, put), n);
            memcpy(tokens[put % 2], tokens_of(u, put), m);
            CHECK_OK(ctx, step_stage(ctx, u->s, images[put % 2], tokens[put % 2]));
        }
        CHECK_OK(ctx, step_run(ctx, u->s, NULL, NULL, 1e-3, &r));
    }
    CHECK(step_run(ctx, u->s, NULL, NULL, 1e-3, &r) == CLOOB_ERR_ARGUMENT); /* nothing is staged */
    for (int i = 0; i < 2; i++) async_copy_host_free(u->dev, images[i]), async_copy_host_free(u->dev, tokens[i]);
}

/* Weights, running statistics and moments, one after the other. */
static float *state_of(setup *u, int64_t *count)
{
    const params *p = step_params(u->s);
    step_state st = step_get_state(u->s);
    int64_t n = p->trainable;
    *count = p->total + (st.ema ? 3 : 2) * n;
    float *all = malloc((size_t)*count * sizeof *all);
    CHECK_OK(ctx, u->dev->to_host(ctx, u->dev, all, p->master, (size_t)p->total * sizeof *all));
    CHECK_OK(ctx, u->dev->to_host(ctx, u->dev, all + p->total, st.m, (size_t)n * sizeof *all));
    CHECK_OK(ctx, u->dev->to_host(ctx, u->dev, all + p->total + n, st.v, (size_t)n * sizeof *all));
    if (st.ema) CHECK_OK(ctx, u->dev->to_host(ctx, u->dev, all + p->total + 2 * n, st.ema, (size_t)n * sizeof *all));
    return all;
}

static bool same(float *a, float *b, int64_t n)
{
    bool equal = memcmp(a, b, (size_t)n * sizeof *a) == 0;
    if (!equal) printf("  differ by %.2e\n", relative_error(a, b, n, 1e-12));
    free(a), free(b);
    return equal;
}

static bool same_scalars(const step_state *a, const step_state *b)
{
    bool equal = memcmp(&a->scalars, &b->scalars, sizeof a->scalars) == 0 && a->count == b->count;
    if (equal) return true;
    printf("  after %lld and %lld updates:\n", (long long)a->count, (long long)b->count);
    const learned_scalar *x = &a->scalars.inv_tau, *y = &b->scalars.inv_tau; /* inv_tau, beta, bias */
    for (int i = 0; i < 3; i++)
        printf("    %.17g %.17g %.17g and %.17g %.17g %.17g\n", x[i].value, x[i].m, x[i].v, y[i].value, y[i].m, y[i].v);
    return false;
}

static const struct {
    const char *model;
    cloob_dtype compute;
} kinds[] = {
    { "tiny-rn", CLOOB_F32 }, { "tiny-rn", CLOOB_BF16 }, { "tiny-vit", CLOOB_F32 }, { "tiny-vit", CLOOB_BF16 }
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* bf16 on a CPU takes minutes. */
static bool left_out(int kind) { return kinds[kind].compute == CLOOB_BF16 && strcmp(where(), "cpu") == 0; }

/* ---- the same bytes ------------------------------------------------------------------------------ */

static float *after_training(const step_options *o, int steps, bool ahead, int64_t *n)
{
    setup u;
    float *state = NULL;
    if (open_on(&u, o, where())) {
        if (ahead) train_ahead(&u, steps);
        else train(&u, 0, steps);
        state = state_of(&u, n);
    }
    close_setup(&u);
    return state;
}

static void two_runs_give_the_same_bytes(void)
{
    NEEDS_GPU();
    for (int i = 0; i < KINDS; i++) {
        step_options o;
        int64_t n = 0;
        if (left_out(i)) continue;
        options(&o, kinds[i].model, kinds[i].compute);
        float *a = after_training(&o, 8, false, &n), *b = after_training(&o, 8, false, &n);
        CHECK(a && b && same(a, b, n));
    }
}

static void batches_ahead_give_the_same_bytes(void)
{
    NEEDS_GPU();
    for (int i = 0; i < KINDS; i++) {
        step_options o;
        int64_t n = 0;
        if (left_out(i)) continue;
        options(&o, kinds[i].model, kinds[i].compute);
        o.pack_texts = i % 2; /* which tower a batch takes is known when it sets out */
        float *a = after_training(&o, 8, false, &n), *b = after_training(&o, 8, true, &n);
        CHECK(a && b && same(a, b, n));
    }
}

static void resumed(const step_options *o)
{
    setup whole, first, second;
    char path[256];
    int64_t n = 0;
    run_position at = { .updates = 10 }, back;
    checkpoint_meta meta = { .method = "cloob", .name = "test", .inv_tau = 30, .beta = 8 };
    snprintf(path, sizeof path, "%s/half.safetensors", folder);
    if (!open_on(&whole, o, where()) || !open_on(&first, o, where()) || !open_on(&second, o, where())) return;
    train(&whole, 0, 20);
    train(&first, 0, 10);
    CHECK_OK(ctx, checkpoint_write(ctx, path, first.s, &at, &meta));
    CHECK_OK(ctx, checkpoint_read(ctx, path, second.s, &back));
    train(&second, 10, 20);
    CHECK(same(state_of(&whole, &n), state_of(&second, &n), n));
    step_state a = step_get_state(whole.s), b = step_get_state(second.s);
    CHECK(same_scalars(&a, &b));
    close_setup(&whole), close_setup(&first), close_setup(&second);
    unlink(path);
}

static void a_resumed_run_gives_the_same_bytes(void)
{
    NEEDS_GPU();
    for (int i = 0; i < KINDS; i++) {
        step_options o;
        if (left_out(i)) continue;
        options(&o, kinds[i].model, kinds[i].compute);
        o.ema = i % 2 ? 0.9 : 0;
        o.learn_inv_tau = i == 0;
        o.pack_texts = i != 1;
        o.hopfield_warmup = 13; /* after the resume */
        o.clip = 1;
        printf("  %s, %s\n", kinds[i].model, dtype_name(kinds[i].compute));
        resumed(&o);
    }
}

/* ---- the same numbers ---------------------------------------------------------------------------- */

/* Without batch norm, micro-batches give the gradient of the whole batch. */
static void micro_batches_give_the_gradient_of_one(void)
{
    NEEDS_GPU();
    step_options o;
    setup one, many;
    step_result r, q;
    int64_t n;
    options(&o, "tiny-vit", CLOOB_F32);
    if (!open_on(&one, &o, where())) return;
    o.batch = BATCH / 3, o.accum = 3;
    if (!open_on(&many, &o, where())) return;
    n = step_params(one.s)->trainable;
    float *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    for (int k = 0; k < 3; k++) { /* the places of the feed change sides */
        CHECK_OK(ctx, step_gradients(ctx, one.s, images_of(&one, k), tokens_of(&one, k), &r));
        CHECK_OK(ctx, step_gradients(ctx, many.s, images_of(&one, k), tokens_of(&one, k), &q));
        CHECK_OK(ctx, one.dev->to_host(ctx, one.dev, a, step_params(one.s)->grad, (size_t)n * sizeof *a));
        CHECK_OK(ctx, many.dev->to_host(ctx, many.dev, b, step_params(many.s)->grad, (size_t)n * sizeof *b));
        CHECK_NEAR(q.loss, r.loss, 1e-5);
        CHECK(relative_error(b, a, n, 1e-6) < 1e-5); /* sums of 12 rows in another order */
    }
    free(a), free(b);
    close_setup(&one), close_setup(&many);
}

/* Weights, moments and the average after some steps. 1e-3: AdamW divides by the root of the second moment, so
 * a gradient near zero moves a weight by up to lr whichever sign rounding gives it. */
static void averages_are_those_of_the_cpu(void)
{
    NEEDS_GPU();
    step_options o;
    setup gpu, cpu;
    int64_t n = 0;
    options(&o, "tiny-vit", CLOOB_F32);
    o.ema = 0.75;
    o.clip = 0.5;
    o.part.lock_text = true; /* nothing of it is averaged: it stays */
    if (!open_on(&gpu, &o, where()) || !open_on(&cpu, &o, "cpu")) return;
    train(&gpu, 0, 5);
    train(&cpu, 0, 5);
    float *a = state_of(&gpu, &n), *b = state_of(&cpu, &n);
    int64_t total = step_params(cpu.s)->total, trainable = step_params(cpu.s)->trainable, ema = total + 2 * trainable;
    double own = relative_error(a, b, total, 1e-6), average = relative_error(a + ema, b + ema, trainable, 1e-6);
    printf("  after 5 steps: weights differ by %.1e, their average by %.1e\n", own, average);
    CHECK(own < 1e-3 && average < 1e-3);
    CHECK(relative_error(b + ema, b, trainable, 1e-6) > 1e-5); /* it is not simply the weights */
    free(a), free(b);
    close_setup(&gpu), close_setup(&cpu);
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void memory_is_as_planned(void)
{
    NEEDS_GPU();
    for (int i = 0; i < KINDS; i++) {
        step_options o;
        setup u;
        if (left_out(i)) continue;
        options(&o, kinds[i].model, kinds[i].compute);
        o.batch = 96;
        o.pack_texts = i % 2;
        if (!open_on(&u, &o, where())) return;
        memory_case c = { &o, u.dev, 1, 0, 0 };
        memory_need n;
        CHECK_OK(ctx, memory_plan(ctx, &c, &n));
        step_memory m = step_memory_of(u.s);
        printf("  %s, %s: planned %.1f MiB, taken %.1f\n", kinds[i].model, dtype_name(kinds[i].compute),
               (double)n.step.total_bytes / 1048576, (double)m.total_bytes / 1048576);
        CHECK(n.step.total_bytes >= m.total_bytes);
        CHECK(n.step.total_bytes - m.total_bytes < (size_t)400 << 20); /* the bounds of one op in each tower */
        setenv("CLOOB_MEMORY_LIMIT", "1M", 1);
        CHECK(memory_check(ctx, &c, &n) == CLOOB_ERR_MEMORY);
        unsetenv("CLOOB_MEMORY_LIMIT");
        close_setup(&u);
    }
}

/* ---- embedding ----------------------------------------------------------------------------------- */

static float *embed(setup *u, cloob_dtype compute, bool invariant, int64_t n, bool text)
{
    encoder_options eo = { .compute = compute, .invariant = invariant, .batch = 8 };
    encoder *e = NULL;
    int64_t D = step_params(u->s)->config.embed;
    float *out = calloc((size_t)(n * D), sizeof *out);
    CHECK_OK(ctx, encoder_create_on(ctx, step_params(u->s), &eo, &e));
    if (e && text) CHECK_OK(ctx, encoder_texts(ctx, e, u->tokens, n, CLOOB_UNIT, out));
    else if (e) CHECK_OK(ctx, encoder_images(ctx, e, u->images, n, CLOOB_UNIT, out));
    encoder_destroy(e);
    return out;
}

/* Over the parameters of a training under way, batches that do not divide. */
static void embeddings_are_those_of_the_cpu(void)
{
    NEEDS_GPU();
    enum { N = 21 };
    for (int i = 0; i < KINDS * 2; i++) {
        step_options o;
        setup gpu, cpu;
        cloob_dtype compute = kinds[i / 2].compute;
        if (left_out(i / 2)) continue;
        options(&o, kinds[i / 2].model, compute);
        if (!open_on(&gpu, &o, where())) return;
        o.compute = CLOOB_F32;
        if (!open_on(&cpu, &o, "cpu")) return;
        for (int text = 0; text < 2; text++) {
            float *a = embed(&gpu, compute, i % 2, N, text), *b = embed(&cpu, CLOOB_F32, false, N, text);
            double error = relative_error(a, b, N * o.model.embed, 1e-6);
            printf("  %s, %s, %s: differ by %.1e\n", o.model.name, dtype_name(compute), text ? "texts" : "images",
                   error);
            CHECK(error < (compute == CLOOB_F32 ? 1e-4 : 2e-2));
            free(a), free(b);
        }
        close_setup(&gpu), close_setup(&cpu);
    }
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    scratch_folder(folder, sizeof folder);
    setenv("CLOOB_TUNE_CACHE", folder, 0); /* one choice of kernels for all runs here */
    RUN(two_runs_give_the_same_bytes);
    RUN(batches_ahead_give_the_same_bytes);
    RUN(a_resumed_run_gives_the_same_bytes);
    RUN(micro_batches_give_the_gradient_of_one);
    RUN(averages_are_those_of_the_cpu);
    RUN(memory_is_as_planned);
    RUN(embeddings_are_those_of_the_cpu);
    cloob_ctx_destroy(ctx);
    check_remove(folder);
    return check_summary();
}
