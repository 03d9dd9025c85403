/* Options as data: one table per struct has the name, type, default, range and meaning of every setting. The struct's
 * members and defaults, the checks, a run's params.txt, the command line, its manual and its completion are generated
 * from it.
 *
 *     int64_t n;
 *     const option_desc *table = train_option_table(&n);
 *     cloob_train_options o;
 *     cloob_train_options_init(&o);
 *     option_set(option_find(table, n, "batch_size"), &o, "128");
 *
 * The rows are in the *_options.def files of include/cloob; a new setting is one more row. Texts are as a user types
 * them. */
#ifndef CORE_OPTION_H
#define CORE_OPTION_H

#include "cloob/options.h"
#include "cloob/types.h"

typedef enum option_type {
    OPTION_FLAG,      /* bool */
    OPTION_INT,       /* int64_t */
    OPTION_NUMBER,    /* double */
    OPTION_AUTO,      /* double; "auto", negative in the struct: chosen when model and data are known */
    OPTION_AUTO_INT,  /* int64_t; the same */
    OPTION_NUMBERS_3, /* double[3]: three numbers with blanks or commas between them */
    OPTION_NUMBERS_4, /* double[4] */
    OPTION_CHAR,      /* char; "tab" and "\t" are a tab */
    OPTION_STRING,    /* const char *; NULL: none */
    OPTION_LIST       /* const char *const *NAME, int64_t NAME_count */
} option_type;

typedef struct option_desc {
    const char *name;  /* in params.txt, and with dashes the flag; "batch_size" */
    const char *field; /* the member; mostly the same */
    const char *alias; /* another accepted name, or NULL */
    option_type type;
    size_t offset;        /* of the member in the struct */
    const char *fallback; /* the default; NULL: 0, false, none */
    const char *range;    /* of numbers, "[1,)", "(0,1]"; NULL: any */
    const char *values;   /* a word for the value, "N", "FILE"; "a|b|c" in lower case lists all that are accepted */
    bool learns;          /* whether the value affects the trained weights */
    const char *group;    /* heading in the help */
    const char *help;     /* one sentence, lower case, no full stop */
} option_desc;

/* Values of the column of `learns`. */
#define OPTION_USE_LEARNS true
#define OPTION_USE_STAYS  false

/* By name, alias or member; dashes and underscores are the same. NULL: there is none. */
const option_desc *option_find(const option_desc *table, int64_t count, const char *name);

/* The members that the table describes, and no others. */
void option_defaults(const option_desc *table, int64_t count, void *options);

/* Strings are stored by address. False: not a valid value; option_rule describes the valid ones. The caller sets a
 * LIST. */
bool option_set(const option_desc *o, void *options, const char *text);
bool option_valid(const option_desc *o, const void *options);

/* The text that option_set reads; None, True and False are spelled as in Python. The caller frees it; NULL: out of
 * memory. */
char *option_get(const option_desc *o, const void *options);

/* Copies one member from another struct of the same type; strings and lists by address. */
void option_copy(const option_desc *o, const void *from, void *to);

/* The bytes of the struct up to the end of the member. */
size_t option_end(const option_desc *o);

/* "must be a whole number of 1 or more", for an error. */
void option_rule(const option_desc *o, char *out, size_t size);

/* True when `values` lists all that are accepted. */
bool option_has_choices(const option_desc *o);
bool option_is_choice(const option_desc *o, const char *word); /* o has choices */

/* A row of a .def as an element of a table; `base`: empty, or the member that contains the struct, with its dot. */
#define OPTION_ROW(owner, base, type, field, name, alias, fallback, range, values, learns, help)                       \
    {                                                                                                                  \
        name,     #field, alias,  OPTION_##type,       offsetof(owner, base field),                                    \
        fallback, range,  values, OPTION_USE_##learns, CLOOB_OPTION_GROUP,                                             \
        help,                                                                                                          \
    },

/* Returns a table from a function of the public interface; sets the defaults of a table. */
#define OPTION_TABLE(table, count) option_table(table, sizeof(table) / sizeof *(table), count)
#define OPTION_DEFAULTS(table, o)  option_defaults(table, sizeof(table) / sizeof *(table), o)

static inline const option_desc *option_table(const option_desc *first, size_t n, int64_t *count)
{
    if (count) *count = (int64_t)n;
    return first;
}

#endif
