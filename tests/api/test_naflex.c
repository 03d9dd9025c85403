/* SigLIP 2 NaFlex from files: embeddings against transformers (tests/ref/make/make_naflex_ref.py), any batch, both
 * directions of conversion, and what is refused. */
#include "check.h"

#include "cloob/cloob.h"
#include "core/file.h"
#include "io/safetensors.h"

#define REF    TESTS_DIR "/ref/naflex"
#define IMAGES TESTS_DIR "/ref/images/"
enum { D = 16, FILES = 16 };

static cloob_ctx *ctx;
static st_file want;

static cloob_model *open_model(const char *path)
{
    cloob_model *m = NULL;
    cloob_model_options o;
    cloob_model_options_init(&o);
    o.device = "cpu";
    CHECK_OK(ctx, cloob_model_open(ctx, path, &o, &m));
    return m;
}

/* The files of the frozen rows; the caller frees them. */
static int64_t file_names(char *path[FILES])
{
    char list[512];
    int64_t n = 0;
    snprintf(list, sizeof list, "%s", st_meta_get(&want, "files"));
    for (char *word = strtok(list, " "); word && n < FILES; word = strtok(NULL, " "))
        path[n++] = file_join(IMAGES, word);
    return n;
}

static double largest_difference(const float *a, const float *b, int64_t n)
{
    double most = 0, scale = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    return most / scale;
}

/* fp32 against double: 1e-6 of the largest element is a few roundings. */
static void check_model(const char *path)
{
    char *file[FILES];
    float rows[FILES * D], alone[D];
    int64_t n = file_names(file);
    const tensor *image = &st_find(&want, "image")->t, *text = &st_find(&want, "text")->t,
                 *tokens = &st_find(&want, "tokens")->t;
    cloob_model *m = open_model(path);
    CHECK(m && image->dim[0] == n && image->dim[1] == D);
    if (!m) return;
    CHECK_OK(ctx, cloob_encode_files(ctx, m, (const char *const *)file, n, CLOOB_RAW, rows, NULL));
    CHECK(largest_difference(rows, image->data, n * D) < 1e-6);
    for (int64_t i = 0; i < n; i++) { /* the patches of others in the batch are not seen */
        CHECK_OK(ctx, cloob_encode_files(ctx, m, (const char *const *)&file[i], 1, CLOOB_RAW, alone, NULL));
        CHECK(memcmp(alone, rows + i * D, sizeof alone) == 0);
    }
    CHECK_OK(ctx, cloob_encode_tokens(ctx, m, tokens->data, tokens->dim[0], CLOOB_RAW, rows));
    CHECK(largest_difference(rows, text->data, tensor_count(text)) < 1e-6);
    cloob_model_close(m);
    for (int64_t i = 0; i < n; i++) free(file[i]);
}

static void embeddings_equal_transformers(void) { check_model(REF); }

static void converted_models_embed_alike(void)
{
    cloob_convert_options o;
    cloob_convert_options_init(&o);
    CHECK_OK(ctx, cloob_convert(ctx, REF, "test_naflex.tmp.safetensors", &o, NULL));
    check_model("test_naflex.tmp.safetensors");
    o.to = CLOOB_WEIGHTS_HF;
    CHECK_OK(ctx, cloob_convert(ctx, "test_naflex.tmp.safetensors", "test_naflex.tmp", &o, NULL));
    check_model("test_naflex.tmp");
    o.to = CLOOB_WEIGHTS_OPEN_CLIP;
    CHECK(cloob_convert(ctx, REF, "test_naflex_open_clip.tmp", &o, NULL) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "NaFlex"));
}

/* Pixels of any size are an image; normalised pixels of one size are not what the model takes. */
static void pixels_are_resized_and_tensors_refused(void)
{
    cloob_model *m = open_model(REF);
    cloob_model_facts f;
    cloob_model_get_facts(m, &f);
    int64_t S = f.image_size;
    uint8_t *rgb = malloc((size_t)(2 * S * S * 3));
    float *x = calloc((size_t)(3 * S * S), sizeof *x), rows[3 * D];
    for (int64_t i = 0; i < 2 * S * S * 3; i++) rgb[i] = (uint8_t)(i * 7 / 5);
    CHECK_OK(ctx, cloob_encode_images(ctx, m, rgb, 2, CLOOB_UNIT, rows));
    CHECK_OK(ctx, cloob_encode_image(ctx, m, rgb + S * S * 3, S, S, CLOOB_UNIT, rows + 2 * D));
    CHECK(memcmp(rows + D, rows + 2 * D, D * sizeof *rows) == 0);
    CHECK(cloob_encode_image_tensor(ctx, m, x, 1, CLOOB_UNIT, rows) == CLOOB_ERR_UNSUPPORTED);
    CHECK(strstr(cloob_error(ctx), "NaFlex"));
    cloob_image_input in = { .data = rgb, .width = S, .height = S };
    CHECK(cloob_model_preprocess(ctx, m, &in, 1, x, NULL) == CLOOB_ERR_UNSUPPORTED);
    cloob_model_close(m);
    free(rgb), free(x);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    CHECK_OK(ctx, st_open(ctx, REF "/expected.safetensors", &want));
    RUN(embeddings_equal_transformers);
    RUN(converted_models_embed_alike);
    RUN(pixels_are_resized_and_tensors_refused);
    st_close(&want);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
