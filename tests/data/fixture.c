#include "fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "io/image/image.h"

static char folder[64];

const char *fixture_folder(void)
{
    if (!folder[0]) {
        strcpy(folder, "/tmp/cloob-test-XXXXXX");
        if (!mkdtemp(folder)) abort();
    }
    return folder;
}

void fixture_remove(void)
{
    char command[128];
    if (!folder[0]) return;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) printf("  could not remove %s\n", folder);
    folder[0] = '\0';
}

const char *fixture_path(const char *name)
{
    static char path[8][512];
    static int at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s/%s", fixture_folder(), name);
    return path[at];
}

static FILE *create(const char *name)
{
    char dir[512];
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    snprintf(dir, sizeof dir, "%s", fixture_path(name));
    *strrchr(dir, '/') = '\0';
    file_make_dirs(ctx, dir);
    cloob_ctx_destroy(ctx);
    FILE *f = fopen(fixture_path(name), "wb");
    if (!f) abort();
    return f;
}

void fixture_write(const char *name, const void *bytes, size_t n)
{
    FILE *f = create(name);
    if (n && fwrite(bytes, 1, n, f) != n) abort();
    fclose(f);
}

void fixture_text(const char *name, const char *text) { fixture_write(name, text, strlen(text)); }

void fixture_gzip(const char *from, const char *to)
{
    char command[1200];
    snprintf(command, sizeof command, "gzip -c '%s' > '%s'", fixture_path(from), fixture_path(to));
    if (system(command) != 0) printf("  gzip failed\n");
}

/* ---- images ---------------------------------------------------------------------------------------------
 */

void *fixture_png(cloob_ctx *ctx, int number, int size, size_t *bytes)
{
    file_bytes b;
    unsigned char *rgb = malloc((size_t)(size * size * 3));
    char path[256];
    const char *fast = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fixture_folder(); /* writing flushes to disk */
    snprintf(path, sizeof path, "%s/cloob-one-%ld.png", fast, (long)getpid());
    for (int i = 0; i < size * size; i++) {
        rgb[3 * i] = (unsigned char)(number & 255);
        rgb[3 * i + 1] = (unsigned char)(number >> 8 & 255);
        rgb[3 * i + 2] = 77;
    }
    if (image_write_png(ctx, path, rgb, size, size) != CLOOB_OK || file_read(ctx, path, 1 << 20, &b) != CLOOB_OK) {
        printf("  %s\n", cloob_error(ctx));
        exit(1);
    }
    free(rgb);
    unlink(path);
    *bytes = b.size;
    return b.data;
}

int fixture_number(const unsigned char *rgb) { return rgb[0] | rgb[1] << 8; }

/* ---- tars ---------------------------------------------------------------------------------------- */

FILE *fixture_tar_begin(const char *name) { return create(name); }

void fixture_tar_add(FILE *f, const char *name, const void *bytes, size_t n)
{
    char block[512] = "", zeros[512] = "";
    unsigned sum = 0;
    snprintf(block, 100, "%s", name);
    snprintf(block + 100, 8, "%07o", 0644);
    snprintf(block + 108, 8, "%07o", 0);
    snprintf(block + 116, 8, "%07o", 0);
    snprintf(block + 124, 12, "%011o", (unsigned)n);
    snprintf(block + 136, 12, "%011o", 0);
    block[156] = '0';
    memcpy(block + 257,
           "ustar\0"
           "00",
           8);
    memset(block + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    fwrite(block, 1, 512, f);
    if (n) fwrite(bytes, 1, n, f);
    fwrite(zeros, 1, (512 - n % 512) % 512, f);
}

void fixture_tar_end(FILE *f)
{
    char zeros[1024] = "";
    fwrite(zeros, 1, sizeof zeros, f);
    fclose(f);
}

void fixture_shard(cloob_ctx *ctx, const char *name, int begin, int end, int size)
{
    FILE *f = fixture_tar_begin(name);
    for (int i = begin; i < end; i++) {
        char member[64], text[64];
        size_t n;
        void *png = fixture_png(ctx, i, size, &n);
        snprintf(member, sizeof member, "%06d.png", i);
        fixture_tar_add(f, member, png, n);
        snprintf(member, sizeof member, "%06d.txt", i);
        snprintf(text, sizeof text, "caption %d", i);
        fixture_tar_add(f, member, text, strlen(text));
        free(png);
    }
    fixture_tar_end(f);
}
