/* Views: which box of the image, which resize for its kind, and the augmentations after it. */
#include "data/view/transform.h"

#include <pthread.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "data/view/device_view.h"
#include "io/image/exif.h"

struct view_scratch {
    image_reader *reader;
    resize_scratch resize;
    resize_buffer small;             /* a view before it is padded */
    resize_buffer four_in, four_out; /* premultiplied RGBA or CMYK, before and after the resize */
};

/* --- scratch ----------------------------------------------------------------------------------------- */

static void scratch_release(view_scratch *s)
{
    image_reader_destroy(s->reader);
    resize_scratch_release(&s->resize);
    resize_buffer_release(&s->small);
    resize_buffer_release(&s->four_in);
    resize_buffer_release(&s->four_out);
}

cloob_status view_scratch_create(cloob_ctx *ctx, view_scratch **out)
{
    view_scratch *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return ctx_no_memory(ctx, sizeof *s, "a view");
    cloob_status status = image_reader_create(ctx, &s->reader);
    if (status == CLOOB_OK) *out = s;
    else free(s);
    return status;
}

void view_scratch_destroy(view_scratch *s)
{
    if (!s) return;
    scratch_release(s);
    free(s);
}

/* --- resizing each kind ------------------------------------------------------------------------------ */

/* a b / 255, rounded, without a division. */
static uint8_t mul255(int a, int b)
{
    int t = a * b + 128;
    return (uint8_t)((t + (t >> 8)) >> 8);
}

static void premultiply(const image_part *p, uint8_t *out)
{
    for (int64_t y = 0; y < p->height; y++) {
        const uint8_t *rgb = p->rgb + y * p->stride, *alpha = p->extra + y * p->extra_stride;
        for (int64_t x = 0; x < p->width; x++, out += 4, rgb += 3) {
            for (int c = 0; c < 3; c++) out[c] = mul255(rgb[c], alpha[x]);
            out[3] = alpha[x];
        }
    }
}

static void unpremultiply(const uint8_t *in, uint8_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++, in += 4, out += 3) {
        int a = in[3];
        for (int c = 0; c < 3; c++) {
            int v = a == 0 || a == 255 ? in[c] : 255 * in[c] / a;
            out[c] = (uint8_t)(v > 255 ? 255 : v);
        }
    }
}

static cloob_status resize_four(cloob_ctx *ctx, view_scratch *s, const image_part *part, const resize_plan *p,
                                uint8_t *out)
{
    int64_t n = p->width * p->height;
    resize_source src = { part->extra, part->extra_stride, part->width, part->height, 4 };
    CLOOB_TRY(resize_reserve(ctx, &s->four_out, (size_t)n * 4));
    if (part->kind == IMAGE_ALPHA) {
        CLOOB_TRY(resize_reserve(ctx, &s->four_in, (size_t)(part->width * part->height) * 4));
        premultiply(part, s->four_in.data);
        src.pixels = s->four_in.data;
        src.stride = part->width * 4;
    }
    CLOOB_TRY(resize_run(ctx, &s->resize, &src, p, s->four_out.data));
    const uint8_t *four = s->four_out.data;
    if (part->kind == IMAGE_ALPHA) unpremultiply(four, out, n);
    else
        for (int64_t i = 0; i < n; i++) image_cmyk_to_rgb(four + 4 * i, out + 3 * i);
    return CLOOB_OK;
}

static bool is_copy(const image_part *part, const resize_plan *p)
{
    return p->out_width == part->width && p->out_height == part->height;
}

/* The window of the plan into out, by the rule for the image's kind. An image of the same size is copied, without
 * premultiplying. */
static cloob_status resize_part(cloob_ctx *ctx, view_scratch *s, const image_part *part, const resize_plan *p,
                                uint8_t *out)
{
    resize_source src = { part->rgb, part->stride, part->width, part->height, 3 };
    if (part->kind == IMAGE_INDEXED || p->filter == RESIZE_NEAREST)
        return resize_nearest(ctx, &s->resize, &src, p, out);
    if (part->kind == IMAGE_RGB || is_copy(part, p)) return resize_run(ctx, &s->resize, &src, p, out);
    return resize_four(ctx, s, part, p, out);
}

/* --- evaluation view --------------------------------------------------------------------------------- */

/* Pillow's and torchvision's int(round(x)): halves go to the even number. */
static int64_t round_even(double x) { return (int64_t)nearbyint(x); }

static int64_t whole_patches(double scale, int64_t edge, int64_t patch)
{
    int64_t n = (int64_t)ceil((double)edge * scale / (double)patch);
    return n > 1 ? n : 1;
}

/* transformers' search for the largest scale, with the same steps, so that rounding gives the same size. */
static void patch_grid(const image_view *v, int64_t width, int64_t height, int64_t *across, int64_t *down)
{
    const double eps = 1e-5;
    double low = eps / 10, high = 100;
    while (high - low >= eps) {
        double scale = (low + high) / 2;
        bool fits = whole_patches(scale, height, v->patch) * whole_patches(scale, width, v->patch) <= v->patches;
        if (fits) low = scale;
        else high = scale;
    }
    *across = whole_patches(low, width, v->patch);
    *down = whole_patches(low, height, v->patch);
    if (*across > v->patches) *across = v->patches; /* an image so long that one row of patches is too much */
    if (*down > v->patches / *across) *down = v->patches / *across;
}

/* The size of the image before the crop. The computed edge is truncated, as in torchvision. */
static void eval_size(const transform_options *o, int64_t width, int64_t height, int64_t *out_width,
                      int64_t *out_height)
{
    int64_t edge = o->how.height ? o->how.height : o->size;
    *out_width = o->how.width && o->how.mode == RESIZE_SQUASH ? o->how.width : edge;
    *out_height = edge;
    if (o->how.mode == RESIZE_NONE) *out_width = width, *out_height = height;
    if (o->how.mode == RESIZE_PATCHES) {
        patch_grid(&o->how, width, height, out_width, out_height);
        *out_width *= o->how.patch, *out_height *= o->how.patch;
    }
    if (o->how.mode == RESIZE_SHORTEST) {
        if (width <= height) *out_height = (int64_t)((double)(edge * height) / (double)width);
        else *out_width = (int64_t)((double)(edge * width) / (double)height);
    } else if (o->how.mode == RESIZE_LONGEST) {
        double rx = (double)width / (double)edge, ry = (double)height / (double)edge, ratio = rx > ry ? rx : ry;
        *out_width = round_even((double)width / ratio);
        *out_height = round_even((double)height / ratio);
        if (*out_width < 1) *out_width = 1;
        if (*out_height < 1) *out_height = 1;
    }
}

/* Where the crop of a longer edge begins. */
static int64_t crop_at(const transform_options *o, int64_t edge)
{
    int64_t more = edge - o->size;
    return more <= 0 ? 0 : o->how.hf ? more / 2 : round_even((double)more / 2.0);
}

/* The order of Pillow 13: the pass down is first where the height shrinks by more than twice as many pixels as the
 * width. Training crops keep the order of earlier versions, in which the pass across is always first. */
static bool is_down_first(int64_t width, int64_t height, const resize_plan *p)
{
    int64_t columns = width - p->out_width, rows = height - p->out_height;
    return !p->torch && rows > 0 && rows > 2 * columns;
}

/* The plan for an image of width x height: resize, then centre crop. */
static resize_plan eval_plan(const transform_options *o, int64_t width, int64_t height)
{
    int64_t w, h;
    eval_size(o, width, height, &w, &h);
    resize_plan p = resize_plan_whole(w, h, o->how.filter);
    p.torch =
        o->how.hf && o->how.filter != RESIZE_BOX && o->how.filter != RESIZE_HAMMING; /* torch does not have them */
    p.down_first = is_down_first(width, height, &p);
    if (o->how.mode == RESIZE_PATCHES) return p;
    p.left = crop_at(o, w);
    p.top = crop_at(o, h);
    p.width = w < o->size ? w : o->size;
    p.height = h < o->size ? h : o->size;
    return p;
}

/* Pads a smaller result to the square: the odd pixel goes right and below. open_clip pads before it converts to RGB:
 * the fill of an image with a palette is a number of it. */
static cloob_status eval_padded(cloob_ctx *ctx, view_scratch *s, const image_part *part, const transform_options *o,
                                const resize_plan *p, uint8_t *out)
{
    int64_t left = (o->size - p->width) / 2, top = (o->size - p->height) / 2;
    uint8_t fill[4] = { o->how.fill, o->how.fill, o->how.fill, o->how.fill }, rgb[3] = { fill[0], fill[0], fill[0] };
    CLOOB_TRY(resize_reserve(ctx, &s->small, (size_t)(p->width * p->height * 3)));
    uint8_t *small = s->small.data;
    CLOOB_TRY(resize_part(ctx, s, part, p, small));
    if (part->kind == IMAGE_CMYK) image_cmyk_to_rgb(fill, rgb);
    if (part->kind == IMAGE_INDEXED) memcpy(rgb, part->palette->rgb[o->how.fill], 3);
    for (int64_t i = 0; i < o->size * o->size; i++) memcpy(out + 3 * i, rgb, 3);
    for (int64_t y = 0; y < p->height; y++)
        memcpy(out + ((top + y) * o->size + left) * 3, small + y * p->width * 3, (size_t)(p->width * 3));
    return CLOOB_OK;
}

/* a over white with Pillow's alpha_composite: 7 more bits, divisions by 255 rounded. */
static uint8_t over_white(int colour, int a)
{
    uint32_t t = (uint32_t)(colour * a + 255 * (255 - a) + 128) << 7;
    return (uint8_t)(((t >> 8) + t) >> 8 >> 7);
}

/* The part as RGB alone, with its transparency over white. */
static cloob_status flatten(cloob_ctx *ctx, view_scratch *s, image_part *part)
{
    bool alpha = part->extra && part->kind != IMAGE_CMYK;
    part->kind = IMAGE_RGB;
    if (!alpha) return CLOOB_OK;
    CLOOB_TRY(resize_reserve(ctx, &s->four_in, (size_t)(part->width * part->height * 3)));
    uint8_t *to = s->four_in.data;
    for (int64_t y = 0; y < part->height; y++) {
        const uint8_t *rgb = part->rgb + y * part->stride, *a = part->extra + y * part->extra_stride;
        for (int64_t x = 0; x < 3 * part->width; x++) *to++ = over_white(rgb[x], a[x / 3]);
    }
    part->rgb = s->four_in.data;
    part->stride = part->width * 3;
    part->extra = NULL;
    return CLOOB_OK;
}

/* The record of io/image/image_view.h. */
static cloob_status eval_patches(cloob_ctx *ctx, view_scratch *s, const image_part *part, const transform_options *o,
                                 const resize_plan *p, uint8_t *out)
{
    size_t used = (size_t)(p->width * p->height * 3), bytes = (size_t)(o->size * o->size * 3);
    int64_t h = p->height / o->how.patch, w = p->width / o->how.patch;
    uint8_t grid[4] = { (uint8_t)h, (uint8_t)(h >> 8), (uint8_t)w, (uint8_t)(w >> 8) };
    CLOOB_TRY(resize_part(ctx, s, part, p, out));
    memset(out + used, 0, bytes - used);
    memcpy(out + bytes - 4, grid, 4);
    return CLOOB_OK;
}

static cloob_status eval_part(cloob_ctx *ctx, view_scratch *s, image_part *part, const transform_options *o,
                              const resize_plan *p, uint8_t *out)
{
    if (o->how.hf) CLOOB_TRY(flatten(ctx, s, part));
    if (o->how.mode == RESIZE_PATCHES) return eval_patches(ctx, s, part, o, p, out);
    if (p->width < o->size || p->height < o->size) return eval_padded(ctx, s, part, o, p, out);
    return resize_part(ctx, s, part, p, out);
}

/* --- training view ----------------------------------------------------------------------------------- */

enum { DRAW_CROP = 0, DRAW_JITTER, DRAW_GRAY, DRAW_FLIP, DRAW_JITTER_VALUES }; /* subkeys of a sample's key */

static double between(double lo, double hi, double u) { return lo + (hi - lo) * u; }

static image_box centre_fallback(const transform_options *o, int64_t width, int64_t height)
{
    double ratio = (double)width / (double)height;
    int64_t w = width, h = height;
    if (ratio < o->ratio_min) h = round_even((double)w / o->ratio_min);
    else if (ratio > o->ratio_max) w = round_even((double)h * o->ratio_max);
    if (w < 1) w = 1;
    if (h < 1) h = 1;
    return (image_box){ (height - h) / 2, (width - w) / 2, h, w };
}

image_box transform_draw_crop(const transform_options *o, uint64_t key, int64_t width, int64_t height)
{
    uint64_t k = rng_subkey(key, DRAW_CROP);
    double area = (double)width * (double)height,
           own = o->how.mode == RESIZE_PATCHES ? (double)width / (double)height : 1; /* what ratios are relative to */
    for (uint64_t i = 0; i < 40; i += 4) { /* ten tries of up to four numbers */
        double target = area * between(o->scale_min, o->scale_max, rng_uniform(k, i));
        double ratio = own * exp(between(log(o->ratio_min), log(o->ratio_max), rng_uniform(k, i + 1)));
        int64_t w = round_even(sqrt(target * ratio)), h = round_even(sqrt(target / ratio));
        if (w < 1 || w > width || h < 1 || h > height) continue;
        int64_t top = (int64_t)rng_below(k, i + 2, (uint64_t)(height - h + 1));
        int64_t left = (int64_t)rng_below(k, i + 3, (uint64_t)(width - w + 1));
        return (image_box){ top, left, h, w };
    }
    return o->how.mode == RESIZE_PATCHES ? (image_box){ 0, 0, height, width } : centre_fallback(o, width, height);
}

static bool happens(double probability, uint64_t key, uint64_t which)
{
    return probability > 0 && rng_uniform(rng_subkey(key, which), 0) < probability;
}

bool transform_draw_flip(const transform_options *o, uint64_t key) { return happens(o->flip_prob, key, DRAW_FLIP); }

bool transform_draw_colours(const transform_options *o, uint64_t key)
{
    return happens(o->jitter_prob, key, DRAW_JITTER) || happens(o->gray_prob, key, DRAW_GRAY);
}

/* The crop becomes the square, or with patches a record as for evaluation. */
static resize_plan train_plan(const transform_options *o, const image_box *box)
{
    if (o->how.mode == RESIZE_PATCHES) return eval_plan(o, box->width, box->height);
    return resize_plan_whole(o->size, o->size, o->how.filter);
}

static cloob_status train_part(cloob_ctx *ctx, view_scratch *s, image_part *part, const transform_options *o,
                               const resize_plan *p, uint8_t *out)
{
    if (o->how.mode == RESIZE_PATCHES) return eval_part(ctx, s, part, o, p, out);
    return resize_part(ctx, s, part, p, out);
}

/* open_clip's order after the crop: jitter, grey; the mirror, which it does not have, before them. */
static void train_augment(const transform_options *o, uint64_t key, int64_t width, int64_t height, uint8_t *out)
{
    int64_t n = width * height;
    if (transform_draw_flip(o, key)) augment_flip(out, width, height);
    if (happens(o->jitter_prob, key, DRAW_JITTER))
        augment_jitter(out, n, o->jitter, rng_subkey(key, DRAW_JITTER_VALUES));
    if (happens(o->gray_prob, key, DRAW_GRAY)) augment_gray(out, n);
}

/* --- views ------------------------------------------------------------------------------------------- */

/* The box that is read of an image, and its resize plan. */
typedef struct view_cut {
    image_box box;
    resize_plan plan;
} view_cut;

static view_cut cut_of(const transform_options *o, const uint64_t *key, int64_t width, int64_t height)
{
    if (!key) return (view_cut){ { 0, 0, height, width }, eval_plan(o, width, height) };
    image_box box = transform_draw_crop(o, *key, width, height);
    return (view_cut){ box, train_plan(o, &box) };
}

static cloob_status view_part(cloob_ctx *ctx, view_scratch *s, image_part *part, const transform_options *o,
                              const resize_plan *p, const uint64_t *key, uint8_t *out)
{
    if (!key) return eval_part(ctx, s, part, o, p, out);
    CLOOB_TRY(train_part(ctx, s, part, o, p, out));
    train_augment(o, *key, p->out_width, p->out_height, out);
    return CLOOB_OK;
}

/* The smallest scale, in eighths, at which the box still has as many pixels as the resize makes of it. Only scales that
 * libjpeg-turbo implements with SIMD. */
static int shrink_of(const transform_options *o, const view_cut *c)
{
    for (int eighths = 1; o->jpeg_shrink && eighths < 8; eighths *= 2)
        if (c->box.width * eighths >= c->plan.out_width * 8 && c->box.height * eighths >= c->plan.out_height * 8)
            return eighths;
    return 8;
}

static image_box scale_box(const image_box *b, int eighths)
{
    int64_t top = (b->top * eighths + 4) / 8, left = (b->left * eighths + 4) / 8;
    return (image_box){ top, left, ((b->top + b->height) * eighths + 4) / 8 - top,
                        ((b->left + b->width) * eighths + 4) / 8 - left };
}

/* Images above IMAGE_MAX_PIXELS are decoded one at a time in the process, and their pixels are freed afterwards:
 * otherwise every decoding thread would hold hundreds of megabytes. */
static pthread_mutex_t large_turn = PTHREAD_MUTEX_INITIALIZER;

cloob_status view_of_bytes(cloob_ctx *ctx, view_scratch *s, const void *bytes, size_t size, const char *name,
                           const image_limits *limits, const transform_options *o, const uint64_t *key, uint8_t *out)
{
    int64_t width, height;
    image_part part;
    CLOOB_TRY(image_reader_open(ctx, s->reader, bytes, size, name, limits, &width, &height));
    view_cut cut = cut_of(o, key, width, height);
    int eighths = shrink_of(o, &cut);
    if (eighths < 8) { /* the same part of a smaller image; formats other than JPEG keep their size */
        image_limits less = limits ? *limits : (image_limits){ .max_pixels = IMAGE_MAX_PIXELS };
        less.jpeg_scale = eighths;
        int64_t full = width;
        CLOOB_TRY(image_reader_open(ctx, s->reader, bytes, size, name, &less, &width, &height));
        if (width < full) cut.box = scale_box(&cut.box, eighths);
    }
    bool large = width > IMAGE_MAX_PIXELS / height;
    if (large) pthread_mutex_lock(&large_turn);
    cloob_status status = image_reader_load(ctx, s->reader, &cut.box, &part);
    if (status == CLOOB_OK) status = view_part(ctx, s, &part, o, &cut.plan, key, out);
    if (large) {
        image_reader_trim(s->reader);
        pthread_mutex_unlock(&large_turn);
    }
    return status;
}

cloob_status view_of_image(cloob_ctx *ctx, view_scratch *s, const image *im, const transform_options *o,
                           const uint64_t *key, uint8_t *out)
{
    view_scratch own = { 0 };
    view_cut cut = cut_of(o, key, im->width, im->height);
    image_part whole = image_whole(im), part = image_window(&whole, &cut.box);
    cloob_status status = view_part(ctx, s ? s : &own, &part, o, &cut.plan, key, out);
    scratch_release(&own);
    return status;
}

cloob_status transform_crop_resize(cloob_ctx *ctx, const image *im, int64_t top, int64_t left, int64_t crop_height,
                                   int64_t crop_width, int64_t width, int64_t height, resize_filter filter,
                                   uint8_t *out)
{
    view_scratch s = { 0 };
    image_box box = { top, left, crop_height, crop_width };
    if (crop_height == 0 || crop_width == 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "crop %lld,%lld,%lld,%lld (top, left, height, width) is empty",
                        (long long)top, (long long)left, (long long)crop_height, (long long)crop_width);
    if (top < 0 || left < 0 || crop_height < 0 || crop_width < 0 || top > im->height - crop_height ||
        left > im->width - crop_width)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "crop %lld,%lld,%lld,%lld (top, left, height, width) leaves the image of %lld x %lld",
                        (long long)top, (long long)left, (long long)crop_height, (long long)crop_width,
                        (long long)im->width, (long long)im->height);
    image_part whole = image_whole(im), part = image_window(&whole, &box);
    resize_plan p = resize_plan_whole(width, height, filter);
    cloob_status status = resize_part(ctx, &s, &part, &p, out);
    scratch_release(&s);
    return status;
}

/* --- which files a GPU decodes, and its views in plain C ------------------------------------------------ */

/* Planes, the box in RGB and half resized; weights and alignment are small in comparison. */
static bool fits(const view_job *job, int64_t size)
{
    int64_t pixels = (int64_t)job->layout.width * job->layout.height, box = job->box.width * job->box.height;
    return 3 * (pixels + 64 * (job->layout.width + job->layout.height)) + 4 * box + 4 * job->box.height * size <
           (int64_t)DEVICE_VIEW_BYTES * 15 / 16;
}

bool view_job_plan(const void *bytes, size_t size, const image_limits *limits, const transform_options *o, uint64_t key,
                   view_job *job)
{
    *job = (view_job){ .bytes = bytes };
    const jpeg_layout *l = &job->layout;
    if (!jpeg_layout_read(bytes, size, &job->layout)) return false;
    if (limits->max_pixels > 0 && (int64_t)l->width * l->height > limits->max_pixels) return false;
    if ((limits->photo && exif_orientation(bytes, size) != 1) || transform_draw_colours(o, key)) return false;
    if (o->how.filter > RESIZE_BILINEAR || o->how.mode == RESIZE_PATCHES)
        return false; /* the kernels' sine is not the host's, and their views are squares */
    job->box = transform_draw_crop(o, key, l->width, l->height);
    job->flip = transform_draw_flip(o, key);
    return fits(job, o->size);
}

cloob_status view_job_define(cloob_ctx *ctx, const ycc_planes *planes, const view_job *job, const transform_options *o,
                             uint8_t *out)
{
    int64_t width = job->box.width, height = job->box.height;
    image im = { .width = width, .height = height, .rgb = malloc((size_t)(width * height * 3)) };
    if (!im.rgb) return ctx_no_memory(ctx, (size_t)(width * height * 3), "a view");
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            ycc_pixel(planes, (int)(job->box.left + x), (int)(job->box.top + y), im.rgb + (y * width + x) * 3);
    cloob_status status = transform_crop_resize(ctx, &im, 0, 0, height, width, o->size, o->size, o->how.filter, out);
    if (job->flip) augment_flip(out, o->size, o->size);
    image_release(&im);
    return status;
}
