/* cloob info WHAT: asks each kind in turn whether it knows the thing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/info/info.h"
#include "data/sets/dataset.h"
#include "train/outline.h"
#include "model/config.h"

#define INFO(name) extern const info_kind info_##name;
#include "cli/info/infos.def"
#undef INFO

static const info_kind *const kinds[] = {
#define INFO(name) &info_##name,
#include "cli/info/infos.def"
#undef INFO
};

static info_options o;

static const opt_row rows[] = {
    { "examine", OPT_INT, &o.examine, "10000", "N", "samples of a data set to decode, spread evenly; 0: all",
      OPT_NOT_NEGATIVE },
    { "batch-size", OPT_INT, &o.batch, "32", "N",
      "for a model without weights: batch size of the training step whose memory is estimated", OPT_POSITIVE },
    OPT_END
};
static const opt_set sets[] = { { .table = data_option_table, .into = &o.data }, OPT_SETS_END };

static int check(const command *self)
{
    return opt_words.count == 1
               ? -1
               : cli_usage(self, "needs one thing to describe: a file, a folder, a model such as RN50, or device");
}

/* A word such as RN51: no file or folder, and without anything that paths and patterns have. */
static bool is_bare_word(const char *what)
{
    return strcspn(what, "/.{*?:") == strlen(what) && access(what, F_OK) != 0 && !model_config_known(what) &&
           strcmp(what, "device") != 0;
}

/* The model's error names those nearest to it. */
static int nothing_of_that_name(const command *self, cloob_ctx *ctx, const char *what)
{
    model_outline m;
    cloob_status status = model_describe(ctx, what, o.batch, common.precision, &m);
    model_outline_release(&m);
    if (status == CLOOB_OK) return 0;
    fprintf(stderr, "cloob %s: %s: there is no such file or folder, and %s\n", self->name, what, cloob_error(ctx));
    return 1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    if (is_bare_word(opt_words.item[0])) return nothing_of_that_name(self, ctx, opt_words.item[0]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i]->knows(opt_words.item[0])) return kinds[i]->tell(self, ctx, opt_words.item[0], &o);
    return 1;
}

const command cmd_info = {
    .name = "info",
    .run = run,
    .check = check,
    .help = "describe a checkpoint, a data set, a model or a device",
    .options = rows,
    .sets = sets,
    .usage = "MODEL|FILE|DIR|device",
    .details =
        "For the name of a model, or a .json configuration: sizes, parameters, memory of a training step.\n"
        "For weights (ours, torch, open_clip, Hugging Face, the folder of a run): the model, its configuration and "
        "metadata. For embeddings: their sizes.\n"
        "For a data set: its type, the number of samples, files and classes, the sizes of images and captions, "
        "and how many of the examined samples are unusable and why.\n"
        "\n"
        "  cloob info ViT-L-14\n"
        "  cloob info model.safetensors\n"
        "  cloob info train.tsv --path-data /data/images\n"
        "  cloob info 'shards/{00000..00999}.tar' --examine 0 --json",
};
