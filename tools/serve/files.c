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

/* ---- thumbnails: the newest JPEGs within CACHE_BYTES, in the order in which they were made ------------------ */

enum { THUMBS = 4096, WAIT_S = 20 };
#define CACHE_BYTES ((size_t)64 << 20)

/* A version of a file, and the size of its thumbnail. */
typedef struct thumb_key {
    int64_t device, inode, seconds, nanoseconds, size;
} thumb_key;

typedef struct thumb {
    thumb_key key;
    char *data;
    size_t bytes;
} thumb;

struct thumb_cache {
    pthread_mutex_t lock;
    thumb ring[THUMBS];
    int64_t first, count; /* the oldest, and how many there are from it on */
    size_t bytes;
    budget *memory;
};

static thumb *thumb_at(thumb_cache *c, int64_t i) { return &c->ring[(c->first + i) % THUMBS]; }

thumb_cache *thumb_cache_create(budget *memory)
{
    thumb_cache *c = calloc(1, sizeof *c);
    if (c) pthread_mutex_init(&c->lock, NULL), c->memory = memory;
    return c;
}

void thumb_cache_destroy(thumb_cache *c)
{
    if (!c) return;
    for (int64_t i = 0; i < c->count; i++) free(thumb_at(c, i)->data);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* A copy of the cached thumbnail; NULL: none. */
static char *cache_find(thumb_cache *c, const thumb_key *key, size_t *bytes)
{
    char *copy = NULL;
    pthread_mutex_lock(&c->lock);
    for (int64_t i = 0; i < c->count && !copy; i++) {
        const thumb *t = thumb_at(c, i);
        if (memcmp(&t->key, key, sizeof *key) != 0) continue;
        copy = malloc(t->bytes);
        if (!copy) break;
        memcpy(copy, t->data, t->bytes);
        *bytes = t->bytes;
    }
    pthread_mutex_unlock(&c->lock);
    return copy;
}

static void cache_add(thumb_cache *c, const thumb_key *key, const char *data, size_t bytes)
{
    char *copy = malloc(bytes);
    if (!copy) return;
    memcpy(copy, data, bytes);
    pthread_mutex_lock(&c->lock);
    for (c->bytes += bytes; c->count == THUMBS || (c->count && c->bytes > CACHE_BYTES); c->count--) {
        c->bytes -= thumb_at(c, 0)->bytes;
        free(thumb_at(c, 0)->data);
        c->first = (c->first + 1) % THUMBS;
    }
    *thumb_at(c, c->count++) = (thumb){ *key, copy, bytes };
    pthread_mutex_unlock(&c->lock);
}

/* What decoding may take: six bytes a pixel, as a progressive JPEG does. */
static cloob_status reserve_pixels(cloob_ctx *ctx, account *a, const file_view *v, int64_t max_pixels)
{
    int64_t w, h;
    CLOOB_TRY(image_upright_size(ctx, v->data, v->bytes, "the image", &w, &h));
    return account_wait(ctx, a, 6 * (w <= max_pixels / h ? w * h : 0), WAIT_S); /* a larger one is refused */
}

/* A JPEG of at most size x size pixels of the file behind fd, upright; cached under `key`. The caller frees *data.
 * CLOOB_ERR_BUSY when other requests hold the memory for too long. */
static cloob_status thumb_get(cloob_ctx *ctx, thumb_cache *c, const thumb_key *key, int fd, int64_t in_file,
                              int64_t size, int64_t max_pixels, char **data, size_t *bytes)
{
    file_view v;
    void *jpeg = NULL;
    account a = { .of = c->memory };
    *data = cache_find(c, key, bytes);
    if (*data) return CLOOB_OK;
    cloob_status status = account_wait(ctx, &a, in_file, WAIT_S);
    if (status != CLOOB_OK) return status;
    if (file_view_open(fd, in_file, &v)) {
        status = reserve_pixels(ctx, &a, &v, max_pixels);
        if (status == CLOOB_OK)
            status = thumbnail_jpeg(ctx, v.data, v.bytes, "the image", size, max_pixels, &jpeg, bytes);
        file_view_close(&v);
    } else status = ctx_fail(ctx, CLOOB_ERR_IO, "the file cannot be read");
    account_set(&a, 0);
    if (status == CLOOB_OK) cache_add(c, key, jpeg, *bytes);
    *data = jpeg;
    return status;
}

/* ---- handlers ------------------------------------------------------------------------------------ */

/* The file that index and path of the query name; -1: r holds the error. */
static int open_named(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r, int64_t *bytes)
{
    const char *path = http_query(q, "path");
    served_index *x;
    index_view *v;
    if (!find_index(s, ctx, q, r, http_query(q, "index"), &x, &v)) return -1;
    int fd = path ? entry_open(x, v->search, path, bytes) : -1;
    if (fd < 0) http_error(r, q, 404, "the index has no such image");
    index_release(v);
    return fd;
}

void handle_image(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    int64_t bytes = 0;
    int fd = open_named(s, ctx, q, r, &bytes);
    if (fd >= 0)
        *r = (http_reply){
            .code = 200, .type = image_type(fd), .fd = fd, .fd_bytes = bytes, .cache = "private, max-age=300"
        };
}

void handle_thumb(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    int64_t bytes = 0, size = 256;
    const char *wanted = http_query(q, "size");
    struct stat st;
    if (wanted) size = strtoll(wanted, NULL, 10);
    if (size < 16 || size > 1024) {
        http_error(r, q, 400, "size: 16 to 1024 pixels");
        return;
    }
    if (!gate_enter(&s->thumbnails, r)) return;
    int fd = open_named(s, ctx, q, r, &bytes);
    if (fd >= 0 && fstat(fd, &st) == 0) {
        char *data = NULL;
        size_t n = 0;
        thumb_key key = { (int64_t)st.st_dev, (int64_t)st.st_ino, st.st_mtim.tv_sec, st.st_mtim.tv_nsec, size };
        cloob_status status = thumb_get(ctx, s->thumbs, &key, fd, bytes, size, s->o->max_pixels, &data, &n);
        if (status == CLOOB_OK)
            *r = (http_reply){
                .code = 200, .type = "image/jpeg", .data = data, .bytes = n, .fd = -1, .cache = "private, max-age=300"
            };
        else if (status == CLOOB_ERR_MEMORY || status == CLOOB_ERR_STOPPED || status == CLOOB_ERR_BUSY)
            http_fail(r, q, ctx, status);
        else http_error(r, q, 404, "the image cannot be shown: %s", cloob_error(ctx));
    }
    gate_leave(&s->thumbnails);
    if (fd >= 0) close(fd);
}

/* ---- the page and its files, compiled in ----------------------------------------------------------- */

static void send_file(const http_request *q, http_reply *r, const char *name)
{
    for (size_t i = 0; i < sizeof page_files / sizeof *page_files; i++) {
        const page_file *f = &page_files[i];
        if (strcmp(f->name, name) != 0) continue;
        *r = (http_reply){ .code = 200,
                           .type = f->type,
                           .data = (char *)(uintptr_t)f->bytes, /* only read */
                           .bytes = *f->count,
                           .is_static = true,
                           .fd = -1,
                           .cache = "no-cache" };
        return;
    }
    http_error(r, q, 404, "there is no such file");
}

void handle_page(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    (void)s, (void)ctx;
    send_file(q, r, "index.html");
}

void handle_docs(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    (void)s, (void)ctx;
    send_file(q, r, "docs.html");
}

void handle_asset(serve *s, cloob_ctx *ctx, const http_request *q, http_reply *r)
{
    (void)s, (void)ctx;
    send_file(q, r, q->tail);
}
