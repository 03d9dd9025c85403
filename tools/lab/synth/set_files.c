/* The folder of a set: which files may be replaced, and the marker file; tar files. */
#include "lab/synth/write.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/text.h"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static bool is_owned(const char *name)
{
    if (text_has_word("images classes factors.tsv naming.tsv prompts.json sizes.json val.tsv train.tsv", name))
        return true;
    return (strncmp(name, "train-", 6) == 0 || strncmp(name, "val-", 4) == 0) && text_ends_with(name, ".tar");
}

static bool has_mark(cloob_ctx *ctx, const char *out)
{
    arena a = { 0 };
    json *root = NULL;
    char path[FILE_PATH];
    bool is_set = file_in(ctx, out, SYNTH_MARK, path) == CLOOB_OK && file_exists(path) &&
                  json_read_file(ctx, &a, path, &root) == CLOOB_OK && json_get(root, "cloob_synth");
    arena_release(&a);
    return is_set;
}

/* Removes a file of an earlier set; refuses any other file. */
static cloob_status clear_entry(cloob_ctx *ctx, const char *out, const char *name, bool is_set, bool force)
{
    char path[FILE_PATH];
    bool owned = is_owned(name) || strcmp(name, SYNTH_MARK) == 0;
    CLOOB_TRY(file_in(ctx, out, name, path));
    if (is_set && is_owned(name) && nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return file_fail(ctx, path, "cannot remove what an earlier run left");
    if (!is_set && !force)
        return ctx_fail(
            ctx, CLOOB_ERR_IO,
            "%s is not empty (%s) and contains no set of cloob synth: give another `out`, or `force` to add to it", out,
            name);
    if (!is_set && owned)
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s exists and was not made by cloob synth: move it or give another `out`",
                        path);
    return CLOOB_OK;
}

cloob_status synth_folder_begin(cloob_ctx *ctx, const char *out, bool force)
{
    char path[FILE_PATH];
    cloob_status status = CLOOB_OK;
    CLOOB_TRY(file_make_dirs(ctx, out));
    if (!file_is_dir(out)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s is a file: `out` must be a folder", out);
    bool is_set = has_mark(ctx, out);
    DIR *dir = opendir(out);
    if (!dir) return file_fail(ctx, out, "cannot read the folder");
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            status = clear_entry(ctx, out, e->d_name, is_set, force);
    closedir(dir);
    CLOOB_TRY(status);
    static const char mark[] = "{\"cloob_synth\": 1, \"unfinished\": true}\n";
    CLOOB_TRY(file_in(ctx, out, SYNTH_MARK, path));
    return file_write(ctx, path, mark, strlen(mark));
}

/* ---- streams ------------------------------------------------------------------------------------- */

cloob_status synth_close(cloob_ctx *ctx, const char *name, FILE **f)
{
    if (!*f) return CLOOB_OK;
    bool bad = fflush(*f) != 0 || ferror(*f);
    int cause = errno;
    if (fclose(*f) != 0 && !bad) bad = true, cause = errno;
    *f = NULL;
    return bad ? ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write: %s", name, strerror(cause)) : CLOOB_OK;
}

/* ---- tar files: 512-byte headers, content padded to 512, two empty blocks at the end ------------- */

void synth_tar_add(FILE *tar, const char *name, const void *data, size_t bytes)
{
    static const char zeros[512];
    char header[512] = { 0 };
    assert(strlen(name) < 100);
    memcpy(header, name, strlen(name));
    memcpy(header + 100, "0000644", 8);
    memcpy(header + 108, "0000000", 8);
    memcpy(header + 116, "0000000", 8);
    snprintf(header + 124, 12, "%011zo", bytes);
    snprintf(header + 136, 12, "%011o", 0u);
    memset(header + 148, ' ', 8); /* its own field counts as blanks */
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    fwrite(header, 1, sizeof header, tar);
    fwrite(data, 1, bytes, tar);
    fwrite(zeros, 1, (512 - bytes % 512) % 512, tar);
}

cloob_status synth_tar_close(cloob_ctx *ctx, FILE **tar)
{
    static const char zeros[1024];
    if (*tar) fwrite(zeros, 1, sizeof zeros, *tar);
    return synth_close(ctx, "a shard", tar);
}
