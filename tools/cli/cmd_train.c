/* cloob train. */
#include <stdio.h>

#include "cli/json_out.h"
#include "cli/shared_opts.h"
#include "train/settings.h"

static cloob_train_options o;
static const char *preset;

static const opt_row rows[] = {
    CLI_PRESET_ROW(preset),
    OPT_END,
};
static const opt_set sets[] = { { .table = train_option_table, .into = &o }, OPT_SETS_END };

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

static int run(const command *self, cloob_ctx *ctx)
{
    cloob_train_summary s = { .rank = 0 };
    int code = cli_train_fill(self, ctx, preset, &o);
    if (code >= 0) return code;
    cloob_status status = cloob_train(ctx, &o, &s);
    bool report = status == CLOOB_OK && s.rank == 0; /* rank 0 reports for all */
    if (report && common.json) print_json(&s);
    else if (report) printf("%s\n", s.checkpoint);
    return cli_exit(self, ctx, status);
}

const command cmd_train = {
    .name = "train",
    .run = run,
    .stray = "unexpected argument; name the data with --train-data",
    .help = "train image and text encoders on image-text pairs",
    .options = rows,
    .sets = sets,
    .brief = "preset train-data val-data workers name logs batch-size epochs max-steps seed resume device precision "
             "zeroshot-data lr warmup model pretrained method json",
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
