/* From arrays to answers: a trainer learns colours, its file classifies and is scored, at full and at half
 * size; and how classes of folders find their prompts. */
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cloob/cloob.h"
#include "core/rng.h"
#include "io/image/image.h"
#include "data/text/prompts.h"

enum { COLOURS = 4, BATCH = 4, STEPS = 80, EACH = 3 };

static cloob_ctx *ctx;
static const char *const weights_file = "test_use.tmp.safetensors", *const half_file = "test_use.half.tmp.safetensors",
                         *const folder = "test_use.tmp.d", *const prompts_file = "test_use.tmp.json";
static const char *const name[COLOURS] = { "blue", "green", "red", "white" };
static const uint8_t rgb_of[COLOURS][3] = { { 30, 60, 220 }, { 30, 180, 40 }, { 220, 30, 30 }, { 245, 245, 245 } };

static void draw(uint8_t *rgb, int64_t S, int colour, uint64_t key)
{
    int64_t side = S / 3 + (int64_t)rng_below(key, 0, (uint64_t)S / 3);
    int64_t top = (int64_t)rng_below(key, 1, (uint64_t)(S - side)),
            left = (int64_t)rng_below(key, 2, (uint64_t)(S - side));
    memset(rgb, 128, (size_t)(S * S * 3));
    for (int64_t y = top; y < top + side; y++)
        for (int64_t x = left; x < left + side; x++) memcpy(rgb + (y * S + x) * 3, rgb_of[colour], 3);
}

static cloob_tokenizer *make_tokenizer(void)
{
    cloob_tokenizer *tok = NULL;
    FILE *f = fopen("test_use.tmp.txt", "w");
    for (int i = 0; i < COLOURS; i++) fprintf(f, "a %s square\n", name[i]);
    fclose(f);
    CHECK_OK(ctx, cloob_tokenizer_train(ctx, "test_use.tmp.txt", 530, &tok));
    remove("test_use.tmp.txt");
    return tok;
}

static void a_trainer_learns_from_arrays(void)
{
    cloob_trainer *t;
    cloob_trainer_options o;
    cloob_trainer_result first = { 0 }, r = { 0 };
    cloob_tokenizer *tok = make_tokenizer();
    cloob_trainer_options_init(&o);
    o.tokenizer = tok, o.batch = BATCH, o.device = "cpu";
    CHECK_OK(ctx, cloob_trainer_create(ctx, &o, &t));
    int64_t S = cloob_trainer_image_size(t), T = cloob_trainer_context(t);
    uint8_t *rgb = malloc((size_t)(BATCH * S * S * 3));
    int32_t *tokens = malloc((size_t)(BATCH * T) * sizeof *tokens);
    const char *text[COLOURS] = { "a blue square", "a green square", "a red square", "a white square" };
    CHECK_OK(ctx, cloob_tokenizer_encode_rows(ctx, tok, text, BATCH, T, tokens));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH; i++) draw(rgb + i * S * S * 3, S, i, rng_subkey(1, (uint64_t)(step * BATCH + i)));
        CHECK_OK(ctx, cloob_trainer_step(ctx, t, rgb, tokens, 1e-3, &r));
        if (step == 0) first = r;
    }
    CHECK(r.loss < first.loss - 0.05 && !r.skipped);
    tokens[3] = 100000;
    CHECK(cloob_trainer_step(ctx, t, rgb, tokens, 1e-3, NULL) == CLOOB_ERR_ARGUMENT);
    CHECK_OK(ctx, cloob_trainer_save(ctx, t, weights_file));
    free(rgb), free(tokens);
    cloob_trainer_destroy(t);
    cloob_tokenizer_close(tok);
}

/* Folders of EACH images; one file in the first is no image. */
static void write_folders(const char *const *names)
{
    uint8_t rgb[64 * 64 * 3];
    char path[256];
    mkdir(folder, 0777);
    for (int c = 0; c < COLOURS; c++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[c]);
        mkdir(path, 0777);
        for (int i = 0; i < EACH; i++) {
            snprintf(path, sizeof path, "%s/%s/%d.png", folder, names[c], i);
            draw(rgb, 64, c, rng_subkey(2, (uint64_t)(c * EACH + i)));
            CHECK_OK(ctx, image_write_png(ctx, path, rgb, 64, 64));
        }
    }
    snprintf(path, sizeof path, "%s/%s/bad.png", folder, names[0]);
    FILE *f = fopen(path, "w");
    fputs("no image", f), fclose(f);
}

static void remove_folders(const char *const *names)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/bad.png", folder, names[0]);
    remove(path);
    for (int c = 0; c < COLOURS; c++) {
        for (int i = 0; i < EACH; i++) {
            snprintf(path, sizeof path, "%s/%s/%d.png", folder, names[c], i);
            remove(path);
        }
        snprintf(path, sizeof path, "%s/%s", folder, names[c]);
        rmdir(path);
    }
    rmdir(folder);
}

static cloob_status score(const char *weights, const char *json, cloob_zeroshot_result *r)
{
    cloob_model *m;
    cloob_dataset *d;
    prompts p = { 0 };
    cloob_zeroshot_options o;
    cloob_zeroshot_options_init(&o);
    if (json) {
        FILE *f = fopen(prompts_file, "w");
        fputs(json, f), fclose(f);
        CHECK_OK(ctx, prompts_open(ctx, prompts_file, &p));
        remove(prompts_file);
    }
    o.prompts = json ? &p : NULL;
    CHECK_OK(ctx, cloob_model_open(ctx, weights, NULL, &m));
    CHECK_OK(ctx, cloob_dataset_open(ctx, folder, NULL, &d));
    cloob_status status = cloob_zeroshot(ctx, m, d, &o, r);
    cloob_dataset_close(d);
    prompts_release(&p);
    cloob_model_close(m);
    return status;
}

static void its_file_names_colours(void)
{
    const char *json =
        "{\"colour\": {\"classes\": [\"white\", \"red\", \"green\", \"blue\", \"black\"], \"templates\": "
        "[\"a {} square\"]}}";
    cloob_zeroshot_result full, half;
    cloob_convert_options co;
    write_folders(name);
    CHECK_OK(ctx, score(weights_file, json, &full));
    CHECK(full.n == COLOURS * EACH && full.bad == 1 && full.classes == 5 && full.empty == 1);
    CHECK(full.top1 >= 0.9 && full.top5 == 1 && full.mean_per_class >= 0.9);
    CHECK_STR(full.row[0].name, "white");
    CHECK(full.row[0].n == EACH && full.row[4].n == 0);
    cloob_convert_options_init(&co);
    co.dtype = "bf16";
    CHECK_OK(ctx, cloob_convert(ctx, weights_file, half_file, &co, NULL));
    struct stat a, b;
    CHECK(stat(weights_file, &a) == 0 && stat(half_file, &b) == 0 && (double)b.st_size < 0.52 * (double)a.st_size);
    CHECK_OK(ctx, score(half_file, json, &half));
    CHECK_NEAR(half.top1, full.top1, 0.1);
    cloob_zeroshot_release(&full), cloob_zeroshot_release(&half);
    co.dtype = "f8";
    CHECK(cloob_convert(ctx, weights_file, half_file, &co, NULL) == CLOOB_ERR_ARGUMENT);
    remove(half_file);
}

static void a_classifier_gives_shares(void)
{
    cloob_model *m;
    cloob_classifier *c;
    const char *templates[] = { "a {} square" }, *bad[] = { "a square" }, *files[] = { "test_use.tmp.d/red/0.png" };
    float row[512], p[COLOURS];
    CHECK_OK(ctx, cloob_model_open(ctx, weights_file, NULL, &m));
    CHECK_OK(ctx, cloob_classifier_create(ctx, m, name, COLOURS, templates, 1, &c));
    CHECK_OK(ctx, cloob_encode_files(ctx, m, files, 1, CLOOB_RAW, row, NULL)); /* any length will do */
    CHECK_OK(ctx, cloob_classify(ctx, c, row, 1, p));
    CHECK_NEAR(p[0] + p[1] + p[2] + p[3], 1, 1e-5);
    CHECK(p[2] > p[0] && p[2] > p[1] && p[2] > p[3]);
    cloob_classifier_destroy(c);
    CHECK(cloob_classifier_create(ctx, m, name, 1, NULL, 0, &c) == CLOOB_ERR_ARGUMENT && !c);
    CHECK(cloob_classifier_create(ctx, m, name, 2, bad, 1, &c) == CLOOB_ERR_ARGUMENT && !c);
    cloob_model_close(m);
}

static void classes_find_their_prompts(void)
{
    cloob_zeroshot_result r;
    const char *const numbers[COLOURS] = { "0", "1", "2", "3" };
    CHECK_OK(ctx, score(weights_file, NULL, &r)); /* the folders' own names */
    CHECK_STR(r.row[1].name, "green");
    cloob_zeroshot_release(&r);
    CHECK(score(weights_file, "{\"a\": {\"classes\": [\"cat\", \"dog\"], \"templates\": [\"{}\"]}}", &r) ==
          CLOOB_ERR_ARGUMENT);
    CHECK(score(weights_file,
                "{\"a\": {\"classes\": [\"blue\", \"red\", \"green\", \"cyan\"], \"templates\": [\"{}\"]}}",
                &r) == CLOOB_ERR_ARGUMENT); /* white is missing and the order is another */
    CHECK(strstr(cloob_error(ctx), "white") != NULL);
    remove_folders(name);
    write_folders(numbers);
    CHECK_OK(ctx, score(weights_file,
                        "{\"a\": {\"classes\": [\"blue\", \"green\", \"red\", \"white\"], \"templates\": "
                        "[\"a {} square\"]}}",
                        &r));
    CHECK(r.top1 >= 0.9);
    cloob_zeroshot_release(&r);
    remove_folders(numbers);
    remove(weights_file);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(a_trainer_learns_from_arrays);
    RUN(its_file_names_colours);
    RUN(a_classifier_gives_shares);
    RUN(classes_find_their_prompts);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
