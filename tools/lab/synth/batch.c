/* One range of items per thread, each with its own context, pixels and cairo surface. */
#include "lab/synth/write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "io/image/image.h"

enum { JPEG_QUALITY = 92, GRAIN = 4 };

const char *synth_extension(void) { return image_jpeg_available() ? "jpg" : "png"; }

void synth_item_release(synth_item *item)
{
    sbuf_release(&item->path);
    sbuf_release(&item->encoded);
}

/* No flush to disk for each: the set counts only after its last file, and can be made again. */
static cloob_status write_file(cloob_ctx *ctx, const char *path, const sbuf *bytes)
{
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(bytes->data, 1, bytes->len, f) == bytes->len;
    int cause = errno;
    if (f && fclose(f) != 0 && good) good = false, cause = errno;
    return good ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write: %s", path, strerror(cause));
}

static cloob_status make_item(cloob_ctx *ctx, int64_t size, uint8_t *rgb, synth_item *item)
{
    if (item->path.failed) return ctx_no_memory(ctx, item->path.cap, "a path");
    CLOOB_TRY(synth_render(ctx, &item->scene, size, rgb));
    item->encoded.len = 0;
    if (image_jpeg_available()) CLOOB_TRY(image_encode_jpeg(ctx, rgb, size, size, JPEG_QUALITY, &item->encoded));
    else CLOOB_TRY(synth_encode_png(ctx, rgb, size, &item->encoded));
    return item->path.len ? write_file(ctx, item->path.data, &item->encoded) : CLOOB_OK;
}

typedef struct worker {
    cloob_ctx *ctx;
    uint8_t *rgb;
    cloob_status status;
} worker;

typedef struct batch {
    int64_t size;
    synth_item *item;
    worker *workers;
} batch;

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const batch *b = arg;
    worker *w = &b->workers[thread];
    for (int64_t i = begin; i < end && w->status == CLOOB_OK; i++)
        w->status = make_item(w->ctx, b->size, w->rgb, &b->item[i]);
}

cloob_status synth_batch(cloob_ctx *ctx, int64_t size, synth_item *item, int64_t n)
{
    int ranges = pool_ranges(ctx, n, GRAIN);
    batch b = { size, item, calloc((size_t)ranges, sizeof(worker)) };
    bool ready = b.workers != NULL;
    for (int i = 0; ready && i < ranges; i++) {
        b.workers[i].ctx = ctx_worker(ctx);
        b.workers[i].rgb = malloc((size_t)(size * size * 3));
        ready = b.workers[i].ctx && b.workers[i].rgb;
    }
    cloob_status status = ready ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(size * size * 3 * ranges), "images");
    if (ready) pool_for(ctx, n, GRAIN, run_range, &b);
    for (int i = 0; b.workers && i < ranges; i++) {
        worker *w = &b.workers[i];
        if (status == CLOOB_OK && w->status != CLOOB_OK) status = ctx_fail(ctx, w->status, "%s", cloob_error(w->ctx));
        cloob_ctx_destroy(w->ctx);
        free(w->rgb);
    }
    free(b.workers);
    return status;
}
