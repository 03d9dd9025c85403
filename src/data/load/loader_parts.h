/* Inside the loader: the slots workers fill, and one row of work. */
#ifndef DATA_LOAD_LOADER_PARTS_H
#define DATA_LOAD_LOADER_PARTS_H

#include <pthread.h>

#include "data/load/loader.h"

/* One batch: being filled, ready, or held by the caller. */
typedef struct slot {
    batch b;
    void *memory; /* images, then tokens */
    bool *ok;     /* (batch): which rows hold a sample */
    int64_t rows, issued, done;
    cloob_status status; /* of a failure that ends the run */
    char error[CTX_ERROR_BYTES];
} slot;

/* What one thread needs; the calling thread has one too when there are no workers. */
typedef struct worker {
    loader *l;
    cloob_ctx *ctx;
    view_scratch *view;
    stored_sample sample;
    pthread_t thread;
    bool started;
} worker;

typedef struct place {
    int64_t epoch, step;
} place;

struct loader {
    const dataset *d;
    const tokenizer *tok;
    loader_options o;
    image_limits limits;
    int64_t batches, samples_per_epoch;
    size_t slot_bytes;
    uint64_t order_key, caption_key, view_key;
    slot *slot;
    int slots;
    worker *worker;
    int workers; /* threads; worker[0] alone serves the caller when 0 */

    pthread_mutex_t lock; /* all that follows */
    pthread_cond_t work, ready;
    place next_fill, next_take; /* which batch workers begin next, and which the caller gets next */
    int64_t filled, taken;      /* batches begun and batches released, since the last seek */
    bool held;                  /* the caller holds batch `taken` */
    int busy;                   /* workers inside a row */
    bool paused, stopping;
    double wait_seconds, since;
    int64_t bad_samples, samples;
    int warned;
};

/* Fills row r of a slot: a sample, its view and its tokens. A sample that cannot be read is replaced
 * (training) or leaves ok[r] false (evaluation). Anything but CLOOB_OK ends the run. */
cloob_status loader_fill_row(worker *w, slot *s, int64_t r);

#endif
