/* The encoder: rows in any number against rows one by one; no more rows are worked out than are there, up to halves of
 * a batch. */
#include "check.h"
#include "procedural.h"

#include "model/encoder.h"

static cloob_ctx *ctx;

enum { ROWS = 21 };

static void rows_of_any_number_agree(const char *name, const char *where, bool text)
{
    device *dev;
    params *p;
    model_config c;
    encoder *alone, *batched;
    CHECK_OK(ctx, model_config_by_name(ctx, name, &c));
    CHECK_OK(ctx, device_open(ctx, where, &dev));
    CHECK_OK(ctx, params_create(ctx, &c, dev, CLOOB_F32, PARAMS_INFER, &p));
    CHECK_OK(ctx, procedural_params(ctx, p));
    encoder_options one = { .compute = CLOOB_F32, .invariant = true }, many = { .compute = CLOOB_F32, .batch = 16 };
    CHECK_OK(ctx, encoder_create_on(ctx, p, &one, &alone));
    CHECK_OK(ctx, encoder_create_on(ctx, p, &many, &batched));
    float *images = malloc((size_t)(ROWS * 3 * c.image_size * c.image_size) * sizeof *images);
    int32_t *tokens = malloc((size_t)(ROWS * c.context) * sizeof *tokens);
    float *want = malloc((size_t)(ROWS * c.embed) * sizeof *want),
          *got = malloc((size_t)(ROWS * c.embed) * sizeof *got);
    procedural_images(images, ROWS, c.image_size);
    procedural_tokens(tokens, ROWS, &c);
    static const int64_t counts[] = { 1, 3, 16, ROWS, 2 };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t n = counts[i], before = encoder_rows_run(batched);
        CHECK_OK(ctx, text ? encoder_texts(ctx, alone, tokens, n, CLOOB_UNIT, want)
                           : encoder_float_images(ctx, alone, images, n, CLOOB_UNIT, want));
        CHECK_OK(ctx, text ? encoder_texts(ctx, batched, tokens, n, CLOOB_UNIT, got)
                           : encoder_float_images(ctx, batched, images, n, CLOOB_UNIT, got));
        int64_t ran = encoder_rows_run(batched) - before;
        CHECK(ran >= n && ran < 2 * n);
        CHECK(relative_error(got, want, n * c.embed, 1e-6) < 1e-5);
    }
    free(images), free(tokens), free(want), free(got);
    encoder_destroy(alone), encoder_destroy(batched);
    params_destroy(p);
    device_close(dev);
}

static void images_agree(void) { rows_of_any_number_agree("tiny-rn", "cpu", false); }
static void texts_agree(void) { rows_of_any_number_agree("tiny-vit", "cpu", true); }

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(images_agree);
    RUN(texts_agree);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
