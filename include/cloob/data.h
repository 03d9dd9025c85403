/* Data sets: opens them and describes their content.
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

/* Opens a source; o may be NULL for defaults. The caller closes *out. Fails if the set has no usable sample. */
CLOOB_API cloob_status cloob_dataset_open(cloob_ctx *ctx, const char *source, const cloob_data_options *o,
                                          cloob_dataset **out);
CLOOB_API void cloob_dataset_close(cloob_dataset *d);

CLOOB_API int64_t cloob_dataset_count(const cloob_dataset *d);
CLOOB_API int64_t cloob_dataset_class_count(const cloob_dataset *d); /* 0: no classes */
CLOOB_API const char *cloob_dataset_class_name(const cloob_dataset *d, int64_t c);
CLOOB_API const char *cloob_dataset_kind(const cloob_dataset *d); /* "csv", "cifar", ... */
CLOOB_API bool cloob_dataset_has_captions(const cloob_dataset *d);

/* Reads caption `pick` modulo the number of captions of sample i. The caller frees *text with free(). */
CLOOB_API cloob_status cloob_dataset_caption(cloob_ctx *ctx, const cloob_dataset *d, int64_t i, uint64_t pick,
                                             char **text);

/* ---- description --------------------------------------------------------------------------------- */

typedef struct cloob_spread {
    double min, median, mean, max;
} cloob_spread;

enum { CLOOB_INFO_REASONS = 5 };

typedef struct cloob_data_info {
    const char *kind;
    int64_t samples, files, classes;
    int64_t skipped;                      /* skipped when opened: damaged headers, incomplete rows and samples */
    int64_t examined, bad;                /* samples decoded and read; unusable samples among them */
    char reason[CLOOB_INFO_REASONS][256]; /* of the first bad samples */
    cloob_spread width, height, image_bytes;
    int64_t captions; /* of the examined samples */
    int64_t distinct_captions;
    cloob_spread caption_words, caption_chars;
    cloob_spread class_size; /* samples per class, over all samples */
} cloob_data_info;

/* Decodes `examine` evenly spaced samples (0: all) on the context's threads and fills *out. */
CLOOB_API cloob_status cloob_dataset_info(cloob_ctx *ctx, const cloob_dataset *d, int64_t examine,
                                          cloob_data_info *out);

#ifdef __cplusplus
}
#endif
#endif
