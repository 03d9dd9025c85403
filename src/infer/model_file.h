/* A model ready for use (cloob/model.h): the encoder, the tokenizer and the view of an image that belong to one file of
 * weights. One thread at a time per model; different models may be used in different threads. */
#ifndef INFER_MODEL_FILE_H
#define INFER_MODEL_FILE_H

#include "cloob/model.h"
#include "data/text/tokenizer.h"
#include "data/view/transform.h"
#include "model/digest.h"
#include "model/encoder.h"
#include "model/weights.h"
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
    bool int8, fp8, half;
    char digest[DIGEST_TEXT]; /* digest.model of a file in cloob's own format; "": it has none */
    arena a;
};
typedef struct cloob_model model;

/* The tokenizer of weights read from `path`: `vocab` (NULL: not given), or the one stored with them, or one in their
 * folder, or CLIP's merges on this machine if they have CLIP's vocabulary size. *out NULL: none was found. A tokenizer
 * of another size than the model's is refused. */
cloob_status model_tokenizer(cloob_ctx *ctx, const char *path, const char *vocab, const weights *w, tokenizer **out);
/* For errors about a missing tokenizer: how to get one for a vocabulary of this size; "" if that is not known. */
const char *tokenizer_remedy(int64_t vocab);

/* cloob_encode_texts with an encoder and a tokenizer that come from elsewhere. tok NULL is refused; the error names
 * --vocab. */
cloob_status encode_texts(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const char *const *text, int64_t n,
                          cloob_output what, float *out);

/* ---- averages of weights --------------------------------------------------------------------------- */

enum { AVERAGE_MODELS = 64 };

/* Writes (1 - alpha) path[0] + alpha mean(path[1..]) as a NATIVE file with the metadata of path[0]; sums are in double.
 * alpha below 0: equal weights. Fails if shapes or tokenizers differ; the error names the tensor or the file. */
cloob_status average_weights(cloob_ctx *ctx, const char *const *path, int64_t models, double alpha, const char *out);

/* ---- rows of model_options.def and eval_options.def ----------------------------------------------- */

const option_desc *model_option_table(int64_t *count);
const option_desc *eval_option_table(int64_t *count);
void eval_options_init(cloob_eval_options *o);

#endif
