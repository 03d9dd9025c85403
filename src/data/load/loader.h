/* Batches of (image, tokens) for a training or evaluation loop, prepared ahead by worker threads.
 *
 * The order is a pure function of (seed, epoch, position): worker and rank counts change the division of work, not the
 * result. Global sample p of an epoch goes to global batch p / (batch * ranks); rank r takes rows [r * batch, (r + 1) *
 * batch) of it. Every rank gets the same number of batches; in training the last partial batch is dropped, in
 * evaluation it is short (and may be empty on some ranks). Memory is bounded by `ahead` batches and one more that the
 * caller holds. A sample that cannot be read is replaced by the next readable one of the same epoch order in training,
 * left out in evaluation, and counted once, however often it is met; the first few are named in the log. When many
 * samples in a row cannot be read, loader_next fails with the last one's reason; when more than bad_share of the first
 * 1,000 rows of this rank (or of an epoch's, if those are fewer) cannot, it fails with the names of three of them.
 *
 * In training the workers continue with the next epoch, so that its first batch is ready when this epoch ends. */
#ifndef DATA_LOAD_LOADER_H
#define DATA_LOAD_LOADER_H

#include "data/sets/dataset.h"
#include "data/text/tokenizer.h"
#include "data/view/device_view.h"

typedef struct loader_options {
    int64_t batch; /* rows per rank */
    int rank, ranks;
    int workers; /* threads; 0: decode in the calling thread */
    int ahead;   /* batches held ready; 2 by default */
    uint64_t seed;
    bool train;      /* shuffle, augment, drop the last partial batch */
    int64_t context; /* tokens per row */
    transform_options view;
    double bad_share; /* of the first samples that may be unreadable; 0: any */
    /* A GPU's decoder, which makes the training views (data/view/device_view.h): images of batches are in its memory,
     * and workers make only the views that it cannot. NULL: workers make all views. Outlives the loader. */
    device_decoder *decoder;
    /* Memory for images and tokens, e.g. pinned for copies to a device; NULL: malloc and free. alloc returns
     * NULL when there is none. Called when the loader is created and destroyed only. */
    void *(*alloc)(void *user, size_t bytes);
    void (*release)(void *user, void *memory, size_t bytes);
    void *memory_user;
} loader_options;

void loader_options_init(loader_options *o);

typedef struct batch {
    uint8_t *images; /* (rows, size, size, 3); device memory where there is a `decoder` */
    int32_t *tokens; /* (rows, context); NULL when there is no tokenizer */
    int64_t *index;  /* (rows): the sample's index in the data set */
    int32_t *label;  /* (rows): class, or -1 */
    int64_t rows;
    int64_t epoch, step; /* which global batch this is */
    bool end;            /* no batch: the epoch is over (rows alone may be 0 inside an evaluation) */
} batch;

typedef struct loader loader;

/* The data set and tokenizer must outlive the loader. tok may be NULL (images only). Fails when the set
 * cannot fill one training batch, or has no captions for the tokenizer. Begins at epoch 0, step 0. */
cloob_status loader_create(cloob_ctx *ctx, const dataset *d, const tokenizer *tok, const loader_options *o,
                           loader **out);
void loader_destroy(loader *l);

int64_t loader_batches(const loader *l);             /* per epoch */
size_t loader_buffer_bytes(const loader *l);         /* host memory of the batches, all together */
size_t loader_device_bytes(const loader_options *o); /* device memory of a loader with GPU decoding */

/* Starts an epoch at a batch inside it: (epoch, 0) for the beginning; the saved pair to resume. Costs nothing when the
 * loader is already there, as after the end of the previous epoch. */
cloob_status loader_seek(cloob_ctx *ctx, loader *l, int64_t epoch, int64_t step);

/* The next batch; waits until it is ready. *b is valid until the next call; b->end is set (and rows is 0)
 * at the end of the epoch, after which the next call begins the next epoch. */
cloob_status loader_next(cloob_ctx *ctx, loader *l, batch *b);

typedef struct loader_stats {
    double wait_seconds; /* how long loader_next waited since the last call of loader_stats_take */
    double wall_seconds; /* time since that call, or since creation */
    int64_t bad_samples; /* distinct samples, since creation or loader_seek */
    int64_t samples;     /* delivered since creation */
    int64_t cpu_views;   /* with a `decoder`: views made by the workers, since creation */
} loader_stats;
loader_stats loader_stats_take(loader *l);

/* The unreadable samples so far, in ascending order, to be freed; *count of them. */
cloob_status loader_bad_samples(cloob_ctx *ctx, loader *l, int64_t **index, int64_t *count);

/* If the model waited for a fifth of the time or more, logs that data is the bottleneck, the share, and remedies. */
void loader_log_bottleneck(cloob_ctx *ctx, const loader *l, const loader_stats *s);

#endif
