/* Converts weights between the formats of cloob, OpenAI, the paper's authors (JKU), open_clip and Hugging Face.
 *
 *     cloob_convert_options o;
 *     cloob_convert_report r;
 *     cloob_convert_options_init(&o);
 *     if (cloob_convert(ctx, "RN50.pt", "RN50.safetensors", &o, &r) != CLOOB_OK) puts(cloob_error(ctx));
 *     cloob_convert_report_release(&r);
 *
 * Reads torch .pt files (zip, the stream format before 1.6, TorchScript) without running code from them, safetensors,
 * and folders of open_clip and Hugging Face. The architecture is inferred from the shapes. */
#ifndef CLOOB_CONVERT_H
#define CLOOB_CONVERT_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cloob_weight_format {
    CLOOB_WEIGHTS_AUTO = 0, /* by suffix: OPENAI for .pt, .pth and .bin, else NATIVE */
    CLOOB_WEIGHTS_NATIVE,   /* cloob's safetensors file: weights, configuration, preprocessing */
    CLOOB_WEIGHTS_OPENAI,   /* a state dict with OpenAI's names: .safetensors, or a torch zip */
    CLOOB_WEIGHTS_JKU,      /* a training checkpoint of the authors' code: {epoch, name, state_dict} */
    CLOOB_WEIGHTS_HF,       /* a folder for transformers' CLIPModel; ViT only */
    CLOOB_WEIGHTS_OPEN_CLIP /* a folder for open_clip's local-dir: */
} cloob_weight_format;

typedef struct cloob_convert_options {
    size_t size; /* of this struct; set by cloob_convert_options_init */
    cloob_weight_format to;
    const char *config;     /* model name or .json file, if the shapes are ambiguous; NULL: none */
    const char *activation; /* "quickgelu" or "gelu"; NULL: the configuration's */
    /* Tokenizer to store (NATIVE, HF, OPEN_CLIP): merges, tokenizer.json or a folder. NULL: the tokenizer of the
     * weights, or CLIP's merges if Python's packages or caches have them. */
    const char *vocab;
    /* Type of the stored matrices: "f32", "bf16" or "f16"; gains, biases and running statistics stay f32.
     * NULL: unchanged. */
    const char *dtype;
    int64_t context;      /* stretch the position embeddings to this many tokens, as Long-CLIP does; 0: unchanged */
    bool drop_unexpected; /* ignore unexpected tensors instead of refusing the file */
    /* Precision that `auto` takes for these weights (NATIVE), such as "fp32"; NULL: the fastest of the machine. */
    const char *auto_precision;
} cloob_convert_options;

CLOOB_OPTIONS_INIT(cloob_convert_options)

/* Why a key of the file or of the model was not converted. */
typedef enum cloob_key_fate {
    CLOOB_KEY_MISSING = 0,
    CLOOB_KEY_MISSHAPED, /* wrong shape: "NAME: F32 (2, 3), wanted (3, 3)" */
    CLOOB_KEY_UNEXPECTED,
    CLOOB_KEY_IGNORED, /* buffers that the configuration determines, and training state */
    CLOOB_KEY_FATES
} cloob_key_fate;

typedef struct cloob_convert_report {
    char model[64];       /* name of the configuration */
    char container[32];   /* "torch zip", "torch stream", "TorchScript", "safetensors" */
    char names[32];       /* "cloob", "OpenAI", "JKU", "open_clip custom text", "Hugging Face" */
    char config_from[64]; /* "its shapes", "open_clip_config.json", ... */
    cloob_weight_format to;
    int64_t tensors, parameters, bytes; /* of the converted tensors */
    const char *config;                 /* the configuration as one line of JSON; NULL if reading failed earlier */
    const char *metadata;               /* JSON object of the short metadata: method, inv_tau, epoch, ... */
    bool has_tokenizer;
    const char *const *key[CLOOB_KEY_FATES];
    int64_t count[CLOOB_KEY_FATES];
    void *memory; /* owns the pointers above */
} cloob_convert_report;

/* Reads `in` and writes `out` atomically; `out` is a folder for HF and OPEN_CLIP. o may be NULL for defaults; r may be
 * NULL. On failure nothing is written. r is filled as far as reading succeeded; the caller releases it also after a
 * failure. */
CLOOB_API cloob_status cloob_convert(cloob_ctx *ctx, const char *in, const char *out, const cloob_convert_options *o,
                                     cloob_convert_report *r);
/* Fills r with a description of `in` as cloob_convert reads it; writes nothing. */
CLOOB_API cloob_status cloob_weights_describe(cloob_ctx *ctx, const char *in, const cloob_convert_options *o,
                                              cloob_convert_report *r);
/* Verifies the checksum stored in a file in cloob's format; fails with CLOOB_ERR_FORMAT if the file is damaged. If the
 * file has no checksum, sets *stored to false and returns CLOOB_OK. */
CLOOB_API cloob_status cloob_weights_verify(cloob_ctx *ctx, const char *path, bool *stored);
CLOOB_API void cloob_convert_report_release(cloob_convert_report *r);

#ifdef __cplusplus
}
#endif
#endif
