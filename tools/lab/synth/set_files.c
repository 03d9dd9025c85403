/* The staging folder (begin, publish, remove what an interrupted run left), and tar files. */
#include "lab/synth/write.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <assert.h>

#include "core/file.h"
#include "core/json.h"

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

/* ---- what is there already ----------------------------------------------------------------------- */

static bool is_owned_shard(const char *name)
{
    size_t n = strlen(name);
    return (strncmp(name, "train-", 6) == 0 || strncmp(name, "val-", 4) == 0) && n > 4 &&
           strcmp(name + n - 4, ".tar") == 0;
}

static bool is_owned(const char *name)
{
    for (int i = 0; i < OWNED; i++)
        if (strcmp(name, owned_names[i]) == 0) return true;
    return is_owned_shard(name) || strcmp(name, SYNTH_MARK) == 0;
}

static bool has_mark(cloob_ctx *ctx, const char *out)
{
    arena a = { 0 };
    json *root = NULL;
    char *path = file_join(out, SYNTH_MARK);
    bool is_set =
        path && file_exists(path) && json_read_file(ctx, &a, path, &root) == CLOOB_OK && json_get(root, "cloob_synth");
    free(path);
    arena_release(&a);
    return is_set;
}

/* Calls fn for every name in the folder but . and .. until it fails. */
typedef cloob_status entry_fn(cloob_ctx *ctx, void *arg, const char *folder, const char *name);

static cloob_status each_entry(cloob_ctx *ctx, const char *folder, entry_fn *fn, void *arg)
{
    DIR *dir = opendir(folder);
    cloob_status status = CLOOB_OK;
    if (!dir) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot read the folder: %s", folder, strerror(errno));
    for (struct dirent *e; status == CLOOB_OK && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) status = fn(ctx, arg, folder, e->d_name);
    closedir(dir);
    return status;
}

/* A run that was killed while publishing left synth.json in its staging folder: the files next to that folder are of a
 * set. */
static cloob_status find_interrupted(cloob_ctx *ctx, void *arg, const char *folder, const char *name)
{
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) return CLOOB_OK;
    char *path = file_join(folder, name);
    if (path && has_mark(ctx, path)) *(bool *)arg = true;
    free(path);
    return CLOOB_OK;
}

typedef struct survey {
    bool force, is_set;
} survey;

static cloob_status sweep(cloob_ctx *ctx, const char *folder, const char *name)
{
    long pid = strtol(name + strlen(PREFIX), NULL, 10);
    if (pid > 0 && pid != (long)getpid() && (kill((pid_t)pid, 0) == 0 || errno == EPERM))
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: another cloob synth (process %ld) is writing there", folder, pid);
    char *path = file_join(folder, name);
    int failed = path ? remove_tree(path) : -1;
    free(path);
    return failed ? ctx_fail(ctx, CLOOB_ERR_IO, "%s/%s: cannot remove what an earlier run left: %s", folder, name,
                             strerror(errno))
                  : CLOOB_OK;
}

static cloob_status survey_entry(cloob_ctx *ctx, void *arg, const char *folder, const char *name)
{
    const survey *s = arg;
    if (strncmp(name, PREFIX, strlen(PREFIX)) == 0) return sweep(ctx, folder, name);
    if (s->is_set) return CLOOB_OK;
    if (!s->force)
        return ctx_fail(ctx, CLOOB_ERR_IO,
                        "%s is not empty (%s) and holds no set of cloob synth: give another `out`, or "
                        "`force` to add to it",
                        folder, name);
    if (is_owned(name))
        return ctx_fail(ctx, CLOOB_ERR_IO,
                        "%s/%s is in the way and was not made by cloob synth: move it or give another `out`", folder,
                        name);
    return CLOOB_OK;
}

/* ---- life cycle ---------------------------------------------------------------------------------- */

static cloob_status make_stage(cloob_ctx *ctx, const char *out, bool force, synth_stage *st)
{
    char name[64];
    snprintf(name, sizeof name, PREFIX "%ld", (long)getpid());
    st->out = strdup(out);
    st->path = file_join(out, name);
    if (!st->out || !st->path) return ctx_no_memory(ctx, strlen(out), "a path");
    st->made_out = !file_exists(out);
    CLOOB_TRY(file_make_dirs(ctx, out));
    if (!file_is_dir(out)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s is a file: `out` takes a folder", out);
    survey s = { force, has_mark(ctx, out) };
    CLOOB_TRY(each_entry(ctx, out, find_interrupted, &s.is_set));
    st->is_set = s.is_set;
    CLOOB_TRY(each_entry(ctx, out, survey_entry, &s));
    if (mkdir(st->path, 0777) != 0)
        return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write there: %s", out, strerror(errno));
    return CLOOB_OK;
}

cloob_status synth_stage_begin(cloob_ctx *ctx, const char *out, bool force, synth_stage *st)
{
    *st = (synth_stage){ 0 };
    cloob_status status = make_stage(ctx, out, force, st);
    if (status != CLOOB_OK) {
        free(st->path); /* a file of this name belongs to someone else */
        st->path = NULL;
        synth_stage_end(st);
    }
    return status;
}

static cloob_status remove_name(cloob_ctx *ctx, const synth_stage *st, const char *name)
{
    char *path = file_join(st->out, name);
    int failed = !path || (file_exists(path) && remove_tree(path));
    free(path);
    return failed
               ? ctx_fail(ctx, CLOOB_ERR_IO, "%s/%s: cannot remove the earlier set: %s", st->out, name, strerror(errno))
               : CLOOB_OK;
}

static cloob_status move_name(cloob_ctx *ctx, const synth_stage *st, const char *name)
{
    char *from = file_join(st->path, name), *to = file_join(st->out, name);
    int failed = !from || !to || (file_exists(from) && rename(from, to));
    free(from);
    free(to);
    return failed ? ctx_fail(ctx, CLOOB_ERR_IO, "%s/%s: cannot put it in place: %s", st->out, name, strerror(errno))
                  : CLOOB_OK;
}

static cloob_status remove_shard(cloob_ctx *ctx, void *arg, const char *folder, const char *name)
{
    (void)folder;
    return is_owned_shard(name) ? remove_name(ctx, arg, name) : CLOOB_OK;
}

static cloob_status move_shard(cloob_ctx *ctx, void *arg, const char *folder, const char *name)
{
    (void)folder;
    return is_owned_shard(name) ? move_name(ctx, arg, name) : CLOOB_OK;
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
    if (st->path) (void)remove_tree(st->path);
    if (st->made_out) (void)rmdir(st->out); /* stays when it holds something */
    free(st->path);
    free(st->out);
    *st = (synth_stage){ 0 };
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

cloob_status synth_tar_open(cloob_ctx *ctx, const char *path, synth_tar *t)
{
    t->path = strdup(path);
    t->stream = t->path ? fopen(path, "wb") : NULL;
    if (t->stream) return CLOOB_OK;
    cloob_status status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    free(t->path);
    *t = (synth_tar){ 0 };
    return status;
}

void synth_tar_add(synth_tar *t, const char *name, const void *data, size_t bytes)
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
    fwrite(header, 1, sizeof header, t->stream);
    fwrite(data, 1, bytes, t->stream);
    fwrite(zeros, 1, (512 - bytes % 512) % 512, t->stream);
}

cloob_status synth_tar_close(cloob_ctx *ctx, synth_tar *t)
{
    static const char zeros[1024];
    if (!t->stream) return CLOOB_OK;
    fwrite(zeros, 1, sizeof zeros, t->stream);
    cloob_status status = synth_close(ctx, t->path, &t->stream);
    free(t->path);
    *t = (synth_tar){ 0 };
    return status;
}
