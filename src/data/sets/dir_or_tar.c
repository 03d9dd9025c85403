/* Files by name, in a folder or in a tar. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "data/sets/dataset_kind.h"

typedef struct item {
    char *name, *path; /* path: NULL inside a tar */
    raw_file at;       /* file -1: not opened yet */
} item;

struct raw_files {
    fileset *files;
    item *item;
    int64_t count, capacity;
};

static cloob_status add(cloob_ctx *ctx, raw_files *b, const char *name, char *path, raw_file at)
{
    if (!heap_grow(&b->item, b->count, &b->capacity, sizeof *b->item)) {
        free(path);
        return ctx_no_memory(ctx, (size_t)b->count * sizeof *b->item, "a list of files");
    }
    item i = { strdup(name), path, at };
    b->item[b->count++] = i;
    return i.name ? CLOOB_OK : ctx_no_memory(ctx, strlen(name), "a file name");
}

static cloob_status list_folder(cloob_ctx *ctx, raw_files *b, const char *path)
{
    cloob_status status = CLOOB_OK;
    DIR *dir = opendir(path);
    if (!dir) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char *full = file_join(path, e->d_name);
        status = full ? add(ctx, b, e->d_name, full, (raw_file){ -1, 0, 0 }) : ctx_no_memory(ctx, 1, path);
    }
    closedir(dir);
    return status;
}

static cloob_status list_tar(cloob_ctx *ctx, raw_files *b, const char *path)
{
    tar_index t;
    int file;
    CLOOB_TRY(fileset_add(ctx, b->files, path, &file));
    CLOOB_TRY(fileset_open(ctx, b->files, file));
    CLOOB_TRY(tar_open(ctx, b->files, file, &t));
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < t.count && status == CLOOB_OK; i++)
        status =
            add(ctx, b, name_base(tar_name(&t, i)), NULL, (raw_file){ file, t.member[i].offset, t.member[i].size });
    tar_release(&t);
    return status;
}

static cloob_status list_beside(cloob_ctx *ctx, raw_files *b, const char *path)
{
    const char *base = name_base(path);
    char *dir = base == path ? strdup(".") : strndup(path, (size_t)(base - path));
    cloob_status status = dir ? list_folder(ctx, b, dir) : ctx_no_memory(ctx, strlen(path), "a file name");
    free(dir);
    return status;
}

cloob_status raw_files_open(cloob_ctx *ctx, const char *path, const char *cache, raw_files **out)
{
    raw_files *b = *out = calloc(1, sizeof *b);
    if (!b) return ctx_no_memory(ctx, sizeof *b, "a list of files");
    cloob_status status = fileset_create(ctx, cache, &b->files);
    if (status == CLOOB_OK) {
        if (file_is_dir(path)) status = list_folder(ctx, b, path);
        else if (name_has_suffix(path, "tar;tgz") || strstr(name_base(path), ".tar.")) status = list_tar(ctx, b, path);
        else status = list_beside(ctx, b, path);
    }
    if (status != CLOOB_OK) {
        raw_files_close(b);
        *out = NULL;
    }
    return status;
}

void raw_files_close(raw_files *b)
{
    if (!b) return;
    for (int64_t i = 0; i < b->count; i++) {
        free(b->item[i].name);
        free(b->item[i].path);
    }
    fileset_destroy(b->files);
    free(b->item);
    free(b);
}

fileset *raw_files_set(raw_files *b) { return b->files; }

static bool same_name(const char *have, const char *want)
{
    size_t n = strlen(want);
    return strncmp(have, want, n) == 0 && (have[n] == '\0' || strcmp(have + n, ".gz") == 0);
}

bool raw_files_find(const raw_files *b, const char *name, const char **found)
{
    for (int64_t i = 0; i < b->count; i++) {
        if (!same_name(b->item[i].name, name)) continue;
        if (found) *found = b->item[i].name;
        return true;
    }
    return false;
}

cloob_status raw_files_get(cloob_ctx *ctx, raw_files *b, const char *name, raw_file *out)
{
    for (int64_t i = 0; i < b->count; i++) {
        item *it = &b->item[i];
        if (!same_name(it->name, name)) continue;
        if (it->at.file < 0) {
            int file;
            CLOOB_TRY(fileset_add(ctx, b->files, it->path, &file));
            CLOOB_TRY(fileset_open(ctx, b->files, file));
            it->at = (raw_file){ file, 0, fileset_size(b->files, file) };
        }
        *out = it->at;
        return CLOOB_OK;
    }
    return ctx_fail(ctx, CLOOB_ERR_IO, "no such file: %s", name);
}

cloob_status raw_files_text(cloob_ctx *ctx, raw_files *b, const char *name, size_t limit, char **text, size_t *size)
{
    raw_file at = { 0 };
    CLOOB_TRY(raw_files_get(ctx, b, name, &at));
    if ((uint64_t)at.size > limit)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes, more than the %zu it could have", name,
                        (long long)at.size, limit);
    *text = malloc((size_t)at.size + 1);
    if (!*text) return ctx_no_memory(ctx, (size_t)at.size, name);
    (*text)[at.size] = '\0';
    *size = (size_t)at.size;
    cloob_status status = fileset_read(ctx, b->files, at.file, at.offset, *text, (size_t)at.size);
    if (status != CLOOB_OK) free(*text);
    return status;
}
