/* STL-10 binaries: 96 x 96 images, planes stored by columns; labels 1..10 in a second file. */
#include <stdlib.h>
#include <string.h>

#include "data/sets/dataset_raw.h"

enum { SIDE = 96, RECORD = 3 * SIDE * SIDE };

static cloob_status read_labels(cloob_ctx *ctx, dataset_part *p, const char *name, int64_t count,
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

static cloob_status add_split(cloob_ctx *ctx, dataset_part *p, const char *images, const char *labels)
{
    raw_set *r = p->self;
    raw_run run = { .record = RECORD, .side = SIDE, .planes = 3, .by_columns = true, .label_at = -1 };
    CLOOB_TRY(raw_files_get(ctx, r->files, images, &run.at));
    run.count = run.at.size / RECORD;
    if (run.at.size == 0 || run.at.size % RECORD != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld bytes are no whole number of %d-byte images", images,
                        (long long)run.at.size, RECORD);
    if (labels) CLOOB_TRY(read_labels(ctx, p, labels, run.count, &run.labels));
    return raw_add_run(ctx, p, run);
}

static cloob_status fill(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    raw_set *r = p->self;
    bool unlabeled =
        strcmp(name_base(source), "unlabeled_X.bin") == 0 || (o->split && strcmp(o->split, "unlabeled") == 0);
    bool test = !unlabeled && raw_wants(o, source, "test_X.bin", true);
    const char *images = unlabeled ? "unlabeled_X.bin" : test ? "test_X.bin" : "train_X.bin";
    if (!raw_files_find(r->files, images, NULL))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is missing", source, images);
    CLOOB_TRY(add_split(ctx, p, images, unlabeled ? NULL : test ? "test_y.bin" : "train_y.bin"));
    if (unlabeled) return CLOOB_OK;
    if (!raw_files_find(r->files, "class_names.txt", NULL))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: class_names.txt is missing", source);
    return raw_class_lines(ctx, p, "class_names.txt");
}

static cloob_status open_stl10(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    return raw_open(ctx, source, o, p, fill);
}

const dataset_ops dataset_stl10 = { "stl10", open_stl10, raw_close, raw_fetch };
