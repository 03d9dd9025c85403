/* Raw pixels: CIFAR-10/100, STL-10 and MNIST, whose images are fixed-size records of planes, read in place; and random
 * images. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/rng.h"
#include "data/sets/dataset_kind.h"

/* One file of images. The planes are the last bytes of a record. */
typedef struct raw_kind {
    const dataset_ops *set;
    const char *split, *images;
    const char *labels;  /* a file with a byte per image; NULL: none, or in the record */
    const char *classes; /* a file with a name per line; NULL: none, or the numbers of the labels */
    bool idx;            /* MNIST's files: a big-endian header with a type byte and sizes, then bytes */
    int side, planes;    /* images are side x side; planes: 3, or 1 for grey */
    int label_bytes;     /* of a record, the last of them is the class (CIFAR-100: coarse, then fine) */
    int first_label;     /* in the file of labels */
    bool by_columns;
} raw_kind;

static const raw_kind kinds[] = {
    { &dataset_cifar, "train", "data_batch_1.bin", NULL, "batches.meta.txt", false, 32, 3, 1, 0, false },
    { &dataset_cifar, "train", "data_batch_2.bin", NULL, "batches.meta.txt", false, 32, 3, 1, 0, false },
    { &dataset_cifar, "train", "data_batch_3.bin", NULL, "batches.meta.txt", false, 32, 3, 1, 0, false },
    { &dataset_cifar, "train", "data_batch_4.bin", NULL, "batches.meta.txt", false, 32, 3, 1, 0, false },
    { &dataset_cifar, "train", "data_batch_5.bin", NULL, "batches.meta.txt", false, 32, 3, 1, 0, false },
    { &dataset_cifar, "test", "test_batch.bin", NULL, "batches.meta.txt", false, 32, 3, 1, 0, false },
    { &dataset_cifar, "train", "train.bin", NULL, "fine_label_names.txt", false, 32, 3, 2, 0, false },
    { &dataset_cifar, "test", "test.bin", NULL, "fine_label_names.txt", false, 32, 3, 2, 0, false },
    { &dataset_stl10, "train", "train_X.bin", "train_y.bin", "class_names.txt", false, 96, 3, 0, 1, true },
    { &dataset_stl10, "test", "test_X.bin", "test_y.bin", "class_names.txt", false, 96, 3, 0, 1, true },
    { &dataset_stl10, "unlabeled", "unlabeled_X.bin", NULL, NULL, false, 96, 3, 0, 0, true },
    { &dataset_mnist, "train", "train-images-idx3-ubyte", "train-labels-idx1-ubyte", NULL, true, 0, 1, 0, 0, false },
    { &dataset_mnist, "test", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", NULL, true, 0, 1, 0, 0, false },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct raw_file {
    int file;
    int64_t offset, size;
} raw_file;

typedef struct raw_run {
    const raw_kind *kind;
    raw_file at;
    int64_t side, record, count; /* record: bytes of one */
    unsigned char *labels;       /* (count) from the other file, or NULL; owned */
} raw_run;

typedef struct raw_set {
    char *folder; /* of the files; NULL: they are in the tar */
    tar_index tar;
    raw_run run[KINDS];
    int runs;
} raw_set;

/* ---- the files, by name, in a folder or in a tar ------------------------------------------------------ */

/* The source is a folder, a tar (plain or gzip), or one of the files itself. */
static cloob_status find_folder(cloob_ctx *ctx, const char *source, dataset_part *p)
{
    raw_set *r = p->self;
    int file;
    if (!name_is_tar(source) || file_is_dir(source)) {
        r->folder = file_is_dir(source) ? strdup(source) : file_folder(source);
        return r->folder ? CLOOB_OK : ctx_no_memory(ctx, strlen(source), source);
    }
    CLOOB_TRY(fileset_add(ctx, p->files, source, &file));
    CLOOB_TRY(fileset_open(ctx, p->files, file));
    return tar_open(ctx, p->files, file, &r->tar);
}

/* Opens a file, which in a folder may have been packed by gzip. *found: false where there is none. */
static cloob_status find_file(cloob_ctx *ctx, dataset_part *p, const char *name, raw_file *at, bool *found)
{
    raw_set *r = p->self;
    char path[FILE_PATH], packed[64];
    *found = false;
    for (int64_t i = 0; i < r->tar.count && !*found; i++)
        if ((*found = strcmp(file_base(tar_name(&r->tar, i)), name) == 0))
            *at = (raw_file){ 0, r->tar.member[i].offset, r->tar.member[i].size };
    snprintf(packed, sizeof packed, "%s.gz", name);
    for (int gz = 0; r->folder && gz < 2 && !*found; gz++) {
        CLOOB_TRY(file_in(ctx, r->folder, gz ? packed : name, path));
        if (!(*found = file_exists(path))) continue;
        CLOOB_TRY(fileset_add(ctx, p->files, path, &at->file));
        CLOOB_TRY(fileset_open(ctx, p->files, at->file));
        at->offset = 0;
        at->size = fileset_size(p->files, at->file);
    }
    return CLOOB_OK;
}

static cloob_status need_file(cloob_ctx *ctx, dataset_part *p, const char *name, raw_file *at)
{
    bool found;
    CLOOB_TRY(find_file(ctx, p, name, at, &found));
    return found ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s is missing in the data set", name);
}

/* All of a small file, zero-terminated; the caller frees. */
static cloob_status read_all(cloob_ctx *ctx, const dataset_part *p, const raw_file *at, const char *name, char **text)
{
    size_t n = (size_t)at->size;
    *text = malloc(n + 1);
    if (!*text) return ctx_no_memory(ctx, n, name);
    (*text)[n] = '\0';
    cloob_status status = fileset_read(ctx, p->files, at->file, at->offset, *text, n);
    if (status != CLOOB_OK) free(*text), *text = NULL;
    return status;
}

/* Moves `at` behind the header of an idx file with `dims` sizes. */
static cloob_status skip_idx_header(cloob_ctx *ctx, const dataset_part *p, const char *name, int dims, raw_file *at,
                                    int64_t sizes[3])
{
    unsigned char head[16];
    int64_t bytes = 4 + 4 * dims, total = 1;
    if (at->size < bytes) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: too short for an idx file", name);
    CLOOB_TRY(fileset_read(ctx, p->files, at->file, at->offset, head, (size_t)bytes));
    if (head[0] || head[1] || head[2] != 8 || head[3] != dims)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not an idx file of bytes with %d dimensions", name, dims);
    for (int i = 0; i < dims; i++) {
        const unsigned char *b = head + 4 + 4 * i;
        sizes[i] = (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
        if (sizes[i] && total > at->size / sizes[i]) total = -1;
        if (total >= 0) total *= sizes[i];
    }
    at->offset += bytes;
    at->size -= bytes;
    if (total == at->size) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the number of bytes in the header differs from the file's", name);
}

/* ---- opening --------------------------------------------------------------------------------------- */

static cloob_status read_labels(cloob_ctx *ctx, dataset_part *p, raw_run *run)
{
    const raw_kind *k = run->kind;
    raw_file at;
    int64_t sizes[3];
    CLOOB_TRY(need_file(ctx, p, k->labels, &at));
    if (k->idx) CLOOB_TRY(skip_idx_header(ctx, p, k->labels, 1, &at, sizes));
    if (at.size != run->count)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld labels for %lld images", k->labels, (long long)at.size,
                        (long long)run->count);
    CLOOB_TRY(read_all(ctx, p, &at, k->labels, (char **)&run->labels));
    for (int64_t i = 0; i < run->count; i++) {
        if (run->labels[i] < k->first_label)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a label below %d", k->labels, k->first_label);
        run->labels[i] = (unsigned char)(run->labels[i] - k->first_label);
    }
    return CLOOB_OK;
}

static cloob_status add_run(cloob_ctx *ctx, dataset_part *p, const raw_kind *k, raw_file at)
{
    raw_set *r = p->self;
    raw_run *run = &r->run[r->runs++];
    int64_t sizes[3] = { 0, k->side, k->side };
    if (k->idx) CLOOB_TRY(skip_idx_header(ctx, p, k->images, 3, &at, sizes));
    if (sizes[1] != sizes[2] || sizes[1] < 1)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: images are not square", k->images);
    *run = (raw_run){ .kind = k, .at = at, .side = sizes[1] };
    run->record = k->label_bytes + k->planes * run->side * run->side;
    run->count = at.size / run->record;
    p->count += run->count;
    if (at.size == 0 || at.size % run->record != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes are not a whole number of %lld-byte records", k->images,
                        (long long)at.size, (long long)run->record);
    return k->labels ? read_labels(ctx, p, run) : CLOOB_OK;
}

/* Class names, one per line. */
static cloob_status read_classes(cloob_ctx *ctx, dataset_part *p, const char *name)
{
    raw_file at;
    char *text;
    CLOOB_TRY(need_file(ctx, p, name, &at));
    if (at.size > 1 << 20) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: too long for names of classes", name);
    CLOOB_TRY(read_all(ctx, p, &at, name, &text));
    cloob_status status = CLOOB_OK;
    for (char *line = text; *line && status == CLOOB_OK;) {
        size_t n = strcspn(line, "\r\n");
        for (size_t i = 0; i < n; i++)
            if (line[i] == '_') line[i] = ' '; /* "aquarium_fish" becomes words, for prompts */
        if (n) status = name_list_add(ctx, &p->classes, line, n);
        line += n;
        line += strspn(line, "\r\n");
    }
    free(text);
    if (status == CLOOB_OK && !p->classes.count) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: names no class", name);
    return status;
}

/* Without names, classes are the digits, or numbers up to the largest label. */
static cloob_status number_classes(cloob_ctx *ctx, dataset_part *p, const raw_run *run)
{
    int largest = 9;
    for (int64_t i = 0; i < run->count; i++)
        if (run->labels[i] > largest) largest = run->labels[i];
    for (int c = 0; c <= largest; c++) {
        char text[8];
        int n = snprintf(text, sizeof text, "%d", c);
        CLOOB_TRY(name_list_add(ctx, &p->classes, text, (size_t)n));
    }
    return CLOOB_OK;
}

/* Packed by gzip or not. */
static bool is_called(const raw_kind *k, const char *name)
{
    size_t n = strlen(k->images);
    return strncmp(name, k->images, n) == 0 && (!name[n] || strcmp(name + n, ".gz") == 0);
}

const dataset_ops *raw_set_of(const char *name)
{
    for (const raw_kind *k = kinds; k < kinds + KINDS; k++)
        if (is_called(k, name)) return k->set;
    return NULL;
}

/* Whether the source names this file; of folders and tars the split decides, which is test by default. */
static bool wants(const raw_kind *k, const char *source, const dataset_options *o)
{
    if (!file_is_dir(source) && !name_is_tar(source)) return is_called(k, file_base(source));
    return strcmp(k->split, o->split ? o->split : "test") == 0;
}

static cloob_status open_raw(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    raw_set *r = p->self = calloc(1, sizeof *r);
    if (!r) return ctx_no_memory(ctx, sizeof *r, source);
    CLOOB_TRY(fileset_create(ctx, o->cache, &p->files));
    CLOOB_TRY(find_folder(ctx, source, p));
    for (const raw_kind *k = kinds; k < kinds + KINDS; k++) {
        raw_file at = { 0 };
        bool found;
        if (k->set != p->ops || !wants(k, source, o)) continue;
        CLOOB_TRY(find_file(ctx, p, k->images, &at, &found));
        if (found) CLOOB_TRY(add_run(ctx, p, k, at));
    }
    if (!r->runs)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no %s files of the %s split", source, p->ops->name,
                        o->split ? o->split : "test");
    const raw_run *first = &r->run[0];
    if (first->kind->classes) CLOOB_TRY(read_classes(ctx, p, first->kind->classes));
    else if (first->labels) CLOOB_TRY(number_classes(ctx, p, first));
    for (int64_t i = 0; first->labels && i < first->count; i++)
        if (first->labels[i] >= p->classes.count)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: label %d is outside the %lld classes", first->kind->labels,
                            first->labels[i], (long long)p->classes.count);
    return CLOOB_OK;
}

static void close_raw(dataset_part *p)
{
    raw_set *r = p->self;
    if (!r) return;
    for (int i = 0; i < r->runs; i++) free(r->run[i].labels);
    tar_release(&r->tar);
    free(r->folder);
    free(r);
}

/* ---- reading --------------------------------------------------------------------------------------- */

/* Planes to interleaved pixels; one plane becomes three. */
static void unpack(const raw_run *run, const unsigned char *in, unsigned char *out)
{
    int64_t side = run->side, plane = run->kind->planes == 3 ? side * side : 0;
    for (int64_t y = 0; y < side; y++)
        for (int64_t x = 0; x < side; x++)
            for (int64_t c = 0; c < 3; c++)
                *out++ = in[c * plane + (run->kind->by_columns ? x * side + y : y * side + x)];
}

/* Refuses labels that are not below the number of classes: evaluations index by them. */
static cloob_status set_label(cloob_ctx *ctx, const dataset_part *p, int64_t label, stored_sample *s)
{
    s->label = label;
    if (label < p->classes.count) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: class %lld of %lld", s->name.data, (long long)label,
                    (long long)p->classes.count);
}

static cloob_status fetch_raw(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                              stored_sample *s)
{
    const raw_run *run = ((const raw_set *)p->self)->run;
    (void)pick;
    while (i >= run->count) i -= run++->count;
    sbuf_printf(&s->name, "%s: image %lld", fileset_name(p->files, run->at.file), (long long)i);
    if (run->labels) CLOOB_TRY(set_label(ctx, p, run->labels[i], s));
    int label_bytes = run->kind->label_bytes;
    if (!(what & FETCH_IMAGE) && !label_bytes) return CLOOB_OK;
    size_t rgb = (size_t)(run->side * run->side * 3), bytes = (size_t)run->record;
    CLOOB_TRY(stored_reserve(ctx, s, rgb + bytes));
    unsigned char *record = s->data + rgb; /* after the pixels */
    CLOOB_TRY(fileset_read(ctx, p->files, run->at.file, run->at.offset + i * run->record, record, bytes));
    if (label_bytes) CLOOB_TRY(set_label(ctx, p, record[label_bytes - 1], s));
    unpack(run, record + label_bytes, s->data);
    s->size = rgb;
    s->width = s->height = run->side;
    return CLOOB_OK;
}

const dataset_ops dataset_cifar = { "cifar", open_raw, close_raw, fetch_raw };
const dataset_ops dataset_stl10 = { "stl10", open_raw, close_raw, fetch_raw };
const dataset_ops dataset_mnist = { "mnist", open_raw, close_raw, fetch_raw };

/* ---- random images with random captions, for benchmarks and a first run without data: sample i is a pure function of
 * (seed, i) */

enum { SIDE = 224, DEFAULT_COUNT = 100, WORDS = 8 };

static cloob_status open_random(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    uint64_t *key = p->self = malloc(sizeof *key);
    if (!key) return ctx_no_memory(ctx, sizeof *key, source);
    *key = rng_key(o->seed, "data/synthetic");
    p->count = o->num_samples > 0 ? o->num_samples : DEFAULT_COUNT;
    p->captions = true;
    return CLOOB_OK;
}

static void close_random(dataset_part *p) { free(p->self); }

static cloob_status put_caption(cloob_ctx *ctx, uint64_t key, stored_sample *s)
{
    static const char *const word[] = { "red",  "green", "small", "large",  "two", "old",   "house", "tree",
                                        "bird", "boat",  "river", "street", "at",  "under", "near",  "morning" };
    char text[128] = "";
    for (int i = 0; i < WORDS; i++) {
        if (i) strcat(text, " ");
        strcat(text, word[rng_below(key, (uint64_t)i, sizeof word / sizeof *word)]);
    }
    return stored_caption(ctx, text, strlen(text), s);
}

static cloob_status fetch_random(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                                 stored_sample *s)
{
    uint64_t key = rng_subkey(*(const uint64_t *)p->self, (uint64_t)i);
    size_t bytes = (size_t)SIDE * SIDE * 3;
    (void)pick;
    sbuf_printf(&s->name, "synthetic sample %lld", (long long)i);
    if (what & FETCH_CAPTION) CLOOB_TRY(put_caption(ctx, key, s));
    if (!(what & FETCH_IMAGE)) return CLOOB_OK;
    CLOOB_TRY(stored_reserve(ctx, s, bytes));
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t eight = rng_u64(key, at + WORDS);
        memcpy(s->data + at, &eight, sizeof eight);
    }
    s->size = bytes;
    s->width = s->height = SIDE;
    return CLOOB_OK;
}

const dataset_ops dataset_random = { "synthetic", open_random, close_random, fetch_random };
