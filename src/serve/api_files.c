/* Images of an index and their thumbnails. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "serve/files.h"
#include "serve/handlers.h"
#include "serve/thumb.h"

/* Names are sorted in the index. */
int64_t entry_find(const cloob_search *s, const char *path)
{
    int64_t low = 0, high = cloob_search_count(s);
    size_t want = strlen(path);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        size_t bytes;
        const char *name = cloob_search_name(s, middle, &bytes);
        int order = memcmp(name, path, bytes < want ? bytes : want);
        if (order == 0 && bytes == want) return middle;
        if (order < 0 || (order == 0 && bytes < want)) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* Only what the index lists is opened, and only where all links lead to a place below its folder. */
int entry_open(const cloob_search *s, const char *path, int64_t *bytes)
{
    char *full, *real = NULL, *root = realpath(cloob_search_root(s), NULL);
    struct stat st;
    int fd = -1;
    if (entry_find(s, path) < 0 || strstr(path, "..") == path || strstr(path, "/../")) {
        free(root);
        return -1;
    }
    if (root && asprintf(&full, "%s/%s", root, path) >= 0) {
        real = realpath(full, NULL);
        free(full);
    }
    size_t n = root ? strlen(root) : 0;
    if (real && strncmp(real, root, n) == 0 && (real[n] == '/' || n == 1))
        fd = open(real, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) close(fd), fd = -1;
    if (fd >= 0) *bytes = (int64_t)st.st_size;
    free(real), free(root);
    return fd;
}

bool file_view_open(int fd, int64_t bytes, file_view *out)
{
    void *data = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    *out = (file_view){ data == MAP_FAILED ? NULL : data, (size_t)bytes };
    return out->data != NULL;
}

void file_view_close(file_view *v)
{
    if (v->data) munmap((void *)(uintptr_t)v->data, v->bytes);
}

/* ---- handlers ------------------------------------------------------------------------------------ */

/* The file that index and path of the query name; -1: r holds the error. The view must be released. */
static int open_asked(serve *s, const http_request *q, http_reply *r, index_view **v, int64_t *bytes)
{
    const char *name = http_query(q, "index"), *path = http_query(q, "path");
    served_index *x = serve_index(s, name);
    *v = x ? index_acquire(s, x) : NULL;
    if (!*v) {
        http_error(r, q, 404, "there is no such index");
        return -1;
    }
    int fd = path ? entry_open((*v)->search, path, bytes) : -1;
    if (fd < 0) http_error(r, q, 404, "the index has no such image");
    return fd;
}

static const char *image_type(int fd)
{
    unsigned char b[12] = { 0 };
    if (pread(fd, b, sizeof b, 0) < 4) return "application/octet-stream";
    if (b[0] == 0xFF && b[1] == 0xD8) return "image/jpeg";
    if (memcmp(b, "\x89PNG", 4) == 0) return "image/png";
    if (memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0) return "image/webp";
    if (memcmp(b, "GIF8", 4) == 0) return "image/gif";
    return "application/octet-stream";
}

void handle_image(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    index_view *v;
    int64_t bytes = 0;
    (void)ctx;
    int fd = open_asked(s, q, r, &v, &bytes);
    if (fd >= 0)
        *r = (http_reply){
            .code = 200, .type = image_type(fd), .fd = fd, .fd_bytes = bytes, .cache = "private, max-age=300"
        };
    if (v) index_release(v);
}

void handle_thumb(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    index_view *v;
    int64_t bytes = 0, size = 256;
    const char *asked = http_query(q, "size");
    char key[PATH_MAX + 128];
    struct stat st;
    if (asked) size = strtoll(asked, NULL, 10);
    if (size < 16 || size > 1024) {
        http_error(r, q, 400, "size: 16 to 1024 pixels");
        return;
    }
    int fd = open_asked(s, q, r, &v, &bytes);
    if (fd >= 0 && fstat(fd, &st) == 0) {
        char *data = NULL;
        size_t n = 0;
        snprintf(key, sizeof key, "%lld:%lld:%lld:%lld:%lld", (long long)st.st_dev, (long long)st.st_ino,
                 (long long)st.st_mtim.tv_sec, (long long)st.st_mtim.tv_nsec, (long long)size);
        cloob_status status = thumb_get(ctx, s->thumbs, key, fd, bytes, size, s->o->max_pixels, &data, &n);
        if (status == CLOOB_OK)
            *r = (http_reply){
                .code = 200, .type = "image/jpeg", .data = data, .bytes = n, .fd = -1, .cache = "private, max-age=300"
            };
        else if (status == CLOOB_ERR_MEMORY || status == CLOOB_ERR_STOPPED || status == CLOOB_ERR_BUSY)
            http_fail(r, q, ctx, status);
        else http_error(r, q, 404, "the image cannot be shown: %s", cloob_error(ctx));
    }
    if (fd >= 0) close(fd);
    if (v) index_release(v);
}
