/* A data set is a numbered list of samples, each an image with captions or a class; any of them can be drawn
 * at random. Kinds: CSV/TSV, webdataset shards, class folders, tar of class folders, CIFAR, STL-10, MNIST,
 * and random images. docs/reference/data.md describes each. */
#ifndef DATA_SETS_DATASET_H
#define DATA_SETS_DATASET_H

#include "core/option.h"
#include "cloob/data.h"
#include "core/ctx.h"
#include "core/sbuf.h"
#include "io/image/image.h"

typedef cloob_data_options dataset_options; /* the fields are described there */

void dataset_options_init(dataset_options *o);
/* The defaults, with the members of `training` that concern single images and the cache: for class folders that are
 * evaluated during training. */
dataset_options dataset_options_of_images(const dataset_options *training);

typedef struct cloob_dataset dataset; /* read-only after opening: safe to read from many threads */

/* source: a path, braces, sources joined by "::", or "pipe:command". A set without a single sample is an
 * error. */
cloob_status dataset_open(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset **out);
void dataset_close(dataset *d);
/* Whether opening this source runs a command ("pipe:", also from braces or after "::"). Only sources that the user
 * typed may run commands; check sources that were read from a file. */
bool dataset_runs_commands(cloob_ctx *ctx, const char *source);

int64_t dataset_count(const dataset *d);
int64_t dataset_epoch_samples(const dataset *d); /* num_samples where given, else the count */
int64_t dataset_class_count(const dataset *d);   /* 0 when there are no classes */
const char *dataset_class_name(const dataset *d, int64_t c);
bool dataset_has_captions(const dataset *d);
bool dataset_has_targets(const dataset *d);          /* arrays of numbers for the images: FETCH_TARGETS */
image_limits dataset_image_limits(const dataset *d); /* as opened with, full size */
int64_t dataset_skipped(const dataset *d);           /* entries skipped when opened (damaged, incomplete) */
const char *dataset_kind(const dataset *d);          /* "csv", ...; "several" when sources differ */
int64_t dataset_file_count(const dataset *d);        /* shards or other files it reads from; 0: one per image */

/* The sample at a position of an epoch in training: a shuffle of all samples, or (resampled) a
 * weighted draw with replacement. A pure function; key is made from seed and epoch. */
int64_t dataset_draw(const dataset *d, uint64_t key, int64_t position);

typedef struct sample {
    image im;
    const char *caption; /* owned by the sample's buffer; NULL when there is none */
    char *caption_buffer;
    int64_t label; /* class, or -1 */
} sample;

/* Reads sample i. Where an image has several captions, `pick` chooses one (modulo their number). A sample
 * that cannot be used is CLOOB_ERR_FORMAT or CLOOB_ERR_IO with the reason; the caller skips and counts.
 * Thread-safe with one context per thread. limits may be NULL. */
cloob_status dataset_read(cloob_ctx *ctx, const dataset *d, int64_t i, uint64_t pick, const image_limits *limits,
                          sample *out);
void sample_release(sample *s);

/* The caption alone, without decoding the image (for training a tokenizer). The caller frees *text. */
cloob_status dataset_caption(cloob_ctx *ctx, const dataset *d, int64_t i, uint64_t pick, char **text);

/* ---- stored samples, for loops with their own buffers -------------------------- */

enum { FETCH_IMAGE = 1, FETCH_CAPTION = 2, FETCH_TARGETS = 4 /* the unchanged npy member, into data */ };

/* Captions longer than this are cut (at a character): far more than any context length takes. */
enum { CAPTION_BYTES_LIMIT = 1 << 16 };

/* Zero-initialise once and use for any number of samples; buffers grow to the largest and stay. */
typedef struct stored_sample {
    unsigned char *data; /* an encoded image, or raw RGB when width > 0 */
    size_t size, capacity;
    int64_t width, height; /* of raw RGB; 0: encoded */
    sbuf caption;          /* valid UTF-8, not empty; len 0 when the set has none */
    int64_t captions;      /* number of captions to pick from */
    int64_t label;         /* class, or -1 */
    sbuf name;             /* for messages */
    sbuf scratch;          /* for the kind's own use */
} stored_sample;

/* what: FETCH_IMAGE, FETCH_CAPTION or both. Fails like dataset_read. */
cloob_status dataset_fetch(cloob_ctx *ctx, const dataset *d, int64_t i, uint64_t pick, int what, stored_sample *s);
void stored_sample_release(stored_sample *s);

/* ---- description --------------------------------------------------------------------------------- */

typedef struct data_spread {
    double min, median, mean, max;
} data_spread;

enum { INFO_REASONS = 5 };

typedef struct data_info {
    const char *kind;
    int64_t samples, files, classes;
    int64_t skipped;                /* skipped when opened: damaged headers, incomplete rows and samples */
    int64_t examined, bad;          /* samples decoded and read; unusable samples among them */
    char reason[INFO_REASONS][256]; /* of the first bad samples */
    data_spread width, height, image_bytes;
    int64_t captions; /* of the examined samples */
    int64_t distinct_captions;
    data_spread caption_words, caption_chars;
    data_spread class_size; /* samples per class, over all samples */
} data_info;

/* Decodes `examine` evenly spaced samples (0: all) on the context's threads and fills *out. */
cloob_status dataset_info(cloob_ctx *ctx, const dataset *d, int64_t examine, data_info *out);

/* The rows of data_options.def. */
const option_desc *data_option_table(int64_t *count);

#endif
