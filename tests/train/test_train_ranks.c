/* Ranks against one process, 20 steps: alone, or under mpirun (tests/train/CMakeLists.txt). Every rank also
 * trains the whole batch by itself; losses and weights must agree to rounding. */
#include "check.h"
#include "../model/procedural.h"

#include "train/step.h"

static cloob_ctx *ctx;
static comm *all;
static cloob_method method = CLOOB_METHOD_CLOOB;
static bool packed; /* texts of the ranks are packed; those of the one process never */

enum { ROWS = 8, STEPS = 20 };

static step *make(device *dev, const char *model, comm *c, int64_t accum, const char *memory)
{
    step_options o;
    step *s = NULL;
    step_options_init(&o);
    CHECK_OK(ctx, model_config_by_name(ctx, model, &o.model));
    o.model.image_size = 32;
    o.batch = ROWS / comm_size(c) / accum;
    o.accum = accum;
    o.float_images = true;
    o.bn_sync = true;
    o.memory = memory;
    o.method = method;
    o.learn_inv_tau = true;
    o.learn_beta = method == CLOOB_METHOD_INFONCE_HOPFIELD;
    o.pack_texts = c && packed;
    CHECK_OK(ctx, step_create(ctx, &o, dev, c, &s));
    if (s) CHECK_OK(ctx, procedural_params(ctx, step_params(s)));
    return s;
}

static double apart(step *a, step *b)
{
    const params *p = step_params(a), *q = step_params(b);
    return relative_error(p->master, q->master, p->total, 1e-6);
}

/* Images and tokens of all steps: step k takes rows k ... k + ROWS - 1, so that batches differ. */
typedef struct samples {
    float *images;
    int32_t *tokens;
    int64_t image, context;
} samples;

static samples make_samples(const model_config *c)
{
    int64_t rows = ROWS + STEPS;
    samples d = { .image = 3 * c->image_size * c->image_size, .context = c->context };
    d.images = malloc((size_t)(rows * d.image) * sizeof *d.images);
    d.tokens = malloc((size_t)(rows * d.context) * sizeof *d.tokens);
    procedural_images(d.images, rows, c->image_size);
    procedural_tokens(d.tokens, rows, c);
    return d;
}

static double loss_of(step *s, const samples *d, int64_t first, int64_t k)
{
    step_result r = { 0 };
    CHECK_OK(ctx, step_run(ctx, s, d->images + first * d->image, d->tokens + first * d->context,
                           1e-4 * (double)k / STEPS, &r));
    return r.loss;
}

static double relative(double a, double b) { return fabs(a - b) / (fabs(b) > 0.01 ? fabs(b) : 0.01); }

static void take_weights(step *to, const step *from)
{
    params *p = step_params(to);
    memcpy(p->master, step_params((step *)from)->master, (size_t)p->total * sizeof *p->master);
    CHECK_OK(ctx, params_refresh(ctx, p));
}

typedef struct difference {
    double loss, weights, scales;
} difference;

/* Of the logits of both scales. */
static double scales_apart(const step *a, const step *b)
{
    step_scalars p = step_get_state(a).scalars, q = step_get_state(b).scalars;
    return fmax(fabs(p.inv_tau.value - q.inv_tau.value), fabs(p.beta.value - q.beta.value));
}

/* Rows of one batch go to the ranks in order. `anew`: every step begins with equal weights. */
static difference train_beside(const char *model, int64_t accum, const char *memory, bool anew)
{
    device *dev = NULL;
    difference worst = { 0 };
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    step *s = make(dev, model, all, accum, memory), *one = make(dev, model, NULL, 1, memory);
    if (!s || !one) return worst;
    samples d = make_samples(&step_params(s)->config);
    for (int64_t k = 0; k < STEPS; k++) {
        if (anew) take_weights(s, one);
        double mine = loss_of(s, &d, k + ROWS / comm_size(all) * comm_rank(all), k),
               error = relative(mine, loss_of(one, &d, k, k)), drift = apart(s, one);
        worst.loss = error > worst.loss ? error : worst.loss;
        worst.weights = drift > worst.weights ? drift : worst.weights;
        worst.scales = fmax(worst.scales, scales_apart(s, one));
    }
    if (comm_rank(all) == 0)
        printf("  %s, %s stored, %d ranks x %lld micro-batches%s: losses of %d steps differ by %.1e at most, "
               "weights by %.1e, scales by %.1e\n",
               model, memory, comm_size(all), (long long)accum, anew ? ", equal weights before each step" : "", STEPS,
               worst.loss, worst.weights, worst.scales);
    step_destroy(s), step_destroy(one);
    device_close(dev);
    free(d.images), free(d.tokens);
    return worst;
}

static void check_beside(const char *model, int64_t accum, const char *memory, bool anew)
{
    difference worst = train_beside(model, accum, memory, anew);
    CHECK(worst.loss < 2e-5);
    CHECK(worst.weights < 1e-4);
    CHECK(worst.scales < 1e-6);
}

static void batch_norm_over_all_ranks_is_one_batch(void) { check_beside("tiny-rn", 1, "batch", true); }

/* How far one process is from itself when the rows of each batch come in another order: rounding, and what 20
 * steps make of it. */
static double turned(const char *model, int64_t by)
{
    device *dev = NULL;
    double worst = 0;
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    step *s = make(dev, model, NULL, 1, "batch"), *one = make(dev, model, NULL, 1, "batch");
    if (!s || !one) return 0;
    samples d = make_samples(&step_params(s)->config), t = make_samples(&step_params(s)->config);
    for (int64_t k = 0; k < STEPS; k++) {
        for (int64_t i = 0; i < ROWS; i++) {
            int64_t from = k + (i + by) % ROWS;
            memcpy(t.images + i * d.image, d.images + from * d.image, (size_t)d.image * sizeof *d.images);
            memcpy(t.tokens + i * d.context, d.tokens + from * d.context, (size_t)d.context * sizeof *d.tokens);
        }
        double error = relative(loss_of(s, &t, 0, k), loss_of(one, &d, k, k));
        worst = error > worst ? error : worst;
    }
    step_destroy(s), step_destroy(one);
    device_close(dev);
    free(d.images), free(d.tokens), free(t.images), free(t.tokens);
    return worst;
}

/* Batch norm over eight values makes a relu that rounding puts on the other side of zero a visible step of
 * the loss from then on (1e-3 after six more steps), in one process, too. So 20 steps on end are measured
 * against that. */
static void twenty_steps_on_end_are_as_near_as_rows_in_another_order(void)
{
    double limit = 2e-5, order = 0;
    for (int64_t by = 1; by < ROWS; by++) {
        double w = turned("tiny-rn", by);
        order = w > order ? w : order;
    }
    difference worst = train_beside("tiny-rn", 1, "batch", false);
    if (comm_rank(all) == 0) printf("  one process, rows in another order: %.1e at most\n", order);
    CHECK(worst.loss < (2 * order > limit ? 2 * order : limit));
    CHECK(worst.weights < 1e-4);
}

static void without_batch_norm_nothing_needs_saying(void) { check_beside("tiny-vit", 1, "batch", false); }

static void ranks_and_micro_batches_go_together(void) { check_beside("tiny-vit", 2, "batch", false); }

/* No multiple of the batch: it wraps, on every rank alike. */
static void a_queue_holds_the_rows_of_all_ranks(void) { check_beside("tiny-vit", 2, "queue:20", false); }

/* Each rank takes the text tower that its own rows need. */
static void packed_texts_of_every_rank(void)
{
    packed = true;
    check_beside("tiny-vit", 1, "batch", false);
    check_beside("tiny-vit", 2, "batch", false);
    packed = false;
}

/* InfoNCE's gradients are multiplied after the ranks' sum. */
static void infonce_on_every_rank(void)
{
    for (method = CLOOB_METHOD_CLIP; method <= CLOOB_METHOD_INFONCE_HOPFIELD;
         method += CLOOB_METHOD_INFONCE_HOPFIELD - CLOOB_METHOD_CLIP)
        check_beside("tiny-vit", 2, "batch", false);
    method = CLOOB_METHOD_CLOOB;
}

int main(void)
{
    ctx = cloob_ctx_create(
        &(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 }); /* ranks share the cores */
    if (comm_create(ctx, &all) != CLOOB_OK) {
        printf("%s\n", cloob_error(ctx));
        return 1;
    }
    RUN(batch_norm_over_all_ranks_is_one_batch);
    RUN(twenty_steps_on_end_are_as_near_as_rows_in_another_order);
    RUN(without_batch_norm_nothing_needs_saying);
    RUN(ranks_and_micro_batches_go_together);
    RUN(a_queue_holds_the_rows_of_all_ranks);
    RUN(packed_texts_of_every_rank);
    RUN(infonce_on_every_rank);
    comm_destroy(all);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
