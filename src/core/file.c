/* Files through stdio and mmap; every failure names the path and the system's reason. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/arith.h"
#include "core/text.h"

cloob_status file_fail(cloob_ctx *ctx, const char *path, const char *what)
{
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: %s: %s", path, what, strerror(errno));
}

/* ---- reading ------------------------------------------------------------------------------------- */

enum { PIPE_PATIENCE_MS = 10000, PIPE_NAP_MS = 20 };

/* Waits until a pipe opened with O_NONBLOCK has a writer. *first gets the byte that had to be read to find out, or EOF.
 * False: no writer opened it in time. */
static bool pipe_has_writer(int fd, int *first)
{
    unsigned char byte;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    *first = EOF;
    for (int waited = 0; waited < PIPE_PATIENCE_MS; waited += PIPE_NAP_MS) {
        ssize_t n = read(fd, &byte, 1);
        if (n == 1) *first = byte;
        if (n == 1 || (n < 0 && errno == EAGAIN)) return true;
        if (poll(&p, 1, 0) > 0 && (p.revents & POLLHUP)) return true; /* a writer opened and closed it without data */
        nanosleep(&(struct timespec){ 0, PIPE_NAP_MS * 1000000L }, NULL);
    }
    return false;
}

static cloob_status open_stream(cloob_ctx *ctx, const char *path, int fd, int first, FILE **out)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0 || !(*out = fdopen(fd, "rb")))
        return file_fail(ctx, path, "cannot open");
    if (first != EOF) ungetc(first, *out);
    return CLOOB_OK;
}

cloob_status file_open(cloob_ctx *ctx, const char *path, FILE **out)
{
    struct stat st;
    int first = EOF, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    cloob_status status = CLOOB_OK;
    *out = NULL;
    if (fd < 0) return file_fail(ctx, path, "cannot open");
    if (fstat(fd, &st) != 0) status = file_fail(ctx, path, "cannot stat");
    else if (S_ISDIR(st.st_mode)) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: is a folder; name a file", path);
    else if (S_ISFIFO(st.st_mode) && !pipe_has_writer(fd, &first))
        status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: is a pipe without a writer; start its writer first", path);
    if (status == CLOOB_OK) status = open_stream(ctx, path, fd, first, out);
    if (status != CLOOB_OK) close(fd);
    return status;
}

static cloob_status too_large(cloob_ctx *ctx, const char *path, size_t limit)
{
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: larger than the %zu bytes allowed here", path, limit);
}

static cloob_status read_stream(cloob_ctx *ctx, FILE *f, const char *path, size_t limit, file_bytes *out)
{
    size_t cap = 1 << 16, size = 0;
    struct stat st;
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size > limit)
        return too_large(ctx, path, limit);
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
    if (ferror(f)) status = file_fail(ctx, path, "cannot read");
    else if (size > limit) status = too_large(ctx, path, limit);
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
    FILE *f;
    *out = (file_bytes){ 0 };
    CLOOB_TRY(file_open(ctx, path, &f));
    cloob_status status = read_stream(ctx, f, path, limit, out);
    fclose(f);
    return status;
}

void file_bytes_release(file_bytes *b)
{
    free(b->data);
    *b = (file_bytes){ 0 };
}

int64_t time_ns(struct timespec t)
{
    int64_t ns;
    bool fits = checked_mul(t.tv_sec, 1000000000, &ns) && checked_add(ns, t.tv_nsec, &ns);
    return fits ? ns : t.tv_sec < 0 ? INT64_MIN : INT64_MAX;
}

ssize_t file_read_at(int fd, void *out, size_t n, int64_t at)
{
    size_t have = 0;
    while (have < n) {
        ssize_t got = pread(fd, (char *)out + have, n - have, (off_t)at + (off_t)have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

bool file_write_at(int fd, const void *data, size_t n, int64_t at)
{
    for (const char *p = data; n > 0;) {
        ssize_t done = pwrite(fd, p, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = ENOSPC;
        if (done <= 0) return false;
        p += done, at += done, n -= (size_t)done;
    }
    return true;
}

/* The first `size` bytes of fd in memory that file_map_close frees; a file that ends before that is refused. */
static cloob_status copy_file(cloob_ctx *ctx, const char *path, int fd, size_t size, file_map *out)
{
    unsigned char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return ctx_no_memory(ctx, size, path);
    madvise(p, size, MADV_HUGEPAGE);
    ssize_t have = file_read_at(fd, p, size, 0);
    *out = (file_map){ p, size, true };
    if (have == (ssize_t)size) return CLOOB_OK;
    file_map_close(out);
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: ended after %zd of %zu bytes; it is being rewritten, or the disk fails",
                    path, have < 0 ? 0 : have, size);
}

static cloob_status open_regular(cloob_ctx *ctx, const char *path, int *fd, size_t *size)
{
    struct stat st;
    cloob_status status = CLOOB_OK;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* do not block on a pipe */
    if (*fd < 0) return file_fail(ctx, path, "cannot open");
    if (fstat(*fd, &st) != 0) status = file_fail(ctx, path, "cannot stat");
    else if (!S_ISREG(st.st_mode)) status = ctx_fail(ctx, CLOOB_ERR_IO, "%s: not a regular file", path);
    else *size = (size_t)st.st_size;
    if (status != CLOOB_OK) close(*fd);
    return status;
}

cloob_status file_map_open(cloob_ctx *ctx, const char *path, file_map *out)
{
    int fd;
    size_t size = 0;
    *out = (file_map){ 0 };
    CLOOB_TRY(open_regular(ctx, path, &fd, &size));
    cloob_status status = CLOOB_OK;
    if (size > 0 && ctx->copy_files) status = copy_file(ctx, path, fd, size, out);
    else if (size > 0) {
        void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED && errno == ENOMEM) status = ctx_no_memory(ctx, size, path);
        else if (p == MAP_FAILED) status = file_fail(ctx, path, "cannot map");
        else *out = (file_map){ p, size, false };
    }
    close(fd);
    return status;
}

cloob_status file_read_beginning(cloob_ctx *ctx, const char *path, void *data, size_t bytes, size_t *have)
{
    int fd;
    size_t size = 0;
    CLOOB_TRY(open_regular(ctx, path, &fd, &size));
    ssize_t n = pread(fd, data, bytes, 0);
    cloob_status status = n < 0 ? file_fail(ctx, path, "cannot read") : CLOOB_OK;
    *have = n < 0 ? 0 : (size_t)n;
    close(fd);
    return status;
}

void file_map_close(file_map *m)
{
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (file_map){ 0 };
}

bool file_map_drop(const file_map *m, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    if (!m->data || from < m->data || from >= m->data + m->size) return false;
    if (m->copied) return true;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)from + bytes;
    uintptr_t first = ((uintptr_t)from + page - 1) / page * page, last = end / page * page;
    if (last > first) madvise((void *)first, (size_t)(last - first), MADV_DONTNEED);
    return true;
}

/* ---- names --------------------------------------------------------------------------------------- */

/* UTF-8 without control characters; the last character may be cut. */
static bool is_text(const char *p, size_t n)
{
    uint32_t code;
    size_t at = 0;
    for (int length; at < n && (length = utf8_decode(p + at, n - at, &code)) > 0; at += (size_t)length)
        if ((code < 0x20 && code != '\t' && code != '\r' && code != '\n') || code == 0x7f) return false;
    return n >= 4 && n - at < 4;
}

const char *file_kind(const void *first, size_t bytes)
{
    static const struct {
        const char *begin, *kind;
    } known[] = {
        { "\x89PNG\r\n", "a PNG image" },
        { "\xff\xd8\xff", "a JPEG image" },
        { "GIF8", "a GIF image" },
        { "RIFF", "a WebP image, a sound or a film" },
        { "%PDF", "a PDF file" },
        { "\x1f\x8b", "a gzip file" },
        { "version htt", "a Git LFS pointer; fetch the file it stands for" },
        { "<", "a web page" },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].begin);
        if (bytes >= n && memcmp(first, known[i].begin, n) == 0) return known[i].kind;
    }
    return is_text(first, bytes < 64 ? bytes : 64) ? "a text file" : NULL;
}

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
            status = file_fail(ctx, copy, "cannot make the folder");
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

cloob_status file_in(cloob_ctx *ctx, const char *dir, const char *name, char path[FILE_PATH])
{
    bool alone = name[0] == '/' || !dir[0];
    const char *gap = alone || dir[strlen(dir) - 1] == '/' ? "" : "/";
    if (snprintf(path, FILE_PATH, "%s%s%s", alone ? "" : dir, gap, name) < FILE_PATH) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%.200s...: a path of more than %d bytes", path, FILE_PATH - 1);
}

const char *file_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *file_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}
