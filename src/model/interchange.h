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

#include "model/names.h"
#include "model/weights.h"

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

#endif
