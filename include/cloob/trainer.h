/* Training step by step on arrays in memory, for programs with their own data pipeline. cloob_train (train.h) is the
 * complete loop with files, schedules and resuming.
 *
 *     cloob_trainer_options o;
 *     cloob_trainer *t;
 *     cloob_trainer_options_init(&o);
 *     o.model = "tiny", o.tokenizer = tokenizer, o.batch = 64;
 *     cloob_trainer_create(ctx, &o, &t);
 *     for (...) cloob_trainer_step(ctx, t, rgb, tokens, 1e-3, &result);
 *     cloob_trainer_save(ctx, t, "model.safetensors");
 *     cloob_trainer_destroy(t);
 */
#ifndef CLOOB_TRAINER_H
#define CLOOB_TRAINER_H

#include "cloob/objective.h"
#include "cloob/options.h"
#include "cloob/tokenizer.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_trainer_options {
    size_t size;                      /* of this struct; set by cloob_trainer_options_init */
    const char *model;                /* name of a model, or a .json file; default: "tiny" */
    const char *device, *precision;   /* NULL: auto, fp32 */
    const cloob_tokenizer *tokenizer; /* sets the vocabulary size and is stored with the weights; NULL: the model's
                                       * vocabulary size, and no tokenizer is stored */
    int64_t batch;                    /* pairs per step; default: 64 */
    cloob_method method;
    double inv_tau, scale_hopfield; /* the defaults of options.h */
    double beta1, beta2, eps, wd;   /* AdamW: .9, .999, 1e-8, CLOOB_DEFAULT_WD */
    double grad_clip_norm;          /* 0: no clipping */
    uint64_t seed;                  /* of the initial weights */
} cloob_trainer_options;

CLOOB_OPTIONS_INIT(cloob_trainer_options)

typedef struct cloob_trainer cloob_trainer; /* one thread at a time */

/* Creates the model with random weights. The caller destroys *out. Fails if the model is unknown. */
CLOOB_API cloob_status cloob_trainer_create(cloob_ctx *ctx, const cloob_trainer_options *o, cloob_trainer **out);
CLOOB_API void cloob_trainer_destroy(cloob_trainer *t); /* t may be NULL */

CLOOB_API int64_t cloob_trainer_image_size(const cloob_trainer *t); /* S, the side of its images in pixels */
CLOOB_API int64_t cloob_trainer_context(const cloob_trainer *t);    /* T, the tokens of a text */

typedef struct cloob_trainer_result {
    double loss, image_term, text_term, grad_norm;
    bool skipped; /* loss or gradient not finite: no update */
} cloob_trainer_result;

/* Runs one step with learning rate lr. rgb: (batch, S, S, 3) bytes; tokens: (batch, T) from
 * cloob_tokenizer_encode_rows. r may be NULL. Fails on a token outside the vocabulary. */
CLOOB_API cloob_status cloob_trainer_step(cloob_ctx *ctx, cloob_trainer *t, const uint8_t *rgb, const int32_t *tokens,
                                          double lr, cloob_trainer_result *r);

/* Writes weights, configuration and tokenizer in cloob's format, atomically; cloob_model_open reads the file. */
CLOOB_API cloob_status cloob_trainer_save(cloob_ctx *ctx, cloob_trainer *t, const char *path);

#ifdef __cplusplus
}
#endif
#endif
