/* The index of images: exact answers, updates that embed only what changed, damage and files of other programs refused.
 */
#include "check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cloob/cloob.h"
#include "core/file.h"
#include "core/rng.h"
#include "infer/model_file.h"
#include "infer/search_index.h"
#include "model/interchange.h"
#include "model/procedural_weights.h"
#include "lab/report/report.h"
#include "io/image/image.h"

static cloob_ctx *ctx;
static const char *const index_file = "test_search.tmp.safetensors",
                         *const weights_file = "test_search.w.tmp.safetensors", *const folder = "test_search.tmp.d";

static void random_row(float *row, int64_t D, uint64_t key)
{
    double square = 0;
    for (int64_t k = 0; k < D; k++) row[k] = (float)rng_normal(key, (uint64_t)k), square += (double)row[k] * row[k];
    for (int64_t k = 0; k < D; k++) row[k] = (float)((double)row[k] / sqrt(square));
}

static bool is_odd(const search_index *ix, int64_t entry, const void *user)
{
    (void)ix, (void)user;
    return entry & 1;
}

typedef struct scanned {
    int64_t entry;
    float score;
} scanned;

static int by_score(const void *a, const void *b)
{
    const scanned *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* A query against a full scan: the same entries in the same order, the same total. */
static void equals_a_full_scan(const search_index *ix, const search_query *q)
{
    scanned *all = malloc((size_t)ix->N * sizeof *all);
    search_hit *hit = malloc((size_t)ix->N * sizeof *hit);
    int64_t n = 0, found, total;
    for (int64_t i = 0; i < ix->N; i++) {
        double dot = 0;
        for (int64_t k = 0; k < ix->D && q->row; k++) dot += (double)ix->row[i * ix->D + k] * q->row[k];
        if ((q->accept && !q->accept(ix, i, q->user)) || (q->min_score && (float)dot < *q->min_score)) continue;
        all[n++] = (scanned){ i, (float)dot };
    }
    qsort(all, (size_t)n, sizeof *all, by_score);
    CHECK_OK(ctx, search_index_query(ctx, ix, q, hit, &found, &total));
    CHECK(total == n && found == (n < q->max_hits ? n : q->max_hits));
    for (int64_t i = 0; i < found; i++) {
        CHECK(hit[i].entry == all[i].entry);
        CHECK_NEAR(hit[i].score, all[i].score, 1e-6);
    }
    free(all), free(hit);
}

static void filters_equal_a_full_scan(const search_index *ix, const float *query)
{
    static const int64_t wanted[] = { 0, 1, 60, 1000, 5001 };
    const float thresholds[] = { -2, 0, 0.2f, 2 };
    for (int w = 0; w < 5; w++)
        for (int odd = 0; odd < 2; odd++)
            for (int t = -2; t < 4; t++) {
                search_query q = { .row = t == -2 ? NULL : query, .D = ix->D, .max_hits = wanted[w] };
                if (odd) q.accept = is_odd;
                if (t >= 0) q.min_score = &thresholds[t];
                equals_a_full_scan(ix, &q);
            }
}

/* Every answer against all products in double. */
static void answers_are_exact(void)
{
    enum { N = 5001, D = 33, MOST = 7 };
    float *row = malloc(sizeof(float) * N * D), probe[D] = { 1 }, query[D];
    search_entry *e = calloc(N, sizeof *e);
    search_index *ix;
    for (int64_t i = 0; i < N; i++) {
        random_row(row + i * D, D, (uint64_t)i);
        e[i] = (search_entry){ .name = "a.jpg", .row = row + i * D };
    }
    memcpy(row + 40 * D, row + 4000 * D, D * sizeof *row); /* equal rows come in order */
    CHECK_OK(ctx, search_index_write(ctx, index_file, &(search_origin){ "/r", "m", "", "" }, probe, D, e, N));
    CHECK_OK(ctx, cloob_search_open(ctx, index_file, &ix));
    for (int q = 0; q < 5; q++) {
        search_hit hit[MOST];
        int64_t found, total;
        random_row(query, D, 10000 + (uint64_t)q);
        if (q == 0) memcpy(query, row + 40 * D, sizeof query);
        CHECK_OK(ctx, search_index_query(ctx, ix, &(search_query){ .row = query, .D = D, .max_hits = MOST }, hit,
                                         &found, &total));
        CHECK(found == MOST && total == N);
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
    search_hit none[1];
    int64_t found = 1, total = 1;
    filters_equal_a_full_scan(ix, query);
    CHECK(search_index_query(ctx, ix, &(search_query){ .row = query, .D = D - 1, .max_hits = 1 }, none, &found,
                             &total) == CLOOB_ERR_ARGUMENT &&
          found == 0);
    char *path = search_index_path(ix, 3);
    CHECK_STR(path, "/r/a.jpg");
    free(path);
    cloob_search_close(ix);
    free(row), free(e);
    remove(index_file);
}

static void write_image(const char *name, uint8_t shade)
{
    char path[256];
    uint8_t rgb[64 * 64 * 3];
    for (int i = 0; i < 64 * 64 * 3; i++) rgb[i] = (uint8_t)(shade + i % (3 + shade));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(ctx, image_write_png(ctx, path, rgb, 64, 64));
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
    CHECK_OK(ctx, cloob_search_query(ctx, s, query, cloob_search_width(s), 5, hit, &found));
    CHECK(found == 2 && strstr(hit[0].path, "b.png"));
    CHECK_NEAR(hit[0].score, 1, 1e-5);
    CHECK_OK(ctx, search_sheet(ctx, "test_search.tmp.html", "a <dog>", hit, found));
    the_sheet_is_a_page("test_search.tmp.html");
    CHECK_OK(ctx, search_sheet(ctx, "test_search.tmp.html", "a <dog>", hit, 0));
    cloob_search_hits_release(hit, found);
    remove("test_search.tmp.html");
    cloob_search_close(s);
    cloob_model_close(m);
}

/* A model with the stored digest is accepted without running it; without a digest the probe is embedded. */
static void the_digest_saves_the_probe(void)
{
    cloob_model *m;
    search_index *ix;
    CHECK_OK(ctx, cloob_model_open(ctx, weights_file, NULL, &m));
    CHECK_OK(ctx, cloob_search_open(ctx, index_file, &ix));
    CHECK(*ix->digest);
    CHECK_STR(ix->digest, m->digest);
    CHECK_OK(ctx, cloob_search_check(ctx, ix, m));
    CHECK(encoder_rows_run(m->enc) == 0);
    ix->digest = ""; /* an index of an earlier version */
    CHECK_OK(ctx, cloob_search_check(ctx, ix, m));
    CHECK(encoder_rows_run(m->enc) > 0);
    cloob_search_close(ix);
    cloob_model_close(m);
}

static void foreign_files_are_refused(void)
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
    CHECK(cloob_search_image(ctx, s, m, "test_search.tmp.d/b.png", 1, hit, &found) == CLOOB_ERR_ARGUMENT && found == 0);
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

/* ---- folders that move, and interruptions -------------------------------------------------------- */

enum { MANY = 40 };

static void write_many(void)
{
    mkdir(folder, 0777);
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "%02d.png", i);
        write_image(name, (uint8_t)(5 * i + 1));
    }
}

static void remove_many(const char *dir)
{
    char path[256];
    for (int i = 0; i < MANY; i++) snprintf(path, sizeof path, "%s/%02d.png", dir, i), remove(path);
    snprintf(path, sizeof path, "%s/index", dir), remove(path);
    rmdir(dir);
}

static int stop_after; /* asks */
static bool asked_to_stop(void *user)
{
    (void)user;
    return stop_after-- <= 0;
}

static bool same_bytes(const char *a, const char *b)
{
    file_bytes x, y;
    CHECK_OK(ctx, file_read(ctx, a, FILE_TEXT_LIMIT, &x));
    CHECK_OK(ctx, file_read(ctx, b, FILE_TEXT_LIMIT, &y));
    bool same = x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
    file_bytes_release(&x), file_bytes_release(&y);
    return same;
}

/* What was embedded before is not embedded again, and the index has the bytes of one made without a stop. */
static void an_interruption_is_saved(void)
{
    const char *whole = "test_search.whole.tmp";
    cloob_ctx_options o;
    cloob_model *m;
    cloob_search_update u;
    cloob_search *s;
    make_model("tiny-rn");
    write_many();
    cloob_ctx_options_init(&o);
    o.should_stop = asked_to_stop;
    cloob_ctx *stopped = cloob_ctx_create(&o);
    CHECK_OK(ctx, cloob_model_open(stopped, weights_file, NULL, &m));
    stop_after = 0;
    CHECK(cloob_search_index(stopped, m, folder, index_file, weights_file, NULL, &u) == CLOOB_ERR_STOPPED);
    CHECK(u.embedded == 0 && !file_exists(index_file)); /* nothing to save */
    stop_after = 2;
    CHECK(cloob_search_index(stopped, m, folder, index_file, weights_file, NULL, &u) == CLOOB_ERR_STOPPED);
    CHECK(strstr(cloob_error(stopped), "the same command continues"));
    int64_t first = u.embedded;
    CHECK(first > 0 && first < MANY);
    CHECK_OK(ctx, cloob_search_open(ctx, index_file, &s));
    CHECK(cloob_search_count(s) == first);
    cloob_search_close(s);
    stop_after = 1000;
    CHECK_OK(stopped, cloob_search_index(stopped, m, folder, index_file, weights_file, NULL, &u));
    CHECK(u.kept == first && u.embedded == MANY - first && u.images == MANY);
    CHECK_OK(stopped, cloob_search_index(stopped, m, folder, whole, weights_file, NULL, &u));
    CHECK(u.embedded == MANY && same_bytes(index_file, whole));
    remove(whole), remove(index_file);
    cloob_model_close(m);
    cloob_ctx_destroy(stopped);
}

static void first_path_is_there(const char *index, const char *dir)
{
    cloob_search *s;
    CHECK_OK(ctx, cloob_search_open(ctx, index, &s));
    char *path = search_index_path(s, 0), *real = realpath(dir, NULL);
    CHECK(file_exists(path));
    CHECK_STR(cloob_search_root(s), real);
    free(path), free(real);
    cloob_search_close(s);
}

/* An index in its folder moves with it; one elsewhere is corrected by indexing the folder where it is now. */
static void the_folder_may_be_moved(void)
{
    const char *moved = "test_search.moved.tmp.d", *inside = "test_search.tmp.d/index",
               *inside_moved = "test_search.moved.tmp.d/index";
    cloob_model *m;
    cloob_search_update u;
    cloob_search *s;
    remove_many(moved);
    CHECK_OK(ctx, cloob_model_open(ctx, weights_file, NULL, &m));
    CHECK_OK(ctx, cloob_search_index(ctx, m, folder, inside, weights_file, NULL, &u));
    CHECK_OK(ctx, cloob_search_index(ctx, m, folder, index_file, weights_file, NULL, &u));
    CHECK(rename(folder, moved) == 0);
    first_path_is_there(inside_moved, moved);
    CHECK_OK(ctx, cloob_search_index(ctx, m, moved, inside_moved, weights_file, NULL, &u));
    CHECK(u.kept == MANY && u.embedded == 0 && u.removed == 0);

    CHECK_OK(ctx, cloob_search_open(ctx, index_file, &s));
    CHECK(!file_exists(cloob_search_root(s)));
    cloob_search_close(s);
    mkdir(folder, 0777); /* the same name, other images */
    CHECK(cloob_search_index(ctx, m, moved, index_file, weights_file, NULL, &u) == CLOOB_ERR_ARGUMENT);
    rmdir(folder);
    mkdir("test_search.other.tmp.d", 0777);
    CHECK(cloob_search_index(ctx, m, "test_search.other.tmp.d", index_file, weights_file, NULL, &u) ==
          CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "none of its images"));
    rmdir("test_search.other.tmp.d");
    CHECK_OK(ctx, cloob_search_index(ctx, m, moved, index_file, weights_file, NULL, &u));
    CHECK(u.kept == MANY && u.embedded == 0);
    first_path_is_there(index_file, moved);
    cloob_model_close(m);
}

/* An index without root_from_index, as earlier versions wrote it, in a folder that was moved. */
static void an_old_index_is_found_after_a_move(void)
{
    enum { D = 4 };
    const char *moved = "test_search.moved.tmp.d", *inside = "test_search.moved.tmp.d/index";
    float row[D] = { 1 };
    search_entry one = { .name = "00.png", .row = row };
    /* root is not a parent of the index: root_from_index is "" */
    CHECK_OK(ctx, search_index_write(ctx, inside, &(search_origin){ "/gone/photos", "m", "", "" }, row, D, &one, 1));
    first_path_is_there(inside, moved);
    remove_many(moved), remove(index_file), remove(weights_file);
}

/* The position of a name in an open index; -1: none. */
static int64_t entry_of(const cloob_search *s, const char *name)
{
    for (int64_t i = 0; i < cloob_search_count(s); i++) {
        size_t bytes;
        const char *at = search_files_name(&s->good, i, &bytes);
        if (bytes == strlen(name) && memcmp(at, name, bytes) == 0) return i;
    }
    return -1;
}

/* Entries added in any order are sorted; one of the same name is replaced; rows that are not of unit length are
 * refused.
 */
static void entries_are_added_and_replaced(void)
{
    enum { D = 4 };
    float probe[D] = { 1 }, row[2][D] = { { 0, 1 }, { 0, 0, 1 } }, long_row[D] = { 2 };
    const char *second[] = { "d", "a" };
    cloob_search *s;
    search_entry two[] = { { .name = "b", .row = row[0] }, { .name = "d", .row = row[1] } };
    CHECK_OK(ctx, search_index_write(ctx, index_file, &(search_origin){ ".", "m", "", "" }, probe, D, two, 2));
    CHECK_OK(ctx, cloob_search_open(ctx, index_file, &s));
    cloob_search_entries more = { .name = second, .row = row[0], .n = 2, .D = D };
    CHECK_OK(ctx, cloob_search_save(ctx, s, &more, index_file));
    more.row = long_row, more.n = 1;
    CHECK(cloob_search_save(ctx, s, &more, index_file) == CLOOB_ERR_NUMERIC && strstr(cloob_error(ctx), "length 2"));
    more.D = 3;
    CHECK(cloob_search_save(ctx, s, &more, index_file) == CLOOB_ERR_ARGUMENT);
    cloob_search_close(s);
    CHECK_OK(ctx, cloob_search_open(ctx, index_file, &s));
    CHECK(cloob_search_count(s) == 3 && entry_of(s, "a") == 0 && entry_of(s, "b") == 1 && entry_of(s, "d") == 2);
    CHECK(s->row[2 * D + 1] == 1 && s->row[0 * D + 2] == 1);
    cloob_search_close(s);
    remove(index_file);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(answers_are_exact);
    RUN(an_update_embeds_what_changed);
    RUN(the_digest_saves_the_probe);
    RUN(foreign_files_are_refused);
    RUN(an_interruption_is_saved);
    RUN(the_folder_may_be_moved);
    RUN(an_old_index_is_found_after_a_move);
    RUN(entries_are_added_and_replaced);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
