/* cloob info IMAGE --view OUT.png: what a model sees of an image, before normalisation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/info.h"
#include "cli/json_out.h"
#include "io/image/image.h"

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

static cloob_status write_view(cloob_ctx *ctx, const char *in, const char *out, const cloob_view_options *v)
{
    cloob_image p;
    cloob_status s = cloob_view_file(ctx, in, v, &p);
    if (s != CLOOB_OK) return s;
    s = image_write_png(ctx, out, p.rgb, p.width, p.height);
    cloob_image_release(&p);
    return s;
}

int info_view_check(const command *self, info_options *o)
{
    cloob_view_options v;
    if (!*o->view && opt_words.count)
        o->view = opt_words.item[--opt_words.count]; /* the former `preprocess IMAGE OUT` */
    if (opt_words.count != 1) return cli_usage(self, "--view needs an image and the PNG file to write");
    if (o->crop && o->train) return cli_usage(self, "--crop and --train exclude each other");
    if (o->crop && !parse_crop(o->crop, &v))
        return cli_usage(self, "--crop %s: top,left,height,width in pixels", o->crop);
    if (o->aug.count && !o->train) return cli_usage(self, "--aug-cfg needs --train");
    return -1;
}

int info_view(const command *self, cloob_ctx *ctx, const char *path, const info_options *o)
{
    cloob_view_options v;
    cloob_view_options_init(&v, o->size);
    if (o->crop) parse_crop(o->crop, &v);
    if (o->train) v.kind = CLOOB_VIEW_TRAIN;
    v.interpolation = o->interpolation;
    v.resize_mode = o->resize_mode;
    v.max_pixels = o->data.max_pixels;
    v.seed = (uint64_t)common.seed;
    const char **aug = calloc((size_t)o->aug.count + 1, sizeof *aug);
    if (aug && o->aug.count) memcpy(aug, o->aug.item, (size_t)o->aug.count * sizeof *aug);
    v.aug = aug;
    cloob_status status = write_view(ctx, path, o->view, &v);
    if (status == CLOOB_OK && common.json) { json_out_object(NULL, J_INT("width", v.side), J_INT("height", v.side)); }
    free(aug);
    return cli_exit(self, ctx, status);
}
