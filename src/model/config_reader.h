/* Values of a configuration's JSON. The readers leave *out when the key is absent or null, except reader_need_int; all
 * fail with one line that names source and key. */
#ifndef MODEL_CONFIG_READER_H
#define MODEL_CONFIG_READER_H

#include <stddef.h>

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

/* ---- fields: read and written by one table ---------------------------------------------------------- */

typedef enum field_kind {
    FIELD_NEED, /* a whole number that must be there */
    FIELD_SIZE, /* a whole number that is always written; the following are not, where they are 0 or false */
    FIELD_INT,
    FIELD_NUMBER,
    FIELD_BOOL,
    FIELD_NOT,    /* a bool whose key means the opposite */
    FIELD_CHOICE, /* an enum by the names of its values */
    FIELD_SECOND, /* a bool by two names: the second is true */
    FIELD_KNOWN   /* accepted: handled elsewhere, or without effect on embeddings; names: the only values accepted */
} field_kind;

typedef struct config_field {
    const char *key; /* NULL: the end of a table */
    field_kind kind;
    size_t at;                /* offset in model_config */
    const char *const *names; /* end in NULL */
} config_field;

/* Shorthands for rows. */
#define FIELD(key, kind, member)                                                                                       \
    {                                                                                                                  \
        key, FIELD_##kind, offsetof(model_config, member), NULL                                                        \
    }
#define FIELD_OF(key, kind, member, names)                                                                             \
    {                                                                                                                  \
        key, FIELD_##kind, offsetof(model_config, member), names                                                       \
    }
#define FIELD_OTHER(key)                                                                                               \
    {                                                                                                                  \
        key, FIELD_KNOWN, 0, NULL                                                                                      \
    }
#define FIELD_END                                                                                                      \
    {                                                                                                                  \
        NULL, FIELD_KNOWN, 0, NULL                                                                                     \
    }

cloob_status reader_fields(const config_reader *r, const json *object, const config_field *fields);
void fields_put(json_out *w, const model_config *c, const config_field *fields);
/* Refuses, by name, a key that is in neither table (more: NULL or a second one), unless its value is null, false or
 * 0. where: of the key, for the message. */
cloob_status reader_refuse_unknown(const config_reader *r, const json *object, const char *where,
                                   const config_field *fields, const config_field *more);

/* ---- Hugging Face's config.json (config_hf.c) ------------------------------------------------------- */

bool config_is_hf(const json *root);
cloob_status config_read_hf(const config_reader *r, const json *root);
/* The sizes of one of transformers' BERTs by its name; fails where it is unknown. */
cloob_status config_read_bert_name(const config_reader *r, const char *name);

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
