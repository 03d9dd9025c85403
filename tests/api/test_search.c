/* The index of images: exact answers, updates that embed only what changed, damage and files of other programs refused.
 */
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cloob/cloob.h"
#include "core/file.h"
#include "core/rng.h"
#include "infer/search_index.h"
#include "model/interchange.h"
#include "model/procedural_weights.h"

static cloob_ctx *ctx;
static const char *const index_file = "test_search.tmp.safetensors",
                         *const weights_file = "test_search.w.tmp.safetensors", *const folder = "test_search.tmp.d";

static void random_row(float *row, int64_t D, uint64_t key)
{
    double square = 0;
    for (int64_t k = 0; k < D; k++) row[k] = (float)rng_normal(key, (uint64_t)k), square += (double)row[k] * row[k];
    for (int64_t k = 0; k < D; k++) row[k] = (float)((double)row[k] / sqrt(square));
}

/* Every answer against all products in double. */
static void answers_are_exact(void)
{
    enum { N = 5001, D = 33, MOST = 7 };
    float *row = malloc(sizeof(float) * N * D), probe[D] = { 1 }, query[D];
    const char **name = malloc(sizeof *name * N);
    int64_t *zero = calloc(N, sizeof *zero);
    search_index ix;
    for (int64_t i = 0; i < N; i++) random_row(row + i * D, D, (uint64_t)i), name[i] = "a.jpg";
    memcpy(row + 40 * D, row + 4000 * D, D * sizeof *row); /* equal rows come in order */
    CHECK_OK(ctx, search_index_write(ctx, index_file, "/r", "m", "", row, probe, D,
                                     &(search_names){ N, name, zero, zero }, NULL));
    CHECK_OK(ctx, search_index_open(ctx, index_file, &ix));
    for (int q = 0; q < 5; q++) {
        search_hit hit[MOST];
        int64_t found;
        random_row(query, D, 10000 + (uint64_t)q);
        if (q == 0) memcpy(query, row + 40 * D, sizeof query);
        CHECK_OK(ctx, search_index_query(ctx, &ix, query, MOST, hit, &found));
        CHECK(found == MOST);
        for (int r = 0; r < MOST; r++) {
            int64_t better = 0;
            for (int64_t i = 0; i < N; i++) {
                double dot = 0;
                for (int k = 0; k < D; k++) dot += (double)row[i * D + k] * query[k];
                better += (float)dot > hit[r].score;
            }
            CHECK(better == r || (q == 0 && r == 1 && better == 0));
        }
        if (q == 0) CHECK(hit[0].entry == 40 && hit[1].entry == 4000);
    }
    char *path = search_index_path(&ix, 3);
    CHECK_STR(path, "/r/a.jpg");
    free(path);
    search_index_close(&ix);
    free(row), free(name), free(zero);
    remove(index_file);
}

static void write_image(const char *name, uint8_t shade)
{
    char path[256];
    uint8_t rgb[64 * 64 * 3];
    for (int i = 0; i < 64 * 64 * 3; i++) rgb[i] = (uint8_t)(shade + i % (3 + shade));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(ctx, cloob_image_write_png(ctx, path, &(cloob_image){ rgb, 64, 64 }));
}

static void make_model(const char *name)
{
    model_config c;
    weights w;
    CHECK_OK(ctx, model_config_by_name(ctx, name, &c));
    CHECK_OK(ctx, procedural_weights(ctx, &c, &w));
    CHECK_OK(ctx, interchange_write(ctx, weights_file, FORMAT_NATIVE, &w));
    weights_release(&w);
}

/* The look of all our pages, texts escaped, every hit with its score and a link to its file. */
static void the_sheet_is_a_page(const char *path)
{
    file_bytes page;
    CHECK_OK(ctx, file_read(ctx, path, FILE_TEXT_LIMIT, &page));
    CHECK(strstr(page.data, "--accent-soft") && strstr(page.data, "prefers-color-scheme: dark"));
    CHECK(strstr(page.data, "<h1>a &lt;dog&gt;</h1>"));
    CHECK(strstr(page.data, "<span><b>1.00</b> "));
    CHECK(strstr(page.data, "<a href=\"file:///") && strstr(page.data, "/test_search.tmp.d/b.png\">"));
    CHECK(!strstr(page.data, "src=\"http") && !strstr(page.data, "<script"));
    file_bytes_release(&page);
}

static void an_update_embeds_what_changed(void)
{
    cloob_model *m;
    cloob_search *s;
    cloob_search_update u;
    char inside[256];
    make_model("tiny-rn");
    mkdir(folder, 0777);
    write_image("a.png", 10), write_image("b.png", 100), write_image("c.png", 200);
    CHECK_OK(ctx, cloob_model_open(ctx, weights_file, NULL, &m));
    CHECK_OK(ctx, cloob_search_index(ctx, m, folder, index_file, weights_file, NULL, &u));
    CHECK(u.images == 3 && u.embedded == 3 && u.kept == 0);
    write_image("b.png", 50);
    snprintf(inside, sizeof inside, "%s/c.png", folder);
    remove(inside);
    FILE *f = fopen("test_search.tmp.d/d.png", "wb");
    fputs("not an image", f), fclose(f);
    CHECK_OK(ctx, cloob_search_index(ctx, m, folder, index_file, weights_file, NULL, &u));
    CHECK(u.images == 2 && u.embedded == 1 && u.kept == 1 && u.removed == 1 && u.bad == 1 && u.bad_before == 0);
    CHECK_OK(ctx, cloob_search_index(ctx, m, folder, index_file, weights_file, NULL, &u));
    CHECK(u.embedded == 0 && u.kept == 2 && u.bad == 1 && u.bad_before == 1); /* remembered, not tried again */
    f = fopen("test_search.tmp.d/d.png", "ab");
    fputs(" still", f), fclose(f);
    CHECK_OK(ctx, cloob_search_index(ctx, m, folder, index_file, weights_file, NULL, &u));
    CHECK(u.kept == 2 && u.bad == 1 && u.bad_before == 0); /* it has changed */
    CHECK_OK(ctx, cloob_search_open(ctx, index_file, &s));
    CHECK(cloob_search_count(s) == 2 && strstr(cloob_search_checkpoint(s), weights_file));
    float query[64];
    cloob_search_hit hit[5];
    int64_t found;
    const char *files[] = { "test_search.tmp.d/b.png" };
    CHECK_OK(ctx, cloob_encode_files(ctx, m, files, 1, CLOOB_UNIT, query, NULL));
    CHECK_OK(ctx, cloob_search_query(ctx, s, query, 5, hit, &found));
    CHECK(found == 2 && strstr(hit[0].path, "b.png"));
    CHECK_NEAR(hit[0].score, 1, 1e-5);
    CHECK_OK(ctx, cloob_search_sheet(ctx, "test_search.tmp.html", "a <dog>", hit, found));
    the_sheet_is_a_page("test_search.tmp.html");
    CHECK_OK(ctx, cloob_search_sheet(ctx, "test_search.tmp.html", "a <dog>", hit, 0));
    cloob_search_hits_release(hit, found);
    remove("test_search.tmp.html");
    cloob_search_close(s);
    cloob_model_close(m);
}

static void strangers_are_refused(void)
{
    cloob_model *m;
    cloob_search *s;
    cloob_search_update u;
    cloob_search_hit hit[1];
    int64_t found;
    CHECK(cloob_search_open(ctx, weights_file, &s) == CLOOB_ERR_FORMAT && !s);
    CHECK_OK(ctx, cloob_search_open(ctx, index_file, &s));
    make_model("tiny-vit");
    CHECK_OK(ctx, cloob_model_open(ctx, weights_file, NULL, &m));
    CHECK(cloob_search_text(ctx, s, m, "a cat", 1, hit, &found) == CLOOB_ERR_ARGUMENT && found == 0);
    CHECK(strstr(cloob_error(ctx), "another model") != NULL);
    CHECK(cloob_search_index(ctx, m, folder, weights_file, weights_file, NULL, &u) ==
          CLOOB_ERR_FORMAT); /* not overwritten */
    CHECK(cloob_search_index(ctx, m, "no-such-folder", index_file, weights_file, NULL, &u) == CLOOB_ERR_IO);
    CHECK_OK(ctx,
             cloob_search_index(ctx, m, folder, index_file, weights_file, NULL, &u)); /* made anew for this model */
    CHECK(u.embedded == 2 && u.kept == 0);
    cloob_search_close(s);
    cloob_model_close(m);
    remove("test_search.tmp.d/a.png"), remove("test_search.tmp.d/b.png"), remove("test_search.tmp.d/d.png");
    rmdir(folder), remove(index_file), remove(weights_file);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(answers_are_exact);
    RUN(an_update_embeds_what_changed);
    RUN(strangers_are_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
