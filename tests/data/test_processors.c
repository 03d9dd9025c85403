/* Image preprocessing of model folders against transformers' image processors (tests/ref/processors.json). */
#include "check.h"

#include "core/text.h"
#include "data/view/transform.h"
#include "model/config_reader.h"

static cloob_ctx *ctx;

static cloob_status read_text(const char *text, int64_t size, model_config *c)
{
    arena a = { 0 };
    json *root;
    model_config_init(c);
    c->image_size = size;
    cloob_status s = json_parse(ctx, &a, text, strlen(text), "preprocessor_config.json", &root);
    if (s == CLOOB_OK) s = preprocess_read_hf(&(config_reader){ ctx, "preprocessor_config.json", c }, root);
    arena_release(&a);
    return s;
}

static void view_of(const model_config *c, const char *name, uint8_t *out)
{
    char path[512];
    image im;
    transform_options o;
    snprintf(path, sizeof path, "%s/ref/images/%s", TESTS_DIR, name);
    cloob_status s = image_read(ctx, path, NULL, &im);
    CHECK_OK(ctx, s);
    if (s != CLOOB_OK) return;
    transform_options_init(&o, c->image_size);
    o.how = c->view;
    CHECK_OK(ctx, view_of_image(ctx, NULL, &im, &o, NULL, out));
    image_release(&im);
}

/* Pixels are transformers' bytes; the normalised corner agrees to float's precision. */
static void check_case(const json *e)
{
    model_config c;
    int64_t size = 0;
    unsigned char *want;
    size_t bytes;
    const char *file = json_string(json_get(e, "image")), *pixels = json_string(json_get(e, "pixels"));
    json_int(json_get(e, "size"), &size);
    model_config_init(&c);
    c.image_size = size;
    CHECK_OK(ctx, preprocess_read_hf(&(config_reader){ ctx, file, &c }, json_get(e, "config")));
    CHECK(base64_decode(pixels, strlen(pixels), &want, &bytes) && bytes == (size_t)(3 * size * size));
    uint8_t *have = calloc(bytes, 1);
    view_of(&c, file, have);
    int64_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) wrong += have[i] != want[i];
    if (wrong)
        printf("%s, %lld px, %s: %lld of %zu bytes\n", file, (long long)size, resize_filter_name(c.view.filter),
               (long long)wrong, bytes);
    CHECK(wrong == 0);
    const json *corner = json_first(json_get(e, "corner"));
    for (int i = 0; i < 3; i++, corner = json_next(corner))
        CHECK_NEAR((have[i] / 255.0 - c.image_mean[i]) / c.image_std[i], corner->number, 1e-5);
    free(have);
    free(want);
}

static void pixels_are_those_of_transformers(void)
{
    arena a = { 0 };
    json *root;
    CHECK_OK(ctx, json_read_file(ctx, &a, TESTS_DIR "/ref/processors.json", &root));
    const json *cases = json_get(root, "cases");
    CHECK(json_count(cases) == 30);
    for (const json *e = json_first(cases); e; e = json_next(e)) check_case(e);
    arena_release(&a);
}

typedef struct refused {
    const char *text, *named;
} refused;

static void what_cannot_be_applied_is_refused_by_name(void)
{
    static const refused rows[] = {
        { "{\"size\":{\"longest_edge\":16}}", "longest_edge" },
        { "{\"size\":{\"height\":16}}", "size" },
        { "{\"size\":16,\"crop_size\":20}", "crop_size" },
        { "{\"size\":16,\"crop_size\":16,\"resample\":9}", "resample" },
        { "{\"size\":16,\"crop_size\":16,\"do_pad\":true}", "do_pad" },
        { "{\"size\":16,\"crop_size\":16,\"crop_pct\":0.9}", "crop_pct" },
        { "{\"size\":16,\"do_center_crop\":false}", "do_center_crop" },
        { "{\"size\":16,\"crop_size\":16,\"rescale_factor\":0}", "rescale_factor" },
        { "{\"size\":16,\"crop_size\":16,\"image_mean\":[1,2]}", "image_mean" },
        { "{\"image_processor_type\":\"BitImageProcessor\"}", "BitImageProcessor" },
        { "{\"image_processor_type\":\"SiglipImageProcessor\",\"size\":{\"height\":20,\"width\":16}}", "size" },
    };
    model_config c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(read_text(rows[i].text, 16, &c) != CLOOB_OK);
        if (!strstr(cloob_error(ctx), rows[i].named)) printf("%s\n", cloob_error(ctx));
        CHECK(strstr(cloob_error(ctx), rows[i].named) && strstr(cloob_error(ctx), "preprocessor_config.json"));
    }
}

/* The form of 2021, with plain numbers and the name of that time. */
static void old_files_are_read(void)
{
    model_config c;
    CHECK_OK(ctx, read_text("{\"crop_size\":16,\"do_center_crop\":true,\"feature_extractor_type\":"
                            "\"CLIPFeatureExtractor\",\"image_mean\":[0.5,0.5,0.5],\"resample\":3,\"size\":16}",
                            16, &c));
    CHECK(c.view.mode == RESIZE_SHORTEST && c.view.hf && !c.view.height && c.image_mean[0] == 0.5);
    CHECK(c.image_std[0] == .26862954);
}

/* Everything that a view has comes back from cloob's own configuration and from Hugging Face's file. */
static void views_survive_being_written(void)
{
    static const char *const files[] = {
        "{\"size\":{\"height\":19,\"width\":24},\"crop_size\":16,\"resample\":1}",
        "{\"size\":20,\"crop_size\":16,\"resample\":0,\"image_std\":[1,2,3]}",
        "{\"do_resize\":false,\"crop_size\":16,\"resample\":5}",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        model_config a, b;
        sbuf own = { 0 }, theirs = { 0 };
        arena memory = { 0 };
        json *root;
        CHECK_OK(ctx, model_config_by_name(ctx, "tiny-vit", &a));
        int64_t size = a.image_size;
        a.image_size = 16;
        arena m2 = { 0 };
        CHECK_OK(ctx, json_parse(ctx, &m2, files[i], strlen(files[i]), "x", &root));
        CHECK_OK(ctx, preprocess_read_hf(&(config_reader){ ctx, "x", &a }, root));
        arena_release(&m2);
        CHECK_OK(ctx, model_config_to_hf_preprocessor(ctx, &a, "out", &theirs));
        CHECK_OK(ctx, read_text(theirs.data, 16, &b));
        CHECK(memcmp(&a.view, &b.view, sizeof a.view) == 0 && b.image_std[2] == a.image_std[2]);
        a.image_size = size;
        model_config_to_json(&a, &own);
        CHECK_OK(ctx, json_parse(ctx, &memory, own.data, own.len, "own", &root));
        CHECK_OK(ctx, model_config_from_json(ctx, root, "own", &b));
        CHECK(memcmp(&a.view, &b.view, sizeof a.view) == 0 && b.image_std[2] == a.image_std[2]);
        arena_release(&memory);
        sbuf_release(&own);
        sbuf_release(&theirs);
    }
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(pixels_are_those_of_transformers);
    RUN(what_cannot_be_applied_is_refused_by_name);
    RUN(old_files_are_read);
    RUN(views_survive_being_written);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
