/* gzip: members follow each other; a bomb is refused before it fills memory or the disk. */
#include "check.h"

#include "io/gzip.h"

static cloob_ctx *ctx;

enum { MEMBER = 1 << 17 };

/* One member: 128 KiB of zeros. */
static const unsigned char zeros[] = {
    0x1F, 0x8B, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xED, 0xC1, 0x31, 0x01, 0x00, 0x00, 0x00, 0xC2,
    0xA0, 0xF5, 0x4F, 0xED, 0x61, 0x0D, 0xA0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x6E, 0xCD, 0xCD, 0xE8, 0x7E, 0x00, 0x00, 0x02, 0x00
};

static cloob_status count(void *arg, const void *bytes, size_t n)
{
    (void)bytes;
    *(int64_t *)arg += (int64_t)n;
    return CLOOB_OK;
}

static cloob_status unpack(int members, int64_t *given)
{
    FILE *f = tmpfile();
    for (int i = 0; i < members; i++) fwrite(zeros, 1, sizeof zeros, f);
    rewind(f);
    *given = 0;
    cloob_status status = gzip_copy(ctx, f, "zeros.gz", count, given);
    fclose(f);
    return status;
}

static void members_follow_each_other(void)
{
    int64_t given;
    cloob_status status = unpack(3, &given);
    if (status == CLOOB_ERR_UNSUPPORTED) SKIP("built without zlib");
    CHECK_OK(ctx, status);
    CHECK(given == 3 * MEMBER);
}

static void a_bomb_is_refused(void)
{
    int64_t given;
    cloob_status status = unpack(4000, &given); /* half a gigabyte out of 0.6 MB */
    if (status == CLOOB_ERR_UNSUPPORTED) SKIP("built without zlib");
    CHECK(status == CLOOB_ERR_FORMAT && given <= GZIP_GRACE + (64 << 10));
    CHECK(strstr(cloob_error(ctx), "zeros.gz") && strstr(cloob_error(ctx), "300 times"));
}

/* A whole file in memory, as vocabularies are read: its bytes, and none beyond the limit. */
static void files_are_read_up_to_a_limit(void)
{
    const char *path = "test_gzip.tmp.gz";
    file_bytes out;
    FILE *f = fopen(path, "wb");
    fwrite(zeros, 1, sizeof zeros, f);
    fclose(f);
    cloob_status status = gzip_read(ctx, path, MEMBER, &out);
    if (status == CLOOB_OK) {
        CHECK(out.size == MEMBER && out.data[0] == 0 && out.data[MEMBER - 1] == 0);
        file_bytes_release(&out);
        CHECK(gzip_read(ctx, path, MEMBER - 1, &out) == CLOOB_ERR_FORMAT && !out.data);
        CHECK(strstr(cloob_error(ctx), path) && strstr(cloob_error(ctx), "allowed"));
    }
    remove(path);
    if (status == CLOOB_ERR_UNSUPPORTED) SKIP("built without zlib");
    CHECK_OK(ctx, status);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(members_follow_each_other);
    RUN(a_bomb_is_refused);
    RUN(files_are_read_up_to_a_limit);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
