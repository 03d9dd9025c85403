/* Options of a command: one table from which parsing, defaults, help and man pages all come.
 *
 *     static struct { const char *out; int64_t count; bool json; } o;
 *     static const opt_row rows[] = {
 *         { "out",   OPT_STRING, &o.out,   NULL,   "FILE", "where the result goes", OPT_REQUIRED },
 *         { "count", OPT_INT,    &o.count, "1000", "N",    "how many", OPT_POSITIVE },
 *         OPT_END
 *     };
 *
 * `--name value` and `--name=value` are the same; `--flag` and `--no-flag` set booleans; `--` ends
 * options. A value that does not parse, an unknown name (with the nearest known one as a hint), a missing
 * required option: one line on stderr, exit code 2. */
#ifndef CLI_OPT_H
#define CLI_OPT_H

#include "cloob/cloob.h"

typedef enum opt_kind {
    OPT_FLAG,   /* bool */
    OPT_INT,    /* int64_t */
    OPT_DOUBLE, /* double */
    OPT_STRING, /* const char * */
    OPT_LIST    /* opt_list: the option may be repeated, or take several words up to the next --option */
} opt_kind;

typedef struct opt_list {
    const char **item;
    int count;
} opt_list;

enum { OPT_REQUIRED = 1, OPT_HIDDEN = 2, OPT_POSITIVE = 4, OPT_NOT_NEGATIVE = 8 };

typedef struct opt_row {
    const char *name; /* without dashes; NULL ends the table */
    opt_kind kind;
    void *value;          /* where it goes */
    const char *fallback; /* the default, as a user would type it; NULL: none (0, false, NULL) */
    const char *metavar;  /* FILE, N, ...; "a|b|c" in lower case is a choice and is enforced */
    const char *help;     /* one sentence, lower case, no full stop */
    int flags;
} opt_row;

typedef struct command command;
struct command {
    const char *name;
    int (*run)(const command *self, int argc, char **argv); /* argv[0]: the name; returns the exit code */
    const char *help;                                       /* one line for the list of commands */
    const opt_row *options;                                 /* ends with OPT_END */
    const char *usage;                                      /* what follows the name: "--checkpoint M [IMAGE...]" */
    const char *details;                                    /* a paragraph or two, with an example; may be NULL */
};

/* Every command, in the order help shows them; NULL ends. Defined in main.c. */
extern const command *const commands[];

/* Sets defaults, parses argv[1..], leaves the positional words in *rest. Returns -1 to go on, or the exit
 * code to end with (0 after --help, 2 after a mistake, which has been told). */
int opt_parse(const command *c, int argc, char **argv, opt_list *rest);

/* True when the user gave --name on the command line of the last opt_parse. */
bool opt_given(const char *name);

void opt_print_help(const command *c);

/* Options every command has. */
typedef struct opt_common {
    const char *device, *precision;
    int64_t threads, seed;
    bool quiet, json;
} opt_common;
extern opt_common common;

#define OPT_END                                                                                                        \
    {                                                                                                                  \
        NULL, OPT_FLAG, NULL, NULL, NULL, NULL, 0                                                                      \
    }

/* The rows themselves live in opt.c and are appended to every command's table by parsing and help. */
extern const opt_row opt_common_rows[];

/* A context from the common options; log lines go to stderr. Never NULL. */
cloob_ctx *cli_context(void);

/* Prints "cloob COMMAND: the error" on stderr and returns 1 (2 when the status is a wrong argument). */
int cli_fail(const command *c, const cloob_ctx *ctx, cloob_status s);
/* Wrong usage found after parsing: one line, returns 2. */
int cli_usage(const command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
