/* Values of a configuration's JSON. The readers leave *out when the key is absent or null, except reader_need_int; all
 * fail with one line that names source and key. */
#ifndef MODEL_CONFIG_READER_H
#define MODEL_CONFIG_READER_H

#include "model/config.h"

typedef struct config_reader {
    cloob_ctx *ctx;
    const char *source;
    model_config *c;
} config_reader;

/* NAME: "KEY" must be WANTED. */
cloob_status reader_bad(const config_reader *r, const char *key, const char *wanted);
/* NULL: absent or null. */
const json *reader_value(const json *object, const char *key);
cloob_status reader_need_int(const config_reader *r, const json *object, const char *key, int64_t *out);
cloob_status reader_int(const config_reader *r, const json *object, const char *key, int64_t *out);
cloob_status reader_number(const config_reader *r, const json *object, const char *key, double *out);
cloob_status reader_bool(const config_reader *r, const json *object, const char *key, bool *out);
/* Three numbers, or one for all. */
cloob_status reader_channels(const config_reader *r, const json *object, const char *key, double out[3]);
/* names ends in NULL; *out: which one. */
cloob_status reader_choice(const config_reader *r, const json *object, const char *key, const char *const *names,
                           int *out);

/* ---- image preprocessing (preprocess.c) ----------------------------------------------------------- */

/* open_clip's preprocess_cfg, NULL: absent. */
cloob_status preprocess_read_open_clip(const config_reader *r, const json *cfg);
/* What cloob's own configuration adds to open_clip's keys, at its top level. */
cloob_status preprocess_read_own(const config_reader *r, const json *root);
/* Hugging Face's preprocessor_config.json, or the image_processor of a processor_config.json. Sets all of r->c->view,
 * image_mean and image_std; what cannot be applied is refused by name. */
cloob_status preprocess_read_hf(const config_reader *r, const json *root);

/* The same, written. open_clip cannot express every way. */
void preprocess_put_own(json_out *w, const model_config *c);
cloob_status preprocess_put_open_clip(cloob_ctx *ctx, json_out *w, const model_config *c, const char *path);

#endif
