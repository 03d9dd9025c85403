/* Atomic writing: a file without a name, or a partial file next to the target, gets the target's name at the end. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names --------------------------------------------------------------------------------------- */

/* The target of a dangling link; NULL when path is not a link. */
static char *dangling_target(const char *path)
{
    char text[PATH_MAX];
    ssize_t n = readlink(path, text, sizeof text - 1);
    if (n <= 0) return NULL;
    text[n] = '\0';
    char *dir = file_folder(path), *joined = dir ? file_join(dir, text) : NULL;
    free(dir);
    return joined;
}

/* The path with its last component's links followed, in a new string. NULL with errno when it cannot be. */
static char *follow_links(const char *path)
{
    enum { LIMIT = 40 };
    struct stat st;
    char *at = strdup(path);
    for (int i = 0; at && i < LIMIT; i++) {
        if (lstat(at, &st) != 0 || !S_ISLNK(st.st_mode)) return at;
        char *next = stat(at, &st) == 0 ? realpath(at, NULL) : dangling_target(at);
        free(at);
        at = next;
    }
    if (at) errno = ELOOP;
    free(at);
    return NULL;
}

/* ".tmp-" and twelve unpredictable letters. */
static bool random_name(char *end)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    unsigned char bytes[12];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
    memcpy(end, ".tmp-", 5);
    for (size_t i = 0; i < sizeof bytes; i++) end[5 + i] = letters[bytes[i] % 32];
    end[5 + sizeof bytes] = '\0';
    return true;
}

/* Writes a new name for the partial file: the target's, cut to what a file system takes, and a random end. */
static bool name_partial(file_writer *w)
{
    enum { LIMIT = 200 };
    const char *base = file_base(w->path);
    size_t folder = (size_t)(base - w->path), n = strlen(base) < LIMIT ? strlen(base) : LIMIT;
    memcpy(w->partial, w->path, folder + n);
    return random_name(w->partial + folder + n);
}

/* ---- begin --------------------------------------------------------------------------------------- */

static cloob_status init(cloob_ctx *ctx, const char *path, file_writer *w)
{
    *w = (file_writer){ .path = follow_links(path) };
    if (!w->path) return file_fail(ctx, path, "cannot follow the link");
    w->partial = malloc(strlen(w->path) + 32);
    if (w->partial) return CLOOB_OK;
    file_writer_abort(w);
    return ctx_no_memory(ctx, strlen(path), path);
}

/* Checks what exists under the name: regular files are replaced, devices and pipes written to. */
static cloob_status check_target(cloob_ctx *ctx, const char *path, bool *direct, mode_t *mode)
{
    struct stat st;
    *direct = false;
    *mode = 0;
    if (stat(path, &st) != 0) return CLOOB_OK;
    *mode = st.st_mode & 0777;
    if (S_ISREG(st.st_mode)) return CLOOB_OK;
    *direct = S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode);
    if (*direct) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot create: there is a %s of this name", path,
                    S_ISDIR(st.st_mode)   ? "folder"
                    : S_ISBLK(st.st_mode) ? "block device"
                                          : "socket");
}

static int create_partial(file_writer *w)
{
    int fd = -1;
    for (int i = 0; i < 100 && fd < 0; i++) {
        if (!name_partial(w)) return -1;
        fd = open(w->partial, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
    }
    return fd;
}

/* -1 when the file system does not support unnamed files, or cannot link them later. */
static int create_nameless(const char *path)
{
    int fd = -1;
#if defined(O_TMPFILE)
    char *dir = file_folder(path);
    fd = dir && access("/proc/self/fd", X_OK) == 0 ? open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666) : -1;
    free(dir);
#else
    (void)path;
#endif
    return fd;
}

static cloob_status begin(cloob_ctx *ctx, const char *path, bool nameless, file_writer *w)
{
    bool direct;
    mode_t mode;
    *w = (file_writer){ 0 };
    CLOOB_TRY(check_target(ctx, path, &direct, &mode));
    CLOOB_TRY(init(ctx, path, w));
    int fd = direct ? open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY) : nameless ? create_nameless(w->path) : -1;
    w->direct = direct;
    w->nameless = !direct && fd >= 0;
    if (fd < 0 && !direct) fd = create_partial(w);
    bool named = fd >= 0 && !direct && !w->nameless;
    if (fd >= 0 && !direct && mode) (void)fchmod(fd, mode); /* if this is not permitted, the umask's mode remains */
    if (fd >= 0) w->stream = fdopen(fd, direct ? "wb" : "w+b");
    if (w->stream) return CLOOB_OK;
    cloob_status status = file_fail(ctx, path, "cannot create");
    if (fd >= 0) close(fd);
    if (!named) w->partial[0] = '\0';
    file_writer_abort(w);
    return status;
}

cloob_status file_writer_begin(cloob_ctx *ctx, const char *path, file_writer *w) { return begin(ctx, path, true, w); }

cloob_status file_writer_begin_named(cloob_ctx *ctx, const char *path, file_writer *w)
{
    return begin(ctx, path, false, w);
}

/* ---- commit and abort ---------------------------------------------------------------------------- */

static bool link_as(const file_writer *w, const char *name)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fileno(w->stream));
    return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

/* For file systems that support unnamed files but cannot link them: copies the bytes to a partial file. */
static bool copy_to_partial(file_writer *w)
{
    char buffer[1 << 14];
    ssize_t n = -1;
    int from = fileno(w->stream), to = create_partial(w);
    if (to < 0) return false;
    w->nameless = false;
    if (lseek(from, 0, SEEK_SET) == 0)
        while ((n = read(from, buffer, sizeof buffer)) > 0)
            if (write(to, buffer, (size_t)n) != n) break;
    bool ok = n == 0 && fsync(to) == 0;
    return close(to) == 0 && ok;
}

/* Names a nameless file: with the target's name if that is free (then a killed process leaves no partial file), else
 * with a temporary name next to it. Afterwards partial is empty when there is nothing to rename. */
static bool give_name(file_writer *w)
{
    if (!w->nameless) return true;
    w->partial[0] = '\0';
    if (link_as(w, w->path)) return !(w->nameless = false);
    for (int i = 0; i < 100 && errno == EEXIST; i++) {
        if (!name_partial(w)) return false;
        if (link_as(w, w->partial)) return !(w->nameless = false);
    }
    return copy_to_partial(w);
}

static void sync_directory(const char *path)
{
    char *dir = file_folder(path);
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd); /* some file systems refuse this; the rename is atomic anyway */
        close(fd);
    }
    free(dir);
}

/* Devices and pipes have nothing to flush to disk. */
static bool flush(file_writer *w)
{
    if (fflush(w->stream) != 0 || ferror(w->stream)) return false;
    return w->direct || fsync(fileno(w->stream)) == 0;
}

cloob_status file_writer_commit(cloob_ctx *ctx, file_writer *w)
{
    cloob_status status = CLOOB_OK;
    if (!flush(w)) status = file_fail(ctx, w->path, "cannot write");
    if (status == CLOOB_OK && !give_name(w)) status = file_fail(ctx, w->path, "cannot name");
    if (fclose(w->stream) != 0 && status == CLOOB_OK) status = file_fail(ctx, w->path, "cannot write");
    w->stream = NULL;
    if (status == CLOOB_OK && !w->direct && w->partial[0] && rename(w->partial, w->path) != 0)
        status = file_fail(ctx, w->path, "cannot rename");
    if (status == CLOOB_OK && !w->direct) {
        sync_directory(w->path);
        w->partial[0] = '\0'; /* nothing left to remove */
    }
    file_writer_abort(w);
    return status;
}

void file_writer_abort(file_writer *w)
{
    if (w->stream) fclose(w->stream);
    if (w->partial && w->partial[0] && !w->nameless && !w->direct) unlink(w->partial);
    free(w->path);
    free(w->partial);
    *w = (file_writer){ 0 };
}

static cloob_status write_all(cloob_ctx *ctx, const char *path, const void *data, size_t size, bool private)
{
    file_writer w;
    CLOOB_TRY(file_writer_begin(ctx, path, &w));
    if (private && !w.direct && fchmod(fileno(w.stream), 0600) != 0) {
        cloob_status status = file_fail(ctx, path, "cannot make it private");
        file_writer_abort(&w);
        return status;
    }
    if (size) fwrite(data, 1, size, w.stream); /* a short write sets the stream's error, seen by commit */
    return file_writer_commit(ctx, &w);
}

cloob_status file_write(cloob_ctx *ctx, const char *path, const void *data, size_t size)
{
    return write_all(ctx, path, data, size, false);
}

cloob_status file_write_text(cloob_ctx *ctx, const char *path, sbuf *s)
{
    cloob_status status =
        s->failed ? ctx_no_memory(ctx, s->len, path) : file_write(ctx, path, s->data ? s->data : "", s->len);
    sbuf_release(s);
    return status;
}

cloob_status file_write_in(cloob_ctx *ctx, const char *folder, const char *name, const sbuf *s)
{
    char *path = file_join(folder, name);
    cloob_status status =
        path && !s->failed ? file_write(ctx, path, s->data ? s->data : "", s->len) : ctx_no_memory(ctx, s->len, name);
    free(path);
    return status;
}

cloob_status file_write_private(cloob_ctx *ctx, const char *path, const void *data, size_t size)
{
    return write_all(ctx, path, data, size, true);
}
