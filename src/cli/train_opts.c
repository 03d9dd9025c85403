/* Options of training, after parsing. */
#include "cli/train_opts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- stopping ------------------------------------------------------------------------------------ */

static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    if (asked) { /* the second time: at once; the last checkpoint is whole */
        signal(number, SIG_DFL);
        raise(number);
    }
    asked = 1;
}

static bool should_stop(void *user)
{
    (void)user;
    return asked != 0;
}

/* Three numbers, as "R G B" or "R,G,B"; not given: left alone. */
static bool take_channels(const opt_list *l, double to[3])
{
    int n = 0;
    for (int i = 0; i < l->count; i++)
        for (const char *at = l->item[i]; *at;) {
            char *end;
            double v = strtod(at, &end);
            if (end == at || n == 3 || (*end && *end != ',')) return false;
            to[n++] = v;
            at = *end ? end + 1 : end;
        }
    return l->count == 0 || n == 3;
}

/* ---- a recipe, then what was typed ----------------------------------------------------------------- */

static cloob_status apply_preset(cloob_ctx *ctx, cloob_train_options *o, const char *preset)
{
    cloob_train_options recipe = *o;
    cloob_status status = cloob_train_preset(ctx, preset, &recipe);
    if (status != CLOOB_OK) return status;
        /* What was typed wins, defaults do not. */
#define KEEP(flag, field)                                                                                              \
    if (!opt_given(flag)) o->field = recipe.field
    KEEP("model", model);
    KEEP("method", method);
    KEEP("lr", lr);
    KEEP("wd", wd);
    KEEP("warmup", warmup);
    KEEP("batch-size", batch_size);
    KEEP("lr-scheduler", lr_scheduler);
    KEEP("restart-cycles", restart_cycles);
    KEEP("epochs", epochs);
    KEEP("init-inv-tau", init_inv_tau);
    KEEP("scale-hopfield", scale_hopfield);
#undef KEEP
    return CLOOB_OK;
}

int cli_train_fill(const command *self, cloob_ctx *ctx, int argc, char **argv, cloob_train_options *o,
                   cli_train_more *more)
{
    cloob_status status = more->preset ? apply_preset(ctx, o, more->preset) : CLOOB_OK;
    (void)argc, (void)argv;
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    if (strcmp(more->separator, "\\t") == 0) more->separator = "\t";
    if (strlen(more->separator) != 1)
        return cli_usage(self, "--csv-separator %s: needs one character", more->separator);
    o->data.csv_separator = more->separator[0];
    o->aug_cfg = more->aug_cfg.item;
    o->aug_cfg_count = more->aug_cfg.count;
    if (!take_channels(&more->image_mean, o->image_mean) || !take_channels(&more->image_std, o->image_std))
        return cli_usage(self, "--image-mean, --image-std: three numbers each");
    if ((more->image_mean.count > 0) != (more->image_std.count > 0))
        return cli_usage(self, "--image-mean and --image-std go together");
    if (more->image_std.count && (o->image_std[0] <= 0 || o->image_std[1] <= 0 || o->image_std[2] <= 0))
        return cli_usage(self, "--image-std: must be above 0");
    o->seed = common.seed;
    o->device = common.device;
    o->precision = common.precision ? common.precision : "fp32";
    o->should_stop = should_stop;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    return -1;
}
