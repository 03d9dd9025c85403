/* Image files below an index's folder, their thumbnails, and the files of the page. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve/handlers.h"
#include "infer/search_index.h"
#include "io/image/exif.h"
#include "data/view/transform.h"
#include "core/ctx.h"

typedef struct page_file {
    const char *name, *type;
    const unsigned char *bytes; /* not zero-terminated */
    const size_t *count;
} page_file;

#include "page_files.h" /* page_files[], made by page/CMakeLists.txt */

/* Names are sorted in the index. */
int64_t entry_find(const cloob_search *s, const char *path)
{
    int64_t low = 0, high = cloob_search_count(s);
    size_t want = strlen(path);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        size_t bytes;
        const char *name = search_files_name(&s->good, middle, &bytes);
        int order = memcmp(name, path, bytes < want ? bytes : want);
        if (order == 0 && bytes == want) return middle;
        if (order < 0 || (order == 0 && bytes < want)) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* Opens `path`, which is resolved and so has no links left, below the folder. openat2 refuses a folder of the path that
 * was replaced by a link since; kernels before 5.6 do not have it. */
static int open_beneath(const char *folder, const char *path)
{
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
    size_t n = strlen(folder);
    int root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
    if (root < 0) return -1;
    fd = (int)syscall(SYS_openat2, root, path + n + (path[n] == '/'), &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    close(root);
    return fd;
}

bool path_is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == 0 || n == 1);
}

/* The media type by the first bytes, of the formats that io/image reads; NULL: not an image. */
static const char *image_type(int fd)
{
    unsigned char b[18] = { 0 };
    if (pread(fd, b, sizeof b, 0) < (ssize_t)sizeof b) return NULL;
    if (memcmp(b, "\xFF\xD8\xFF", 3) == 0) return "image/jpeg";
    if (memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0) return "image/png";
    if (memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0) return "image/webp";
    if (memcmp(b, "GIF87a", 6) == 0 || memcmp(b, "GIF89a", 6) == 0) return "image/gif";
    if (memcmp(b, "II*\0", 4) == 0 || memcmp(b, "MM\0*", 4) == 0) return "image/tiff";
    if (memcmp(b, "BM", 2) == 0 && memcmp(b + 15, "\0\0\0", 3) == 0) return "image/bmp"; /* a header below 256 bytes */
    if (memcmp(b + 4, "ftypavi", 7) == 0) return "image/avif";
    if (memcmp(b + 4, "ftyphe", 6) == 0 || memcmp(b + 4, "ftypm", 5) == 0) return "image/heic"; /* mif1, msf1 */
    return NULL;
}

int entry_open(const served_index *x, const cloob_search *s, const char *path, int64_t *bytes)
{
    char *full = NULL, *real = NULL;
    struct stat st;
    int fd = -1;
    if (entry_find(s, path) < 0 || asprintf(&full, "%s/%s", x->root, path) < 0) return -1;
    real = realpath(full, NULL);
    free(full);
    if (real && path_is_below(real, x->root)) fd = open_beneath(x->root, real);
    free(real);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !image_type(fd))) close(fd), fd = -1;
    if (fd >= 0) *bytes = (int64_t)st.st_size;
    return fd;
}

bool file_view_open(int fd, int64_t bytes, file_view *out)
{
    enum { LARGEST = 1 << 28 }; /* bytes of an image file that is decoded */
    size_t have = 0;
    *out = (file_view){ bytes > 0 && bytes <= LARGEST ? malloc((size_t)bytes) : NULL, 0 };
    for (ssize_t n = 1; out->data && n > 0 && have<(size_t)bytes; have += n> 0 ? (size_t)n : 0)
        n = pread(fd, (char *)out->data + have, (size_t)bytes - have, (off_t)have);
    out->bytes = have;
    if (!have) file_view_close(out);
    return have > 0;
}

void file_view_close(file_view *v)
{
    free(v->data);
    *v = (file_view){ 0 };
}

/* ---- thumbnails ------------------------------------------------------------------------------------ */

enum { WAIT_S = 20 };

/* A JPEG of at most size x size pixels of the file behind fd, upright. The caller frees *data. CLOOB_ERR_BUSY when
 * other requests hold the memory for too long. */
static cloob_status make_thumb(call *c, int fd, int64_t in_file, int64_t size, void **data, size_t *bytes)
{
    file_view v = { 0 };
    account a = { .of = &c->s->memory };
    int64_t max_pixels = c->s->o->max_pixels, w = 0, h = 1;
    cloob_status status = account_wait(c->ctx, &a, in_file, WAIT_S);
    if (status == CLOOB_OK && !file_view_open(fd, in_file, &v))
        status = ctx_fail(c->ctx, CLOOB_ERR_IO, "the file cannot be read");
    if (status == CLOOB_OK) status = image_upright_size(c->ctx, v.data, v.bytes, "the image", &w, &h);
    if (status == CLOOB_OK &&
        w <= max_pixels / h) /* a larger one is refused; a progressive JPEG takes 6 bytes a pixel */
        status = account_wait(c->ctx, &a, 6 * w * h, WAIT_S);
    if (status == CLOOB_OK)
        status = thumbnail_jpeg(c->ctx, v.data, v.bytes, "the image", size, max_pixels, data, bytes);
    file_view_close(&v);
    account_set(&a, 0);
    return status;
}

/* ---- handlers ------------------------------------------------------------------------------------ */

/* Links of a search answer name the version of the file, so that a browser may cache what they lead to. */
static const char *cache_time(const call *c)
{
    return http_query(c->q, "v") ? "private, max-age=86400" : "private, max-age=300";
}

/* The file that index and path of the query name. The caller closes *fd. */
static cloob_status open_named(call *c, int *fd, int64_t *bytes)
{
    const char *path = http_query(c->q, "path");
    CLOOB_TRY(call_index(c, http_query(c->q, "index")));
    *fd = path ? entry_open(c->x, c->v->search, path, bytes) : -1;
    return *fd >= 0 ? CLOOB_OK : call_error(c, 404, "the index has no such image");
}

cloob_status handle_image(call *c)
{
    int64_t bytes;
    int fd;
    CLOOB_TRY(open_named(c, &fd, &bytes));
    *c->r = (http_reply){ .code = 200, .type = image_type(fd), .fd = fd, .fd_bytes = bytes, .cache = cache_time(c) };
    return CLOOB_OK;
}

cloob_status handle_thumb(call *c)
{
    int64_t in_file, size = 256;
    const char *wanted = http_query(c->q, "size");
    void *data = NULL;
    size_t bytes = 0;
    int fd;
    if (wanted) size = strtoll(wanted, NULL, 10);
    if (size < 16 || size > 1024) return refuse(c->ctx, "size: 16 to 1024 pixels");
    CLOOB_TRY(open_named(c, &fd, &in_file));
    cloob_status status = CLOOB_ERR_BUSY; /* with r->wait set */
    if (gate_enter(&c->s->thumbnails, c->r)) {
        status = make_thumb(c, fd, in_file, size, &data, &bytes);
        gate_leave(&c->s->thumbnails);
    }
    close(fd);
    if (status == CLOOB_OK) {
        http_data(c->r, "image/jpeg", data, bytes);
        c->r->cache = cache_time(c);
    } else if (status != CLOOB_ERR_MEMORY && status != CLOOB_ERR_STOPPED && status != CLOOB_ERR_BUSY)
        return call_error(c, 404, "the image cannot be shown: %s", cloob_error(c->ctx));
    return status;
}

/* ---- the page and its files, compiled in ----------------------------------------------------------- */

static cloob_status send_file(call *c, const char *name)
{
    for (size_t i = 0; i < sizeof page_files / sizeof *page_files; i++) {
        const page_file *f = &page_files[i];
        if (strcmp(f->name, name) != 0) continue;
        http_data(c->r, f->type, (char *)(uintptr_t)f->bytes, *f->count); /* only read */
        c->r->is_static = true, c->r->cache = "no-cache";
        return CLOOB_OK;
    }
    return call_error(c, 404, "there is no such file");
}

cloob_status handle_page(call *c) { return send_file(c, "index.html"); }
cloob_status handle_docs(call *c) { return send_file(c, "docs.html"); }
cloob_status handle_openapi(call *c) { return send_file(c, "openapi.json"); }
cloob_status handle_asset(call *c) { return send_file(c, c->q->tail); }
