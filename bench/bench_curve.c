/* Loss curves of one model in 16-bit and in fp32 over the same batches, beside what another seed changes.
 *
 *     bench_curve [--model RN50] [--batch 32] [--steps 200] [--device cuda] [--noise 24]
 *
 * Every image is a plane of one of 512 colours (8 levels each of red, green and blue) under noise, its
 * caption three words that name the levels: enough to learn something within 200 steps, cheap enough to be
 * made on the host. Three runs see the same batches: bf16, fp32, and fp32 from other initial weights. Printed
 * are means over 10 steps, and the mean absolute difference of bf16 to fp32 beside that of the two fp32 runs,
 * whose difference is the noise of training. Exit code 1 when bf16 is further from fp32 than that. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/rng.h"
#include "tensor/async_copy.h"
#include "train/step.h"

enum { LEVELS = 8, EVERY = 10, RUNS = 3 };

static cloob_ctx *ctx;

typedef struct settings {
    const char *model, *device;
    int64_t batch;
    int steps, noise;
} settings;

static void fail(const char *what)
{
    fprintf(stderr, "bench_curve: %s: %s\n", what, cloob_error(ctx));
    exit(1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- batches ------------------------------------------------------------------------------------- */

static uint8_t clamp(int x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }

static void paint(uint8_t *rgb, int64_t pixels, const int level[3], int noise, uint64_t key)
{
    uint64_t bits = 0;
    for (int64_t i = 0; i < pixels * 3; i++) {
        if (i % 8 == 0) bits = rng_u64(key, (uint64_t)(i / 8));
        int shift = (int)(bits & 0xff) * noise / 128 - noise;
        rgb[i] = clamp(255 * level[i % 3] / (LEVELS - 1) + shift);
        bits >>= 8;
    }
}

/* Start, the word of each level, end; words are far apart in the vocabulary. */
static void write_caption(int32_t *row, const model_config *c, const int level[3])
{
    memset(row, 0, (size_t)c->context * sizeof *row);
    row[0] = (int32_t)c->vocab - 2;
    for (int k = 0; k < 3; k++) row[1 + k] = (int32_t)(1 + (k * LEVELS + level[k]) * ((c->vocab - 3) / (3 * LEVELS)));
    row[4] = (int32_t)c->vocab - 1;
}

static void make_batch(const settings *o, const model_config *c, int at, uint8_t *images, int32_t *tokens)
{
    uint64_t key = rng_subkey(rng_key(1, "curve"), (uint64_t)at);
    int64_t pixels = c->image_size * c->image_size;
    for (int64_t r = 0; r < o->batch; r++) {
        int level[3];
        for (int k = 0; k < 3; k++) level[k] = (int)rng_below(key, (uint64_t)(3 * r + k), LEVELS);
        paint(images + r * pixels * 3, pixels, level, o->noise, rng_subkey(key, (uint64_t)(1000 + r)));
        write_caption(tokens + r * c->context, c, level);
    }
}

/* ---- runs ---------------------------------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    cloob_dtype compute;
    uint64_t seed;
} kind;

static const kind kinds[RUNS] = { { "bf16", CLOOB_BF16, 1 },
                                  { "fp32", CLOOB_F32, 1 },
                                  { "fp32, other seed", CLOOB_F32, 2 } };

static void step_settings(const settings *o, const kind *k, step_options *so)
{
    step_options_init(so);
    if (model_config_load(ctx, o->model, &so->model) != CLOOB_OK) fail(o->model);
    so->compute = k->compute;
    so->batch = o->batch;
    so->hopfield_warmup = o->steps / 4;
    so->wd = 0.1;
}

/* Cosine after a warm-up of a tenth. */
static double rate_at(const settings *o, int at)
{
    int warm = o->steps / 10 + 1;
    double along = (double)(at - warm) / (double)(o->steps - warm);
    return 5e-4 * (at < warm ? (double)(at + 1) / warm : 0.5 * (1 + cos(3.14159265358979 * along)));
}

static void train(const settings *o, device *d, const kind *k, double *loss)
{
    step_options so;
    step *s;
    step_result r;
    double begun = seconds(), first = 0;
    step_settings(o, k, &so);
    if (step_create(ctx, &so, d, NULL, &s) != CLOOB_OK) fail(k->name);
    if (params_init(ctx, step_params(s), k->seed) != CLOOB_OK) fail(k->name);
    uint8_t *images = async_copy_host_alloc(d, (size_t)(o->batch * so.model.image_size * so.model.image_size * 3));
    int32_t *tokens = async_copy_host_alloc(d, (size_t)(o->batch * so.model.context) * sizeof *tokens);
    if (!images || !tokens) fail("batches");
    for (int i = 0; i < o->steps; i++) {
        make_batch(o, &so.model, i, images, tokens);
        if (step_run(ctx, s, images, tokens, rate_at(o, i), &r) != CLOOB_OK) fail(k->name);
        loss[i] = r.loss;
        if (i == 0) first = seconds();
    }
    fprintf(stderr, "%s: %.1f s to the first step, %.1f s for the others\n", k->name, first - begun, seconds() - first);
    async_copy_host_free(d, images);
    async_copy_host_free(d, tokens);
    step_destroy(s);
}

/* ---- comparison ---------------------------------------------------------------------------------- */

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum / n;
}

/* Of means over EVERY steps, so that one odd batch does not decide. */
static double apart(const double *a, const double *b, int steps)
{
    double sum = 0;
    int windows = steps / EVERY;
    for (int w = 0; w < windows; w++) sum += fabs(mean(a + w * EVERY, EVERY) - mean(b + w * EVERY, EVERY));
    return sum / windows;
}

static int report(const settings *o, double *loss[RUNS])
{
    printf("%s, batch %lld, %d steps: loss, means over %d steps\n%8s", o->model, (long long)o->batch, o->steps, EVERY,
           "steps");
    for (int k = 0; k < RUNS; k++) printf(" %18s", kinds[k].name);
    printf("\n");
    for (int i = 0; i + EVERY <= o->steps; i += EVERY) {
        printf("%8d", i + EVERY);
        for (int k = 0; k < RUNS; k++) printf(" %18.5f", mean(loss[k] + i, EVERY));
        printf("\n");
    }
    double half = apart(loss[0], loss[1], o->steps), noise = apart(loss[1], loss[2], o->steps);
    double fell = mean(loss[1], EVERY) - mean(loss[1] + o->steps - EVERY, EVERY);
    printf("mean absolute difference: bf16 to fp32 %.5f, fp32 to fp32 of another seed %.5f; fp32 fell by %.5f\n", half,
           noise, fell);
    printf("%s\n", half <= noise ? "within noise" : "NOT within noise");
    return half <= noise ? 0 : 1;
}

int main(int argc, char **argv)
{
    settings o = { .model = "RN50", .device = "cuda", .batch = 32, .steps = 200, .noise = 24 };
    device *d;
    double *loss[RUNS];
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--model") == 0) o.model = argv[i + 1];
        else if (strcmp(argv[i], "--device") == 0) o.device = argv[i + 1];
        else if (strcmp(argv[i], "--batch") == 0) o.batch = atoll(argv[i + 1]);
        else if (strcmp(argv[i], "--steps") == 0) o.steps = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--noise") == 0) o.noise = atoi(argv[i + 1]);
        else return fprintf(stderr, "bench_curve: %s: not an option\n", argv[i]), 2;
    }
    if (o.batch < 2 || o.steps < EVERY)
        return fprintf(stderr, "bench_curve: 2 pairs and %d steps at least\n", EVERY), 2;
    ctx = cloob_ctx_create(NULL);
    if (device_open(ctx, o.device, &d) != CLOOB_OK) fail(o.device);
    for (int k = 0; k < RUNS; k++) {
        loss[k] = calloc((size_t)o.steps, sizeof **loss);
        if (!loss[k]) return 1;
        train(&o, d, &kinds[k], loss[k]);
    }
    int code = report(&o, loss);
    for (int k = 0; k < RUNS; k++) free(loss[k]);
    device_close(d);
    cloob_ctx_destroy(ctx);
    return code;
}
