/* safetensors: a round trip, and every kind of lie. */
#include "check.h"

#include "io/safetensors.h"

static cloob_ctx *ctx;

static void a_file_is_read_back_unchanged(void)
{
    float a[6] = { 1, 2, 3, 4, 5, 6 };
    int64_t b[2] = { -1, 1LL << 40 };
    st_entry entry[] = { { "a", TENSOR(CLOOB_F32, a, 2, 3) },
                         { "b", TENSOR(CLOOB_I64, b, 2) },
                         { "none", TENSOR(CLOOB_F32, NULL, 0, 4) } };
    st_meta meta[] = { { "format", "test \"quoted\"" } };
    const char *path = "test_safetensors.tmp";
    st_file f;
    CHECK_OK(ctx, st_write(ctx, path, entry, 3, meta, 1));
    CHECK_OK(ctx, st_open(ctx, path, &f));
    CHECK(f.count == 3 && st_find(&f, "a") && !st_find(&f, "c"));
    CHECK(memcmp(st_find(&f, "a")->t.data, a, sizeof a) == 0 && st_find(&f, "b")->t.dim[0] == 2);
    CHECK(tensor_count(&st_find(&f, "none")->t) == 0);
    CHECK_STR(st_meta_get(&f, "format"), "test \"quoted\"");
    st_close(&f);
    remove(path);
}

static bool opens(const char *header, size_t payload)
{
    size_t n = strlen(header), size = 8 + n + payload;
    unsigned char *bytes = calloc(size + 1, 1);
    st_file f;
    bytes[0] = (unsigned char)n, bytes[1] = (unsigned char)(n >> 8);
    memcpy(bytes + 8, header, n);
    bool ok = st_open_bytes(ctx, bytes, size, "test", &f) == CLOOB_OK;
    if (ok) st_close(&f);
    free(bytes);
    return ok;
}

static void false_sizes_are_refused(void)
{
    CHECK(opens("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8));
    CHECK(!opens("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7));  /* cut short */
    CHECK(!opens("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9));  /* oversized */
    CHECK(!opens("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8));  /* wrong size */
    CHECK(!opens("{\"a\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8));  /* unknown type */
    CHECK(!opens("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8)); /* negative */
    CHECK(!opens("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,0]}}",
                 0));                                                                     /* overflow */
    CHECK(!opens("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8)); /* reversed */
    CHECK(!opens("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[6],"
                 "\"data_offsets\":[2,8]}}",
                 8));                                                                    /* overlap */
    CHECK(!opens("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8)); /* hole */
    CHECK(!opens("{\"a\":3}", 0));
    CHECK(!opens("[]", 0));
    CHECK(!opens("{\"__metadata__\":{\"a\":1}}", 0));
    CHECK(!opens("", 0));
}

static void short_and_huge_lengths_are_refused(void)
{
    unsigned char bytes[16];
    st_file f;
    memset(bytes, 0xFF, sizeof bytes);
    for (size_t n = 0; n <= sizeof bytes; n++) CHECK(st_open_bytes(ctx, bytes, n, "test", &f) == CLOOB_ERR_FORMAT);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(a_file_is_read_back_unchanged);
    RUN(false_sizes_are_refused);
    RUN(short_and_huge_lengths_are_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
