/* Typed access to the JSON values of a configuration. A reader leaves *out unchanged if the key is absent or null,
 * except reader_need_int, which fails. All report errors with the source and the key. */
#ifndef MODEL_CONFIG_READER_H
#define MODEL_CONFIG_READER_H

#include <stddef.h>

#include "model/config.h"

typedef struct config_reader {
    cloob_ctx *ctx;
    const char *source;
    model_config *c;
} config_reader;

/* Fails with "SOURCE: "KEY" must be WANTED". */
cloob_status reader_bad(const config_reader *r, const char *key, const char *wanted);
/* The value of a key; NULL if it is absent or null. */
const json *reader_value(const json *object, const char *key);
cloob_status reader_need_int(const config_reader *r, const json *object, const char *key, int64_t *out);
cloob_status reader_int(const config_reader *r, const json *object, const char *key, int64_t *out);
cloob_status reader_number(const config_reader *r, const json *object, const char *key, double *out);
cloob_status reader_bool(const config_reader *r, const json *object, const char *key, bool *out);
/* Three numbers, or one number for all three. */
cloob_status reader_channels(const config_reader *r, const json *object, const char *key, double out[3]);
/* A string that is one of `names`, which ends in NULL; *out: its index. */
cloob_status reader_choice(const config_reader *r, const json *object, const char *key, const char *const *names,
                           int *out);

/* ---- fields: read and written by one table ---------------------------------------------------------- */

typedef enum field_kind {
    FIELD_NEED, /* a required integer */
    FIELD_SIZE, /* an integer that is always written; fields of the other kinds are written only if they are not 0 or
                 * false */
    FIELD_INT,
    FIELD_NUMBER,
    FIELD_BOOL,
    FIELD_NOT,    /* a bool that is the negation of the key's value */
    FIELD_CHOICE, /* an enum, by the names of its values */
    FIELD_SECOND, /* a bool, by two names: the second means true */
    FIELD_KNOWN   /* accepted and ignored here: read elsewhere, or without effect on embeddings; names: the accepted
                   * values, NULL: any */
} field_kind;

typedef struct config_field {
    const char *key; /* NULL ends a table */
    field_kind kind;
    size_t at;                /* offset in model_config */
    const char *const *names; /* ends in NULL */
} config_field;

/* Shorthands for rows of a table. */
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
/* Fails, naming the key, for a key that is in neither table (more: a second table or NULL), unless its value is null,
 * false or 0. where: path of the object, for the message. */
cloob_status reader_refuse_unknown(const config_reader *r, const json *object, const char *where,
                                   const config_field *fields, const config_field *more);

/* ---- Hugging Face's config.json (config_hf.c) ------------------------------------------------------- */

bool config_is_hf(const json *root);
cloob_status config_read_hf(const config_reader *r, const json *root);
/* Sets the sizes of a transformers BERT from its name; fails if the name is unknown. */
cloob_status config_read_bert_name(const config_reader *r, const char *name);

/* ---- image preprocessing (preprocess.c) ----------------------------------------------------------- */

/* Reads open_clip's preprocess_cfg; NULL: absent. */
cloob_status preprocess_read_open_clip(const config_reader *r, const json *cfg);
/* Reads the top-level keys that cloob's configuration adds to open_clip's. */
cloob_status preprocess_read_own(const config_reader *r, const json *root);
/* Reads Hugging Face's preprocessor_config.json, or the image_processor of a processor_config.json. Sets all of
 * r->c->view, image_mean and image_std. Fails, naming the field, for settings that cloob does not support. */
cloob_status preprocess_read_hf(const config_reader *r, const json *root);

/* Write the image preprocessing in both forms; the open_clip writer fails for settings that open_clip lacks. */
void preprocess_put_own(json_out *w, const model_config *c);
cloob_status preprocess_put_open_clip(cloob_ctx *ctx, json_out *w, const model_config *c, const char *path);

#endif
