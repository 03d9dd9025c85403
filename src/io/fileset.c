/* Files by number behind a small table of open descriptors. */
#include "io/fileset.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/rng.h"
#include "io/gzip.h"

enum { SLOTS = 64 }; /* open at a time; far below any descriptor limit */

typedef struct entry {
    char *spec;
    char *path;   /* NULL: the plain bytes are in the temporary file */
    int64_t base; /* where they begin there */
    int64_t size;
    int64_t mtime_ns; /* with the size, to notice a change */
} entry;

typedef struct slot {
    int fd, file, users;
} slot;

/* What reading changes, apart from the set itself, which stays read-only. */
typedef struct descriptors {
    pthread_mutex_t lock;
    slot slot[SLOTS];
} descriptors;

struct fileset {
    entry *entry;
    int count;
    int64_t capacity;
    char *cache;
    int temporary; /* -1: none yet */
    int64_t temporary_size;
    pthread_mutex_t temporary_lock;
    descriptors *open;
};

/* ---- where cached things go --------------------------------------------------------------------------- */

char *cache_folder(void)
{
    const char *own = getenv("CLOOB_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own) return strdup(own);
    if (xdg && *xdg) return file_join(xdg, "cloob");
    return home && *home ? file_join(home, ".cache/cloob") : NULL;
}

char *cache_path(const char *dir, const char *source, const char *suffix)
{
    char name[64], *full = realpath(source, NULL);
    const char *key = full ? full : source;
    snprintf(name, sizeof name, "%016llx.%s", (unsigned long long)rng_key(rng_hash(key), key), suffix);
    free(full);
    return file_join(dir, name);
}

/* ---- plain copies of gzip files and pipes, for random access: all in one unnamed file ---------------- */

typedef struct sink {
    cloob_ctx *ctx;
    const char *name;
    int fd;
    int64_t at;
} sink;

static cloob_status write_all(void *arg, const void *bytes, size_t n)
{
    sink *s = arg;
    if (!file_write_at(s->fd, bytes, n, s->at))
        return file_fail(
            s->ctx, s->name,
            "cannot write the unpacked copy (free some disk space, or set CLOOB_CACHE to a folder with more)");
    s->at += (int64_t)n;
    return CLOOB_OK;
}

static cloob_status copy_pipe(cloob_ctx *ctx, const char *command, sink *s)
{
    FILE *in = popen(command, "r");
    if (!in) return file_fail(ctx, s->name, "cannot start the command");
    cloob_status status = gzip_copy(ctx, in, s->name, write_all, s);
    int code = pclose(in);
    if (status != CLOOB_OK || code == 0) return status;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: the command ended with code %d", s->name,
                    WIFEXITED(code) ? WEXITSTATUS(code) : code);
}

static cloob_status copy_file(cloob_ctx *ctx, const char *path, sink *s)
{
    FILE *in;
    CLOOB_TRY(file_open(ctx, path, &in));
    cloob_status status = gzip_copy(ctx, in, path, write_all, s);
    fclose(in);
    return status;
}

static cloob_status create_temporary(cloob_ctx *ctx, const char *dir, int *fd)
{
    const char *places[] = { dir, getenv("TMPDIR"), "/var/tmp", "/tmp" };
    for (size_t i = 0; i < sizeof places / sizeof *places && *fd < 0; i++) {
        char *name = places[i] ? file_join(places[i], "cloob-XXXXXX") : NULL;
        *fd = name ? mkostemp(name, O_CLOEXEC) : -1;
        if (*fd >= 0) unlink(name);
        free(name);
    }
    return *fd < 0 ? file_fail(ctx, "temporary file", "cannot create it (set TMPDIR to a folder that can be written)")
                   : CLOOB_OK;
}

static cloob_status open_temporary(cloob_ctx *ctx, fileset *fs, entry *e)
{
    cloob_status status = CLOOB_OK;
    pthread_mutex_lock(&fs->temporary_lock);
    if (fs->temporary < 0) status = create_temporary(ctx, fs->cache, &fs->temporary);
    if (status == CLOOB_OK) {
        sink s = { ctx, e->spec, fs->temporary, fs->temporary_size };
        bool pipe = strncmp(e->spec, "pipe:", 5) == 0;
        status = pipe ? copy_pipe(ctx, e->spec + 5, &s) : copy_file(ctx, e->spec, &s);
        e->base = fs->temporary_size;
        e->size = s.at - e->base;
        if (status == CLOOB_OK) fs->temporary_size = s.at;
    }
    pthread_mutex_unlock(&fs->temporary_lock);
    return status;
}

/* ---- life --------------------------------------------------------------------------------------------- */

cloob_status fileset_create(cloob_ctx *ctx, const char *cache, fileset **out)
{
    fileset *fs = calloc(1, sizeof *fs);
    descriptors *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!fs || !d) {
        free(fs);
        free(d);
        return ctx_no_memory(ctx, sizeof *fs + sizeof *d, "a set of files");
    }
    fs->open = d;
    fs->temporary = -1;
    for (int i = 0; i < SLOTS; i++) d->slot[i] = (slot){ .fd = -1, .file = -1 };
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&fs->temporary_lock, NULL);
    fs->cache = !cache ? cache_folder() : *cache ? strdup(cache) : NULL;
    *out = fs;
    return CLOOB_OK;
}

void fileset_destroy(fileset *fs)
{
    if (!fs) return;
    for (int i = 0; i < SLOTS; i++)
        if (fs->open->slot[i].fd >= 0) close(fs->open->slot[i].fd);
    if (fs->temporary >= 0) close(fs->temporary);
    for (int i = 0; i < fs->count; i++) {
        free(fs->entry[i].spec);
        free(fs->entry[i].path);
    }
    pthread_mutex_destroy(&fs->open->lock);
    pthread_mutex_destroy(&fs->temporary_lock);
    free(fs->open);
    free(fs->entry);
    free(fs->cache);
    free(fs);
}

cloob_status fileset_add(cloob_ctx *ctx, fileset *fs, const char *spec, int *file)
{
    if (!heap_grow(&fs->entry, fs->count, &fs->capacity, sizeof *fs->entry))
        return ctx_no_memory(ctx, (size_t)fs->count * sizeof *fs->entry, "a set of files");
    entry e = { .spec = strdup(spec) };
    if (!e.spec) return ctx_no_memory(ctx, strlen(spec), "a file name");
    *file = fs->count;
    fs->entry[fs->count++] = e;
    return CLOOB_OK;
}

/* ---- opening: where the plain bytes are --------------------------------------------------------- */

cloob_status fileset_open(cloob_ctx *ctx, fileset *fs, int file)
{
    struct stat st;
    entry *e = &fs->entry[file];
    if (strncmp(e->spec, "pipe:", 5) == 0) return open_temporary(ctx, fs, e);
    if (stat(e->spec, &st) != 0) return file_fail(ctx, e->spec, "cannot open");
    if (S_ISFIFO(st.st_mode) || gzip_is_file(e->spec)) return open_temporary(ctx, fs, e);
    if (!S_ISREG(st.st_mode)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: not a regular file", e->spec);
    e->path = strdup(e->spec);
    if (!e->path) return ctx_no_memory(ctx, strlen(e->spec), "a file name");
    e->size = st.st_size;
    e->mtime_ns = time_ns(st.st_mtim);
    return CLOOB_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static cloob_status open_now(cloob_ctx *ctx, const entry *e, int *fd)
{
    struct stat st;
    *fd = open(e->path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return file_fail(ctx, e->path, "cannot open");
    if (fstat(*fd, &st) == 0 && st.st_size == e->size && time_ns(st.st_mtim) == e->mtime_ns) return CLOOB_OK;
    close(*fd);
    *fd = -1;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: changed since the data set was opened", e->path);
}

/* The open descriptor of a file: the table's, which every file has one place in; where another file uses the place, a
 * new one, and *s is NULL. */
static cloob_status take_descriptor(cloob_ctx *ctx, const fileset *fs, int file, slot **s, int *fd)
{
    descriptors *d = fs->open;
    *s = &d->slot[file % SLOTS];
    pthread_mutex_lock(&d->lock);
    bool here = (*s)->fd >= 0 && (*s)->file == file;
    if (here) (*s)->users++, *fd = (*s)->fd;
    pthread_mutex_unlock(&d->lock);
    if (here) return CLOOB_OK;
    CLOOB_TRY(open_now(ctx, &fs->entry[file], fd));
    pthread_mutex_lock(&d->lock);
    if ((*s)->users) *s = NULL;
    else {
        if ((*s)->fd >= 0) close((*s)->fd);
        **s = (slot){ *fd, file, 1 };
    }
    pthread_mutex_unlock(&d->lock);
    return CLOOB_OK;
}

static void give_descriptor(const fileset *fs, slot *s, int fd)
{
    if (!s) {
        close(fd);
        return;
    }
    pthread_mutex_lock(&fs->open->lock);
    s->users--;
    pthread_mutex_unlock(&fs->open->lock);
}

cloob_status fileset_read(cloob_ctx *ctx, const fileset *fs, int file, int64_t offset, void *out, size_t n)
{
    const entry *e = &fs->entry[file];
    slot *s = NULL;
    int fd = fs->temporary;
    if (offset < 0 || offset > e->size || n > (uint64_t)(e->size - offset))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: nothing at byte %lld", e->spec, (long long)offset);
    if (e->path) CLOOB_TRY(take_descriptor(ctx, fs, file, &s, &fd));
    ssize_t got = file_read_at(fd, out, n, e->base + offset);
    int error = errno;
    if (e->path) give_descriptor(fs, s, fd);
    if (got == (ssize_t)n) return CLOOB_OK;
    if (got < 0) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot read: %s", e->spec, strerror(error));
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cut off while in use", e->spec);
}

/* ---- queries ------------------------------------------------------------------------------------------ */

int fileset_count(const fileset *fs) { return fs->count; }
const char *fileset_name(const fileset *fs, int file) { return fs->entry[file].spec; }
int64_t fileset_size(const fileset *fs, int file) { return fs->entry[file].size; }
int64_t fileset_mtime_ns(const fileset *fs, int file) { return fs->entry[file].mtime_ns; }
const char *fileset_path(const fileset *fs, int file) { return fs->entry[file].path; }
const char *fileset_cache(const fileset *fs) { return fs->cache; }
