/* What commands that use a model or read data have in common: sets of options in addition to the command's rows.
 *
 *     static cli_model model;
 *     static const opt_set sets[] = { { .table = cli_model_table, .into = &model, .required = "checkpoint" },
 *                                     OPT_SETS_END };
 *
 * gives --checkpoint, the options of a model and the options of data sets, whose limits also apply to single images. A
 * command that reads data without a model has { .table = data_option_table, .into = &data }. */
#ifndef CLI_SHARED_OPTS_H
#define CLI_SHARED_OPTS_H

#include <stdio.h>

#include "cli/opt.h"
#include "cli/commands.h"

typedef struct cli_model {
    const char *checkpoint;
    cloob_model_options open; /* photos: set by commands that read photos */
    cloob_data_options data;
} cli_model;

/* --checkpoint, then the rows of model_options.def and data_options.def; offsets are in cli_model. */
const option_desc *cli_model_table(int64_t *count);

/* Options listed in the help of commands that read photos and no data sets: .shown = CLI_PHOTO_OPTIONS. */
#define CLI_PHOTO_OPTIONS "checkpoint vocab config invariant batch_size max_image_pixels"

/* Phones take photos of 48 and more megapixels: commands of a person who trusts the images have a higher limit than
 * data sets and the server. Replaces the row of the set. */
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

/* What the command line set, with what the common options add. */
const cloob_data_options *cli_data_ready(cloob_data_options *o);

/* The precision of the objective: fp32 (the default) or bf16. -1, or the exit code of a refusal. */
int cli_loss_precision(const command *self, cloob_dtype *out);

bool cli_is_folder(const char *path);

/* A whole file, or standard input for "-": zero-terminated, *size bytes (may be NULL). The caller frees. NULL:
 * it cannot be read, and errno is set; 0: out of memory. */
char *cli_read_file(const char *path, size_t *size);

/* The same, of a file that a command has just written: *out is the caller's to free. */
cloob_status cli_read_made(cloob_ctx *ctx, const char *path, char **out);

/* Prints a text that the library made, and frees it. NULL: an out-of-memory error is set in ctx. */
cloob_status cli_put_text(cloob_ctx *ctx, char *text);

/* A field of a CSV file: in quotes where it must be. */

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

/* From here on SIGINT and SIGTERM ask the command to save its work and stop; the second one ends it at once.
 * cli_should_stop, which every context of the program has, returns whether one arrived. */
void cli_stop_on_signals(void);
bool cli_should_stop(void *user);

/* Applies the preset and the file of settings, if they were named, and stops on Ctrl-C from here on. Returns -1, or
 * the exit code. */
int cli_train_fill(const command *self, cloob_ctx *ctx, const char *preset, const char *settings,
                   cloob_train_options *o);

#endif
