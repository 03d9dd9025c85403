/* Writing a set: training and validation pairs as files or shards, test folders, ground truth. */
#include "lab/synth/write.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/pool.h"
#include "io/image/image.h"
#include "lab/memory.h"

#define MAX_COUNT 10000000

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
    const struct {
        const char *what;
        double value, low, high;
    } rules[] = {
        { "training pairs", (double)o->count, 1, MAX_COUNT },
        { "validation pairs", (double)o->val_count, -INFINITY, MAX_COUNT },
        { "test images of a class", (double)o->per_class, -INFINITY, 100000 },
        { "pixels a side", (double)o->size, SYNTH_MIN_SIZE, SYNTH_MAX_SIZE },
        { "strength", o->strength, 0, 1 },
        { "samples of a shard", (double)o->shard_samples, 1, MAX_COUNT },
    };
    if (!o->out || !o->out[0]) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "no folder to write to: give `out`");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!(rules[i].value >= rules[i].low && rules[i].value <= rules[i].high))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %.10g is not between %.10g and %.10g", rules[i].what,
                            rules[i].value, fmax(0, rules[i].low), rules[i].high);
    return CLOOB_OK;
}

/* ---- images: one range of items per thread ------------------------------------------------------- */

enum { JPEG_QUALITY = 92, GRAIN = 4 };

/* Not flushed to disk one by one: the set can be regenerated. */
static cloob_status write_image(cloob_ctx *ctx, const char *path, const sbuf *bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f) return file_fail(ctx, path, "cannot create");
    bool written = fwrite(bytes->data, 1, bytes->len, f) == bytes->len;
    if (fclose(f) == 0 && written) return CLOOB_OK;
    return file_fail(ctx, path, "cannot write");
}

typedef struct batch {
    int64_t size;
    synth_item *item;
} batch;

static cloob_status make_item(cloob_ctx *ctx, int64_t size, uint8_t *rgb, synth_item *item)
{
    CLOOB_TRY(synth_render(ctx, &item->scene, size, rgb));
    item->encoded.len = 0;
    CLOOB_TRY(image_encode_jpeg(ctx, rgb, size, size, JPEG_QUALITY, &item->encoded));
    return item->path[0] ? write_image(ctx, item->path, &item->encoded) : CLOOB_OK;
}

static cloob_status make_items(cloob_ctx *ctx, void *arg, int64_t begin, int64_t end, int thread)
{
    const batch *b = arg;
    uint8_t *rgb = must(malloc((size_t)(b->size * b->size * 3)));
    cloob_status status = CLOOB_OK;
    (void)thread;
    for (int64_t i = begin; i < end && status == CLOOB_OK; i++) status = make_item(ctx, b->size, rgb, &b->item[i]);
    free(rgb);
    return status;
}

cloob_status synth_batch(cloob_ctx *ctx, int64_t size, synth_item *item, int64_t n)
{
    return pool_try(ctx, n, GRAIN, make_items, &(batch){ size, item });
}

/* ---- the state of a run -------------------------------------------------------------------------- */

typedef struct run {
    cloob_ctx *ctx;
    const synth_options *o;
    synth_world world;
    FILE *factors, *naming, *pairs, *tar;
    json_out sizes; /* of shards; open until the end */
    synth_item *item;
    int64_t chunk; /* items drawn at a time */
    sbuf text;     /* scratch */
    int64_t done, all;
    synth_result *r;
} run;

static cloob_status open_file(run *r, const char *name, FILE **f)
{
    char path[FILE_PATH];
    CLOOB_TRY(file_in(r->ctx, r->o->out, name, path));
    *f = fopen(path, "wb");
    return *f ? CLOOB_OK : file_fail(r->ctx, path, "cannot create");
}

static cloob_status make_folder(run *r, const char *name)
{
    char path[FILE_PATH];
    CLOOB_TRY(file_in(r->ctx, r->o->out, name, path));
    return file_make_dirs(r->ctx, path);
}

/* Appends the scratch text to a file and empties it; write errors stay with the stream until it is closed. */
static void flush_text(run *r, FILE *f)
{
    fwrite(r->text.data, 1, r->text.len, f);
    r->text.len = 0;
}

/* ---- the parts of a set: training pairs, validation pairs, and a test of each factor --------------- */

typedef struct part {
    const char *split;
    bool pairs;          /* with captions */
    synth_factor factor; /* of a test */
    int64_t count;
} part;

static bool in_shards(const run *r, const part *p) { return p->pairs && r->o->format == SYNTH_WEBDATASET; }

static void name_item(const run *r, const part *p, int64_t i, synth_item *item)
{
    char shard[64] = "images";
    const synth_factor_row *row = &synth_factors[p->factor];
    if (in_shards(r, p)) snprintf(shard, sizeof shard, "%s-%05lld.tar", p->split, (long long)(i / r->o->shard_samples));
    if (p->pairs) snprintf(item->name, sizeof item->name, "%s/%s-%07lld.jpg", shard, p->split, (long long)i);
    else
        snprintf(item->name, sizeof item->name, "classes/%s/%s/%05lld.jpg", row->name,
                 row->value[item->scene.value[p->factor]].name, (long long)(i / row->count));
    if (in_shards(r, p)) item->path[0] = '\0';
    else snprintf(item->path, sizeof item->path, "%s/%s", r->o->out, item->name);
}

/* Opens the shard of pair i, if it is the first of one. */
static cloob_status next_shard(run *r, const part *p, int64_t i)
{
    char name[64];
    int64_t left = p->count - i, most = r->o->shard_samples;
    if (i % most != 0) return CLOOB_OK;
    CLOOB_TRY(synth_tar_close(r->ctx, &r->tar));
    snprintf(name, sizeof name, "%s-%05lld.tar", p->split, (long long)(i / most));
    json_put_int(&r->sizes, name, left < most ? left : most);
    r->r->shards++;
    return open_file(r, name, &r->tar);
}

static void add_member(run *r, const synth_item *item, const char *suffix, const sbuf *content)
{
    const char *stem = strrchr(item->name, '/') + 1;
    char name[100];
    snprintf(name, sizeof name, "%.*s.%s", (int)strcspn(stem, "."), stem, suffix);
    synth_tar_add(r->tar, name, content->data, content->len);
}

static cloob_status put_pair(run *r, const part *p, int64_t i, const synth_item *item)
{
    if (!in_shards(r, p)) {
        sbuf_printf(&r->text, "%s\t", item->name);
        synth_caption(&item->scene, &r->text);
        sbuf_putc(&r->text, '\n');
        flush_text(r, r->pairs);
        return CLOOB_OK;
    }
    CLOOB_TRY(next_shard(r, p, i));
    add_member(r, item, "jpg", &item->encoded);
    synth_caption(&item->scene, &r->text);
    add_member(r, item, "txt", &r->text);
    r->text.len = 0;
    synth_put_truth(&r->text, &item->scene);
    add_member(r, item, "json", &r->text);
    r->text.len = 0;
    return CLOOB_OK;
}

static cloob_status write_chunk(run *r, const part *p, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        synth_item *item = &r->item[i - begin];
        if (p->pairs) synth_draw(&r->world, p->split[0] == 't' ? SYNTH_TRAIN : SYNTH_VAL, i, &item->scene);
        else synth_draw_test(&r->world, p->factor, i, &item->scene);
        name_item(r, p, i, item);
    }
    CLOOB_TRY(synth_batch(r->ctx, r->o->size, r->item, end - begin));
    for (int64_t i = begin; i < end; i++) {
        const synth_item *item = &r->item[i - begin];
        r->r->bytes += (int64_t)item->encoded.len;
        if (p->pairs) CLOOB_TRY(put_pair(r, p, i, item));
        synth_put_row(&r->text, SYNTH_VALUES, item->name, p->split, &item->scene);
        flush_text(r, r->factors);
        synth_put_row(&r->text, SYNTH_NAMING, item->name, p->split, &item->scene);
        flush_text(r, r->naming);
    }
    ctx_progress(r->ctx, "synth", r->done += end - begin, r->all, "images");
    return CLOOB_OK;
}

static cloob_status write_part(run *r, const part *p)
{
    char list[64];
    const synth_factor_row *row = &synth_factors[p->factor];
    snprintf(list, sizeof list, "%s.tsv", p->split);
    if (p->pairs && !in_shards(r, p)) {
        CLOOB_TRY(open_file(r, list, &r->pairs));
        fputs("filepath\ttitle\n", r->pairs);
    }
    for (int v = 0; !p->pairs && v < row->count; v++) {
        char folder[128];
        snprintf(folder, sizeof folder, "classes/%s/%s", row->name, row->value[v].name);
        CLOOB_TRY(make_folder(r, folder));
    }
    for (int64_t i = 0; i < p->count; i += r->chunk)
        CLOOB_TRY(write_chunk(r, p, i, i + r->chunk < p->count ? i + r->chunk : p->count));
    CLOOB_TRY(synth_tar_close(r->ctx, &r->tar));
    return synth_close(r->ctx, list, &r->pairs);
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static cloob_status write_text(run *r, const char *name)
{
    cloob_status status = file_write_in(r->ctx, r->o->out, name, &r->text);
    r->text.len = 0;
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
    CLOOB_TRY(open_file(r, "factors.tsv", &r->factors));
    CLOOB_TRY(open_file(r, "naming.tsv", &r->naming));
    synth_put_header(&r->text, SYNTH_VALUES);
    flush_text(r, r->factors);
    synth_put_header(&r->text, SYNTH_NAMING);
    flush_text(r, r->naming);
    CLOOB_TRY(write_part(r, &(part){ "train", true, .count = r->r->train }));
    CLOOB_TRY(write_part(r, &(part){ "val", true, .count = r->r->val }));
    for (int f = 0; f < SYNTH_FACTORS; f++)
        CLOOB_TRY(
            write_part(r, &(part){ "test", false, (synth_factor)f, synth_per_class(r->o) * synth_factors[f].count }));
    CLOOB_TRY(synth_close(r->ctx, "factors.tsv", &r->factors));
    CLOOB_TRY(synth_close(r->ctx, "naming.tsv", &r->naming));
    return write_descriptions(r);
}

/* Enough items to keep the threads busy for about half a second, which is how often progress shows; fewer when images
 * are large: about 32 MB of JPEG. */
static int64_t chunk_items(int64_t size)
{
    int64_t n = ((int64_t)1 << 24) / (size * size);
    return n < 32 ? 32 : n > 512 ? 512 : n;
}

static void run_begin(run *r)
{
    r->world = (synth_world){ r->o->seed, r->o->strength };
    r->chunk = chunk_items(r->o->size);
    r->item = must(calloc((size_t)r->chunk, sizeof *r->item));
    r->r->train = r->o->count, r->r->val = synth_val_count(r->o);
    for (int f = 0; f < SYNTH_FACTORS; f++) r->r->test += synth_per_class(r->o) * synth_factors[f].count;
    r->all = r->r->train + r->r->val + r->r->test;
    json_begin(&r->sizes, NULL, '{');
    ctx_progress(r->ctx, "synth", 0, r->all, "images");
}

static void run_end(run *r)
{
    FILE *const open[] = { r->factors, r->naming, r->pairs, r->tar };
    for (int i = 0; i < 4; i++)
        if (open[i]) fclose(open[i]);
    for (int64_t i = 0; i < r->chunk; i++) sbuf_release(&r->item[i].encoded);
    free(r->item);
    free(r->sizes.data);
    sbuf_release(&r->text);
}

cloob_status synth_write(cloob_ctx *ctx, const synth_options *o, synth_result *result)
{
    synth_result own;
    double began = clock_seconds();
    run r = { .ctx = ctx, .o = o, .r = result ? result : &own, .sizes = { .spaced = true, .lines = 1 } };
    *r.r = (synth_result){ 0 };
    CLOOB_TRY(check_options(ctx, o));
    CLOOB_TRY(synth_folder_begin(ctx, o->out, o->force));
    run_begin(&r);
    cloob_status status = write_all(&r);
    run_end(&r);
    if (status != CLOOB_OK) status = ctx_wrap(ctx, status, "%s is unfinished", o->out);
    r.r->seconds = clock_seconds() - began;
    return status;
}
