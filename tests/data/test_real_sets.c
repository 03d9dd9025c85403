/* The real sets beside the repository ($CLOOB_SHARED, default ../shared), packed as they come and unpacked:
 * counts, classes, and a loader that finds no bad sample. Skipped where they are absent. */
#include <unistd.h>

#include "check.h"
#include "core/file.h"
#include "data/load/loader.h"
#include "fixture.h"

static cloob_ctx *ctx;
static char shared[512];

static const char *set_path(const char *name)
{
    static char path[4][1024];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/data/%s", shared, name);
    return path[at];
}

static void find_shared(void)
{
    const char *given = getenv("CLOOB_SHARED");
    snprintf(shared, sizeof shared, "%s", given ? given : TESTS_DIR "/../../shared");
}

/* Opens, and reads one epoch of small training crops (evaluation views for class folders). */
static void check_set(const char *source, const char *path_data, int64_t count, int64_t classes)
{
    dataset_options o;
    loader_options lo;
    dataset *d;
    loader *l;
    batch b;
    dataset_options_init(&o);
    o.cache = "";
    o.path_data = path_data;
    cloob_status status = dataset_open(ctx, source, &o, &d);
    if (status == CLOOB_ERR_UNSUPPORTED) SKIP(cloob_error(ctx)); /* a build without zlib */
    CHECK_OK(ctx, status);
    if (!d) return;
    CHECK(dataset_count(d) == count && dataset_class_count(d) == classes && dataset_skipped(d) == 0);
    loader_options_init(&lo);
    transform_options_init(&lo.view, 32);
    lo.batch = 50;
    lo.workers = 2;
    lo.train = classes == 0;
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &lo, &l));
    int64_t rows = 0;
    for (int64_t step = 0; step < loader_batches(l) && step < 20; step++) {
        CHECK_OK(ctx, loader_next(ctx, l, &b));
        rows += b.rows;
        for (int64_t k = 0; k < b.rows; k++) CHECK(classes == 0 || (b.label[k] >= 0 && b.label[k] < classes));
    }
    loader_stats s = loader_stats_take(l);
    CHECK(rows > 0 && s.bad_samples == 0);
    loader_destroy(l);
    dataset_close(d);
}

static bool unpack(const char *name, const char *how)
{
    char command[2048];
    snprintf(command, sizeof command, "cd '%s' && %s '%s'", fixture_folder(), how, set_path(name));
    return system(command) == 0;
}

static void shards_packed_and_plain(void)
{
    if (!file_exists(set_path("README.md"))) SKIP("the shared data is not here");
    check_set(set_path("fashion_train_{00000..00003}.tar.gz"), NULL, 10000, 0);
    CHECK(unpack("fashion_val_00000.tar.gz", "gunzip -c > v.tar <"));
    check_set(fixture_path("v.tar"), NULL, 800, 0);
}

static void tables_packed_and_plain(void)
{
    if (!file_exists(set_path("README.md"))) SKIP("the shared data is not here");
    check_set(set_path("flickr8k_train.tsv.gz"), set_path("flickr8k_images.tar.gz"), 29998, 0);
    CHECK(unpack("flickr8k_val.tsv.gz", "gunzip -c > val.tsv <") && unpack("flickr8k_images.tar.gz", "tar xzf"));
    check_set(fixture_path("val.tsv"), NULL, 2499, 0);
}

static void classes_packed_and_plain(void)
{
    if (!file_exists(set_path("README.md"))) SKIP("the shared data is not here");
    check_set(set_path("intel_scenes.tar.gz"), NULL, 360, 6);
    check_set(set_path("fashion_article_types_val.tar.gz"), NULL, 715, 28);
    CHECK(unpack("intel_scenes.tar.gz", "mkdir scenes && cd scenes && tar xzf"));
    check_set(fixture_path("scenes"), NULL, 360, 6);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    find_shared();
    RUN(shards_packed_and_plain);
    RUN(tables_packed_and_plain);
    RUN(classes_packed_and_plain);
    fixture_remove();
    cloob_ctx_destroy(ctx);
    return check_summary();
}
