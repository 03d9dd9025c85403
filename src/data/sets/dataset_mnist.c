/* MNIST's idx files: a big-endian header with a type byte and sizes, then bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/sets/dataset_raw.h"

enum { IMAGES_HEADER = 16, LABELS_HEADER = 8, IDX_BYTES = 0x08 };

static int64_t big_endian(const unsigned char *b) { return (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3]; }

static cloob_status read_header(cloob_ctx *ctx, dataset_part *p, const char *name, int dims, raw_file *at,
                                int64_t *sizes)
{
    raw_set *r = p->self;
    unsigned char head[IMAGES_HEADER];
    int64_t bytes = 4 + 4 * dims, total = 1;
    CLOOB_TRY(raw_files_get(ctx, r->files, name, at));
    if (at->size < bytes) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: too short for an idx file", name);
    CLOOB_TRY(fileset_read(ctx, raw_files_set(r->files), at->file, at->offset, head, (size_t)bytes));
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

static cloob_status read_labels(cloob_ctx *ctx, dataset_part *p, const char *name, int64_t count,
                                unsigned char **labels)
{
    raw_set *r = p->self;
    raw_file at = { 0 };
    int64_t n = 0;
    CLOOB_TRY(read_header(ctx, p, name, 1, &at, &n));
    if (n != count)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld labels for %lld images", name, (long long)n, (long long)count);
    *labels = malloc((size_t)n + 1);
    if (!*labels) return ctx_no_memory(ctx, (size_t)n, name);
    cloob_status status =
        fileset_read(ctx, raw_files_set(r->files), at.file, at.offset + LABELS_HEADER, *labels, (size_t)n);
    if (status != CLOOB_OK) free(*labels), *labels = NULL;
    return status;
}

static cloob_status add_classes(cloob_ctx *ctx, dataset_part *p, const raw_run *run)
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

static cloob_status fill(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    raw_set *r = p->self;
    const char *base = name_base(source);
    bool train = strncmp(base, "train-", 6) == 0 ||
                 (strncmp(base, "t10k-", 5) != 0 && o->split && strcmp(o->split, "train") == 0);
    const char *images = train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
    const char *labels = train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    raw_run run = { .header = IMAGES_HEADER, .planes = 1, .label_at = -1 };
    int64_t size[3] = { 0 };
    if (!raw_files_find(r->files, images, NULL))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is missing", source, images);
    CLOOB_TRY(read_header(ctx, p, images, 3, &run.at, size));
    if (size[1] != size[2] || size[1] < 1) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: images are not square", images);
    run.count = size[0];
    run.side = size[1];
    run.record = size[1] * size[2];
    CLOOB_TRY(read_labels(ctx, p, labels, run.count, &run.labels));
    CLOOB_TRY(raw_add_run(ctx, p, run));
    return add_classes(ctx, p, &r->run[0]);
}

static cloob_status open_mnist(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    return raw_open(ctx, source, o, p, fill);
}

const dataset_ops dataset_mnist = { "mnist", open_mnist, raw_close, raw_fetch };
