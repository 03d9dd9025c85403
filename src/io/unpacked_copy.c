/* Unpacking into files, written atomically; a trailer records the source of a cached copy. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "io/fileset.h"
#include "io/gzip.h"

static cloob_status fail(cloob_ctx *ctx, const char *name, const char *what)
{
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: %s: %s", name, what, strerror(errno));
}

/* ---- writing unpacked bytes ----------------------------------------------------------------------- */

typedef struct sink {
    cloob_ctx *ctx;
    const char *name;
    int fd;
    int64_t at;
} sink;

static cloob_status write_all(void *arg, const void *bytes, size_t n)
{
    sink *s = arg;
    for (const char *p = bytes; n > 0;) {
        ssize_t done = pwrite(s->fd, p, n, (off_t)s->at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return fail(s->ctx, s->name,
                        "cannot write the unpacked copy (free some disk space, or set "
                        "CLOOB_CACHE to a folder with more)");
        p += done;
        n -= (size_t)done;
        s->at += done;
    }
    return CLOOB_OK;
}

static cloob_status copy_pipe(cloob_ctx *ctx, const char *command, sink *s)
{
    FILE *in = popen(command, "r");
    if (!in) return fail(ctx, s->name, "cannot start the command");
    cloob_status status = gzip_copy(ctx, in, s->name, write_all, s);
    int code = pclose(in);
    if (status != CLOOB_OK || code == 0) return status;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: the command ended with code %d", s->name,
                    WIFEXITED(code) ? WEXITSTATUS(code) : code);
}

cloob_status unpacked_copy_append(cloob_ctx *ctx, const char *spec, int fd, int64_t base, int64_t *size)
{
    sink s = { ctx, spec, fd, base };
    cloob_status status;
    if (strncmp(spec, "pipe:", 5) == 0) status = copy_pipe(ctx, spec + 5, &s);
    else {
        FILE *in;
        CLOOB_TRY(file_open(ctx, spec, &in));
        status = gzip_copy(ctx, in, spec, write_all, &s);
        fclose(in);
    }
    *size = s.at - base;
    return status;
}

static int try_temporary(const char *dir)
{
    char *name = dir ? file_join(dir, "cloob-XXXXXX") : NULL;
    int fd = name ? mkostemp(name, O_CLOEXEC) : -1;
    if (fd >= 0) unlink(name);
    free(name);
    return fd;
}

cloob_status unpacked_copy_temporary(cloob_ctx *ctx, const char *dir, int *fd)
{
    const char *places[] = { dir, getenv("TMPDIR"), "/var/tmp", "/tmp" };
    *fd = -1;
    for (size_t i = 0; i < sizeof places / sizeof *places && *fd < 0; i++) *fd = try_temporary(places[i]);
    return *fd < 0 ? fail(ctx, "temporary file", "cannot create it (set TMPDIR to a folder that can be written)")
                   : CLOOB_OK;
}

/* ---- the cached copy -------------------------------------------------------------------------------- */

typedef struct trailer {
    char magic[8];
    int64_t size, source_size, source_mtime_ns;
} trailer;

static const char magic[8] = { 'c', 'l', 'o', 'o', 'b', 'g', 'z', '1' };

/* A copy is valid when its trailer is there and matches the source. */
static bool whole(const char *path, int64_t source_size, int64_t source_mtime_ns, int64_t *size)
{
    struct stat st;
    trailer t;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool ok = fstat(fd, &st) == 0 && st.st_size >= (off_t)sizeof t &&
              pread(fd, &t, sizeof t, st.st_size - (off_t)sizeof t) == (ssize_t)sizeof t &&
              memcmp(t.magic, magic, sizeof magic) == 0 && t.size == st.st_size - (off_t)sizeof t &&
              t.source_size == source_size && t.source_mtime_ns == source_mtime_ns;
    close(fd);
    if (ok) *size = t.size;
    return ok;
}

static cloob_status unpack(cloob_ctx *ctx, const char *source, const char *path, trailer *t)
{
    file_writer w;
    CLOOB_TRY(file_writer_begin(ctx, path, &w));
    cloob_status status = w.direct
                              ? ctx_fail(ctx, CLOOB_ERR_IO, "%s: is no regular file; remove it from the cache", path)
                              : unpacked_copy_append(ctx, source, fileno(w.stream), 0, &t->size);
    sink s = { ctx, source, fileno(w.stream), t->size };
    if (status == CLOOB_OK) status = write_all(&s, t, sizeof *t);
    if (status == CLOOB_OK) return file_writer_commit(ctx, &w);
    file_writer_abort(&w);
    return status;
}

/* Ranks that start together wait for the one that unpacks. A file system without locks lets each do it. */
static int lock(const char *path)
{
    size_t n = strlen(path) + 6;
    char *name = malloc(n);
    int fd = -1;
    if (name) {
        snprintf(name, n, "%s.lock", path);
        fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0) (void)flock(fd, LOCK_EX);
    }
    free(name);
    return fd;
}

cloob_status unpacked_copy_cached(cloob_ctx *ctx, const char *dir, const char *source, int64_t source_size,
                                  int64_t source_mtime_ns, char **path, int64_t *size)
{
    trailer t = { .source_size = source_size, .source_mtime_ns = source_mtime_ns };
    memcpy(t.magic, magic, sizeof magic);
    CLOOB_TRY(file_make_dirs(ctx, dir));
    *path = cache_path(dir, source, "unpacked");
    if (!*path) return ctx_no_memory(ctx, strlen(source), "the name of a cached file");
    if (whole(*path, source_size, source_mtime_ns, size)) return CLOOB_OK;
    cloob_status status = CLOOB_OK;
    int held = lock(*path);
    if (!whole(*path, source_size, source_mtime_ns, size)) {
        status = unpack(ctx, source, *path, &t);
        *size = t.size;
    }
    if (held >= 0) close(held);
    if (status != CLOOB_OK) {
        free(*path);
        *path = NULL;
    }
    return status;
}
