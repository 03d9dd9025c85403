/* What the files of the command line share: option tables, errors, progress, JSON on stdout, the commands.
 *
 * Options of a command: tables from which parsing, defaults, help, man pages and shell completion all come.
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
    OPT_LIST    /* opt_list: the option may be repeated, or take several words up to the next --option */
} opt_kind;

typedef struct opt_list { /* laid out as a LIST in a struct of the library */
    const char **item;
    int64_t count;
} opt_list;

void opt_list_add(opt_list *l, const char *word);

enum { OPT_REQUIRED = 1, OPT_HIDDEN = 2, OPT_POSITIVE = 4, OPT_NOT_NEGATIVE = 8, OPT_PORT = 16 };

typedef struct opt_row {
    const char *name; /* without dashes; NULL ends the table */
    opt_kind kind;
    void *value;          /* the variable that it sets */
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
    const char *shown;    /* the names that help lists; the others are accepted, too; NULL: all */
} opt_set;

/* The common options that a command uses beyond threads, device, quiet and json; others are accepted but not shown. */
enum { USES_SEED = 1, USES_PRECISION = 2 };

typedef struct command command;
struct command {
    const char *name;
    int (*run)(const command *self, cloob_ctx *ctx); /* called after parsing; returns the exit code */
    int (*check)(const command *self);               /* checks usage: -1, or the exit code; may be NULL */
    bool terse;                                      /* log only warnings: the output is complete without log lines */
    /* The error for a word that belongs to no option, or the option that it probably belongs to ("--data"); NULL: the
     * command reads opt_words. */
    const char *stray;
    const char *help;       /* one line for the list of commands */
    const opt_row *options; /* ends with OPT_END; NULL: none */
    const opt_set *sets;    /* ends with OPT_SETS_END; NULL: none */
    int uses;
    const char *usage;           /* what follows the name: "--checkpoint M [IMAGE...]" */
    const char *details;         /* a paragraph or two, with an example; may be NULL */
    const command *const *parts; /* subcommands (bench data), one of which is run; ends with NULL; NULL: none */
    const char *brief;           /* the flags that help shows without --all, with blanks between them; NULL: all */
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

/* Replaces a model's name by the path of its files, fetched where the cache lacks them; an existing path stays. Only
 * for words that the user typed, never for words in a file. */
cloob_status opt_model_path(cloob_ctx *ctx, const char **word);

/* True when the user gave --name on the command line. */
bool opt_given(const char *name);

/* Replaces each `field` in a library error by the flag of the parsed command. */
void opt_with_flags(const char *text, char *out, size_t size);

/* True when `name` is one of the words of `list`, which may be NULL. */
bool opt_names(const char *list, const char *name);

/* The edit distance of a and b, for "did you mean". */
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
/* Another failure: one line, returns 1. c NULL: the program itself. */
int cli_error(const command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line on stderr, next to the line of progress: prefix "" or "warning: ". */
void cli_print(const char *prefix, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The progress display: one line at the bottom of the terminal that fits its width and is redrawn, with log lines above
 * it; a plain line every ten seconds where stderr is not a terminal.
 *
 *     embed images  ━━━━━━━━━╌╌╌╌╌  62%  3,720/6,000  412 images/s  0:05 left
 *
 * The first line appears at once. All functions may be called from any thread. */

/* Chooses how to draw: nothing when quiet, otherwise by the type of stderr. NO_COLOR and TERM=dumb are respected. */
void progress_begin(bool quiet);
/* The sink of cloob_ctx_options.progress. */
cloob_progress_fn progress_show;
/* A log line, printed above the progress line. */
void progress_log(const char *prefix, const char *line);
/* Removes the progress line from the terminal. */
void progress_end(void);
/* Removes the progress line and prints "cloob NAME: TEXT": one line, wrapped where stderr is a terminal. */
void progress_error(const char *name, const char *text);

/* The width of the terminal of a file descriptor, else COLUMNS, else 80. */
int progress_columns(int fd);

/* An untrusted name for stdout: on a terminal, control characters, which could rewrite the screen, are removed;
 * unchanged elsewhere. Valid until the next call. */
const char *progress_name(const char *name);

/* Whether the locale's characters are UTF-8: bars are plain otherwise. */
bool progress_utf8(void);

/* ---- the commands ------------------------------------------ */

#define COMMAND(name, group) extern const command cmd_##name;
#include "cli/commands.def"
/* The parts of `cloob eval` and `cloob bench`. */
extern const command eval_zeroshot, eval_retrieval, eval_probe, eval_analysis, eval_suite;
extern const command bench_step, bench_embed, bench_data, bench_loss;

/* Help, man pages and shell completion, from the option tables. */

/* Prints the help of a command; argv: --all lists all options where the help lists some, --match WORD only those that
 * match. Returns the exit code. */
int help_command(const command *c, int argc, char **argv);

/* cloob-NAME(1) in roff. */
void man_write(FILE *out, const command *c);
/* cloob-NAME.1 of every command, and cloob.1, into a folder, which is created. Returns the exit code. */
int man_write_all(const char *folder);

/* A script that completes commands, flags and their choices, for bash, zsh or fish. False: no such shell. */
bool completion_write(FILE *out, const char *shell);

/* The presets of cloob train as tables of Markdown. */
void presets_write(FILE *out);

/* The data sets of `--datasets`: folders, folders of data sets, and text files that list them. */

typedef struct suite_sets {
    char **folder; /* (n); owned */
    int64_t n;
    int64_t missing; /* missing data sets of the lists; the first few have been printed */
} suite_sets;

/* Adds the data sets of an item. False, after an error line, when there are none. */
bool suite_sets_add(suite_sets *s, const char *item, const char *split);
void suite_sets_release(suite_sets *s);

/* ---- models, data and training ----------------------------------------------------------------------- */

/* What commands that use a model or read data have in common: sets of options in addition to the command's rows.
 *
 *     static cli_model model;
 *     static const opt_set sets[] = { { .table = cli_model_table, .into = &model, .required = "checkpoint" },
 *                                     OPT_SETS_END };
 *
 * gives --checkpoint, the options of a model and the options of data sets, whose limits also apply to single images. A
 * command that reads data without a model has { .table = data_option_table, .into = &data }. */

typedef struct cli_model {
    const char *checkpoint;
    cloob_model_options open; /* photos: set by commands that read photos */
    cloob_data_options data;
} cli_model;

/* --checkpoint, then the rows of model_options.def and data_options.def; offsets are in cli_model. */
const option_desc *cli_model_table(int64_t *count);

/* Options listed in the help of commands that read photos and no data sets: .shown = CLI_PHOTO_OPTIONS. */
#define CLI_PHOTO_OPTIONS "checkpoint vocab config invariant batch_size max_image_pixels"

/* A higher limit for commands that read the user's own photos, since phones take 48 megapixels and more. Replaces the
 * row of the set. */
#define CLI_MAX_PIXELS 100000000
#define CLI_MAX_PIXELS_ROW(m)                                                                                          \
    {                                                                                                                  \
        "max-image-pixels", OPT_INT, &(m).data.max_pixels, CLOOB_TEXT(CLI_MAX_PIXELS), "N",                            \
            "skip images with more pixels; 0: no limit", OPT_NOT_NEGATIVE                                              \
    }

/* For commands that measure, which compute rows in batches by default: replaces the rows of the set. */
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

/* The options of the command line, with the common options applied. */
const cloob_data_options *cli_data_ready(cloob_data_options *o);

/* The precision of the objective: fp32 (the default) or bf16. -1, or the exit code of an error. */
int cli_loss_precision(const command *self, cloob_dtype *out);

/* A whole file, or standard input for "-": zero-terminated, *size bytes (may be NULL). The caller frees. */
cloob_status cli_read_file(cloob_ctx *ctx, const char *path, char **out, size_t *size);

/* Prints and frees a text of the library. NULL means out of memory and ends the program. */
cloob_status cli_put_text(char *text);

/* Opens the model with the common options. */
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

/* From here on SIGINT and SIGTERM ask the command to save its work and stop; a second signal ends it at once.
 * cli_should_stop, which every context of the program has, returns whether one arrived. */
void cli_stop_on_signals(void);
bool cli_should_stop(void *user);

/* Applies --preset and --settings; from here on Ctrl-C stops the run. Returns -1, or
 * the exit code. */
int cli_train_fill(const command *self, cloob_ctx *ctx, const char *preset, const char *settings,
                   cloob_train_options *o);

/* ---- JSON --------------------------------------------------------------------------------------------- */

/* JSON on stdout: core/json.h on one writer, whose text is printed when the command ends. A command that prints results
 * as they arrive calls json_out_flush, which ends the line of a complete root value. */
extern json_out cli_json;
#define json_out_open(key, bracket)         json_begin(&cli_json, key, bracket)
#define json_out_close()                    json_end(&cli_json)
#define json_out_text(key, value)           json_put_text(&cli_json, key, value)
#define json_out_int(key, value)            json_put_int(&cli_json, key, value)
#define json_out_number(key, value, digits) json_put_digits(&cli_json, key, value, digits)
#define json_out_bool(key, value)           json_put_bool(&cli_json, key, value)
#define json_out_members(...)               json_members(&cli_json, __VA_ARGS__)
#define json_out_object(key, ...)           json_object(&cli_json, key, __VA_ARGS__)
void json_out_raw(const char *key, const char *text); /* text that is JSON already; NULL: null */
void json_out_flush(void);

/* The result of a command: one JSON object, or without --json a line for each member. In text, names lose their
 * underscores, bytes become MiB, and numbers have nine digits at most. more: adds members, or lines; NULL: none. */
void cli_show(const json_member *member, size_t count, void (*more)(void));
#define cli_result(...) cli_show(JSON_MEMBERS(__VA_ARGS__), NULL)

/* ---- what `cloob info` describes ---------------------------------------------------------------------- */

/* The options of cloob info. */
typedef struct info_options {
    cloob_data_options data;
    int64_t examine, batch;
    const char *view; /* where a PNG of what a model sees goes; NULL: describe */
    int64_t size;
    const char *crop, *interpolation, *resize_mode;
    bool train;
    opt_list aug;
} info_options;

typedef struct info_kind {
    bool (*matches)(const char *what);
    /* Prints on stdout, as JSON when common.json is set; returns the exit code. */
    int (*describe)(const command *self, cloob_ctx *ctx, const char *what, const info_options *o);
} info_kind;

extern const info_kind info_device, info_model, info_weights, info_data;

/* The features of this machine and build: lines, or members of the open JSON object. */
void machine_text(cloob_ctx *ctx);
void machine_json(cloob_ctx *ctx);

#endif
