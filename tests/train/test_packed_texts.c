/* Texts packed to their lengths against texts padded to the context: losses, gradients of every parameter,
 * whole trainings; on ref, cpu and, where there is one, a GPU. */
#include "setup.h"

#include <malloc.h>

#include "train/memory_budget.h"
#include "train/step_impl.h"

static cloob_ctx *ctx;

enum { ROWS = 6, CONTEXT = 77 };

/* How many tokens, start and end among them, the texts of a batch have. 1: the end token alone. */
static const int64_t lengths[][ROWS] = {
    { 2, 77, 13, 5, 31, 3 },    /* one token between nothing and the end, a full text, odd ones */
    { 14, 14, 14, 14, 14, 14 }, /* alike */
    { 77, 77, 77, 77, 77, 77 }, /* nothing to save */
    { 1, 2, 1, 3, 2, 1 },       /* hardly anything */
    { 9, 17, 12, 8, 33, 16 },
};
enum { BATCHES = sizeof lengths / sizeof *lengths };

static void fill_tokens(setup *u, const model_config *c)
{
    for (int64_t b = 0; b < BATCHES; b++)
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t t = 0, end = lengths[b][r] - 1; t < CONTEXT; t++) {
                int64_t i = (b * ROWS + r) * CONTEXT + t;
                int32_t word = (int32_t)(1 + rng_below(rng_key(4, "words"), (uint64_t)i, (uint64_t)(c->vocab - 3)));
                u->tokens[i] = (int32_t)(t == end ? c->vocab - 1 : t == 0 ? c->vocab - 2 : t > end ? 0 : word);
            }
}

static void options(step_options *o, const char *model, bool packed)
{
    step_options_init(o);
    CHECK_OK(ctx, model_config_by_name(ctx, model, &o->model));
    o->model.context = CONTEXT;
    o->batch = ROWS;
    o->float_images = true;
    o->pack_texts = packed;
}

static bool open_step(setup *u, const step_options *o, const char *where)
{
    CHECK_OK(ctx, setup_open(ctx, u, o, where, BATCHES * ROWS));
    if (u->s) fill_tokens(u, &o->model);
    return u->s != NULL;
}

static float *block_of(setup *u, const float *block, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    CHECK_OK(ctx, u->dev->to_host(ctx, u->dev, x, block, (size_t)n * sizeof *x));
    return x;
}

static float *gradients_of(setup *u) { return block_of(u, step_params(u->s)->grad, step_params(u->s)->trainable); }

/* The largest relative difference of a parameter's gradient; below a thousandth of the whole norm it counts
 * as part of that: some true gradients are 0. */
static double worst_gradient(const params *p, const float *got, const float *want)
{
    double worst = 0, square = 0;
    for (int64_t i = 0; i < p->trainable; i++) square += (double)want[i] * want[i];
    for (int i = 0; i < p->count; i++) {
        if (p->row[i].buffer || p->row[i].frozen) continue;
        worst = fmax(worst, relative_error(got + p->row[i].offset, want + p->row[i].offset, p->row[i].count,
                                           1e-3 * sqrt(square)));
    }
    return worst;
}

/* Every batch above by both; F32 sums of other lengths in another order, bf16 with the rounding of every
 * tensor. */
static void compare(step_options o, const char *where, double loss_error, double gradient_error)
{
    setup padded, packed;
    o.pack_texts = false;
    bool open = open_step(&padded, &o, where);
    o.pack_texts = true;
    open = open_step(&packed, &o, where) && open;
    double worst = 0, apart = 0;
    for (int b = 0; open && b < BATCHES; b++) {
        step_result r, q;
        CHECK_OK(ctx, step_gradients(ctx, padded.s, padded.images, padded.tokens + b * ROWS * CONTEXT, &r));
        CHECK_OK(ctx, step_gradients(ctx, packed.s, packed.images, packed.tokens + b * ROWS * CONTEXT, &q));
        float *want = gradients_of(&padded), *got = gradients_of(&packed);
        worst = fmax(worst, worst_gradient(step_params(padded.s), got, want));
        apart = fmax(apart, fabs(q.loss - r.loss) / fabs(r.loss));
        free(want), free(got);
    }
    printf("  %s %s on %s%s%s: losses differ by %.1e, gradients by %.1e\n", o.model.name, dtype_name(o.compute), where,
           o.accum > 1 ? ", micro-batches" : "", o.grad.checkpoint ? ", checkpoints" : "", apart, worst);
    CHECK(apart <= loss_error && worst <= gradient_error);
    setup_close(&padded), setup_close(&packed);
}

static void compare_on(const char *where)
{
    step_options o;
    options(&o, "tiny-vit", true);
    compare(o, where, 1e-6, 2e-5);
    options(&o, "tiny-rn", true);
    o.part.lock_image = true;
    compare(o, where, 1e-6, 2e-5);
    options(&o, "tiny-vit", true);
    o.batch = ROWS / 3, o.accum = 3; /* each micro-batch takes a tower of its own size */
    compare(o, where, 1e-6, 2e-5);
    options(&o, "tiny-vit", true);
    o.grad.checkpoint = true;
    compare(o, where, 1e-6, 2e-5);
    options(&o, "tiny-vit", true);
    o.part.lock_text = true;
    compare(o, where, 1e-6, 2e-5);
}

static void packed_is_padded_on_ref(void)
{
    step_options o;
    options(&o, "tiny-vit", true);
    compare(o, "ref", 1e-6, 2e-5);
    o.grad.recompute = false;
    compare(o, "ref", 1e-6, 2e-5);
}

static void packed_is_padded_on_the_cpu(void)
{
    step_options o;
    compare_on("cpu");
    options(&o, "tiny-vit", true);
    o.compute = CLOOB_BF16;
    compare(o, "cpu", 2e-3, 5e-2);
}

static void packed_is_padded_on_a_gpu(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    step_options o;
    compare_on("cuda");
    options(&o, "tiny-vit", true);
    o.compute = CLOOB_BF16;
    compare(o, "cuda", 2e-3, 5e-2);
    o.model.text_width = 128, o.model.text_heads = 2; /* heads on tensor cores */
    compare(o, "cuda", 2e-3, 5e-2);
}

/* ---- trainings ----------------------------------------------------------------------------------- */

enum { STEPS = 20 };

static void train(setup *u, double loss[STEPS])
{
    step_result r;
    for (int k = 0; k < STEPS; k++) {
        CHECK_OK(ctx, step_run(ctx, u->s, u->images, u->tokens + k % BATCHES * ROWS * CONTEXT, 1e-3, &r));
        loss[k] = r.loss;
    }
}

/* Batches change from tower to tower, on a GPU from recording to recording. */
static void train_on(const char *where)
{
    step_options o;
    setup u;
    double loss[3][STEPS], apart = 0;
    float *after[3] = { NULL };
    int64_t n = 0;
    for (int run = 0; run < 3; run++) { /* padded, packed, packed once more */
        options(&o, "tiny-vit", run > 0);
        o.hopfield_warmup = 11; /* the objective changes under way, too */
        if (open_step(&u, &o, where)) {
            train(&u, loss[run]);
            n = step_params(u.s)->total;
            after[run] = block_of(&u, step_params(u.s)->master, n);
        }
        setup_close(&u);
    }
    for (int k = 0; k < STEPS; k++) apart = fmax(apart, fabs(loss[1][k] - loss[0][k]) / fabs(loss[0][k]));
    printf("  %s: %d losses, packed and padded differ by %.1e\n", where, STEPS, apart);
    CHECK(apart < 1e-4); /* AdamW divides by the root of the second moment: rounding of small gradients grows */
    CHECK(memcmp(after[1], after[2], (size_t)n * sizeof(float)) == 0);
    for (int run = 0; run < 3; run++) free(after[run]);
}

static void trainings_are_alike_on_the_cpu(void) { train_on("cpu"); }

static void trainings_are_alike_on_a_gpu(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    train_on("cuda");
}

/* ---- towers -------------------------------------------------------------------------------------- */

static void batches_take_the_smallest_tower_that_holds_them(void)
{
    static const int64_t rows[] = { 16, 32, 64 };
    int32_t tokens[3 * 32] = { 0 };
    model_config c;
    model_config_init(&c);
    for (int length = 1; length <= 21; length++) {
        for (int n = 0; n < 3; n++)
            for (int t = 0; t < 32; t++) tokens[n * 32 + t] = t < length ? t + 1 : 0;
        int want = 3 * length <= 16 ? 0 : 3 * length <= 32 ? 1 : 2;
        CHECK(towers_choose(&c, rows, 3, tokens, 3, 32) == want);
    }
}

static void short_texts_take_less(void)
{
    step_options o;
    setup u;
    step_result r;
    options(&o, "tiny-vit", true);
    if (!open_step(&u, &o, "cpu")) return;
    exec *tower[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        CHECK_OK(ctx, step_gradients(ctx, u.s, u.images, u.tokens + b * ROWS * CONTEXT, &r));
        tower[b] = step_tower(u.s, true);
    }
    CHECK(tower[0] != tower[2] && tower[1] != tower[2] && tower[3] != tower[1] && tower[4] != tower[2]);
    setup_close(&u);
}

/* A step that allocates does so every time; a library's thread that ends late gives its memory back once. */
static void a_step_allocates_nothing(void)
{
    step_options o;
    setup u;
    double loss[STEPS];
    long long more = 1;
    options(&o, "tiny-vit", true);
    if (!open_step(&u, &o, "cpu")) return;
    train(&u, loss);
    for (int window = 0; window < 3 && more; window++) {
        struct mallinfo2 before = mallinfo2();
        train(&u, loss);
        struct mallinfo2 after = mallinfo2();
        more = (long long)(after.uordblks + after.hblkhd) - (long long)(before.uordblks + before.hblkhd);
        if (more) printf("  %lld bytes more\n", more);
    }
    CHECK(more == 0);
    setup_close(&u);
}

/* The towers of all sizes share one arena: that of the largest, which also holds where texts lie. */
static void memory_is_that_of_one_tower(void)
{
    step_options o;
    size_t bytes[2];
    for (int packed = 0; packed < 2; packed++) {
        memory_need n;
        device *dev = NULL;
        CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
        options(&o, "tiny-vit", packed);
        o.batch = 64;
        memory_case c = { &o, dev, 1, 0, 0 };
        CHECK_OK(ctx, memory_plan(ctx, &c, &n));
        bytes[packed] = n.step.text_bytes;
        device_close(dev);
    }
    printf("  text tower: %zu bytes padded, %zu packed\n", bytes[0], bytes[1]);
    CHECK(bytes[1] < bytes[0] + bytes[0] / 20);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(a_step_allocates_nothing); /* first: it counts the whole process, and a GPU in use has threads of its own */
    RUN(packed_is_padded_on_ref);
    RUN(packed_is_padded_on_the_cpu);
    RUN(packed_is_padded_on_a_gpu);
    RUN(trainings_are_alike_on_the_cpu);
    RUN(trainings_are_alike_on_a_gpu);
    RUN(batches_take_the_smallest_tower_that_holds_them);
    RUN(short_texts_take_less);
    RUN(memory_is_that_of_one_tower);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
