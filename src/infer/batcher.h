/* Dynamic batching: many threads submit texts and images, and inputs that arrive together are encoded in one batch.
 *
 *     batcher *b;
 *     batch_rows rows;
 *     batch_input in[] = { { .kind = BATCH_TEXT, .text = "a dog" },
 *                                { .kind = BATCH_IMAGE_FILE, .data = jpeg, .bytes = jpeg_bytes } };
 *     batcher_create(ctx, "M.safetensors", NULL, &b);
 *     batcher_encode(ctx, b, in, 2, NULL, &rows);               from any thread, with its own context
 *     printf("cosine %g\n", dot(rows.data, rows.data + rows.width, rows.width));
 *     batch_rows_release(&rows);
 *     batcher_destroy(b);
 *
 * One encoder thread owns the model. The submitting threads tokenize texts and decode images. The queue is bounded: an
 * input that does not fit fails with CLOOB_ERR_BUSY. The weights are copied into memory, so their file may be
 * rewritten; if unloaded weights cannot be reloaded, inputs fail with CLOOB_ERR_IO. Unless model.invariant is false,
 * a row has the same bytes alone and in any batch. */
#ifndef INFER_BATCHER_H
#define INFER_BATCHER_H

#include "cloob/model.h"
#include "data/text/tokenizer.h"
#include "model/digest.h"

/* ---- life cycle ---------------------------------------------------------------------------------- */

typedef struct batcher batcher;

typedef struct batcher_options {
    cloob_model_options model; /* strings are copied */
    int64_t max_batch;         /* largest number of rows per batch; default: 32 */
    int64_t max_wait_us;       /* time that a partial batch waits for inputs in preparation; default: 2000 */
    int64_t max_queue;         /* capacity of the queue in inputs; default: 4096 */
    int decoders;              /* images decoded concurrently; 0: one per CPU thread */
    int64_t max_pixels;        /* larger images are refused; default: 25,000,000 */
    double idle_unload_s;      /* free weights unused for this long and reload them on demand; 0: never */
} batcher_options;

void batcher_options_init(batcher_options *o);

/* Opens the model; fails as cloob_model_open does. o may be NULL. The encoder thread copies the thread count and log
 * callback of ctx, which need not outlive the call. */
cloob_status batcher_create(cloob_ctx *ctx, const char *path, const batcher_options *o, batcher **out);
/* Frees b. No other thread may use b during or after the call. b may be NULL. */
void batcher_destroy(batcher *b);

/* Reopens the file, processes the inputs queued so far, then replaces the model; returns when this is done. On failure
 * the old model stays in use. */
cloob_status batcher_reload(cloob_ctx *ctx, batcher *b);

/* Fills *out. The strings are owned by b and valid until it is destroyed. */
void batcher_get_facts(batcher *b, cloob_model_facts *out);

/* ---- encoding ------------------------------------------------------------------------------------ */

typedef enum batch_kind {
    BATCH_TEXT = 0,   /* text, zero-terminated */
    BATCH_TOKENS,     /* ids (count), with or without start and end */
    BATCH_IMAGE_FILE, /* data, bytes: JPEG, PNG or WebP */
    BATCH_IMAGE_RGB   /* data: (size, size, 3) at the model's size */
} batch_kind;

typedef struct batch_input {
    batch_kind kind;
    const char *text;
    const int32_t *ids;
    int64_t count;
    const void *data;
    size_t bytes;
} batch_input;

typedef struct batch_options {
    cloob_output what;  /* CLOOB_UNIT or CLOOB_RAW */
    bool refuse_long;   /* a text longer than the context fails instead of being truncated */
    int64_t timeout_ms; /* fail with CLOOB_ERR_BUSY after this time; 0: no timeout */
} batch_options;

typedef struct batch_rows {
    float *data; /* (n, width) in the order of the inputs; freed by batch_rows_release */
    int64_t n, width;
    int64_t tokens;           /* of all texts after truncation, including start and end */
    int64_t image_w, image_h; /* size of the last image file; 0: none */
    double prepare_s, wait_s; /* tokenizing and decoding; queue and encoder */
} batch_rows;

void batch_rows_release(batch_rows *r);

/* Encodes n inputs and waits for their rows; o may be NULL. An unusable input fails the call; with several inputs the
 * error text has its index. Inputs are prepared and queued in pieces, so memory is bounded. The caller releases *out;
 * on failure *out is empty. */
cloob_status batcher_encode(cloob_ctx *ctx, batcher *b, const batch_input *in, int64_t n, const batch_options *o,
                            batch_rows *out);

/* The digest of the model in use (model_file.h). */
void batcher_get_digest(batcher *b, char out[DIGEST_TEXT]);

/* The tokenizer of the model in use, which stays until batcher_release_tokenizer. CLOOB_ERR_ARGUMENT when the model has
 * none; there is nothing to release then. */
cloob_status batcher_acquire_tokenizer(cloob_ctx *ctx, batcher *b, const tokenizer **out);
void batcher_release_tokenizer(batcher *b);

/* The raw rows of all tokens of one text: out->n is their number. Otherwise as batcher_encode. */
cloob_status batcher_encode_tokens(cloob_ctx *ctx, batcher *b, const batch_input *in, const batch_options *o,
                                   batch_rows *out);

/* ---- statistics ---------------------------------------------------------------------------------- */

enum { LATENCY_BUCKETS = 16, BATCH_BUCKETS = 12 };

/* Upper bounds in seconds: 0.0005, 0.001, 0.0025, 0.005, ... 10, 30, infinity. */
typedef struct latency_histogram {
    int64_t count[LATENCY_BUCKETS]; /* per bucket, not cumulative */
    int64_t total;
    double sum_s;
} latency_histogram;

typedef struct batcher_stats {
    int64_t queued, running;                          /* now */
    int64_t texts, images, refused, failed;           /* since the start */
    int64_t batches[2], rows[2];                      /* by cloob_side */
    int64_t batch_size[2][BATCH_BUCKETS];             /* bucket i: up to 2^i rows */
    latency_histogram prepare[2], wait[2], encode[2]; /* by side: per input, per input, per batch */
    int64_t loads;                                    /* number of times the weights were loaded */
    bool loaded;
    char error[512]; /* why inputs are refused, until a reload succeeds; "": no error */
} batcher_stats;

void batcher_get_stats(batcher *b, batcher_stats *out);

/* Upper bound of bucket i in seconds; the last is infinity. */
double latency_bound(int i);
void latency_add(latency_histogram *h, double seconds);

#endif
