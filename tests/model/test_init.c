/* Initial weights: what each number is, and that a thread next to other work draws the same bytes on every device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/rng.h"
#include "model/params.h"
#include "tensor/bf16_copy.h"

enum { SEED = 3 };

static params *make(cloob_ctx *ctx, device *dev, const char *model, const params_training *t)
{
    model_config c;
    params *p;
    CHECK_OK(ctx, model_config_by_name(ctx, model, &c));
    CHECK_OK(ctx, params_create_training(ctx, &c, dev, CLOOB_BF16, PARAMS_TRAIN, t, &p));
    return p;
}

static float *row_of(cloob_ctx *ctx, const params *p, const char *name, int64_t *count)
{
    int row = params_find(p, name);
    CHECK(row >= 0);
    *count = p->row[row].count;
    float *values = malloc((size_t)*count * sizeof *values);
    CHECK_OK(ctx, params_get(ctx, p, row, false, values));
    return values;
}

/* Number i of a row, in the order of files, is a function of (seed, name, i). */
static void numbers_are_as_defined(void)
{
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    device *dev;
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    params *p = make(ctx, dev, "tiny-rn", NULL);
    CHECK_OK(ctx, params_init(ctx, p, SEED));
    const char *normal = "token_embedding.weight", *uniform = "visual.layer1.0.conv2.weight"; /* 3 x 3 */
    int64_t n;
    float *v = row_of(ctx, p, normal, &n);
    for (int64_t i = 0; i < n; i++) CHECK(v[i] == (float)(0.02 * rng_normal(rng_key(SEED, normal), (uint64_t)i)));
    free(v);
    v = row_of(ctx, p, uniform, &n);
    const param *r = &p->row[params_find(p, uniform)];
    double half = 1.0 / sqrt((double)(n / r->file.dim[0]));
    CHECK(r->file.ndim == 4 && r->file.dim[1] > 1 && r->file.dim[2] == 3);
    for (int64_t i = 0; i < n; i++)
        CHECK(v[i] == (float)(half * (2.0 * rng_uniform(rng_key(SEED, uniform), (uint64_t)i) - 1.0)));
    free(v);
    v = row_of(ctx, p, "visual.layer1.0.bn3.weight", &n);
    for (int64_t i = 0; i < n; i++) CHECK(v[i] == 0.0f);
    free(v);
    v = row_of(ctx, p, "visual.layer1.0.bn2.running_var", &n);
    for (int64_t i = 0; i < n; i++) CHECK(v[i] == 1.0f);
    free(v);
    params_destroy(p);
    device_close(dev);
    cloob_ctx_destroy(ctx);
}

/* Master and bf16 copies, as they lie on the device. */
static void *block_of(cloob_ctx *ctx, const params *p)
{
    size_t floats = (size_t)p->total * sizeof *p->master, halves = (size_t)p->learned * sizeof *p->shadow;
    char *block = malloc(floats + halves);
    CHECK_OK(ctx, p->dev->to_host(ctx, p->dev, block, p->master, floats));
    CHECK_OK(ctx, p->dev->to_host(ctx, p->dev, block + floats, p->shadow, halves));
    return block;
}

static void *drawn(cloob_ctx *ctx, device *dev, const char *model, const params_training *t, size_t *bytes)
{
    params *p = make(ctx, dev, model, t);
    CHECK_OK(ctx, params_init(ctx, p, SEED));
    void *block = block_of(ctx, p);
    *bytes = (size_t)p->total * sizeof *p->master + (size_t)p->learned * sizeof *p->shadow;
    params_destroy(p);
    return block;
}

static void every_device_draws_the_same(void)
{
    static const char *const models[] = { "tiny-rn", "tiny-vit" };
    static const char *const devices[] = { "cpu", "ref", "cuda" };
    params_training lora = { .lora = 2, .lora_scale = 0.5 };
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    for (int m = 0; m < 2; m++)
        for (int d = 0; d < (device_cuda_count() > 0 ? 3 : 2); d++) {
            device *first, *dev;
            size_t bytes, same;
            const params_training *t = m == 1 ? &lora : NULL;
            CHECK_OK(ctx, device_open(ctx, "cpu", &first));
            CHECK_OK(ctx, device_open(ctx, devices[d], &dev));
            void *a = drawn(ctx, first, models[m], t, &bytes);
            void *b = drawn(ctx, dev, models[m], t, &same);
            CHECK(bytes == same && memcmp(a, b, bytes) == 0);
            free(a), free(b);
            device_close(dev), device_close(first);
        }
    cloob_ctx_destroy(ctx);
}

/* Ties to even, numbers that round to infinity, NaN; the end of a block that fills no vector. */
static void halves_are_rounded_alike(void)
{
    static const uint32_t bits[] = { 0x3F808000u, 0x3F818000u, 0x3F808001u, 0x7F7FFFFFu, 0x7F800000u, 0xFF800000u,
                                     0x80000000u, 0x00000001u, 0x3F807FFFu, 0xBF818000u, 0x42F6E979u };
    static const uint16_t want[] = { 0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x7F80, 0xFF80,
                                     0x8000, 0x0000, 0x3F80, 0xBF82, 0x42F7 };
    static const char *const devices[] = { "cpu", "cuda" };
    enum { N = sizeof want / sizeof *want };
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    for (int i = 0; i < (device_cuda_count() > 0 ? 2 : 1); i++) {
        device *dev;
        void *from, *to;
        uint16_t got[N + 1];
        CHECK_OK(ctx, device_open(ctx, devices[i], &dev));
        CHECK_OK(ctx, dev->alloc(ctx, dev, sizeof bits, "floats", &from));
        CHECK_OK(ctx, dev->alloc(ctx, dev, sizeof got, "halves", &to));
        CHECK_OK(ctx, dev->to_device(ctx, dev, from, bits, sizeof bits));
        CHECK_OK(ctx, bf16_copy(ctx, dev, to, from, N));
        CHECK_OK(ctx, dev->to_host(ctx, dev, got, to, sizeof got));
        CHECK(memcmp(got, want, sizeof want) == 0 && got[N] == 0);
        dev->free(dev, from), dev->free(dev, to);
        device_close(dev);
    }
    cloob_ctx_destroy(ctx);
}

int main(void)
{
    RUN(numbers_are_as_defined);
    RUN(every_device_draws_the_same);
    RUN(halves_are_rounded_alike);
    return check_summary();
}
