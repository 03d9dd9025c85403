/* Reading values out of a configuration's JSON; used by config_json.c and config_hf.c alone. All leave *out when the
 * key is absent or null, except need_int; all fail with one line that names source and key. */
#ifndef MODEL_CONFIG_READER_H
#define MODEL_CONFIG_READER_H

#include "model/config.h"

typedef struct config_reader {
    cloob_ctx *ctx;
    const char *source;
    model_config *c;
} config_reader;

/* "SOURCE: "key" must be WANTED". */
cloob_status reader_bad(const config_reader *r, const char *key, const char *wanted);
cloob_status reader_need_int(const config_reader *r, const json *object, const char *key, int64_t *out);
cloob_status reader_int(const config_reader *r, const json *object, const char *key, int64_t *out);
cloob_status reader_number(const config_reader *r, const json *object, const char *key, double *out);
cloob_status reader_bool(const config_reader *r, const json *object, const char *key, bool *out);
cloob_status reader_channels(const config_reader *r, const json *object, const char *key, double out[3]);
cloob_status reader_resize(const config_reader *r, const json *object, const char *key);
/* One of `names`, which ends with NULL; *out is its place. */
cloob_status reader_choice(const config_reader *r, const json *object, const char *key, const char *const *names,
                           int *out);

/* Hugging Face's config.json of CLIP, MetaCLIP 2 and SigLIP. */
cloob_status config_read_hf(const config_reader *r, const json *root);

#endif
