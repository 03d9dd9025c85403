/* Internals of the batching encoder (cloob/batcher.h).
 *
 * Threads that submit hold `model_lock` for reading while they prepare inputs and queue them; the thread that replaces
 * the model holds it for writing, so that queued inputs always belong to the model that encodes them. `lock` guards the
 * queue and the counters. Only the encoder's thread uses the model. */
#ifndef INFER_BATCHER_H
#define INFER_BATCHER_H

#include <pthread.h>

#include "cloob/batcher.h"
#include "infer/model_file.h"

typedef struct batch_call { /* a caller that waits for several items */
    pthread_cond_t ended;
    int64_t left;
} batch_call;

typedef enum batch_state { BATCH_QUEUED, BATCH_RUNNING, BATCH_DONE } batch_state;

typedef struct batch_item batch_item;
struct batch_item {
    batch_item *next;
    batch_state state;
    cloob_output what;
    bool text;
    bool all_tokens; /* out: (context, D), a row for every token; not batched with others */
    int length;      /* class of a text's length: texts of one class share a batch */
    int32_t *tokens; /* (context), or NULL */
    uint8_t *rgb;    /* (S, S, 3), or NULL */
    float *out;      /* (D) */
    double queued_at;
    cloob_status status;
    char error[256];
    batch_call *call; /* NULL: done is called */
    cloob_batch_done_fn *done;
    void *user;
};

typedef struct cloob_batcher batcher;
struct cloob_batcher {
    cloob_batcher_options o; /* o.model points to these strings */
    char *path, *device, *precision, *vocab, *config;

    pthread_rwlock_t model_lock;
    tokenizer *tok; /* NULL: none */
    transform_options view;
    image_limits limits;
    model_config shape;
    cloob_model_facts facts;
    char digest[DIGEST_TEXT];
    arena strings; /* of facts; grows by a few words with every reload */
    int64_t generation;
    bool packs_texts; /* texts of all lengths go together */

    pthread_mutex_t lock;
    pthread_cond_t work, scratch_free, reloaded;
    batch_item *head, *tail;
    int64_t preparing;
    bool stop, reload, reloading;
    cloob_status reload_status;
    char reload_error[512];
    cloob_batcher_stats stats;
    view_scratch **scratch; /* those that are free */
    int scratch_count;

    pthread_t thread;
    cloob_ctx *ctx;     /* the encoder's */
    model *m;           /* NULL while unloaded */
    batch_item **batch; /* (max_batch) the items of a batch */
    void *stage;        /* inputs of a batch, contiguous */
    float *rows;        /* results of a batch */
    size_t stage_bytes, rows_bytes;
};

/* The encoder's thread. Its argument is the batcher, whose model is not open yet; it opens it and reports through
 * reload_status. */
void *batcher_main(void *b);

/* The digest of the model in use (model_file.h). */
void batcher_get_digest(batcher *b, char out[DIGEST_TEXT]);

/* Calls `use` with the tokenizer of the model in use, which stays valid until it returns. CLOOB_ERR_ARGUMENT when the
 * model has none. */
cloob_status batcher_use_tokenizer(cloob_ctx *ctx, batcher *b,
                                   cloob_status (*use)(cloob_ctx *ctx, const tokenizer *t, void *user), void *user);

/* The raw rows of all tokens of one text: out->n is their number. Otherwise as cloob_batcher_encode. */
cloob_status batcher_encode_tokens(cloob_ctx *ctx, batcher *b, const cloob_batch_input *in,
                                   const cloob_batch_options *o, cloob_batch_rows *out);

void batch_item_free(batch_item *it);

/* Upper bound of bucket i in seconds; the last is infinity. */
double latency_bound(int i);
void latency_add(cloob_latency *h, double seconds);

#endif
