/* The loader's promises: one order whatever does the work, exact resuming, bad samples counted, no hang. */
#include "data/load/loader.h"

#include <unistd.h>

#include "check.h"
#include "data/sets/dataset_kind.h"
#include "fixture.h"

enum { N = 83, IMAGE = 12, SIZE = 8 };

static cloob_ctx *ctx;

static dataset *open_set(const char *source, const dataset_options *given)
{
    dataset *d;
    dataset_options o;
    dataset_options_init(&o);
    if (given) o = *given;
    o.cache = "";
    CHECK_OK(ctx, dataset_open(ctx, source, &o, &d));
    if (!d) exit(1);
    return d;
}

static void make_shards(void)
{
    if (access(fixture_path("s/0.tar"), R_OK) == 0) return;
    fixture_shard(ctx, "s/0.tar", 0, 30, IMAGE);
    fixture_shard(ctx, "s/1.tar", 30, 31, IMAGE);
    fixture_shard(ctx, "s/2.tar", 31, N, IMAGE);
}

static loader_options small(void)
{
    loader_options o;
    loader_options_init(&o);
    o.batch = 4;
    o.workers = 2;
    o.train = true;
    transform_options_init(&o.view, SIZE);
    return o;
}

/* FNV of pixels, so that crops are compared too. */
static uint64_t hash_row(const batch *b, int64_t r)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (int i = 0; i < SIZE * SIZE * 3; i++) h = (h ^ b->images[r * SIZE * SIZE * 3 + i]) * 0x100000001B3u;
    return h;
}

typedef struct seen {
    int64_t index[256];
    uint64_t hash[256];
    int64_t count;
} seen;

/* One epoch of all ranks, put together as the global order. */
static void read_epoch(const dataset *d, loader_options o, int64_t epoch, seen *out)
{
    memset(out, 0, sizeof *out);
    loader *l[8];
    batch b;
    for (o.rank = 0; o.rank < o.ranks; o.rank++) {
        CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l[o.rank]));
        CHECK_OK(ctx, loader_seek(ctx, l[o.rank], epoch, 0));
    }
    for (int64_t step = 0; step < loader_batches(l[0]); step++)
        for (int r = 0; r < o.ranks; r++) {
            CHECK_OK(ctx, loader_next(ctx, l[r], &b));
            CHECK(!b.end && b.step == step && b.epoch == epoch);
            for (int64_t k = 0; k < b.rows; k++) {
                CHECK(fixture_number(b.images + k * SIZE * SIZE * 3) == b.index[k]);
                out->hash[out->count] = hash_row(&b, k);
                out->index[out->count++] = b.index[k];
            }
        }
    for (int r = 0; r < o.ranks; r++) {
        CHECK_OK(ctx, loader_next(ctx, l[r], &b));
        CHECK(b.end && b.rows == 0);
        loader_destroy(l[r]);
    }
}

static void same_order_whatever_workers_and_ranks(void)
{
    make_shards();
    dataset *d = open_set(fixture_path("s/{0..2}.tar"), NULL);
    loader_options o = small();
    seen one, other;
    o.batch = 12; /* global batch: 12 rows, shared by 1, 2 or 3 ranks */
    o.seed = 7;
    read_epoch(d, o, 3, &one);
    CHECK(one.count == N / 12 * 12);
    static const int workers[] = { 0, 1, 2, 8 };
    for (int w = 0; w < 4; w++)
        for (int ranks = 1; ranks <= 3; ranks++) {
            o.workers = workers[w];
            o.ranks = ranks;
            o.batch = 12 / ranks;
            o.ahead = 1 + w;
            read_epoch(d, o, 3, &other);
            CHECK(memcmp(&one, &other, sizeof one) == 0);
        }
    o.seed = 8;
    read_epoch(d, o, 3, &other);
    CHECK(memcmp(one.index, other.index, sizeof one.index) != 0);
    o.seed = 7;
    read_epoch(d, o, 4, &other);
    CHECK(memcmp(one.index, other.index, sizeof one.index) != 0);
    bool used[N] = { false };
    for (int64_t i = 0; i < one.count; i++) {
        CHECK(!used[one.index[i]]); /* no sample twice in an epoch */
        used[one.index[i]] = true;
    }
    dataset_close(d);
}

static void evaluation_sees_every_sample_in_order(void)
{
    dataset *d = open_set(fixture_path("s/{0..2}.tar"), NULL);
    loader_options o = small();
    seen e;
    o.train = false;
    for (o.ranks = 1; o.ranks <= 3;
         o.ranks++) { /* 83 rows in batches of 4: the last one is short, empty on some ranks */
        o.batch = 40;
        o.rank = 0;
        read_epoch(d, o, 0, &e);
        CHECK(e.count == N);
        for (int64_t i = 0; i < N; i++) CHECK(e.index[i] == i);
    }
    dataset_close(d);
}

static void resuming_inside_an_epoch_is_exact(void)
{
    dataset *d = open_set(fixture_path("s/{0..2}.tar"), NULL);
    loader_options o = small();
    loader *l;
    batch b;
    seen all;
    read_epoch(d, o, 1, &all);
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
    for (int64_t step = 19; step >= 0; step -= 3) {
        CHECK_OK(ctx, loader_seek(ctx, l, 1, step));
        CHECK_OK(ctx, loader_next(ctx, l, &b));
        CHECK(b.step == step && memcmp(b.index, all.index + step * 4, 4 * sizeof *b.index) == 0);
        CHECK(hash_row(&b, 3) == all.hash[step * 4 + 3]);
    }
    CHECK(loader_seek(ctx, l, 0, 21) == CLOOB_ERR_ARGUMENT && loader_seek(ctx, l, -1, 0) == CLOOB_ERR_ARGUMENT);
    /* On into the next epoch, with and without asking for the end. */
    CHECK_OK(ctx, loader_seek(ctx, l, 0, 19));
    CHECK_OK(ctx, loader_next(ctx, l, &b));
    CHECK_OK(ctx, loader_next(ctx, l, &b));
    CHECK(b.end);
    CHECK_OK(ctx, loader_next(ctx, l, &b));
    CHECK(b.epoch == 1 && b.step == 0 && b.index[0] == all.index[0]);
    CHECK_OK(ctx, loader_seek(ctx, l, 0, 19));
    CHECK_OK(ctx, loader_next(ctx, l, &b));
    CHECK_OK(ctx, loader_seek(ctx, l, 1, 0));
    CHECK_OK(ctx, loader_next(ctx, l, &b));
    CHECK(b.epoch == 1 && b.step == 0 && b.index[0] == all.index[0]);
    loader_destroy(l);
    dataset_close(d);
}

/* ---- bad samples --------------------------------------------------------------------------------- */

static void make_bad_table(int n, int bad_every)
{
    FILE *f = fopen(fixture_path("bad.tsv"), "wb");
    fputs("filepath\ttitle\n", f);
    for (int i = 0; i < n; i++) {
        char name[64];
        size_t bytes;
        snprintf(name, sizeof name, "bad/%d.png", i);
        fprintf(f, "%s\timage %d\n", name, i);
        void *png = fixture_png(ctx, i, IMAGE, &bytes);
        if (i % bad_every != 0) fixture_write(name, png, bytes);
        else if (i % (2 * bad_every) == 0) fixture_write(name, png, bytes / 2); /* cut off; the others are missing */
        free(png);
    }
    fclose(f);
}

static void bad_samples_are_replaced_and_counted(void)
{
    make_bad_table(40, 5);
    dataset *d = open_set(fixture_path("bad.tsv"), NULL);
    loader_options o = small();
    seen one, other;
    loader *l;
    batch b;
    read_epoch(d, o, 0, &one);
    CHECK(one.count == 40);
    for (int64_t i = 0; i < one.count; i++) CHECK(one.index[i] % 5 != 0);
    o.ranks = 2;
    o.batch = 2;
    o.workers = 8;
    read_epoch(d, o, 0, &other);
    CHECK(memcmp(&one, &other, sizeof one) == 0);

    o = small();
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
    for (;;) {
        CHECK_OK(ctx, loader_next(ctx, l, &b));
        if (b.end) break;
    }
    CHECK(loader_stats_take(l).samples == 40);
    loader_destroy(l);

    o.train = false; /* left out; no prefetch beyond the end, so the count is exact */
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
    int64_t rows = 0;
    for (;;) {
        CHECK_OK(ctx, loader_next(ctx, l, &b));
        if (b.end) break;
        for (int64_t k = 0; k < b.rows; k++)
            CHECK(b.index[k] % 5 != 0 && fixture_number(b.images + k * SIZE * SIZE * 3) == b.index[k]);
        rows += b.rows;
    }
    loader_stats s = loader_stats_take(l);
    CHECK(rows == 32 && s.samples == 32 && s.bad_samples == 8);
    loader_destroy(l);
    dataset_close(d);
}

/* However often they are met: three epochs, and what was made ahead of the fourth. */
static void a_bad_sample_is_counted_once(void)
{
    dataset *d = open_set(fixture_path("bad.tsv"), NULL);
    loader_options o = small();
    loader *l;
    batch b;
    for (o.workers = 0; o.workers < 9; o.workers += 4) {
        int64_t *index, count;
        CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
        for (int epochs = 0; epochs < 3; epochs += b.end) CHECK_OK(ctx, loader_next(ctx, l, &b));
        CHECK(loader_stats_take(l).bad_samples == 8);
        CHECK_OK(ctx, loader_bad_samples(ctx, l, &index, &count));
        CHECK(count == 8 && index[0] == 0 && index[7] == 35);
        free(index);
        loader_destroy(l);
    }
    dataset_close(d);
}

/* Fails, names three and says what helps; where they are fewer than the share, nothing happens. */
static cloob_status first_failure(const dataset *d, const loader_options *o)
{
    loader *l;
    batch b;
    CHECK_OK(ctx, loader_create(ctx, d, NULL, o, &l));
    cloob_status status = CLOOB_OK;
    for (int epochs = 0; epochs < 2 && status == CLOOB_OK; epochs += b.end) status = loader_next(ctx, l, &b);
    loader_destroy(l);
    return status;
}

static void too_many_bad_samples_end_it(void)
{
    dataset *d = open_set(fixture_path("bad.tsv"), NULL); /* 8 of 40 */
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int workers = 0; workers < 9; workers += 4)
            for (int train = 0; train < 2; train++) {
                loader_options o = small();
                o.workers = workers, o.train = train, o.ranks = ranks;
                if (ranks == 2) o.batch = 2; /* either rank has 20 rows */
                o.bad_share = 0.05;
                CHECK(first_failure(d, &o) == CLOOB_ERR_FORMAT);
                const char *name = strstr(cloob_error(ctx), "bad/");
                for (int i = 0; i < 3; i++, name = name ? strstr(name + 1, "bad/") : NULL) CHECK(name != NULL);
                CHECK(strstr(cloob_error(ctx), "path_data") && strstr(cloob_error(ctx), "allow_bad_samples"));
                o.bad_share = 0.9;
                CHECK_OK(ctx, first_failure(d, &o));
                o.bad_share = 0;
                CHECK_OK(ctx, first_failure(d, &o));
            }
    dataset_close(d);
    fixture_shard(ctx, "w.tar", 0, 40, IMAGE); /* shards: the rest is gone after they were indexed */
    d = open_set(fixture_path("w.tar"), NULL);
    CHECK(truncate(fixture_path("w.tar"), 16384) == 0);
    loader_options o = small();
    o.workers = 4, o.bad_share = 0.05;
    CHECK(first_failure(d, &o) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "w.tar"));
    dataset_close(d);
}

static void a_set_without_a_good_sample_ends_with_a_reason(void)
{
    fixture_text("gone.tsv", "filepath\ttitle\na.png\tx\nb.png\tx\nc.png\tx\nd.png\tx\n");
    dataset *d = open_set(fixture_path("gone.tsv"), NULL);
    loader_options o = small();
    loader *l;
    batch b;
    for (o.workers = 0; o.workers < 9; o.workers += 4) {
        CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
        CHECK(loader_next(ctx, l, &b) == CLOOB_ERR_IO);
        CHECK(strstr(cloob_error(ctx), "no readable sample") && strstr(cloob_error(ctx), ".png"));
        CHECK(loader_next(ctx, l, &b) == CLOOB_ERR_IO); /* and again, without waiting for ever */
        loader_destroy(l);
    }
    dataset_close(d);
}

static void a_shard_that_disappears_is_counted(void)
{
    char joined[1200];
    fixture_shard(ctx, "v/0.tar", 0, 40, IMAGE);
    fixture_shard(ctx, "v/1.tar", 40, 80, IMAGE);
    snprintf(joined, sizeof joined, "%s::%s", fixture_path("v/0.tar"), fixture_path("v/1.tar"));
    dataset *d = open_set(joined, NULL);
    loader_options o = small();
    loader *l;
    batch b;
    CHECK(unlink(fixture_path("v/1.tar")) == 0); /* opened by nobody yet... */
    o.workers = 4;
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
    int64_t lost = 0;
    for (int64_t step = 0; step < loader_batches(l); step++) {
        CHECK_OK(ctx, loader_next(ctx, l, &b));
        for (int64_t k = 0; k < b.rows; k++) lost += b.index[k] >= 40;
    }
    loader_stats s = loader_stats_take(l);
    /* While a descriptor from opening is still there the samples are still readable, which is as good. */
    CHECK(lost + s.bad_samples >= 40);
    loader_destroy(l);
    dataset_close(d);
}

static void a_shard_cut_during_the_run_is_counted(void)
{
    fixture_shard(ctx, "u.tar", 0, 40, IMAGE);
    dataset *d = open_set(fixture_path("u.tar"), NULL);
    loader_options o = small();
    loader *l;
    batch b;
    o.train = false;
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
    CHECK_OK(ctx, loader_next(ctx, l, &b));
    CHECK(truncate(fixture_path("u.tar"), 4096) == 0);
    while (loader_next(ctx, l, &b) == CLOOB_OK && !b.end) continue;
    loader_stats s = loader_stats_take(l);
    CHECK(s.samples + s.bad_samples == 40 && s.bad_samples > 0);
    loader_destroy(l);
    dataset_close(d);
}

/* ---- odds and ends ------------------------------------------------------------------------------- */

static void write_classes(void)
{
    size_t n;
    void *png = fixture_png(ctx, 1, IMAGE, &n);
    for (int i = 0; i < 8; i++) {
        char name[64];
        snprintf(name, sizeof name, "classes/%c/%d.png", 'a' + i % 2, i);
        fixture_write(name, png, n);
    }
    free(png);
}

static int allocated;

static void *count_alloc(void *user, size_t bytes)
{
    (void)user;
    allocated++;
    return malloc(bytes);
}

static void count_free(void *user, void *memory, size_t bytes)
{
    (void)user, (void)bytes;
    allocated--;
    free(memory);
}

static void memory_comes_from_the_hook(void)
{
    dataset *d = open_set(fixture_path("s/{0..2}.tar"), NULL);
    loader_options o = small();
    loader *l;
    batch b;
    o.alloc = count_alloc;
    o.release = count_free;
    o.ahead = 3;
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
    CHECK(allocated == 4);
    CHECK(loader_buffer_bytes(l) == 4 * 4 * SIZE * SIZE * 3);
    CHECK_OK(ctx, loader_next(ctx, l, &b));
    loader_destroy(l); /* while workers are busy */
    CHECK(allocated == 0);
    dataset_close(d);
}

static void tokens_are_those_of_the_captions(void)
{
    static const char *const words[] = { "caption 1", "caption 22", "caption 33" };
    tokenizer *tok;
    dataset *d = open_set(fixture_path("s/{0..2}.tar"), NULL);
    loader_options o = small();
    loader *l;
    batch b;
    int32_t want[16];
    CHECK_OK(ctx, tokenizer_train_texts(ctx, words, 3, 520, &tok));
    o.context = 16;
    CHECK_OK(ctx, loader_create(ctx, d, tok, &o, &l));
    for (int step = 0; step < 5; step++) {
        CHECK_OK(ctx, loader_next(ctx, l, &b));
        for (int64_t k = 0; k < b.rows; k++) {
            char text[32];
            snprintf(text, sizeof text, "caption %d", (int)b.index[k]);
            CHECK_OK(ctx, tokenizer_encode_row(ctx, tok, text, strlen(text), 16, want));
            CHECK(memcmp(want, b.tokens + k * 16, sizeof want) == 0);
        }
    }
    loader_destroy(l);
    dataset_close(d);
    write_classes();
    d = open_set(fixture_path("classes"), NULL); /* images without captions */
    CHECK(loader_create(ctx, d, tok, &o, &l) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "no captions"));
    dataset_close(d);
    cloob_tokenizer_close(tok);
}

static void wrong_settings_are_refused(void)
{
    dataset *d = open_set(fixture_path("s/{0..2}.tar"), NULL);
    loader_options o = small();
    loader *l;
    o.batch = 84;
    CHECK(loader_create(ctx, d, NULL, &o, &l) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "`batch_size`"));
    o.batch = 0;
    CHECK(loader_create(ctx, d, NULL, &o, &l) == CLOOB_ERR_ARGUMENT && !l);
    o = small();
    o.rank = 1;
    CHECK(loader_create(ctx, d, NULL, &o, &l) == CLOOB_ERR_ARGUMENT && !l);
    dataset_close(d);
}

static void windows_are_permutations_that_stay_near(void)
{
    static const int64_t sizes[] = { 1, 17, 999, 4096 }, windows[] = { 0, 1, 16, 100, 640, 5000 };
    static bool used[4096];
    for (int s = 0; s < 4; s++)
        for (int w = 0; w < 6; w++) {
            memset(used, 0, sizeof used);
            for (int64_t i = 0; i < sizes[s]; i++) {
                int64_t at = order_shuffle(5, i, sizes[s], windows[w]);
                CHECK(at >= 0 && at < sizes[s] && !used[at]);
                used[at] = true;
            }
        }
    int places = 0; /* of 320 samples mixed at a time, a window touches 16 stretches of 20 */
    memset(used, 0, sizeof used);
    for (int64_t i = 0; i < 320; i++) used[order_shuffle(9, i, 4096, 320)] = true;
    for (int i = 0; i < 4096; i++) places += used[i] && !used[(i + 4095) % 4096];
    CHECK(places <= 16);
}

static void num_samples_shortens_an_epoch(void)
{
    dataset_options data;
    dataset_options_init(&data);
    data.num_samples = 20;
    dataset *d = open_set(fixture_path("s/{0..2}.tar"), &data);
    seen a, b;
    read_epoch(d, small(), 0, &a);
    read_epoch(d, small(), 1, &b);
    CHECK(a.count == 20 && b.count == 20 && memcmp(a.index, b.index, sizeof a.index) != 0);
    dataset_close(d);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(same_order_whatever_workers_and_ranks);
    RUN(evaluation_sees_every_sample_in_order);
    RUN(resuming_inside_an_epoch_is_exact);
    RUN(bad_samples_are_replaced_and_counted);
    RUN(a_bad_sample_is_counted_once);
    RUN(too_many_bad_samples_end_it);
    RUN(a_set_without_a_good_sample_ends_with_a_reason);
    RUN(a_shard_that_disappears_is_counted);
    RUN(a_shard_cut_during_the_run_is_counted);
    RUN(memory_comes_from_the_hook);
    RUN(tokens_are_those_of_the_captions);
    RUN(wrong_settings_are_refused);
    RUN(windows_are_permutations_that_stay_near);
    RUN(num_samples_shortens_an_epoch);
    fixture_remove();
    cloob_ctx_destroy(ctx);
    return check_summary();
}
