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

#endif
