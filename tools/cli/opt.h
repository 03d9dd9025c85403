/* Options of a command: tables from which parsing, defaults, help, man pages and shell completion all come.
 *
 *     static struct { const char *out; int64_t count; cloob_data_options data; } o;
 *     static const opt_row rows[] = {
 *         { "out",   OPT_STRING, &o.out,   NULL,   "FILE", "where the result goes", OPT_REQUIRED },
 *         { "count", OPT_INT,    &o.count, "1000", "N",    "how many", OPT_POSITIVE },
 *         OPT_END
 *     };
 *     static const opt_set sets[] = { { .table = data_option_table, .into = &o.data }, OPT_SETS_END };
 *     static int run(const command *self, cloob_ctx *ctx)
 *     {
 *         return cli_exit(self, ctx, cloob_count(ctx, o.out, o.count, &o.data));
 *     }
 *     const command cmd_count = { .name = "count", .run = run, .options = rows, .sets = sets, ... };
 *
 * A command has rows of its own and sets of options that the library describes (cloob/options.h), which are the same
 * in every command. `--name value` and `--name=value` are the same; `--flag` and `--no-flag` set booleans; `--` ends
 * options. A value that does not parse, an unknown name (with the nearest known one as a hint), a missing required
 * option: one line on stderr, exit code 2. */
#ifndef CLI_OPT_H
#define CLI_OPT_H

#include <stdbool.h>

#include "cloob/cloob.h"
#include "cloob/types.h"
#include "core/option.h"

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

bool opt_list_add(opt_list *l, const char *word); /* false: out of memory */

enum { OPT_REQUIRED = 1, OPT_HIDDEN = 2, OPT_POSITIVE = 4, OPT_NOT_NEGATIVE = 8, OPT_PORT = 16 };

typedef struct opt_row {
    const char *name; /* without dashes; NULL ends the table */
    opt_kind kind;
    void *value;          /* the variable it sets */
    const char *fallback; /* the default, as a user would type it; NULL: none (0, false, NULL) */
    const char *metavar;  /* FILE, N, ...; "a|b|c" in lower case is a choice and is enforced */
    const char *help;     /* one sentence, lower case, no full stop */
    int flags;
} opt_row;

/* Options that the library describes, and the struct they go into. */
typedef struct opt_set {
    const option_desc *(*table)(int64_t *count); /* NULL ends an array of them */
    void *into;
    const char *required; /* the name of an option that must be given; NULL: none */
    const char *only;     /* the names that a command uses, with blanks between them; NULL: all */
    const char *shown;    /* the names that its help lists: the others are accepted; NULL: all */
} opt_set;

/* Which of the common options a command uses beyond threads, device, quiet and json; others are accepted but not
 * shown. */
enum { USES_SEED = 1, USES_PRECISION = 2 };

typedef struct command command;
struct command {
    const char *name;
    int (*run)(const command *self, cloob_ctx *ctx); /* after the command line was read; returns the exit code */
    int (*check)(const command *self);               /* of usage: -1, or the exit code; NULL: nothing to check */
    bool terse;                                      /* log only warnings: the output is complete without log lines */
    /* The error for a word that belongs to no option, or the option that it probably belongs to ("--data"); NULL: the
     * command uses opt_words. */
    const char *stray;
    const char *help;       /* one line for the list of commands */
    const opt_row *options; /* ends with OPT_END; NULL: none */
    const opt_set *sets;    /* ends with OPT_SETS_END; NULL: none */
    int uses;
    const char *usage;           /* what follows the name: "--checkpoint M [IMAGE...]" */
    const char *details;         /* a paragraph or two, with an example; may be NULL */
    const command *const *parts; /* commands below it (bench data), which do its work; ends with NULL; NULL: none */
    const char *brief;           /* the flags that help shows without --all, with blanks between them; NULL: all */
    /* Another command that these words ask for (sweep --by method), or NULL; NULL: there is none. */
    const command *(*variant)(int argc, char **argv);
};

/* Every command, in the order help shows them; NULL ends. Defined in main.c. */
extern const command *const commands[];

/* One option of a command, wherever it comes from. */
typedef struct opt_entry {
    option_desc o;
    char flag[48];  /* the name with dashes */
    void *into;     /* the struct of o.offset */
    opt_list *list; /* of a command's own LIST */
    int flags;
    bool given;
} opt_entry;

/* All options of a command, the common ones last. Valid until the next call, here or by command_run. */
opt_entry *opt_entries(const command *c, int *count);

/* Reads the command line of a command, or of the part that argv[1] names, and runs it. argv[0]: the name. Returns the
 * exit code: 0 after --help, 2 after a mistake, which has been reported. */
int command_run(const command *c, int argc, char **argv);

/* The words of the command line that belong to no option. */
extern opt_list opt_words;

/* Replaces a model's name by the path of its files, fetched where the cache lacks them; an existing path stays. For
 * words that the user has typed, never for those of a file. */
cloob_status opt_model_path(cloob_ctx *ctx, const char **word);

/* True when the user gave --name on the command line. */
bool opt_given(const char *name);

/* The library names settings as `field`; the same text with the flags of the command that was parsed. */
void opt_with_flags(const char *text, char *out, size_t size);

/* True when `name` is one of the words of `list`, which may be NULL. */
bool opt_names(const char *list, const char *name);

/* How many letters must change for a to become b: for "did you mean". */
int opt_distance(const char *a, const char *b);

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
#define OPT_SETS_END                                                                                                   \
    {                                                                                                                  \
        .table = NULL                                                                                                  \
    }

/* A context from the common options; log lines from this level on, warnings alone with --quiet, go to stderr. Never
 * NULL. */
cloob_ctx *cli_context(cloob_log_level least);

/* Prints "cloob COMMAND: the error" on stderr and returns 1 (2 when the status is a wrong argument). */
int cli_fail(const command *c, const cloob_ctx *ctx, cloob_status s);
/* The exit code of a status: 0, or the result of cli_fail. */
int cli_exit(const command *c, const cloob_ctx *ctx, cloob_status s);
/* Wrong usage found after parsing: one line, returns 2. */
int cli_usage(const command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Another failure: one line, returns 1. c NULL: of the program. */
int cli_error(const command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line on stderr, next to the line of progress: prefix "" or "warning: ". */
void cli_print(const char *prefix, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The progress display: one line at the bottom of the terminal that fits its width and is redrawn, with log lines above
 * it; a plain line every ten seconds where stderr is not a terminal.
 *
 *     embed images  ━━━━━━━━━╌╌╌╌╌  62%  3,720/6,000  412 images/s  0:05 left
 *
 * The first line appears at once. All functions may be called from any thread. */

/* Decides once how to draw: not at all when quiet, else by what stderr is. NO_COLOR and TERM=dumb are respected. */
void progress_begin(bool quiet);
/* The sink of cloob_ctx_options.progress. */
cloob_progress_fn progress_show;
/* A log line, printed above the progress line. */
void progress_log(const char *prefix, const char *line);
/* Removes the progress line from the terminal. */
void progress_end(void);
/* Removes the progress line and prints "cloob NAME: TEXT": one line, wrapped where stderr is a terminal. */
void progress_error(const char *name, const char *text);

/* Whether the locale's characters are UTF-8: bars are plain otherwise. */
bool progress_utf8(void);

#endif
