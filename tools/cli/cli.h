/* Declarations shared by the files of the command line: option tables, errors, progress, JSON on stdout, the commands.
 *
 * The options of a command are tables, from which parsing, defaults, help, man pages and shell completion are derived.
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
 * A command has its own rows, and sets of options described by the library (cloob/options.h), which are the same in
 * every command. `--name value` and `--name=value` are equivalent; `--flag` and `--no-flag` set booleans; `--` ends the
 * options. For an invalid value, an unknown name (with the nearest known one as a hint) or a missing required option,
 * the program prints one line on stderr and exits with code 2. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cloob/cloob.h"
#include "cloob/types.h"
#include "core/json.h"
#include "core/option.h"
#include "lab/memory.h"

typedef enum opt_kind {
    OPT_FLAG,   /* bool */
    OPT_INT,    /* int64_t */
    OPT_DOUBLE, /* double */
    OPT_STRING, /* const char * */
    OPT_LIST    /* opt_list: the option may be repeated, or have several words, up to the next --option */
} opt_kind;

typedef struct opt_list { /* same layout as a LIST member in a struct of the library */
    const char **item;
    int64_t count;
} opt_list;

void opt_list_add(opt_list *l, const char *word);

enum { OPT_REQUIRED = 1, OPT_HIDDEN = 2, OPT_POSITIVE = 4, OPT_NOT_NEGATIVE = 8, OPT_PORT = 16 };

typedef struct opt_row {
    const char *name; /* without dashes; NULL ends the table */
    opt_kind kind;
    void *value;          /* the variable to set */
    const char *fallback; /* the default as the user would type it; NULL: 0, false or NULL */
    const char *metavar;  /* FILE, N, ...; lower-case "a|b|c" is a choice, which is checked */
    const char *help;     /* one sentence, lower case, no full stop */
    int flags;
} opt_row;

/* Options described by the library, and the struct that they set. */
typedef struct opt_set {
    const option_desc *(*table)(int64_t *count); /* NULL ends an array of sets */
    void *into;
    const char *required; /* name of a required option; NULL: none */
    const char *only;     /* names that the command uses, separated by spaces; NULL: all */
    const char *shown;    /* names that help lists; the others are also accepted; NULL: all */
} opt_set;

/* Common options that a command uses in addition to threads, device, quiet and json. The others are accepted but not
 * listed. */
enum { USES_SEED = 1, USES_PRECISION = 2 };

typedef struct command command;
struct command {
    const char *name;
    int (*run)(const command *self, cloob_ctx *ctx); /* called after parsing; returns the exit code */
    int (*check)(const command *self);               /* checks the usage; returns -1 or the exit code; may be NULL */
    bool terse; /* log only warnings, because the output is complete without log lines */
    /* For a command without positional words: the error message for one, or the option that was probably meant
     * ("--data"). NULL: the command reads opt_words. */
    const char *stray;
    const char *help;       /* one line for the list of commands */
    const opt_row *options; /* ends with OPT_END; NULL: none */
    const opt_set *sets;    /* ends with OPT_SETS_END; NULL: none */
    int uses;
    const char *usage;           /* the text after the name: "--checkpoint M [IMAGE...]" */
    const char *details;         /* a paragraph or two, with an example; may be NULL */
    const command *const *parts; /* subcommands (bench data), one of which must be chosen; ends with NULL; NULL: none */
    const char *brief;           /* options that help lists without --all, separated by spaces; NULL: all */
};

/* All commands, in the order in which help lists them; ends with NULL. Defined in main.c. */
extern const command *const commands[];

/* One option of a command, from its own rows or from a set. */
typedef struct opt_entry {
    option_desc o;
    char flag[48];  /* the name with dashes */
    void *into;     /* the struct that o.offset refers to */
    opt_list *list; /* the value of a LIST in the command's own rows */
    int flags;
    bool given;
} opt_entry;

/* All options of a command, common options last; *count: their number. Valid until the next call of this function or of
 * command_run. */
opt_entry *opt_entries(const command *c, int *count);

/* Parses the command line of a command, or of the subcommand named by argv[1], and runs it. argv[0]: the command's
 * name. Returns the exit code: 0 after --help, 2 after wrong usage, which has been reported. */
int command_run(const command *c, int argc, char **argv);

/* The positional words of the command line. */
extern opt_list opt_words;

/* Replaces a model's name by the path of its files, downloading it if it is not in the cache; the path of an existing
 * file is not changed. Only for words typed by the user, never for words in a file. */
cloob_status opt_model_path(cloob_ctx *ctx, const char **word);

/* Whether --name is on the command line. */
bool opt_given(const char *name);

/* Replaces each `field` in an error of the library by the corresponding flag of the current command. */
void opt_with_flags(const char *text, char *out, size_t size);

/* Edit distance of a and b, for "did you mean". */
int opt_distance(const char *a, const char *b);

/* Options of all commands. */
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

/* Creates a context with the common options. Log lines of level `least` or higher go to stderr; with --quiet only
 * warnings. Exits on failure. */
cloob_ctx *cli_context(cloob_log_level least);

/* Prints "cloob COMMAND: ERROR" on stderr. Returns 1, 2 for an invalid argument, or 130 for a command stopped by a
 * signal. */
int cli_fail(const command *c, const cloob_ctx *ctx, cloob_status s);
/* The exit code for a status: 0 for CLOOB_OK, else the result of cli_fail. */
int cli_exit(const command *c, const cloob_ctx *ctx, cloob_status s);
/* Reports wrong usage found after parsing, in one line; returns 2. */
int cli_usage(const command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reports another failure in one line; returns 1. c NULL: a failure of the program itself. */
int cli_error(const command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a line on stderr without disturbing the progress line; prefix: "" or "warning: ". */
void cli_print(const char *prefix, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The progress display: a line at the bottom of the terminal, fitted to its width and redrawn, with log lines above it.
 * If stderr is not a terminal, a plain line every ten seconds.
 *
 *     embed images  ━━━━━━━━━╌╌╌╌╌  62%  3,720/6,000  412 images/s  0:05 left
 *
 * All functions may be called from any thread. */

/* Selects the display: none if quiet, else according to the type of stderr. Respects NO_COLOR and TERM=dumb. */
void progress_begin(bool quiet);
/* Callback for cloob_ctx_options.progress. */
cloob_progress_fn progress_show;
/* Prints a log line above the progress line. */
void progress_log(const char *prefix, const char *line);
/* Removes the progress line from the terminal. */
void progress_end(void);
/* Removes the progress line and prints "cloob NAME: TEXT", wrapped if stderr is a terminal. */
void progress_error(const char *name, const char *text);

/* Width of the terminal of a file descriptor; else COLUMNS; else 80. */
int progress_columns(int fd);

/* Prepares an untrusted name for stdout. On a terminal, control characters are removed, because they could rewrite the
 * screen; otherwise the name is not changed. Valid until the next call. */
const char *progress_name(const char *name);

/* Whether the locale uses UTF-8; progress bars are ASCII otherwise. */
bool progress_utf8(void);

/* ---- the commands ------------------------------------------ */

#define COMMAND(name, group) extern const command cmd_##name;
#include "cli/commands.def"
/* The parts of `cloob eval` and `cloob bench`. */
extern const command eval_zeroshot, eval_retrieval, eval_probe, eval_analysis, eval_suite;
extern const command bench_step, bench_embed, bench_data, bench_loss;

/* Help, man pages and shell completion, from the option tables. */

/* Prints the help of a command. argv: --all lists all options instead of the selected ones, --match WORD those that
 * match. Returns the exit code. */
int help_command(const command *c, int argc, char **argv);

/* Writes cloob-NAME(1) in roff. */
void man_write(FILE *out, const command *c);
/* Writes the man pages of all commands, and cloob.1, into a folder, which is created if necessary. Returns the exit
 * code. */
int man_write_all(const char *folder);

/* Writes a completion script for bash, zsh or fish. False: unknown shell. */
bool completion_write(FILE *out, const char *shell);

/* Writes the presets of cloob train as Markdown tables. */
void presets_write(FILE *out);

/* The data sets given by `--datasets`: folders, folders of data sets, or text files that list them. */

typedef struct suite_sets {
    char **folder; /* (n); owned */
    int64_t n;
    int64_t missing; /* number of missing data sets in lists; the first few have been printed */
} suite_sets;

/* Adds the data sets of an item. Returns false, after printing an error, if there are none. */
bool suite_sets_add(suite_sets *s, const char *item, const char *split);
void suite_sets_release(suite_sets *s);

/* ---- models, data and training ----------------------------------------------------------------------- */

/* Option sets of commands that use a model or read data.
 *
 *     static cli_model model;
 *     static const opt_set sets[] = { { .table = cli_model_table, .into = &model, .required = "checkpoint" },
 *                                     OPT_SETS_END };
 *
 * adds --checkpoint, model options and data options, whose limits also apply to single images. A command that reads
 * data without a model uses { .table = data_option_table, .into = &data }. */

typedef struct cli_model {
    const char *checkpoint;
    cloob_model_options open; /* set `photos` in commands that read photos */
    cloob_data_options data;
} cli_model;

/* --checkpoint, and the rows of model_options.def and data_options.def; offsets refer to cli_model. */
const option_desc *cli_model_table(int64_t *count);

/* Options that help lists in commands that read photos and no data sets: .shown = CLI_PHOTO_OPTIONS. */
#define CLI_PHOTO_OPTIONS "checkpoint vocab config invariant batch_size max_image_pixels"

/* A higher default for commands that read the user's own photos: phones take 48 megapixels and more. Replaces the row
 * of the option set. */
#define CLI_MAX_PIXELS 100000000
#define CLI_MAX_PIXELS_ROW(m)                                                                                          \
    {                                                                                                                  \
        "max-image-pixels", OPT_INT, &(m).data.max_pixels, CLOOB_TEXT(CLI_MAX_PIXELS), "N",                            \
            "skip images with more pixels; 0: no limit", OPT_NOT_NEGATIVE                                              \
    }

/* For benchmark and evaluation commands, which compute in batches by default. Replaces the rows of the option set. */
#define CLI_BATCHED_ROWS(m)                                                                                            \
    { "invariant",                                                                                                     \
      OPT_FLAG,                                                                                                        \
      &(m).open.invariant,                                                                                             \
      NULL,                                                                                                            \
      NULL,                                                                                                            \
      "compute every row alone, so that its last bits do not depend on the batch: slower",                             \
      0 },                                                                                                             \
    {                                                                                                                  \
        "batch-size", OPT_INT, &(m).open.batch, "32", "N", "rows per batch", OPT_POSITIVE                              \
    }

/* Returns the data options with the common options applied. */
const cloob_data_options *cli_data_ready(cloob_data_options *o);

/* The row of --precision for commands that train or compute the objective; replaces the common one. */
#define CLI_TRAIN_PRECISION_ROW                                                                                        \
    {                                                                                                                  \
        "precision", OPT_STRING, &common.precision, "fp32", "fp32|bf16|amp_bf16", "compute precision", 0               \
    }

/* The type that CLI_TRAIN_PRECISION_ROW sets for the objective. */
cloob_dtype cli_loss_precision(void);

/* Reads a whole file, or standard input for "-", into a zero-terminated buffer that the caller frees; *size: its length
 * (may be NULL). */
cloob_status cli_read_file(cloob_ctx *ctx, const char *path, char **out, size_t *size);

/* Prints and frees a text of the library. NULL means out of memory, and exits. */
cloob_status cli_put_text(char *text);

/* Opens the model, applying the common options. */
cloob_status cli_model_open(cloob_ctx *ctx, const cli_model *o, cloob_model **out);

/* The options of training, for the commands that train: train_option_table and --preset.
 *
 *     static cloob_train_options o;
 *     static const char *preset;
 *     static const opt_row rows[] = { CLI_PRESET_ROW(preset), OPT_END };
 *     static const opt_set sets[] = { { .table = train_option_table, .into = &o }, OPT_SETS_END };
 *
 * and in run, cli_train_fill. */

#define CLI_PRESET_ROW(preset)                                                                                         \
    {                                                                                                                  \
        "preset", OPT_STRING, &preset, NULL, "NAME",                                                                   \
            "preset to start from: cc and yfcc are the paper's, cloob help --presets lists all; flags override it", 0  \
    }

/* Makes SIGINT and SIGTERM request that the command save its work and stop; a second signal exits immediately.
 * cli_should_stop, which is the callback of all contexts, returns whether a signal arrived. */
void cli_stop_on_signals(void);
bool cli_should_stop(void *user);

/* Applies --preset and --settings, and makes Ctrl-C stop the run. Returns -1, or the exit code after an error. */
int cli_train_fill(const command *self, cloob_ctx *ctx, const char *preset, const char *settings,
                   cloob_train_options *o);

/* ---- JSON --------------------------------------------------------------------------------------------- */

/* JSON on stdout: functions of core/json.h for one global writer, whose text is printed when the command ends. A
 * command that prints results as they become available calls json_out_flush, which prints a line for each complete root
 * value. */
extern json_out cli_json;
#define json_out_open(key, bracket)         json_begin(&cli_json, key, bracket)
#define json_out_close()                    json_end(&cli_json)
#define json_out_text(key, value)           json_put_text(&cli_json, key, value)
#define json_out_int(key, value)            json_put_int(&cli_json, key, value)
#define json_out_number(key, value, digits) json_put_digits(&cli_json, key, value, digits)
#define json_out_bool(key, value)           json_put_bool(&cli_json, key, value)
#define json_out_members(...)               json_members(&cli_json, __VA_ARGS__)
#define json_out_object(key, ...)           json_object(&cli_json, key, __VA_ARGS__)
void json_out_raw(const char *key, const char *text); /* text is JSON already; NULL: null */
void json_out_flush(void);

/* Prints the result of a command: a JSON object, or without --json one line per member. In text, underscores of names
 * become spaces, bytes become MiB, and numbers have at most nine digits. more: prints additional members or lines;
 * NULL: none. */
void cli_show(const json_member *member, size_t count, void (*more)(void));
#define cli_result(...) cli_show(JSON_MEMBERS(__VA_ARGS__), NULL)

/* ---- kinds of things that `cloob info` describes ------------------------------------------------------ */

/* The options of cloob info. */
typedef struct info_options {
    cloob_data_options data;
    int64_t examine, batch;
    const char *view; /* PNG to write with the image as a model sees it; NULL: describe instead */
    int64_t size;
    const char *crop, *interpolation, *resize_mode;
    bool train;
    opt_list aug;
} info_options;

typedef struct info_kind {
    bool (*matches)(const char *what);
    /* Prints the description on stdout, as JSON if common.json; returns the exit code. */
    int (*describe)(const command *self, cloob_ctx *ctx, const char *what, const info_options *o);
} info_kind;

extern const info_kind info_device, info_model, info_weights, info_data;

/* Print the features of this machine and build: as lines, or as members of the open JSON object. */
void machine_text(cloob_ctx *ctx);
void machine_json(cloob_ctx *ctx);

#endif
