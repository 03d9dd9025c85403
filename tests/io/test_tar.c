/* The tar index: every dialect, damage, and the cached form. */
#include "io/tar.h"

#include <unistd.h>

#include "../data/fixture.h"
#include "check.h"
#include "core/file.h"

static cloob_ctx *ctx;

static cloob_status open_tar(const char *name, const char *cache, fileset **files, tar_index *t)
{
    int file;
    *t = (tar_index){ 0 };
    CLOOB_TRY(fileset_create(ctx, cache, files));
    CLOOB_TRY(fileset_add(ctx, *files, fixture_path(name), &file));
    CLOOB_TRY(fileset_open(ctx, *files, file));
    return tar_open(ctx, *files, file, t);
}

static void close_tar(fileset *files, tar_index *t)
{
    tar_release(t);
    fileset_destroy(files);
}

static void check_member(const fileset *files, const tar_index *t, int64_t i, const char *name, const char *content)
{
    char got[64] = "";
    CHECK(i < t->count);
    if (i >= t->count) return;
    CHECK_STR(tar_name(t, i), name);
    CHECK(t->member[i].size == (int64_t)strlen(content));
    CHECK_OK(ctx, fileset_read(ctx, files, 0, t->member[i].offset, got, (size_t)t->member[i].size));
    CHECK_STR(got, content);
}

/* Written by the system's own tar in each of its formats, with a name longer than a header holds. */
static void dialects(void)
{
    static const char *const formats[] = { "v7", "ustar", "gnu", "pax" };
    char command[1024], longer[200];
    memset(longer, 'n', 150);
    strcpy(longer + 150, ".txt");
    fixture_text("in/dir/a.txt", "first");
    fixture_text("in/b.txt", "second");
    for (int i = 0; i < 4; i++) {
        fileset *files;
        tar_index t;
        char name[32];
        bool with_long = i >= 2;
        snprintf(name, sizeof name, "%s.tar", formats[i]);
        snprintf(command, sizeof command, "in/%s", longer);
        if (with_long) fixture_text(command, "third");
        snprintf(command, sizeof command, "cd '%s' && tar --format=%s -cf '%s' dir/a.txt b.txt %s 2>/dev/null",
                 fixture_path("in"), formats[i], fixture_path(name), with_long ? longer : "");
        if (system(command) != 0) SKIP("no tar with --format here");
        CHECK_OK(ctx, open_tar(name, "", &files, &t));
        CHECK(t.count == (with_long ? 3 : 2) && t.skipped == 0);
        check_member(files, &t, 0, "dir/a.txt", "first");
        check_member(files, &t, 1, "b.txt", "second");
        if (with_long) check_member(files, &t, 2, longer, "third");
        close_tar(files, &t);
    }
}

static void write_three(const char *name)
{
    FILE *f = fixture_tar_begin(name);
    fixture_tar_add(f, "a.txt", "one", 3);
    fixture_tar_add(f, "b.txt", "two", 3);
    fixture_tar_add(f, "c.txt", "three", 5);
    fixture_tar_end(f);
}

static void overwrite(const char *name, long at, const char *bytes, size_t n)
{
    FILE *f = fopen(fixture_path(name), "r+b");
    fseek(f, at, SEEK_SET);
    fwrite(bytes, 1, n, f);
    fclose(f);
}

static void damage_is_counted(void)
{
    fileset *files;
    tar_index t;
    write_three("bad.tar");
    overwrite("bad.tar", 1024 + 30, "garbage", 7); /* inside the second header */
    CHECK_OK(ctx, open_tar("bad.tar", "", &files, &t));
    CHECK(t.count == 2 && t.skipped == 1);
    check_member(files, &t, 0, "a.txt", "one");
    check_member(files, &t, 1, "c.txt", "three");
    close_tar(files, &t);

    write_three("cut.tar");
    CHECK(truncate(fixture_path("cut.tar"), 2048 + 512 + 2) == 0); /* inside the third content */
    CHECK_OK(ctx, open_tar("cut.tar", "", &files, &t));
    CHECK(t.count == 2 && t.skipped == 1);
    close_tar(files, &t);
}

static void unsafe_names_are_left_out(void)
{
    fileset *files;
    tar_index t;
    FILE *f = fixture_tar_begin("unsafe.tar");
    fixture_tar_add(f, "../evil.txt", "x", 1);
    fixture_tar_add(f, "/etc/passwd", "x", 1);
    fixture_tar_add(f, "a/../../b.txt", "x", 1);
    fixture_tar_add(f, "./ok..txt", "fine", 4);
    fixture_tar_end(f);
    CHECK_OK(ctx, open_tar("unsafe.tar", "", &files, &t));
    CHECK(t.count == 1 && t.skipped == 3);
    check_member(files, &t, 0, "ok..txt", "fine");
    close_tar(files, &t);
}

static void other_files_are_refused(void)
{
    fileset *files;
    tar_index t;
    char noise[4096];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * 37 + 11);
    fixture_write("noise.tar", noise, sizeof noise);
    CHECK(open_tar("noise.tar", "", &files, &t) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "not a tar file"));
    close_tar(files, &t);
    fixture_text("short.tar", "hello");
    CHECK(open_tar("short.tar", "", &files, &t) == CLOOB_ERR_FORMAT);
    close_tar(files, &t);
    fixture_text("empty.tar", "");
    CHECK_OK(ctx, open_tar("empty.tar", "", &files, &t));
    CHECK(t.count == 0);
    close_tar(files, &t);
    CHECK(open_tar("missing.tar", "", &files, &t) == CLOOB_ERR_IO);
    CHECK(strstr(cloob_error(ctx), "missing.tar"));
    close_tar(files, &t);
}

static void gzip_is_unpacked(void)
{
    fileset *files;
    tar_index t;
    char command[512];
    write_three("z.tar");
    fixture_gzip("z.tar", "z.tar.gz");
    if (open_tar("z.tar.gz", "", &files, &t) == CLOOB_ERR_UNSUPPORTED) {
        close_tar(files, &t);
        SKIP("no zlib in this build");
    }
    CHECK(t.count == 3 && !fileset_path(files, 0)); /* in an unnamed file */
    check_member(files, &t, 1, "b.txt", "two");
    check_member(files, &t, 2, "c.txt", "three");
    close_tar(files, &t);

    snprintf(command, sizeof command, "head -c 60 '%s' > '%s'", fixture_path("z.tar.gz"), fixture_path("y.tar.gz"));
    CHECK(system(command) == 0);
    CHECK(open_tar("y.tar.gz", "", &files, &t) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "gzip"));
    close_tar(files, &t);
}

static void the_cached_index_is_never_believed_blindly(void)
{
    tar_index t, back;
    fileset *files;
    write_three("i.tar");
    CHECK_OK(ctx, open_tar("i.tar", "", &files, &t));
    const char *path = fixture_path("one.index");
    CHECK_OK(ctx, tar_cache_save(ctx, path, "/x/i.tar", 4096, 77, &t));
    CHECK(tar_cache_load(ctx, path, "/x/i.tar", 4096, 77, &back));
    CHECK(back.count == 3 && strcmp(tar_name(&back, 2), "c.txt") == 0 && back.member[2].offset == t.member[2].offset);
    tar_release(&back);
    CHECK(!tar_cache_load(ctx, path, "/x/i.tar", 4096, 78, &back)); /* changed since */
    CHECK(!tar_cache_load(ctx, path, "/x/i.tar", 4608, 77, &back));
    CHECK(!tar_cache_load(ctx, path, "/y/i.tar", 4096, 77, &back)); /* another file */
    file_bytes b;
    CHECK_OK(ctx, file_read(ctx, path, 1 << 20, &b));
    for (size_t i = 0; i < b.size; i++) { /* every single damaged byte is noticed, or harmless to the counts */
        b.data[i] ^= 0x40;
        fixture_write("one.index", b.data, b.size);
        if (tar_cache_load(ctx, path, "/x/i.tar", 4096, 77, &back)) CHECK(back.count == 3);
        tar_release(&back);
        b.data[i] ^= 0x40;
    }
    fixture_write("one.index", b.data, b.size / 2);
    CHECK(!tar_cache_load(ctx, path, "/x/i.tar", 4096, 77, &back));
    file_bytes_release(&b);
    close_tar(files, &t);
}

static void pipes_and_changes(void)
{
    fileset *files;
    int file;
    char spec[600], got[4] = "";
    write_three("p.tar");
    snprintf(spec, sizeof spec, "pipe:cat '%s'", fixture_path("p.tar"));
    CHECK_OK(ctx, fileset_create(ctx, "", &files));
    CHECK_OK(ctx, fileset_add(ctx, files, spec, &file));
    CHECK_OK(ctx, fileset_open(ctx, files, file));
    CHECK_OK(ctx, fileset_read(ctx, files, file, 512, got, 3));
    CHECK_STR(got, "one");
    CHECK_OK(ctx, fileset_add(ctx, files, "pipe:exit 3", &file));
    CHECK(fileset_open(ctx, files, file) == CLOOB_ERR_IO);
    CHECK(strstr(cloob_error(ctx), "code 3"));
    CHECK_OK(ctx, fileset_add(ctx, files, fixture_path("p.tar"), &file));
    CHECK_OK(ctx, fileset_open(ctx, files, file));
    fixture_text("p.tar", "replaced"); /* before its first read */
    CHECK(fileset_read(ctx, files, file, 512, got, 3) == CLOOB_ERR_IO);
    CHECK(strstr(cloob_error(ctx), "changed"));
    CHECK(fileset_read(ctx, files, file, 1 << 20, got, 3) == CLOOB_ERR_FORMAT);
    fileset_destroy(files);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(dialects);
    RUN(damage_is_counted);
    RUN(unsafe_names_are_left_out);
    RUN(other_files_are_refused);
    RUN(gzip_is_unpacked);
    RUN(the_cached_index_is_never_believed_blindly);
    RUN(pipes_and_changes);
    fixture_remove();
    cloob_ctx_destroy(ctx);
    return check_summary();
}
