/* Small models of every kind that open_clip's configurations ask for, against what open_clip computed
 * (tests/ref/families.json, tests/ref/make/make_families_ref.py): pooling, masks, activations, layer scale, norms. */
#include "check.h"
#include "procedural.h"

#include "core/json.h"
#include "model/encoder.h"

static cloob_ctx *ctx;

enum { ROWS = 3, MOST = 128 };

static int64_t numbers(const json *list, float *out)
{
    int64_t n = 0;
    for (const json *v = list ? list->child : NULL; v && n < MOST; v = v->next) out[n++] = (float)v->number;
    return n;
}

static void check_side(const char *name, const char *side, const json *row, const float *got, int64_t n)
{
    float want[MOST];
    CHECK(numbers(json_get(row, side), want) == n);
    double error = relative_error(got, want, n, 1e-6);
    printf("  %s, %s: %.2e\n", name, side, error);
    CHECK(error < 2e-5);
}

static void check_model(const json *row, const char *where, bool invariant)
{
    model_config c;
    device *dev;
    params *p;
    encoder *e;
    float got[MOST];
    CHECK_OK(ctx, model_config_from_json(ctx, json_get(row, "config"), row->key, &c));
    CHECK_OK(ctx, device_open(ctx, where, &dev));
    CHECK_OK(ctx, params_create(ctx, &c, dev, CLOOB_F32, PARAMS_INFER, &p));
    CHECK_OK(ctx, procedural_params(ctx, p));
    encoder_options o = { .compute = CLOOB_F32, .invariant = invariant, .batch = ROWS };
    CHECK_OK(ctx, encoder_create_on(ctx, p, &o, &e));
    float *images = malloc((size_t)(ROWS * 3 * c.image_size * c.image_size) * sizeof *images);
    int32_t *tokens = malloc((size_t)(ROWS * c.context) * sizeof *tokens);
    procedural_images(images, ROWS, c.image_size);
    procedural_tokens(tokens, ROWS, &c);
    CHECK_OK(ctx, encoder_float_images(ctx, e, images, ROWS, CLOOB_RAW, got));
    check_side(row->key, "image", row, got, ROWS * c.embed);
    CHECK_OK(ctx, encoder_texts(ctx, e, tokens, ROWS, CLOOB_RAW, got));
    check_side(row->key, "text", row, got, ROWS * c.embed);
    free(images), free(tokens);
    encoder_destroy(e);
    params_destroy(p);
    device_close(dev);
}

static void every_family_is_open_clips(void)
{
    arena a = { 0 };
    json *root = NULL;
    int models = 0;
    CHECK_OK(ctx, json_read_file(ctx, &a, TESTS_DIR "/ref/families.json", &root));
    for (const json *row = root ? root->child : NULL; row; row = row->next, models++) {
        check_model(row, "ref", false);
        check_model(row, "cpu", true);
        check_model(row, "cpu", false);
    }
    CHECK(models == 13);
    arena_release(&a);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(every_family_is_open_clips);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
