/* A model ready for use: the encoder, the tokenizer and the view of an image that belong to one file of
 * weights.
 *
 *     model *m;
 *     CLOOB_TRY(model_open(ctx, "RN50.safetensors", &options, &m));     options: cloob_model_options
 *     CLOOB_TRY(model_texts(ctx, m, text, n, CLOOB_UNIT, out));          out: (n, D)
 *     model_close(m);
 *
 * One thread at a time per model; different models may be used in different threads. */
#ifndef INFER_MODEL_FILE_H
#define INFER_MODEL_FILE_H

#include "cloob/model.h"
#include "data/text/tokenizer.h"
#include "data/view/transform.h"
#include "model/digest.h"
#include "model/encoder.h"
#include "core/option.h"

struct cloob_model {
    encoder *enc;
    device *dev;
    tokenizer *tok; /* NULL when the file has none and no vocabulary was given */
    transform_options view;
    image_limits limits;
    int64_t parameters;
    double inv_tau, scale_hopfield;                      /* 0: unknown */
    int64_t epoch;                                       /* -1: unknown */
    const char *path, *method, *run, *names, *container; /* method and run "" when unknown */
    cloob_dtype stored, compute;
    bool int8, fp8;
    char digest[DIGEST_TEXT]; /* digest.model of a file in cloob's own format; "": it has none */
    arena a;
};
typedef struct cloob_model model;

/* Any file or folder that model/interchange.h reads. A vocabulary of another size than the model's is
 * refused. */
cloob_status model_open(cloob_ctx *ctx, const char *path, const cloob_model_options *o, model **out);
void model_close(model *m); /* NULL is fine */

/* What it is; strings belong to the model. */
void model_get_facts(const model *m, cloob_model_facts *out);

/* n images in files, decoded on all threads. out: (n, width). An image that cannot be read fails the call
 * when bad is NULL; otherwise bad[i] is set, a warning names it and its row is zero. */
cloob_status model_image_files(cloob_ctx *ctx, model *m, const char *const *path, int64_t n, cloob_output what,
                               float *out, bool *bad);

/* n zero-terminated texts. out: (n, width). */
cloob_status model_texts(cloob_ctx *ctx, model *m, const char *const *text, int64_t n, cloob_output what, float *out);
/* The same with an encoder and a tokenizer that come from elsewhere. tok NULL is refused; the error names
 * --vocab. */
cloob_status encode_texts(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const char *const *text, int64_t n,
                          cloob_output what, float *out);

/* ---- rows of model_options.def and eval_options.def ----------------------------------------------- */

const option_desc *model_option_table(int64_t *count);
const option_desc *eval_option_table(int64_t *count);
void eval_options_init(cloob_eval_options *o);

#endif
