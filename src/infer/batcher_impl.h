/* Inside the batching encoder: batcher.c opens the model and encodes, batch_call.c prepares inputs and waits.
 *
 * Callers hold `model_lock` for reading while they prepare inputs and queue them; the encoder thread holds it for
 * writing while it replaces the model, so queued inputs always belong to the model that encodes them. `lock` guards the
 * queue and the counters. Only the encoder thread uses the model. */
#ifndef INFER_BATCHER_IMPL_H
#define INFER_BATCHER_IMPL_H

#include <pthread.h>

#include "infer/batcher.h"
#include "infer/model_file.h"

typedef struct batch_call { /* a caller that waits for several items */
    pthread_cond_t ended;
    int64_t left;        /* items that have not ended */
    cloob_status status; /* the first failure */
    char error[256];
} batch_call;

typedef struct batch_item batch_item;
struct batch_item {
    batch_item *next;
    batch_call *call;
    cloob_output what;
    bool text;
    bool all_tokens; /* out: (context, D), a row for every token; not batched with others */
    int length;      /* class of a text's length: texts of one class share a batch */
    int32_t *tokens; /* (context), or NULL */
    uint8_t *rgb;    /* (S, S, 3), or NULL */
    float *out;      /* (D), owned by the caller */
    double queued_at;
};

struct batcher {
    batcher_options o; /* its strings are in `strings` */
    const char *path;

    pthread_rwlock_t model_lock;
    tokenizer *tok; /* NULL: none */
    transform_options view;
    image_limits limits;
    model_config shape;
    cloob_model_facts facts;
    char digest[DIGEST_TEXT];
    arena strings; /* of options and facts; grows by a few words with every reload */
    int64_t generation;
    bool packs_texts; /* texts of all lengths share a batch */

    pthread_mutex_t lock;
    pthread_cond_t work, scratch_free, reloaded;
    batch_item *head, *tail;
    int64_t preparing;
    bool stop, reload, reloading;
    cloob_status reload_status;
    char reload_error[512];
    batcher_stats stats;
    view_scratch **scratch; /* those that are free */
    int scratch_count;

    pthread_t thread;
    cloob_ctx *ctx; /* the encoder's */
    model *m;       /* NULL while unloaded */
};

/* With lock held: unlinks the first `most` items that `wanted` accepts, and returns them as a list of *n. */
typedef bool item_test(const batch_item *it, const void *what);
batch_item *batch_unlink(batcher *b, item_test *wanted, const void *what, int64_t most, int64_t *n);

#endif
