/* Trainings in one process, one after the other and side by side in threads, each with its own context and
 * device: the same bytes every time. CLOOB_TEST_THREADS says how many side by side, CLOOB_TEST_DEVICE where.
 */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

#include "core/rng.h"
#include "train/step.h"

enum { BATCH = 16, STEPS = 6, MOST = 64 };

typedef struct training {
    const char *device;
    cloob_dtype compute;
    cloob_status status;
    char why[256];
    double loss[STEPS];
    float *weights;
    int64_t count;
} training;

static int threads(void)
{
    const char *asked = getenv("CLOOB_TEST_THREADS");
    int n = asked ? atoi(asked) : 3;
    return n < 1 ? 1 : n > MOST ? MOST : n;
}

static void draw_batch(const model_config *c, int k, uint8_t *images, int32_t *tokens)
{
    int64_t bytes = BATCH * c->image_size * c->image_size * 3;
    uint64_t image = rng_key((uint64_t)k, "images"), word = rng_key((uint64_t)k, "words");
    for (int64_t i = 0; i < bytes; i++) images[i] = (uint8_t)rng_u64(image, (uint64_t)i);
    for (int64_t i = 0; i < BATCH * c->context; i++) {
        int64_t t = i % c->context, drawn = (int64_t)rng_below(word, (uint64_t)i, (uint64_t)(c->vocab - 3));
        tokens[i] = (int32_t)(t == 0 ? c->vocab - 2 : t == c->context - 1 ? c->vocab - 1 : 1 + drawn);
    }
}

static cloob_status run_steps(cloob_ctx *ctx, training *t, const model_config *c, step *s)
{
    uint8_t *images = malloc((size_t)(BATCH * c->image_size * c->image_size * 3));
    int32_t *tokens = malloc((size_t)(BATCH * c->context) * sizeof *tokens);
    cloob_status status = images && tokens ? CLOOB_OK : CLOOB_ERR_MEMORY;
    for (int k = 0; k < STEPS && status == CLOOB_OK; k++) {
        step_result r = { 0 };
        draw_batch(c, k, images, tokens);
        status = step_run(ctx, s, images, tokens, 1e-3, &r);
        t->loss[k] = r.loss;
    }
    free(images), free(tokens);
    return status;
}

static cloob_status train_on(cloob_ctx *ctx, training *t, device *d)
{
    step_options o;
    step *s = NULL;
    step_options_init(&o);
    CLOOB_TRY(model_config_by_name(ctx, "tiny", &o.model));
    o.batch = BATCH;
    o.compute = t->compute;
    o.hopfield_warmup = STEPS / 2; /* the objective changes under way, and with it what a GPU has recorded */
    CLOOB_TRY(step_create(ctx, &o, d, NULL, &s));
    params *p = step_params(s);
    cloob_status status = params_init(ctx, p, 7);
    if (status == CLOOB_OK) status = run_steps(ctx, t, &o.model, s);
    t->count = p->total;
    t->weights = malloc((size_t)p->total * sizeof *t->weights);
    if (status == CLOOB_OK) status = d->to_host(ctx, d, t->weights, p->master, (size_t)p->total * sizeof *t->weights);
    step_destroy(s);
    return status;
}

static void *train(void *user)
{
    training *t = user;
    cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 2 });
    device *d = NULL;
    t->status = device_open(ctx, t->device, &d);
    if (t->status == CLOOB_OK) t->status = train_on(ctx, t, d);
    snprintf(t->why, sizeof t->why, "%s", cloob_error(ctx));
    device_close(d);
    cloob_ctx_destroy(ctx);
    return NULL;
}

static void compare(const training *first, const training *t, const char *which, int i)
{
    if (t->status != CLOOB_OK) printf("  %s %d: %s\n", which, i, t->why);
    CHECK(t->status == CLOOB_OK);
    if (t->status != CLOOB_OK || first->status != CLOOB_OK) return;
    for (int k = 0; k < STEPS; k++) CHECK(t->loss[k] == first->loss[k]);
    bool same = memcmp(t->weights, first->weights, (size_t)t->count * sizeof *t->weights) == 0;
    if (!same)
        printf("  %s %d: differ by %.1e\n", which, i, relative_error(t->weights, first->weights, t->count, 1e-12));
    CHECK(same);
}

static void trainings_agree(const char *where, cloob_dtype compute)
{
    training first = { .device = where, .compute = compute }, again = first, all[MOST];
    pthread_t thread[MOST];
    train(&first);
    train(&again); /* what libraries keep from the first must not show */
    compare(&first, &again, "again", 0);
    for (int i = 0; i < threads(); i++) {
        all[i] = (training){ .device = where, .compute = compute };
        CHECK(pthread_create(&thread[i], NULL, train, &all[i]) == 0);
    }
    for (int i = 0; i < threads(); i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < threads(); i++) {
        compare(&first, &all[i], "thread", i);
        free(all[i].weights);
    }
    free(first.weights), free(again.weights);
}

static const char *asked_for(void) { return getenv("CLOOB_TEST_DEVICE"); }

static void on_the_cpu(void)
{
    if (asked_for() && strcmp(asked_for(), "cpu") != 0) SKIP("another device is asked for");
    trainings_agree("cpu", CLOOB_F32);
}

static void on_a_gpu(void)
{
    if (!device_cuda_count() || (asked_for() && strcmp(asked_for(), "cpu") == 0)) SKIP("no GPU here");
    trainings_agree("cuda", CLOOB_F32);
    trainings_agree("cuda", CLOOB_BF16);
}

int main(void)
{
    RUN(on_the_cpu);
    RUN(on_a_gpu);
    return check_summary();
}
