/* The step: micro-batches against one batch, no allocation, two runs alike, recomputation. test_frozen compares its
 * losses, gradients and updates with frozen values. */
#include "setup.h"

#include <malloc.h>

static cloob_ctx *ctx;

static bool open_step(setup *u, const char *model, const char *where, int64_t rows, int64_t accum, cloob_method method)
{
    step_options o;
    step_options_init(&o);
    CHECK_OK(ctx, model_config_by_name(ctx, model, &o.model));
    o.batch = rows / accum;
    o.accum = accum;
    o.float_images = true;
    o.method = method;
    CHECK_OK(ctx, setup_open(ctx, u, &o, where, rows));
    return u->s != NULL;
}

/* ---- properties ---------------------------------------------------------------------------------- */

static float *gradients_of(step *s)
{
    params *p = step_params(s);
    float *g = malloc((size_t)p->trainable * sizeof *g);
    memcpy(g, p->grad, (size_t)p->trainable * sizeof *g);
    return g;
}

static float *gradients_with(const char *model, int64_t rows, int64_t accum, double *loss, int64_t *n)
{
    setup u;
    step_result r = { 0 };
    open_step(&u, model, "cpu", rows, accum, CLOOB_METHOD_CLOOB);
    CHECK_OK(ctx, step_gradients(ctx, u.s, u.images, u.tokens, &r));
    float *g = gradients_of(u.s);
    *loss = r.loss;
    *n = step_params(u.s)->trainable;
    setup_close(&u);
    return g;
}

/* Without batch norm, micro-batches give the gradient of the whole batch to rounding. */
static void micro_batches_are_one_batch(void)
{
    double whole_loss, micro_loss;
    int64_t n;
    float *whole = gradients_with("tiny-vit", 12, 1, &whole_loss, &n);
    for (int64_t k = 2; k <= 6; k += 2) {
        float *micro = gradients_with("tiny-vit", 12, k, &micro_loss, &n);
        CHECK_NEAR(micro_loss, whole_loss, 1e-6);
        CHECK(relative_error(micro, whole, n, 1e-6) < 1e-5);
        free(micro);
    }
    free(whole);
}

/* ---- micro-batches with batch norm --------------------------------------------------------------- */

/* One tower pass with gradients given: backward of L = sum of dembed . embedding, by a step of one micro-batch. The
 * gradient of the whole is the sum of these over the micro-batches, each with its own statistics. */
typedef struct pieces {
    float *embed[2], *dembed[2], *sum;
} pieces;

/* The sum, by hand: towers of a step without accumulation, run on one micro-batch after the other. */
static void backward_by_hand(setup *u, int64_t micro, int64_t k, pieces *p)
{
    const model_config *c = &step_params(u->s)->config;
    int64_t n = step_params(u->s)->trainable, D = c->embed;
    exec *tower[2] = { step_tower(u->s, false), step_tower(u->s, true) };
    const tensor *images = exec_tensor(tower[0], "images"), *tokens = exec_tensor(tower[1], "tokens");
    memcpy(images->data, (char *)u->images + (size_t)k * tensor_bytes(images), tensor_bytes(images));
    memcpy(tokens->data, u->tokens + k * micro * c->context, tensor_bytes(tokens));
    for (int t = 0; t < 2; t++) {
        CHECK(exec_forward(tower[t]) == CLOOB_OK);
        memcpy(p->embed[t] + k * micro * D, exec_tensor(tower[t], "output")->data, (size_t)(micro * D) * sizeof(float));
        if (!p->sum) continue;
        memcpy(exec_tensor(tower[t], "doutput")->data, p->dembed[t] + k * micro * D,
               (size_t)(micro * D) * sizeof(float));
        CHECK(exec_backward(tower[t]) == CLOOB_OK);
    }
    for (int64_t i = 0; p->sum && i < n; i++) p->sum[i] += step_params(u->s)->grad[i];
}

static float *statistics_of(const params *p, int64_t *count)
{
    float *all = malloc((size_t)p->total * sizeof *all);
    *count = 0;
    for (int i = 0; i < p->count; i++) {
        if (!p->row[i].buffer) continue;
        CHECK_OK(ctx, params_get(ctx, p, i, false, all + *count));
        *count += p->row[i].count;
    }
    return all;
}

static void loss_by_hand(const pieces *p, int64_t rows, int64_t D)
{
    loss_options o;
    loss_plan *plan;
    loss_result result;
    loss_shape shape = { .rows = rows, .dim = D, .dtype = CLOOB_F32 };
    loss_options_init(&o);
    CHECK_OK(ctx, loss_plan_create(ctx, &o, &shape, NULL, &plan));
    loss_inputs in = { .x = p->embed[0], .y = p->embed[1] };
    loss_outputs out = { .dx = p->dembed[0], .dy = p->dembed[1] };
    CHECK_OK(ctx, loss_run(ctx, plan, &in, &out, NULL, &result));
    loss_plan_destroy(plan);
}

/* With batch norm: the gradient is the sum over micro-batches with the statistics of each, and running statistics move
 * once per micro-batch, not once more for the second forward pass. */
static void micro_batches_with_batch_norm(void)
{
    enum { ROWS = 12, MICRO = 4, K = ROWS / MICRO };
    setup whole, hand;
    step_result r;
    pieces p = { 0 };
    int64_t count, n;
    open_step(&whole, "tiny-rn", "cpu", ROWS, K, CLOOB_METHOD_CLOOB);
    CHECK_OK(ctx, step_gradients(ctx, whole.s, whole.images, whole.tokens, &r));
    open_step(&hand, "tiny-rn", "cpu", MICRO, 1, CLOOB_METHOD_CLOOB);
    free(hand.images), free(hand.tokens);
    hand.images = whole.images, hand.tokens = whole.tokens;
    int64_t D = step_params(hand.s)->config.embed;
    n = step_params(hand.s)->trainable;
    for (int t = 0; t < 2; t++)
        p.embed[t] = malloc(ROWS * (size_t)D * sizeof(float)), p.dembed[t] = malloc(ROWS * (size_t)D * sizeof(float));
    for (int64_t k = 0; k < K; k++) backward_by_hand(&hand, MICRO, k, &p);
    float *have = statistics_of(step_params(whole.s), &count), *want = statistics_of(step_params(hand.s), &count);
    double statistics = relative_error(have, want, count, 1e-6);
    loss_by_hand(&p, ROWS, D);
    p.sum = calloc((size_t)n, sizeof *p.sum);
    for (int64_t k = 0; k < K; k++) backward_by_hand(&hand, MICRO, k, &p);
    double gradients = relative_error(step_params(whole.s)->grad, p.sum, n, 1e-6);
    printf("  tiny-rn, %d micro-batches: gradients differ by %.1e, running statistics by %.1e\n", K, gradients,
           statistics);
    CHECK(gradients < 1e-5 && statistics < 1e-6);
    for (int t = 0; t < 2; t++) free(p.embed[t]), free(p.dembed[t]);
    free(p.sum), free(have), free(want);
    hand.images = NULL, hand.tokens = NULL;
    setup_close(&hand);
    setup_close(&whole);
}

static void a_step_allocates_nothing(void)
{
    setup u;
    step_result r;
    open_step(&u, "tiny-rn", "cpu", 6, 1, CLOOB_METHOD_CLOOB);
    for (int k = 0; k < 2; k++) CHECK_OK(ctx, step_run(ctx, u.s, u.images, u.tokens, 1e-3, &r));
    struct mallinfo2 before = mallinfo2();
    for (int k = 0; k < 3; k++) CHECK_OK(ctx, step_run(ctx, u.s, u.images, u.tokens, 1e-3, &r));
    struct mallinfo2 after = mallinfo2();
    CHECK(after.uordblks == before.uordblks && after.hblkhd == before.hblkhd);
    setup_close(&u);
}

static void two_runs_are_alike_to_the_byte(void)
{
    float *after[2] = { NULL, NULL };
    int64_t n = 0;
    for (int run = 0; run < 2; run++) {
        setup u;
        step_result r;
        open_step(&u, "tiny-rn", "cpu", 6, 1, CLOOB_METHOD_CLOOB);
        CHECK_OK(ctx, params_init(ctx, step_params(u.s), 5));
        for (int k = 0; k < 3; k++) CHECK_OK(ctx, step_run(ctx, u.s, u.images, u.tokens, 1e-3, &r));
        n = step_params(u.s)->total;
        after[run] = malloc((size_t)n * sizeof(float));
        memcpy(after[run], step_params(u.s)->master, (size_t)n * sizeof(float));
        setup_close(&u);
    }
    CHECK(memcmp(after[0], after[1], (size_t)n * sizeof(float)) == 0);
    free(after[0]), free(after[1]);
}

/* Checkpointing and recomputation change what is kept, not what comes out. */
static void recomputation_changes_nothing(void)
{
    float *want = NULL;
    size_t bytes[4];
    for (int mode = 0; mode < 4; mode++) {
        setup u = { 0 };
        step_options o;
        step_result r;
        step_options_init(&o);
        CHECK_OK(ctx, model_config_by_name(ctx, "tiny-rn", &o.model));
        CHECK_OK(ctx, device_open(ctx, "cpu", &u.dev));
        o.batch = 6;
        o.float_images = true;
        o.grad = (graph_grad_options){ .checkpoint = mode % 2 == 1,
                                       .checkpoint_share = mode == 3 ? 40 : 0,
                                       .recompute = mode == 2 };
        CHECK_OK(ctx, step_create(ctx, &o, u.dev, NULL, &u.s));
        CHECK_OK(ctx, procedural_params(ctx, step_params(u.s)));
        u.images = malloc((size_t)(6 * 3 * 64 * 64) * sizeof *u.images);
        u.tokens = malloc((size_t)(6 * o.model.context) * sizeof *u.tokens);
        procedural_images(u.images, 6, 64);
        procedural_tokens(u.tokens, 6, &o.model);
        CHECK_OK(ctx, step_gradients(ctx, u.s, u.images, u.tokens, &r));
        float *g = gradients_of(u.s);
        if (mode == 0) want = g;
        else {
            CHECK(relative_error(g, want, step_params(u.s)->trainable, 1e-6) < 1e-6);
            free(g);
        }
        bytes[mode] = step_memory_of(u.s).image_bytes + step_memory_of(u.s).text_bytes;
        setup_close(&u);
    }
    printf("  activations: %zu bytes kept, %zu with checkpoints, %zu with recomputation\n", bytes[0], bytes[1],
           bytes[2]);
    CHECK(bytes[1] < bytes[0] && bytes[2] < bytes[0] && bytes[3] < bytes[0]);
    free(want);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(micro_batches_are_one_batch);
    RUN(micro_batches_with_batch_norm);
    RUN(a_step_allocates_nothing);
    RUN(two_runs_are_alike_to_the_byte);
    RUN(recomputation_changes_nothing);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
