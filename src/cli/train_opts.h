/* The options of training, shared by the commands that train.
 *
 *     static cloob_train_options o;
 *     static cli_train_more more;
 *     static const opt_row rows[] = {
 *     #include "cli/train_opts.def"
 *         OPT_END,
 *     };
 *
 * and after opt_parse, cli_train_fill. */
#ifndef CLI_TRAIN_OPTS_H
#define CLI_TRAIN_OPTS_H

#include "cli/commands.h"

/* What is not a field of cloob_train_options as it is typed. */
typedef struct cli_train_more {
    const char *preset, *separator;
    opt_list aug_cfg, image_mean, image_std;
} cli_train_more;

/* Applies the recipe and the common options, sets progress and stopping by Ctrl-C. Returns -1 to go on, or the exit code. */
int cli_train_fill(const command *self, cloob_ctx *ctx, int argc, char **argv, cloob_train_options *o,
                   cli_train_more *more);

#endif
