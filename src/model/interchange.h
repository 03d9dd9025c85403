/* Reads and writes OpenAI, open_clip, Hugging Face and JKU checkpoints.
 *
 * Reads torch files (zip, TorchScript, stream) and safetensors with OpenAI's names, the authors', open_clip's
 * or Hugging Face's, with or without "module."; a folder with open_clip_config.json or config.json; and cloob's
 * own. Where no configuration is given it is read off the shapes as OpenAI's code does it: heads are 64 wide
 * unless the sizes are those of a built-in model. Every key is accounted for: it is used, or it is reported.
 *
 *     weights w;
 *     interchange_report report;
 *     cloob_status s = interchange_read(ctx, "RN50.pt", &options, &w, &report);
 *     if (s == CLOOB_OK) s = interchange_write(ctx, "RN50.safetensors", FORMAT_NATIVE, &w);
 *     interchange_report_release(&report); weights_release(&w);
 */
#ifndef MODEL_INTERCHANGE_H
#define MODEL_INTERCHANGE_H

#include <stdbool.h>

#include "model/weights.h"

/* What a tensor with a canonical name is called in other programs' files; used for reading and for writing.
 *
 *     foreign f;
 *     names_foreign(hf, "transformer.resblocks.0.attn.in_proj_weight", &f);
 *     f.parts == 3: f.name[0] "text_model.encoder.layers.0.self_attn.q_proj.weight", then k, then v */

/* Names of image towers and of text towers; a file has one of each. */
typedef enum image_names {
    IMAGE_NAMES_OPENAI,    /* the canonical ones */
    IMAGE_NAMES_HF,        /* Hugging Face's CLIPModel */
    IMAGE_NAMES_HF_SIGLIP, /* its SiglipModel */
    IMAGE_NAMES_TIMM,      /* timm's ViTs, and its ConvNeXt */
    IMAGE_NAMES_EVA,       /* timm's EVA-02: the matrices of attention and of the gate apart */
    IMAGE_NAMES_HAIKU,     /* crowsonkb's CLOOB: matrices (in, out), convolutions (h, w, in, out) */
    IMAGE_NAMES_HF_VIT     /* transformers' ViTModel: rinna's Japanese CLIP and CLOOB */
} image_names;

typedef enum text_names {
    TEXT_NAMES_OPENAI,
    TEXT_NAMES_JKU,       /* below "transformer." */
    TEXT_NAMES_CUSTOM,    /* below "text.": open_clip's custom-text models */
    TEXT_NAMES_HF,        /* Hugging Face's CLIPModel */
    TEXT_NAMES_HF_SIGLIP, /* its SiglipModel */
    TEXT_NAMES_BERT,      /* a BERT below "text.transformer.": open_clip's */
    TEXT_NAMES_HAIKU,     /* crowsonkb's CLOOB */
    TEXT_NAMES_HF_BERT,   /* one below "text_model.": Hugging Face's ChineseCLIPModel */
    TEXT_NAMES_MCLIP      /* one below "transformer.": M-CLIP's text towers */
} text_names;

typedef struct weight_names {
    image_names image;
    text_names text;
} weight_names;

static const weight_names NAMES_OPENAI = { IMAGE_NAMES_OPENAI, TEXT_NAMES_OPENAI }; /* OpenAI, open_clip and cloob */

enum { NAME_BYTES = 192, NAME_PARTS = 3 };

typedef struct foreign {
    int parts;             /* above 1: the canonical tensor is these, stacked along its first dimension */
    int share[NAME_PARTS]; /* of the rows, in sixths, where there are parts */
    int lead;              /* dimensions of 1 in front of the canonical ones */
    bool transposed;       /* of two dimensions; each part */
    bool last;             /* a convolution's (out, in, h, w) is (h, w, in, out) */
    char name[NAME_PARTS][NAME_BYTES];
} foreign;

/* "OpenAI", "Hugging Face", ... for reports. */
const char *names_whose(weight_names n);

/* A folder of transformers: the configuration is config.json. */
bool names_is_hf(weight_names n);

void names_foreign(weight_names n, const char *canonical, foreign *out);

/* The shape that part i of a tensor with canonical shape `row` has in the foreign file. */
tensor foreign_shape(const tensor *row, const foreign *f, int i);
/* to (n, m) from (m, n). */
void foreign_transpose(void *to, const void *from, int64_t n, int64_t m, size_t element);

typedef enum weight_format {
    FORMAT_NATIVE,   /* cloob's safetensors file */
    FORMAT_OPENAI,   /* a state dict with OpenAI's names: safetensors or torch zip, by the path's ending */
    FORMAT_JKU,      /* a torch zip as the authors' training writes it: {epoch, name, state_dict} */
    FORMAT_HF,       /* a folder: model.safetensors, config.json, preprocessor_config.json */
    FORMAT_OPEN_CLIP /* a folder: open_clip_model.safetensors, open_clip_config.json */
} weight_format;

typedef struct interchange_options {
    const model_config *config; /* NULL: from the file, a JSON file next to it, or the shapes */
    const model_act *act;       /* NULL: the configuration's */
    bool drop_unexpected;       /* tensors the model does not have are left out instead of refused */
} interchange_options;

typedef enum key_fate { KEY_MISSING, KEY_MISSHAPED, KEY_UNEXPECTED, KEY_IGNORED, KEY_FATES } key_fate;

typedef struct interchange_report {
    arena a;
    const char *container; /* "safetensors", "torch zip", "TorchScript", "torch stream" */
    const char *names;     /* "cloob", "OpenAI", "JKU", "open_clip", "Hugging Face" */
    const char *config;    /* where the configuration came from */
    const char **key[KEY_FATES];
    int64_t count[KEY_FATES], capacity[KEY_FATES];
} interchange_report;

/* On failure w is empty, and the report still holds what was found; release it in any case. */
cloob_status interchange_read(cloob_ctx *ctx, const char *path, const interchange_options *options, weights *w,
                              interchange_report *report);
void interchange_report_release(interchange_report *report);

/* Hugging Face has no ResNet: refused. A missing logit_scale is written as CLIP's initial one, with a
 * warning. */
cloob_status interchange_write(cloob_ctx *ctx, const char *path, weight_format format, weights *w);

/* How open_clip must clean texts for the tokenizer that the metadata store, "lower", "whitespace" or "canonicalize";
 * NULL: there is none, or it is CLIP's, which open_clip has. */
const char *interchange_own_tokenizer(const weights *w);

/* Another program's tensors under their own names, and their configuration. Used by interchange*.c alone. */

typedef struct source_key {
    const char *name; /* without "module." */
    int64_t index;    /* into entry */
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

/* Indexes the tensors of w->st or w->torch; detects the naming scheme. Lives in w->a. */
cloob_status source_index(cloob_ctx *ctx, const char *path, weights *w, source *s);
/* The entry called by its foreign name; -1 when absent. */
int64_t source_find(const source *s, const char *name);

/* What became of a row of a tower that is folded while it is read (MobileCLIP's, model/fold.c). */
typedef struct fold_result {
    bool folded;                  /* false: the row is not computed from others; nothing was done */
    char missing[2 * NAME_BYTES]; /* the first tensor of the source that is missing, or has another size; "": none */
} fold_result;
/* Computes rows[i] of model_shapes from timm's layers, with branches or after reparameterize_model, and adds it to w,
 * unless something is missing. w->config is that of the model. */
cloob_status fold_row(cloob_ctx *ctx, source *s, weights *w, const st_entry *rows, int64_t i, fold_result *result);

/* Sizes from shapes; fails with the name of what is missing or does not follow from shapes. */
cloob_status source_infer(cloob_ctx *ctx, const source *s, model_config *c);

/* Finds the configuration and puts it into w->config; *from: a description of its source. */
cloob_status interchange_config(cloob_ctx *ctx, const interchange_options *o, const source *s, weights *w,
                                const char **from);

#endif
