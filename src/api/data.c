/* Thin bodies of include/cloob/data.h. */
#include "cloob/data.h"

#include "data/sets/dataset.h"
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

int64_t cloob_dataset_count(const cloob_dataset *d) { return d ? dataset_count(d) : 0; }
int64_t cloob_dataset_class_count(const cloob_dataset *d) { return d ? dataset_class_count(d) : 0; }
const char *cloob_dataset_class_name(const cloob_dataset *d, int64_t c) { return d ? dataset_class_name(d, c) : NULL; }
const char *cloob_dataset_kind(const cloob_dataset *d) { return d ? dataset_kind(d) : NULL; }
bool cloob_dataset_has_captions(const cloob_dataset *d) { return d && dataset_has_captions(d); }

cloob_status cloob_dataset_caption(cloob_ctx *ctx, const cloob_dataset *d, int64_t i, uint64_t pick, char **text)
{
    API_NEEDS(ctx, d && text);
    return dataset_caption(ctx, d, i, pick, text);
}
