/* Inside the loader: the slots workers fill, and one row of work. */
#ifndef DATA_LOAD_LOADER_PARTS_H
#define DATA_LOAD_LOADER_PARTS_H

#include <pthread.h>

#include "data/load/loader.h"

/* One batch: being filled, ready, or held by the caller. */
typedef struct slot {
    batch b;
    void *memory; /* images, then tokens; tokens alone where a GPU makes the views */
    bool *ok;     /* (batch): which rows hold a sample */
    int64_t rows, issued, done;
    int64_t first;       /* rows started before these, since the last seek */
    cloob_status status; /* of a failure that ends the run */
    char error[CTX_ERROR_BYTES];
} slot;

typedef struct worker_device worker_device;

/* The state of one thread; the calling thread has one, too, if there are no workers. */
typedef struct worker {
    loader *l;
    cloob_ctx *ctx;
    view_scratch *view;
    worker_device *device; /* its buffers for views made on a GPU; NULL: it makes all views on the CPU */
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

    pthread_mutex_t lock; /* guards all members below */
    pthread_cond_t work, ready;
    place next_fill, next_take; /* the batch that workers begin next, and the batch that the caller gets next */
    int64_t filled, taken;      /* batches begun and batches released, since the last seek */
    bool held;                  /* the caller holds batch `taken` */
    int busy;                   /* workers inside a row */
    bool paused, stopping;
    double wait_seconds, since;
    int64_t begun;        /* rows of all slots so far */
    uint8_t *bad;         /* a bit per sample of the data set; NULL: none is bad */
    int64_t bad_samples;  /* bits that are set */
    int64_t bad_at_first; /* rows among the first early_rows() whose sample is bad */
    sbuf bad_names;       /* of the first three of those */
    char bad_reason[256]; /* of the first */
    int64_t samples, cpu_views;
    int warned;
};

/* Fills row r of a slot: a sample, its view and its tokens. A sample that cannot be read is replaced
 * (training) or leaves ok[r] false (evaluation). Anything but CLOOB_OK ends the run. */
cloob_status loader_fill_row(worker *w, slot *s, int64_t r);
/* The view of a sample, by this thread. */
cloob_status loader_make_view(worker *w, const stored_sample *s, uint64_t key, uint8_t *out);

/* Memory of the kind that the loader's options set. */
void *loader_take_memory(const loader *l, size_t bytes);
void loader_give_memory(const loader *l, void *memory, size_t bytes);

/* --- loader_device.c: views made on a GPU ---------------------------------------------------------- */

/* Refuses options that the GPU does not support. */
cloob_status loader_device_check(cloob_ctx *ctx, const loader_options *o);
int64_t loader_device_rows(const loader *l); /* in one group */
cloob_status loader_device_create(cloob_ctx *ctx, worker *w);
void loader_device_destroy(worker *w); /* nothing where there is none */
/* begin starts a group of rows, view takes each row's w->sample, and finish returns when the views are complete. */
void loader_device_begin(worker *w);
cloob_status loader_device_view(worker *w, uint64_t key, int64_t r, uint8_t *out);
cloob_status loader_device_finish(worker *w, slot *s);

#endif
