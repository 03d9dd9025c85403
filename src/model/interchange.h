/* Reads and writes OpenAI, open_clip, Hugging Face and JKU checkpoints.
 *
 * Reads torch files (zip, TorchScript, stream) and safetensors with the tensor names of OpenAI, the CLOOB authors
 * (JKU), open_clip or Hugging Face, with or without the prefix "module."; folders with open_clip_config.json or
 * config.json; and cloob's own files. Without a configuration, it is inferred from the tensor shapes as in OpenAI's
 * code: heads are 64 wide, unless the sizes are those of a built-in model. Every key is used or reported.
 *
 *     weights w;
 *     interchange_report report;
 *     cloob_status s = interchange_read(ctx, "RN50.pt", &options, &w, &report);
 *     if (s == CLOOB_OK) s = interchange_write(ctx, "RN50.safetensors", FORMAT_NATIVE, &w);
 *     interchange_report_release(&report); weights_release(&w);
 * */
#ifndef MODEL_INTERCHANGE_H
#define MODEL_INTERCHANGE_H

#include <stdbool.h>

#include "model/weights.h"

/* Names of a canonical tensor in other programs' files, for reading and writing.
 *
 *     foreign f;
 *     names_foreign(hf, "transformer.resblocks.0.attn.in_proj_weight", &f);
 *     f.parts == 3: f.name[0] "text_model.encoder.layers.0.self_attn.q_proj.weight", then k, then v */

/* Naming schemes of image towers and of text towers. A file has one of each. */
typedef enum image_names {
    IMAGE_NAMES_OPENAI,    /* the canonical names */
    IMAGE_NAMES_HF,        /* Hugging Face's CLIPModel */
    IMAGE_NAMES_HF_SIGLIP, /* Hugging Face's SiglipModel */
    IMAGE_NAMES_TIMM,      /* timm's ViTs and ConvNeXt */
    IMAGE_NAMES_EVA,       /* timm's EVA-02: separate matrices for queries, keys and values, and for both halves of the
                            * gated MLP */
    IMAGE_NAMES_HAIKU,     /* crowsonkb's CLOOB: matrices (in, out), convolutions (h, w, in, out) */
    IMAGE_NAMES_HF_VIT     /* transformers' ViTModel: rinna's Japanese CLIP and CLOOB */
} image_names;

typedef enum text_names {
    TEXT_NAMES_OPENAI,
    TEXT_NAMES_JKU,       /* under "transformer." */
    TEXT_NAMES_CUSTOM,    /* under "text.": open_clip's custom-text models */
    TEXT_NAMES_HF,        /* Hugging Face's CLIPModel */
    TEXT_NAMES_HF_SIGLIP, /* Hugging Face's SiglipModel */
    TEXT_NAMES_BERT,      /* a BERT under "text.transformer.": open_clip */
    TEXT_NAMES_HAIKU,     /* crowsonkb's CLOOB */
    TEXT_NAMES_HF_BERT,   /* a BERT under "text_model.": Hugging Face's ChineseCLIPModel */
    TEXT_NAMES_MCLIP      /* a BERT under "transformer.": M-CLIP */
} text_names;

typedef struct weight_names {
    image_names image;
    text_names text;
} weight_names;

static const weight_names NAMES_OPENAI = { IMAGE_NAMES_OPENAI, TEXT_NAMES_OPENAI }; /* OpenAI, open_clip and cloob */

enum { NAME_BYTES = 192, NAME_PARTS = 3 };

typedef struct foreign {
    int parts; /* if above 1, the canonical tensor is the concatenation of the parts along its first dimension */
    int share[NAME_PARTS]; /* rows of each part, in sixths of the canonical tensor's */
    int lead;              /* number of leading dimensions of size 1 that the foreign tensor adds */
    bool transposed;       /* each part is a transposed matrix */
    bool last;             /* a convolution (out, in, h, w) is stored as (h, w, in, out) */
    char name[NAME_PARTS][NAME_BYTES];
} foreign;

/* The naming scheme for reports: "OpenAI", "Hugging Face", ... */
const char *names_whose(weight_names n);

/* Whether the names are those of transformers, whose folders have a config.json. */
bool names_is_hf(weight_names n);

void names_foreign(weight_names n, const char *canonical, foreign *out);

/* Shape of part i in the foreign file, for a canonical tensor of shape `row`. */
tensor foreign_shape(const tensor *row, const foreign *f, int i);
/* Transposes `from` (m, n) to `to` (n, m). */
void foreign_transpose(void *to, const void *from, int64_t n, int64_t m, size_t element);

typedef enum weight_format {
    FORMAT_NATIVE,   /* cloob's safetensors file */
    FORMAT_OPENAI,   /* a state dict with OpenAI's names: safetensors or torch zip, chosen by the path's extension */
    FORMAT_JKU,      /* a torch zip as written by the CLOOB authors' training: {epoch, name, state_dict} */
    FORMAT_HF,       /* a folder: model.safetensors, config.json, preprocessor_config.json */
    FORMAT_OPEN_CLIP /* a folder: open_clip_model.safetensors, open_clip_config.json */
} weight_format;

typedef struct interchange_options {
    const model_config *config; /* NULL: taken from the file, from a JSON file next to it, or from the shapes */
    const model_act *act;       /* overrides the configuration's activation; NULL: not */
    bool drop_unexpected;       /* ignore unexpected tensors instead of failing */
} interchange_options;

typedef enum key_fate { KEY_MISSING, KEY_MISSHAPED, KEY_UNEXPECTED, KEY_IGNORED, KEY_FATES } key_fate;

typedef struct interchange_report {
    arena a;
    const char *container; /* "safetensors", "torch zip", "TorchScript", "torch stream" */
    const char *names;     /* "cloob", "OpenAI", "JKU", "open_clip", "Hugging Face" */
    const char *config;    /* source of the configuration */
    const char **key[KEY_FATES];
    int64_t count[KEY_FATES], capacity[KEY_FATES];
} interchange_report;

/* Reads weights in any supported format. On failure w is empty, and the report still lists what was found. Release the
 * report in any case. */
cloob_status interchange_read(cloob_ctx *ctx, const char *path, const interchange_options *options, weights *w,
                              interchange_report *report);
void interchange_report_release(interchange_report *report);

/* Writes weights. FORMAT_HF fails for ResNets, which Hugging Face lacks. A missing logit_scale is written with CLIP's
 * initial value, with a warning. */
cloob_status interchange_write(cloob_ctx *ctx, const char *path, weight_format format, weights *w);

/* How open_clip must clean texts for the tokenizer stored in the metadata: "lower", "whitespace" or "canonicalize".
 * NULL if there is none, or if it is CLIP's, which open_clip includes. */
const char *interchange_own_tokenizer(const weights *w);

/* A file's tensors under their foreign names, and the configuration inferred from them. Only used by interchange*.c. */

typedef struct source_key {
    const char *name; /* with prefixes like "module." removed */
    int64_t index;    /* index into entry */
} source_key;

typedef struct source {
    const char *path;
    const st_entry *entry;
    int64_t count;
    source_key *sorted; /* by name */
    bool *used;         /* by index */
    weight_names names;
    bool native;
} source;

/* Indexes the tensors of w->st, w->torch or w->shard, and detects the naming scheme. Memory belongs to w->a. */
cloob_status source_index(cloob_ctx *ctx, const char *path, weights *w, source *s);
/* Index of the entry with a foreign name; -1 if absent. */
int64_t source_find(const source *s, const char *name);

/* Outcome for a row of a tower that is folded when it is read (MobileCLIP, model/fold.c). */
typedef struct fold_result {
    bool folded;                  /* false: this row is not computed from other tensors, and nothing was done */
    char missing[2 * NAME_BYTES]; /* name of the first source tensor that is missing or has another size; "": none */
} fold_result;
/* Computes rows[i] of model_shapes from timm's layers (with branches, or after reparameterize_model) and adds it to w,
 * unless a source tensor is missing. w->config must be the model's. */
cloob_status fold_row(cloob_ctx *ctx, source *s, weights *w, const st_entry *rows, int64_t i, fold_result *result);

/* The reverse: passes timm's tensors for row i of w to `put`. They fold to the same weights, up to rounding; new
 * tensors are in `a`. *unfolded false: the row is not folded, and nothing was done. */
typedef cloob_status (*unfold_put)(void *user, const char *name, const tensor *t);
enum { UNFOLD_MOST = 24 }; /* the largest number of tensors of a row */
cloob_status unfold_row(cloob_ctx *ctx, const weights *w, int64_t i, arena *a, unfold_put put, void *user,
                        bool *unfolded);

/* Infers the configuration from tensor shapes. Fails with the name of a missing tensor, or of a property that shapes do
 * not determine. */
cloob_status source_infer(cloob_ctx *ctx, const source *s, model_config *c);

/* Finds the configuration and stores it in w->config; *from: a description of its source. */
cloob_status interchange_config(cloob_ctx *ctx, const interchange_options *o, const source *s, weights *w,
                                const char **from);

#endif
