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

#include "cloob/data.h"
#include "cloob/tokenizer.h"
#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- opening ------------------------------------------------------------------------------------- */

typedef struct cloob_model cloob_model;

typedef struct cloob_model_options {
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
CLOOB_API const cloob_option *cloob_model_option_table(int64_t *count);

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

/* ---- models without weights ---------------------------------------------------------------------- */

/* What a known model is, and what a training step or embedding of it would take. Nothing is allocated for it. */
typedef struct cloob_model_outline {
    char name[64];
    const char *family;                             /* "ResNet" or "ViT" */
    const char *image_activation, *text_activation; /* "quickgelu", "gelu" or "gelu_tanh" */
    int64_t embed, image_size, image_width, image_layers, image_heads, image_tokens, patch; /* patch 0: a ResNet */
    int64_t context, vocab, text_width, text_layers, text_heads;
    int64_t tensors, parameters, image_parameters, text_parameters;
    int64_t batch; /* of the numbers that follow, in bytes, on the CPU */
    int64_t step_bytes, step_params, step_optimizer, step_image, step_text, step_objective;
    int64_t embed_bytes; /* weights and activations of embedding such a batch */
    char *config;        /* our JSON; free it with cloob_model_outline_release */
} cloob_model_outline;

/* A name of the table (docs/reference/models.md), spelling of "-", "/" and case forgiven. */
CLOOB_API bool cloob_model_known(const char *name);
/* model: a name or the path of a .json file; precision "fp32" (NULL), "bf16". */
CLOOB_API cloob_status cloob_model_describe(cloob_ctx *ctx, const char *model, int64_t batch, const char *precision,
                                            cloob_model_outline *out);
CLOOB_API void cloob_model_outline_release(cloob_model_outline *o);

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

/* ---- many at once -------------------------------------------------------------------------------- */

typedef struct cloob_embedded {
    int64_t rows; /* of image and label, or of text where there are texts alone */
    int64_t text_rows;
    int64_t bad; /* inputs left out because they cannot be read */
    int64_t image_width, text_width;
    float *image, *text; /* NULL: none */
    int64_t *label;      /* (rows); NULL: no classes */
    int64_t *row; /* (rows) which sample of the data set; gaps where images could not be read. NULL: no data set */
    int64_t *text_image; /* (text_rows) which row of image a text belongs to; NULL: row i has text i */
    char **name;         /* (rows) of the images; NULL: unknown */
    char **caption;      /* (text_rows); NULL: unknown, or too long all together (64 MiB) */
    char **class_name;   /* (classes) */
    int64_t classes;
} cloob_embedded;

CLOOB_API void cloob_embedded_release(cloob_embedded *e);

/* A data set in its order: images, captions where there are any and the model has a tokenizer, labels where
 * there are classes. workers: threads that decode.
 *
 * Here and in the next three, *e is zero-initialised before the first call; each fills what it names, and
 * refuses to replace what another has filled. On failure e keeps what it had. */
CLOOB_API cloob_status cloob_embed_data(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d, cloob_output what,
                                        int workers, cloob_embedded *e);
/* Files and folders; fills image and name. A file that was named must be readable, those in folders are left
 * out and counted. */
CLOOB_API cloob_status cloob_embed_images(cloob_ctx *ctx, cloob_model *m, const char *const *path, int64_t n,
                                          cloob_output what, cloob_embedded *e);
/* One text per line of a file; empty lines are refused, as rows would no longer match lines. Fills text. */
CLOOB_API cloob_status cloob_embed_text_file(cloob_ctx *ctx, cloob_model *m, const char *path, cloob_output what,
                                             cloob_embedded *e);
/* A safetensors file with `images` F32 (n, 3, S, S), normalised, and/or `tokens` I32 or I64 (n, context). */
CLOOB_API cloob_status cloob_embed_tensors(cloob_ctx *ctx, cloob_model *m, const char *path, cloob_output what,
                                           cloob_embedded *e);

/* How a model is run over data: threads that decode, and Hopfield retrieval between model and result. Every setting is
 * a row of eval_options.def. With `retrieve`, both sides retrieve from the same rows of that file, as in the paper. */
typedef struct cloob_eval_options {
#define CLOOB_OPTION_NAMED(type, field, ...) CLOOB_MEMBER_##type(field);
#include "cloob/eval_options.def"
} cloob_eval_options;

CLOOB_API void cloob_eval_options_init(cloob_eval_options *o);
CLOOB_API const cloob_option *cloob_eval_option_table(int64_t *count);

/* Everything of the above in one go, into a file instead of memory. */
typedef struct cloob_embed_job {
    cloob_output what;
    const cloob_dataset *data; /* the four sources as above; NULL or 0: not this one */
    bool all_captions;         /* of the data set: every caption of an image, and text_image says whose it is */
    const char *tensors;
    const char *const *images; /* (images_count) files and folders */
    int64_t images_count;
    const char *texts;
    cloob_eval_options eval;
} cloob_embed_job;

CLOOB_API void cloob_embed_job_init(cloob_embed_job *job); /* unit rows, no source */

/* Rows go to the file as they come, so that memory does not grow with their number; the file is that of
 * cloob_embedded_write. Its space is taken at the beginning; a kill leaves nothing under its name. *e is
 * overwritten with counts, widths, names, captions and classes; all else stays NULL. */
CLOOB_API cloob_status cloob_embed_to_file(cloob_ctx *ctx, cloob_model *m, const cloob_embed_job *job, const char *path,
                                           cloob_embedded *e);

/* Writes `image`, `text`, `label`, `row`, `text_image` and, in the metadata, `names`, `captions` and `classes` as JSON
 * lists; or, when the path ends in .npy, the one matrix there is, and PATH.txt with a name per row. Written
 * atomically. */
CLOOB_API cloob_status cloob_embedded_write(cloob_ctx *ctx, const cloob_embedded *e, const char *path);

#ifdef __cplusplus
}
#endif
#endif
