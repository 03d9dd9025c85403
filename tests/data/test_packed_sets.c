/* Sets as people hand them on, packed and unpacked: gzipped shards, a gzipped table whose images are in a tar, a
 * gzipped tar of class folders. Counts, classes, and a loader that finds every sample and no bad one. */
#include <unistd.h>

#include "check.h"
#include "core/file.h"
#include "data/load/loader.h"
#include "fixture.h"

enum { IMAGES = 30, CLASSES = 3, SIZE = 20 };

static cloob_ctx *ctx;

/* Opens, and reads one epoch of small training crops (evaluation views for class folders). */
static void check_set(const char *source, const char *path_data, int64_t count, int64_t classes)
{
    dataset_options o;
    loader_options lo;
    dataset *d = NULL;
    loader *l;
    batch b;
    dataset_options_init(&o);
    o.cache = "";
    o.path_data = path_data;
    CHECK_OK(ctx, dataset_open(ctx, source, &o, &d));
    if (!d) return;
    CHECK(dataset_count(d) == count && dataset_class_count(d) == classes && dataset_skipped(d) == 0);
    loader_options_init(&lo);
    transform_options_init(&lo.view, 16);
    lo.batch = 8;
    lo.workers = 2;
    lo.train = classes == 0;
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &lo, &l));
    int64_t rows = 0, batches = loader_batches(l);
    for (int64_t step = 0; step < batches; step++) {
        CHECK_OK(ctx, loader_next(ctx, l, &b));
        rows += b.rows;
        for (int64_t k = 0; k < b.rows; k++) CHECK(classes == 0 || (b.label[k] >= 0 && b.label[k] < classes));
    }
    loader_stats s = loader_stats_take(l);
    CHECK(rows > count - lo.batch && s.bad_samples == 0);
    loader_destroy(l);
    dataset_close(d);
}

static void shards(void)
{
    fixture_shard(ctx, "s/00000.tar", 0, IMAGES / 2, SIZE);
    fixture_shard(ctx, "s/00001.tar", IMAGES / 2, IMAGES, SIZE);
    check_set(fixture_path("s/{00000..00001}.tar"), NULL, IMAGES, 0);
    fixture_gzip("s/00000.tar", "s/00000.tar.gz");
    fixture_gzip("s/00001.tar", "s/00001.tar.gz");
    check_set(fixture_path("s/{00000..00001}.tar.gz"), NULL, IMAGES, 0);
}

static void tables(void)
{
    FILE *tar = fixture_tar_begin("images.tar");
    char table[IMAGES * 64] = "filepath\ttitle\n", name[64];
    for (int i = 0; i < IMAGES; i++) {
        size_t bytes, at = strlen(table);
        void *png = fixture_png(ctx, i, SIZE, &bytes);
        snprintf(name, sizeof name, "some/%d.png", i);
        snprintf(table + at, sizeof table - at, "%s\tcaption %d\n", name, i);
        fixture_tar_add(tar, name, png, bytes);
        fixture_write(name, png, bytes);
        free(png);
    }
    fixture_tar_end(tar);
    fixture_text("table.tsv", table);
    check_set(fixture_path("table.tsv"), NULL, IMAGES, 0);
    fixture_gzip("table.tsv", "table.tsv.gz");
    fixture_gzip("images.tar", "images.tar.gz");
    check_set(fixture_path("table.tsv.gz"), fixture_path("images.tar"), IMAGES, 0);
    check_set(fixture_path("table.tsv.gz"), fixture_path("images.tar.gz"), IMAGES, 0);
}

static void class_folders(void)
{
    FILE *tar = fixture_tar_begin("classes.tar");
    char name[64];
    for (int i = 0; i < IMAGES; i++) {
        size_t bytes;
        void *png = fixture_png(ctx, i, SIZE, &bytes);
        snprintf(name, sizeof name, "classes/kind %d/%d.png", i % CLASSES, i);
        fixture_tar_add(tar, name, png, bytes);
        fixture_write(name, png, bytes);
        free(png);
    }
    fixture_tar_end(tar);
    check_set(fixture_path("classes"), NULL, IMAGES, CLASSES);
    check_set(fixture_path("classes.tar"), NULL, IMAGES, CLASSES);
    fixture_gzip("classes.tar", "classes.tar.gz");
    check_set(fixture_path("classes.tar.gz"), NULL, IMAGES, CLASSES);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(shards);
    RUN(tables);
    RUN(class_folders);
    fixture_remove();
    cloob_ctx_destroy(ctx);
    return check_summary();
}
