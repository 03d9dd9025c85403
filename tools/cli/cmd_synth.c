/* cloob synth: writes the synthetic image-text data set. */
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "lab/synth/write.h"

static synth_options o;
static const char *format;

static const opt_row rows[] = {
    { "out", OPT_STRING, &o.out, NULL, "DIR", "output folder; an earlier world there is replaced", OPT_REQUIRED },
    { "count", OPT_INT, &o.count, "10000", "N", "training pairs", OPT_POSITIVE },
    { "size", OPT_INT, &o.size, "64", "R", "image size in pixels, 16 to 2048", OPT_POSITIVE },
    { "format", OPT_STRING, &format, "csv", "csv|webdataset", "files and lists, or tar shards", 0 },
    { "val-count", OPT_INT, &o.val_count, "-1", "N", "validation pairs; -1: a tenth of count, at least 16", 0 },
    { "per-class", OPT_INT, &o.per_class, "-1", "N", "test images per class; -1: count / 200, within 4 and 100", 0 },
    { "strength", OPT_DOUBLE, &o.strength, "0.25", "S", "how strongly factors correlate in the training data, 0 to 1",
      0 },
    { "shard-samples", OPT_INT, &o.shard_samples, "1000", "N", "pairs per tar", OPT_POSITIVE },
    { "force", OPT_FLAG, &o.force, NULL, NULL, "write into a folder that contains other files", 0 },
    OPT_END,
};

static int run(const command *self, cloob_ctx *ctx)
{
    synth_result r;
    o.seed = (uint64_t)common.seed;
    o.format = strcmp(format, "csv") == 0 ? SYNTH_CSV : SYNTH_WEBDATASET;
    cloob_status status = synth_write(ctx, &o, &r);
    if (status == CLOOB_OK)
        cli_result(J_OF(&o, out), J_OF(&r, train), J_OF(&r, val), J_OF(&r, test), J_OF(&r, shards), J_OF(&r, bytes),
                   J_NUMBER("seconds", r.seconds, 6),
                   J_NUMBER("images_per_s", (double)(r.train + r.val + r.test) / fmax(r.seconds, 1e-9), 6));
    return cli_exit(self, ctx, status);
}

const command cmd_synth = {
    .name = "synth",
    .run = run,
    .stray = "--out",
    .help = "draw a synthetic image-text world with tests and ground truth",
    .options = rows,
    .uses = USES_SEED,
    .usage = "--out DIR [--count N] [--size R] [--seed S]",
    .details =
        "Draws scenes of eight factors (object, colour, material, size, count, position, background, light) with "
        "captions that mention some of them. DIR receives train.tsv and val.tsv (filepath, title) with images/, or "
        "shards; a zero-shot test for every factor, made of combinations that training never shows, in "
        "classes/FACTOR/CLASS/ with prompts.json; and the ground truth in factors.tsv and naming.tsv. The same seed "
        "gives the same bytes.\n"
        "\n"
        "  cloob synth --out world --count 20000 --size 64 --seed 1\n"
        "  cloob train --train-data world/train.tsv --val-data world/val.tsv --model tiny --name first\n"
        "  cloob eval zeroshot --checkpoint M --data world/classes/object --prompts world/prompts.json --set object",
};
