/* Training step by step on one's own arrays, for programs that bring their data themselves. cloob_train
 * (train.h) is the whole loop with files, schedules and resuming.
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
    const char *model;                /* a name, or a .json file; "tiny" */
    const char *device, *precision;   /* NULL: auto, fp32 */
    const cloob_tokenizer *tokenizer; /* decides the vocabulary and is stored with the weights; NULL: the
                                       * model's size of vocabulary, and nothing stored */
    int64_t batch;                    /* pairs of a step; 64 */
    cloob_method method;
    double inv_tau, scale_hopfield; /* the defaults of options.h */
    double beta1, beta2, eps, wd;   /* AdamW: .9, .999, 1e-8, CLOOB_DEFAULT_WD */
    double grad_clip_norm;          /* 0: none */
    uint64_t seed;                  /* of the initial weights */
} cloob_trainer_options;

CLOOB_API void cloob_trainer_options_init(cloob_trainer_options *o);

typedef struct cloob_trainer cloob_trainer; /* one thread at a time */

CLOOB_API cloob_status cloob_trainer_create(cloob_ctx *ctx, const cloob_trainer_options *o, cloob_trainer **out);
CLOOB_API void cloob_trainer_destroy(cloob_trainer *t);

CLOOB_API int64_t cloob_trainer_image_size(const cloob_trainer *t); /* S */
CLOOB_API int64_t cloob_trainer_context(const cloob_trainer *t);    /* T */

typedef struct cloob_trainer_result {
    double loss, image_term, text_term, grad_norm;
    bool skipped; /* loss or gradient not finite: nothing was changed */
} cloob_trainer_result;

/* One step. rgb: (batch, S, S, 3) bytes; tokens: (batch, T) as cloob_tokenizer_encode_rows makes them. r may
 * be NULL. */
CLOOB_API cloob_status cloob_trainer_step(cloob_ctx *ctx, cloob_trainer *t, const uint8_t *rgb, const int32_t *tokens,
                                          double lr, cloob_trainer_result *r);

/* Weights, configuration and tokenizer in our format, for cloob_model_open. Written atomically. */
CLOOB_API cloob_status cloob_trainer_save(cloob_ctx *ctx, cloob_trainer *t, const char *path);

#ifdef __cplusplus
}
#endif
#endif
