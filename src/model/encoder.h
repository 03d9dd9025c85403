/* Inference: computes the embeddings of images and texts.
 *
 * Executors are planned on first use. In invariant mode the result of a row does not depend, to the last bit, on the
 * other rows of its batch: texts and vision transformers run in batches on CPUs whose kernels guarantee it; a GPU runs
 * padded batches of one size; everything else is computed row by row. Otherwise rows are computed in batches of the
 * given size, its half, its quarter and so on, which is faster and may differ in rounding. An encoder may be used by
 * one thread at a time. */
#ifndef MODEL_ENCODER_H
#define MODEL_ENCODER_H

#include "cloob/model.h"
#include "model/params.h"
#include "nn/group.h"

typedef struct encoder encoder;

typedef struct encoder_options {
    cloob_dtype compute; /* F32 or BF16 */
    bool int8; /* with F32 on the CPU: transformers multiply 8-bit matrices (tensor/cpu/gemm_i8.c, gemm_i8_groups.c) */
    bool fp8;  /* with BF16 on a GPU: transformers multiply 8-bit matrices with a scale per row */
    bool invariant; /* default: true */
    int64_t batch;  /* the largest batch size, where invariance allows batches; default: 32 */
} encoder_options;

void encoder_options_init(encoder_options *o);

/* Takes ownership of the weights: w is empty afterwards, also on failure. In fp32 on the host most tensors are used in
 * place in the mapped file, and weights of an unused tower are never read. The device must outlive the encoder. */
cloob_status encoder_create(cloob_ctx *ctx, weights *w, device *dev, const encoder_options *o, encoder **out);
/* Encodes with parameters that the caller owns (those of a running training). Create a new encoder after they
 * change. */
cloob_status encoder_create_on(cloob_ctx *ctx, params *p, const encoder_options *o, encoder **out);
void encoder_destroy(encoder *e);

/* Sets a function that is called before each op of later runs, and with a NULL name after the last one (see
 * exec_on_call). While it is set, runs are not captured. NULL removes it. */
void encoder_on_call(encoder *e, op_call_fn *fn, void *user);

/* Device bytes that executors for images (bytes) and texts need in addition to the parameters. Allocates nothing; p may
 * be a table without memory (PARAMS_TABLE). */
cloob_status encoder_measure(cloob_ctx *ctx, const params *p, const encoder_options *o, size_t *bytes);

const model_config *encoder_config(const encoder *e);
device *encoder_device(const encoder *e);
int64_t encoder_batch(const encoder *e);    /* the largest number of rows computed at a time */
bool encoder_packs_texts(const encoder *e); /* whether texts of different lengths share a batch without padding */
int64_t encoder_rows_run(const encoder *e); /* rows computed so far, including padding rows */
int64_t encoder_width(const encoder *e, cloob_output what, bool text);

/* Embeds n images, (n, S, S, 3) bytes. out: (n, width) F32 in host memory. */
cloob_status encoder_images(cloob_ctx *ctx, encoder *e, const uint8_t *images, int64_t n, cloob_output what,
                            float *out);
/* As encoder_images, for normalised images (n, 3, S, S) F32. Fails for NaN or infinity. */
cloob_status encoder_float_images(cloob_ctx *ctx, encoder *e, const float *images, int64_t n, cloob_output what,
                                  float *out);
/* A text's length in steps of the CPU executors' lengths: texts with equal steps share a batch without additional
 * padding. */
int encoder_text_steps(const model_config *c, const int32_t *tokens);
/* Embeds n texts. tokens: (n, context); fails for an id outside the vocabulary. */
cloob_status encoder_texts(cloob_ctx *ctx, encoder *e, const int32_t *tokens, int64_t n, cloob_output what, float *out);
/* Raw embeddings for every token of one text, up to and including its end: out (tower_text_length, embed). The row of
 * the token that the model pools equals the raw result of encoder_texts. Creates an executor for the text's length and
 * frees it. Fails with CLOOB_ERR_UNSUPPORTED for BERT towers. */
cloob_status encoder_text_tokens(cloob_ctx *ctx, encoder *e, const int32_t *tokens, float *out);

/* Images of a small model on the CPU: one thread per image.
 *
 * Splitting the work of a small model over threads costs more than it gains. Therefore each image is computed by one
 * thread, and threads work on different images. The result does not depend on the thread or on the number of images. */

typedef struct lanes lanes;

typedef struct lane_rows {
    const char *images; /* n images, `stride` bytes apart: bytes (S, S, 3), or normalised F32 (3, S, S) with `floats` */
    size_t stride;
    int64_t n;
    bool floats;
    const char *result; /* name of the result in the graph */
    float *out;         /* (n, width) */
    int64_t width;
} lane_rows;

/* Whether lanes are faster: on a CPU, for so few operations per image that threads would wait for each other. */
cloob_status lanes_apply(cloob_ctx *ctx, const params *p, bool *out);

/* p's weights and `cache` must outlive the lanes and not change. */
cloob_status lanes_create(cloob_ctx *ctx, params *p, weight_cache *cache, lanes **out);
void lanes_destroy(lanes *l); /* NULL is allowed */

cloob_status lanes_run(cloob_ctx *ctx, lanes *l, const lane_rows *rows);

#endif
