/* Embeddings that go to a file as they come: the same file as from memory, whatever is left out on the way;
 * memory that does not grow with the rows; nothing under the file's name when it fails. */
#include "check.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cloob/cloob.h"
#include "core/file.h"
#include "core/limits.h"
#include "io/safetensors.h"
#include "infer/embed_job.h"
#include "io/image/image.h"

enum { CLASSES = 2, EACH = 130, IMAGES = CLASSES * EACH }; /* more than are made at a time */

static cloob_ctx *ctx;
static cloob_model *m;
static const char *const folder = "test_embed_file.tmp.d", *const texts = "test_embed_file.tmp.txt",
                         *const weights_path = "test_embed_file.w.tmp.safetensors",
                         *const streamed = "test_embed_file.a.tmp.safetensors", *const npy = "test_embed_file.tmp.npy";

/* ---- what is embedded ---------------------------------------------------------------------------- */

static void image_path(char path[256], int class, int i)
{
    snprintf(path, 256, "%s/%s/%03d.png", folder, class ? "red" : "blue", i);
}

static void write_image(const char *path, int which)
{
    uint8_t rgb[8 * 8 * 3];
    for (int k = 0; k < 8 * 8 * 3; k++) rgb[k] = (uint8_t)(17 * which + 5 * k);
    CHECK_OK(ctx, image_write_png(ctx, path, rgb, 8, 8));
}

/* The first DIFFERENT of a class are files, the others names for them, which saves the time of writing. With
 * bad, three of each class are no images. */
static void write_images(bool bad)
{
    enum { DIFFERENT = 5 };
    char path[256], again[256];
    mkdir(folder, 0777);
    for (int c = 0; c < CLASSES; c++) {
        snprintf(path, sizeof path, "%s/%s", folder, c ? "red" : "blue");
        mkdir(path, 0777);
        for (int i = 0; i < EACH; i++) {
            image_path(path, c, i);
            image_path(again, c, i % DIFFERENT);
            if (bad && i % 60 == 7) CHECK_OK(ctx, file_write(ctx, path, "no image", 8));
            else if (i < DIFFERENT) write_image(path, DIFFERENT * c + i);
            else CHECK(link(again, path) == 0);
        }
    }
}

static void remove_images(void)
{
    char path[256];
    for (int c = 0; c < CLASSES; c++) {
        for (int i = 0; i < EACH; i++) image_path(path, c, i), remove(path);
        snprintf(path, sizeof path, "%s/%s", folder, c ? "red" : "blue");
        rmdir(path);
    }
    rmdir(folder);
}

static void write_texts(int64_t n)
{
    FILE *f = fopen(texts, "w");
    for (int64_t i = 0; i < n; i++) fprintf(f, "a red square %lld\n", (long long)i % 977);
    fclose(f);
}

/* Small towers and wide rows. */
static const char shape[] = "{\"embed_dim\": 512, \"image_resolution\": 32, \"vision_layers\": [1, 1, 1, 1], "
                            "\"vision_width\": 8, \"vision_patch_size\": null, \"context_length\": 12, "
                            "\"vocab_size\": 530, \"transformer_width\": 16, \"transformer_heads\": 2, "
                            "\"transformer_layers\": 1}";

/* Random weights with a tokenizer. */
static void open_model(void)
{
    const char *const config = "test_embed_file.tmp.json";
    cloob_tokenizer *tok = NULL;
    cloob_trainer *t = NULL;
    cloob_trainer_options o;
    cloob_model_options mo;
    cloob_trainer_options_init(&o);
    cloob_model_options_init(&mo);
    write_texts(50);
    CHECK_OK(ctx, cloob_tokenizer_train(ctx, texts, 530, &tok));
    CHECK_OK(ctx, file_write(ctx, config, shape, sizeof shape - 1));
    o.model = config, o.tokenizer = tok, o.batch = 2, o.device = mo.device = "cpu";
    CHECK_OK(ctx, cloob_trainer_create(ctx, &o, &t));
    CHECK_OK(ctx, cloob_trainer_save(ctx, t, weights_path));
    CHECK_OK(ctx, cloob_model_open(ctx, weights_path, &mo, &m));
    cloob_trainer_destroy(t);
    cloob_tokenizer_close(tok);
    remove(config);
}

/* ---- comparisons --------------------------------------------------------------------------------- */

static void same_rows(const st_file *f, const char *name, const void *rows, size_t bytes)
{
    const st_entry *e = st_find(f, name);
    CHECK((e != NULL) == (rows != NULL));
    if (e && rows) CHECK(tensor_bytes(&e->t) == bytes && memcmp(e->t.data, rows, bytes) == 0);
}

/* The streamed file holds what the same job gives in memory. */
static void same_as_file(const embed_result *e)
{
    st_file f;
    size_t n = (size_t)e->rows, texts_n = (size_t)e->text_rows;
    CHECK_OK(ctx, st_open(ctx, streamed, &f));
    same_rows(&f, "image", e->image, n * (size_t)e->image_width * sizeof *e->image);
    same_rows(&f, "text", e->text, texts_n * (size_t)e->text_width * sizeof *e->text);
    same_rows(&f, "label", e->label, n * sizeof *e->label);
    same_rows(&f, "row", e->row, n * sizeof *e->row);
    const char *names = st_meta_get(&f, "names");
    CHECK(names && strstr(names, e->name[0]) && strstr(names, e->name[e->rows - 1]));
    st_close(&f);
}

/* Images and texts, into a file and into memory. */
static void compare_images_and_texts(bool bad)
{
    const char *path[] = { folder };
    embed_job job;
    embed_result e, all = { 0 };
    write_images(bad);
    write_texts(300);
    embed_job_init(&job);
    job.images = path, job.images_count = 1, job.texts = texts;
    CHECK_OK(ctx, embed_to_file(ctx, m, &job, streamed, &e));
    CHECK_OK(ctx, embed_to_memory(ctx, m, &job, &all));
    CHECK(e.rows == all.rows && e.text_rows == 300 && e.bad == all.bad && !e.image && !e.text);
    CHECK(e.bad == (bad ? 6 : 0) && e.rows + e.bad == IMAGES);
    same_as_file(&all);
    embed_result_release(&e), embed_result_release(&all);
    remove(streamed), remove_images();
}

static void the_file_is_the_one_from_memory(void) { compare_images_and_texts(false); }
static void bad_images_leave_no_gap(void) { compare_images_and_texts(true); }

static void classes_and_labels_are_copied(void)
{
    cloob_dataset *d;
    cloob_data_options o;
    embed_job job;
    embed_result e, all = { 0 };
    write_images(true);
    cloob_data_options_init(&o);
    embed_job_init(&job);
    CHECK_OK(ctx, cloob_dataset_open(ctx, folder, &o, &d));
    job.data = d, job.what = CLOOB_FEATURES;
    CHECK_OK(ctx, embed_to_file(ctx, m, &job, streamed, &e));
    CHECK_OK(ctx, embed_dataset(ctx, m, d, CLOOB_FEATURES, 2, &all));
    CHECK(e.classes == CLASSES && e.bad == 6 && all.label[0] == 0 && all.label[all.rows - 1] == 1);
    for (int64_t i = 0; i < all.rows; i++) { /* every row knows its image, whatever was left out before it */
        char path[256];
        image_path(path, all.row[i] >= EACH, (int)(all.row[i] % EACH));
        CHECK_STR(all.name[i], path);
        CHECK(all.label[i] == (all.row[i] >= EACH) && all.row[i] % EACH % 60 != 7);
    }
    CHECK(all.row[6] == 6 && all.row[7] == 8); /* 7 cannot be read */
    same_as_file(&all);
    cloob_dataset_close(d);
    embed_result_release(&e), embed_result_release(&all);
    remove(streamed), remove_images();
}

/* Three rows for the first image, one for the second, none that is readable for the third, two for the fourth. */
static void every_caption_knows_its_image(void)
{
    static const char csv[] = "filepath\ttitle\nblue/000.png\ta red square\nblue/001.png\ta blue square\n"
                              "blue/000.png\ta square\nblue/007.png\tnothing\nred/002.png\tred\n"
                              "blue/000.png\tred\nred/002.png\ta red thing\n";
    static const int64_t owner[] = { 0, 0, 0, 1, 2, 2 }, row[] = { 0, 1, 3 };
    static const char *const caption[] = { "a red square", "a square", "red", "a blue square", "red", "a red thing" };
    char path[256];
    cloob_dataset *d;
    cloob_data_options o;
    embed_job job;
    embed_result e;
    st_file f;
    write_images(true);
    snprintf(path, sizeof path, "%s/pairs.tsv", folder);
    CHECK_OK(ctx, file_write(ctx, path, csv, sizeof csv - 1));
    cloob_data_options_init(&o);
    embed_job_init(&job);
    o.one_caption = true;
    CHECK_OK(ctx, cloob_dataset_open(ctx, path, &o, &d));
    job.data = d, job.all_captions = true;
    CHECK_OK(ctx, embed_to_file(ctx, m, &job, streamed, &e));
    CHECK(e.rows == 3 && e.text_rows == 6 && e.bad == 1);
    for (int i = 0; i < 6; i++) CHECK_STR(e.caption[i], caption[i]);
    CHECK_STR(e.name[2], "red/002.png");
    CHECK_OK(ctx, st_open(ctx, streamed, &f));
    CHECK(memcmp(st_find(&f, "text_image")->t.data, owner, sizeof owner) == 0);
    CHECK(memcmp(st_find(&f, "row")->t.data, row, sizeof row) == 0);
    float *alone = malloc((size_t)e.text_width * sizeof *alone);
    CHECK_OK(ctx, cloob_encode_texts(ctx, m, &caption[5], 1, CLOOB_UNIT, alone));
    CHECK(memcmp((const float *)st_find(&f, "text")->t.data + 5 * e.text_width, alone,
                 (size_t)e.text_width * sizeof *alone) == 0);
    free(alone);
    st_close(&f);
    cloob_dataset_close(d);
    embed_result_release(&e);
    remove(path), remove(streamed), remove_images();
}

static void one_matrix_goes_into_npy(void)
{
    embed_job job;
    embed_result e, all = { 0 };
    file_bytes b;
    write_texts(300);
    embed_job_init(&job);
    job.texts = texts;
    CHECK_OK(ctx, embed_to_file(ctx, m, &job, npy, &e));
    CHECK_OK(ctx, embed_to_memory(ctx, m, &(embed_job){ .what = CLOOB_UNIT, .texts = texts }, &all));
    CHECK_OK(ctx, file_read(ctx, npy, FILE_TEXT_LIMIT, &b));
    size_t bytes = (size_t)(300 * all.text_width) * sizeof(float);
    CHECK(b.size == 128 + bytes && memcmp(b.data + 128, all.text, bytes) == 0);
    CHECK(memcmp(b.data, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (300, ", 64) == 0);
    file_bytes_release(&b);
    embed_result_release(&e), embed_result_release(&all);
    remove(npy), remove("test_embed_file.tmp.npy.txt");
}

/* ---- limits -------------------------------------------------------------------------------------- */

static int64_t growth(int64_t n)
{
    embed_job job;
    embed_result e;
    write_texts(n);
    embed_job_init(&job);
    job.texts = texts;
    peak_reset();
    int64_t before = peak_bytes();
    CHECK_OK(ctx, embed_to_file(ctx, m, &job, streamed, &e));
    CHECK(e.text_rows == n);
    embed_result_release(&e);
    remove(streamed);
    return peak_bytes() - before;
}

/* Ten times the rows may take the memory of their texts, about 30 bytes each, not of their rows. */
static void memory_does_not_grow_with_the_rows(void)
{
    enum { FEW = 300, MANY = 10 * FEW };
    int64_t width = cloob_model_width(m, CLOOB_UNIT, CLOOB_TEXT);
    growth(FEW);
    int64_t few = growth(FEW), many = growth(MANY), rows = MANY * width * (int64_t)sizeof(float);
    printf("  grown by %.2f MB for %d rows, by %.2f MB for %d, which take %.2f MB\n", (double)few / 1e6, FEW,
           (double)many / 1e6, MANY, (double)rows / 1e6);
    CHECK(many - few < rows / 2);
}

static void check_refused(const embed_job *job, const char *out, cloob_status want, const char *words)
{
    embed_result e;
    CHECK(embed_to_file(ctx, m, job, out, &e) == want);
    CHECK(strstr(cloob_error(ctx), words) != NULL);
    CHECK(!e.name && !e.rows);
    CHECK(!file_exists(out));
}

static void failures_leave_nothing(void)
{
    const char *path[] = { folder };
    embed_job job;
    struct rlimit old, small;
    write_images(false);
    write_texts(300);
    embed_job_init(&job);
    check_refused(&job, streamed, CLOOB_ERR_ARGUMENT, "nothing to write");
    job.texts = texts, job.images = path, job.images_count = 1;
    check_refused(&job, npy, CLOOB_ERR_ARGUMENT, "holds one matrix");
    check_refused(&job, "no/such/folder/e.safetensors", CLOOB_ERR_IO, "cannot create");
    CHECK(embed_to_file(ctx, m, &job, folder, &(embed_result){ 0 }) == CLOOB_ERR_IO);
    CHECK(strstr(cloob_error(ctx), "is a folder") != NULL);
    job.eval.retrieve = "no/such/file.safetensors";
    check_refused(&job, streamed, CLOOB_ERR_IO, "no/such/file");
    job.eval.retrieve = NULL;
    signal(SIGXFSZ, SIG_IGN); /* a limit stands in for a full disk */
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){ 10000, old.rlim_max };
    setrlimit(RLIMIT_FSIZE, &small);
    check_refused(&job, streamed, CLOOB_ERR_IO, "cannot reserve");
    setrlimit(RLIMIT_FSIZE, &old);
    remove_images();
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    open_model();
    RUN(the_file_is_the_one_from_memory);
    RUN(bad_images_leave_no_gap);
    RUN(classes_and_labels_are_copied);
    RUN(every_caption_knows_its_image);
    RUN(one_matrix_goes_into_npy);
    RUN(memory_does_not_grow_with_the_rows);
    RUN(failures_leave_nothing);
    cloob_model_close(m);
    cloob_ctx_destroy(ctx);
    remove(texts), remove(weights_path);
    return check_summary();
}
