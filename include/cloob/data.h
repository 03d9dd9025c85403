/* Data sets for evaluation.
 *
 *     cloob_data_options o;
 *     cloob_data_options_init(&o);
 *     cloob_dataset *d;
 *     if (cloob_dataset_open(ctx, "shards/{00000..00999}.tar", &o, &d) == CLOOB_OK) {
 *         ...
 *         cloob_dataset_close(d);
 *     }
 *
 * A source is a CSV or TSV, webdataset shards (tar, plain or gzip; braces; "pipe:COMMAND"), class folders, a
 * tar of class folders, CIFAR-10/100 or STL-10 binaries, MNIST idx files, or several of one type joined by
 * "::". docs/reference/data.md describes each. Any number of threads may read an open data set. */
#ifndef CLOOB_DATA_H
#define CLOOB_DATA_H

#include "cloob/options.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every setting, with its default and meaning, is a row of data_options.def. */
typedef struct cloob_data_options {
    size_t size;         /* of this struct; set by cloob_data_options_init */
    int64_t num_samples; /* samples per epoch; 0: all */
    uint64_t seed;       /* for the type synthetic */
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/data_options.def"
} cloob_data_options;

CLOOB_OPTIONS_INIT(cloob_data_options)

typedef struct cloob_dataset cloob_dataset;

/* Opens a source; o may be NULL for defaults. The caller closes *out, which the evaluations of zeroshot.h read. Fails
 * if the set has no usable sample. */
CLOOB_API cloob_status cloob_dataset_open(cloob_ctx *ctx, const char *source, const cloob_data_options *o,
                                          cloob_dataset **out);
CLOOB_API void cloob_dataset_close(cloob_dataset *d); /* d may be NULL */

#ifdef __cplusplus
}
#endif
#endif
