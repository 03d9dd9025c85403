/* The public data interface: figures of a set, and the benchmark. */
#include "data/sets/dataset.h"

#include "../data/fixture.h"
#include "check.h"
#include "lab/bench/bench.h"

static cloob_ctx *ctx;

static cloob_dataset *open_set(const char *source, int64_t num_samples, const char *type)
{
    cloob_data_options o;
    cloob_dataset *d;
    cloob_data_options_init(&o);
    o.cache = "";
    o.num_samples = num_samples;
    o.type = type;
    CHECK_OK(ctx, cloob_dataset_open(ctx, source, &o, &d));
    if (!d) exit(1);
    return d;
}

static void figures_of_a_set(void)
{
    data_info info;
    size_t n;
    void *small = fixture_png(ctx, 1, 8, &n);
    FILE *f = fixture_tar_begin("i.tar");
    fixture_tar_add(f, "0.png", small, n);
    fixture_tar_add(f, "0.txt", "two words", 9);
    fixture_tar_add(f, "1.png", small, n);
    fixture_tar_add(f, "1.txt", "two words", 9);
    fixture_tar_add(f, "2.png", small, n / 2); /* cut off */
    fixture_tar_add(f, "2.txt", "unseen", 6);
    free(small);
    small = fixture_png(ctx, 1, 20, &n);
    fixture_tar_add(f, "3.png", small, n);
    fixture_tar_add(f, "3.txt", "\xC3\xA9t\xC3\xA9 in four words", 19);
    fixture_tar_add(f, "4.png", small, n); /* without a caption */
    fixture_tar_end(f);
    free(small);
    cloob_dataset *d = open_set(fixture_path("i.tar"), 0, "auto");
    CHECK(dataset_count(d) == 4 && dataset_has_captions(d) && dataset_class_count(d) == 0);
    CHECK_OK(ctx, dataset_info(ctx, d, 0, &info));
    CHECK_STR(info.kind, "webdataset");
    CHECK(info.samples == 4 && info.files == 1 && info.skipped == 1 && info.examined == 4 && info.bad == 1);
    CHECK(strstr(info.reason[0], "2.png") && info.reason[1][0] == '\0');
    CHECK(info.captions == 3 && info.distinct_captions == 2);
    CHECK(info.width.min == 8 && info.width.median == 8 && info.width.max == 20);
    CHECK(info.caption_words.min == 2 && info.caption_words.max == 4 && info.caption_chars.max == 17);
    char *text;
    CHECK_OK(ctx, dataset_caption(ctx, d, 2, 0, &text));
    CHECK_STR(text, "unseen");
    free(text);
    cloob_dataset_close(d);
}

static void benchmark(void)
{
    data_bench_options o;
    data_bench_result r;
    cloob_dataset *d = open_set("synthetic", 40, "auto");
    data_bench_options_init(&o);
    o.batch = 8;
    o.size = 16;
    o.epochs = 2;
    CHECK_OK(ctx, data_bench(ctx, d, &o, &r));
    CHECK(r.batches == 9 && r.items == 72 && r.bad == 0 && r.items_per_s > 0 && r.ms > 0 && r.peak_bytes > 0);
    o.batch = 41;
    CHECK(data_bench(ctx, d, &o, &r) == CLOOB_ERR_ARGUMENT);
    cloob_dataset_close(d);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(figures_of_a_set);
    RUN(benchmark);
    fixture_remove();
    cloob_ctx_destroy(ctx);
    return check_summary();
}
