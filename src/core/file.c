/* Files through stdio and mmap; every failure names the path and the system's reason. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static cloob_status fail(cloob_ctx *ctx, const char *path, const char *what)
{
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: %s: %s", path, what, strerror(errno));
}

/* ---- reading ------------------------------------------------------------------------------------- */

static cloob_status read_stream(cloob_ctx *ctx, FILE *f, const char *path, size_t limit, file_bytes *out)
{
    size_t cap = 1 << 16, size = 0;
    char *data = malloc(cap + 1);
    while (data) {
        size += fread(data + size, 1, cap - size, f);
        if (size < cap) break;
        if (size > limit) break;
        char *bigger = realloc(data, cap * 2 + 1);
        if (!bigger) free(data);
        data = bigger;
        cap *= 2;
    }
    if (!data) return ctx_no_memory(ctx, cap, path);
    cloob_status status = CLOOB_OK;
    if (ferror(f)) status = fail(ctx, path, "cannot read");
    else if (size > limit)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: larger than the %zu bytes allowed here", path, limit);
    if (status != CLOOB_OK) {
        free(data);
        return status;
    }
    data[size] = '\0';
    *out = (file_bytes){ data, size };
    return CLOOB_OK;
}

cloob_status file_read(cloob_ctx *ctx, const char *path, size_t limit, file_bytes *out)
{
    *out = (file_bytes){ 0 };
    FILE *f = fopen(path, "rb");
    if (!f) return fail(ctx, path, "cannot open");
    cloob_status status = read_stream(ctx, f, path, limit, out);
    fclose(f);
    return status;
}

void file_bytes_release(file_bytes *b)
{
    free(b->data);
    *b = (file_bytes){ 0 };
}

cloob_status file_map_open(cloob_ctx *ctx, const char *path, file_map *out)
{
    struct stat st;
    cloob_status status = CLOOB_OK;
    *out = (file_map){ 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail(ctx, path, "cannot open");
    if (fstat(fd, &st) != 0) status = fail(ctx, path, "cannot stat");
    else if (!S_ISREG(st.st_mode)) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: not a regular file", path);
    else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) status = fail(ctx, path, "cannot map");
        else *out = (file_map){ p, (size_t)st.st_size };
    }
    close(fd);
    return status;
}

void file_map_close(file_map *m)
{
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (file_map){ 0 };
}

/* ---- writing ------------------------------------------------------------------------------------- */

static cloob_status name_writer(cloob_ctx *ctx, const char *path, file_writer *w)
{
    size_t n = strlen(path) + 32;
    *w = (file_writer){ .path = strdup(path), .beside = malloc(n) };
    if (!w->path || !w->beside) {
        file_writer_abort(w);
        return ctx_no_memory(ctx, n, path);
    }
    /* The thread, not the process: two may write the same file. */
    snprintf(w->beside, n, "%s.tmp-%ld", path, (long)gettid());
    return CLOOB_OK;
}

cloob_status file_writer_begin(cloob_ctx *ctx, const char *path, file_writer *w)
{
    CLOOB_TRY(name_writer(ctx, path, w));
    w->stream = fopen(w->beside, "w+b");
    if (w->stream) return CLOOB_OK;
    cloob_status status = fail(ctx, path, "cannot create");
    file_writer_abort(w);
    return status;
}

/* The folder of a path, in a new string; "." when it has none. */
static char *folder_of(const char *path)
{
    char *dir = strdup(path), *slash = dir ? strrchr(dir, '/') : NULL;
    if (slash) slash[slash == dir ? 1 : 0] = '\0';
    else if (dir) free(dir), dir = strdup(".");
    return dir;
}

/* NULL where the file system has no such files, or where they could not be named later. */
static FILE *open_nameless(const char *path)
{
    FILE *f = NULL;
#if defined(O_TMPFILE)
    char *dir = folder_of(path);
    int fd = dir && access("/proc/self/fd", X_OK) == 0 ? open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666) : -1;
    if (fd >= 0 && !(f = fdopen(fd, "w+b"))) close(fd);
    free(dir);
#else
    (void)path;
#endif
    return f;
}

cloob_status file_writer_begin_nameless(cloob_ctx *ctx, const char *path, file_writer *w)
{
    FILE *f = open_nameless(path);
    if (!f) return file_writer_begin(ctx, path, w);
    cloob_status status = name_writer(ctx, path, w);
    if (status != CLOOB_OK) fclose(f);
    else w->stream = f, w->nameless = true;
    return status;
}

/* Gives the file its name beside the target; true when it has one. */
static bool give_name(file_writer *w)
{
    char self[64];
    if (!w->nameless) return true;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fileno(w->stream));
    (void)unlink(w->beside); /* what an earlier process of the same number left */
    if (linkat(AT_FDCWD, self, AT_FDCWD, w->beside, AT_SYMLINK_FOLLOW) != 0) return false;
    w->nameless = false;
    return true;
}

static void sync_directory(const char *path)
{
    char *dir = folder_of(path);
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd); /* some file systems refuse this; the rename is atomic all the same */
        close(fd);
    }
    free(dir);
}

cloob_status file_writer_commit(cloob_ctx *ctx, file_writer *w)
{
    cloob_status status = CLOOB_OK;
    if (fflush(w->stream) != 0 || ferror(w->stream) || fsync(fileno(w->stream)) != 0)
        status = fail(ctx, w->path, "cannot write");
    if (status == CLOOB_OK && !give_name(w)) status = fail(ctx, w->path, "cannot name");
    if (fclose(w->stream) != 0 && status == CLOOB_OK) status = fail(ctx, w->path, "cannot write");
    w->stream = NULL;
    if (status == CLOOB_OK && rename(w->beside, w->path) != 0) status = fail(ctx, w->path, "cannot rename");
    if (status == CLOOB_OK) {
        sync_directory(w->path);
        free(w->beside);
        w->beside = NULL; /* nothing left to remove */
    }
    file_writer_abort(w);
    return status;
}

void file_writer_abort(file_writer *w)
{
    if (w->stream) fclose(w->stream);
    if (w->beside && !w->nameless) unlink(w->beside);
    free(w->path);
    free(w->beside);
    *w = (file_writer){ 0 };
}

cloob_status file_write(cloob_ctx *ctx, const char *path, const void *data, size_t size)
{
    file_writer w;
    CLOOB_TRY(file_writer_begin(ctx, path, &w));
    if (size) fwrite(data, 1, size, w.stream); /* a short write sets the stream's error, seen by commit */
    return file_writer_commit(ctx, &w);
}

/* ---- names --------------------------------------------------------------------------------------- */

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

cloob_status file_make_dirs(cloob_ctx *ctx, const char *path)
{
    if (!path[0]) return CLOOB_OK;
    char *copy = strdup(path);
    if (!copy) return ctx_no_memory(ctx, strlen(path), path);
    cloob_status status = CLOOB_OK;
    for (char *c = copy + 1; status == CLOOB_OK; c++) {
        if (*c != '/' && *c != '\0') continue;
        char kept = *c;
        *c = '\0';
        if (mkdir(copy, 0777) != 0 && !(errno == EEXIST && file_is_dir(copy)))
            status = fail(ctx, copy, "cannot make the folder");
        *c = kept;
        if (!kept) break;
    }
    free(copy);
    return status;
}

char *file_join(const char *dir, const char *name)
{
    if (name[0] == '/' || !dir || !dir[0]) return strdup(name);
    size_t n = strlen(dir), total = n + strlen(name) + 2;
    char *out = malloc(total);
    if (out) snprintf(out, total, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
    return out;
}
