/* Folders of Hugging Face's cache: their paths, their content, and adding files while other processes read. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/file.h"
#include "core/sbuf.h"
#include "hub/hub.h"

/* ---- paths --------------------------------------------------------------------------------------- */

cloob_status hub_put(cloob_ctx *ctx, char path[HUB_PATH], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(path, HUB_PATH, format, args);
    va_end(args);
    if (n >= 0 && n < HUB_PATH) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%.200s...: path longer than %d bytes", path, HUB_PATH - 1);
}

static const char *value_of(const char *variable)
{
    const char *v = getenv(variable);
    return v && *v ? v : NULL;
}

bool hub_is_set(const char *variable)
{
    static const char *const yes[] = { "1", "on", "yes", "true" };
    const char *v = value_of(variable);
    for (size_t i = 0; v && i < sizeof yes / sizeof *yes; i++)
        if (strcasecmp(v, yes[i]) == 0) return true;
    return false;
}

/* Replaces $NAME and ${NAME} in a path by the values of environment variables, as huggingface_hub does. Variables that
 * are not set are left as they are. */
static cloob_status expand(cloob_ctx *ctx, char path[HUB_PATH])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    sbuf out = { 0 };
    for (const char *at = path; *at;) {
        char name[128];
        bool brace = at[0] == '$' && at[1] == '{';
        size_t n = at[0] == '$' ? strspn(at + 1 + brace, letters) : 0, all = n + 1 + 2 * (size_t)brace;
        bool whole = n && n < sizeof name && (!brace || at[2 + n] == '}');
        snprintf(name, sizeof name, "%.*s", whole ? (int)n : 0, at + 1 + brace);
        const char *value = whole ? getenv(name) : NULL;
        if (value) sbuf_puts(&out, value);
        else sbuf_putc(&out, *at);
        at += value ? all : 1;
    }
    cloob_status status = out.failed ? ctx_no_memory(ctx, 1, path) : hub_put(ctx, path, "%s", out.data ? out.data : "");
    sbuf_release(&out);
    return status;
}

/* path = folder + below, with a leading ~ in folder and environment variables replaced. */
static cloob_status put_folder(cloob_ctx *ctx, char path[HUB_PATH], const char *folder, const char *below)
{
    const char *home = value_of("HOME");
    bool tilde = folder[0] == '~' && (folder[1] == '/' || !folder[1]);
    if (tilde && !home)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "cannot find the folder of the model cache; set HF_HUB_CACHE or HOME");
    CLOOB_TRY(hub_put(ctx, path, "%s%s%s", tilde ? home : "", folder + tilde, below));
    return expand(ctx, path);
}

cloob_status hub_home(cloob_ctx *ctx, char path[HUB_PATH])
{
    const char *home = value_of("HF_HOME"), *xdg = value_of("XDG_CACHE_HOME");
    if (home) return put_folder(ctx, path, home, "");
    return put_folder(ctx, path, xdg ? xdg : "~/.cache", "/huggingface");
}

static cloob_status cache_root(cloob_ctx *ctx, char path[HUB_PATH])
{
    char home[HUB_PATH];
    const char *hub = value_of("HF_HUB_CACHE");
    if (!hub) hub = value_of("HUGGINGFACE_HUB_CACHE");
    if (hub) return put_folder(ctx, path, hub, "");
    CLOOB_TRY(hub_home(ctx, home));
    return hub_put(ctx, path, "%s/hub", home);
}

cloob_status hub_repo_init(cloob_ctx *ctx, const hub_name *name, hub_repo *out)
{
    char root[HUB_PATH];
    const char *slash = strchr(name->repo, '/');
    int n = (int)(slash - name->repo);
    CLOOB_TRY(cache_root(ctx, root));
    out->name = *name;
    CLOOB_TRY(hub_put(ctx, out->folder, "%s/models--%.*s--%s", root, n, name->repo, slash + 1));
    return hub_put(ctx, out->locks, "%s/.locks/models--%.*s--%s", root, n, name->repo, slash + 1);
}

/* ---- revisions ----------------------------------------------------------------------------------- */

bool hub_ref_read(const hub_repo *r, char commit[HUB_COMMIT])
{
    char path[HUB_PATH], text[64] = "";
    if (hub_is_hex(r->name.revision, HUB_COMMIT - 1)) {
        memcpy(commit, r->name.revision, HUB_COMMIT);
        return true;
    }
    int n = snprintf(path, sizeof path, "%s/refs/%s", r->folder, r->name.revision);
    FILE *f = n > 0 && n < HUB_PATH ? fopen(path, "rb") : NULL;
    if (!f) return false;
    size_t have = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    while (have && strchr("\r\n ", text[have - 1])) text[--have] = '\0';
    if (!hub_is_hex(text, HUB_COMMIT - 1)) return false;
    memcpy(commit, text, HUB_COMMIT);
    return true;
}

/* Creates the folder of a file, with its parents. */
static cloob_status make_folder_of(cloob_ctx *ctx, const char *path)
{
    char *folder = file_folder(path);
    cloob_status status = folder ? file_make_dirs(ctx, folder) : ctx_no_memory(ctx, strlen(path), path);
    free(folder);
    return status;
}

cloob_status hub_ref_write(cloob_ctx *ctx, const hub_repo *r, const char *commit)
{
    char path[HUB_PATH], known[HUB_COMMIT];
    if (hub_ref_read(r, known) && strcmp(known, commit) == 0) return CLOOB_OK;
    CLOOB_TRY(hub_put(ctx, path, "%s/refs/%s", r->folder, r->name.revision));
    CLOOB_TRY(make_folder_of(ctx, path));
    return file_write(ctx, path, commit, strlen(commit));
}

/* ---- snapshots ----------------------------------------------------------------------------------- */

typedef struct snapshot {
    char folder[HUB_PATH];
} snapshot;

static bool in_folder(const void *folder, const char *name)
{
    char path[HUB_PATH];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", ((const snapshot *)folder)->folder, name);
    return n > 0 && n < HUB_PATH && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static cloob_status snapshot_of(cloob_ctx *ctx, const hub_repo *r, const char *commit, snapshot *s)
{
    return hub_put(ctx, s->folder, "%s/snapshots/%s", r->folder, commit);
}

bool hub_snapshot_has(const hub_repo *r, const char *commit, const hub_file *f)
{
    char path[HUB_PATH];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/snapshots/%s/%s", r->folder, commit, f->name);
    return n > 0 && n < HUB_PATH && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == f->bytes;
}

static bool is_known_absent(const hub_repo *r, const char *commit, const char *name)
{
    snapshot s;
    int n = snprintf(s.folder, sizeof s.folder, "%s/.no_exist/%s", r->folder, commit);
    return n > 0 && n < HUB_PATH && in_folder(&s, name);
}

void hub_note_absent(cloob_ctx *ctx, const hub_repo *r, const char *commit, const char *name)
{
    char path[HUB_PATH];
    cloob_status status = hub_put(ctx, path, "%s/.no_exist/%s/%s", r->folder, commit, name);
    if (status == CLOOB_OK) status = make_folder_of(ctx, path);
    int fd = status == CLOOB_OK ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) close(fd);
}

/* Whether the snapshot has a configuration and a tokenizer, or a note that the repository has none. Another program may
 * have downloaded only the weights. */
static bool is_whole(const hub_repo *r, const char *commit, const snapshot *s)
{
    static const char *const tokenizers[] = { "tokenizer.json", "merges.txt",      "vocab.txt",
                                              "spiece.model",   "tokenizer.model", "sentencepiece.bpe.model" };
    bool tokenizer = is_known_absent(r, commit, "tokenizer.json");
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers && !tokenizer; i++)
        tokenizer = in_folder(s, tokenizers[i]);
    return tokenizer && (in_folder(s, "config.json") || in_folder(s, "open_clip_config.json") ||
                         is_known_absent(r, commit, "config.json"));
}

/* Whether the snapshot has all shards of an index. */
static bool has_shards(cloob_ctx *ctx, const snapshot *s, const char *index)
{
    char path[HUB_PATH];
    hub_names shards;
    if (hub_put(ctx, path, "%s/%s", s->folder, index) != CLOOB_OK || hub_index_shards(ctx, path, &shards) != CLOOB_OK)
        return false;
    bool all = true;
    for (int64_t i = 0; i < shards.count && all; i++) all = in_folder(s, shards.name[i]);
    hub_names_release(&shards);
    return all;
}

/* Finds weights under an unusual name: the only file in the snapshot that may contain weights. */
static bool find_only_weights(const snapshot *s, char name[256])
{
    hub_listing l = { 0 };
    DIR *dir = opendir(s->folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        hub_file found = { 0 };
        snprintf(found.name, sizeof found.name, "%s", e->d_name);
        if (in_folder(s, found.name) && !hub_listing_put(&l, &found)) break;
    }
    if (dir) closedir(dir);
    const hub_file *f = hub_only_weights(&l);
    if (f) memcpy(name, f->name, sizeof f->name);
    hub_listing_release(&l);
    return f != NULL;
}

bool hub_snapshot_find(cloob_ctx *ctx, const hub_repo *r, const char *commit, char path[HUB_PATH], bool *whole)
{
    snapshot s;
    char weights[256];
    if (snapshot_of(ctx, r, commit, &s) != CLOOB_OK) return false;
    hub_choose_weights(in_folder, &s, weights);
    *whole = is_whole(r, commit, &s);
    if (weights[0]) {
        memcpy(path, s.folder, sizeof s.folder);
        return !hub_is_index(weights) || has_shards(ctx, &s, weights);
    }
    return find_only_weights(&s, weights) && hub_put(ctx, path, "%s/%s", s.folder, weights) == CLOOB_OK;
}

/* ---- adding a file ------------------------------------------------------------------------------- */

cloob_status hub_blob_path(cloob_ctx *ctx, const hub_repo *r, const char *etag, const char *ending, char path[HUB_PATH])
{
    return hub_put(ctx, path, "%s/blobs/%s%s", r->folder, etag, ending);
}

/* Whether the open lock file still has its name. If another process removed it between open and flock, the lock
 * excludes nobody. */
static bool is_linked(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

cloob_status hub_lock(cloob_ctx *ctx, const hub_repo *r, const char *etag, const atomic_bool *stop, int *fd)
{
    char path[HUB_PATH];
    *fd = -1;
    CLOOB_TRY(hub_put(ctx, path, "%s/%s.lock", r->locks, etag));
    CLOOB_TRY(make_folder_of(ctx, path));
    for (int tries = 0; !atomic_load(stop); tries++) {
        if (*fd < 0) *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0664);
        if (*fd < 0)
            return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot create: %s; set HF_HUB_CACHE to a folder of your own", path,
                            strerror(errno));
        bool got = flock(*fd, LOCK_EX | LOCK_NB) == 0, taken = !got && (errno == EWOULDBLOCK || errno == EINTR);
        if (got && is_linked(*fd)) return CLOOB_OK;
        if (!taken) hub_unlock(*fd), *fd = -1;
        if (!taken && !got) return CLOOB_OK; /* the file system does not support locks */
        if (!taken) continue;
        if (tries == 20)
            ctx_log(ctx, CLOOB_LOG_INFO, "waiting for another process that is downloading %s", r->name.repo);
        nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
    }
    hub_unlock(*fd);
    *fd = -1;
    return ctx_fail(ctx, CLOOB_ERR_STOPPED, "stopped while waiting for another download of %s", r->name.repo);
}

void hub_unlock(int fd)
{
    if (fd >= 0) close(fd);
}

/* Links `path` to the blob. If links are not supported, moves the blob there instead, as huggingface_hub does. */
static bool link_or_move(const char *blob, const char *target, const char *path, const char *temporary)
{
    (void)unlink(temporary);
    if (hub_is_set("HF_HUB_DISABLE_SYMLINKS") || symlink(target, temporary) != 0) return rename(blob, path) == 0;
    if (rename(temporary, path) == 0) return true;
    (void)unlink(temporary);
    return false;
}

cloob_status hub_link(cloob_ctx *ctx, const hub_repo *r, const char *commit, const hub_file *f)
{
    char blob[HUB_PATH], path[HUB_PATH], target[128], temporary[HUB_PATH];
    CLOOB_TRY(hub_blob_path(ctx, r, f->etag, "", blob));
    CLOOB_TRY(hub_put(ctx, path, "%s/snapshots/%s/%s", r->folder, commit, f->name));
    CLOOB_TRY(hub_put(ctx, temporary, "%s/snapshots/%s/.%s.%ld", r->folder, commit, f->etag, (long)getpid()));
    CLOOB_TRY(make_folder_of(ctx, path));
    snprintf(target, sizeof target, "../../blobs/%s", f->etag);
    if (hub_snapshot_has(r, commit, f) || link_or_move(blob, target, path, temporary)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
}
