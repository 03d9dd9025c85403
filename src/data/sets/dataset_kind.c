/* What kinds of data sets share, and which kind a source is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/text.h"
#include "data/sets/dataset_web.h"

enum { IMAGE_LIMIT = 1 << 30 }; /* larger than any image below the pixel limit */

cloob_status stored_reserve(cloob_ctx *ctx, stored_sample *s, size_t n)
{
    if (n <= s->capacity) return CLOOB_OK;
    size_t capacity = s->capacity ? s->capacity : 1 << 16;
    while (capacity < n) capacity *= 2;
    free(s->data);
    s->data = malloc(capacity);
    s->capacity = s->data ? capacity : 0;
    return s->data ? CLOOB_OK : ctx_no_memory(ctx, capacity, "an image");
}

cloob_status stored_read(cloob_ctx *ctx, const fileset *files, int file, int64_t offset, int64_t size, stored_sample *s)
{
    s->size = 0;
    if (size <= 0) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: empty", s->name.data);
    if (size > IMAGE_LIMIT) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes", s->name.data, (long long)size);
    CLOOB_TRY(stored_reserve(ctx, s, (size_t)size));
    CLOOB_TRY(fileset_read(ctx, files, file, offset, s->data, (size_t)size));
    s->size = (size_t)size;
    return CLOOB_OK;
}

static cloob_status read_descriptor(cloob_ctx *ctx, int fd, const char *path, stored_sample *s)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: not a regular file", path);
    if (st.st_size == 0) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: empty", path);
    if (st.st_size > IMAGE_LIMIT) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes", path, (long long)st.st_size);
    CLOOB_TRY(stored_reserve(ctx, s, (size_t)st.st_size));
    ssize_t got = file_read_at(fd, s->data, (size_t)st.st_size, 0);
    if (got < st.st_size)
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot read: %s", path, got < 0 ? strerror(errno) : "cut off");
    s->size = (size_t)got;
    return CLOOB_OK;
}

cloob_status stored_read_path(cloob_ctx *ctx, const char *path, stored_sample *s)
{
    s->size = 0;
    /* O_NONBLOCK: a named pipe among the images must not block a worker. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return file_fail(ctx, path, "cannot open");
    cloob_status status = read_descriptor(ctx, fd, path, s);
    close(fd);
    return status;
}

/* ---- captions ----------------------------------------------------------------------------------- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

cloob_status stored_caption(cloob_ctx *ctx, const char *text, size_t bytes, stored_sample *s)
{
    while (bytes && is_space(*text)) text++, bytes--;
    while (bytes && is_space(text[bytes - 1])) bytes--;
    if (!bytes) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: empty caption", s->name.data);
    size_t at = 0;
    for (uint32_t code; at < bytes;) {
        int n = utf8_decode(text + at, bytes - at, &code);
        if (n <= 0 || code == 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the caption is not UTF-8 (byte %zu)", s->name.data, at);
        if (at + (size_t)n > CAPTION_BYTES_LIMIT) break;
        at += (size_t)n;
    }
    s->caption.len = 0;
    sbuf_add(&s->caption, text, at);
    return s->caption.failed ? ctx_no_memory(ctx, at, "a caption") : CLOOB_OK;
}

/* ---- names -------------------------------------------------------------------------------------- */

bool name_has_suffix(const char *name, const char *keys)
{
    const char *dot = strrchr(name, '.');
    if (!dot || !dot[1]) return false;
    size_t n = strlen(dot + 1);
    for (const char *key = keys; *key;) {
        size_t k = strcspn(key, ";");
        if (k == n && strncasecmp(key, dot + 1, n) == 0) return true;
        key += k + (key[k] == ';');
    }
    return false;
}

cloob_status open_single(cloob_ctx *ctx, const char *path, const char *cache, fileset **files)
{
    int file;
    CLOOB_TRY(fileset_create(ctx, cache, files));
    CLOOB_TRY(fileset_add(ctx, *files, path, &file));
    return fileset_open(ctx, *files, file);
}

/* ---- the kind of a source, from its name and content ------------------------------------------ */

bool name_is_tar(const char *path)
{
    const char *base = file_base(path);
    return name_has_suffix(base, "tar;tgz") || strstr(base, ".tar.gz");
}

/* "list.tsv.gz" counts as "list.tsv". */
static bool is_table_name(const char *path)
{
    const char *base = file_base(path);
    return name_has_suffix(base, "csv;tsv") || strstr(base, ".csv.gz") || strstr(base, ".tsv.gz");
}

static cloob_status detect_folder(cloob_ctx *ctx, const char *path, const char *split, const dataset_ops **ops)
{
    bool tars = false, dirs = false;
    if (web_is_benchmark(path, split)) return *ops = &dataset_web, CLOOB_OK;
    DIR *d = opendir(path);
    if (!d) return file_fail(ctx, path, "cannot open");
    *ops = NULL;
    for (struct dirent *e; !*ops && (e = readdir(d));) {
        *ops = raw_set_of(e->d_name);
        if (name_is_tar(e->d_name)) tars = true;
        if (e->d_type == DT_DIR && e->d_name[0] != '.') dirs = true;
    }
    closedir(d);
    if (!*ops) *ops = tars && !dirs ? &dataset_web : &dataset_folder;
    return CLOOB_OK;
}

/* A tar with texts and images is a shard; one with a known file is that set; else class folders. */
static cloob_status detect_by_content(cloob_ctx *ctx, const tar_index *t, const dataset_options *o,
                                      const dataset_ops **ops)
{
    web_keys keys = { (char *)(uintptr_t)o->image_key, (char *)(uintptr_t)o->text_key }; /* only read */
    web_shard s = { 0 };
    *ops = NULL;
    for (int64_t i = 0; i < t->count && !*ops; i++) *ops = raw_set_of(file_base(tar_name(t, i)));
    if (*ops) return CLOOB_OK;
    cloob_status status = web_group(ctx, t, &keys, &s);
    *ops = s.with_text > 0 || t->count == 0 ? &dataset_web : &dataset_tarfolder;
    free(s.sample);
    return status;
}

static cloob_status detect_tar(cloob_ctx *ctx, const char *path, const dataset_options *o, const dataset_ops **ops)
{
    fileset *files = NULL;
    tar_index t = { 0 };
    cloob_status status = open_single(ctx, path, o->cache, &files);
    if (status == CLOOB_OK) status = tar_open(ctx, files, 0, &t);
    if (status == CLOOB_OK) status = detect_by_content(ctx, &t, o, ops);
    tar_release(&t);
    fileset_destroy(files);
    return status;
}

cloob_status dataset_detect(cloob_ctx *ctx, const char *source, const dataset_options *o, const dataset_ops **ops)
{
    *ops = NULL;
    if (strcmp(source, "synthetic") == 0) *ops = &dataset_random;
    else if (strncmp(source, "pipe:", 5) == 0) *ops = &dataset_web;
    else if (file_is_dir(source)) return detect_folder(ctx, source, o->split, ops);
    else if (!file_exists(source) && strchr(source, '{')) *ops = &dataset_web;
    else if (!file_exists(source)) return file_fail(ctx, source, "cannot open");
    else if (is_table_name(source)) *ops = &dataset_csv;
    else if (name_is_tar(source)) return detect_tar(ctx, source, o, ops);
    else *ops = raw_set_of(file_base(source));
    if (*ops) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                    "%s: unknown kind of data set (csv, tsv, tar, a folder, CIFAR, STL-10, "
                    "MNIST); set it with `type`",
                    source);
}
