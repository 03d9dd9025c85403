/* The options of training, for the commands that train: those of cloob_train_option_table, and --preset.
 *
 *     static cloob_train_options o;
 *     static const char *preset;
 *     static const opt_row rows[] = { CLI_PRESET_ROW(preset), OPT_END };
 *     static const opt_set sets[] = { { .table = cloob_train_option_table, .into = &o }, OPT_SETS_END };
 *
 * and after opt_parse, cli_train_fill. */
#ifndef CLI_TRAIN_OPTS_H
#define CLI_TRAIN_OPTS_H

#include "cli/commands.h"

#define CLI_PRESET_ROW(preset)                                                                                         \
    {                                                                                                                  \
        "preset", OPT_STRING, &preset, NULL, "NAME",                                                                   \
            "recipe to start from: cc and yfcc are the paper's, cloob help --presets lists all; flags take "           \
            "precedence",                                                                                              \
            0                                                                                                          \
    }

/* Applies the recipe, if one was named, sets progress and stopping by Ctrl-C. Returns -1 to go on, or the exit code. */
int cli_train_fill(const command *self, cloob_ctx *ctx, const char *preset, cloob_train_options *o);

#endif
