/* Patch dropout: how many patches stay and which, gradients against slopes, the same patches for any number of threads
 * and micro-batches, resumed runs, none of it in evaluation. */
#include "setup.h"
#include "small_run.h"

#include "model/encoder.h"
#include "train/step.h"

static cloob_ctx *ctx;

enum { ROWS = 6 };

static void options(step_options *o, double share)
{
    step_options_init(o);
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &o->model)); /* 4 x 4 patches and a class token */
    o->model.patch_dropout = share;
    o->batch = ROWS;
    o->float_images = true;
}

/* int(16 (1 - p)), at least one, as open_clip counts. */
static void token_counts_equal_open_clip(void)
{
    static const struct {
        double share;
        int64_t kept;
    } rows[] = { { 0, 0 }, { 0.25, 12 }, { 0.5, 8 }, { 0.75, 4 }, { 0.7, 4 }, { 0.99, 1 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        step_options o;
        options(&o, rows[i].share);
        CHECK(model_config_patches_kept(&o.model) == rows[i].kept);
        CHECK(patch_dropout_tokens(&o.model) == (rows[i].kept ? rows[i].kept + 1 : 0));
    }
}

/* Rising, the class token first, every patch as often as any other, other rows and steps other patches. */
static void draws_are_even(void)
{
    enum { MANY = 4000, K = 9 };
    static int32_t kept[MANY * K], again[MANY * K];
    step_options o;
    int count[17] = { 0 }, same = 0;
    options(&o, 0.5);
    patch_dropout_draw(ctx, &o.model, 3, 7, 100, MANY, kept);
    for (int r = 0; r < MANY; r++)
        for (int k = 0; k < K; k++) {
            count[kept[r * K + k]]++;
            CHECK(k == 0 ? kept[r * K] == 0 : kept[r * K + k] > kept[r * K + k - 1] && kept[r * K + k] <= 16);
        }
    for (int t = 1; t <= 16; t++) CHECK(abs(count[t] - MANY / 2) < 5 * 32); /* five standard deviations */
    patch_dropout_draw(ctx, &o.model, 3, 8, 100, MANY, again);
    for (int r = 0; r < MANY; r++) same += memcmp(kept + r * K, again + r * K, K * sizeof *kept) == 0;
    CHECK(same < 10);                                               /* one in 12,870 by chance */
    patch_dropout_draw(ctx, &o.model, 3, 7, 110, MANY - 10, again); /* rows are rows of the whole batch */
    CHECK(memcmp(kept + 10 * K, again, (MANY - 10) * K * sizeof *kept) == 0);
    cloob_ctx *single = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    patch_dropout_draw(single, &o.model, 3, 7, 100, MANY, again); /* and threads change no byte */
    CHECK(memcmp(kept, again, sizeof kept) == 0);
    cloob_ctx_destroy(single);
}

static double loss_at(setup *u, const float *direction, double by)
{
    params *p = step_params(u->s);
    step_result r;
    for (int64_t i = 0; i < p->trainable; i++) p->master[i] += (float)by * direction[i];
    step_set_draws(u->s, 5, 3);
    CHECK_OK(ctx, step_gradients(ctx, u->s, u->images, u->tokens, &r));
    for (int64_t i = 0; i < p->trainable; i++) p->master[i] -= (float)by * direction[i];
    return r.loss;
}

/* The slope of the loss along the gradient is its square norm. 1e-2: steps that leave float's rounding small bend
 * it. */
static void gradients_are_slopes(void)
{
    step_options o;
    setup u;
    double square = 0, by;
    options(&o, 0.5);
    CHECK_OK(ctx, setup_open(ctx, &u, &o, "cpu", ROWS));
    params *p = step_params(u.s);
    float *g = calloc((size_t)p->trainable, sizeof *g);
    loss_at(&u, g, 0);
    memcpy(g, p->grad, (size_t)p->trainable * sizeof *g);
    for (int64_t i = 0; i < p->trainable; i++) square += (double)g[i] * g[i];
    by = 1e-3 / sqrt(square);
    double slope = (loss_at(&u, g, by) - loss_at(&u, g, -by)) / (2 * by);
    printf("  slope %.6g, gradient %.6g\n", slope, square);
    CHECK_NEAR(slope / square, 1, 1e-2);
    free(g);
    setup_close(&u);
}

/* Gradients of step 3 with so many threads and micro-batches, on a device. */
static float *gradients(const char *where, int threads, int64_t accum, double share, double *loss, int64_t *n)
{
    cloob_ctx *own = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = threads });
    step_options o;
    setup u;
    step_result r;
    options(&o, share);
    o.batch = ROWS / accum, o.accum = accum;
    CHECK_OK(own, setup_open(own, &u, &o, where, ROWS));
    step_set_draws(u.s, 5, 3);
    CHECK_OK(own, step_gradients(own, u.s, u.images, u.tokens, &r));
    *n = step_params(u.s)->trainable;
    *loss = r.loss;
    float *g = malloc((size_t)*n * sizeof *g);
    CHECK_OK(own, u.dev->to_host(own, u.dev, g, step_params(u.s)->grad, (size_t)*n * sizeof *g));
    setup_close(&u);
    cloob_ctx_destroy(own);
    return g;
}

static void threads_and_micro_batches_change_nothing(void)
{
    double a, b, c, d, e;
    int64_t n;
    float *one = gradients("cpu", 1, 1, 0.5, &a, &n), *two = gradients("cpu", 2, 1, 0.5, &b, &n);
    float *micro = gradients("cpu", 1, 3, 0.5, &c, &n), *ref = gradients("ref", 1, 1, 0.5, &d, &n);
    float *all = gradients("cpu", 1, 1, 0, &e, &n);
    CHECK_NEAR(b, a, 1e-6);
    CHECK(relative_error(two, one, n, 1e-6) < 1e-5);
    CHECK_NEAR(c, a, 1e-6);
    CHECK_NEAR(d, a, 1e-5);
    CHECK(relative_error(micro, one, n, 1e-6) < 1e-5); /* sums in another order */
    CHECK(relative_error(ref, one, n, 1e-6) < 1e-4);
    CHECK(fabs(e - a) > 1e-6 && relative_error(all, one, n, 1e-6) > 1e-2);
    free(one), free(two), free(micro), free(ref), free(all);
}

static void a_gpu_gives_the_same(void)
{
    double a, b, c;
    int64_t n;
    if (!device_cuda_count()) SKIP("no GPU here");
    float *cpu = gradients("cpu", 1, 1, 0.5, &a, &n), *gpu = gradients("cuda", 1, 1, 0.5, &b, &n);
    float *micro = gradients("cuda", 1, 3, 0.5, &c, &n);
    CHECK_NEAR(b, a, 1e-5);
    CHECK_NEAR(c, a, 1e-5);
    printf("  gradients differ by %.1e\n", relative_error(gpu, cpu, n, 1e-6));
    CHECK(relative_error(gpu, cpu, n, 1e-6) < 1e-3 && relative_error(micro, cpu, n, 1e-6) < 1e-3);
    free(cpu), free(gpu), free(micro);
}

/* The encoder of a training under way sees whole images. */
static void evaluation_sees_all_patches(void)
{
    float *out[2];
    for (int k = 0; k < 2; k++) {
        step_options o;
        setup u;
        encoder *e;
        encoder_options eo = { .compute = CLOOB_F32, .batch = ROWS };
        options(&o, k ? 0.75 : 0);
        CHECK_OK(ctx, setup_open(ctx, &u, &o, "cpu", ROWS));
        out[k] = calloc((size_t)(ROWS * u.D), sizeof(float));
        uint8_t *bytes = calloc((size_t)(ROWS * u.image), 1);
        for (int64_t i = 0; i < ROWS * u.image; i++) bytes[i] = (uint8_t)(i * 7 % 251);
        CHECK_OK(ctx, encoder_create_on(ctx, step_params(u.s), &eo, &e));
        CHECK_OK(ctx, encoder_images(ctx, e, bytes, ROWS, CLOOB_UNIT, out[k]));
        encoder_destroy(e);
        if (k) CHECK(memcmp(out[0], out[1], (size_t)(ROWS * u.D) * sizeof(float)) == 0);
        free(bytes);
        setup_close(&u);
    }
    free(out[0]), free(out[1]);
}

static void less_memory_is_taken(void)
{
    size_t bytes[2];
    for (int k = 0; k < 2; k++) {
        step_options o;
        setup u;
        options(&o, k ? 0.75 : 0);
        CHECK_OK(ctx, setup_open(ctx, &u, &o, "cpu", ROWS));
        bytes[k] = step_memory_of(u.s).image_bytes;
        setup_close(&u);
    }
    printf("  image tower: %zu bytes with all patches, %zu with a quarter\n", bytes[0], bytes[1]);
    CHECK(bytes[1] < bytes[0] * 2 / 3);
}

/* ---- runs ---------------------------------------------------------------------------------------- */

static cloob_status train(const char *name, const char *resume, double share, int64_t steps)
{
    cloob_train_options o;
    cloob_train_summary s;
    small_run_options(&o, name, resume);
    if (strcmp(name, "resnet") == 0) o.model = "tiny-rn";
    o.max_steps = steps;
    o.force_patch_dropout = share;
    return cloob_train(ctx, &o, &s);
}

static void resumed_runs_end_alike(void)
{
    CHECK_OK(ctx, train("whole", NULL, 0.5, 9));
    CHECK_OK(ctx, train("parts", NULL, 0.5, 4));
    CHECK_OK(ctx, train("parts", "latest", -1, 9)); /* the run's own share */
    CHECK(same_checkpoints(ctx, "whole", "parts", "latest", ""));
    CHECK_OK(ctx, train("none", NULL, -1, 9));
    CHECK(!same_checkpoints(ctx, "whole", "none", "latest", ""));
    CHECK_OK(ctx, train("parts", "latest", 0, 12)); /* the last steps see whole images */
    CHECK(train("resnet", NULL, 0.5, 2) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "ResNet"));
}

int main(void)
{
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 2 });
    scratch_folder(logs, sizeof logs);
    RUN(token_counts_equal_open_clip);
    RUN(draws_are_even);
    RUN(gradients_are_slopes);
    RUN(threads_and_micro_batches_change_nothing);
    RUN(a_gpu_gives_the_same);
    RUN(evaluation_sees_all_patches);
    RUN(less_memory_is_taken);
    RUN(resumed_runs_end_alike);
    check_remove(logs);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
