/* Sources joined into one numbered list, and reading from it. */
#include "data/sets/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "data/sets/dataset_kind.h"
#include "core/option.h"
#include "core/needs.h"

struct cloob_dataset {
    dataset_part *part;
    int64_t *begin; /* (parts + 1): the first sample of each part */
    int parts;
    int64_t num_samples, shuffle_window;
    image_limits limits;
    bool resampled;
    double total_weight;
};

/* ---- one source --------------------------------------------------------------------------------- */

static cloob_status find_kind(cloob_ctx *ctx, const char *source, const dataset_options *o, const dataset_ops **ops)
{
    static const dataset_ops *const all[] = { &dataset_csv,   &dataset_web,   &dataset_folder, &dataset_tarfolder,
                                              &dataset_cifar, &dataset_stl10, &dataset_mnist,  &dataset_random };
    if (!o->type || strcmp(o->type, "auto") == 0) return dataset_detect(ctx, source, o, ops);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *ops = all[i];
        if (strcmp(all[i]->name, o->type) == 0) return CLOOB_OK;
    }
    return ctx_fail(
        ctx, CLOOB_ERR_ARGUMENT,
        "%s: unknown type of data set (auto, csv, webdataset, folder, tarfolder, cifar, stl10, mnist, synthetic)",
        o->type);
}

/* "cifar.tar.gz#train" is the train split of cifar.tar.gz. */
static char *take_split(const char *source, dataset_options *o)
{
    char *copy = strdup(source), *mark = copy ? strrchr(copy, '#') : NULL;
    static const char *const splits[] = { "train", "test", "unlabeled" };
    for (size_t i = 0; mark && i < sizeof splits / sizeof *splits; i++)
        if (strcmp(mark + 1, splits[i]) == 0) {
            o->split = splits[i];
            *mark = '\0';
            break;
        }
    return copy;
}

static cloob_status open_part(cloob_ctx *ctx, const char *named, const dataset_options *o, dataset_part *p)
{
    dataset_options own = *o;
    char *source = take_split(named, &own);
    if (!source) return ctx_no_memory(ctx, strlen(named), named);
    cloob_status status = find_kind(ctx, source, &own, &p->ops);
    if (status == CLOOB_OK) status = p->ops->open(ctx, source, &own, p);
    if (status == CLOOB_OK && p->count == 0)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the data set has no usable sample (%lld skipped)", named,
                          (long long)p->skipped);
    if (status == CLOOB_OK && p->skipped)
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: %lld damaged or incomplete entries left out", named, (long long)p->skipped);
    free(source);
    return status;
}

static void close_part(dataset_part *p)
{
    if (p->ops) p->ops->close(p);
    fileset_destroy(p->files);
    name_list_release(&p->classes);
}

/* ---- joining ------------------------------------------------------------------------------------ */

static cloob_status split_sources(cloob_ctx *ctx, const char *source, name_list *out)
{
    for (const char *at = source;;) {
        const char *stop = strstr(at, "::");
        size_t n = stop ? (size_t)(stop - at) : strlen(at);
        if (!n) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "\"%s\": contains an empty name", source);
        CLOOB_TRY(name_list_add(ctx, out, at, n));
        if (!stop) return CLOOB_OK;
        at = stop + 2;
    }
}

bool dataset_runs_commands(cloob_ctx *ctx, const char *source)
{
    name_list part = { 0 }, name = { 0 };
    cloob_status status = split_sources(ctx, source, &part);
    for (int64_t i = 0; i < part.count && status != CLOOB_ERR_MEMORY; i++)
        status = braces_expand(ctx, part.name[i], &name); /* a bad pattern fails when its shards are opened */
    bool runs = status == CLOOB_ERR_MEMORY;
    for (int64_t i = 0; i < name.count && !runs; i++) runs = strncmp(name.name[i], "pipe:", 5) == 0;
    for (int64_t i = 0; i < part.count && !runs; i++) runs = strncmp(part.name[i], "pipe:", 5) == 0;
    name_list_release(&part);
    name_list_release(&name);
    return runs;
}

/* Classes are numbered by the first source; others must have the same ones. */
static cloob_status compare_classes(cloob_ctx *ctx, const dataset *d)
{
    const name_list *a = &d->part[0].classes;
    for (int i = 1; i < d->parts; i++) {
        const name_list *b = &d->part[i].classes;
        bool same = a->count == b->count && d->part[0].captions == d->part[i].captions;
        for (int64_t c = 0; same && c < a->count; c++) same = strcmp(a->name[c], b->name[c]) == 0;
        if (!same)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "sources joined by :: differ in their classes, or only some have captions");
    }
    return CLOOB_OK;
}

/* Chance of a draw from each source: its factor times its number of samples. */
static cloob_status take_weights(cloob_ctx *ctx, dataset *d, const dataset_options *o)
{
    const char *at = o->upsampling;
    if (at && !o->resampled) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`upsampling` needs `resampled`");
    for (int i = 0; i < d->parts; i++) {
        char *end = NULL;
        double factor = at ? strtod(at, &end) : 1.0;
        bool last = i == d->parts - 1;
        if (at && (end == at || !(factor > 0) || factor > 1e9 || (last ? *end != '\0' : strncmp(end, "::", 2) != 0)))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "upsampling factors \"%s\": must be %d positive numbers joined by ::", o->upsampling,
                            d->parts);
        if (at && !last) at = end + 2;
        d->part[i].weight = factor * (double)d->part[i].count;
        d->total_weight += d->part[i].weight;
    }
    return CLOOB_OK;
}

static cloob_status open_parts(cloob_ctx *ctx, const name_list *names, const dataset_options *o, dataset *d)
{
    d->part = calloc((size_t)names->count, sizeof *d->part);
    d->begin = calloc((size_t)names->count + 1, sizeof *d->begin);
    if (!d->part || !d->begin) return ctx_no_memory(ctx, (size_t)names->count * sizeof *d->part, "the sources");
    for (int64_t i = 0; i < names->count; i++) {
        d->parts++;
        CLOOB_TRY(open_part(ctx, names->name[i], o, &d->part[i]));
        d->begin[i + 1] = d->begin[i] + d->part[i].count;
    }
    CLOOB_TRY(compare_classes(ctx, d));
    return take_weights(ctx, d, o);
}

cloob_status dataset_open(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset **out)
{
    dataset_options own;
    name_list names = { 0 };
    if (o) own = *o;
    else dataset_options_init(&own);
    if (own.cache && strcmp(own.cache, "none") == 0) own.cache = "";
    o = &own;
    *out = NULL;
    if (!source && o->type && strcmp(o->type, "synthetic") == 0) source = "synthetic";
    if (!source) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "no data set is given");
    dataset *d = calloc(1, sizeof *d);
    if (!d) return ctx_no_memory(ctx, sizeof *d, "a data set");
    d->num_samples = o->num_samples;
    d->resampled = o->resampled;
    d->limits = (image_limits){ o->max_pixels, 8, o->exif_orientation };
    d->shuffle_window = o->shuffle_window > 0 ? o->shuffle_window : 0;
    cloob_status status = split_sources(ctx, source, &names);
    if (status == CLOOB_OK) status = open_parts(ctx, &names, o, d);
    name_list_release(&names);
    if (status == CLOOB_OK) *out = d;
    else dataset_close(d);
    return status;
}

void dataset_close(dataset *d)
{
    if (!d) return;
    for (int i = 0; i < d->parts; i++) close_part(&d->part[i]);
    free(d->part);
    free(d->begin);
    free(d);
}

/* ---- queries ------------------------------------------------------------------------------------ */

int64_t dataset_count(const dataset *d) { return d->begin[d->parts]; }

int64_t dataset_epoch_samples(const dataset *d)
{
    int64_t all = dataset_count(d);
    if (d->num_samples <= 0) return all;
    return d->resampled || d->num_samples < all ? d->num_samples : all;
}

int64_t dataset_class_count(const dataset *d) { return d->part[0].classes.count; }
const char *dataset_class_name(const dataset *d, int64_t c) { return d->part[0].classes.name[c]; }
bool dataset_has_captions(const dataset *d) { return d->part[0].captions; }
bool dataset_has_targets(const dataset *d) { return d->part[0].targets; }

image_limits dataset_image_limits(const dataset *d) { return d->limits; }

int64_t dataset_skipped(const dataset *d)
{
    int64_t n = 0;
    for (int i = 0; i < d->parts; i++) n += d->part[i].skipped;
    return n;
}

const char *dataset_kind(const dataset *d)
{
    for (int i = 1; i < d->parts; i++)
        if (d->part[i].ops != d->part[0].ops) return "several";
    return d->part[0].ops->name;
}

int64_t dataset_file_count(const dataset *d)
{
    int64_t n = 0;
    for (int i = 0; i < d->parts; i++)
        if (d->part[i].files) n += fileset_count(d->part[i].files);
    return n;
}

int64_t dataset_draw(const dataset *d, uint64_t key, int64_t position)
{
    if (!d->resampled) return order_shuffle(key, position, dataset_count(d), d->shuffle_window);
    double at = rng_uniform(key, 2 * (uint64_t)position) * d->total_weight;
    int k = 0;
    while (k < d->parts - 1 && at >= d->part[k].weight) at -= d->part[k++].weight;
    return d->begin[k] + (int64_t)rng_below(key, 2 * (uint64_t)position + 1, (uint64_t)d->part[k].count);
}

/* ---- reading ------------------------------------------------------------------------------------ */

static int find_part(const dataset *d, int64_t i)
{
    int low = 0, high = d->parts - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (d->begin[middle] <= i) low = middle;
        else high = middle - 1;
    }
    return low;
}

cloob_status dataset_fetch(cloob_ctx *ctx, const dataset *d, int64_t i, uint64_t pick, int what, stored_sample *s)
{
    if (i < 0 || i >= dataset_count(d))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "sample %lld of %lld", (long long)i, (long long)dataset_count(d));
    int k = find_part(d, i);
    s->size = 0;
    s->width = s->height = 0;
    s->caption.len = s->name.len = 0;
    s->captions = d->part[k].captions ? 1 : 0;
    s->label = -1;
    cloob_status status = d->part[k].ops->fetch(ctx, &d->part[k], i - d->begin[k], pick, what, s);
    return status == CLOOB_OK && s->name.failed ? ctx_no_memory(ctx, 64, "the name of a sample") : status;
}

void stored_sample_release(stored_sample *s)
{
    free(s->data);
    sbuf_release(&s->caption);
    sbuf_release(&s->name);
    sbuf_release(&s->scratch);
    *s = (stored_sample){ 0 };
}

/* The image itself: decoded, or the raw pixels handed over. */
static cloob_status take_image(cloob_ctx *ctx, const dataset *d, stored_sample *s, const image_limits *limits,
                               image *out)
{
    if (!s->width) return image_decode(ctx, s->data, s->size, s->name.data, limits ? limits : &d->limits, out);
    *out = (image){ .rgb = s->data, .width = s->width, .height = s->height };
    s->data = NULL;
    s->capacity = 0;
    return CLOOB_OK;
}

cloob_status dataset_read(cloob_ctx *ctx, const dataset *d, int64_t i, uint64_t pick, const image_limits *limits,
                          sample *out)
{
    stored_sample s = { 0 };
    *out = (sample){ .label = -1 };
    cloob_status status = dataset_fetch(ctx, d, i, pick, FETCH_IMAGE | FETCH_CAPTION, &s);
    if (status == CLOOB_OK) status = take_image(ctx, d, &s, limits, &out->im);
    if (status == CLOOB_OK) {
        out->label = s.label;
        if (s.caption.len) out->caption = out->caption_buffer = sbuf_detach(&s.caption);
    }
    stored_sample_release(&s);
    return status;
}

void sample_release(sample *s)
{
    image_release(&s->im);
    free(s->caption_buffer);
    *s = (sample){ .label = -1 };
}

cloob_status dataset_caption(cloob_ctx *ctx, const dataset *d, int64_t i, uint64_t pick, char **text)
{
    stored_sample s = { 0 };
    *text = NULL;
    cloob_status status = dataset_fetch(ctx, d, i, pick, FETCH_CAPTION, &s);
    if (status == CLOOB_OK && !s.caption.len)
        status = ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: the data set has no captions", s.name.data);
    if (status == CLOOB_OK) {
        *text = sbuf_detach(&s.caption);
        if (!*text) status = ctx_no_memory(ctx, 1, "a caption");
    }
    stored_sample_release(&s);
    return status;
}

/* ---- order of an epoch ----------------------------------------------------------------------------- */

enum { STRETCHES = 16 }; /* stretches mixed at a time */

int64_t order_shuffle(uint64_t key, int64_t position, int64_t n, int64_t window)
{
    int64_t stretch = window / STRETCHES, count = stretch ? n / stretch : 0;
    if (count <= STRETCHES) return (int64_t)rng_permute(key, (uint64_t)position, (uint64_t)n);
    int64_t at = position; /* samples after the last whole stretch keep their position */
    if (position < count * stretch) {
        int64_t w = position / (STRETCHES * stretch), left = count - w * STRETCHES;
        int64_t size = (left < STRETCHES ? left : STRETCHES) * stretch;
        uint64_t within = (uint64_t)(position - w * STRETCHES * stretch);
        int64_t mixed = (int64_t)rng_permute(rng_subkey(key, (uint64_t)w), within, (uint64_t)size);
        int64_t which = (int64_t)rng_permute(key, (uint64_t)(w * STRETCHES + mixed / stretch), (uint64_t)count);
        at = which * stretch + mixed % stretch;
    }
    /* Rotates by a random amount, so that stretches begin at another sample in every epoch. */
    return (at + (int64_t)rng_below(key, UINT64_MAX, (uint64_t)n)) % n;
}

/* ---- options, from their table ---- */

static const option_desc table[] = {
#define CLOOB_OPTION_NAMED(...) OPTION_ROW(cloob_data_options, , __VA_ARGS__)
#include "cloob/data_options.def"
};

const option_desc *data_option_table(int64_t *count) { return OPTION_TABLE(table, count); }

void dataset_options_init(dataset_options *o)
{
    *o = (dataset_options){ .size = sizeof *o };
    OPTION_DEFAULTS(table, o);
}

dataset_options dataset_options_of_images(const dataset_options *training)
{
    dataset_options o;
    dataset_options_init(&o);
    o.max_pixels = training->max_pixels, o.exif_orientation = training->exif_orientation, o.cache = training->cache;
    return o;
}

/* ---- the public interface ---------------------------------------------------------------------------- */

void cloob_data_options_init_size(cloob_data_options *o, size_t size)
{
    cloob_data_options d;
    dataset_options_init(&d);
    options_write(o, size, &d, sizeof d);
}

cloob_status cloob_dataset_open(cloob_ctx *ctx, const char *source, const cloob_data_options *o, cloob_dataset **out)
{
    API_NEEDS(ctx, out && (source || o));
    *out = NULL;
    OPTIONS_READ(ctx, cloob_data_options, o);
    return dataset_open(ctx, source, o, out);
}

void cloob_dataset_close(cloob_dataset *d) { dataset_close(d); }
