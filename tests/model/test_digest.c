/* The checksum over a whole model file: an edited number, a flipped bit anywhere, a version from the future. */
#include "check.h"

#include <unistd.h>

#include "cloob/convert.h"
#include "core/ctx.h"
#include "core/hash.h"
#include "model/digest.h"
#include "model/interchange.h"
#include "model/params.h"
#include "model/weights.h"

static cloob_ctx *ctx;
static char path[256];

static void the_hash_is_xxh64(void)
{
    CHECK(hash64(0, "", 0) == 0xEF46DB3751D8E999u);
    CHECK(hash64(0, "a", 1) == 0xD24EC4F1A98C6E5Bu);
    CHECK(hash64(0, "abc", 3) == 0x44BC2CF5AD770999u);
    char text[101];
    for (int i = 0; i < 101; i++) text[i] = (char)i;
    for (size_t n = 0; n <= 100; n++)
        for (size_t k = 0; k < n; k++) {
            uint64_t before = hash64(7, text, n);
            text[k] ^= 4;
            CHECK(hash64(7, text, n) != before);
            text[k] ^= 4;
        }
}

/* A whole small model and two tensors of a run's state, one of them large enough for several pieces. */
static cloob_status write_model(void)
{
    weights w;
    st_entry *row;
    int64_t count;
    weights_init(&w);
    CLOOB_TRY(model_config_load(ctx, "tiny-rn", &w.config));
    CLOOB_TRY(model_shapes(ctx, &w.a, &w.config, &row, &count));
    for (int64_t i = 0; i < count; i++) {
        tensor t = row[i].t;
        float *data = t.data = arena_push(&w.a, tensor_bytes(&t));
        for (int64_t k = 0; k < tensor_count(&t); k++) data[k] = 0.001f * (float)(i + k % 50);
        CLOOB_TRY(weights_add(ctx, &w, row[i].name, &t));
    }
    tensor large = TENSOR(CLOOB_F32, arena_push(&w.a, 3 << 20), 3 << 18),
           one = TENSOR(CLOOB_F32, arena_push(&w.a, 4), 1);
    CLOOB_TRY(weights_add(ctx, &w, "train.m.large", &large));
    CLOOB_TRY(weights_add(ctx, &w, "train.v.one", &one));
    CLOOB_TRY(weights_set_meta(ctx, &w, "train.updates", "123456"));
    cloob_status status = weights_write_native(ctx, path, &w);
    weights_release(&w);
    return status;
}

/* Changes bytes in the file: the text `from` becomes `to`, of the same length. */
static void edit(const char *from, const char *to)
{
    file_bytes b;
    CHECK_OK(ctx, file_read(ctx, path, (size_t)1 << 30, &b));
    char *at = memmem(b.data, b.size, from, strlen(from));
    CHECK(at != NULL && strlen(from) == strlen(to));
    if (at) memcpy(at, to, strlen(to));
    CHECK_OK(ctx, file_write(ctx, path, b.data, b.size));
    file_bytes_release(&b);
}

static void flip(const char *tensor_name, int64_t byte)
{
    st_file f;
    CHECK_OK(ctx, st_open(ctx, path, &f));
    const st_entry *e = st_find(&f, tensor_name);
    CHECK(e != NULL);
    long at = e ? (long)((const unsigned char *)e->t.data - f.map.data) + (long)byte : 0;
    st_close(&f);
    FILE *file = fopen(path, "r+b");
    fseek(file, at, SEEK_SET);
    int c = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(c ^ 1, file);
    fclose(file);
}

static cloob_status read_native(void)
{
    weights w;
    cloob_status status = weights_read_native(ctx, path, &w);
    if (status == CLOOB_OK) weights_release(&w);
    return status;
}

static cloob_status read_any(void)
{
    weights w;
    interchange_report report;
    cloob_status status = interchange_read(ctx, path, NULL, &w, &report);
    if (status == CLOOB_OK) weights_release(&w);
    interchange_report_release(&report);
    return status;
}

static void a_whole_file_is_read(void)
{
    bool stored = false;
    CHECK_OK(ctx, write_model());
    CHECK_OK(ctx, read_native());
    CHECK_OK(ctx, read_any());
    CHECK_OK(ctx, cloob_weights_verify(ctx, path, &stored));
    CHECK(stored);
}

/* Every reader notices, not only `info`. */
static void an_edited_number_is_refused(void)
{
    CHECK_OK(ctx, write_model());
    edit("\"train.updates\":\"123456\"", "\"train.updates\":\"123457\"");
    CHECK(read_native() == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "edited"));
    CHECK(read_any() == CLOOB_ERR_FORMAT);
    CHECK_OK(ctx, write_model());
    edit("digest.model", "digest.nodel");
    CHECK(read_native() == CLOOB_ERR_FORMAT);
}

static void a_flipped_bit_of_a_weight_is_refused(void)
{
    CHECK_OK(ctx, write_model());
    flip("visual.conv1.weight", 2);
    CHECK(read_native() == CLOOB_ERR_FORMAT);
    CHECK(read_any() == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), path));
}

/* Using the weights does not read the state of the run; resuming and `info` do. */
static void a_flipped_bit_of_the_state_is_found_on_demand(void)
{
    static const int64_t bytes[] = { 0, (1 << 20) - 1, 1 << 20, (3 << 20) - 1 };
    for (int i = 0; i < 4; i++) {
        bool stored;
        CHECK_OK(ctx, write_model());
        flip("train.m.large", bytes[i]);
        CHECK_OK(ctx, read_any());
        CHECK(cloob_weights_verify(ctx, path, &stored) == CLOOB_ERR_FORMAT);
    }
}

static void a_newer_file_is_refused(void)
{
    CHECK_OK(ctx, write_model());
    edit("\"file_version\":\"1\"", "\"file_version\":\"9\"");
    CHECK(read_any() == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "newer cloob"));
    CHECK(read_native() == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "newer cloob"));
}

/* As files of before 0.2 are: no version, no digests. */
static void old_files_are_read(void)
{
    weights w;
    bool stored = true;
    CHECK_OK(ctx, write_model());
    CHECK_OK(ctx, weights_read_native(ctx, path, &w));
    static const char *const fresh[] = { "file_version", "digest.train", "digest.model" };
    for (int i = 0; i < 3; i++) CHECK_OK(ctx, weights_set_meta(ctx, &w, fresh[i], NULL));
    CHECK_OK(ctx, st_write(ctx, path, w.entry, w.count, w.meta, w.meta_count));
    CHECK_OK(ctx, read_any());
    CHECK_OK(ctx, cloob_weights_verify(ctx, path, &stored));
    CHECK(!stored);
    weights_release(&w);
}

static cloob_status check_copy(const st_file *f, const st_entry *damaged)
{
    return digest_check_model_once(ctx, path, &(digest_input){ damaged, 1, f->meta, f->meta_count, NULL, NULL });
}

/* A large file that was found intact is not read again until it changes. */
static void an_intact_file_is_remembered(void)
{
    enum { BYTES = 16 << 20 };
    char cache[300], digest[DIGEST_TEXT];
    st_file f;
    st_entry e = { .name = "x", .t = TENSOR(CLOOB_U8, calloc(1, BYTES), BYTES) };
    st_meta meta[] = { { "file_version", "1" }, { "digest.model", digest } };
    snprintf(cache, sizeof cache, "%s.cache", path);
    setenv("CLOOB_CACHE", cache, 1);
    CHECK_OK(ctx, digest_model(ctx, &(digest_input){ &e, 1, meta, 1, NULL, NULL }, digest));
    CHECK_OK(ctx, st_write(ctx, path, &e, 1, meta, 2));
    CHECK_OK(ctx, st_open(ctx, path, &f));
    ((char *)e.t.data)[12345] = 1; /* a damaged copy in memory */
    CHECK(check_copy(&f, &e) == CLOOB_ERR_FORMAT);
    CHECK_OK(ctx, check_copy(&f, f.entry));
    CHECK(check_copy(&f, &e) == CLOOB_ERR_FORMAT); /* changed too recently to be remembered */
    usleep(3100000);
    CHECK(check_copy(&f, &e) == CLOOB_ERR_FORMAT); /* damage is not remembered as intact */
    CHECK_OK(ctx, check_copy(&f, f.entry));
    CHECK_OK(ctx, check_copy(&f, &e)); /* not read */
    ctx->copy_files = true;
    CHECK(check_copy(&f, &e) == CLOOB_ERR_FORMAT);
    ctx->copy_files = false;
    st_close(&f);
    flip("x", 77);
    CHECK_OK(ctx, st_open(ctx, path, &f));
    CHECK(check_copy(&f, f.entry) == CLOOB_ERR_FORMAT);
    st_close(&f);
    free(e.t.data);
    snprintf(cache, sizeof cache, "rm -rf '%s.cache'", path);
    CHECK(system(cache) == 0);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    snprintf(path, sizeof path, "%s/cloob-digest-%ld.safetensors", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (long)getpid());
    RUN(the_hash_is_xxh64);
    RUN(a_whole_file_is_read);
    RUN(an_edited_number_is_refused);
    RUN(a_flipped_bit_of_a_weight_is_refused);
    RUN(a_flipped_bit_of_the_state_is_found_on_demand);
    RUN(a_newer_file_is_refused);
    RUN(old_files_are_read);
    RUN(an_intact_file_is_remembered);
    unlink(path);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
