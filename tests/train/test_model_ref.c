/* Small models against tests/ref/model.json (tests/ref/make/make_model_ref.py): outputs, gradients, running statistics,
 * three steps of training, on every host backend; steps that learn both scales, with every method. */
#include "setup.h"

#include "core/json.h"
#include "model/encoder.h"
#include "train/step.h"

enum { ROWS = 6 };

static cloob_ctx *ctx;
static arena memory;
static json *frozen;

static double list_error(const json *want, const float *got)
{
    double diff = 0, norm = 0;
    int64_t i = 0;
    for (const json *v = want ? want->child : NULL; v; v = v->next, i++) {
        diff += ((double)got[i] - v->number) * ((double)got[i] - v->number);
        norm += v->number * v->number;
    }
    return want ? sqrt(diff / norm) : INFINITY;
}

/* A tensor's norm and its product with a procedural vector, against the frozen two; relative to `floor_` at least. */
static double pair_error(const json *want, const char *name, const float *x, int64_t n, double floor_)
{
    char probe[200];
    double square = 0, along = 0;
    snprintf(probe, sizeof probe, "probe.%s", name);
    for (int64_t i = 0; i < n; i++) square += (double)x[i] * x[i], along += (double)x[i] * procedural(probe, i);
    if (!want || want->count != 2) return INFINITY;
    double norm = want->child->number, scale = norm > floor_ ? norm : floor_;
    double a = fabs(sqrt(square) - norm), b = fabs(along - want->child->next->number);
    return (a > b ? a : b) / scale;
}

static double whole_norm(const json *gradients)
{
    double square = 0;
    for (const json *g = gradients->child; g; g = g->next) square += g->child->number * g->child->number;
    return sqrt(square);
}

/* Every parameter (or buffer) against a table of pairs. Elements whose true gradient is 0 turn into noise under
 * AdamW. */
static double table_error(const params *p, const json *table, bool gradient, bool buffers, double floor_)
{
    double worst = 0;
    for (int i = 0; i < p->count; i++) {
        const param *r = &p->row[i];
        bool noise = !gradient && !buffers && (strstr(r->name, "k_proj.bias") || strstr(r->name, "in_proj_bias"));
        if (r->buffer != buffers || noise) continue;
        float *x = malloc((size_t)r->count * sizeof *x);
        CHECK_OK(ctx, params_get(ctx, p, i, gradient, x));
        double error = pair_error(json_get(table, r->name), r->name, x, r->count, floor_);
        if (!(error < 1e-4)) printf("  %s: %.2e\n", r->name, error);
        worst = error > worst ? error : worst;
        free(x);
    }
    return worst;
}

static void check_eval(params *p, const json *want, const float *images, const int32_t *tokens)
{
    encoder *e;
    encoder_options o;
    float out[ROWS * 24];
    for (int invariant = 0; invariant < 2; invariant++) {
        encoder_options_init(&o);
        o.invariant = invariant;
        o.batch = 4; /* a full batch and a padded one */
        CHECK_OK(ctx, encoder_create_on(ctx, p, &o, &e));
        CHECK_OK(ctx, encoder_float_images(ctx, e, images, ROWS, CLOOB_RAW, out));
        CHECK(list_error(json_get(want, "eval_image"), out) < 1e-5);
        CHECK_OK(ctx, encoder_texts(ctx, e, tokens, ROWS, CLOOB_RAW, out));
        CHECK(list_error(json_get(want, "eval_text"), out) < 1e-5);
        encoder_destroy(e);
    }
}

static void check_training(step *s, const json *want, const float *images, const int32_t *tokens)
{
    const json *loss = json_get(want, "losses")->child;
    double floor_ = 1e-3 * whole_norm(json_get(want, "gradient"));
    for (int k = 0; k < 3; k++, loss = loss->next) {
        step_result r;
        CHECK_OK(ctx, step_run(ctx, s, images, tokens, 1e-3, &r));
        CHECK_NEAR(r.loss, loss->number, k ? 1e-4 : 1e-5);
        if (k) continue;
        CHECK(table_error(step_params(s), json_get(want, "gradient"), true, false, floor_) < 1e-4);
        CHECK(table_error(step_params(s), json_get(want, "statistics"), false, true, 1e-2) < 1e-5);
    }
    const json *after = json_get(want, "after"); /* AdamW makes a whole step of a gradient that rounds to either sign */
    if (after) CHECK(table_error(step_params(s), after, false, false, 1e-2) < 1e-4);
}

/* size: of the images; 0: the model's own. */
static void check_model_at(const char *name, int64_t size, const char *where)
{
    char key[64];
    device *dev = NULL;
    step *s = NULL;
    step_options o;
    snprintf(key, sizeof key, size ? "%s %lld" : "%s", name, (long long)size);
    const json *want = json_get(frozen, key);
    CHECK(want);
    step_options_init(&o);
    o.batch = ROWS;
    o.float_images = true;
    o.wd = 0.1; /* as in the script */
    CHECK_OK(ctx, model_config_by_name(ctx, name, &o.model));
    if (size) o.model.image_size = size;
    CHECK_OK(ctx, device_open(ctx, where, &dev));
    CHECK_OK(ctx, step_create(ctx, &o, dev, NULL, &s));
    float *images = malloc((size_t)(ROWS * 3 * o.model.image_size * o.model.image_size) * sizeof *images);
    int32_t *tokens = malloc((size_t)(ROWS * o.model.context) * sizeof *tokens);
    procedural_images(images, ROWS, o.model.image_size);
    procedural_tokens(tokens, ROWS, &o.model);
    CHECK_OK(ctx, procedural_params(ctx, step_params(s)));
    check_eval(step_params(s), want, images, tokens);
    check_training(s, want, images, tokens);
    free(images);
    free(tokens);
    step_destroy(s);
    device_close(dev);
}

static void check_model(const char *name, const char *where) { check_model_at(name, 0, where); }

static void resnet_on_ref(void) { check_model("tiny-rn", "ref"); }
static void vit_on_ref(void) { check_model("tiny-vit", "ref"); }
static void resnet_on_cpu(void) { check_model("tiny-rn", "cpu"); }
static void vit_on_cpu(void) { check_model("tiny-vit", "cpu"); }

/* 75 px: 38, 19, 9, 4, 2. 57 px: 29, 14, 7, 3, 1. What a pool leaves out gets no gradient. */
static void check_odd_sizes(const char *where)
{
    check_model_at("tiny-rn", 75, where);
    check_model_at("tiny-rn", 57, where);
}

static void odd_sizes_on_ref(void) { check_odd_sizes("ref"); }
static void odd_sizes_on_cpu(void) { check_odd_sizes("cpu"); }

/* ---- learned scales ------------------------------------------------------------------------------- */

static double apart(const json **want, double got)
{
    double error = *want ? fabs(got - (*want)->number) / fmax(fabs((*want)->number), 1) : INFINITY;
    if (*want) *want = (*want)->next;
    return error;
}

/* The inverse temperature, the Hopfield scale, the sum of the terms and the norm of the gradient, step by step. The
 * limits are f32 against double, carried through 20 steps; a gradient of the wrong sign moves a scale by 2e-3 in the
 * first, one of the wrong size has another norm. */
static void check_scales_of(cloob_method method, const char *where)
{
    const json *table = json_get(json_get(frozen, "scales"), loss_method_name(method));
    const json *want[4] = { json_get(table, "inv_tau")->child, json_get(table, "beta")->child,
                            json_get(table, "sum")->child, json_get(table, "norm")->child };
    double worst[4] = { 0 };
    setup u;
    step_options o;
    step_options_init(&o);
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &o.model));
    o.batch = ROWS, o.float_images = true, o.wd = 0.1, o.eps = 1e-3, o.method = method;
    o.inv_tau = 14.3, o.learn_inv_tau = true, o.beta = 8, o.learn_beta = loss_method_has_hopfield(method);
    CHECK_OK(ctx, setup_open(ctx, &u, &o, where, ROWS));
    while (want[0]) {
        step_result r = { 0 };
        CHECK_OK(ctx, step_run(ctx, u.s, u.images, u.tokens, 1e-3, &r));
        double got[4] = { r.inv_tau, r.beta, r.image_term + r.text_term, r.grad_norm };
        for (int k = 0; k < 4; k++) worst[k] = fmax(worst[k], apart(&want[k], got[k]));
    }
    printf("  %s on %s: inv_tau %.1e from PyTorch's, beta %.1e, loss %.1e, norm %.1e\n", loss_method_name(method),
           where, worst[0], worst[1], worst[2], worst[3]);
    CHECK(worst[0] < 2e-5 && worst[1] < 2e-5 && worst[2] < 5e-3 && worst[3] < 5e-3);
    setup_close(&u);
}

static void check_scales(const char *where)
{
    for (cloob_method m = CLOOB_METHOD_CLOOB; m <= CLOOB_METHOD_INFONCE_HOPFIELD; m++) check_scales_of(m, where);
}

static void learned_scales_on_ref(void) { check_scales("ref"); }
static void learned_scales_on_cpu(void) { check_scales("cpu"); }

/* ---- bf16 ---------------------------------------------------------------------------------------- */

/* The gradients of one step, for the caller to free. */
static float *gradients_of(const char *name, const char *where, cloob_dtype compute, double *loss, int64_t *count)
{
    step_options o;
    step *s = NULL;
    device *dev = NULL;
    step_result r = { 0 };
    step_options_init(&o);
    o.batch = ROWS, o.float_images = true, o.compute = compute;
    CHECK_OK(ctx, model_config_by_name(ctx, name, &o.model));
    CHECK_OK(ctx, device_open(ctx, where, &dev));
    CHECK_OK(ctx, step_create(ctx, &o, dev, NULL, &s));
    float *images = malloc((size_t)(ROWS * 3 * o.model.image_size * o.model.image_size) * sizeof *images);
    int32_t *tokens = malloc((size_t)(ROWS * o.model.context) * sizeof *tokens);
    procedural_images(images, ROWS, o.model.image_size);
    procedural_tokens(tokens, ROWS, &o.model);
    CHECK_OK(ctx, procedural_params(ctx, step_params(s)));
    CHECK_OK(ctx, step_gradients(ctx, s, images, tokens, &r));
    *loss = r.loss, *count = step_params(s)->trainable;
    float *g = malloc((size_t)*count * sizeof *g);
    memcpy(g, step_params(s)->grad, (size_t)*count * sizeof *g);
    step_destroy(s);
    device_close(dev);
    free(images), free(tokens);
    return g;
}

static double distance(const float *got, const float *want, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) diff += pow((double)got[i] - (double)want[i], 2), norm += pow((double)want[i], 2);
    return sqrt(diff / norm);
}

/* How far gradients in bf16 are from those in F32 is a matter of the model: the definition shows it, and the CPU's
 * kernels may not be much farther (rounding falls elsewhere, and a relu near 0 may fall to the other side). */
static void check_bf16(const char *name)
{
    double loss[3];
    int64_t n;
    float *exact = gradients_of(name, "cpu", CLOOB_F32, &loss[0], &n),
          *ref = gradients_of(name, "ref", CLOOB_BF16, &loss[1], &n);
    float *cpu = gradients_of(name, "cpu", CLOOB_BF16, &loss[2], &n);
    double of_ref = distance(ref, exact, n), of_cpu = distance(cpu, exact, n);
    printf("  %s: loss %.4f; in bf16 %.4f by definition, %.4f on the CPU; gradients %.3f and %.3f from F32\n", name,
           loss[0], loss[1], loss[2], of_ref, of_cpu);
    CHECK_NEAR(loss[2], loss[0], 2e-2);
    CHECK(of_cpu < 1.25 * of_ref);
    free(exact), free(ref), free(cpu);
}

static void bf16_steps_on_cpu(void)
{
    check_bf16("tiny-rn");
    check_bf16("tiny-vit");
}

static void both_on_cuda(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    check_model("tiny-rn", "cuda");
    check_model("tiny-vit", "cuda");
    check_odd_sizes("cuda");
    check_scales("cuda");
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    if (json_read_file(ctx, &memory, TESTS_DIR "/ref/model.json", &frozen) != CLOOB_OK) {
        printf("%s\n", cloob_error(ctx));
        return 1;
    }
    RUN(resnet_on_ref);
    RUN(vit_on_ref);
    RUN(resnet_on_cpu);
    RUN(vit_on_cpu);
    RUN(odd_sizes_on_ref);
    RUN(odd_sizes_on_cpu);
    RUN(learned_scales_on_ref);
    RUN(learned_scales_on_cpu);
    RUN(bf16_steps_on_cpu);
    RUN(both_on_cuda);
    arena_release(&memory);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
