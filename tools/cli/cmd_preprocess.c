/* cloob preprocess IMAGE OUT.png: what the model would see, before normalising. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "io/image/image.h"

static struct {
    int64_t size, max_pixels;
    const char *crop, *interpolation, *mode;
    bool train;
    opt_list aug;
} o;

static const opt_row rows[] = {
    { "size", OPT_INT, &o.size, NULL, "N", "edge of the square result in pixels", OPT_REQUIRED | OPT_POSITIVE },
    { "crop", OPT_STRING, &o.crop, NULL, "TOP,LEFT,HEIGHT,WIDTH", "resize this box instead of the evaluation view", 0 },
    { "train", OPT_FLAG, &o.train, NULL, NULL, "a training view: random resized crop drawn from --seed", 0 },
    { "aug-cfg", OPT_LIST, &o.aug, NULL, "K=V", "with --train: scale=0.5,1 color_jitter=0.4,0.4,0.4,0.1 ...", 0 },
    { "interpolation", OPT_STRING, &o.interpolation, "bicubic", "bicubic|bilinear", "the filter", 0 },
    { "resize-mode", OPT_STRING, &o.mode, "shortest", "shortest|longest|squash",
      "evaluation view: which edge becomes N", 0 },
    { "max-image-pixels", OPT_INT, &o.max_pixels, "25000000", "N", "larger images are refused; 0: no limit",
      OPT_NOT_NEGATIVE },
    OPT_END
};

static bool parse_crop(const char *text, cloob_view_options *v)
{
    long long top, left, height, width;
    int end = 0;
    if (sscanf(text, "%lld,%lld,%lld,%lld%n", &top, &left, &height, &width, &end) != 4 || text[end]) return false;
    v->kind = CLOOB_VIEW_CROP;
    v->top = top;
    v->left = left;
    v->height = height;
    v->width = width;
    return true;
}

static cloob_status preprocess(cloob_ctx *ctx, const char *in, const char *out, const cloob_view_options *v)
{
    cloob_image p;
    cloob_status s = cloob_view_file(ctx, in, v, &p);
    if (s != CLOOB_OK) return s;
    s = image_write_png(ctx, out, p.rgb, p.width, p.height);
    cloob_image_release(&p);
    return s;
}

static int check(const command *self)
{
    cloob_view_options v;
    if (opt_words.count != 2) return cli_usage(self, "needs an image and where the PNG goes");
    if (o.crop && o.train) return cli_usage(self, "--crop and --train exclude each other");
    if (o.crop && !parse_crop(o.crop, &v)) return cli_usage(self, "--crop %s: top,left,height,width in pixels", o.crop);
    if (o.aug.count && !o.train) return cli_usage(self, "--aug-cfg goes with --train");
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    cloob_view_options v;
    cloob_view_options_init(&v, o.size);
    if (o.crop) parse_crop(o.crop, &v);
    if (o.train) v.kind = CLOOB_VIEW_TRAIN;
    v.interpolation = o.interpolation;
    v.resize_mode = o.mode;
    v.max_pixels = o.max_pixels;
    v.seed = (uint64_t)common.seed;
    const char **aug = calloc((size_t)o.aug.count + 1, sizeof *aug);
    if (aug && o.aug.count) memcpy(aug, o.aug.item, (size_t)o.aug.count * sizeof *aug);
    v.aug = aug;
    cloob_status status = preprocess(ctx, opt_words.item[0], opt_words.item[1], &v);
    if (status == CLOOB_OK && common.json) {
        json_out_open(NULL, '{');
        json_out_int("width", v.side);
        json_out_int("height", v.side);
        json_out_close();
    }
    free(aug);
    return cli_exit(self, ctx, status);
}

const command cmd_preprocess = {
    .name = "preprocess",
    .run = run,
    .check = check,
    .help = "show what a model sees of an image",
    .options = rows,
    .uses = USES_SEED,
    .usage = "IMAGE OUT.png --size N",
    .details =
        "Writes the evaluation view of a JPEG, PNG or WebP as a PNG: shortest edge to N, centre crop, with Pillow's\n"
        "antialiased filter to the bit. --crop resizes a box of the image instead, --train shows a random crop.\n"
        "\n"
        "  cloob preprocess cat.jpg seen.png --size 224\n"
        "  cloob preprocess cat.jpg seen.png --size 96 --crop 10,20,180,240\n"
        "  cloob preprocess cat.jpg seen.png --size 224 --train --seed 3 --aug-cfg scale=0.5,1",
};
