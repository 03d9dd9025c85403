/* CIFAR-10 and CIFAR-100, binary version: records of label bytes and three 32 x 32 planes. */
#include <string.h>

#include "data/sets/dataset_raw.h"

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE };

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

static cloob_status add_file(cloob_ctx *ctx, dataset_part *p, const cifar_file *f)
{
    raw_set *r = p->self;
    raw_file at = { 0 };
    int64_t record = PIXELS + f->label_bytes;
    CLOOB_TRY(raw_files_get(ctx, r->files, f->name, &at));
    if (at.size == 0 || at.size % record != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes are no whole number of %lld-byte records", f->name,
                        (long long)at.size, (long long)record);
    return raw_add_run(ctx, p,
                       (raw_run){ .at = at,
                                  .record = record,
                                  .count = at.size / record,
                                  .side = SIDE,
                                  .planes = 3,
                                  .label_at = f->label_bytes - 1 });
}

static cloob_status fill(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    raw_set *r = p->self;
    for (size_t i = 0; i < sizeof cifar_files / sizeof *cifar_files; i++) {
        const cifar_file *f = &cifar_files[i];
        if (raw_files_find(r->files, f->name, NULL) && raw_wants(o, source, f->name, f->is_test))
            CLOOB_TRY(add_file(ctx, p, f));
    }
    if (!r->runs)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: no CIFAR files of the %s split (data_batch_1.bin, test_batch.bin, train.bin, test.bin)",
                        source, o->split ? o->split : "test");
    bool hundred = r->run[0].label_at == 1;
    const char *names = hundred ? "fine_label_names.txt" : "batches.meta.txt";
    if (!raw_files_find(r->files, names, NULL))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s with the class names is missing", source, names);
    return raw_class_lines(ctx, p, names);
}

static cloob_status open_cifar(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    return raw_open(ctx, source, o, p, fill);
}

const dataset_ops dataset_cifar = { "cifar", open_cifar, raw_close, raw_fetch };
