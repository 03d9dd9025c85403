/* Inference with a model: computes embeddings of images and texts.
 *
 *     cloob_model *m;
 *     if (cloob_model_open(ctx, "RN50.safetensors", NULL, &m) != CLOOB_OK) puts(cloob_error(ctx));
 *     int64_t D = cloob_model_width(m, CLOOB_UNIT, CLOOB_IMAGE);
 *     float *image = malloc(D * sizeof *image);
 *     cloob_encode_files(ctx, m, (const char *[]){ "cat.jpg" }, 1, CLOOB_UNIT, image, NULL);
 *     cloob_model_close(m);
 *
 * Reads every format that cloob_convert reads. A model may be used by one thread at a time. Models are independent:
 * each thread may use its own model and context. Embeddings are float rows, one per input; the cosine of an image
 * and a text is the dot product of their unit rows. */
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
    size_t size;        /* of this struct; set by cloob_model_options_init */
    const char *device; /* "auto" (NULL), "cpu", "cuda", "cuda:1", "ref" */
    /* "fp32" (NULL), "bf16", "amp_bf16", "f16" (matrices rounded to half precision, computed in fp32; also "fp16"),
     * "int8" (CPU), "fp8" (GPU), or "auto": the fastest that keeps a mean cosine of 0.999 with fp32
     * (cloob_model_facts names it) */
    const char *precision;
    int64_t max_pixels; /* larger images are refused; 0: no limit; default: CLOOB_DEFAULT_MAX_PIXELS */
    /* Treat image files as photos: apply the EXIF orientation, and decode a JPEG above max_pixels at a reduced scale.
     * false: the same pixels as torchvision's loaders. */
    bool photos;
/* vocab, config, invariant (a row has the same bytes alone or in any batch) and batch: model_options.def has a row for
 * each. */
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/model_options.def"
} cloob_model_options;

CLOOB_OPTIONS_INIT(cloob_model_options)

/* Opens a model file or folder; o may be NULL for defaults. The caller closes *out. On failure *out is NULL. */
CLOOB_API cloob_status cloob_model_open(cloob_ctx *ctx, const char *path, const cloob_model_options *o,
                                        cloob_model **out);
CLOOB_API void cloob_model_close(cloob_model *m); /* m may be NULL */

typedef struct cloob_model_facts {
    char name[64];
    const char *family;                    /* "ResNet" or "ViT" */
    const char *activation;                /* "quickgelu" or "gelu" */
    int64_t embed;                         /* D */
    int64_t image_size, context, vocab;    /* image_size 0: no image tower; context and vocab 0: no text tower */
    int64_t image_features, text_features; /* widths before the projection; 0: no such tower */
    int64_t parameters;
    cloob_dtype stored;             /* type of the weights in the file */
    const char *method, *run;       /* from training; "": unknown */
    int64_t epoch;                  /* -1: unknown */
    double inv_tau, scale_hopfield; /* 0: unknown */
    bool has_tokenizer;
    const char *container, *names;  /* file format; naming scheme of the tensors, such as "OpenAI" */
    const char *device, *precision; /* in use */
} cloob_model_facts;

/* Fills *out. The strings are owned by the model and valid until it is closed. */
CLOOB_API void cloob_model_get_facts(const cloob_model *m, cloob_model_facts *out);

/* ---- encoding ------------------------------------------------------------------------------------ */

typedef enum cloob_output {
    CLOOB_UNIT = 0, /* rows of length 1 (n, D) */
    CLOOB_RAW,      /* not normalised (n, D) */
    CLOOB_FEATURES  /* before the projection (n, image_features or text_features) */
} cloob_output;

typedef enum cloob_side { CLOOB_IMAGE = 0, CLOOB_TEXT } cloob_side;

/* Returns the width of an embedding: D, image_features or text_features; 0 if m is NULL. */
CLOOB_API int64_t cloob_model_width(const cloob_model *m, cloob_output what, cloob_side side);

/* Encodes images in memory that have the model's size: rgb (n, S, S, 3). out: (n, width), overwritten. The same holds
 * for `out` of the calls below. All of them fail with CLOOB_ERR_UNSUPPORTED if the model has no tower for the input. */
CLOOB_API cloob_status cloob_encode_images(cloob_ctx *ctx, cloob_model *m, const uint8_t *rgb, int64_t n,
                                           cloob_output what, float *out);
/* Encodes one image of any size: rgb (height, width, 3), resized and cropped to the evaluation view. */
CLOOB_API cloob_status cloob_encode_image(cloob_ctx *ctx, cloob_model *m, const uint8_t *rgb, int64_t width,
                                          int64_t height, cloob_output what, float *out);
/* Encodes image files. If bad is NULL, an unreadable image fails the call. Otherwise bad[i] is set to true for each
 * unreadable image i, and its row is zero. */
CLOOB_API cloob_status cloob_encode_files(cloob_ctx *ctx, cloob_model *m, const char *const *path, int64_t n,
                                          cloob_output what, float *out, bool *bad);
/* An image in one of three forms: a file (path); the bytes of a file (data, bytes); pixels rgb (height, width, 3) of
 * any size (data, width, height). Members that the form does not use are 0. */
typedef struct cloob_image_input {
    const char *path;
    const void *data;
    size_t bytes;
    int64_t width, height;
} cloob_image_input;

/* Encodes images of mixed forms. The error text names the path, or the image's index. bad: as above. */
CLOOB_API cloob_status cloob_encode_inputs(cloob_ctx *ctx, cloob_model *m, const cloob_image_input *in, int64_t n,
                                           cloob_output what, float *out, bool *bad);
/* Resizes, crops and normalises images for cloob_encode_image_tensor. out: (n, 3, S, S), overwritten. */
CLOOB_API cloob_status cloob_model_preprocess(cloob_ctx *ctx, cloob_model *m, const cloob_image_input *in, int64_t n,
                                              float *out, bool *bad);
/* Encodes n zero-terminated texts. Longer texts than the context are truncated. Fails if the model has no tokenizer. */
CLOOB_API cloob_status cloob_encode_texts(cloob_ctx *ctx, cloob_model *m, const char *const *text, int64_t n,
                                          cloob_output what, float *out);
/* Tokenizes n texts as the model's input. rows: (n, context), overwritten. */
CLOOB_API cloob_status cloob_model_tokenize(cloob_ctx *ctx, const cloob_model *m, const char *const *text, int64_t n,
                                            int32_t *rows);
/* Encode preprocessed inputs: normalised images (n, 3, S, S); rows of tokens (n, context). Fail on a value that is not
 * finite, or a token outside the vocabulary. */
CLOOB_API cloob_status cloob_encode_image_tensor(cloob_ctx *ctx, cloob_model *m, const float *images, int64_t n,
                                                 cloob_output what, float *out);
CLOOB_API cloob_status cloob_encode_tokens(cloob_ctx *ctx, cloob_model *m, const int32_t *tokens, int64_t n,
                                           cloob_output what, float *out);

/* ---- data sets ----------------------------------------------------------------------------------- */

/* Options for running a model on a data set: decoding threads, and Hopfield retrieval applied to the embeddings. Every
 * setting is a row of eval_options.def. With `retrieve`, images and texts both retrieve from the same rows of that
 * file, as in the paper. */
typedef struct cloob_eval_options {
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/eval_options.def"
} cloob_eval_options;

#ifdef __cplusplus
}
#endif
#endif
