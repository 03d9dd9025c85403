/* Models from files: the frozen outputs through convert and embed, the same bytes in any batch, bad input. */
#include "check.h"

#include <pthread.h>

#include "cloob/cloob.h"
#include "io/safetensors.h"
#include "model/interchange.h"
#include "model/procedural.h"
#include "model/procedural_weights.h"
#include "infer/embed_job.h"

static cloob_ctx *ctx;
static const char *const weights_file = "test_model.tmp.safetensors",
                         *const inputs_file = "test_model.in.tmp.safetensors",
                         *const out_file = "test_model.out.tmp.safetensors";

static void write_inputs(const char *name, int64_t n)
{
    model_config c;
    CHECK_OK(ctx, model_config_load(ctx, name, &c));
    int64_t S = c.image_size, T = c.context;
    float *x = malloc((size_t)(n * 3 * S * S) * sizeof *x);
    int32_t *t = malloc((size_t)(n * T) * sizeof *t);
    procedural_images(x, n, S);
    procedural_tokens(t, n, &c);
    st_entry e[] = { { "images", TENSOR(CLOOB_F32, x, n, 3, S, S) }, { "tokens", TENSOR(CLOOB_I32, t, n, T) } };
    CHECK_OK(ctx, st_write(ctx, inputs_file, e, 2, NULL, 0));
    free(x), free(t);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double d = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) d += pow((double)a[i] - (double)b[i], 2), norm += pow((double)b[i], 2);
    return sqrt(d / norm);
}

static void compare(const st_file *got, const st_file *want, const char *name, const char *frozen)
{
    const st_entry *a = st_find(got, name), *b = st_find(want, frozen);
    CHECK(a && b && tensor_same_shape(&a->t, &b->t) && b->t.dtype == CLOOB_F32);
    if (a && b) CHECK_NEAR(distance(a->t.data, b->t.data, tensor_count(&b->t)), 0, 1e-5);
}

/* As a user does it: convert, embed --tensors --raw, look into the file. */
static void converted_weights_give_the_frozen_outputs(const char *path, bool convert)
{
    const char *config = TESTS_DIR "/ref/foreign/mini-rn.json";
    cloob_model *m;
    embed_result e = { 0 };
    st_file got, want;
    cloob_convert_options co;
    cloob_model_options mo;
    cloob_convert_options_init(&co);
    cloob_model_options_init(&mo);
    co.config = config;
    if (convert) CHECK_OK(ctx, cloob_convert(ctx, path, weights_file, &co, NULL));
    else mo.config = config; /* the foreign file itself */
    mo.device = "cpu";
    write_inputs(config, 6);
    CHECK_OK(ctx, cloob_model_open(ctx, convert ? weights_file : path, &mo, &m));
    CHECK_OK(ctx, embed_to_file(ctx, m, &(embed_job){ .what = CLOOB_RAW, .tensors = inputs_file }, out_file, &e));
    CHECK_OK(ctx, st_open(ctx, out_file, &got));
    CHECK_OK(ctx, st_open(ctx, TESTS_DIR "/ref/foreign/mini-rn.safetensors", &want));
    compare(&got, &want, "image", "eval.image");
    compare(&got, &want, "text", "eval.text");
    st_close(&got), st_close(&want);
    embed_result_release(&e);
    cloob_model_close(m);
    remove(weights_file), remove(inputs_file), remove(out_file);
}

static void the_authors_checkpoint(void)
{
    converted_weights_give_the_frozen_outputs(TESTS_DIR "/ref/foreign/authors_epoch_2.pt", true);
}
static void the_openai_state_dict(void)
{
    converted_weights_give_the_frozen_outputs(TESTS_DIR "/ref/foreign/openai_state_dict.pt", true);
}
static void a_foreign_file_without_conversion(void)
{
    converted_weights_give_the_frozen_outputs(TESTS_DIR "/ref/foreign/openai_state_dict.pt", false);
}

static void write_model(const char *name)
{
    model_config c;
    weights w;
    CHECK_OK(ctx, model_config_by_name(ctx, name, &c));
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    CHECK_OK(ctx, interchange_write(ctx, weights_file, FORMAT_NATIVE, &w));
    weights_release(&w);
}

static void a_row_has_the_same_bytes_in_any_batch(void)
{
    enum { N = 5 };
    cloob_model *m;
    cloob_model_facts f;
    write_model("tiny-rn");
    CHECK_OK(ctx, cloob_model_open(ctx, weights_file, NULL, &m));
    cloob_model_get_facts(m, &f);
    CHECK_STR(f.name, "tiny-rn");
    CHECK(f.image_size == 64 && f.context == 12 && f.epoch == -1 && !f.has_tokenizer && f.parameters > 10000);
    int64_t D = cloob_model_width(m, CLOOB_UNIT, CLOOB_IMAGE), row = f.image_size * f.image_size * 3;
    uint8_t *rgb = malloc((size_t)(N * row));
    float all[N * 64], one[64];
    for (int64_t i = 0; i < N * row; i++) rgb[i] = (uint8_t)(128 + 127 * procedural("bytes", i));
    CHECK(D == f.embed && D <= 64);
    CHECK_OK(ctx, cloob_encode_images(ctx, m, rgb, N, CLOOB_UNIT, all));
    for (int64_t i = 0; i < N; i++) {
        CHECK_OK(ctx, cloob_encode_images(ctx, m, rgb + i * row, 1, CLOOB_UNIT, one));
        CHECK(memcmp(one, all + i * D, (size_t)D * sizeof *one) == 0);
        CHECK_OK(ctx, cloob_encode_image(ctx, m, rgb + i * row, 64, 64, CLOOB_UNIT, one)); /* no resizing to do */
        CHECK(memcmp(one, all + i * D, (size_t)D * sizeof *one) == 0);
    }
    free(rgb);
    cloob_model_close(m);
    remove(weights_file);
}

typedef struct worker {
    pthread_t thread;
    float row[64];
    cloob_status status;
} worker;

/* A context and a model of its own, twice over. */
static void *encode_alone(void *arg)
{
    worker *w = arg;
    uint8_t rgb[64 * 64 * 3];
    for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = (uint8_t)(i * 7 % 251);
    for (int round = 0; round < 2; round++) {
        cloob_ctx *own = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
        cloob_model *m = NULL;
        w->status = cloob_model_open(own, weights_file, NULL, &m);
        if (w->status == CLOOB_OK) w->status = cloob_encode_images(own, m, rgb, 1, CLOOB_UNIT, w->row);
        cloob_model_close(m);
        cloob_ctx_destroy(own);
    }
    return NULL;
}

static void several_contexts_do_not_disturb_each_other(void)
{
    enum { WORKERS = 4 };
    worker w[WORKERS] = { 0 };
    write_model("tiny-rn");
    for (int i = 0; i < WORKERS; i++) pthread_create(&w[i].thread, NULL, encode_alone, &w[i]);
    for (int i = 0; i < WORKERS; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < WORKERS; i++) {
        CHECK(w[i].status == CLOOB_OK);
        CHECK(memcmp(w[i].row, w[0].row, 24 * sizeof(float)) == 0);
    }
    remove(weights_file);
}

static void bad_input_is_reported(void)
{
    cloob_model *m;
    cloob_model_options o;
    embed_result e = { 0 };
    float out[64];
    const char *texts[] = { "a cat" }, *files[] = { weights_file };
    CHECK(cloob_model_open(ctx, "absent.safetensors", NULL, &m) == CLOOB_ERR_IO && !m);
    write_model("tiny-rn");
    cloob_model_options_init(&o);
    o.precision = "fp9";
    CHECK(cloob_model_open(ctx, weights_file, &o, &m) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "fp9"));
    for (int i = 0; i < 2; i++) {
        cloob_model_facts rounded;
        o.precision = i ? "fp16" : "f16";
        CHECK_OK(ctx, cloob_model_open(ctx, weights_file, &o, &m));
        cloob_model_get_facts(m, &rounded);
        CHECK(strcmp(rounded.precision, "f16") == 0);
        cloob_model_close(m);
    }
    o.precision = "auto", o.device = "ref";
    CHECK_OK(ctx, cloob_model_open(ctx, weights_file, &o, &m));
    cloob_model_facts facts;
    cloob_model_get_facts(m, &facts);
    CHECK(strcmp(facts.precision, "fp32") == 0); /* what it became */
    cloob_model_close(m);
    o.precision = "fp8", o.device = "cpu";
    CHECK(cloob_model_open(ctx, weights_file, &o, &m) == CLOOB_ERR_UNSUPPORTED && strstr(cloob_error(ctx), "int8"));
    CHECK_OK(ctx, cloob_model_open(ctx, weights_file, NULL, &m));
    CHECK(cloob_encode_texts(ctx, m, texts, 1, CLOOB_UNIT, out) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "`vocab`") != NULL);
    CHECK(cloob_encode_files(ctx, m, files, 1, CLOOB_UNIT, out, NULL) != CLOOB_OK);
    CHECK(strstr(cloob_error(ctx), weights_file) != NULL);
    CHECK(embed_to_memory(ctx, m, &(embed_job){ .what = CLOOB_UNIT, .images = files, .images_count = 1 }, &e) !=
          CLOOB_OK);
    CHECK(embed_to_memory(ctx, m, &(embed_job){ .what = CLOOB_UNIT, .tensors = weights_file }, &e) == CLOOB_ERR_FORMAT);
    CHECK(embed_to_file(ctx, m, &(embed_job){ .what = CLOOB_UNIT }, out_file, &e) == CLOOB_ERR_ARGUMENT);
    write_inputs("tiny-vit", 1); /* other sizes than this model's */
    CHECK(embed_to_memory(ctx, m, &(embed_job){ .what = CLOOB_UNIT, .tensors = inputs_file }, &e) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "wants") != NULL);
    embed_result_release(&e);
    cloob_model_close(m);
    remove(weights_file), remove(inputs_file);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(the_authors_checkpoint);
    RUN(the_openai_state_dict);
    RUN(a_foreign_file_without_conversion);
    RUN(a_row_has_the_same_bytes_in_any_batch);
    RUN(several_contexts_do_not_disturb_each_other);
    RUN(bad_input_is_reported);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
