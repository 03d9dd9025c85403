/* Ranks against one process, 20 steps: alone, or under mpirun (tests/train/CMakeLists.txt). Every rank also
 * trains the whole batch by itself; losses and weights must agree to rounding. */
#include "check.h"
#include "../model/procedural.h"

#include "train/step.h"

static cloob_ctx *ctx;
static comm *all;

enum { ROWS = 8, STEPS = 20 };

static step *make(device *dev, const char *model, comm *c, int64_t accum, const char *memory, bool packed)
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
    o.learn_inv_tau = true;
    o.pack_texts = packed;
    CHECK_OK(ctx, step_create(ctx, &o, dev, c, &s));
    if (s) CHECK_OK(ctx, procedural_params(ctx, step_params(s)));
    return s;
}

static double apart(step *a, step *b)
{
    const params *p = step_params(a), *q = step_params(b);
    return relative_error(p->master, q->master, p->total, 1e-6);
}

/* Rows of one batch go to the ranks in order; a step shifts them, so that batches differ. */
static void train_beside(const char *model, int64_t accum, const char *memory, bool packed)
{
    device *dev = NULL;
    step_result mine, whole;
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    step *s = make(dev, model, all, accum, memory, packed), *one = make(dev, model, NULL, 1, memory, false);
    if (!s || !one) return;
    const model_config *c = &step_params(s)->config;
    int64_t picture = 3 * c->image_size * c->image_size, rows = ROWS + STEPS, local = ROWS / comm_size(all),
            first = local * comm_rank(all);
    float *images = malloc((size_t)(rows * picture) * sizeof *images);
    int32_t *tokens = malloc((size_t)(rows * c->context) * sizeof *tokens);
    procedural_images(images, rows, c->image_size);
    procedural_tokens(tokens, rows, c);
    double worst = 0;
    for (int64_t k = 0; k < STEPS; k++) {
        double lr = 1e-4 * (double)k / STEPS;
        CHECK_OK(ctx, step_run(ctx, s, images + (k + first) * picture, tokens + (k + first) * c->context, lr,
                               &mine));
        CHECK_OK(ctx, step_run(ctx, one, images + k * picture, tokens + k * c->context, lr, &whole));
        double error = fabs(mine.loss - whole.loss) / (fabs(whole.loss) > 0.01 ? fabs(whole.loss) : 0.01);
        worst = error > worst ? error : worst;
    }
    double drift = apart(s, one);
    if (comm_rank(all) == 0)
        printf("  %s, %s stored, %d ranks x %lld micro-batches: losses of %d steps apart by %.1e at most, "
               "weights by "
               "%.1e\n",
               model, memory, comm_size(all), (long long)accum, STEPS, worst, drift);
    CHECK(worst < 2e-5);
    CHECK(drift < 1e-4);
    step_destroy(s), step_destroy(one);
    device_close(dev);
    free(images), free(tokens);
}

static void batch_norm_over_all_ranks_is_one_batch(void) { train_beside("tiny-rn", 1, "batch", false); }

static void without_batch_norm_nothing_needs_saying(void) { train_beside("tiny-vit", 1, "batch", false); }

static void ranks_and_micro_batches_go_together(void) { train_beside("tiny-vit", 2, "batch", false); }

/* No multiple of the batch: it wraps, on every rank alike. */
static void a_queue_holds_the_rows_of_all_ranks(void) { train_beside("tiny-vit", 2, "queue:20", false); }

/* Each rank takes the text tower that its own rows need; the one process pads. */
static void packed_texts_of_every_rank(void)
{
    train_beside("tiny-vit", 1, "batch", true);
    train_beside("tiny-vit", 2, "batch", true);
}

int main(void)
{
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .threads = 1 }); /* ranks share the cores */
    if (comm_create(ctx, COMM_AUTO, &all) != CLOOB_OK) {
        printf("%s\n", cloob_error(ctx));
        return 1;
    }
    RUN(batch_norm_over_all_ranks_is_one_batch);
    RUN(without_batch_norm_nothing_needs_saying);
    RUN(ranks_and_micro_batches_go_together);
    RUN(a_queue_holds_the_rows_of_all_ranks);
    RUN(packed_texts_of_every_rank);
    comm_destroy(all);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
