/* Writing a set: training and validation pairs as files or shards, test folders, ground truth. */
#include "lab/synth/write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/pool.h"
#include "io/image/image.h"

#define MAX_COUNT INT64_C(10000000)

void synth_options_init(synth_options *o)
{
    *o = (synth_options){
        .count = 10000, .val_count = -1, .per_class = -1, .size = 64, .strength = SYNTH_STRENGTH, .shard_samples = 1000
    };
}

int64_t synth_val_count(const synth_options *o)
{
    if (o->val_count >= 0) return o->val_count;
    return o->count / 10 > 16 ? o->count / 10 : 16;
}

int64_t synth_per_class(const synth_options *o)
{
    if (o->per_class >= 0) return o->per_class;
    int64_t n = o->count / 200;
    return n < 4 ? 4 : n > 100 ? 100 : n;
}

static cloob_status check_options(cloob_ctx *ctx, const synth_options *o)
{
    if (!o->out || !o->out[0]) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "no folder to write to: give `out`");
    if (o->count < 1 || o->count > MAX_COUNT || o->val_count > MAX_COUNT)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld pairs: between 1 and %lld can be written",
                        (long long)(o->count < 1 || o->count > MAX_COUNT ? o->count : o->val_count),
                        (long long)MAX_COUNT);
    if (o->per_class > 100000)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld images per class: at most 100000", (long long)o->per_class);
    if (o->size < SYNTH_MIN_SIZE || o->size > SYNTH_MAX_SIZE)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "images of %lld pixels: between %d and %d can be drawn",
                        (long long)o->size, SYNTH_MIN_SIZE, SYNTH_MAX_SIZE);
    if (!(o->strength >= 0 && o->strength <= 1))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "strength %g: between 0 (independent) and 1", o->strength);
    if (o->shard_samples < 1 || o->shard_samples > MAX_COUNT)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld samples a shard: at least 1", (long long)o->shard_samples);
    return CLOOB_OK;
}

/* ---- images: one range of items per thread, each with its own context, pixels and cairo surface ----- */

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
    if (!f) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    bool written = fwrite(bytes->data, 1, bytes->len, f) == bytes->len;
    if (fclose(f) == 0 && written) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
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

/* ---- the state of a run -------------------------------------------------------------------------- */

typedef struct run {
    cloob_ctx *ctx;
    const synth_options *o;
    synth_world world;
    const char *root; /* the staging folder */
    FILE *factors, *naming, *pairs;
    synth_tar tar;
    json_out sizes; /* of shards; open until the end */
    synth_item *item;
    int64_t chunk; /* items drawn at a time */
    sbuf text;     /* scratch */
    int64_t done, all;
    double began;
    synth_result *r;
} run;

static void report(run *r) { ctx_progress(r->ctx, "synth", r->done, r->all, "images"); }

static cloob_status open_text(run *r, const char *name, FILE **f)
{
    char *path = file_join(r->root, name);
    *f = path ? fopen(path, "wb") : NULL;
    cloob_status status =
        *f ? CLOOB_OK : ctx_fail(r->ctx, CLOOB_ERR_IO, "%s: cannot create: %s", name, strerror(errno));
    free(path);
    return status;
}

static cloob_status make_folder(run *r, const char *name)
{
    char *path = file_join(r->root, name);
    cloob_status status = path ? file_make_dirs(r->ctx, path) : ctx_no_memory(r->ctx, strlen(name), "a path");
    free(path);
    return status;
}

/* Appends the scratch text to a file and empties it; write errors stay with the stream until it is closed. */
static void flush_text(run *r, FILE *f)
{
    if (f && r->text.len) fwrite(r->text.data, 1, r->text.len, f);
    r->text.len = 0;
}

static void put_rows(run *r, const char *file, const char *split, const synth_scene *scene)
{
    synth_put_row(&r->text, SYNTH_VALUES, file, split, scene);
    flush_text(r, r->factors);
    synth_put_row(&r->text, SYNTH_NAMING, file, split, scene);
    flush_text(r, r->naming);
}

/* ---- shards -------------------------------------------------------------------------------------- */

static cloob_status next_shard(run *r, const char *split, int64_t index, int64_t count)
{
    if (index % r->o->shard_samples != 0) return CLOOB_OK;
    int64_t left = count - index, samples = left < r->o->shard_samples ? left : r->o->shard_samples;
    char name[64];
    CLOOB_TRY(synth_tar_close(r->ctx, &r->tar));
    snprintf(name, sizeof name, "%s-%05lld.tar", split, (long long)(index / r->o->shard_samples));
    json_put_int(&r->sizes, name, samples);
    char *path = file_join(r->root, name);
    cloob_status status = path ? synth_tar_open(r->ctx, path, &r->tar) : ctx_no_memory(r->ctx, sizeof name, "a path");
    free(path);
    r->r->shards += status == CLOOB_OK;
    return status;
}

static void add_member(run *r, const char *stem, const char *suffix, const sbuf *content)
{
    char name[100];
    snprintf(name, sizeof name, "%s.%s", stem, suffix);
    synth_tar_add(&r->tar, name, content->data, content->len);
}

/* One pair into the current shard, and its rows of ground truth. */
static cloob_status put_shard_pair(run *r, const char *split, int64_t index, int64_t count, const synth_item *item)
{
    char stem[64], file[192];
    CLOOB_TRY(next_shard(r, split, index, count));
    snprintf(stem, sizeof stem, "%s-%07lld", split, (long long)index);
    add_member(r, stem, synth_extension(), &item->encoded);
    synth_caption(&item->scene, &r->text);
    add_member(r, stem, "txt", &r->text);
    r->text.len = 0;
    synth_put_truth(&r->text, &item->scene);
    add_member(r, stem, "json", &r->text);
    r->text.len = 0;
    snprintf(file, sizeof file, "%s-%05lld.tar/%s.%s", split, (long long)(index / r->o->shard_samples), stem,
             synth_extension());
    put_rows(r, file, split, &item->scene);
    return CLOOB_OK;
}

/* ---- pairs --------------------------------------------------------------------------------------- */

static void name_image(run *r, synth_item *item, const char *name)
{
    item->path.len = 0;
    sbuf_printf(&item->path, "%s/%s", r->root, name);
}

static void put_file_pair(run *r, const char *split, const synth_item *item)
{
    const char *file = item->path.data + strlen(r->root) + 1;
    sbuf_printf(&r->text, "%s\t", file);
    synth_caption(&item->scene, &r->text);
    sbuf_putc(&r->text, '\n');
    flush_text(r, r->pairs);
    put_rows(r, file, split, &item->scene);
}

static cloob_status draw_chunk(run *r, int64_t n)
{
    CLOOB_TRY(synth_batch(r->ctx, r->o->size, r->item, n));
    for (int64_t i = 0; i < n; i++) r->r->bytes += (int64_t)r->item[i].encoded.len;
    r->done += n;
    report(r);
    return CLOOB_OK;
}

static cloob_status write_pair_chunk(run *r, synth_split split, int64_t begin, int64_t end, int64_t count)
{
    const char *word = split == SYNTH_TRAIN ? "train" : "val";
    bool shards = r->o->format == SYNTH_WEBDATASET;
    for (int64_t i = begin; i < end; i++) {
        synth_item *item = &r->item[i - begin];
        char name[64];
        synth_draw(&r->world, split, i, &item->scene);
        snprintf(name, sizeof name, "images/%s-%07lld.%s", word, (long long)i, synth_extension());
        if (!shards) name_image(r, item, name);
    }
    CLOOB_TRY(draw_chunk(r, end - begin));
    for (int64_t i = begin; i < end; i++) {
        if (shards) CLOOB_TRY(put_shard_pair(r, word, i, count, &r->item[i - begin]));
        else put_file_pair(r, word, &r->item[i - begin]);
    }
    return CLOOB_OK;
}

static cloob_status write_pairs(run *r, synth_split split, int64_t count)
{
    const char *list = split == SYNTH_TRAIN ? "train.tsv" : "val.tsv";
    if (r->o->format == SYNTH_CSV) {
        CLOOB_TRY(open_text(r, list, &r->pairs));
        fputs("filepath\ttitle\n", r->pairs);
    }
    for (int64_t i = 0; i < count; i += r->chunk)
        CLOOB_TRY(write_pair_chunk(r, split, i, i + r->chunk < count ? i + r->chunk : count, count));
    CLOOB_TRY(synth_tar_close(r->ctx, &r->tar));
    return synth_close(r->ctx, list, &r->pairs);
}

/* ---- the test of one factor ---------------------------------------------------------------------- */

static cloob_status write_test_chunk(run *r, synth_factor f, int64_t begin, int64_t end)
{
    const synth_factor_row *row = &synth_factors[f];
    for (int64_t i = begin; i < end; i++) {
        char name[192];
        synth_item *item = &r->item[i - begin];
        synth_draw_test(&r->world, f, i, &item->scene);
        snprintf(name, sizeof name, "classes/%s/%s/%05lld.%s", row->name, row->value[item->scene.value[f]].name,
                 (long long)(i / row->count), synth_extension());
        name_image(r, item, name);
    }
    CLOOB_TRY(draw_chunk(r, end - begin));
    for (int64_t i = begin; i < end; i++)
        put_rows(r, r->item[i - begin].path.data + strlen(r->root) + 1, "test", &r->item[i - begin].scene);
    return CLOOB_OK;
}

static cloob_status write_test(run *r, synth_factor f)
{
    const synth_factor_row *row = &synth_factors[f];
    int64_t count = synth_per_class(r->o) * row->count;
    for (int v = 0; v < row->count; v++) {
        char folder[128];
        snprintf(folder, sizeof folder, "classes/%s/%s", row->name, row->value[v].name);
        CLOOB_TRY(make_folder(r, folder));
    }
    for (int64_t i = 0; i < count; i += r->chunk)
        CLOOB_TRY(write_test_chunk(r, f, i, i + r->chunk < count ? i + r->chunk : count));
    r->r->test += count;
    return CLOOB_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static cloob_status write_text(run *r, const char *name)
{
    char *path = file_join(r->root, name);
    cloob_status status = !path || r->text.failed ? ctx_no_memory(r->ctx, r->text.len, name)
                                                  : file_write(r->ctx, path, r->text.data, r->text.len);
    r->text.len = 0;
    free(path);
    return status;
}

static cloob_status write_descriptions(run *r)
{
    synth_put_prompts(&r->text);
    CLOOB_TRY(write_text(r, "prompts.json"));
    if (r->o->format == SYNTH_WEBDATASET) {
        json_end(&r->sizes);
        json_out_append(&r->sizes, &r->text);
        CLOOB_TRY(write_text(r, "sizes.json"));
    }
    synth_put_mark(&r->text, r->o);
    return write_text(r, SYNTH_MARK);
}

static cloob_status write_all(run *r)
{
    if (r->o->format == SYNTH_CSV) CLOOB_TRY(make_folder(r, "images"));
    CLOOB_TRY(open_text(r, "factors.tsv", &r->factors));
    CLOOB_TRY(open_text(r, "naming.tsv", &r->naming));
    synth_put_header(&r->text, SYNTH_VALUES);
    flush_text(r, r->factors);
    synth_put_header(&r->text, SYNTH_NAMING);
    flush_text(r, r->naming);
    CLOOB_TRY(write_pairs(r, SYNTH_TRAIN, r->r->train));
    CLOOB_TRY(write_pairs(r, SYNTH_VAL, r->r->val));
    for (int f = 0; f < SYNTH_FACTORS; f++) CLOOB_TRY(write_test(r, (synth_factor)f));
    CLOOB_TRY(synth_close(r->ctx, "factors.tsv", &r->factors));
    CLOOB_TRY(synth_close(r->ctx, "naming.tsv", &r->naming));
    return write_descriptions(r);
}

/* As many as keep the threads busy between two meetings and take half a second or so, which is how often progress
 * shows; fewer when images are large: about 32 MB of JPEG. */
static int64_t chunk_items(int64_t size)
{
    int64_t n = ((int64_t)1 << 24) / (size * size);
    return n < 32 ? 32 : n > 512 ? 512 : n;
}

static cloob_status run_begin(run *r, const synth_stage *st)
{
    r->world = (synth_world){ r->o->seed, r->o->strength };
    r->root = st->path;
    r->chunk = chunk_items(r->o->size);
    r->item = calloc((size_t)r->chunk, sizeof *r->item);
    r->began = clock_seconds();
    r->r->train = r->o->count;
    r->r->val = synth_val_count(r->o);
    r->all = r->r->train + r->r->val;
    for (int f = 0; f < SYNTH_FACTORS; f++) r->all += synth_per_class(r->o) * synth_factors[f].count;
    report(r);
    return r->item ? CLOOB_OK : ctx_no_memory(r->ctx, (size_t)r->chunk * sizeof *r->item, "images");
}

static void run_end(run *r)
{
    if (r->factors) fclose(r->factors);
    if (r->naming) fclose(r->naming);
    if (r->pairs) fclose(r->pairs);
    if (r->tar.stream) fclose(r->tar.stream);
    free(r->tar.path);
    for (int64_t i = 0; r->item && i < r->chunk; i++) synth_item_release(&r->item[i]);
    free(r->item);
    free(r->sizes.data);
    sbuf_release(&r->text);
}

cloob_status synth_write(cloob_ctx *ctx, const synth_options *o, synth_result *result)
{
    synth_result own;
    synth_stage stage;
    run r = { .ctx = ctx, .o = o, .r = result ? result : &own, .sizes = { .spaced = true, .lines = 1 } };
    *r.r = (synth_result){ 0 };
    CLOOB_TRY(check_options(ctx, o));
    CLOOB_TRY(synth_stage_begin(ctx, o->out, o->force, &stage));
    json_begin(&r.sizes, NULL, '{');
    cloob_status status = run_begin(&r, &stage);
    if (status == CLOOB_OK) status = write_all(&r);
    run_end(&r);
    if (status == CLOOB_OK) status = synth_stage_publish(ctx, &stage);
    else status = ctx_wrap(ctx, status, "nothing was written to %s", o->out);
    synth_stage_end(&stage);
    r.r->seconds = clock_seconds() - r.began;
    return status;
}
