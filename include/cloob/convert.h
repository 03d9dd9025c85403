/* Weights between formats: ours, OpenAI's, the paper authors' (JKU), open_clip's and Hugging Face's.
 *
 *     cloob_convert_options o;
 *     cloob_convert_report r;
 *     cloob_convert_options_init(&o);
 *     if (cloob_convert(ctx, "RN50.pt", "RN50.safetensors", &o, &r) != CLOOB_OK) puts(cloob_error(ctx));
 *     cloob_convert_report_release(&r);
 *
 * Reads torch .pt files (zip, the stream format before 1.6, TorchScript) without running anything in them,
 * safetensors, and the folders of open_clip and Hugging Face. The architecture is read off the shapes. */
#ifndef CLOOB_CONVERT_H
#define CLOOB_CONVERT_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cloob_weight_format {
    CLOOB_WEIGHTS_AUTO = 0,  /* OpenAI's names when the output ends in .pt, .pth or .bin, ONNX for .onnx, else ours */
    CLOOB_WEIGHTS_NATIVE,    /* our safetensors file: weights, configuration, preprocessing */
    CLOOB_WEIGHTS_OPENAI,    /* a state dict with OpenAI's names: .safetensors, or a torch zip */
    CLOOB_WEIGHTS_JKU,       /* a training checkpoint of the authors' code: {epoch, name, state_dict} */
    CLOOB_WEIGHTS_HF,        /* a folder for transformers' CLIPModel; ViT only */
    CLOOB_WEIGHTS_OPEN_CLIP, /* a folder for open_clip's local-dir: */
    CLOOB_WEIGHTS_ONNX       /* NAME.image.onnx and NAME.text.onnx for an output NAME.onnx: the towers, f32, opset 17 */
} cloob_weight_format;

typedef struct cloob_convert_options {
    size_t size; /* of this struct; set by cloob_convert_options_init */
    cloob_weight_format to;
    const char *config;     /* a model's name or a .json file that says what shapes do not; NULL: none */
    const char *activation; /* "quickgelu" or "gelu"; NULL: the configuration's */
    const char *vocab;      /* a merges file to store with the weights (native only); NULL: none */
    const char
        *dtype; /* "f32", "bf16", "f16" or "int8": type of the stored matrices (gains, biases and running statistics
                             * stay f32); NULL: as they are */
    int64_t context;      /* tokens of a text: positions are stretched to so many, as Long-CLIP does; 0: as they are */
    bool drop_unexpected; /* leave tensors out that the model does not have, instead of refusing the file */
} cloob_convert_options;

CLOOB_API void cloob_convert_options_init(cloob_convert_options *o);

/* What became of keys that were not simply taken over. */
typedef enum cloob_key_fate {
    CLOOB_KEY_MISSING = 0,
    CLOOB_KEY_MISSHAPED, /* "NAME: F32 (2, 3), wanted (3, 3)" */
    CLOOB_KEY_UNEXPECTED,
    CLOOB_KEY_IGNORED, /* known buffers that follow from the configuration, and training state */
    CLOOB_KEY_FATES
} cloob_key_fate;

typedef struct cloob_convert_report {
    char model[64];       /* name of the configuration */
    char container[32];   /* "torch zip", "torch stream", "TorchScript", "safetensors" */
    char names[32];       /* "cloob", "OpenAI", "JKU", "open_clip custom text", "Hugging Face" */
    char config_from[64]; /* "its shapes", "open_clip_config.json", ... */
    cloob_weight_format to;
    int64_t tensors, parameters, bytes; /* of what was taken */
    const char *config;                 /* the configuration as JSON, one line; NULL when reading failed before */
    const char *metadata; /* a JSON object of texts: method, inv_tau, epoch, ... but for the two long ones */
    bool has_tokenizer;
    const char *const *key[CLOOB_KEY_FATES];
    int64_t count[CLOOB_KEY_FATES];
    void *memory; /* behind the pointers above */
} cloob_convert_report;

/* Reads `in`, writes `out` (atomically; a folder for HF and OPEN_CLIP). o may be NULL for defaults, r
 * may be NULL. On failure nothing is written and r, which is filled as far as reading came, must be released
 * all the same. */
CLOOB_API cloob_status cloob_convert(cloob_ctx *ctx, const char *in, const char *out, const cloob_convert_options *o,
                                     cloob_convert_report *r);
/* Reads `in` as cloob_convert does and writes nothing: what the file holds. */
CLOOB_API cloob_status cloob_weights_describe(cloob_ctx *ctx, const char *in, const cloob_convert_options *o,
                                              cloob_convert_report *r);
/* Compares a file of ours with the checksum that training stored in it: a damaged one is CLOOB_ERR_FORMAT. *stored is
 * false, and nothing is compared, where there is none. */
CLOOB_API cloob_status cloob_weights_verify(cloob_ctx *ctx, const char *path, bool *stored);
CLOOB_API void cloob_convert_report_release(cloob_convert_report *r);

enum { CLOOB_AVERAGE_MODELS = 64 };

/* Writes (1 - alpha) path[0] + alpha mean(path[1..]) as a native file with the first one's metadata; sums in double.
 * alpha below 0: every model weighs the same. Models of other shapes are refused by the tensor's name. */
CLOOB_API cloob_status cloob_average(cloob_ctx *ctx, const char *const *path, int64_t models, double alpha,
                                     const char *out);

#ifdef __cplusplus
}
#endif
#endif
