/* A hash table of JPEGs within a budget; the oldest go first. */
#include "serve/files.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "serve/files.h"
#include "io/image/exif.h"
#include "data/view/transform.h"
#include "core/ctx.h"
enum { BUCKETS = 4096, WAIT_S = 20 };
#define BUDGET_BYTES ((size_t)64 << 20)

typedef struct thumb thumb;
struct thumb {
    thumb *chain;         /* of its bucket */
    thumb *older, *newer; /* by age */
    char *key, *data;
    size_t bytes;
};

struct thumb_cache {
    pthread_mutex_t lock;
    thumb *bucket[BUCKETS], *oldest, *newest;
    size_t bytes;
    budget *memory;
};

thumb_cache *thumb_cache_create(budget *memory)
{
    thumb_cache *c = calloc(1, sizeof *c);
    if (c) pthread_mutex_init(&c->lock, NULL), c->memory = memory;
    return c;
}

static unsigned bucket_of(const char *key)
{
    uint32_t h = 2166136261u;
    for (; *key; key++) h = (h ^ (unsigned char)*key) * 16777619u;
    return h % BUCKETS;
}

static void drop_oldest(thumb_cache *c)
{
    thumb *t = c->oldest, **link = &c->bucket[bucket_of(t->key)];
    while (*link != t) link = &(*link)->chain;
    *link = t->chain;
    c->oldest = t->newer;
    if (c->oldest) c->oldest->older = NULL;
    else c->newest = NULL;
    c->bytes -= t->bytes;
    free(t->key), free(t->data), free(t);
}

void thumb_cache_destroy(thumb_cache *c)
{
    if (!c) return;
    while (c->oldest) drop_oldest(c);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* A copy of the cached thumbnail; NULL: none. */
static char *find(thumb_cache *c, const char *key, size_t *bytes)
{
    char *copy = NULL;
    pthread_mutex_lock(&c->lock);
    thumb *t = c->bucket[bucket_of(key)];
    while (t && strcmp(t->key, key) != 0) t = t->chain;
    if (t && (copy = malloc(t->bytes))) {
        memcpy(copy, t->data, t->bytes);
        *bytes = t->bytes;
    }
    pthread_mutex_unlock(&c->lock);
    return copy;
}

static void keep(thumb_cache *c, const char *key, const char *data, size_t bytes)
{
    thumb *t = calloc(1, sizeof *t);
    if (t) t->key = strdup(key), t->data = malloc(bytes), t->bytes = bytes;
    if (!t || !t->key || !t->data) {
        if (t) free(t->key), free(t->data);
        free(t);
        return;
    }
    memcpy(t->data, data, bytes);
    pthread_mutex_lock(&c->lock);
    thumb **head = &c->bucket[bucket_of(key)];
    t->chain = *head, *head = t;
    t->older = c->newest;
    if (c->newest) c->newest->newer = t;
    else c->oldest = t;
    c->newest = t;
    c->bytes += bytes;
    while (c->bytes > BUDGET_BYTES && c->oldest) drop_oldest(c);
    pthread_mutex_unlock(&c->lock);
}

/* What decoding may take: six bytes a pixel, as a progressive JPEG does. */
static cloob_status reserve_pixels(cloob_ctx *ctx, account *a, const file_view *v, int64_t max_pixels)
{
    int64_t w, h;
    cloob_status status = image_upright_size(ctx, v->data, v->bytes, "the image", &w, &h);
    if (status != CLOOB_OK) return status;
    return account_wait(ctx, a, 6 * (w <= max_pixels / h ? w * h : 0), WAIT_S); /* a larger one is refused */
}

cloob_status thumb_get(cloob_ctx *ctx, thumb_cache *c, const char *key, int fd, int64_t file_bytes, int64_t size,
                       int64_t max_pixels, char **data, size_t *bytes)
{
    file_view v;
    void *jpeg = NULL;
    account a = { .of = c->memory };
    *data = find(c, key, bytes);
    if (*data) return CLOOB_OK;
    cloob_status status = account_wait(ctx, &a, file_bytes, WAIT_S);
    if (status != CLOOB_OK) return status;
    if (file_view_open(fd, file_bytes, &v)) {
        status = reserve_pixels(ctx, &a, &v, max_pixels);
        if (status == CLOOB_OK)
            status = thumbnail_jpeg(ctx, v.data, v.bytes, "the image", size, max_pixels, &jpeg, bytes);
        file_view_close(&v);
    } else status = ctx_fail(ctx, CLOOB_ERR_IO, "the file cannot be read");
    account_set(&a, 0);
    if (status == CLOOB_OK) keep(c, key, jpeg, *bytes);
    *data = jpeg;
    return status;
}
