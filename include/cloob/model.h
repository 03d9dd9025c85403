/* A model for use: images and texts in, embeddings out.
 *
 *     cloob_model *m;
 *     if (cloob_model_open(ctx, "RN50.safetensors", NULL, &m) != CLOOB_OK) puts(cloob_error(ctx));
 *     int64_t D = cloob_model_width(m, CLOOB_UNIT, CLOOB_IMAGE);
 *     float *image = malloc(D * sizeof *image);
 *     cloob_encode_files(ctx, m, (const char *[]){ "cat.jpg" }, 1, CLOOB_UNIT, image, NULL);
 *     cloob_model_close(m);
 *
 * Reads every format that cloob_convert reads. A model serves one thread at a time; several models in several
 * threads, each with its context, do not disturb each other. Embeddings are float rows, one per input; the
 * cosine of an image and a text is the dot product of their unit rows. */
#ifndef CLOOB_MODEL_H
#define CLOOB_MODEL_H

#include "cloob/options.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- opening ------------------------------------------------------------------------------------- */

typedef struct cloob_model cloob_model;

typedef struct cloob_model_options {
    size_t size;           /* of this struct; set by cloob_model_options_init */
    const char *device;    /* "auto" (NULL), "cpu", "cuda", "cuda:1", "ref" */
    const char *precision; /* "fp32" (NULL), "bf16", "amp_bf16", "int8" (CPU), "fp8" (GPU) */
/* vocab, config, invariant (a row has the same bytes alone or in any batch) and batch: a row of model_options.def
 * each. */
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/model_options.def"
    int64_t max_pixels; /* larger images are refused; 0: no limit; CLOOB_DEFAULT_MAX_PIXELS */
    bool photos;        /* image files are photos: turned upright by their EXIF orientation, and a JPEG above max_pixels
                            * is decoded at a smaller scale. false: pixels as torchvision's loaders give them */
} cloob_model_options;

CLOOB_API void cloob_model_options_init(cloob_model_options *o);

/* o may be NULL for defaults. */
CLOOB_API cloob_status cloob_model_open(cloob_ctx *ctx, const char *path, const cloob_model_options *o,
                                        cloob_model **out);
CLOOB_API void cloob_model_close(cloob_model *m);

typedef struct cloob_model_facts {
    char name[64];
    const char *family;     /* "ResNet" or "ViT" */
    const char *activation; /* "quickgelu" or "gelu" */
    int64_t embed;          /* D */
    int64_t image_size, context, vocab;
    int64_t image_features, text_features; /* widths before the projection */
    int64_t parameters;
    cloob_dtype stored;             /* type of the weights in the file */
    const char *method, *run;       /* of the training; "" when unknown */
    int64_t epoch;                  /* -1: unknown */
    double inv_tau, scale_hopfield; /* 0: unknown */
    bool has_tokenizer;
    const char *container, *names;  /* kind of the file, whose names its tensors have */
    const char *device, *precision; /* what it was opened with */
} cloob_model_facts;

/* Strings belong to the model. */
CLOOB_API void cloob_model_get_facts(const cloob_model *m, cloob_model_facts *out);

/* ---- encoding ------------------------------------------------------------------------------------ */

typedef enum cloob_output {
    CLOOB_UNIT = 0, /* rows of length 1 (n, D) */
    CLOOB_RAW,      /* before that (n, D) */
    CLOOB_FEATURES  /* before the projection (n, image_features or text_features) */
} cloob_output;

typedef enum cloob_side { CLOOB_IMAGE = 0, CLOOB_TEXT } cloob_side;

/* Columns of a row of embeddings. */
CLOOB_API int64_t cloob_model_width(const cloob_model *m, cloob_output what, cloob_side side);

/* Images in memory that already have the model's size: rgb (n, S, S, 3). out: (n, width), overwritten, here
 * and below. */
CLOOB_API cloob_status cloob_encode_images(cloob_ctx *ctx, cloob_model *m, const uint8_t *rgb, int64_t n,
                                           cloob_output what, float *out);
/* One image of any size: rgb (height, width, 3); resized and cropped as for evaluation. */
CLOOB_API cloob_status cloob_encode_image(cloob_ctx *ctx, cloob_model *m, const uint8_t *rgb, int64_t width,
                                          int64_t height, cloob_output what, float *out);
/* Files. bad NULL: an image that cannot be read fails the call; otherwise bad (n) says which, and their rows
 * are zero.
 */
CLOOB_API cloob_status cloob_encode_files(cloob_ctx *ctx, cloob_model *m, const char *const *path, int64_t n,
                                          cloob_output what, float *out, bool *bad);
/* n zero-terminated texts. */
CLOOB_API cloob_status cloob_encode_texts(cloob_ctx *ctx, cloob_model *m, const char *const *text, int64_t n,
                                          cloob_output what, float *out);
/* The rows of tokens that the model sees of n texts: (n, context). */
CLOOB_API cloob_status cloob_model_tokenize(cloob_ctx *ctx, const cloob_model *m, const char *const *text, int64_t n,
                                            int32_t *rows);
/* Inputs that are ready: images (n, 3, S, S), normalised; rows of tokens (n, context). */
CLOOB_API cloob_status cloob_encode_image_tensor(cloob_ctx *ctx, cloob_model *m, const float *images, int64_t n,
                                                 cloob_output what, float *out);
CLOOB_API cloob_status cloob_encode_tokens(cloob_ctx *ctx, cloob_model *m, const int32_t *tokens, int64_t n,
                                           cloob_output what, float *out);

/* ---- over data ----------------------------------------------------------------------------------- */

/* How a model is run over data: threads that decode, and Hopfield retrieval between model and result. Every setting is
 * a row of eval_options.def. With `retrieve`, both sides retrieve from the same rows of that file, as in the paper. */
typedef struct cloob_eval_options {
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/eval_options.def"
} cloob_eval_options;

#ifdef __cplusplus
}
#endif
#endif
