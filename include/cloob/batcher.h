/* Dynamic batching: many threads submit texts and images, and inputs that arrive together are encoded in one batch.
 *
 *     cloob_batcher *b;
 *     cloob_batch_rows rows;
 *     cloob_batch_input in[] = { { .kind = CLOOB_BATCH_TEXT, .text = "a dog" },
 *                                { .kind = CLOOB_BATCH_IMAGE_FILE, .data = jpeg, .bytes = jpeg_bytes } };
 *     cloob_batcher_create(ctx, "M.safetensors", NULL, &b);
 *     cloob_batcher_encode(ctx, b, in, 2, NULL, &rows);               from any thread, with its own context
 *     printf("cosine %g\n", dot(rows.data, rows.data + rows.width, rows.width));
 *     cloob_batch_rows_release(&rows);
 *     cloob_batcher_destroy(b);
 *
 * One encoder thread owns the model. The submitting threads tokenize texts and decode images. The queue is bounded: an
 * input that does not fit fails with CLOOB_ERR_BUSY. The weights are copied into memory, so their file may be
 * rewritten; if unloaded weights cannot be reloaded, inputs fail with CLOOB_ERR_IO. Unless model.invariant is false,
 * a row has the same bytes alone and in any batch. */
#ifndef CLOOB_BATCHER_H
#define CLOOB_BATCHER_H

#include "cloob/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- life cycle ---------------------------------------------------------------------------------- */

typedef struct cloob_batcher cloob_batcher;

typedef struct cloob_batcher_options {
    size_t size;                                           /* of this struct; set by cloob_batcher_options_init */
    CLOOB_OPTIONS_INSIDE(cloob_model_options, model, 256); /* strings are copied */
    int64_t max_batch;                                     /* largest number of rows per batch; default: 32 */
    int64_t max_wait_us;  /* time that a partial batch waits for inputs in preparation; default: 2000 */
    int64_t max_queue;    /* capacity of the queue in inputs; default: 4096 */
    int decoders;         /* images decoded concurrently; 0: one per CPU thread */
    int64_t max_pixels;   /* larger images are refused; default: 25,000,000 */
    double idle_unload_s; /* free weights unused for this long and reload them on demand; 0: never */
} cloob_batcher_options;

CLOOB_OPTIONS_INIT(cloob_batcher_options)

/* Opens the model; fails as cloob_model_open does. o may be NULL. The encoder thread copies the thread count and log
 * callback of ctx, which need not outlive the call. */
CLOOB_API cloob_status cloob_batcher_create(cloob_ctx *ctx, const char *path, const cloob_batcher_options *o,
                                            cloob_batcher **out);
/* Frees b. No other thread may use b during or after the call. b may be NULL. */
CLOOB_API void cloob_batcher_destroy(cloob_batcher *b);

/* Reopens the file, processes the inputs queued so far, then replaces the model; returns when this is done. On failure
 * the old model stays in use. */
CLOOB_API cloob_status cloob_batcher_reload(cloob_ctx *ctx, cloob_batcher *b);

/* Fills *out. The strings are owned by b and valid until it is destroyed. */
CLOOB_API void cloob_batcher_get_facts(cloob_batcher *b, cloob_model_facts *out);

/* ---- encoding ------------------------------------------------------------------------------------ */

typedef enum cloob_batch_kind {
    CLOOB_BATCH_TEXT = 0,   /* text, zero-terminated */
    CLOOB_BATCH_TOKENS,     /* ids (count), with or without start and end */
    CLOOB_BATCH_IMAGE_FILE, /* data, bytes: JPEG, PNG or WebP */
    CLOOB_BATCH_IMAGE_RGB   /* data: (size, size, 3) at the model's size */
} cloob_batch_kind;

typedef struct cloob_batch_input {
    cloob_batch_kind kind;
    const char *text;
    const int32_t *ids;
    int64_t count;
    const void *data;
    size_t bytes;
} cloob_batch_input;

typedef struct cloob_batch_options {
    cloob_output what;  /* CLOOB_UNIT or CLOOB_RAW */
    bool refuse_long;   /* a text longer than the context fails instead of being truncated */
    int64_t timeout_ms; /* fail with CLOOB_ERR_BUSY after this time; 0: no timeout */
} cloob_batch_options;

typedef struct cloob_batch_rows {
    float *data; /* (n, width) in the order of the inputs; freed by cloob_batch_rows_release */
    int64_t n, width;
    int64_t tokens;           /* of all texts after truncation, including start and end */
    int64_t image_w, image_h; /* size of the last image file; 0: none */
    double prepare_s, wait_s; /* tokenizing and decoding; queue and encoder */
} cloob_batch_rows;

CLOOB_API void cloob_batch_rows_release(cloob_batch_rows *r);

/* Encodes n inputs and waits for their rows; o may be NULL. An unusable input fails the call; with several inputs the
 * error text has its index. Inputs are prepared and queued in pieces, so memory is bounded. The caller releases *out;
 * on failure *out is empty. */
CLOOB_API cloob_status cloob_batcher_encode(cloob_ctx *ctx, cloob_batcher *b, const cloob_batch_input *in, int64_t n,
                                            const cloob_batch_options *o, cloob_batch_rows *out);

/* ---- statistics ---------------------------------------------------------------------------------- */

enum { CLOOB_LATENCY_BUCKETS = 16, CLOOB_BATCH_BUCKETS = 12 };

/* Upper bounds in seconds: 0.0005, 0.001, 0.0025, 0.005, ... 10, 30, infinity. */
typedef struct cloob_latency {
    int64_t count[CLOOB_LATENCY_BUCKETS]; /* per bucket, not cumulative */
    int64_t total;
    double sum_s;
} cloob_latency;

typedef struct cloob_batcher_stats {
    int64_t queued, running;                      /* now */
    int64_t texts, images, refused, failed;       /* since the start */
    int64_t batches[2], rows[2];                  /* by cloob_side */
    int64_t batch_size[2][CLOOB_BATCH_BUCKETS];   /* bucket i: up to 2^i rows */
    cloob_latency prepare[2], wait[2], encode[2]; /* by side: per input, per input, per batch */
    int64_t loads;                                /* number of times the weights were loaded */
    bool loaded;
    char error[512]; /* why inputs are refused, until a reload succeeds; "": no error */
} cloob_batcher_stats;

CLOOB_API void cloob_batcher_get_stats(cloob_batcher *b, cloob_batcher_stats *out);

#ifdef __cplusplus
}
#endif
#endif
