/* Options as data: one table per struct says of every setting its name, type, default, range and meaning. From it come
 * the struct's members and defaults, the checks, a run's params.txt, the command line, its manual and its completion.
 *
 *     int64_t n;
 *     const cloob_option *table = cloob_train_option_table(&n);
 *     cloob_train_options o;
 *     cloob_train_options_init(&o);
 *     cloob_option_set(cloob_option_find(table, n, "batch_size"), &o, "128");
 *
 * The rows are in the *_options.def of this folder; a new setting is one more row. Texts are as a user types
 * them. */
#ifndef CLOOB_OPTIONS_H
#define CLOOB_OPTIONS_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers with a meaning beyond one table. */
#define CLOOB_DEFAULT_INV_TAU        30  /* inverse temperature: the paper's for CLOOB */
#define CLOOB_DEFAULT_SCALE_HOPFIELD 8   /* inverse temperature of the Hopfield networks: the paper's for CC */
#define CLOOB_DEFAULT_LOGIT_BIAS     -10 /* SigLIP's first bias of the logits */
#define CLOOB_DEFAULT_WD             0.2 /* weight decay: open_clip's; the paper's presets set 0.1 */
#define CLOOB_DEFAULT_MAX_PIXELS     25000000

#define CLOOB_TEXT_OF(x) #x
#define CLOOB_TEXT(x)    CLOOB_TEXT_OF(x)

typedef enum cloob_option_type {
    CLOOB_OPTION_FLAG,      /* bool */
    CLOOB_OPTION_INT,       /* int64_t */
    CLOOB_OPTION_NUMBER,    /* double */
    CLOOB_OPTION_AUTO,      /* double; "auto", negative in the struct: chosen when model and data are known */
    CLOOB_OPTION_AUTO_INT,  /* int64_t; the same */
    CLOOB_OPTION_NUMBERS_3, /* double[3]: three numbers with blanks or commas between them */
    CLOOB_OPTION_NUMBERS_4, /* double[4] */
    CLOOB_OPTION_CHAR,      /* char; "tab" and "\t" are a tab */
    CLOOB_OPTION_STRING,    /* const char *; NULL: none */
    CLOOB_OPTION_LIST       /* const char *const *NAME, int64_t NAME_count */
} cloob_option_type;

/* The members that rows of a .def make. */
#define CLOOB_MEMBER_FLAG(field)      bool field
#define CLOOB_MEMBER_INT(field)       int64_t field
#define CLOOB_MEMBER_NUMBER(field)    double field
#define CLOOB_MEMBER_AUTO(field)      double field
#define CLOOB_MEMBER_AUTO_INT(field)  int64_t field
#define CLOOB_MEMBER_NUMBERS_3(field) double field[3]
#define CLOOB_MEMBER_NUMBERS_4(field) double field[4]
#define CLOOB_MEMBER_CHAR(field)      char field
#define CLOOB_MEMBER_STRING(field)    const char *field
#define CLOOB_MEMBER_LIST(field)                                                                                       \
    const char *const *field;                                                                                          \
    int64_t field##_count

typedef struct cloob_option {
    const char *name;  /* in params.txt, and with dashes the flag; "batch_size" */
    const char *field; /* the member; mostly the same */
    const char *alias; /* another name that is understood, or NULL */
    cloob_option_type type;
    size_t offset;        /* of the member in the struct */
    const char *fallback; /* the default; NULL: 0, false, none */
    const char *range;    /* of numbers, "[1,)", "(0,1]"; NULL: any */
    const char *values;   /* a word for the value, "N", "FILE"; "a|b|c" in lower case lists all that are accepted */
    bool learns;          /* changes which weights come out of a training run */
    const char *group;    /* heading in the help */
    const char *help;     /* one sentence, lower case, no full stop */
} cloob_option;

/* A row of a .def whose name is that of the field. */
#define CLOOB_OPTION(type, field, ...) CLOOB_OPTION_NAMED(type, field, #field, NULL, __VA_ARGS__)

/* What stands in the column of `learns`. */
#define CLOOB_USE_LEARNS true
#define CLOOB_USE_STAYS  false

/* By name, alias or member; dashes and underscores are the same. NULL: there is none. */
CLOOB_API const cloob_option *cloob_option_find(const cloob_option *table, int64_t count, const char *name);

/* The members that the table describes, and no others. */
CLOOB_API void cloob_option_defaults(const cloob_option *table, int64_t count, void *options);

/* Strings are kept by address. False: the text is no such value, or out of range; cloob_option_rule says what is. A
 * LIST is set by its caller. */
CLOOB_API bool cloob_option_set(const cloob_option *o, void *options, const char *text);
CLOOB_API bool cloob_option_valid(const cloob_option *o, const void *options);

/* What cloob_option_set takes back: None, True and False as Python writes them. Freed by the caller; NULL: no
 * memory. */
CLOOB_API char *cloob_option_get(const cloob_option *o, const void *options);

/* Takes one member over from another struct of the same kind; strings and lists by address. */
CLOOB_API void cloob_option_copy(const cloob_option *o, const void *from, void *to);

/* "must be a whole number of 1 or more", for an error. */
CLOOB_API void cloob_option_rule(const cloob_option *o, char *out, size_t size);

/* True when `values` lists all that are accepted. */
CLOOB_API bool cloob_option_has_choices(const cloob_option *o);

#ifdef __cplusplus
}
#endif
#endif
