/* Data sets, and how fast they can be fed to a model.
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
 * tar of class folders, CIFAR-10/100 or STL-10 binaries, MNIST idx files, or several of a kind joined by
 * "::". docs/reference/data.md describes each. An opened data set may be read from many threads. */
#ifndef CLOOB_DATA_H
#define CLOOB_DATA_H

#include "cloob/options.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every setting, with its default and meaning, is a row of data_options.def. */
typedef struct cloob_data_options {
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/data_options.def"
    int64_t num_samples; /* per epoch; 0: all */
    uint64_t seed;       /* for type synthetic */
} cloob_data_options;

CLOOB_API void cloob_data_options_init(cloob_data_options *o);
CLOOB_API const cloob_option *cloob_data_option_table(int64_t *count);

typedef struct cloob_dataset cloob_dataset;

/* o may be NULL for defaults. A set without a single usable sample is an error. */
CLOOB_API cloob_status cloob_dataset_open(cloob_ctx *ctx, const char *source, const cloob_data_options *o,
                                          cloob_dataset **out);
CLOOB_API void cloob_dataset_close(cloob_dataset *d);

CLOOB_API int64_t cloob_dataset_count(const cloob_dataset *d);
CLOOB_API int64_t cloob_dataset_class_count(const cloob_dataset *d); /* 0: no classes */
CLOOB_API const char *cloob_dataset_class_name(const cloob_dataset *d, int64_t c);
CLOOB_API const char *cloob_dataset_kind(const cloob_dataset *d); /* "csv", "cifar", ... */
CLOOB_API bool cloob_dataset_has_captions(const cloob_dataset *d);

/* Caption `pick` (modulo their number) of sample i; the caller frees *text with free(). */
CLOOB_API cloob_status cloob_dataset_caption(cloob_ctx *ctx, const cloob_dataset *d, int64_t i, uint64_t pick,
                                             char **text);

/* ---- what a data set holds ----------------------------------------------------------------------- */

typedef struct cloob_spread {
    double min, median, mean, max;
} cloob_spread;

enum { CLOOB_INFO_REASONS = 5 };

typedef struct cloob_data_info {
    const char *kind;
    int64_t samples, files, classes;
    int64_t skipped;                      /* left out when opening: damaged headers, incomplete rows and samples */
    int64_t examined, bad;                /* images decoded and captions read; how many of them cannot be used */
    char reason[CLOOB_INFO_REASONS][256]; /* of the first bad ones */
    cloob_spread width, height, image_bytes;
    int64_t captions; /* of the examined samples */
    int64_t distinct_captions;
    cloob_spread caption_words, caption_chars;
    cloob_spread class_size; /* samples per class, over all samples */
} cloob_data_info;

/* Decodes `examine` samples spread evenly over the set (0: all of them) on the context's threads. */
CLOOB_API cloob_status cloob_dataset_info(cloob_ctx *ctx, const cloob_dataset *d, int64_t examine,
                                          cloob_data_info *out);

/* ---- how fast it can be read --------------------------------------------------------------------- */

typedef struct cloob_data_bench_options {
    int64_t batch, size, context; /* 64 images of 224 px, 77 tokens */
    int workers, ahead;           /* 0 workers: in the calling thread */
    int64_t batches;              /* to time, after one that is not counted; 0: whole epochs */
    int64_t epochs;               /* with batches 0; 1 */
    uint64_t seed;
    bool eval;                 /* evaluation views in order instead of training crops */
    const char *vocab;         /* merges file to tokenize captions with; NULL: images only */
    const char *image_decoder; /* "gpu": the first GPU makes the training crops of JPEGs; NULL: the CPU */
} cloob_data_bench_options;

typedef struct cloob_data_bench_result {
    double items_per_s, ms; /* ms: median per batch */
    double wait_share;      /* of the time spent waiting for the loader: near 1, as nothing else is done */
    int64_t items, bad, batches;
    int64_t peak_bytes;          /* of the process */
    int64_t buffer_bytes;        /* of the loader's batches */
    int64_t cpu_views;           /* with "gpu": views that the CPU had to make */
    char decoder[96];            /* who made the others: "CPU", "nvJPEG 13.2, hardware decoders" */
    int64_t rss_first, rss_last; /* resident bytes after the first and the last epoch (or batch, without epochs) */
} cloob_data_bench_result;

CLOOB_API void cloob_data_bench_options_init(cloob_data_bench_options *o);
CLOOB_API cloob_status cloob_data_bench(cloob_ctx *ctx, const cloob_dataset *d, const cloob_data_bench_options *o,
                                        cloob_data_bench_result *out);

#ifdef __cplusplus
}
#endif
#endif
