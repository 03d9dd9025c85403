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

/* ---- a recipe, then what was typed ----------------------------------------------------------------- */

/* What was typed wins, defaults do not. */
static cloob_status apply_preset(cloob_ctx *ctx, cloob_train_options *o, const char *preset)
{
    int64_t n;
    const cloob_option *table = cloob_train_option_table(&n);
    cloob_train_options typed = *o;
    cloob_status status = cloob_train_preset(ctx, preset, o);
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++)
        if (opt_given(table[i].name)) cloob_option_copy(&table[i], &typed, o);
    if (opt_given("batch-size") && !opt_given("global-batch-size")) o->global_batch_size = 0;
    if (opt_given("restart-cycles") && !opt_given("restart-epochs")) o->restart_epochs = 0;
    return status;
}

int cli_train_fill(const command *self, cloob_ctx *ctx, const char *preset, cloob_train_options *o)
{
    cloob_status status = preset ? apply_preset(ctx, o, preset) : CLOOB_OK;
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    if (opt_given("batch-size") && o->global_batch_size > 0)
        return cli_usage(self, "--batch-size is per device, --global-batch-size over all of them; give one of the two");
    if (strcmp(o->method, "siglip") == 0 && !opt_given("init-inv-tau")) o->init_inv_tau = 10;
    if (opt_given("image-mean") != opt_given("image-std"))
        return cli_usage(self, "--image-mean and --image-std go together");
    o->should_stop = should_stop;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    return -1;
}
