/* cloob info: describes a device, a model, weights or a data set; --view shows an image as a model sees it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/rng.h"
#include "data/sets/dataset.h"
#include "data/view/transform.h"
#include "io/image/image.h"
#include "train/memory_budget.h"
#include "hub/hub.h"
#include "model/config.h"

/* Kinds in the order of the attempts; the first one that matches is used. */
static const info_kind *const kinds[] = { &info_device, &info_model, &info_weights, &info_data };

static info_options o;

static const opt_row rows[] = {
    { "examine", OPT_INT, &o.examine, "10000", "N", "samples of a data set to decode, spread evenly; 0: all",
      OPT_NOT_NEGATIVE },
    { "batch-size", OPT_INT, &o.batch, "32", "N",
      "for a model without weights: batch size of the training step whose memory is estimated", OPT_POSITIVE },
    { "view", OPT_STRING, &o.view, NULL, "OUT.png", "write the image as a model sees it, before normalisation", 0 },
    { "size", OPT_INT, &o.size, "224", "N", "with --view: edge of the square result in pixels", OPT_POSITIVE },
    { "crop", OPT_STRING, &o.crop, NULL, "TOP,LEFT,HEIGHT,WIDTH",
      "with --view: resize this box instead of the evaluation view", 0 },
    { "train", OPT_FLAG, &o.train, NULL, NULL, "with --view: a training view, a random crop drawn from --seed", 0 },
    { "aug-cfg", OPT_LIST, &o.aug, NULL, "K=V", "with --train: scale=0.5,1 color_jitter=0.4,0.4,0.4,0.1 ...", 0 },
    { "interpolation", OPT_STRING, &o.interpolation, "bicubic", "bicubic|bilinear", "with --view: the filter", 0 },
    { "resize-mode", OPT_STRING, &o.resize_mode, "shortest", "shortest|longest|squash",
      "with --view: which edge becomes N", 0 },
    OPT_END
};
static const opt_set sets[] = { { .table = data_option_table, .into = &o.data }, OPT_SETS_END };

/* ---- --view: an image as a model sees it, before normalisation --------------------------------------- */

static bool parse_crop(const char *text, image_box *box)
{
    long long top, left, height, width;
    int end = 0;
    if (sscanf(text, "%lld,%lld,%lld,%lld%n", &top, &left, &height, &width, &end) != 4 || text[end]) return false;
    *box = (image_box){ top, left, height, width };
    return true;
}

static cloob_status view_options(cloob_ctx *ctx, transform_options *t)
{
    transform_options_init(t, o.size);
    CLOOB_TRY(transform_options_set(ctx, t, "interpolation", o.interpolation));
    CLOOB_TRY(transform_options_set(ctx, t, "resize_mode", o.resize_mode));
    for (int64_t i = 0; i < o.aug.count; i++) CLOOB_TRY(transform_options_parse(ctx, t, o.aug.item[i]));
    return transform_options_check(ctx, t);
}

/* rgb: (size, size, 3) */
static cloob_status compute_view(cloob_ctx *ctx, const image *im, const transform_options *t, uint8_t *rgb)
{
    image_box b = { 0 };
    uint64_t key = rng_key((uint64_t)common.seed, "view");
    if (o.train) return view_of_image(ctx, NULL, im, t, &key, rgb);
    if (!o.crop) return view_of_image(ctx, NULL, im, t, NULL, rgb);
    parse_crop(o.crop, &b);
    return transform_crop_resize(ctx, im, b.top, b.left, b.height, b.width, t->size, t->size, t->how.filter, rgb);
}

static cloob_status write_view(cloob_ctx *ctx, const char *path)
{
    transform_options t;
    image im;
    image_limits limits = { .max_pixels = o.data.max_pixels };
    CLOOB_TRY(view_options(ctx, &t));
    CLOOB_TRY(image_read(ctx, path, &limits, &im));
    size_t bytes = (size_t)(t.size * t.size * 3);
    uint8_t *rgb = malloc(bytes);
    cloob_status status = rgb ? compute_view(ctx, &im, &t, rgb) : ctx_no_memory(ctx, bytes, "a view");
    if (status == CLOOB_OK) status = image_write_png(ctx, o.view, rgb, t.size, t.size);
    free(rgb);
    image_release(&im);
    return status;
}

static int check_view(const command *self)
{
    image_box box;
    if (!*o.view && opt_words.count) o.view = opt_words.item[--opt_words.count]; /* the former `preprocess IMAGE OUT` */
    if (opt_words.count != 1) return cli_usage(self, "--view needs an image and the PNG file to write");
    if (o.crop && o.train) return cli_usage(self, "--crop and --train exclude each other");
    if (o.crop && !parse_crop(o.crop, &box))
        return cli_usage(self, "--crop %s: must be top,left,height,width in pixels", o.crop);
    if (o.aug.count && !o.train) return cli_usage(self, "--aug-cfg needs --train");
    return -1;
}

static int run_view(const command *self, cloob_ctx *ctx, const char *path)
{
    cloob_status status = write_view(ctx, path);
    if (status == CLOOB_OK && common.json) json_out_object(NULL, J_INT("width", o.size), J_INT("height", o.size));
    return cli_exit(self, ctx, status);
}

/* ---- the command ------------------------------------------------------------------------------------- */

static int check(const command *self)
{
    static const char *const of_view[] = { "size", "crop", "train", "aug-cfg", "interpolation", "resize-mode" };
    if (o.view) return check_view(self);
    for (size_t i = 0; i < sizeof of_view / sizeof *of_view; i++)
        if (opt_given(of_view[i])) return cli_usage(self, "--%s needs --view", of_view[i]);
    return opt_words.count == 1
               ? -1
               : cli_usage(self, "needs a file, a folder, a model such as RN50, or device to describe");
}

/* Whether the argument looks like a model's name, such as RN51: no existing path, no characters of paths and
 * patterns. */
static bool is_bare_word(const char *what)
{
    return strcspn(what, "/.{*?:") == strlen(what) && access(what, F_OK) != 0 && !model_config_known(what) &&
           strcmp(what, "device") != 0;
}

/* The error of the model lookup suggests similar names. */
static int report_unknown(const command *self, cloob_ctx *ctx, const char *what)
{
    model_outline m;
    cloob_status status = model_describe(ctx, what, o.batch, common.precision, &m);
    if (status == CLOOB_OK) return 0;
    return cli_error(self, "%s: no such file or folder, and %s", what, cloob_error(ctx));
}

static int run(const command *self, cloob_ctx *ctx)
{
    if (o.view) return run_view(self, ctx, opt_words.item[0]);
    bool named = hub_name_is_meant(opt_words.item[0]) && access(opt_words.item[0], F_OK) != 0;
    cloob_status status = named ? opt_model_path(ctx, &opt_words.item[0]) : CLOOB_OK;
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    if (named) return info_weights.describe(self, ctx, opt_words.item[0], &o);
    if (is_bare_word(opt_words.item[0])) return report_unknown(self, ctx, opt_words.item[0]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i]->matches(opt_words.item[0])) return kinds[i]->describe(self, ctx, opt_words.item[0], &o);
    return 1;
}

const command cmd_info = {
    .name = "info",
    .run = run,
    .check = check,
    .help = "describe a checkpoint, a data set, a model, an image or a device",
    .options = rows,
    .sets = sets,
    .uses = USES_SEED,
    .usage = "MODEL|FILE|DIR|device | IMAGE --view OUT.png [--size N]",
    .details =
        "A model's name or a .json configuration: sizes, parameters, memory of a training step.\n"
        "\n"
        "Weights (cloob's, torch, open_clip, Hugging Face, the folder of a run): the model, its configuration and "
        "metadata. Embeddings: their sizes.\n"
        "\n"
        "A data set: its type, the number of samples, files and classes, the sizes of images and captions, and how "
        "many of the examined samples are unusable and why.\n"
        "\n"
        "device: the devices, the parts of this build and the cache folder, as cloob doctor lists them.\n"
        "\n"
        "--view writes the evaluation view of an image as a PNG: shortest edge to N, centre crop, bit for bit as "
        "Pillow's antialiased filter. --crop resizes a box of the image instead, --train shows a random crop.\n"
        "\n"
        "  cloob info ViT-L-14\n"
        "  cloob info model.safetensors\n"
        "  cloob info train.tsv --path-data /data/images\n"
        "  cloob info 'shards/{00000..00999}.tar' --examine 0 --json\n"
        "  cloob info cat.jpg --view seen.png --size 96 --crop 10,20,180,240",
};
