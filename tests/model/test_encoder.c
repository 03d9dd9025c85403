/* The encoder: rows in any number against rows one by one; no more rows are computed than are there, up to halves of
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

/* Threads share out the images of a small model; each has the bytes it has alone, with one thread or with many. */
static void threads_change_no_byte(void)
{
    enum { N = 13 };
    float *got[3];
    model_config c;
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-rn", &c));
    size_t each = (size_t)(3 * c.image_size * c.image_size), row = (size_t)c.embed;
    float *images = malloc(N * each * sizeof *images);
    procedural_images(images, N, c.image_size);
    for (int run = 0; run < 3; run++) {
        cloob_ctx *own =
            cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = run ? 3 : 1 });
        device *dev;
        params *p;
        encoder *e;
        encoder_options o = { .compute = CLOOB_F32, .invariant = true };
        CHECK_OK(own, device_open(own, "cpu", &dev));
        CHECK_OK(own, params_create(own, &c, dev, CLOOB_F32, PARAMS_INFER, &p));
        CHECK_OK(own, procedural_params(own, p));
        CHECK_OK(own, encoder_create_on(own, p, &o, &e));
        got[run] = malloc(N * row * sizeof(float));
        size_t many = run == 2 ? 1 : N;
        for (size_t i = 0; i < N; i += many)
            CHECK_OK(own,
                     encoder_float_images(own, e, images + i * each, (int64_t)many, CLOOB_UNIT, got[run] + i * row));
        encoder_destroy(e);
        params_destroy(p);
        device_close(dev);
        cloob_ctx_destroy(own);
    }
    CHECK(memcmp(got[0], got[1], N * row * sizeof(float)) == 0);
    CHECK(memcmp(got[0], got[2], N * row * sizeof(float)) == 0);
    for (int run = 0; run < 3; run++) free(got[run]);
    free(images);
}

/* Images and texts, all at once and a few at a time. */
static void check_rows(encoder *e, const model_config *c)
{
    size_t each = (size_t)(3 * c->image_size * c->image_size), row = (size_t)c->embed;
    float *images = malloc(ROWS * each * sizeof *images), *all = malloc(ROWS * row * sizeof *all),
          *some = malloc(ROWS * row * sizeof *some);
    int32_t *tokens = malloc((size_t)(ROWS * c->context) * sizeof *tokens);
    procedural_images(images, ROWS, c->image_size);
    procedural_tokens(tokens, ROWS, c);
    for (int text = 0; text < 2; text++) {
        CHECK_OK(ctx, text ? encoder_texts(ctx, e, tokens, ROWS, CLOOB_UNIT, all)
                           : encoder_float_images(ctx, e, images, ROWS, CLOOB_UNIT, all));
        for (int64_t first = 0, n = 1; first + n <= ROWS; first += n, n = n % 5 + 1) {
            CHECK_OK(ctx, text ? encoder_texts(ctx, e, tokens + first * c->context, n, CLOOB_UNIT, some)
                               : encoder_float_images(ctx, e, images + (size_t)first * each, n, CLOOB_UNIT, some));
            CHECK(memcmp(some, all + (size_t)first * row, (size_t)n * row * sizeof *some) == 0);
        }
    }
    free(images), free(tokens), free(all), free(some);
}

/* A row of a batch has the bytes it has alone, whatever the batch and its size. */
static void rows_keep_their_bytes(const char *model, const char *device_name, cloob_dtype compute, bool need_packing)
{
    device *dev;
    params *p;
    model_config c;
    encoder *e;
    encoder_options o = { .compute = compute, .invariant = !need_packing, .batch = 16 };
    CHECK_OK(ctx, model_config_by_name(ctx, model, &c));
    CHECK_OK(ctx, device_open(ctx, device_name, &dev));
    CHECK_OK(ctx, params_create(ctx, &c, dev, compute, PARAMS_INFER, &p));
    CHECK_OK(ctx, procedural_params(ctx, p));
    CHECK_OK(ctx, encoder_create_on(ctx, p, &o, &e));
    if (need_packing && !encoder_packs_texts(e)) SKIP("no packed GEMM on this machine");
    check_rows(e, &c);
    encoder_destroy(e);
    params_destroy(p);
    device_close(dev);
}

/* w with its matrices in bf16, as files of half precision have them. */
static void store_half(weights *w)
{
    for (int64_t i = 0; i < w->count; i++) {
        tensor *t = &w->entry[i].t;
        uint16_t *half = arena_push(&w->a, (size_t)tensor_count(t) * sizeof *half);
        CHECK(half && dtype_convert(CLOOB_BF16, half, CLOOB_F32, t->data, tensor_count(t)));
        t->dtype = CLOOB_BF16;
        t->data = half;
    }
}

/* Bound weights have no F32 copy of a matrix, and are read in place when they are stored in bf16; embeddings
 * have the bytes that a full copy gives. */
static void bf16_needs_no_second_copy(const char *name, bool half_file)
{
    device *dev;
    params *p, *bound;
    model_config c;
    encoder *copied, *e;
    weights w;
    encoder_options o = { .compute = CLOOB_BF16, .batch = 4 };
    int viewed = 0;
    CHECK_OK(ctx, model_config_by_name(ctx, name, &c));
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    CHECK_OK(ctx, params_create(ctx, &c, dev, CLOOB_BF16, PARAMS_INFER, &p));
    CHECK_OK(ctx, procedural_params(ctx, p));
    weights_init(&w);
    CHECK_OK(ctx, params_store(ctx, p, &w));
    if (half_file) store_half(&w);
    CHECK_OK(ctx, params_load(ctx, p, &w)); /* gains are rounded, too */
    CHECK_OK(ctx, params_create(ctx, &c, dev, CLOOB_BF16, PARAMS_INFER, &bound));
    for (int text = 0; text < 2; text++) CHECK_OK(ctx, params_bind(ctx, bound, &w, text));
    for (int i = 0; i < bound->count; i++) {
        const tensor *t = weights_find(&w, bound->row[i].name), *v = &bound->compute_view[i];
        CHECK(memcmp(v->data, p->compute_view[i].data, tensor_bytes(v)) == 0);
        CHECK(v->dtype != CLOOB_BF16 || !bound->master_view[i].data);
        viewed += v->dtype == CLOOB_BF16 && v->data == t->data;
        for (int64_t k = 0; v->dtype == CLOOB_BF16 && k < bound->row[i].count; k++)
            CHECK(bound->master[bound->row[i].offset + k] == 0);
    }
    CHECK(half_file ? viewed > 4 : viewed == 0);
    CHECK_OK(ctx, encoder_create_on(ctx, p, &o, &copied));
    CHECK_OK(ctx, encoder_create_on(ctx, bound, &o, &e));
    float *images = malloc((size_t)(ROWS * 3 * c.image_size * c.image_size) * sizeof *images);
    float *want = malloc((size_t)(ROWS * c.embed) * sizeof *want),
          *got = malloc((size_t)(ROWS * c.embed) * sizeof *got);
    procedural_images(images, ROWS, c.image_size);
    for (int64_t n = 1; n <= ROWS; n += 4) { /* several executors, which share packed weights */
        CHECK_OK(ctx, encoder_float_images(ctx, copied, images, n, CLOOB_UNIT, want));
        CHECK_OK(ctx, encoder_float_images(ctx, e, images, n, CLOOB_UNIT, got));
        CHECK(memcmp(want, got, (size_t)(n * c.embed) * sizeof *got) == 0);
    }
    free(images), free(want), free(got);
    encoder_destroy(copied), encoder_destroy(e);
    params_destroy(p), params_destroy(bound);
    weights_release(&w);
    device_close(dev);
}

static void bf16_views_what_is_stored_so(void)
{
    bf16_needs_no_second_copy("tiny-vit", true);
    bf16_needs_no_second_copy("tiny-rn", true);
}

static void bf16_rounds_what_is_stored_in_f32(void)
{
    bf16_needs_no_second_copy("tiny-vit", false);
    bf16_needs_no_second_copy("tiny-rn", false);
}

static void a_row_has_its_bytes_in_any_batch(void) { rows_keep_their_bytes("tiny-vit", "cpu", CLOOB_F32, true); }
static void a_row_has_its_bytes_in_bf16(void) { rows_keep_their_bytes("tiny-vit", "cpu", CLOOB_BF16, false); }

static void a_row_has_its_bytes_on_a_gpu(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    for (int i = 0; i < 4; i++)
        rows_keep_their_bytes(i % 2 ? "tiny-vit" : "tiny-rn", "cuda", i / 2 ? CLOOB_BF16 : CLOOB_F32, false);
}

/* 8-bit weights: near the floats, and a row with the same bytes in any batch. */
static void eight_bits_are_near_and_invariant(void)
{
    device *dev;
    params *p;
    model_config c;
    encoder *e[2];
    CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &c));
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    CHECK_OK(ctx, params_create(ctx, &c, dev, CLOOB_F32, PARAMS_INFER, &p));
    CHECK_OK(ctx, procedural_params(ctx, p));
    for (int i = 0; i < 2; i++) {
        encoder_options o = { .compute = CLOOB_F32, .invariant = true, .batch = 16, .int8 = i };
        CHECK_OK(ctx, encoder_create_on(ctx, p, &o, &e[i]));
    }
    size_t each = (size_t)(3 * c.image_size * c.image_size), row = (size_t)c.embed;
    float *images = malloc(ROWS * each * sizeof *images), *want = malloc(ROWS * row * sizeof *want),
          *got = malloc(ROWS * row * sizeof *got), *one = malloc(row * sizeof *one);
    int32_t *tokens = malloc((size_t)(ROWS * c.context) * sizeof *tokens);
    procedural_images(images, ROWS, c.image_size);
    procedural_tokens(tokens, ROWS, &c);
    for (int text = 0; text < 2; text++) {
        for (int i = 0; i < 2; i++)
            CHECK_OK(ctx, text ? encoder_texts(ctx, e[i], tokens, ROWS, CLOOB_UNIT, i ? got : want)
                               : encoder_float_images(ctx, e[i], images, ROWS, CLOOB_UNIT, i ? got : want));
        bool same = memcmp(got, want, ROWS * row * sizeof *got) == 0;
        CHECK(!same); /* it was not the floats again */
        for (size_t r = 0; r < ROWS; r++) {
            double cosine = 0;
            for (size_t k = 0; k < row; k++) cosine += (double)got[r * row + k] * (double)want[r * row + k];
            CHECK(cosine > 0.999);
        }
        CHECK_OK(ctx, text ? encoder_texts(ctx, e[1], tokens + 7 * c.context, 1, CLOOB_UNIT, one)
                           : encoder_float_images(ctx, e[1], images + 7 * each, 1, CLOOB_UNIT, one));
        CHECK(memcmp(one, got + 7 * row, row * sizeof *one) == 0);
    }
    free(images), free(tokens), free(want), free(got), free(one);
    for (int i = 0; i < 2; i++) encoder_destroy(e[i]);
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
    RUN(a_row_has_its_bytes_in_any_batch);
    RUN(bf16_views_what_is_stored_so);
    RUN(bf16_rounds_what_is_stored_in_f32);
    RUN(a_row_has_its_bytes_in_bf16);
    RUN(a_row_has_its_bytes_on_a_gpu);
    RUN(eight_bits_are_near_and_invariant);
    RUN(threads_change_no_byte);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
