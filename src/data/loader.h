/* Batches of (picture, tokens) for a training or evaluation loop, made ahead by worker threads.
 *
 * The order is a pure function of (seed, epoch, position): worker and rank counts change who does the work, not
 * what comes out. Global sample p of an epoch goes to global batch p / (batch * ranks); rank r takes rows
 * [r * batch, (r + 1) * batch) of it. Every rank gets the same number of batches; in training the last partial
 * batch is dropped, in evaluation it is short (and may be empty on some ranks). Memory is bounded by
 * `ahead` batches. A sample that cannot be read is replaced by the next readable one of the same epoch order in
 * training, left out in evaluation, and counted. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "data/dataset.h"
#include "data/tokenizer.h"
#include "data/transform.h"

typedef struct loader_options {
    int64_t batch;   /* rows per rank */
    int rank, ranks;
    int workers;     /* threads; 0: decode in the calling thread */
    int ahead;       /* batches held ready; 2 by default */
    uint64_t seed;
    bool train;      /* shuffle, augment, drop the last partial batch */
    int64_t context; /* tokens per row */
    transform_options view;
} loader_options;

void loader_options_init(loader_options *o);

typedef struct batch {
    uint8_t *images;      /* (rows, size, size, 3) */
    int32_t *tokens;      /* (rows, context); NULL when there is no tokenizer */
    int64_t *index;       /* (rows): the sample's index in the data set */
    int32_t *label;       /* (rows): class, or -1 */
    int64_t rows;
    int64_t epoch, step;  /* which global batch this is */
} batch;

typedef struct loader loader;

/* The data set and tokenizer must outlive the loader. tok may be NULL (images only). */
cloob_status loader_create(cloob_ctx *ctx, const dataset *d, const tokenizer *tok, const loader_options *o, loader **out);
void loader_destroy(loader *l);

int64_t loader_batches(const loader *l); /* per epoch */

/* Starts an epoch at a batch inside it: (epoch, 0) for the beginning; the saved pair to resume. */
cloob_status loader_seek(cloob_ctx *ctx, loader *l, int64_t epoch, int64_t step);

/* The next batch, waiting for it if need be; *b is valid until the next call; b->rows is 0 at the end of the epoch. */
cloob_status loader_next(cloob_ctx *ctx, loader *l, batch *b);

typedef struct loader_stats {
    double wait_seconds;   /* how long loader_next waited since the last call of loader_stats_take */
    int64_t bad_samples;   /* since creation */
    int64_t samples;       /* delivered since creation */
} loader_stats;
loader_stats loader_stats_take(loader *l);

#endif
