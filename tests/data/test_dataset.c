/* Every kind of data set, from files made here. */
#include "data/sets/dataset.h"

#include <unistd.h>

#include "check.h"
#include "core/file.h"
#include "data/sets/dataset_kind.h"
#include "fixture.h"

static cloob_ctx *ctx;

static dataset_options options(void)
{
    dataset_options o;
    dataset_options_init(&o);
    o.cache = ""; /* leave the user's cache alone */
    return o;
}

static void check_sample(const dataset *d, int64_t i, uint64_t pick, int number, const char *caption, int64_t label)
{
    sample s;
    CHECK_OK(ctx, dataset_read(ctx, d, i, pick, NULL, &s));
    if (!s.im.rgb) return;
    CHECK(fixture_number(s.im.rgb) == number);
    CHECK(s.label == label);
    CHECK((caption == NULL) == (s.caption == NULL));
    if (caption && s.caption) CHECK_STR(s.caption, caption);
    sample_release(&s);
}

static void check_fails(const char *source, const dataset_options *o, cloob_status want, const char *says)
{
    dataset *d;
    CHECK(dataset_open(ctx, source, o, &d) == want);
    CHECK(strstr(cloob_error(ctx), says));
    if (!strstr(cloob_error(ctx), says)) printf("  %s\n", cloob_error(ctx));
    dataset_close(d);
}

/* ---- names ------------------------------------------------------------------------------------------------
 */

static void check_braces(const char *pattern, const char *want)
{
    name_list names = { 0 };
    char got[512] = "";
    CHECK_OK(ctx, braces_expand(ctx, pattern, &names));
    for (int64_t i = 0; i < names.count; i++) {
        if (i) strcat(got, " ");
        strcat(got, names.name[i]);
    }
    CHECK_STR(got, want);
    name_list_release(&names);
}

static void braces(void)
{
    check_braces("s-{008..011}.tar", "s-008.tar s-009.tar s-010.tar s-011.tar");
    check_braces("{8..11}", "8 9 10 11");
    check_braces("{3..1}", "3 2 1");
    check_braces("{1..9..4}", "1 5 9");
    check_braces("{a,b{1..2},}x", "ax b1x b2x x");
    check_braces("{a..c}{0..1}", "a0 a1 b0 b1 c0 c1");
    check_braces("plain", "plain");
    check_braces("{single}", "{single}");
    name_list names = { 0 };
    CHECK(braces_expand(ctx, "a{1..2", &names) == CLOOB_ERR_ARGUMENT);
    CHECK(braces_expand(ctx, "{0..999}{0..999}{0..999}", &names) == CLOOB_ERR_ARGUMENT);
    name_list_release(&names);
}

/* ---- tables -----------------------------------------------------------------------------------------------
 */

static void write_pngs(const char *dir, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        char name[64];
        size_t n;
        void *png = fixture_png(ctx, i, 4, &n);
        snprintf(name, sizeof name, "%s/%d.png", dir, i);
        fixture_write(name, png, n);
        free(png);
    }
}

static void tables(void)
{
    dataset *d;
    dataset_options o = options();
    write_pngs("pics", 0, 3);
    fixture_text("t.tsv", "title\tfilepath\na dog\tpics/0.png\n\"a "
                          "\"\"big\"\"\ncat\"\tpics/1.png\n\tpics/2.png\nalso zero\tpics/0.png\n");
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("t.tsv"), &o, &d));
    CHECK(dataset_count(d) == 3 && dataset_skipped(d) == 1 && dataset_has_captions(d)); /* one row has no title */
    check_sample(d, 0, 0, 0, "a dog", -1);
    check_sample(d, 1, 0, 1, "a \"big\"\ncat", -1);
    char *text;
    CHECK_OK(ctx, dataset_caption(ctx, d, 2, 0, &text));
    CHECK_STR(text, "also zero");
    free(text);
    dataset_close(d);

    o.one_caption = true; /* two rows name image 0 */
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("t.tsv"), &o, &d));
    CHECK(dataset_count(d) == 2);
    check_sample(d, 0, 4, 0, "a dog", -1);
    check_sample(d, 0, 5, 0, "also zero", -1);
    check_sample(d, 1, 9, 1, "a \"big\"\ncat", -1);
    dataset_close(d);
}

static void tables_elsewhere(void)
{
    dataset *d;
    dataset_options o = options();
    write_pngs("root/sub", 0, 2);
    fixture_text("lists/t.csv", "image,caption\nsub/1.png,\"one, of them\"\n");
    fixture_text("lists/u.csv", "photo,words\nsub/1.png,one\n");
    check_fails(fixture_path("lists/u.csv"), &o, CLOOB_ERR_FORMAT, "no column \"filepath\"");
    o.csv_image_key = "image"; /* the separator is still a tab, and found out */
    o.csv_caption_key = "caption";
    o.path_data = fixture_path("root");
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("lists/t.csv"), &o, &d));
    check_sample(d, 0, 0, 1, "one, of them", -1);
    dataset_close(d);

    size_t n; /* the images in a tar instead of a folder */
    void *png = fixture_png(ctx, 9, 4, &n);
    FILE *f = fixture_tar_begin("pics.tar");
    fixture_tar_add(f, "z.png", "no", 2);
    fixture_tar_add(f, "sub/1.png", png, n);
    fixture_tar_end(f);
    free(png);
    o.path_data = fixture_path("pics.tar");
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("lists/t.csv"), &o, &d));
    check_sample(d, 0, 0, 9, "one, of them", -1);
    dataset_close(d);
    o.path_data = fixture_path("nowhere");
    check_fails(fixture_path("lists/t.csv"), &o, CLOOB_ERR_IO, "nowhere");
}

static void bad_tables(void)
{
    dataset *d;
    sample s;
    dataset_options o = options();
    fixture_text("e.tsv", "filepath\ttitle\n");
    check_fails(fixture_path("e.tsv"), &o, CLOOB_ERR_FORMAT, "no usable sample");
    fixture_text("z.tsv", "");
    check_fails(fixture_path("z.tsv"), &o, CLOOB_ERR_FORMAT, "the file is empty");
    check_fails(fixture_path("none.tsv"), &o, CLOOB_ERR_IO, "none.tsv");
    fixture_text("zero.png", "");
    fixture_text("b.tsv",
                 "filepath\ttitle\ngone.png\ta\nzero.png\tb\nzero.png\tinvalid \xFF\xC3 bytes\nzero.png\t   \n");
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("b.tsv"), &o, &d));
    CHECK(dataset_read(ctx, d, 0, 0, NULL, &s) == CLOOB_ERR_IO && strstr(cloob_error(ctx), "gone.png"));
    CHECK(dataset_read(ctx, d, 1, 0, NULL, &s) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "empty"));
    CHECK(dataset_read(ctx, d, 2, 0, NULL, &s) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "UTF-8"));
    CHECK(dataset_read(ctx, d, 3, 0, NULL, &s) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "empty caption"));
    CHECK(dataset_read(ctx, d, 4, 0, NULL, &s) == CLOOB_ERR_ARGUMENT);
    dataset_close(d);
}

static void long_captions_are_cut_at_a_character(void)
{
    dataset *d;
    char *text;
    size_t bytes = 10 << 20;
    dataset_options o = options();
    FILE *f = fopen(fixture_path("long.tsv"), "wb");
    fputs("filepath\ttitle\nx.png\tx", f);
    for (size_t i = 0; i < bytes / 2; i++) fputs("\xC3\xA9", f);
    fputs("\n", f);
    fclose(f);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("long.tsv"), &o, &d));
    CHECK_OK(ctx, dataset_caption(ctx, d, 0, 0, &text));
    CHECK(strlen(text) == CAPTION_BYTES_LIMIT - 1); /* the last two-byte character did not fit */
    free(text);
    dataset_close(d);
}

/* ---- shards -------------------------------------------------------------------------------------- */

static void shards(void)
{
    dataset *d;
    dataset_options o = options();
    fixture_shard(ctx, "w/s-000.tar", 0, 3, 4);
    fixture_shard(ctx, "w/s-001.tar", 3, 7, 4);
    fixture_text("w/sizes.json", "{\"s-000.tar\": 3, \"s-001.tar\": 5}"); /* one of them wrong: a warning */
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("w/s-{000..001}.tar"), &o, &d));
    CHECK(dataset_count(d) == 7 && dataset_file_count(d) == 2);
    check_sample(d, 0, 0, 0, "caption 0", -1);
    check_sample(d, 6, 0, 6, "caption 6", -1);
    dataset_close(d);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("w"), &o, &d)); /* the folder alone */
    CHECK(dataset_count(d) == 7 && strcmp(dataset_kind(d), "webdataset") == 0);
    dataset_close(d);
    char joined[1024];
    snprintf(joined, sizeof joined, "%s::pipe:cat '%s'", fixture_path("w/s-001.tar"), fixture_path("w/s-000.tar"));
    CHECK_OK(ctx, dataset_open(ctx, joined, &o, &d));
    CHECK(dataset_count(d) == 7);
    check_sample(d, 3, 0, 6, "caption 6", -1);
    check_sample(d, 4, 0, 0, "caption 0", -1);
    dataset_close(d);
    check_fails(fixture_path("w/s-{000..002}.tar"), &o, CLOOB_ERR_IO, "s-002.tar");
}

static void resampling(void)
{
    dataset *d;
    dataset_options o = options();
    char joined[1024];
    snprintf(joined, sizeof joined, "%s::%s", fixture_path("w/s-000.tar"), fixture_path("w/s-001.tar"));
    o.upsampling = "3::1";
    check_fails(joined, &o, CLOOB_ERR_ARGUMENT, "`resampled`");
    o.resampled = true;
    o.num_samples = 20000;
    CHECK_OK(ctx, dataset_open(ctx, joined, &o, &d));
    CHECK(dataset_epoch_samples(d) == 20000);
    int64_t first = 0;
    for (int64_t i = 0; i < 20000; i++) first += dataset_draw(d, 5, i) < 3;
    CHECK_NEAR((double)first / 20000, 9.0 / 13.0, 0.02); /* 3 samples times 3 against 4; 0.02 is six deviations */
    dataset_close(d);
    o.upsampling = "3::x";
    check_fails(joined, &o, CLOOB_ERR_ARGUMENT, "upsampling");
}

static void captions_in_shards(void)
{
    dataset *d;
    dataset_options o = options();
    size_t n;
    sample s;
    void *png = fixture_png(ctx, 5, 4, &n);
    FILE *f = fixture_tar_begin("j.tar");
    const char *json = "{\"caption\": [\"one\", \"two\", \"three\"], \"url\": \"x\"}", *own = "{\"alt\": \"other\"}";
    fixture_tar_add(f, "a/0.PNG", png, n);
    fixture_tar_add(f, "a/0.json", json, strlen(json));
    fixture_tar_add(f, "a/1.png", png, n);
    fixture_tar_add(f, "a/1.json", own, strlen(own));
    fixture_tar_add(f, "a/1.txt", "first\n\nsecond\n", 14);
    fixture_tar_add(f, "a/2.json", own, strlen(own)); /* no image */
    fixture_tar_add(f, "a/3.png", png, n);            /* no text */
    fixture_tar_end(f);
    free(png);
    o.text_key = "json";
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("j.tar"), &o, &d));
    CHECK(dataset_count(d) == 2 && dataset_skipped(d) == 2);
    check_sample(d, 0, 0, 5, "one", -1);
    check_sample(d, 0, 5, 5, "three", -1);
    CHECK(dataset_read(ctx, d, 1, 0, NULL, &s) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "a/1.png"));
    dataset_close(d);
    o.text_key = "json:alt";
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("j.tar"), &o, &d));
    check_sample(d, 1, 0, 5, "other", -1);
    dataset_close(d);
    o.text_key = "txt:lines";
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("j.tar"), &o, &d));
    CHECK(dataset_count(d) == 1);
    check_sample(d, 0, 3, 5, "second", -1);
    dataset_close(d);
}

/* ---- class folders ------------------------------------------------------------------------------- */

static void class_folders(void)
{
    dataset *d;
    dataset_options o = options();
    write_pngs("c/zebra", 0, 2);
    write_pngs("c/ant/deep", 2, 4);
    fixture_text("c/notes.txt", "not an image");
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("c"), &o, &d));
    CHECK(dataset_count(d) == 4 && dataset_class_count(d) == 2 && !dataset_has_captions(d));
    CHECK_STR(dataset_class_name(d, 0), "ant");
    check_sample(d, 0, 0, 2, NULL, 0);
    check_sample(d, 3, 0, 1, NULL, 1);
    dataset_close(d);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("c/zebra"), &o, &d)); /* images without classes */
    CHECK(dataset_count(d) == 2 && dataset_class_count(d) == 0);
    check_sample(d, 1, 0, 1, NULL, -1);
    dataset_close(d);
    CHECK(symlink("..", fixture_path("c/zebra/up")) == 0 && symlink("../..", fixture_path("c/ant/deep/up")) == 0);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("c"), &o, &d)); /* links to a folder around them add nothing */
    CHECK(dataset_count(d) == 4);
    dataset_close(d);
    CHECK(symlink("../ant", fixture_path("c/zebra/more")) == 0);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("c"), &o, &d)); /* links to other folders are followed */
    CHECK(dataset_count(d) == 6);
    dataset_close(d);
    fixture_text("nothing/x/readme.txt", "no images");
    check_fails(fixture_path("nothing"), &o, CLOOB_ERR_FORMAT, "no usable sample");
}

static void tar_of_class_folders(void)
{
    dataset *d;
    dataset_options o = options();
    FILE *f = fixture_tar_begin("t.tar");
    static const char *const names[] = { "set/b/2.png", "set/a/1.png", "set/b/0.png", "set/a/readme.txt" };
    for (int i = 0; i < 4; i++) {
        size_t n;
        void *png = fixture_png(ctx, i, 4, &n);
        fixture_tar_add(f, names[i], png, n);
        free(png);
    }
    fixture_tar_end(f);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("t.tar"), &o, &d));
    CHECK(dataset_count(d) == 3 && dataset_class_count(d) == 2 && strcmp(dataset_kind(d), "tarfolder") == 0);
    check_sample(d, 0, 0, 1, NULL, 0);
    check_sample(d, 1, 0, 2, NULL, 1);
    check_sample(d, 2, 0, 0, NULL, 1);
    dataset_close(d);
}

/* ---- raw binaries -------------------------------------------------------------------------------- */

static void cifar(void)
{
    dataset *d;
    dataset_options o = options();
    unsigned char records[2 * 3073];
    for (int k = 0; k < 2; k++) {
        unsigned char *r = records + k * 3073;
        r[0] = (unsigned char)(k + 1);
        memset(r + 1, 10 + k, 1024);
        memset(r + 1025, 0, 1024);
        memset(r + 2049, 77, 1024);
    }
    fixture_write("cifar/test_batch.bin", records, sizeof records);
    fixture_write("cifar/data_batch_1.bin", records, 3073);
    fixture_text("cifar/batches.meta.txt", "airplane\nauto_mobile\nbird\n\n");
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("cifar"), &o, &d));
    CHECK(dataset_count(d) == 2 && dataset_class_count(d) == 3);
    CHECK_STR(dataset_class_name(d, 1), "auto mobile");
    check_sample(d, 1, 0, 11, NULL, 2);
    dataset_close(d);
    char source[600];
    snprintf(source, sizeof source, "%s#train", fixture_path("cifar"));
    CHECK_OK(ctx, dataset_open(ctx, source, &o, &d));
    CHECK(dataset_count(d) == 1);
    dataset_close(d);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("cifar/data_batch_1.bin"), &o, &d));
    CHECK(dataset_count(d) == 1);
    dataset_close(d);
    FILE *f = fixture_tar_begin("cifar-100-binary.tar"); /* a tar, two label bytes */
    unsigned char hundred[3074] = { 3, 1 };
    hundred[2] = 42;
    fixture_tar_add(f, "cifar-100-binary/test.bin", hundred, sizeof hundred);
    fixture_tar_add(f, "cifar-100-binary/fine_label_names.txt", "x\ny\n", 4);
    fixture_tar_end(f);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("cifar-100-binary.tar"), &o, &d));
    check_sample(d, 0, 0, 42, NULL, 1);
    dataset_close(d);
    fixture_write("cifar/test_batch.bin", records, 100);
    check_fails(fixture_path("cifar"), &o, CLOOB_ERR_FORMAT, "not a whole number");
}

static void stl10(void)
{
    dataset *d;
    dataset_options o = options();
    unsigned char *x = calloc(1, 27648);
    sample s;
    x[1] = 99; /* second byte: row 1 of column 0 */
    fixture_write("stl/test_X.bin", x, 27648);
    fixture_write("stl/test_y.bin", "\x0A", 1);
    fixture_text("stl/class_names.txt", "airplane\nbird\ncar\ncat\ndeer\ndog\nhorse\nmonkey\nship\ntruck\n");
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("stl"), &o, &d));
    CHECK_OK(ctx, dataset_read(ctx, d, 0, 0, NULL, &s));
    CHECK(s.label == 9 && s.im.width == 96 && s.im.rgb[96 * 3] == 99 && s.im.rgb[3] == 0);
    sample_release(&s);
    dataset_close(d);
    fixture_write("stl/test_y.bin", "\x0B", 1);
    check_fails(fixture_path("stl"), &o, CLOOB_ERR_FORMAT, "label");
    free(x);
}

static void mnist(void)
{
    dataset *d;
    sample s;
    dataset_options o = options();
    unsigned char images[16 + 8] = { 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8 };
    unsigned char labels[8 + 2] = { 0, 0, 8, 1, 0, 0, 0, 2, 7, 3 };
    fixture_write("m/t10k-images-idx3-ubyte", images, sizeof images);
    fixture_write("m/t10k-labels-idx1-ubyte", labels, sizeof labels);
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("m"), &o, &d));
    CHECK(dataset_count(d) == 2 && dataset_class_count(d) == 10);
    CHECK_OK(ctx, dataset_read(ctx, d, 1, 0, NULL, &s));
    CHECK(s.label == 3 && s.im.rgb[0] == 5 && s.im.rgb[1] == 5 && s.im.rgb[11] == 8);
    sample_release(&s);
    dataset_close(d);
    fixture_gzip("m/t10k-images-idx3-ubyte", "m/t10k-images-idx3-ubyte.gz");
    CHECK(unlink(fixture_path("m/t10k-images-idx3-ubyte")) == 0);
    cloob_status status = dataset_open(ctx, fixture_path("m"), &o, &d);
    if (status == CLOOB_ERR_UNSUPPORTED) SKIP("no zlib in this build");
    CHECK(d && dataset_count(d) == 2);
    dataset_close(d);
    images[7] = 200; /* more images than bytes */
    fixture_write("m/t10k-images-idx3-ubyte", images, sizeof images);
    CHECK(unlink(fixture_path("m/t10k-images-idx3-ubyte.gz")) == 0);
    check_fails(fixture_path("m"), &o, CLOOB_ERR_FORMAT, "number of bytes in the header");
}

static void random_images(void)
{
    dataset *d;
    sample a, b;
    dataset_options o = options();
    o.type = "synthetic";
    o.num_samples = 5;
    CHECK_OK(ctx, dataset_open(ctx, NULL, &o, &d));
    CHECK(dataset_count(d) == 5);
    CHECK_OK(ctx, dataset_read(ctx, d, 3, 0, NULL, &a));
    CHECK_OK(ctx, dataset_read(ctx, d, 3, 1, NULL, &b));
    CHECK(memcmp(a.im.rgb, b.im.rgb, 1000) == 0 && strcmp(a.caption, b.caption) == 0);
    sample_release(&a);
    sample_release(&b);
    dataset_close(d);
    o.type = "nonsense";
    check_fails("x", &o, CLOOB_ERR_ARGUMENT, "nonsense");
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(braces);
    RUN(tables);
    RUN(tables_elsewhere);
    RUN(bad_tables);
    RUN(long_captions_are_cut_at_a_character);
    RUN(shards);
    RUN(resampling);
    RUN(captions_in_shards);
    RUN(class_folders);
    RUN(tar_of_class_folders);
    RUN(cifar);
    RUN(stl10);
    RUN(mnist);
    RUN(random_images);
    fixture_remove();
    cloob_ctx_destroy(ctx);
    return check_summary();
}
