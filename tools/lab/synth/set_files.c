/* The staging folder (begin, publish, remove what an interrupted run left), and tar files. */
#include "lab/synth/write.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/text.h"

#define PREFIX ".cloob-synth-"

/* In the order of publishing: a file comes after the files it refers to. They are removed in the opposite order. */
static const char *const owned_names[] = { "images",       "classes",    "factors.tsv", "naming.tsv",
                                           "prompts.json", "sizes.json", "val.tsv",     "train.tsv" };
enum { OWNED = sizeof owned_names / sizeof *owned_names };

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static int remove_tree(const char *path) { return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static bool is_staging(const char *name) { return strncmp(name, PREFIX, strlen(PREFIX)) == 0; }

static bool is_owned_shard(const char *name)
{
    return (strncmp(name, "train-", 6) == 0 || strncmp(name, "val-", 4) == 0) && text_ends_with(name, ".tar");
}

static bool is_owned(const char *name)
{
    for (int i = 0; i < OWNED; i++)
        if (strcmp(name, owned_names[i]) == 0) return true;
    return is_owned_shard(name) || strcmp(name, SYNTH_MARK) == 0;
}

/* ---- what is there already ----------------------------------------------------------------------- */

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

/* Calls fn for every name in the folder but . and .. until it fails. */
typedef cloob_status entry_fn(cloob_ctx *ctx, synth_stage *st, const char *name);

static cloob_status each_entry(cloob_ctx *ctx, const char *folder, entry_fn *fn, synth_stage *st)
{
    DIR *dir = opendir(folder);
    cloob_status status = CLOOB_OK;
    if (!dir) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot read the folder: %s", folder, strerror(errno));
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) status = fn(ctx, st, e->d_name);
    closedir(dir);
    return status;
}

static cloob_status remove_name(cloob_ctx *ctx, synth_stage *st, const char *name)
{
    char path[FILE_PATH];
    CLOOB_TRY(file_in(ctx, st->out, name, path));
    if (!file_exists(path) || remove_tree(path) == 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot remove what an earlier run left: %s", path, strerror(errno));
}

/* A run that was killed while publishing left synth.json in its staging folder: the files next to that folder are of a
 * set. The folder of a run that has ended is removed. */
static cloob_status clear_staging(cloob_ctx *ctx, synth_stage *st, const char *name)
{
    char path[FILE_PATH];
    if (!is_staging(name)) return CLOOB_OK;
    CLOOB_TRY(file_in(ctx, st->out, name, path));
    st->is_set |= has_mark(ctx, path);
    long pid = strtol(name + strlen(PREFIX), NULL, 10);
    if (pid > 0 && pid != (long)getpid() && (kill((pid_t)pid, 0) == 0 || errno == EPERM))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: another cloob synth (process %ld) is writing there", st->out, pid);
    return remove_name(ctx, st, name);
}

static cloob_status refuse_other(cloob_ctx *ctx, synth_stage *st, const char *name)
{
    return ctx_fail(ctx, CLOOB_ERR_IO,
                    "%s is not empty (%s) and holds no set of cloob synth: give another `out`, or `force` to add to it",
                    st->out, name);
}

static cloob_status refuse_owned(cloob_ctx *ctx, synth_stage *st, const char *name)
{
    if (!is_owned(name)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO,
                    "%s/%s is in the way and was not made by cloob synth: move it or give another `out`", st->out,
                    name);
}

/* ---- life cycle ---------------------------------------------------------------------------------- */

static cloob_status make_stage(cloob_ctx *ctx, const char *out, bool force, synth_stage *st)
{
    char name[64], path[FILE_PATH];
    snprintf(name, sizeof name, PREFIX "%ld", (long)getpid());
    CLOOB_TRY(file_in(ctx, "", out, st->out));
    CLOOB_TRY(file_in(ctx, out, name, path));
    st->made_out = !file_exists(out);
    CLOOB_TRY(file_make_dirs(ctx, out));
    if (!file_is_dir(out)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s is a file: `out` takes a folder", out);
    st->is_set = has_mark(ctx, out);
    CLOOB_TRY(each_entry(ctx, out, clear_staging, st));
    if (!st->is_set) CLOOB_TRY(each_entry(ctx, out, force ? refuse_owned : refuse_other, st));
    if (mkdir(path, 0777) != 0) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write there: %s", out, strerror(errno));
    memcpy(st->path, path, sizeof path);
    return CLOOB_OK;
}

cloob_status synth_stage_begin(cloob_ctx *ctx, const char *out, bool force, synth_stage *st)
{
    *st = (synth_stage){ 0 };
    cloob_status status = make_stage(ctx, out, force, st);
    if (status != CLOOB_OK) synth_stage_end(st);
    return status;
}

static cloob_status move_name(cloob_ctx *ctx, synth_stage *st, const char *name)
{
    char from[FILE_PATH], to[FILE_PATH];
    CLOOB_TRY(file_in(ctx, st->path, name, from));
    CLOOB_TRY(file_in(ctx, st->out, name, to));
    if (!file_exists(from) || rename(from, to) == 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot put it in place: %s", to, strerror(errno));
}

static cloob_status remove_shard(cloob_ctx *ctx, synth_stage *st, const char *name)
{
    return is_owned_shard(name) ? remove_name(ctx, st, name) : CLOOB_OK;
}

static cloob_status move_shard(cloob_ctx *ctx, synth_stage *st, const char *name)
{
    return is_owned_shard(name) ? move_name(ctx, st, name) : CLOOB_OK;
}

cloob_status synth_stage_publish(cloob_ctx *ctx, synth_stage *st)
{
    if (st->is_set) {
        for (int i = OWNED - 1; i >= 0; i--) CLOOB_TRY(remove_name(ctx, st, owned_names[i]));
        CLOOB_TRY(each_entry(ctx, st->out, remove_shard, st));
    }
    CLOOB_TRY(each_entry(ctx, st->path, move_shard, st));
    for (int i = 0; i < OWNED; i++) CLOOB_TRY(move_name(ctx, st, owned_names[i]));
    return move_name(ctx, st, SYNTH_MARK);
}

void synth_stage_end(synth_stage *st)
{
    if (st->path[0]) (void)remove_tree(st->path);
    if (st->made_out) (void)rmdir(st->out); /* stays when it holds something */
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
    memset(header + 148, ' ', 8); /* the sum is taken with blanks in its own place */
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
