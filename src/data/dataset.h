/* A data set is a numbered list of samples, each a picture with captions or a class; any of them can be drawn at
 * random. Kinds: CSV/TSV, webdataset shards, class folders, tar of class folders, CIFAR, STL-10, MNIST. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "core/ctx.h"
#include "io/image.h"

typedef struct dataset_options {
    const char *type;        /* "auto", "csv", "webdataset", "folder", "cifar", "stl10", "mnist", "synthetic" */
    const char *path_data;   /* put before relative paths of a CSV; NULL: the CSV's own folder */
    char csv_separator;      /* '\t' */
    const char *csv_image_key, *csv_caption_key; /* "filepath", "title" */
    const char *image_key, *text_key;            /* "jpg;png;jpeg;webp", "txt" */
    int64_t max_pixels;      /* 25,000,000 */
    int64_t num_samples;     /* 0: all */
    bool resampled;          /* draw with replacement */
    const char *upsampling;  /* "a::b" factors per source, or NULL */
    uint64_t seed;           /* for kind synthetic */
} dataset_options;

void dataset_options_init(dataset_options *o);

typedef struct dataset dataset; /* read-only after opening: safe to read from many threads */

/* source: a path, braces, sources joined by "::", or "pipe:command". */
cloob_status dataset_open(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset **out);
void dataset_close(dataset *d);

int64_t dataset_count(const dataset *d);
int64_t dataset_class_count(const dataset *d);             /* 0 when there are no classes */
const char *dataset_class_name(const dataset *d, int64_t c);

typedef struct sample {
    image im;
    const char *caption; /* owned by the sample's buffer; NULL when there is none */
    char *caption_buffer;
    int64_t label;       /* class, or -1 */
} sample;

/* Reads sample i. Where a picture has several captions, `pick` chooses one (modulo their number). A sample that
 * cannot be used is CLOOB_ERR_FORMAT or CLOOB_ERR_IO with the reason; the caller skips and counts. Thread-safe with
 * one context per thread. */
cloob_status dataset_read(cloob_ctx *ctx, const dataset *d, int64_t i, uint64_t pick, const image_limits *limits, sample *out);
void sample_release(sample *s);

/* The caption alone, without decoding the picture (for training a tokenizer). The caller frees *text. */
cloob_status dataset_caption(cloob_ctx *ctx, const dataset *d, int64_t i, uint64_t pick, char **text);

#endif
