/* Compares the loss curves of one model in bf16 and fp32 over the same batches, and in fp32 from another seed.
 *
 *     bench_curve [--model RN50] [--batch 32] [--steps 200] [--device cuda] [--noise 24]
 *
 * Every image has one of 512 colours (8 levels each of red, green and blue) plus noise; its caption is three words that
 * name the levels. This can be learned within 200 steps and is cheap to generate. Three runs use the same batches in
 * parallel: bf16, fp32, and fp32 from other initial weights. Prints means over a 20th of the steps, the mean absolute
 * differences to fp32 (the difference between the two fp32 runs is the noise of training), and how many of 1,024
 * unseen images select their own caption in a batch. The exit code is 1 if bf16 differs from fp32 by more than the
 * other seed does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/limits.h"
#include "core/rng.h"
#include "tensor/async_copy.h"
#include "train/step.h"

enum { LEVELS = 8, EVERY = 10, ROWS = 20, RUNS = 3, BF16 = 0, FP32, OTHER, UNSEEN = 1024 };

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

/* ---- batches ------------------------------------------------------------------------------------- */

static uint8_t clamp(int x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }

static void paint(uint8_t *rgb, int64_t pixels, const int level[3], int noise, uint64_t key)
{
    uint8_t shade[3][256];
    for (int c = 0; c < 3; c++)
        for (int bits = 0; bits < 256; bits++)
            shade[c][bits] = clamp(255 * level[c] / (LEVELS - 1) + bits * noise / 128 - noise);
    for (int64_t i = 0, c = 0; i < pixels * 3; i += 8) {
        uint64_t bits = rng_u64(key, (uint64_t)(i / 8));
        for (int64_t k = i; k < i + 8 && k < pixels * 3; k++, bits >>= 8, c = c == 2 ? 0 : c + 1)
            rgb[k] = shade[c][bits & 0xff];
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

/* What a run leaves, in memory that all processes share. */
typedef struct curve {
    double found; /* of the unseen images, the share that picks its own caption; below 0: the run failed */
    double loss[];
} curve;

static void step_settings(const settings *o, const kind *k, step_options *so)
{
    step_options_init(so);
    if (model_config_load(ctx, o->model, &so->model) != CLOOB_OK) fail(o->model);
    so->compute = k->compute;
    so->pack_texts = true;
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

/* Of the batch the step has just seen: how many images are most like their own caption, or one that says the same. */
static int count_found(const settings *o, const step *s, device *d, const model_config *c, const int32_t *tokens)
{
    size_t n = (size_t)(o->batch * c->embed);
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    int found = 0;
    if (!x || !y || d->to_host(ctx, d, x, step_embeddings(s, false), n * sizeof *x) != CLOOB_OK ||
        d->to_host(ctx, d, y, step_embeddings(s, true), n * sizeof *y) != CLOOB_OK)
        fail("embeddings");
    for (int64_t i = 0; i < o->batch; i++) {
        int64_t best = 0;
        double max = -2;
        for (int64_t j = 0; j < o->batch; j++) {
            double sum = 0;
            for (int64_t k = 0; k < c->embed; k++) sum += (double)x[i * c->embed + k] * y[j * c->embed + k];
            if (sum > max) max = sum, best = j;
        }
        found += memcmp(tokens + i * c->context, tokens + best * c->context, 5 * sizeof *tokens) == 0;
    }
    free(x);
    free(y);
    return found;
}

static void train(const settings *o, device *d, const kind *k, curve *out)
{
    step_options so;
    step *s;
    step_result r;
    double begun = clock_seconds(), first = 0;
    int found = 0, unseen = 0;
    step_settings(o, k, &so);
    if (step_create(ctx, &so, d, NULL, &s) != CLOOB_OK) fail(k->name);
    if (params_init(ctx, step_params(s), k->seed) != CLOOB_OK) fail(k->name);
    uint8_t *images = async_copy_host_alloc(d, (size_t)(o->batch * so.model.image_size * so.model.image_size * 3));
    int32_t *tokens = async_copy_host_alloc(d, (size_t)(o->batch * so.model.context) * sizeof *tokens);
    if (!images || !tokens) fail("batches");
    for (int i = 0; i < o->steps || unseen < UNSEEN; i++) {
        bool learns = i < o->steps;
        make_batch(o, &so.model, i, images, tokens);
        if (step_run(ctx, s, images, tokens, learns ? rate_at(o, i) : 0, &r) != CLOOB_OK) fail(k->name);
        if (learns) out->loss[i] = r.loss;
        if (learns && i % (o->steps / ROWS) == 0) fprintf(stderr, "%s: step %d, loss %.5f\n", k->name, i, r.loss);
        else found += count_found(o, s, d, &so.model, tokens), unseen += (int)o->batch;
        if (i == 0) first = clock_seconds();
    }
    out->found = (double)found / unseen;
    fprintf(stderr, "%s: %.1f s to the first step, %.1f s for the others\n", k->name, first - begun,
            clock_seconds() - first);
    async_copy_host_free(d, images);
    async_copy_host_free(d, tokens);
    step_destroy(s);
}

/* Each run in a process of its own; the GPU is shared out between them. */
static int run_child(const settings *o, const kind *k, curve *out)
{
    device *d;
    ctx = cloob_ctx_create(NULL);
    out->found = -1;
    if (device_open(ctx, o->device, &d) != CLOOB_OK) fail(o->device);
    train(o, d, k, out);
    device_close(d);
    cloob_ctx_destroy(ctx);
    return 0;
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

static int report(const settings *o, curve *run[RUNS])
{
    int every = o->steps / ROWS;
    printf("%s, batch %lld, %d steps: loss, means over %d steps\n%8s", o->model, (long long)o->batch, o->steps, every,
           "steps");
    for (int k = 0; k < RUNS; k++) printf(" %18s", kinds[k].name);
    printf("\n");
    for (int i = 0; i + every <= o->steps; i += every) {
        printf("%8d", i + every);
        for (int k = 0; k < RUNS; k++) printf(" %18.5f", mean(run[k]->loss + i, every));
        printf("\n");
    }
    printf("%8s", "found");
    for (int k = 0; k < RUNS; k++) printf(" %18.4f", run[k]->found);
    double half = apart(run[BF16]->loss, run[FP32]->loss, o->steps),
           noise = apart(run[FP32]->loss, run[OTHER]->loss, o->steps);
    double fell = mean(run[FP32]->loss, every) - mean(run[FP32]->loss + o->steps - every, every);
    printf("\nmean absolute difference to fp32: bf16 %.5f, fp32 of another seed %.5f; fp32 fell by %.5f\n", half, noise,
           fell);
    printf("bf16 %s\n", half <= noise ? "within noise" : "NOT within noise");
    return half <= noise ? 0 : 1;
}

int main(int argc, char **argv)
{
    settings o = { .model = "RN50", .device = "cuda", .batch = 32, .steps = 200, .noise = 24 };
    curve *run[RUNS];
    pid_t child[RUNS];
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--model") == 0) o.model = argv[i + 1];
        else if (strcmp(argv[i], "--device") == 0) o.device = argv[i + 1];
        else if (strcmp(argv[i], "--batch") == 0) o.batch = atoll(argv[i + 1]);
        else if (strcmp(argv[i], "--steps") == 0) o.steps = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--noise") == 0) o.noise = atoi(argv[i + 1]);
        else return fprintf(stderr, "bench_curve: %s: not an option\n", argv[i]), 2;
    }
    if (o.batch < 2 || o.steps < ROWS) return fprintf(stderr, "bench_curve: 2 pairs and %d steps at least\n", ROWS), 2;
    for (int k = 0; k < RUNS; k++) {
        size_t bytes = sizeof *run[k] + (size_t)o.steps * sizeof *run[k]->loss;
        run[k] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (run[k] == MAP_FAILED) return 1;
        child[k] = fork();
        if (child[k] == 0) return run_child(&o, &kinds[k], run[k]);
    }
    for (int k = 0; k < RUNS; k++)
        if (child[k] < 0 || waitpid(child[k], NULL, 0) < 0) return 1;
    return report(&o, run);
}
