/* A model for use: weights from a file, images and texts in, embeddings out.
 *
 * Executors are planned on first use. In invariant mode a row has the same bytes whatever it is embedded with: texts
 * and vision transformers in F32 on the CPU run in batches, with kernels that guarantee it; a GPU runs batches of one
 * size, padded; everything else is computed row by row. Otherwise rows go in batches of the given size and halves of
 * it, which is faster and may differ in rounding. One thread at a time per encoder. */
#ifndef MODEL_ENCODER_H
#define MODEL_ENCODER_H

#include "cloob/model.h"
#include "model/params.h"
#include "nn/group.h"

typedef struct encoder encoder;

typedef struct encoder_options {
    cloob_dtype compute; /* F32 or BF16 */
    bool int8; /* with F32, on the CPU: matrices of transformers in 8 bits (tensor/cpu/gemm_i8.c, gemm_i8_groups.c) */
    bool fp8;  /* with BF16, on a GPU: factors of transformers in 8 bits, row by row */
    bool invariant; /* on by default */
    int64_t batch;  /* rows at a time, where invariance allows it; 32 */
} encoder_options;

void encoder_options_init(encoder_options *o);

/* Takes over weights that are already read: w is empty afterwards, also on failure. In fp32 on the host most tensors
 * are used in place in the mapped file; weights of a tower that is not used are never read. The device
 * outlives the encoder. */
cloob_status encoder_create(cloob_ctx *ctx, weights *w, device *dev, const encoder_options *o, encoder **out);
/* Over parameters that the caller owns (a running training); after they change, create a new encoder. */
cloob_status encoder_create_on(cloob_ctx *ctx, params *p, const encoder_options *o, encoder **out);
void encoder_destroy(encoder *e);

/* fn is called before each op of later runs, and with a NULL name after the last (exec_on_call). Runs are not recorded
 * while there is one. NULL: none. */
void encoder_on_call(encoder *e, op_call_fn *fn, void *user);

/* Device bytes that images (bytes) and texts of such an encoder would take in addition to the parameters; allocates
 * nothing. p may be a bare table. */
cloob_status encoder_measure(cloob_ctx *ctx, const params *p, const encoder_options *o, size_t *bytes);

const model_config *encoder_config(const encoder *e);
device *encoder_device(const encoder *e);
int64_t encoder_batch(const encoder *e);    /* rows computed at a time, at most */
bool encoder_packs_texts(const encoder *e); /* texts of any length share a batch at no cost */
int64_t encoder_rows_run(const encoder *e); /* computed so far, with those that only filled up a batch */
int64_t encoder_width(const encoder *e, cloob_output what, bool text);

/* out: (n, width) F32 on the host. images: (n, S, S, 3) bytes. */
cloob_status encoder_images(cloob_ctx *ctx, encoder *e, const uint8_t *images, int64_t n, cloob_output what,
                            float *out);
/* images: (n, 3, S, S) F32, normalised. */
cloob_status encoder_float_images(cloob_ctx *ctx, encoder *e, const float *images, int64_t n, cloob_output what,
                                  float *out);
/* A text's length in the steps that executors on the CPU are made for: texts of one number run together at no cost. */
int encoder_text_steps(const model_config *c, const int32_t *tokens);
/* tokens: (n, context); ids outside the vocabulary are refused by row. */
cloob_status encoder_texts(cloob_ctx *ctx, encoder *e, const int32_t *tokens, int64_t n, cloob_output what, float *out);
/* The raw rows of all tokens of one text, up to and with its end: out (tower_text_length, embed). The row of the token
 * that the model reads is encoder_texts' raw row. Makes an executor for the text's length and frees it again.
 * CLOOB_ERR_UNSUPPORTED for BERT towers. */
cloob_status encoder_text_tokens(cloob_ctx *ctx, encoder *e, const int32_t *tokens, float *out);

/* Images of a small model on the CPU, one by one, a thread for each.
 *
 * Cutting the work of a small model over threads costs more than it gains, so every image is computed by one thread,
 * and threads work on different images. An image gives the same bytes by any thread and in any number. */

typedef struct lanes lanes;

typedef struct lane_rows {
    const char *images; /* n, `stride` bytes apart: bytes (S, S, 3), or with `floats` normalised F32 (3, S, S) */
    size_t stride;
    int64_t n;
    bool floats;
    const char *result; /* the graph's name of what is wanted */
    float *out;         /* (n, width) */
    int64_t width;
} lane_rows;

/* Whether this is a case for it: a CPU, and so little work that threads would wait for each other. */
cloob_status lanes_apply(cloob_ctx *ctx, const params *p, bool *out);

/* p's weights stay as they are while the lanes live, and so does the cache. */
cloob_status lanes_create(cloob_ctx *ctx, params *p, weight_cache *cache, lanes **out);
void lanes_destroy(lanes *l); /* NULL is fine */

cloob_status lanes_run(cloob_ctx *ctx, lanes *l, const lane_rows *rows);

#endif
