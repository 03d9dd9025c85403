/* cloob train. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/train_opts.h"

static cloob_train_options o;
static const char *preset;

static const opt_row rows[] = {
    CLI_PRESET_ROW(preset),
    OPT_END,
};
static const opt_set sets[] = { { cloob_train_option_table, &o }, OPT_SETS_END };

static void print_json(const cloob_train_summary *s)
{
    json_out_open(NULL, '{');
    json_out_text("run", s->run_dir);
    json_out_text("checkpoint", s->checkpoint);
    json_out_int("steps", s->steps);
    json_out_number("loss", s->loss, 9);
    json_out_number("seconds", s->seconds, 6);
    json_out_number("pairs_per_s", s->pairs_per_s, 6);
    json_out_int("skipped_steps", s->skipped_steps);
    json_out_int("bad_samples", s->bad_samples);
    json_out_number("wait_share", s->wait_share, 4);
    json_out_number("other_share", s->other_share, 4);
    json_out_close();
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    cloob_train_summary s = { .rank = 0 };
    cloob_train_options_init(&o);
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count) return cli_usage(self, "%s: not understood", rest.item[0]);
    cloob_ctx *ctx = cli_context();
    if ((code = cli_train_fill(self, ctx, preset, &o)) >= 0) {
        cloob_ctx_destroy(ctx);
        return code;
    }
    cloob_status status = cloob_train(ctx, &o, &s);
    if (status == CLOOB_OK && s.rank > 0) code = 0; /* rank 0 reports for all */
    else if (status == CLOOB_OK && common.json) print_json(&s);
    else if (status == CLOOB_OK) printf("%s\n", s.checkpoint);
    code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_train = {
    .name = "train",
    .run = run,
    .help = "train image and text encoders on image-text pairs",
    .options = rows,
    .sets = sets,
    .usage = "--train-data SOURCE [OPTIONS]",
    .details =
        "Trains a model and writes everything to LOGS/NAME: out.log, params.txt, checkpoints, results, TensorBoard "
        "events. Ctrl-C saves and stops; a second Ctrl-C stops at once. Memory is planned first: a batch that does not "
        "fit is refused, and the message names the largest that does. Set CLOOB_MEMORY_LIMIT=24G in the environment to "
        "limit the memory used.\n"
        "\n"
        "  cloob train --train-data pairs.tsv --model tiny --batch-size 128 --epochs 10 --warmup 200 --name first\n"
        "  mpirun -np 4 cloob train --preset cc --train-data 'cc/{00000..00331}.tar' --name cloob-cc",
};
