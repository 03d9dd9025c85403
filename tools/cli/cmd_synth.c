/* cloob synth: the synthetic image-text world. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "lab/synth/write.h"

static struct {
    const char *out, *format, *sheet, *sheet_kind;
    int64_t count, val_count, per_class, size, shard_samples, sheet_rows, sheet_columns;
    double strength;
    bool force;
} o;

static const opt_row rows[] = {
    { "out", OPT_STRING, &o.out, NULL, "DIR", "output folder; an earlier world there is replaced", 0 },
    { "count", OPT_INT, &o.count, "10000", "N", "training pairs", OPT_POSITIVE },
    { "size", OPT_INT, &o.size, "64", "R", "image size in pixels, 16 to 2048", OPT_POSITIVE },
    { "format", OPT_STRING, &o.format, "csv", "csv|webdataset", "files and lists, or tar shards", 0 },
    { "val-count", OPT_INT, &o.val_count, "-1", "N", "validation pairs; -1: a tenth of count, at least 16", 0 },
    { "per-class", OPT_INT, &o.per_class, "-1", "N", "test images per class; -1: count / 200, within 4 and 100", 0 },
    { "strength", OPT_DOUBLE, &o.strength, "0.25", "S", "how strongly factors correlate in the training data, 0 to 1",
      0 },
    { "shard-samples", OPT_INT, &o.shard_samples, "1000", "N", "pairs per tar", OPT_POSITIVE },
    { "force", OPT_FLAG, &o.force, NULL, NULL, "write into a folder that contains other files", 0 },
    { "sheet", OPT_STRING, &o.sheet, NULL, "FILE.png", "draw a sample sheet; needs no --out", 0 },
    { "sheet-kind", OPT_STRING, &o.sheet_kind, "samples", "samples|factors",
      "pairs with captions, or every value of every factor", 0 },
    { "sheet-rows", OPT_INT, &o.sheet_rows, "4", "N", "rows of the sheet", OPT_POSITIVE },
    { "sheet-columns", OPT_INT, &o.sheet_columns, "6", "N", "columns of the sheet", OPT_POSITIVE },
    OPT_END,
};

static void gather(synth_options *s)
{
    synth_options_init(s);
    s->out = o.out;
    s->count = o.count;
    s->val_count = o.val_count;
    s->per_class = o.per_class;
    s->size = o.size;
    s->seed = (uint64_t)common.seed;
    s->strength = o.strength;
    s->format = strcmp(o.format, "csv") == 0 ? SYNTH_CSV : SYNTH_WEBDATASET;
    s->shard_samples = o.shard_samples;
    s->force = o.force;
}

static void print_result(const synth_result *r)
{
    double each = (double)(r->train + r->val + r->test) / (r->seconds > 0 ? r->seconds : 1e-9);
    if (!common.json) {
        printf("%s: %lld training pairs, %lld validation pairs, %lld test images (%.1f MB) in %.1f s, %.0f a second\n",
               o.out, (long long)r->train, (long long)r->val, (long long)r->test, 1e-6 * (double)r->bytes, r->seconds,
               each);
        return;
    }
    json_out_object(NULL, J_OF(r, train), J_OF(r, val), J_OF(r, test), J_OF(r, shards), J_OF(r, bytes),
                    J_NUMBER("seconds", r->seconds, 6), J_NUMBER("images_per_s", each, 6));
}

static void print_sheet(void) { json_out_object(NULL, J_OF(&o, sheet)); }

static int run(const command *self, cloob_ctx *ctx)
{
    synth_options s;
    synth_result r;
    gather(&s);
    if (o.sheet) {
        int sheet_rows = strcmp(o.sheet_kind, "factors") == 0 ? 0 : (int)o.sheet_rows;
        cloob_status status =
            synth_sheet(ctx, &(synth_world){ s.seed, s.strength }, sheet_rows, (int)o.sheet_columns, s.size, o.sheet);
        if (status != CLOOB_OK) return cli_fail(self, ctx, status);
        if (!o.out && common.json) print_sheet();
        if (!o.out) return 0;
    }
    cloob_status status = synth_write(ctx, &s, &r);
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    print_result(&r);
    return 0;
}

static int check(const command *self)
{
    if (!o.out && !o.sheet) return cli_usage(self, "--out is needed: the folder to create");
    if (o.sheet_rows * o.sheet_columns > 10000 || o.sheet_rows > 10000)
        return cli_usage(self, "a sheet has at most 10000 samples");
    return -1;
}

const command cmd_synth = {
    .name = "synth",
    .run = run,
    .check = check,
    .stray = "--out",
    .help = "draw a synthetic image-text world with tests and ground truth",
    .options = rows,
    .uses = USES_SEED,
    .usage = "--out DIR [--count N] [--size R] [--seed S]",
    .details =
        "Draws scenes of eight factors (object, colour, material, size, count, position, background, light) "
        "with captions that mention some of them. DIR receives train.tsv and val.tsv (filepath, title) with "
        "images/, or shards; a "
        "zero-shot\n"
        "test for every factor, made of combinations that training never shows, in classes/FACTOR/CLASS/ with\n"
        "prompts.json; and the ground truth in factors.tsv and naming.tsv. Same seed, same bytes.\n"
        "\n"
        "  cloob synth --out world --count 20000 --size 64 --seed 1\n"
        "  cloob train --train-data world/train.tsv --val-data world/val.tsv --model tiny --name first\n"
        "  cloob eval zeroshot --checkpoint M --data world/classes/object --prompts world/prompts.json --set object",
};
