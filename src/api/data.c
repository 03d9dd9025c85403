/* Thin bodies of include/cloob/data.h. */
#include "cloob/data.h"

#include "data/sets/dataset.h"
#include "data/sets/dataset_info.h"
#include "data/load/loader_bench.h"
#include "core/needs.h"

void cloob_data_options_init(cloob_data_options *o)
{
    if (!o) return;
    dataset_options_init(o);
}

cloob_status cloob_dataset_open(cloob_ctx *ctx, const char *source, const cloob_data_options *o, cloob_dataset **out)
{
    API_NEEDS(ctx, out && (source || o));
    *out = NULL;
    return dataset_open(ctx, source, o, out);
}

void cloob_dataset_close(cloob_dataset *d)
{
    if (!d) return;
    dataset_close(d);
}

int64_t cloob_dataset_count(const cloob_dataset *d)
{
    if (!d) return 0;
    return dataset_count(d);
}

int64_t cloob_dataset_class_count(const cloob_dataset *d)
{
    if (!d) return 0;
    return dataset_class_count(d);
}

const char *cloob_dataset_class_name(const cloob_dataset *d, int64_t c)
{
    if (!d) return NULL;
    return dataset_class_name(d, c);
}

const char *cloob_dataset_kind(const cloob_dataset *d)
{
    if (!d) return NULL;
    return dataset_kind(d);
}

bool cloob_dataset_has_captions(const cloob_dataset *d)
{
    if (!d) return false;
    return dataset_has_captions(d);
}

cloob_status cloob_dataset_caption(cloob_ctx *ctx, const cloob_dataset *d, int64_t i, uint64_t pick, char **text)
{
    API_NEEDS(ctx, d && text);
    return dataset_caption(ctx, d, i, pick, text);
}

cloob_status cloob_dataset_info(cloob_ctx *ctx, const cloob_dataset *d, int64_t examine, cloob_data_info *out)
{
    API_NEEDS(ctx, d && out);
    return dataset_info(ctx, d, examine, out);
}

void cloob_data_bench_options_init(cloob_data_bench_options *o)
{
    if (!o) return;
    *o = (cloob_data_bench_options){ .batch = 64, .size = 224, .context = 77, .workers = 4, .ahead = 2, .epochs = 1 };
}

cloob_status cloob_data_bench(cloob_ctx *ctx, const cloob_dataset *d, const cloob_data_bench_options *o,
                              cloob_data_bench_result *out)
{
    API_NEEDS(ctx, d && o && out);
    return loader_bench(ctx, d, o, out);
}
