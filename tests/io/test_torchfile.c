/* Torch files: what torch itself wrote (tests/ref, made by tests/ref/make/make_torch_refs.py), our own writer, and
 * damage. */
#include "check.h"

#include "io/torch/torchfile.h"
#include "io/torch/zip.h"

static cloob_ctx *ctx;

static const tensor *find(const torch_file *f, const char *name)
{
    for (int64_t i = 0; i < f->count; i++)
        if (strcmp(f->entry[i].name, name) == 0) return &f->entry[i].t;
    return NULL;
}

/* The tensor is there, with that type and count, and its elements as floats are v, v + step, ... */
static void holds(const torch_file *f, const char *name, cloob_dtype dtype, int64_t count, float v, float step)
{
    float x[16];
    const tensor *t = find(f, name);
    CHECK(t != NULL);
    if (!t) return;
    CHECK(t->dtype == dtype && tensor_count(t) == count);
    if (dtype == CLOOB_BOOL || count == 0 || count > 16) return;
    CHECK(dtype_convert(CLOOB_F32, x, dtype, t->data, count));
    for (int64_t i = 0; i < count; i++) CHECK(x[i] == v + step * (float)i);
}

static void check_state(const torch_file *f)
{
    int64_t epoch;
    CHECK(f->count == 12);
    holds(f, "plain", CLOOB_F32, 6, 0, 1);
    holds(f, "scalar", CLOOB_I64, 1, 7, 0);
    holds(f, "half", CLOOB_F16, 4, 0, 1);
    holds(f, "brain", CLOOB_BF16, 2, 0, 1);
    holds(f, "double", CLOOB_F64, 3, 0, 1);
    holds(f, "small", CLOOB_I8, 2, 1, -3);
    holds(f, "yes", CLOOB_BOOL, 2, 0, 0);
    holds(f, "empty", CLOOB_F32, 0, 0, 0);
    holds(f, "front", CLOOB_F32, 3, 1, 1); /* two views of one storage */
    holds(f, "back", CLOOB_F32, 7, 3, 1);
    holds(f, "parameter", CLOOB_F32, 2, 1, 0);
    const float turned[6] = { 0, 3, 1, 4, 2, 5 }; /* (3, 2), strides 1 and 3 in the file */
    const tensor *t = find(f, "turned");
    CHECK(t && t->dim[0] == 3 && t->dim[1] == 2 && memcmp(t->data, turned, sizeof turned) == 0);
    CHECK(pk_int(pk_get(f->root, "epoch"), &epoch) && epoch == 3);
    CHECK_STR(pk_text(pk_get(f->root, "name")), "run");
}

static void torch_s_own_files(void)
{
    static const char *const path[] = { TESTS_DIR "/ref/torch_zip.pt", TESTS_DIR "/ref/torch_stream.pt" };
    for (int i = 0; i < 2; i++) {
        torch_file f;
        CHECK_OK(ctx, torch_open(ctx, path[i], &f));
        CHECK(f.layout == (i ? TORCH_LEGACY : TORCH_ZIP));
        check_state(&f);
        torch_close(&f);
    }
}

static void a_script_archive(void)
{
    torch_file f;
    CHECK_OK(ctx, torch_open(ctx, TESTS_DIR "/ref/torch_script.pt", &f));
    CHECK(f.layout == TORCH_SCRIPT && f.count == 2);
    holds(&f, "blocks.0.weight", CLOOB_F32, 6, 0, 1);
    holds(&f, "count", CLOOB_I64, 1, 7, 0);
    torch_close(&f);
}

/* ---- our own writer ------------------------------------------------------------------------------ */

static void what_we_write_comes_back(void)
{
    const char *path = "test_torchfile.tmp.pt";
    float x[6] = { 1, 2, 3, 4, 5, 6 };
    uint16_t h[3] = { 0x3c00, 0x4000, 0x4200 };
    int64_t n[1] = { 1LL << 40 };
    st_entry entry[] = { { "a.weight", TENSOR(CLOOB_F32, x, 2, 3) },
                         { "b", TENSOR(CLOOB_F16, h, 3) },
                         { "n", tensor_make(CLOOB_I64, 0, NULL, n) },
                         { "none", TENSOR(CLOOB_F32, NULL, 0, 4) } };
    torch_wrapper wrapper = { 1LL << 33, "a run" };
    for (int wrapped = 0; wrapped < 2; wrapped++) {
        torch_file f;
        int64_t epoch;
        CHECK_OK(ctx, torch_write(ctx, path, entry, 4, wrapped ? &wrapper : NULL));
        CHECK_OK(ctx, torch_open(ctx, path, &f));
        CHECK(f.count == 4 && strcmp(f.entry[0].name, "a.weight") == 0);
        for (int64_t i = 0; i < f.count; i++) {
            CHECK(tensor_same_shape(&f.entry[i].t, &entry[i].t) && f.entry[i].t.dtype == entry[i].t.dtype);
            CHECK(i == 3 || memcmp(f.entry[i].t.data, entry[i].t.data, tensor_bytes(&entry[i].t)) == 0);
        }
        CHECK((uintptr_t)f.entry[0].t.data % 64 == 0); /* a view of the mapping, aligned as torch does */
        CHECK(pk_int(pk_get(f.root, "epoch"), &epoch) == wrapped && (!wrapped || epoch == 1LL << 33));
        torch_close(&f);
    }
    remove(path);
}

/* A hole of 5 GiB costs no disk; what lies behind it needs the 64-bit records. */
static void members_beyond_four_gigabytes(void)
{
    const char *path = "test_torchfile_far.tmp";
    const uint64_t far = 5ULL << 30;
    FILE *f = fopen(path, "wb");
    zip_writer w;
    zip_reader z;
    file_map map;
    arena a = { 0 };
    zip_writer_begin(&w, f);
    CHECK_OK(ctx, zip_writer_add(ctx, &w, "near", "here", 4));
    if (fseeko(f, (off_t)far, SEEK_SET) != 0) SKIP("no large files here");
    w.at = far;
    CHECK_OK(ctx, zip_writer_add(ctx, &w, "far", "there", 5));
    CHECK_OK(ctx, zip_writer_end(ctx, &w));
    zip_writer_release(&w);
    CHECK(fclose(f) == 0);
    CHECK_OK(ctx, file_map_open(ctx, path, &map));
    CHECK_OK(ctx, zip_open_bytes(ctx, &a, map.data, map.size, path, &z));
    const zip_member *near_ = zip_find(&z, "near"), *far_ = zip_find(&z, "far");
    CHECK(z.count == 2 && near_ && near_->size == 4 && memcmp(near_->data, "here", 4) == 0);
    CHECK(far_ && far_->size == 5 && memcmp(far_->data, "there", 5) == 0 && (uint64_t)(far_->data - map.data) > far);
    file_map_close(&map);
    arena_release(&a);
    remove(path);
}

static void a_writer_that_fails_leaves_nothing(void)
{
    float x = 1;
    st_entry entry = { "a", TENSOR(CLOOB_F32, &x, 1) };
    CHECK(torch_write(ctx, "no-such-folder/x.pt", &entry, 1, NULL) == CLOOB_ERR_IO);
}

/* ---- damage -------------------------------------------------------------------------------------- */

/* Opens, and when that works, reads every byte that a tensor claims: the sanitizers watch. */
static bool survives(const void *bytes, size_t size)
{
    torch_file f;
    if (torch_open_bytes(ctx, bytes, size, "damaged", &f) != CLOOB_OK) return false;
    volatile unsigned char sum = 0;
    for (int64_t i = 0; i < f.count; i++)
        for (size_t b = 0; b < tensor_bytes(&f.entry[i].t); b++) sum ^= ((unsigned char *)f.entry[i].t.data)[b];
    torch_close(&f);
    return true;
}

static const char *const refs[] = { TESTS_DIR "/ref/torch_zip.pt", TESTS_DIR "/ref/torch_stream.pt",
                                    TESTS_DIR "/ref/torch_script.pt" };

static void every_prefix_is_refused(void)
{
    for (size_t i = 0; i < 3; i++) {
        file_bytes whole;
        CHECK_OK(ctx, file_read(ctx, refs[i], 1 << 20, &whole));
        CHECK(survives(whole.data, whole.size));
        for (size_t n = 0; n < whole.size; n++) {
            char *part = malloc(n + 1); /* of its own size, so that a sanitizer sees a read past it */
            memcpy(part, whole.data, n);
            CHECK(!survives(part, n));
            free(part);
        }
        file_bytes_release(&whole);
    }
}

static void changed_bytes_are_harmless(void)
{
    static const unsigned char change[] = { 0xFF, 0x01, 0x80 };
    for (size_t i = 0; i < 3; i++) {
        file_bytes whole;
        CHECK_OK(ctx, file_read(ctx, refs[i], 1 << 20, &whole));
        for (size_t n = 0; n < 3 * whole.size; n++) {
            whole.data[n / 3] = (char)(whole.data[n / 3] ^ change[n % 3]);
            survives(whole.data, whole.size);
            whole.data[n / 3] = (char)(whole.data[n / 3] ^ change[n % 3]);
        }
        file_bytes_release(&whole);
    }
}

/* ---- lies that torch itself would not write: one tensor "a" by hand ------------------------------ */

static void put_int(sbuf *s, int64_t v)
{
    sbuf_add(s, "\x8a\x08", 2);
    for (int i = 0; i < 8; i++) sbuf_putc(s, (char)((uint64_t)v >> (8 * i)));
}

typedef struct lie {
    const char *word; /* in the error; NULL: it is the truth */
    int64_t count, offset, size[2], stride[2];
    int times, storage_bytes;
} lie;

static void put_tensor(sbuf *s, const lie *l)
{
    sbuf_puts(s, "U\1actorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1"
                 "0U\3cpu");
    put_int(s, l->count);
    sbuf_puts(s, "tQ");
    put_int(s, l->offset);
    sbuf_putc(s, '(');
    put_int(s, l->size[0]), put_int(s, l->size[1]);
    sbuf_puts(s, "t(");
    put_int(s, l->stride[0]), put_int(s, l->stride[1]);
    sbuf_puts(s, "t\x89NtR");
}

static void write_zip(const char *path, const sbuf *pickle, int storage_bytes)
{
    static const char zeros[64];
    zip_writer z;
    FILE *f = fopen(path, "wb");
    zip_writer_begin(&z, f);
    CHECK_OK(ctx, zip_writer_add(ctx, &z, "x/data.pkl", pickle->data, pickle->len));
    if (storage_bytes >= 0) CHECK_OK(ctx, zip_writer_add(ctx, &z, "x/data/0", zeros, (size_t)storage_bytes));
    CHECK_OK(ctx, zip_writer_end(ctx, &z));
    zip_writer_release(&z);
    fclose(f);
}

static void false_sizes_are_refused(void)
{
    static const lie lies[] = {
        { NULL, 16, 0, { 4, 4 }, { 4, 1 }, 1, 64 },
        { NULL, 16, 0, { 4, 4 }, { 1, 4 }, 1, 64 },
        { NULL, 16, 15, { 1, 1 }, { 9, 9 }, 1, 64 },
        { "should have 32", 32, 0, { 4, 8 }, { 8, 1 }, 1, 64 },
        { "in a storage of 16", 16, 0, { 4, 8 }, { 8, 1 }, 1, 64 },
        { "in a storage of 16", 16, 1, { 4, 4 }, { 4, 1 }, 1, 64 },
        { "in a storage of 16", 16, 0, { 1LL << 30, 1LL << 30 }, { 0, 0 }, 1, 64 }, /* expanded */
        { "in a storage of 16", 16, 0, { 2, 2 }, { 1LL << 60, 1 }, 1, 64 },
        { "impossible sizes", 16, 0, { 1LL << 62, 4 }, { 4, 1 }, 1, 64 },
        { "impossible sizes", 16, 0, { 4, 4 }, { 1LL << 62, 1 }, 1, 64 },
        { "impossible sizes", 16, INT64_MAX, { 1, 2 }, { 1, 1 }, 1, 64 },
        { "negative", 16, 0, { -4, 4 }, { 4, 1 }, 1, 64 },
        { "negative", 16, 0, { 4, 4 }, { 4, -1 }, 1, 64 },
        { "negative", 16, -1, { 4, 4 }, { 4, 1 }, 1, 64 },
        { "sound key and size", -16, 0, { 4, 4 }, { 4, 1 }, 1, 64 },
        { "twice", 16, 0, { 4, 4 }, { 4, 1 }, 2, 64 },
        { "missing", 16, 0, { 4, 4 }, { 4, 1 }, 1, -1 },
        { "should have", INT64_MAX, 0, { 4, 4 }, { 4, 1 }, 1, 64 },
    };
    const char *path = "test_torchfile_lie.tmp.pt";
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        sbuf s = { 0 };
        torch_file f;
        sbuf_puts(&s, "}(");
        for (int k = 0; k < lies[i].times; k++) put_tensor(&s, &lies[i]);
        sbuf_puts(&s, "u.");
        write_zip(path, &s, lies[i].storage_bytes);
        cloob_status status = torch_open(ctx, path, &f);
        CHECK((status == CLOOB_OK) == !lies[i].word);
        if (status == CLOOB_OK) torch_close(&f);
        else if (lies[i].word && !strstr(cloob_error(ctx), lies[i].word)) {
            printf("  wanted \"%s\": %s\n", lies[i].word, cloob_error(ctx));
            CHECK(false);
        }
        sbuf_release(&s);
    }
    remove(path);
}

static void other_files_are_recognised(void)
{
    torch_file f;
    CHECK(torch_open_bytes(ctx, "\x89PNG\r\n\x1a\nxxxxxxxx", 16, "a.pt", &f) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "PNG") != NULL);
    CHECK(torch_open_bytes(ctx, "version https://git-lfs", 23, "a.pt", &f) != CLOOB_OK &&
          strstr(cloob_error(ctx), "LFS"));
    CHECK(torch_open_bytes(ctx, "", 0, "a.pt", &f) != CLOOB_OK && strstr(cloob_error(ctx), "empty"));
    CHECK(torch_open(ctx, "absent.pt", &f) == CLOOB_ERR_IO);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(torch_s_own_files);
    RUN(a_script_archive);
    RUN(what_we_write_comes_back);
    RUN(members_beyond_four_gigabytes);
    RUN(a_writer_that_fails_leaves_nothing);
    RUN(every_prefix_is_refused);
    RUN(changed_bytes_are_harmless);
    RUN(false_sizes_are_refused);
    RUN(other_files_are_recognised);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
