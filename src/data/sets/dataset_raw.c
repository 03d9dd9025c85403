/* CIFAR-10/100, STL-10 and MNIST: images are fixed-size records of raw planes, read in place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "data/sets/dataset_kind.h"

/* ---- the files, by name, in a folder or in a tar ------------------------------------------------------ */

typedef struct raw_file {
    int file;
    int64_t offset, size;
} raw_file;

typedef struct item {
    char *name, *path; /* path: NULL inside a tar */
    raw_file at;       /* file -1: not opened yet */
} item;

typedef struct raw_files {
    fileset *files;
    item *item;
    int64_t count, capacity;
} raw_files;

static cloob_status add(cloob_ctx *ctx, raw_files *b, const char *name, char *path, raw_file at)
{
    if (!heap_grow(&b->item, b->count, &b->capacity, sizeof *b->item)) {
        free(path);
        return ctx_no_memory(ctx, (size_t)b->count * sizeof *b->item, "a list of files");
    }
    item i = { strdup(name), path, at };
    b->item[b->count++] = i;
    return i.name ? CLOOB_OK : ctx_no_memory(ctx, strlen(name), "a file name");
}

static cloob_status list_folder(cloob_ctx *ctx, raw_files *b, const char *path)
{
    name_list names = { 0 };
    cloob_status status = name_list_folder(ctx, &names, path);
    for (int64_t i = 0; status == CLOOB_OK && i < names.count; i++) {
        char *full = file_join(path, names.name[i]);
        status = full ? add(ctx, b, names.name[i], full, (raw_file){ -1, 0, 0 }) : ctx_no_memory(ctx, 1, path);
    }
    name_list_release(&names);
    return status;
}

static cloob_status list_tar(cloob_ctx *ctx, raw_files *b, const char *path)
{
    tar_index t;
    int file;
    CLOOB_TRY(fileset_add(ctx, b->files, path, &file));
    CLOOB_TRY(fileset_open(ctx, b->files, file));
    CLOOB_TRY(tar_open(ctx, b->files, file, &t));
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < t.count && status == CLOOB_OK; i++)
        status =
            add(ctx, b, name_base(tar_name(&t, i)), NULL, (raw_file){ file, t.member[i].offset, t.member[i].size });
    tar_release(&t);
    return status;
}

static cloob_status list_beside(cloob_ctx *ctx, raw_files *b, const char *path)
{
    char *dir = file_folder(path);
    cloob_status status = dir ? list_folder(ctx, b, dir) : ctx_no_memory(ctx, strlen(path), "a file name");
    free(dir);
    return status;
}

static void raw_files_close(raw_files *b)
{
    if (!b) return;
    for (int64_t i = 0; i < b->count; i++) {
        free(b->item[i].name);
        free(b->item[i].path);
    }
    fileset_destroy(b->files);
    free(b->item);
    free(b);
}

/* path: a folder, a tar (plain or gzip), or one of the files itself. */
static cloob_status raw_files_open(cloob_ctx *ctx, const char *path, const char *cache, raw_files **out)
{
    raw_files *b = *out = calloc(1, sizeof *b);
    if (!b) return ctx_no_memory(ctx, sizeof *b, "a list of files");
    cloob_status status = fileset_create(ctx, cache, &b->files);
    if (status == CLOOB_OK) {
        if (file_is_dir(path)) status = list_folder(ctx, b, path);
        else if (name_is_tar(path)) status = list_tar(ctx, b, path);
        else status = list_beside(ctx, b, path);
    }
    if (status != CLOOB_OK) {
        raw_files_close(b);
        *out = NULL;
    }
    return status;
}

static bool same_name(const char *have, const char *want)
{
    size_t n = strlen(want);
    return strncmp(have, want, n) == 0 && (have[n] == '\0' || strcmp(have + n, ".gz") == 0);
}

/* By base name, with or without ".gz"; NULL: there is none. */
static item *raw_files_find(const raw_files *b, const char *name)
{
    for (int64_t i = 0; i < b->count; i++)
        if (same_name(b->item[i].name, name)) return &b->item[i];
    return NULL;
}

static cloob_status raw_files_get(cloob_ctx *ctx, raw_files *b, const char *name, raw_file *out)
{
    item *it = raw_files_find(b, name);
    if (!it) return ctx_fail(ctx, CLOOB_ERR_IO, "no such file: %s", name);
    if (it->at.file < 0) {
        int file;
        CLOOB_TRY(fileset_add(ctx, b->files, it->path, &file));
        CLOOB_TRY(fileset_open(ctx, b->files, file));
        it->at = (raw_file){ file, 0, fileset_size(b->files, file) };
    }
    *out = it->at;
    return CLOOB_OK;
}

/* All of a small file, zero-terminated; the caller frees. */
static cloob_status raw_files_text(cloob_ctx *ctx, raw_files *b, const char *name, size_t limit, char **text,
                                   size_t *size)
{
    raw_file at = { 0 };
    CLOOB_TRY(raw_files_get(ctx, b, name, &at));
    if ((uint64_t)at.size > limit)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes, more than the %zu it could have", name,
                        (long long)at.size, limit);
    *text = malloc((size_t)at.size + 1);
    if (!*text) return ctx_no_memory(ctx, (size_t)at.size, name);
    (*text)[at.size] = '\0';
    *size = (size_t)at.size;
    cloob_status status = fileset_read(ctx, b->files, at.file, at.offset, *text, (size_t)at.size);
    if (status != CLOOB_OK) free(*text);
    return status;
}

/* ---- runs of records ------------------------------------------------------------------------------- */

enum { RAW_RUNS = 16 };

/* A stretch of records in one file. The planes are the last bytes of a record. */
typedef struct raw_run {
    raw_file at;
    int64_t header, record, count; /* bytes before the first record, bytes of one, how many */
    int64_t side;                  /* images are side x side */
    int planes;                    /* 3, or 1 for grey */
    bool by_columns;
    int label_at;          /* byte of the record that holds the class; -1: none */
    unsigned char *labels; /* or one byte per record from another file; owned */
} raw_run;

typedef struct raw_set {
    raw_files *files;
    raw_run run[RAW_RUNS];
    int runs;
} raw_set;

/* Adds runs and classes to p, whose self is a raw_set with its raw_files opened. */
typedef cloob_status raw_fill(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p);

static cloob_status raw_open(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p,
                             raw_fill *fill)
{
    raw_set *r = p->self = calloc(1, sizeof *r);
    if (!r) return ctx_no_memory(ctx, sizeof *r, source);
    CLOOB_TRY(raw_files_open(ctx, source, o->cache, &r->files));
    CLOOB_TRY(fill(ctx, source, o, p));
    p->files = r->files->files;
    for (int i = 0; i < r->runs; i++) p->count += r->run[i].count;
    return CLOOB_OK;
}

static void raw_close(dataset_part *p)
{
    raw_set *r = p->self;
    if (!r) return;
    for (int i = 0; i < r->runs; i++) free(r->run[i].labels);
    raw_files_close(r->files);
    p->files = NULL; /* closed with the raw_files */
    free(r);
}

/* Takes over run.labels. */
static cloob_status raw_add_run(cloob_ctx *ctx, dataset_part *p, raw_run run)
{
    raw_set *r = p->self;
    if (r->runs == RAW_RUNS) {
        free(run.labels);
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "more than %d parts", RAW_RUNS);
    }
    r->run[r->runs++] = run;
    return CLOOB_OK;
}

/* Class names, one per line. */
static cloob_status raw_class_lines(cloob_ctx *ctx, dataset_part *p, const char *name)
{
    raw_set *r = p->self;
    char *text;
    size_t size;
    CLOOB_TRY(raw_files_text(ctx, r->files, name, 1 << 20, &text, &size));
    cloob_status status = CLOOB_OK;
    for (char *line = text; *line && status == CLOOB_OK;) {
        size_t n = strcspn(line, "\r\n");
        for (size_t i = 0; i < n; i++)
            if (line[i] == '_') line[i] = ' '; /* "aquarium_fish": a prompt wants words */
        if (n) status = name_list_add(ctx, &p->classes, line, n);
        line += n;
        line += strspn(line, "\r\n");
    }
    free(text);
    if (status == CLOOB_OK && !p->classes.count) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: names no class", name);
    return status;
}

/* Whether to read this file: the split includes it, or the source names it. */
static bool raw_wants(const dataset_options *o, const char *source, const char *file, bool is_test)
{
    if (strcmp(name_base(source), file) == 0) return true; /* the path names this very file */
    if (strlen(name_base(source)) > 4 && strcmp(name_base(source) + strlen(name_base(source)) - 4, ".bin") == 0)
        return false;
    bool train = o->split && strcmp(o->split, "train") == 0;
    return train != is_test;
}

/* Planes to interleaved pixels; MNIST's one plane becomes three, STL-10's are stored by columns. */
static void unpack(const raw_run *run, const unsigned char *in, unsigned char *out)
{
    int64_t side = run->side, plane = side * side;
    for (int64_t y = 0; y < side; y++)
        for (int64_t x = 0; x < side; x++)
            for (int64_t c = 0; c < 3; c++) {
                int64_t at = run->by_columns ? x * side + y : y * side + x;
                out[(y * side + x) * 3 + c] = in[(run->planes == 3 ? c * plane : 0) + at];
            }
}

static const raw_run *find_run(const raw_set *r, int64_t *i)
{
    int k = 0;
    while (*i >= r->run[k].count) *i -= r->run[k++].count;
    return &r->run[k];
}

/* Labels are places among the classes: evaluations count by them. */
static cloob_status check_label(cloob_ctx *ctx, const dataset_part *p, const stored_sample *s)
{
    if (s->label < p->classes.count) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: class %lld of %lld", s->name.data, (long long)s->label,
                    (long long)p->classes.count);
}

static cloob_status raw_fetch(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                              stored_sample *s)
{
    const raw_set *r = p->self;
    const raw_run *run = find_run(r, &i);
    (void)pick;
    sbuf_printf(&s->name, "%s: image %lld", fileset_name(p->files, run->at.file), (long long)i);
    int64_t pixels = run->side * run->side * run->planes, rgb = run->side * run->side * 3;
    if (run->labels) s->label = run->labels[i];
    if (run->labels) CLOOB_TRY(check_label(ctx, p, s));
    if (!(what & FETCH_IMAGE) && run->labels) return CLOOB_OK;
    CLOOB_TRY(stored_reserve(ctx, s, (size_t)(rgb + run->record)));
    unsigned char *record = s->data + rgb; /* after the pixels */
    CLOOB_TRY(fileset_read(ctx, p->files, run->at.file, run->at.offset + run->header + i * run->record, record,
                           (size_t)run->record));
    if (!run->labels && run->label_at >= 0) s->label = record[run->label_at];
    CLOOB_TRY(check_label(ctx, p, s));
    unpack(run, record + run->record - pixels, s->data);
    s->size = (size_t)rgb;
    s->width = s->height = run->side;
    return CLOOB_OK;
}

/* ---- CIFAR ------------------------------------------------------------------------------------- */

/* CIFAR-10 and CIFAR-100, binary version: records of label bytes and three 32 x 32 planes. */
enum { CIFAR_SIDE = 32, CIFAR_PIXELS = 3 * CIFAR_SIDE * CIFAR_SIDE };

typedef struct cifar_file {
    const char *name;
    bool is_test;
    int label_bytes; /* CIFAR-100: coarse, then fine */
} cifar_file;

static const cifar_file cifar_files[] = {
    { "data_batch_1.bin", false, 1 }, { "data_batch_2.bin", false, 1 }, { "data_batch_3.bin", false, 1 },
    { "data_batch_4.bin", false, 1 }, { "data_batch_5.bin", false, 1 }, { "test_batch.bin", true, 1 },
    { "train.bin", false, 2 },        { "test.bin", true, 2 },
};

static cloob_status cifar_add(cloob_ctx *ctx, dataset_part *p, const cifar_file *f)
{
    raw_set *r = p->self;
    raw_file at = { 0 };
    int64_t record = CIFAR_PIXELS + f->label_bytes;
    CLOOB_TRY(raw_files_get(ctx, r->files, f->name, &at));
    if (at.size == 0 || at.size % record != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes are not a whole number of %lld-byte records", f->name,
                        (long long)at.size, (long long)record);
    return raw_add_run(ctx, p,
                       (raw_run){ .at = at,
                                  .record = record,
                                  .count = at.size / record,
                                  .side = CIFAR_SIDE,
                                  .planes = 3,
                                  .label_at = f->label_bytes - 1 });
}

static cloob_status cifar_fill(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    raw_set *r = p->self;
    for (size_t i = 0; i < sizeof cifar_files / sizeof *cifar_files; i++) {
        const cifar_file *f = &cifar_files[i];
        if (raw_files_find(r->files, f->name) && raw_wants(o, source, f->name, f->is_test))
            CLOOB_TRY(cifar_add(ctx, p, f));
    }
    if (!r->runs)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: no CIFAR files of the %s split (data_batch_1.bin, test_batch.bin, train.bin, test.bin)",
                        source, o->split ? o->split : "test");
    bool hundred = r->run[0].label_at == 1;
    const char *names = hundred ? "fine_label_names.txt" : "batches.meta.txt";
    if (!raw_files_find(r->files, names))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s with the class names is missing", source, names);
    return raw_class_lines(ctx, p, names);
}

static cloob_status open_cifar(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    return raw_open(ctx, source, o, p, cifar_fill);
}

const dataset_ops dataset_cifar = { "cifar", open_cifar, raw_close, raw_fetch };

/* ---- STL-10 ------------------------------------------------------------------------------------ */

/* STL-10 binaries: 96 x 96 images, planes stored by columns; labels 1..10 in a second file. */
enum { STL10_SIDE = 96, STL10_RECORD = 3 * STL10_SIDE * STL10_SIDE };

static cloob_status stl10_labels(cloob_ctx *ctx, dataset_part *p, const char *name, int64_t count,
                                 unsigned char **labels)
{
    raw_set *r = p->self;
    size_t size;
    CLOOB_TRY(raw_files_text(ctx, r->files, name, (size_t)count, (char **)labels, &size));
    bool fits = (int64_t)size == count;
    for (size_t i = 0; i < size; i++) { /* they count from 1 */
        if ((*labels)[i] < 1 || (*labels)[i] > 10) fits = false;
        (*labels)[i] = (unsigned char)((*labels)[i] - 1);
    }
    if (fits) return CLOOB_OK;
    free(*labels);
    *labels = NULL;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not one label from 1 to 10 for each of %lld images", name,
                    (long long)count);
}

static cloob_status stl10_add(cloob_ctx *ctx, dataset_part *p, const char *images, const char *labels)
{
    raw_set *r = p->self;
    raw_run run = { .record = STL10_RECORD, .side = STL10_SIDE, .planes = 3, .by_columns = true, .label_at = -1 };
    CLOOB_TRY(raw_files_get(ctx, r->files, images, &run.at));
    run.count = run.at.size / STL10_RECORD;
    if (run.at.size == 0 || run.at.size % STL10_RECORD != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes are not a whole number of %d-byte images", images,
                        (long long)run.at.size, STL10_RECORD);
    if (labels) CLOOB_TRY(stl10_labels(ctx, p, labels, run.count, &run.labels));
    return raw_add_run(ctx, p, run);
}

static cloob_status stl10_fill(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    raw_set *r = p->self;
    bool unlabeled =
        strcmp(name_base(source), "unlabeled_X.bin") == 0 || (o->split && strcmp(o->split, "unlabeled") == 0);
    bool test = !unlabeled && raw_wants(o, source, "test_X.bin", true);
    const char *images = unlabeled ? "unlabeled_X.bin" : test ? "test_X.bin" : "train_X.bin";
    if (!raw_files_find(r->files, images)) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is missing", source, images);
    CLOOB_TRY(stl10_add(ctx, p, images, unlabeled ? NULL : test ? "test_y.bin" : "train_y.bin"));
    if (unlabeled) return CLOOB_OK;
    if (!raw_files_find(r->files, "class_names.txt"))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: class_names.txt is missing", source);
    return raw_class_lines(ctx, p, "class_names.txt");
}

static cloob_status open_stl10(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    return raw_open(ctx, source, o, p, stl10_fill);
}

const dataset_ops dataset_stl10 = { "stl10", open_stl10, raw_close, raw_fetch };

/* ---- MNIST ------------------------------------------------------------------------------------- */

/* MNIST's idx files: a big-endian header with a type byte and sizes, then bytes. */
enum { IMAGES_HEADER = 16, LABELS_HEADER = 8, IDX_BYTES = 0x08 };

static int64_t big_endian(const unsigned char *b) { return (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3]; }

static cloob_status idx_header(cloob_ctx *ctx, dataset_part *p, const char *name, int dims, raw_file *at,
                               int64_t *sizes)
{
    raw_set *r = p->self;
    unsigned char head[IMAGES_HEADER];
    int64_t bytes = 4 + 4 * dims, total = 1;
    CLOOB_TRY(raw_files_get(ctx, r->files, name, at));
    if (at->size < bytes) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: too short for an idx file", name);
    CLOOB_TRY(fileset_read(ctx, r->files->files, at->file, at->offset, head, (size_t)bytes));
    if (head[0] || head[1] || head[2] != IDX_BYTES || head[3] != dims)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not an idx file of bytes with %d dimensions", name, dims);
    for (int i = 0; i < dims; i++) {
        sizes[i] = big_endian(head + 4 + 4 * i);
        if (sizes[i] < 0 || (sizes[i] && total > at->size / sizes[i])) total = -1;
        if (total >= 0) total *= sizes[i];
    }
    if (total >= 0 && total == at->size - bytes) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the header promises another number of bytes than the file has", name);
}

static cloob_status mnist_labels(cloob_ctx *ctx, dataset_part *p, const char *name, int64_t count,
                                 unsigned char **labels)
{
    raw_set *r = p->self;
    raw_file at = { 0 };
    int64_t n = 0;
    CLOOB_TRY(idx_header(ctx, p, name, 1, &at, &n));
    if (n != count)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld labels for %lld images", name, (long long)n, (long long)count);
    *labels = malloc((size_t)n + 1);
    if (!*labels) return ctx_no_memory(ctx, (size_t)n, name);
    cloob_status status = fileset_read(ctx, r->files->files, at.file, at.offset + LABELS_HEADER, *labels, (size_t)n);
    if (status != CLOOB_OK) free(*labels), *labels = NULL;
    return status;
}

static cloob_status mnist_classes(cloob_ctx *ctx, dataset_part *p, const raw_run *run)
{
    int64_t largest = 9;
    for (int64_t i = 0; i < run->count; i++)
        if (run->labels[i] > largest) largest = run->labels[i];
    for (int64_t c = 0; c <= largest; c++) {
        char text[8];
        int n = snprintf(text, sizeof text, "%d", (int)c);
        CLOOB_TRY(name_list_add(ctx, &p->classes, text, (size_t)n));
    }
    return CLOOB_OK;
}

static cloob_status mnist_fill(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    raw_set *r = p->self;
    const char *base = name_base(source);
    bool train = strncmp(base, "train-", 6) == 0 ||
                 (strncmp(base, "t10k-", 5) != 0 && o->split && strcmp(o->split, "train") == 0);
    const char *images = train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
    const char *labels = train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    raw_run run = { .header = IMAGES_HEADER, .planes = 1, .label_at = -1 };
    int64_t size[3] = { 0 };
    if (!raw_files_find(r->files, images)) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is missing", source, images);
    CLOOB_TRY(idx_header(ctx, p, images, 3, &run.at, size));
    if (size[1] != size[2] || size[1] < 1) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: images are not square", images);
    run.count = size[0];
    run.side = size[1];
    run.record = size[1] * size[2];
    CLOOB_TRY(mnist_labels(ctx, p, labels, run.count, &run.labels));
    CLOOB_TRY(raw_add_run(ctx, p, run));
    return mnist_classes(ctx, p, &r->run[0]);
}

static cloob_status open_mnist(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    return raw_open(ctx, source, o, p, mnist_fill);
}

const dataset_ops dataset_mnist = { "mnist", open_mnist, raw_close, raw_fetch };
